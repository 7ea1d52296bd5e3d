"""Clusters that share a row, by small tiles: in the interpreter a tile is whole, so what is exchanged is there."""

from __future__ import annotations

import pytest
import torch

from kernels.ops.shared.rows import DTYPES
from kernels.ops.softmax.softmax_backward_cluster import softmax_backward_cluster

ROWS = 5


@pytest.mark.parametrize(
    ("dtype", "halves", "columns"),
    [
        (torch.bfloat16, 2, 1024), (torch.bfloat16, 2, 1100), (torch.float16, 2, 2048), (torch.float32, 1, 700),
        (torch.float32, 1, 512),
    ],
)  # fmt: skip
def test_softmax_s_gradient_by_a_cluster_is_that_of_the_row(dtype: torch.dtype, halves: int, columns: int) -> None:
    # Two programs of two warps; two pieces a thread beyond 512 words, of which 700 and 1100 columns mask the last.
    source = torch.Generator().manual_seed(6)
    dy = torch.randn(ROWS, columns, generator=source).to(dtype)
    y = torch.softmax(3 * torch.randn(ROWS, columns, generator=source), 1).to(dtype)
    y[2], dy[3] = 0.0, 0.0
    dx = torch.full_like(dy, torch.nan)
    words = columns // halves
    softmax_backward_cluster[(ROWS,)](
        dy, y, dx, ROWS, words, words, words, 0, WORDS=words, CTAS=2, WARPS=2, HELD=-(-words // 512), HALVES=halves,
        DTYPE=DTYPES[dtype],
    )  # fmt: skip
    wanted = torch._softmax_backward_data(dy.double(), y.double(), 1, torch.float64)
    tolerance = 1e-2 if halves == 2 else 1e-5
    torch.testing.assert_close(dx.double(), wanted, rtol=tolerance, atol=1e-4 if halves == 2 else 1e-7)
