"""Backward of softmax over long rows by teams of programs: each holds its part of y and dy, so a row is read once.

A row of 65,536 16-bit numbers and its gradient are as large as all registers of a multiprocessor, so one program reads
a part of it twice. Several hold it between them: they exchange their sums in words that are never 0, by tickets, as
softmax_team does, whose text says why nobody waits for ever. Traffic: y and dy read once, dx written once. Each program
has two rows' parts on their way while it computes one.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.ops.norm.forward_kernels import again, float_of, moments, part_of, store_part, words_of
from kernels.ops.shared.pairs import pair_of
from kernels.ops.shared.rows import DTYPES
from kernels.tuning import Variant, multiprocessors

MOST = 32
"""Programs of a team."""


@triton.jit
def softmax_backward_team(
    dy_ptr, y_ptr, dx_ptr, sync_ptr, rows, dy_stride, y_stride, dx_stride, zero, WORDS: tl.constexpr,
    BLOCK: tl.constexpr, TEAM: tl.constexpr, DTYPE: tl.constexpr, WHOLE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """BLOCK pairs of every row of its team; strides in pairs. sync_ptr: rows * TEAM + 1 words of int64, all 0.

    WHOLE: TEAM * BLOCK is WORDS. STAGES - 1 rows are in shared memory or on their way there.
    """
    ticket = tl.atomic_add(sync_ptr + tl.cast(rows, tl.int64) * TEAM, 1, sem="relaxed").to(tl.int32)
    team = ticket // TEAM
    member = ticket % TEAM
    teams = tl.num_programs(0) // TEAM
    own = member * BLOCK
    left = WORDS - own
    dy_ptr, y_ptr, dx_ptr = words_of(dy_ptr, 2) + own, words_of(y_ptr, 2) + own, words_of(dx_ptr, 2) + own
    for index in tl.range(team, rows, teams, num_stages=STAGES):
        row = tl.cast(index, tl.int64)
        y = part_of(y_ptr + row * y_stride, left, BLOCK, WHOLE, "evict_first")
        dy = part_of(dy_ptr + row * dy_stride, left, BLOCK, WHOLE, "evict_first")
        low = float_of(dy, 0, DTYPE, 2) * float_of(y, 0, DTYPE, 2)
        high = float_of(dy, 1, DTYPE, 2) * float_of(y, 1, DTYPE, 2)
        dot = tl.sum(low + high, 0)
        if rows > 0:  # always: as in softmax_team
            _, dot = moments(sync_ptr + row * TEAM, member, 0.0, dot, 2 * WORDS, 2 * BLOCK, TEAM, False)
        y = again(y, dot, zero, 2)
        dy = again(dy, dot, zero, 2)
        low = float_of(y, 0, DTYPE, 2) * (float_of(dy, 0, DTYPE, 2) - dot)
        high = float_of(y, 1, DTYPE, 2) * (float_of(dy, 1, DTYPE, 2) - dot)
        store_part(dx_ptr + row * dx_stride, pair_of(low, high, DTYPE), left, BLOCK, WHOLE)


def team(columns: int, dtype: torch.dtype, block: int, warps: int, stages: int) -> Variant:
    """`block` 16-bit elements of a row a program."""
    words, block = columns // 2, block // 2
    size = triton.cdiv(words, block)
    constants = (("WORDS", words), ("BLOCK", block), ("TEAM", size), ("DTYPE", DTYPES[dtype]),
                 ("WHOLE", size * block == words), ("STAGES", stages))  # fmt: skip
    held = block // (32 * warps)
    shared = (stages - 1) * 2 * block * 4 + 1024
    return Variant(softmax_backward_team, constants, warps, None, ("BLOCK", "STAGES"), shared, 2 * held + 40)


def teams(columns: int, dtype: torch.dtype) -> list[Variant]:
    """Variants worth timing: 64 to 190 kB of loads under way on a multiprocessor."""
    sizes = ((4096, 2, 3), (4096, 4, 3), (8192, 4, 3), (8192, 8, 3), (16384, 8, 2))
    return [team(columns, dtype, *s) for s in sizes if 1 < triton.cdiv(columns, s[0]) <= MOST]


def launch_team(variant: Variant, dy: torch.Tensor, y: torch.Tensor, dx: torch.Tensor) -> None:
    """Run one variant on dy, y [rows, N] -> dx: as many teams as are resident at once."""
    rows, size = y.shape[0], variant["TEAM"]
    each = min(65536 // (variant.registers * 32 * variant.warps), (227 << 10) // (variant.shared_bytes + 1024), 32)
    programs = size * max(1, min(rows, multiprocessors(y.device) * max(1, each) // size))
    sync = torch.zeros(1 + rows * size, dtype=torch.int64, device=y.device)
    strides = (dy.stride(0) // 2, y.stride(0) // 2, dx.stride(0) // 2)
    softmax_backward_team[(programs,)](dy, y, dx, sync, rows, *strides, 0, **variant.meta)
