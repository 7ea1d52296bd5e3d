"""Softmax of long rows by TEAM programs a row: each holds its part in registers, so that a row is read once.

Programs wait for each other, and no order of starting is promised: a program takes its place by a ticket that it draws
when it starts (see norm_team). Each hands in its largest value and its sum in one 64-bit word that is never 0, which
says by itself that it is there. Every element is exponentiated once, against its part's largest value.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.device import exp_of
from kernels.pairs import rounded
from kernels.tuning import Variant

MOST = 64
"""Programs in a team: as many words as one read takes."""


@triton.jit
def softmax_team(
    x_ptr, y_ptr, sync_ptr, x_stride, y_stride, N: tl.constexpr, BLOCK: tl.constexpr, TEAM: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """BLOCK elements of one row. sync_ptr: 1 + rows * TEAM words of int64, all 0. WHOLE: TEAM * BLOCK is N."""
    ticket = tl.atomic_add(sync_ptr, 1, sem="relaxed")
    row = ticket // TEAM
    member = ticket % TEAM
    at = member * BLOCK + tl.arange(0, BLOCK)
    if WHOLE:
        x = tl.load(x_ptr + row * x_stride + at, eviction_policy="evict_first").to(tl.float32)
    else:
        x = tl.load(x_ptr + row * x_stride + at, mask=at < N, other=float("-inf"), eviction_policy="evict_first")
        x = x.to(tl.float32)
    top = tl.max(x, 0)
    x = exp_of(x - tl.where(top == float("-inf"), 0.0, top))
    total = tl.sum(x, 0)
    # total is at least 1, or top is -inf, or one of them NaN: some bit is always set.
    word = (top.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (
        total.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    )
    sync_ptr += 1 + row * TEAM
    tl.atomic_xchg(sync_ptr + member, word, sem="relaxed")
    # 64 lanes, however few are needed, so that all threads decide alike.
    lane = tl.arange(0, 64)
    words = tl.load(sync_ptr + lane, mask=lane < TEAM, other=-1, volatile=True)
    while tl.sum((words == 0).to(tl.int32), 0) > 0:
        words = tl.load(sync_ptr + lane, mask=lane < TEAM, other=-1, volatile=True)
    tops = tl.where(lane < TEAM, (words >> 32).to(tl.int32).to(tl.float32, bitcast=True), float("-inf"))
    sums = tl.where(lane < TEAM, words.to(tl.int32).to(tl.float32, bitcast=True), 0.0)
    largest = tl.max(tops, 0)
    # A part of minus infinities alone adds nothing, though its own exponentials were taken against 0.
    full = tl.sum(tl.where(tops == float("-inf"), 0.0, sums * exp_of(tops - largest)) + sums * 0.0, 0)
    y = rounded(x * (tl.where(top == float("-inf"), 0.0, exp_of(top - largest)) / full), y_ptr)
    if WHOLE:
        tl.store(y_ptr + row * y_stride + at, y, eviction_policy="evict_first")
    else:
        tl.store(y_ptr + row * y_stride + at, y, mask=at < N, eviction_policy="evict_first")


def team(columns: int, block: int, warps: int) -> Variant:
    """One variant for rows of this length."""
    size = triton.cdiv(columns, block)
    constants = (("N", columns), ("BLOCK", block), ("TEAM", size), ("WHOLE", size * block == columns))
    return Variant(softmax_team, constants, warps, tuned=("BLOCK",), registers=block // (32 * warps) + 24)


def teams(columns: int) -> list[Variant]:
    """Variants worth timing: 32 to 64 elements a thread, so that two programs or more share a multiprocessor."""
    sizes = ((8192, 4), (8192, 8), (16384, 8), (16384, 16), (4096, 4))
    return [team(columns, b, w) for b, w in sizes if 1 < triton.cdiv(columns, b) <= MOST]
