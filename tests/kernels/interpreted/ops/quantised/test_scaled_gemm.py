"""Products of one-byte numbers: every variant, scales in any form, int8 at its ends, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels.agreement import disagreement
from kernels.ops.quantised.scaled_gemm import (
    BLOCK,
    LONGEST_INT8,
    OPERATIONS,
    inputs,
    launch,
    reference,
    scaled_gemm,
    space,
)
from kernels.spec import Maker, case

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

(SCALED,) = OPERATIONS
F8 = torch.float8_e4m3fn


def _sized(m: int, n: int, k: int, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Of sizes for which other tiles are offered, with no memory behind them."""
    return torch.empty((m, k), dtype=kind, device="meta"), torch.empty((n, k), dtype=kind, device="meta").T


@pytest.mark.parametrize("kind", ["f8", "int8"])
@pytest.mark.parametrize(("m", "n", "k"), [(40, 16384, 272), (40, 4096, 8192), (300, 16384, 272), (8192, 16384, 272)])
@pytest.mark.parametrize("block", [False, True])
def test_every_variant_agrees(kind: str, m: int, n: int, k: int, block: bool) -> None:
    """Parts of K among them, of which the last has nothing."""
    if block and kind == "int8":
        return
    scales = "block" if block else "row"
    arguments = inputs(case("f16", m=70, k=272, n=144, scales=scales, kind=kind), Maker())
    a, b, scale_a, scale_b, *_ = arguments
    wanted = [scale_a, scale_b.T] if block else [scale_a, scale_b.reshape(1, -1)]
    tried = {}
    for variant in space(*_sized(m, n, k, a.dtype), block, True):
        tried[tuple(variant[name] for name in variant.tuned)] = variant
    assert max(v["SPLIT_K"] for v in tried.values()) == (8 if n == 4096 else 1)
    for variant in tried.values():
        whole = tuple((n, 272 % variant["BK"] == 0 if n == "EVEN_K" else x) for n, x in variant.constants)
        object.__setattr__(variant, "constants", whole)
        c = torch.full((70, 144), torch.nan, dtype=torch.float16)
        launch(variant, a, b.T, c, *wanted)
        assert disagreement(SCALED, c, arguments) == "", str(variant)


def test_scales_of_all_numbers_of_a_row_or_mixed_are_the_same_product() -> None:
    a, b, *_ = inputs(case("f32", m=20, k=40, n=24, scales="row"), Maker())
    one, rows = torch.tensor(0.5), torch.full((20, 1), 0.5)
    wanted = reference(a, b, rows, torch.full((24, 1), 2.0), "f32", turned=True)
    for scale_a in (one, rows, rows.flatten()):
        for scale_b in (torch.tensor([2.0]), torch.full((1, 24), 2.0), torch.full((48,), 2.0)[::2]):
            assert torch.allclose(scaled_gemm(a, b, scale_a, scale_b, "f32", turned=True), wanted, atol=1e-5)


def test_scales_of_blocks_are_those_of_the_blocks() -> None:
    """Dequantised by hand, block by block; three blocks of K and two of N, the last ones cut."""
    a, b, scale_a, scale_b, *_ = inputs(case("f32", m=9, k=300, n=200, scales="block"), Maker())
    x, w = a.float(), b.float()
    for k in range(0, 300, BLOCK):
        x[:, k : k + BLOCK] *= scale_a[:, k // BLOCK, None]
        for n in range(0, 200, BLOCK):
            w[n : n + BLOCK, k : k + BLOCK] *= scale_b[n // BLOCK, k // BLOCK]
    assert torch.allclose(scaled_gemm(a, b, scale_a, scale_b, "f32", block=True, turned=True), x @ w.T, atol=1e-4)
    other = scaled_gemm(a, b.T, scale_a, scale_b.T, "f32", block=True)
    assert torch.allclose(other, x @ w.T, atol=1e-4)
    spaced = scale_b[:, None, :, None]
    assert torch.equal(other, scaled_gemm(a, b.T, scale_a, spaced.transpose(0, 2), "f32", block=True))


def test_int8_is_summed_exactly() -> None:
    """Sums that f32 has no number for: 2^24 and more, odd."""
    a, b = torch.full((16, 1500), -128, dtype=torch.int8), torch.full((1500, 16), -128, dtype=torch.int8)
    a[:, 0], b[0] = 1, 1
    c = scaled_gemm(a, b, torch.tensor(1.0), torch.tensor(2.0**-10), "f32")
    assert torch.equal(c, torch.full((16, 16), (1499 * 128 * 128 + 1) / 1024))


X, W, ONE = torch.zeros((4, 8)).to(F8), torch.zeros((8, 6)).to(F8), torch.ones(())


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: scaled_gemm(X, W.to(torch.int8), ONE, ONE), TypeError, "alike"),
        (lambda: scaled_gemm(X.to(torch.float8_e5m2), W.to(torch.float8_e5m2), ONE, ONE), TypeError, "f8e4m3"),
        (lambda: scaled_gemm(X, W, ONE, ONE.half()), TypeError, "scales in f32"),
        (lambda: scaled_gemm(X, W, ONE, ONE, "f64"), TypeError, "not f64"),
        (lambda: scaled_gemm(X, W, ONE, ONE, turned=True), ValueError, r"\[6, 8\]"),
        (lambda: scaled_gemm(X, W, torch.ones(8), ONE), ValueError, r"scale_a is \[8\]"),
        (lambda: scaled_gemm(X, W, ONE, torch.ones((6, 2))), ValueError, r"scale_b is \[6, 2\]"),
        (lambda: scaled_gemm(X, W, ONE, ONE, block=True), ValueError, r"scale_a is \[\]"),
        (lambda: scaled_gemm(X.to(torch.int8), W.to(torch.int8), ONE, ONE, block=True), ValueError, "no scales of bl"),
        (lambda: scaled_gemm(*(torch.zeros(s, dtype=torch.int8) for s in ((1, LONGEST_INT8), (LONGEST_INT8, 1))),
                             ONE, ONE), ValueError, "int32 overflows"),
    ],
)  # fmt: skip
def test_what_is_refused_says_why(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
