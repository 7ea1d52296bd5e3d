"""What every implementation of a region must do at least: a fast one must not be called impossible."""

from __future__ import annotations

import pytest

from kernels.measure.planner import _binding, certain_flops
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse

QKV = "q: bf16[2, 4, 256, 64]{grad}\nk: bf16[2, 4, 256, 64]{grad}\nv: bf16[2, 4, 256, 64]{grad}\n"
SCORES = "s = (q @ k.transpose(-1, -2)) * 0.125\n"
CAUSAL = 'm = torch.ones(256, 256, dtype=torch.bool).tril()\ns = s.masked_fill(~m, float("-inf"))\n'
REST = "p = torch.softmax(s.float(), -1).to(bf16)\nreturn p @ v\n"
PRODUCTS = 2 * 2 * 4 * 2 * 256 * 256 * 64  # two products, two FLOPs an element, batch and heads


def flops(text: str) -> float:
    return certain_flops(lower(parse(text)))


def test_all_scores_are_needed_without_a_mask_and_with_a_bias() -> None:
    head = QKV.format(grad="")
    assert flops(head + SCORES + REST) == PRODUCTS
    assert flops(head + "b: bf16[256, 256]\n" + SCORES + "s = s + b\n" + REST) == PRODUCTS


def test_in_causal_order_the_upper_half_may_be_left_out() -> None:
    found = flops(QKV.format(grad="") + SCORES + CAUSAL + REST)
    assert found == pytest.approx(PRODUCTS * (1 + 2 + 3 + 253 * (4 + 256) / 2) / 256**2, rel=1e-12)


def test_what_a_boolean_mask_drops_may_be_left_out() -> None:
    masked = 's = s.masked_fill(m, float("-inf"))\n'
    assert flops(QKV.format(grad="") + "m: bool[256, 256]\n" + SCORES + masked + REST) == 0


WINDOW = "i = arange(256)\nkeep = (i[:, None] >= i[None, :]) & (i[:, None] - i[None, :] < 64)\n"


@pytest.mark.parametrize(
    "masked", ["s = s.masked_fill(~keep, float('-inf'))\n", "s = s + torch.where(keep, 0.0, float('-inf')).to(bf16)\n"]
)
@pytest.mark.parametrize("cap", ["", "s = 30.0 * tanh(s / 30.0)\n"])
def test_what_a_window_hides_may_be_left_out_and_no_more(masked: str, cap: str) -> None:
    """FlexAttention skips its blocks: whatever the mask is written as, and with a cap in front of it."""
    kept = sum(min(row + 1, 64) for row in range(256)) / 256**2
    found = flops(QKV.format(grad="") + SCORES + cap + WINDOW + masked + REST)
    assert found == pytest.approx(PRODUCTS * kept, rel=1e-9)


def test_documents_hide_what_nobody_knows_before_they_are_read() -> None:
    same = "d: i64[256]\n" + SCORES + "s = s.masked_fill(d[:, None] != d[None, :], float('-inf'))\n"
    assert flops(QKV.format(grad="") + same + REST) == 0


def test_the_backward_of_causal_attention_counts_no_more_than_half_of_each_product() -> None:
    forward = flops(QKV.format(grad="") + SCORES + CAUSAL + REST)
    both = flops(QKV.format(grad=".requires_grad") + SCORES + CAUSAL + REST)
    assert 2.5 * forward <= both <= 3.5 * forward


def test_other_products_count_whole() -> None:
    assert flops("a: bf16[64, 32]\nb: bf16[32, 16]\nreturn a @ b\n") == 2 * 64 * 32 * 16


def test_eight_bit_operands_are_held_to_the_fastest_units() -> None:
    text = "a: f8e4m3[64, 32]\nb: f8e4m3[16, 32]\nreturn (a.to(f32) @ b.to(f32).t()).to(bf16)\n"
    region = parse(text)
    assert _binding(region, {}, lower(region), None).matmul_dtype == "f8e4m3"
    wide = parse(text.replace("f8e4m3", "bf16"))
    assert _binding(wide, {}, lower(wide), None).matmul_dtype == "f32"


def test_all_that_eager_writes_counts_as_memory_of_a_call() -> None:
    region = parse("x: f32[64, 32]\ny = x * 2\nreturn y.sum()\n")
    assert _binding(region, {}, lower(region), None).working_bytes == 4 * (64 * 32 + 1)
