"""Attention left in compiled code: what is three kernels is one region, and what only looks like it is not."""

from __future__ import annotations

import torch

from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.mining.compiled_attention import find_compiled_attention, is_softmax
from profiler.region.mining.units import Argument, Sig, Unit
from profiler.trace.model import NONE
from tests.profiler.region.mining.test_mine import mined

SOFTMAX = "triton_red_fused__softmax_add_div_exp_prepare_softmax_online_sub_view_4"


def unit(name: str, *dims: tuple[int, ...], aten: bool = True) -> Unit:
    return Unit(0, name, aten, 0, tuple(Argument("tensor", (Sig("bf16", d),)) for d in dims), NONE, NONE, 0.0)


def product(rows: int = 128, inner: int = 64, columns: int = 128) -> Unit:
    return unit("bmm", (8, rows, inner), (8, inner, columns))


def softmax(name: str = SOFTMAX) -> Unit:
    return unit(name, (2, 4, 128, 128), (4, 128, 128), aten=False)


def test_two_products_with_a_compiled_softmax_between_them_are_one_region() -> None:
    copy = unit("triton_poi_fused_clone_3", (8, 128, 64), aten=False)
    busy = [product(), softmax(), copy, product(128, 128, 64)]
    assert find_compiled_attention(busy, "M..M", [False] * 4) == [[0, 1, 3]]


def test_what_has_other_sizes_or_is_taken_is_none() -> None:
    row = [product(), softmax(), product(128, 128, 64)]
    assert find_compiled_attention(row, "M.M", [True, False, False]) == []
    assert find_compiled_attention([product(64), *row[1:]], "M.M", [False] * 3) == []
    assert find_compiled_attention([*row[:2], product(64, 32, 64)], "M.M", [False] * 3) == []
    assert (
        find_compiled_attention([row[0], *[softmax("triton_poi_fused_clone_3")] * 4, *row[1:]], "M.....M", [False] * 7)
        == []
    )


def test_neither_a_backward_kernel_nor_a_losss_softmax_is_one() -> None:
    assert is_softmax(softmax())
    for name in ("triton_red_fused__softmax_backward_data_mul_7", "triton_red_fused__log_softmax_2", "mine_softmax"):
        assert not is_softmax(softmax(name)), name


def test_the_recorded_one_has_a_text_that_computes_attention() -> None:
    _, mining = mined("handrolled_blocks_bf16_compiled.json.gz")
    (region,) = [r for r in mining.regions if r.title == "attention by hand"]
    assert region.text is not None
    small = region.text.replace("2048", "16").replace("bf16", "f32")
    run = program(parse(small)).module
    generator = torch.Generator().manual_seed(0)
    q, k, v, bias = (
        torch.randn(s, generator=generator)
        for s in ((4, 16, 16, 128), (4, 16, 128, 16), (4, 16, 16, 128), (16, 16, 16))
    )
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k.mT, v, attn_mask=bias.expand(4, -1, -1, -1), scale=1 / 11.313708
    )
    assert torch.allclose(run(q, k, v, bias)[0], expected, atol=1e-5)
