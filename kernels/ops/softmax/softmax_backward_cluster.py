"""Backward of softmax over long rows by clusters, each of which holds a row and its gradient as they came.

Traffic: y and dy read once, dx written once. On an H200 (2026-11-27, Triton 3.6.0, bf16, 4096 rows of 65,536): 371 us
by clusters of 8 blocks, where a program that reads a part of its row twice takes 467.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.ops.norm.forward_kernels import again, half, words_of
from kernels.ops.shared import cluster
from kernels.ops.shared.cluster import exchange, full, meet, read, share_of, write
from kernels.ops.shared.pairs import pair_of
from kernels.ops.shared.rows import DTYPES
from kernels.tuning import Variant


@triton.jit
def softmax_backward_cluster(
    dy_ptr, y_ptr, dx_ptr, rows, dy_stride, y_stride, dx_stride, zero, WORDS: tl.constexpr, CTAS: tl.constexpr,
    WARPS: tl.constexpr, HELD: tl.constexpr, HALVES: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """One row of WORDS words a cluster of CTAS blocks of WARPS warps, each of which holds HELD pieces of 128 words.

    HALVES: elements in a word, of DTYPE; strides in words. zero: 0, which the compiler must not know.
    """
    dy_ptr, y_ptr, dx_ptr = words_of(dy_ptr, HALVES), words_of(y_ptr, HALVES), words_of(dx_ptr, HALVES)
    at = share_of(CTAS, WARPS, HELD)
    place = meet()
    WHOLE: tl.constexpr = CTAS * WARPS * HELD * 128 == WORDS
    own = tl.program_id(0)
    # Its row alone; outside of a loop ptxas puts a quarter of the loads off until the others have come.
    for index in tl.range(own, tl.minimum(own + 1, rows), num_stages=1):
        row = tl.cast(index, tl.int64)
        results, gradients = (), ()
        for i in tl.static_range(HELD):
            col = at + i * (WARPS * 128)
            y = read(y_ptr + row * y_stride, col, 0, WORDS, WHOLE)
            dy = read(dy_ptr + row * dy_stride, col, 0, WORDS, WHOLE)
            results = results + (y,)  # noqa: RUF005 - Triton's tuples know only this
            gradients = gradients + (dy,)  # noqa: RUF005
        total = tl.zeros((CTAS, WARPS, 128), tl.float32)
        for i in tl.static_range(HELD):
            for h in tl.static_range(HALVES):
                total += half(gradients[i], h, DTYPE, HALVES) * half(results[i], h, DTYPE, HALVES)
        part = tl.sum(total, 2)
        sums, _ = exchange(place, part, part)
        dot = full(sums)[:, :, None]
        for i in tl.static_range(HELD):
            y, dy = again(results[i], dot, zero, HALVES), again(gradients[i], dot, zero, HALVES)
            dx = half(y, 0, DTYPE, HALVES) * (half(dy, 0, DTYPE, HALVES) - dot)
            if HALVES == 2:
                dx = pair_of(dx, half(y, 1, DTYPE, HALVES) * (half(dy, 1, DTYPE, HALVES) - dot), DTYPE)
            write(dx_ptr + row * dx_stride, at + i * (WARPS * 128), dx, WORDS, WHOLE)


def variant_of(columns: int, dtype: torch.dtype, halves: int, ctas: int) -> Variant:
    """Of rows of this length. halves: elements in a word. ctas: blocks in a cluster."""
    words, warps = columns // halves, cluster.WARPS // ctas
    constants = (("WORDS", words), ("CTAS", ctas), ("WARPS", warps), ("HELD", cluster.held_of(words)),
                 ("HALVES", halves), ("DTYPE", DTYPES[dtype]))  # fmt: skip
    return Variant(
        softmax_backward_cluster, constants, warps, None, ("CTAS",), cluster.STATIC_BYTES, 88, (("num_ctas", ctas),)
    )


def variants(columns: int, dtype: torch.dtype, halves: int) -> list[Variant]:
    """Variants worth timing, none where rows are shorter or longer than what clusters are for."""
    return [variant_of(columns, dtype, halves, ctas) for ctas in (8, 4)] if cluster.holds(columns // halves) else []


def launch_cluster(variant: Variant, dy: torch.Tensor, y: torch.Tensor, dx: torch.Tensor) -> None:
    """Run one variant on dy and y [rows, N] into dx of the same shape; rows contiguous, strides as they are."""
    rows = y.shape[0]
    strides = (t.stride(0) // variant["HALVES"] for t in (dy, y, dx))
    cluster.launch(variant, rows, dy, y, dx, rows, *strides, 0)
