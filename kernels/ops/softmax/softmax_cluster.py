"""Softmax of long rows by clusters: each row is read once, held as f32 in registers, and exponentiated once.

A warp exponentiates its part against the part's own largest value, so that only one exchange is needed for a row: of
that value and the sum. Traffic: every element read once and written once. On an H200 (2026-11-27, Triton 3.6.0, bf16,
4096 rows of 65,536): 258 us by clusters of 4 blocks, where a team of programs that exchange through L2 takes 287.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language import target_info

from kernels.ops.norm.forward_kernels import half, words_of
from kernels.ops.shared import cluster
from kernels.ops.shared.cluster import exchange, full, largest, meet, read, share_of, write
from kernels.ops.shared.pairs import INTERPRETED, exp_of, high_half, low_half, lowest_pair, pair_of
from kernels.ops.shared.rows import DTYPES
from kernels.tuning import Variant

CTAS = 4
"""Blocks in a cluster. Of 8 as fast, of 2 slower: 270 us both and 305, with loads that leave L2 first."""


@triton.jit
def _highest(pieces, HELD: tl.constexpr, DTYPE: tl.constexpr, HALVES: tl.constexpr):
    """Of a thread's words, lane by lane; on NVIDIA pairs are compared as they are, two at once."""
    most = pieces[0]
    if HALVES == 1:
        for i in tl.static_range(1, HELD):
            most = tl.maximum(most, pieces[i])
    elif target_info.is_cuda() and not INTERPRETED:
        LARGER: tl.constexpr = "max.bf16x2 $0, $1, $2;" if DTYPE == tl.bfloat16 else "max.f16x2 $0, $1, $2;"  # noqa: SIM300
        for i in tl.static_range(1, HELD):
            most = tl.inline_asm_elementwise(LARGER, "=r,r,r", [most, pieces[i]], dtype=tl.int32, is_pure=True, pack=1)
        most = tl.maximum(low_half(most, DTYPE), high_half(most, DTYPE))
    else:
        most = tl.maximum(low_half(pieces[0], DTYPE), high_half(pieces[0], DTYPE))
        for i in tl.static_range(1, HELD):
            most = tl.maximum(most, tl.maximum(low_half(pieces[i], DTYPE), high_half(pieces[i], DTYPE)))
    return most


@triton.jit
def softmax_cluster(
    x_ptr, y_ptr, rows, x_stride, y_stride, WORDS: tl.constexpr, CTAS: tl.constexpr, WARPS: tl.constexpr,
    HELD: tl.constexpr, HALVES: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """One row of WORDS words a cluster of CTAS blocks of WARPS warps, each of which holds HELD pieces of 128 words.

    HALVES: elements in a word, of DTYPE; strides in words.
    """
    x_ptr, y_ptr = words_of(x_ptr, HALVES), words_of(y_ptr, HALVES)
    at = share_of(CTAS, WARPS, HELD)
    place = meet()
    WHOLE: tl.constexpr = CTAS * WARPS * HELD * 128 == WORDS
    nothing = lowest_pair(DTYPE) if HALVES == 2 else float("-inf")
    own = tl.program_id(0)
    for index in tl.range(own, tl.minimum(own + 1, rows), num_stages=1):  # its row alone, see shared/cluster.py
        row = tl.cast(index, tl.int64)
        pieces = ()
        for i in tl.static_range(HELD):
            word = read(x_ptr + row * x_stride, at + i * (WARPS * 128), nothing, WORDS, WHOLE)
            pieces = pieces + (word,)  # noqa: RUF005 - Triton's tuples know only this
        top = tl.max(_highest(pieces, HELD, DTYPE, HALVES), 2)
        shift = tl.where(top == float("-inf"), 0.0, top)[:, :, None]
        total = tl.zeros((CTAS, WARPS, 128), tl.float32)
        powers = ()
        for i in tl.static_range(HELD):
            for h in tl.static_range(HALVES):
                power = exp_of(half(pieces[i], h, DTYPE, HALVES) - shift)
                total += power
                powers = powers + (power,)  # noqa: RUF005
        tops, sums = exchange(place, top, tl.sum(total, 2))
        most = largest(tops)
        # A warp of minus infinities alone adds nothing; one that saw NaN beside them has it in its sum.
        parts = tl.where(tops == float("-inf"), sums, sums * exp_of(tops - most))
        scale = (exp_of(top - most) / full(parts))[:, :, None]
        for i in tl.static_range(HELD):
            y = powers[i * HALVES] * scale
            if HALVES == 2:
                y = pair_of(y, powers[i * HALVES + 1] * scale, DTYPE)
            write(y_ptr + row * y_stride, at + i * (WARPS * 128), y, WORDS, WHOLE)


def variant_of(columns: int, dtype: torch.dtype, halves: int) -> Variant:
    """Of rows of this length. halves: elements in a word."""
    words, warps = columns // halves, cluster.WARPS // CTAS
    constants = (("WORDS", words), ("CTAS", CTAS), ("WARPS", warps), ("HELD", cluster.held_of(words)),
                 ("HALVES", halves), ("DTYPE", DTYPES[dtype]))  # fmt: skip
    registers = 80 if halves == 2 else 48  # as f32, whatever they come as
    return Variant(
        softmax_cluster, constants, warps, None, ("CTAS",), cluster.STATIC_BYTES, registers, (("num_ctas", CTAS),)
    )


def variants(columns: int, dtype: torch.dtype, halves: int) -> list[Variant]:
    """Variants worth timing, none where rows are shorter or longer than what clusters are for."""
    return [variant_of(columns, dtype, halves)] if cluster.holds(columns // halves) else []


def launch_cluster(variant: Variant, x: torch.Tensor, y: torch.Tensor) -> None:
    """Run one variant on x [rows, N] into y of the same shape and dtype; rows contiguous, strides as they are."""
    rows, halves = x.shape[0], variant["HALVES"]
    cluster.launch(variant, rows, x, y, rows, x.stride(0) // halves, y.stride(0) // halves)
