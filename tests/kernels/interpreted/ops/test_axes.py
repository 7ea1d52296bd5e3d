"""Softmax and RMSNorm over an axis that is not the last: the variants that a small case does not choose."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.agreement import disagreement
from kernels.ops.norm import channel_norm
from kernels.ops.norm.channel_norm import channels_together
from kernels.ops.softmax import softmax_axis
from kernels.ops.softmax.softmax_axis import launch_split, span_statistics, split_space
from kernels.spec import DTYPES, Maker, case

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("shape", [(1, 2000, 24), (2, 1000, 70), (1, 9000, 3)])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_every_split_of_an_axis(shape: tuple[int, int, int], dtype: str) -> None:
    x = Maker(seed=2).normal(shape, DTYPES[dtype], scale=3.0)
    variants = split_space(*shape, x.element_size(), 8)
    assert variants and all(v["SPAN"] < shape[1] for v in variants)
    for variant in variants[::2]:
        y = torch.full(shape, math.nan)
        launch_split(variant, x, y)
        assert disagreement(softmax_axis.OPERATIONS[0], y, (x, 1, True)) == "", variant


def test_spans_of_minus_infinity_nan_and_infinity() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 6000, 16)
    variant = split_space(1, 6000, 16, 4, 8)[0]
    x[0, : variant["SPAN"], 1] = -math.inf
    x[0, :, 2] = -math.inf
    x[0, -1, 3] = math.nan
    x[0, 2000, 4] = math.inf
    x[0, :, 5] = 80.0
    x[0, 100, 6] = 1e30
    y = torch.zeros_like(x)
    launch_split(variant, x, y)
    torch.testing.assert_close(y, torch.softmax(x, 1), equal_nan=True)


def test_a_long_axis_is_cut_only_where_columns_are_few() -> None:
    def cut(outer: int, length: int, inner: int) -> bool:
        return any(v.kernel is span_statistics for v in softmax_axis.space(outer, length, inner, 2, 132))

    assert cut(1, 65536, 1024) and not cut(1, 1024, 1024) and not cut(64, 65536, 4096)


def test_joining_spans_reads_a_quarter_of_a_span_at_most() -> None:
    for length in (5000, 65536, 1 << 24):
        for inner in (1, 40, 1024):
            for v in split_space(1, length, inner, 2, 132):
                assert -(-length // v["SPAN"]) * 8 * 4 <= v["SPAN"] * 2


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize(
    ("dtype", "shape"), [("f32", (2, 128, 32)), ("f32", (1, 200, 45)), ("bf16", (2, 256, 64)), ("f16", (1, 97, 70))]
)
def test_channels_that_a_program_holds_together(dtype: str, shape: tuple[int, int, int], weight: bool) -> None:
    operation = channel_norm.OPERATIONS[0]
    x, w, dim, eps = operation.inputs(case(dtype, shape=shape, dim=1, weight=weight), Maker(seed=7))
    halves = 1 if dtype == "f32" else 2
    variants = [
        v for v in channel_norm.space(*shape[1:], x.dtype, halves, weight) if v.kernel is channels_together
    ]  # fmt: skip
    assert len(variants) >= 3
    for variant in variants:
        y = torch.full_like(x, math.nan)
        channel_norm.launch(variant, x, x if w is None else w, y, eps)
        assert disagreement(operation, y, (x, w, dim, eps)) == "", variant


def test_most_channels_that_are_held() -> None:
    def first(channels: int) -> bool:
        return channel_norm.space(channels, 4096, torch.bfloat16, 2, False)[0].kernel is channels_together

    assert not first(96) and first(97) and first(1024) and not first(1025)
