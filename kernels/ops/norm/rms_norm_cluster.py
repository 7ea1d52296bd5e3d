"""RMSNorm of long rows by clusters, the residual added or not: each row is read once and held as it came.

The weight is read when the row's mean square is known, and not held beside it: by fewer registers more rows are under
way. On an H200 (2026-11-27, Triton 3.6.0, bf16, 4096 rows of 65,536): rms_norm 266 us by clusters of 4 blocks, where
one program a row takes 272; add_rms_norm 522 by clusters of 4, where one program takes 550. With the weight held
add_rms_norm took 551. LayerNorm, which needs two exchanges, won nothing by clusters (289 against 290).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language import target_info

from kernels.ops.norm.forward_kernels import again, half, words_of
from kernels.ops.shared import cluster
from kernels.ops.shared.cluster import exchange, full, meet, read, share_of, write
from kernels.ops.shared.pairs import INTERPRETED, high_half, low_half, pair_of
from kernels.ops.shared.rows import DTYPES
from kernels.tuning import Variant

_ADDED_BF16 = tl.constexpr("""{
    .reg .b32 a, b, c, d;
    shl.b32 a, $1, 16;
    shl.b32 b, $2, 16;
    and.b32 c, $1, 0xffff0000;
    and.b32 d, $2, 0xffff0000;
    add.f32 a, a, b;
    add.f32 c, c, d;
    cvt.rn.bf16x2.f32 $0, c, a;
}""")
_ADDED_F16 = tl.constexpr("""{
    .reg .b16 e, f, g, h;
    .reg .b32 a, b, c, d;
    mov.b32 {e, f}, $1;
    mov.b32 {g, h}, $2;
    cvt.f32.f16 a, e;
    cvt.f32.f16 b, g;
    cvt.f32.f16 c, f;
    cvt.f32.f16 d, h;
    add.f32 a, a, b;
    add.f32 c, c, d;
    cvt.rn.f16x2.f32 $0, c, a;
}""")


@triton.jit
def _sum_of(word, other, DTYPE: tl.constexpr, HALVES: tl.constexpr):
    """Sum of two words, its pairs rounded to the dtype.

    Pairs in one piece of assembly: of several operations a tile, Triton's assignment of tiles to the blocks of a
    cluster gives up ("Maximum number of steps", 3.6 and 3.7).
    """
    if HALVES == 1:
        result = word + other
    elif target_info.is_cuda() and not INTERPRETED:
        ADDED: tl.constexpr = _ADDED_BF16 if DTYPE == tl.bfloat16 else _ADDED_F16  # noqa: SIM300
        result = tl.inline_asm_elementwise(ADDED, "=r,r,r", [word, other], dtype=tl.int32, is_pure=True, pack=1)
    else:
        low = low_half(word, DTYPE) + low_half(other, DTYPE)
        result = pair_of(low, high_half(word, DTYPE) + high_half(other, DTYPE), DTYPE)
    return result


@triton.jit
def rms_norm_cluster(
    x_ptr, r_ptr, w_ptr, y_ptr, s_ptr, rows, x_stride, r_stride, y_stride, eps, zero, WORDS: tl.constexpr,
    CTAS: tl.constexpr, WARPS: tl.constexpr, HELD: tl.constexpr, HALVES: tl.constexpr, DTYPE: tl.constexpr,
    RESIDUAL: tl.constexpr, WEIGHT: tl.constexpr,
):  # fmt: skip
    """One row of WORDS words a cluster of CTAS blocks of WARPS warps, each of which holds HELD pieces of 128 words.

    HALVES: elements in a word, of DTYPE; strides in words. zero: 0, which the compiler must not know.
    """
    x_ptr, y_ptr, w_ptr = words_of(x_ptr, HALVES), words_of(y_ptr, HALVES), words_of(w_ptr, HALVES)
    r_ptr, s_ptr = words_of(r_ptr, HALVES), words_of(s_ptr, HALVES)
    at = share_of(CTAS, WARPS, HELD)
    place = meet()
    WHOLE: tl.constexpr = CTAS * WARPS * HELD * 128 == WORDS
    NEXT: tl.constexpr = WARPS * 128
    own = tl.program_id(0)
    for index in tl.range(own, tl.minimum(own + 1, rows), num_stages=1):  # its row alone, see shared/cluster.py
        row = tl.cast(index, tl.int64)
        pieces, others = (), ()
        for i in tl.static_range(HELD):
            piece = read(x_ptr + row * x_stride, at + i * NEXT, 0, WORDS, WHOLE)
            pieces = pieces + (piece,)  # noqa: RUF005 - Triton's tuples know only this
            if RESIDUAL:
                other = read(r_ptr + row * r_stride, at + i * NEXT, 0, WORDS, WHOLE)
                others = others + (other,)  # noqa: RUF005
        if RESIDUAL:
            sums = ()
            for i in tl.static_range(HELD):
                s = _sum_of(pieces[i], others[i], DTYPE, HALVES)
                write(s_ptr + row * y_stride, at + i * NEXT, s, WORDS, WHOLE)
                sums = sums + (s,)  # noqa: RUF005
            pieces = sums
        total = tl.zeros((CTAS, WARPS, 128), tl.float32)
        for i in tl.static_range(HELD):
            for h in tl.static_range(HALVES):
                x = half(pieces[i], h, DTYPE, HALVES)
                total += x * x
        part = tl.sum(total, 2)
        squares, _ = exchange(place, part, part)
        rstd = tl.rsqrt(full(squares) / (WORDS * HALVES) + eps)[:, :, None]
        for i in tl.static_range(HELD):
            word = again(pieces[i], rstd, zero, HALVES)
            w = word
            if WEIGHT:
                w = read(w_ptr, at + i * NEXT, 0, WORDS, WHOLE, "evict_last")
            y = _scaled(half(word, 0, DTYPE, HALVES), half(w, 0, DTYPE, HALVES), rstd, WEIGHT)
            if HALVES == 2:
                y = pair_of(y, _scaled(high_half(word, DTYPE), high_half(w, DTYPE), rstd, WEIGHT), DTYPE)
            write(y_ptr + row * y_stride, at + i * NEXT, y, WORDS, WHOLE)


@triton.jit
def _scaled(x, w, rstd, WEIGHT: tl.constexpr):
    return x * rstd * w if WEIGHT else x * rstd


def variant_of(columns: int, dtype: torch.dtype, halves: int, residual: bool, weight: bool, ctas: int) -> Variant:
    """Of rows of this length. halves: elements in a word. ctas: blocks in a cluster."""
    words, warps = columns // halves, cluster.WARPS // ctas
    held = cluster.held_of(words)
    constants = (("WORDS", words), ("CTAS", ctas), ("WARPS", warps), ("HELD", held), ("HALVES", halves),
                 ("DTYPE", DTYPES[dtype]), ("RESIDUAL", residual), ("WEIGHT", weight))  # fmt: skip
    registers = 4 * held * (1 + (residual and halves == 1)) + 24 * (1 + residual)
    return Variant(
        rms_norm_cluster, constants, warps, None, ("CTAS",), cluster.STATIC_BYTES, registers, (("num_ctas", ctas),)
    )


def variants(columns: int, dtype: torch.dtype, halves: int, residual: bool, weight: bool) -> list[Variant]:
    """Variants worth timing, none where rows are shorter or longer than what clusters are for."""
    if not cluster.holds(columns // halves):
        return []
    return [variant_of(columns, dtype, halves, residual, weight, ctas) for ctas in (4, 8)]


def launch_cluster(
    variant: Variant, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, y: torch.Tensor,
    added: torch.Tensor, eps: float,
) -> None:  # fmt: skip
    """Run one variant on x, residual -> y, added, all [rows, N] with contiguous rows; any tensor for what is not used.

    y and added have one stride.
    """
    rows = x.shape[0]
    strides = (t.stride(0) // variant["HALVES"] for t in (x, residual, y))
    cluster.launch(variant, rows, x, residual, weight, y, added, rows, *strides, eps, 0)
