"""Two products in one kernel: every variant gives what PyTorch gives, and what it does not take is said."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from kernels.agreement import disagreement
from kernels.ops.matmul import fused_mlp
from kernels.spec import Maker, case
from kernels.tuning import Variant

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

OPERATION = fused_mlp.OPERATIONS[0]
WIDE = case("f16", m=70, k=296, h=24, n=312, transposed=1, bias=1, residual=1)
NARROW = case("f16", m=150, k=40, h=24, n=72, activation="gelu")
F32 = case("f32", m=70, k=40, h=24, n=40, activation="silu", bias=1)
X, W1, W2 = torch.zeros((4, 6)), torch.zeros((6, 3)), torch.zeros((3, 5))


def variants(arguments: tuple[Any, ...]) -> list[Variant]:
    """Those that a large problem of these sizes would be timed with, and a small one."""
    x, w1, w2, activation, b1, b2, residual = arguments
    epilogue = fused_mlp._epilogue(b1, activation, b2, residual, x.dtype)
    large = torch.empty((1 << 20, x.shape[1]), dtype=x.dtype, device="meta")
    found = [v for rows in (large, x) for tma in (True, False) for v in fused_mlp.space(rows, w1, w2, epilogue, tma)]
    return list({v.choice: v for v in found}.values())


@pytest.mark.parametrize("one", [WIDE, NARROW, F32], ids=["wide", "narrow", "f32"])
def test_every_variant(one: Any) -> None:
    arguments = x, w1, w2, _, b1, b2, residual = fused_mlp.inputs(one, Maker())
    for variant in variants(arguments):
        y = torch.full((x.shape[0], w2.shape[1]), torch.nan, dtype=x.dtype)
        fused_mlp.launch(variant, x, w1, w2, y, b1, b2, residual)
        assert disagreement(OPERATION, y, arguments) == "", str(variant)


def test_an_infinite_row_stays_in_its_row() -> None:
    """Hidden columns beyond the last are padding: infinity times its zeros is NaN, and NaN times a zero again."""
    x, w1, w2, *_ = fused_mlp.inputs(case("f32", m=40, k=8, h=20, n=8), Maker())
    w1 = w1.abs()
    x[3] = torch.inf
    y = fused_mlp.fused_mlp(x, w1, w2)
    wanted = fused_mlp.reference(x, w1, w2)
    assert torch.isfinite(y[:3]).all() and torch.isfinite(y[4:]).all()
    torch.testing.assert_close(y, wanted, equal_nan=True)


def test_leading_axes_stay_and_the_residual_has_its_own() -> None:
    x, w1, w2 = torch.randn(2, 3, 16), torch.randn(16, 24) / 4, torch.randn(24, 16) / 4
    wanted = fused_mlp.reference(x, w1, w2) + x
    torch.testing.assert_close(fused_mlp.fused_mlp(x, w1, w2, residual=x), wanted)
    flat = fused_mlp.fused_mlp(x.view(6, 16), w1, w2, residual=x)
    torch.testing.assert_close(flat, wanted.view(6, 16))


def test_sizes_of_nothing() -> None:
    """As PyTorch has them: no rows, no columns, no hidden layer."""
    for x, w1, w2 in (
        ((2, 3, 0), (0, 5), (5, 4)),
        ((0, 4), (4, 5), (5, 6)),
        ((3, 4), (4, 0), (0, 6)),
        ((3, 4), (4, 5), (5, 0)),
    ):
        given = [torch.randn(shape) for shape in (x, w1, w2)]
        more = {"b2": torch.randn(w2[1]), "residual": torch.randn(*x[:-1], w2[1])}
        torch.testing.assert_close(fused_mlp.fused_mlp(*given, **more), fused_mlp.reference(*given, **more))


def test_some_variant_fits_every_gpus_shared_memory() -> None:
    """64 KiB on an MI300X, 99 on GPUs for desktops: without one, tuning has nothing to choose from."""
    for m, k, h, n in product((100, 200_000), (32, 256, 4096), (64, 256), (32, 256, 4096)):
        x, w1, w2 = (torch.empty(s, dtype=torch.bfloat16, device="meta") for s in ((m, k), (k, h), (h, n)))
        epilogue = fused_mlp._epilogue(None, "relu", None, None, x.dtype)
        assert min(v.shared_bytes for v in fused_mlp.space(x, w1, w2, epilogue, True)) <= 64 * 1024


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: fused_mlp.fused_mlp(X, W1, W2.half()), TypeError, "weights alike"),
        (lambda: fused_mlp.fused_mlp(X.double(), W1.double(), W2.double()), TypeError, "f32, f16 or bf16"),
        (lambda: fused_mlp.fused_mlp(X[0, 0], W1, W2), ValueError, "a single number"),
        (lambda: fused_mlp.fused_mlp(X, W2, W2), ValueError, r"\[4, 6\] and \[3, 5\]"),
        (lambda: fused_mlp.fused_mlp(X, W1, W1), ValueError, "3 columns"),
        (lambda: fused_mlp.fused_mlp(X, W1, W2, "swish"), ValueError, "activation is one of"),
        (lambda: fused_mlp.fused_mlp(X, W1, W2, b1=W2[0]), ValueError, "b1 is"),
        (lambda: fused_mlp.fused_mlp(X, W1, W2, b2=W2[0].half()), TypeError, "b2 is"),
        (lambda: fused_mlp.fused_mlp(X, W1, W2, residual=X), ValueError, "residual is"),
        (lambda: fused_mlp.fused_mlp(X, torch.zeros(6, 257), torch.zeros(257, 5)), ValueError, "up to 256"),
    ],
)  # fmt: skip
def test_what_it_does_not_take_is_said(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
