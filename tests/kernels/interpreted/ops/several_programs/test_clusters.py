"""Clusters that share a row, by small tiles: in the interpreter a tile is whole, so what is exchanged is there."""

from __future__ import annotations

import itertools

import pytest
import torch

from kernels.ops.norm.rms_norm_cluster import rms_norm_cluster
from kernels.ops.shared.rows import DTYPES
from kernels.ops.softmax.softmax_backward_cluster import softmax_backward_cluster
from kernels.ops.softmax.softmax_cluster import softmax_cluster

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
INFINITY = float("inf")
ROWS = 8
Kind = tuple[torch.dtype, int, int]
KINDS: list[Kind] = [
    (torch.bfloat16, 2, 1024), (torch.bfloat16, 2, 1100), (torch.float16, 2, 2048), (torch.float32, 1, 700),
    (torch.float32, 1, 512),
]  # fmt: skip
"""dtype, elements in a word, columns; with 700 and 1100 the last piece is masked."""


def shape(kind: Kind) -> dict[str, object]:
    """Constants of a cluster of two programs of two warps; two pieces a thread where words are more than 512."""
    dtype, halves, columns = kind
    words = columns // halves
    return {
        "WORDS": words, "CTAS": 2, "WARPS": 2, "HELD": -(-words // 512), "HALVES": halves, "DTYPE": DTYPES[dtype],
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_softmax_by_a_cluster_is_that_of_the_row(kind: Kind) -> None:
    dtype, halves, columns = kind
    x = (3 * torch.randn(ROWS, columns, generator=torch.Generator().manual_seed(5))).to(dtype)
    x[1, : columns - 3] = -INFINITY
    x[2] = -INFINITY
    x[3, 7] = INFINITY
    x[4, columns - 1] = torch.nan
    x[5] = 0.5
    x[6] *= 10_000 if dtype == torch.float16 else 1e30
    y = torch.full_like(x, 7.0)
    words = columns // halves
    softmax_cluster[(ROWS,)](x, y, ROWS, words, words, **shape(kind))
    torch.testing.assert_close(
        y.float(), torch.softmax(x.double(), 1).float(), equal_nan=True, rtol=1e-2 if halves == 2 else 1e-5, atol=1e-6
    )


@pytest.mark.parametrize("kind", KINDS)
def test_softmax_s_gradient_by_a_cluster_is_that_of_the_row(kind: Kind) -> None:
    dtype, halves, columns = kind
    source = torch.Generator().manual_seed(6)
    dy = torch.randn(ROWS, columns, generator=source).to(dtype)
    y = torch.softmax(3 * torch.randn(ROWS, columns, generator=source), 1).to(dtype)
    y[2], dy[3] = 0.0, 0.0
    dx = torch.full_like(dy, torch.nan)
    words = columns // halves
    softmax_backward_cluster[(ROWS,)](dy, y, dx, ROWS, words, words, words, 0, **shape(kind))
    wanted = torch._softmax_backward_data(dy.double(), y.double(), 1, torch.float64)
    tolerance = 1e-2 if halves == 2 else 1e-5
    torch.testing.assert_close(dx.double(), wanted, rtol=tolerance, atol=1e-4 if halves == 2 else 1e-7)


@pytest.mark.parametrize(("residual", "weight", "kind"), list(itertools.product((False, True), (True, False), KINDS)))
def test_rms_norm_by_a_cluster_is_that_of_the_row(residual: bool, weight: bool, kind: Kind) -> None:
    dtype, halves, columns = kind
    source = torch.Generator().manual_seed(9)
    x, r = ((5 + torch.randn(ROWS, columns, generator=source)).to(dtype) for _ in range(2))
    x[2], r[2] = 0.0, 0.0
    w = torch.randn(columns, generator=source).to(dtype)
    y, kept = torch.full_like(x, torch.nan), torch.full_like(x, torch.nan)
    words = columns // halves
    rms_norm_cluster[(ROWS,)](
        x, r, w, y, kept, ROWS, words, words, words, 1e-6, 0, RESIDUAL=residual, WEIGHT=weight, **shape(kind)
    )  # fmt: skip
    added = x + r if residual else x
    scale = (added.double().square().mean(1, keepdim=True) + 1e-6).rsqrt()
    expected = added.double() * scale * (w.double() if weight else 1.0)
    tolerance = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-5}[dtype]
    torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=tolerance)
    if residual:
        assert torch.equal(kept, added)
    else:
        assert kept.isnan().all()
