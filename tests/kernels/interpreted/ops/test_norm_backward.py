"""The backwards of the normalisations where sums and rows do not fit together: weight read again, strips of columns."""

from __future__ import annotations

import pytest
import torch

from kernels.agreement import disagreement
from kernels.ops.norm import backward as norm_backward
from kernels.ops.norm import layer_norm_backward
from kernels.ops.norm import rms_norm_backward as rms_backward
from kernels.ops.norm.backward import Form
from kernels.ops.norm.backward_kernels import gradient_chunks, gradient_packed
from kernels.spec import DTYPES, Maker, case
from kernels.tuning import Variant

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
LAYER, RMS = Form(centered=True, bias=True), Form()


def fault_of(variant: Variant, form: Form, dtype: str, rows: int, columns: int, maker: str = "plain") -> str:
    """What one variant gets wrong; it finds NaN where it leaves something out."""
    operation = (layer_norm_backward if form.centered else rms_backward).OPERATIONS[0]
    dy, x, weight, *stats = operation.inputs(case(dtype, rows=rows, columns=columns), Maker(seed=3, form=maker))
    dx = torch.full_like(x, torch.nan, memory_format=torch.contiguous_format)
    dw, db = torch.full((columns,), torch.nan), torch.full((columns,), torch.nan)
    norm_backward.launch(variant, dy, x, weight, stats[0], stats[-1], dx, dw, db, 0.0)
    sums = (dw.to(weight.dtype), db.to(weight.dtype))
    return disagreement(operation, (dx, *(sums if form.bias else sums[:1])), (dy, x, weight, *stats))


@pytest.mark.parametrize("form", [LAYER, RMS], ids=["layer", "rms"])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("rows", [5, 1])
@pytest.mark.parametrize("columns", [2048, 2000])
def test_a_weight_that_is_read_again_for_every_row(form: Form, dtype: str, rows: int, columns: int) -> None:
    halves = 1 if dtype == "f32" else 2
    variant = norm_backward.packed(columns // halves, halves, DTYPES[dtype], form, 4, 2, late=True)
    assert variant["LATE"] and variant["CHUNKS"] > 1
    assert fault_of(variant, form, dtype, rows, columns) == ""


@pytest.mark.parametrize("form", [LAYER, RMS], ids=["layer", "rms"])
@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "chunk", "held"),
    [("bf16", 37, 1024, 16, 1), ("bf16", 5, 2500, 8, 2), ("f32", 20, 300, 8, 4), ("f16", 16, 4098, 16, 1)],
)
def test_strips_then_pieces(form: Form, dtype: str, rows: int, columns: int, chunk: int, held: int) -> None:
    halves = 1 if dtype == "f32" else 2
    variant = norm_backward.chunked(columns // halves, halves, DTYPES[dtype], form, chunk, held)
    for maker in ("plain", "strided"):
        assert fault_of(variant, form, dtype, rows, columns, maker) == ""


@pytest.mark.parametrize("form", [LAYER, RMS], ids=["layer", "rms"])
def test_strips_of_rows_of_nan_infinities_and_one_value(form: Form) -> None:
    variant = norm_backward.chunked(512, 1, torch.float32, form, 8)
    assert fault_of(variant, form, "f32", 11, 512, "special") == ""


def test_pieces_do_not_wait_for_sums_that_are_zero() -> None:
    x, weight = torch.randn(9, 256), torch.ones(256)
    variant = norm_backward.chunked(256, 1, torch.float32, RMS, 8)
    dx, dw = torch.full_like(x, torch.nan), torch.full((256,), torch.nan)
    rstd = torch.rsqrt(x.pow(2).mean(-1))
    norm_backward.launch(variant, torch.zeros_like(x), x, weight, rstd, rstd, dx, dw, dw, 0.0)
    assert not dx.any() and not dw.any()


def test_rows_that_no_program_holds_are_read_by_strips_in_an_operation() -> None:
    operation = layer_norm_backward.OPERATIONS[0]
    form = Form(centered=True, bias=True)
    assert norm_backward.space(3, 13000, torch.float32, 1, form)[0].kernel is gradient_chunks
    arguments = operation.inputs(case("f32", rows=3, columns=13000, stats=False), Maker(seed=5))
    assert disagreement(operation, operation.run(*arguments), arguments) == ""


@pytest.mark.parametrize(("columns", "dtype"), [(16384, torch.bfloat16), (12000, torch.float32)])
def test_long_rows_of_layer_norm_are_held_without_the_weight(columns: int, dtype: torch.dtype) -> None:
    halves = 1 if dtype == torch.float32 else 2
    variants = norm_backward.space(8192, columns, dtype, halves, LAYER)
    late = [v for v in variants if v.kernel is gradient_packed]
    assert late and all(v["LATE"] for v in late)
    assert any(v.kernel is gradient_chunks for v in variants)
    assert all(v.registers * v.warps * 32 <= 65536 for v in variants)
    assert len({v.choice for v in variants}) == len(variants), "two variants that the file of choices cannot tell apart"


def test_rows_that_fit_beside_their_sums_hold_the_weight() -> None:
    variants = norm_backward.space(8192, 16384, torch.bfloat16, 2, RMS)
    assert all(not v["LATE"] for v in variants if v.kernel is gradient_packed)
    assert not any(v.kernel is gradient_chunks for v in variants)
