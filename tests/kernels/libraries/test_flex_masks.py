"""FlexAttention of masks that are numbers: scores that are kept keep their digits, hidden rows are what they were."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.candidates import build
from profiler.region.graph.lowering import lower
from profiler.region.graph.scores import functions as score_functions
from profiler.region.language.program import program
from profiler.region.language.text import parse
from tests.kernels.libraries.test_flex import FLEX, cover

QKV = "q: f32[2, 4, 24, 16]\nk: f32[2, 4, 24, 16]\nv: f32[2, 4, 24, 16]\n"
SCORES = "i = arange(24)\ns = q @ k.transpose(-1, -2) * 0.3\n"
END = "return softmax(s, -1) @ v\n"
ADDED = "s = s + (1.0 - m[:, None, None, :]{cast}) * {low}\n"
LOWEST = ["-1e3", "-1e4", "-1e9", "-3.4028234663852886e+38"]


def given(text: str, **masks: torch.Tensor) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    made = []
    for item, fake in zip(parse(text).inputs, program(parse(text)).inputs, strict=True):
        drawn = torch.randn(fake.shape, generator=generator).to(fake.dtype)
        made.append(masks[item.name].to(fake.dtype) if item.name in masks else drawn)
    return made


def compared(text: str, tolerance: float = 2e-6, **masks: torch.Tensor) -> None:
    """The candidate with what the text itself computes."""
    values = given(text, **masks)
    (got,) = build(FLEX, parse(text), {}, "cpu")(*values)
    (wanted,) = program(parse(text)).module(*values)
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=tolerance)


def kept_keys() -> torch.Tensor:
    kept = torch.rand(2, 24, generator=torch.Generator().manual_seed(2)) < 0.6
    kept[:, 0] = True
    return kept


@pytest.mark.parametrize("low", LOWEST)
@pytest.mark.parametrize(("dtype", "cast"), [("f32", ""), ("i64", ".to(f32)"), ("bool", ".to(f32)"), ("bf16", "")])
@pytest.mark.parametrize(
    "more",
    ["", "s = s + h[:, None, None] * (i[None, :] - i[:, None])\n", "s = 50.0 * tanh(s / 50.0)\n"],
    ids=["alone", "with slopes", "with a cap behind"],
)
def test_a_mask_of_numbers_that_is_added_leaves_what_it_keeps_its_digits(
    dtype: str, cast: str, low: str, more: str
) -> None:
    if dtype == "bf16" and low.startswith("-3.4"):
        low = "-3.3895e+38"
    slopes = "h: f32[4]\n" if "h[" in more else ""
    text = QKV + f"m: {dtype}[2, 24]\n" + slopes + SCORES + ADDED.format(cast=cast, low=low) + more + END
    compared(text, m=kept_keys())


def test_the_pasted_call_keeps_the_scores_digits_too(recwarn: pytest.WarningsRecorder) -> None:
    text = QKV + "m: f32[2, 24]\n" + SCORES + ADDED.format(cast="", low="-1e9") + END
    values = given(text, m=kept_keys())
    space: dict[str, Any] = {"torch": torch, **dict(zip("qkvm", values, strict=True))}
    exec(compile(cover(text).call.replace("torch.compile(", "("), "<call>", "exec"), space)  # noqa: S102
    (wanted,) = program(parse(text)).module(*values)
    torch.testing.assert_close(space["y"], wanted, atol=2e-6, rtol=2e-6)


def test_a_constant_that_leaves_a_score_no_digits_is_not_taken() -> None:
    assert not score_functions.matches(lower(parse(QKV + SCORES + "s = s - 1e6\n" + END)))


TURNED = {
    "negative": "s = -s\n",
    "negative factor": "s = s * -0.5\n",
    "taken from a number": "s = 1.0 - s\n",
    "square": "s = s * s\n",
    "absolute": "s = s.abs()\n",
    "sine": "s = torch.sin(s)\n",
    "times another": "s = s * e\n",
}


@pytest.mark.parametrize("more", TURNED.values(), ids=TURNED)
@pytest.mark.parametrize("low", ["-1e9", "float('-inf')"])
def test_hidden_scores_that_are_turned_are_not_taken(more: str, low: str) -> None:
    head = QKV + ("e: f32[24, 24]\n" if "e\n" in more else "") + SCORES
    mask = f"s = s.masked_fill(i[None, :] > i[:, None], {low})\n"
    assert not score_functions.matches(lower(parse(head + mask + more + END)))
    assert score_functions.matches(lower(parse(head + more + END)))
    assert score_functions.matches(lower(parse(head + mask + "s = torch.sigmoid(s) * 4.0\n" + END)))


LEFT = torch.arange(24) >= torch.tensor([[5], [0]])
NONE = torch.arange(24) >= torch.tensor([[0], [24]])
PAIRS = torch.arange(24)[None, :].expand(24, 24) < torch.arange(24)[:, None]
CAUSAL = "s = s.masked_fill(i[None, :] > i[:, None], -1e9)\n"
HIDDEN = {
    "padding": ("m: bool[2, 24]\n", "s = s.masked_fill(~m[:, None, None, :], -1e9)\n", NONE),
    "causal, padding in front": ("m: bool[2, 24]\n", CAUSAL + "s = s.masked_fill(~m[:, None, None, :], -1e9)\n", LEFT),
    "the same as one mask": ("m: bool[2, 24]\n", "s = torch.where((i[None, :] <= i[:, None]) & m[:, None, None, :], s, "
                             "-3.4028234663852886e+38)\n", LEFT),
    "the same, added": ("m: bool[2, 24]\n", "s = s + torch.where((i[None, :] <= i[:, None]) & m[:, None, None, :], 0.0,"
                        " -3.4028234663852886e+38)\n", LEFT),
    "pairs": ("m: bool[24, 24]\n", "s = s.masked_fill(~m, -1e9)\n", PAIRS),
    "pairs, scaled behind": ("m: bool[24, 24]\n", "s = s.masked_fill(~m, -1e9) * 0.5\n", PAIRS),
    "added by truth": ("m: bool[2, 24]\n", "s = s + (1.0 - m[:, None, None, :].to(f32)) * -1e9\n", NONE),
}  # fmt: skip


@pytest.mark.parametrize(("more", "lines", "mask"), HIDDEN.values(), ids=HIDDEN)
def test_a_row_that_a_finite_number_hides_as_a_whole_is_the_mean(more: str, lines: str, mask: torch.Tensor) -> None:
    text = QKV + more + SCORES + lines + END
    assert "mask_mod" not in cover(text).call
    compared(text, m=mask)


def test_a_mask_called_for_by_torchs_own_call_is_the_mean_where_it_is_finite() -> None:
    text = (
        QKV + "m: bool[2, 24]\na = torch.where(m[:, None, None, :], 0.0, -1e9).expand(2, 1, 24, 24)\n"
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=a)\n"
    )
    compared(text, m=NONE)


def test_infinity_keeps_its_blocks() -> None:
    lines = "s = s.masked_fill(~m[:, None, None, :], float('-inf'))\n"
    assert "mask_mod" in cover(QKV + "m: bool[2, 24]\n" + SCORES + lines + END).call


def test_where_numbers_that_hide_differ_the_user_is_told_of_rows_that_are_hidden() -> None:
    lines = "s = s.masked_fill(i[None, :] > i[:, None], float('-inf'))\ns = s.masked_fill(~m[:, None, None, :], -1e9)\n"
    told = dict(cover(QKV + "m: bool[2, 24]\n" + SCORES + lines + END).conditions)
    (said,) = (text for text in told if "hides as a whole" in text)
    assert told[said] is None
    assert dict(cover(QKV + SCORES + CAUSAL + END).conditions)[said] is True
