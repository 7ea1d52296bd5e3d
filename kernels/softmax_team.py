"""Softmax of long rows by teams of programs: each holds its part of a row in registers, so that a row is read once.

A team walks over rows. A program asks for its part of a following row before it hands in what it knows of this one, so
that loads are under way while it waits for the others. It hands in its largest value and its sum in one 64-bit word
that is never 0, which says by itself that it is there. Every element is exponentiated once, against its part's largest
value.

Programs wait for each other, and no order of starting is promised: a program takes its place by a ticket that it draws
when it starts, so the places taken are always the first ones. All teams but the last of these are complete. They wait
for nobody else, finish their rows and leave their multiprocessors to programs that have not started, so that the last
team becomes complete as well, whatever else occupies the GPU. It is only asked that one team fits onto the GPU.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.device import exp_of, pair_of
from kernels.norm_kernels import half, words_of
from kernels.pairs import lowest_pair, rounded
from kernels.rows import DTYPES
from kernels.tuning import Variant, multiprocessors

MOST = 32
"""Programs in a team: a word for each lane of a warp, which then decides alone whether all are there."""


@triton.jit
def part_of(ptr, left, BLOCK: tl.constexpr, WHOLE: tl.constexpr, DTYPE: tl.constexpr, HALVES: tl.constexpr):
    """BLOCK words of a row, minus infinity from word `left` on."""
    at = tl.arange(0, BLOCK)
    if WHOLE:
        return tl.load(ptr + at, eviction_policy="evict_first")
    other = lowest_pair(DTYPE) if HALVES == 2 else float("-inf")
    return tl.load(ptr + at, mask=at < left, other=other, eviction_policy="evict_first")


@triton.jit
def exponentials(low, high, HALVES: tl.constexpr):
    """Of a part, against its largest value, which is returned as well, and their sum."""
    top = tl.max(tl.maximum(low, high), 0)
    shift = tl.where(top == float("-inf"), 0.0, top)
    low = exp_of(low - shift)
    high = exp_of(high - shift)
    return low, high, top, tl.sum(low + high if HALVES == 2 else low, 0)


@triton.jit
def scale_of(at, member, top, total, TEAM: tl.constexpr):
    """Hands in what a member knows of a row. By what it has to multiply its exponentials, from all words. Waits.

    32 lanes, however few are needed: every warp reads all words, and no barrier is needed to decide.
    """
    # total is at least 1, or top is -inf, or one of them NaN: some bit is always set.
    word = (top.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (
        total.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    )
    tl.atomic_xchg(at + member, word, sem="relaxed")
    lane = tl.arange(0, 32)
    words = tl.load(at + lane, mask=lane < TEAM, other=-1, volatile=True)
    while tl.sum((words == 0).to(tl.int32), 0) > 0:
        words = tl.load(at + lane, mask=lane < TEAM, other=-1, volatile=True)
    tops = tl.where(lane < TEAM, (words >> 32).to(tl.int32).to(tl.float32, bitcast=True), float("-inf"))
    sums = tl.where(lane < TEAM, words.to(tl.int32).to(tl.float32, bitcast=True), 0.0)
    largest = tl.max(tops, 0)
    # A part of minus infinities alone adds nothing, though its own exponentials were taken against 0.
    full = tl.sum(tl.where(tops == float("-inf"), 0.0, sums * exp_of(tops - largest)) + sums * 0.0, 0)
    return tl.where(top == float("-inf"), 0.0, exp_of(top - largest)) / full


@triton.jit
def store_part(
    ptr, low, high, left, BLOCK: tl.constexpr, WHOLE: tl.constexpr, DTYPE: tl.constexpr, HALVES: tl.constexpr,
    WIDEN: tl.constexpr,
):  # fmt: skip
    """A part as words, or as twice as many f32 (WIDEN)."""
    if HALVES == 1:
        y = rounded(low, ptr)
    elif WIDEN:
        y = tl.interleave(low, high)
    else:
        y = pair_of(low, high, DTYPE)
    EACH: tl.constexpr = 2 if WIDEN and HALVES == 2 else 1
    at = tl.arange(0, BLOCK * EACH)
    if WHOLE:
        tl.store(ptr + at, y, eviction_policy="evict_first")
    else:
        tl.store(ptr + at, y, mask=at < left * EACH, eviction_policy="evict_first")


@triton.jit
def softmax_team(
    x_ptr, y_ptr, sync_ptr, rows, x_stride, y_stride, N: tl.constexpr, BLOCK: tl.constexpr, TEAM: tl.constexpr,
    WHOLE: tl.constexpr, HALVES: tl.constexpr, DTYPE: tl.constexpr, WIDEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """BLOCK words of every row of its team. N, x_stride in words of HALVES elements, y_stride too, in f32 if WIDEN.

    sync_ptr: rows * TEAM + 1 words of int64, all 0. WHOLE: TEAM * BLOCK is N. STAGES 1: the next row is loaded into
    registers. There the loop waits for it together with the words of the others, since ptxas gives both the same
    scoreboard. 3 or more: STAGES - 1 rows are in shared memory or on their way there.
    """
    ticket = tl.atomic_add(sync_ptr + tl.cast(rows, tl.int64) * TEAM, 1, sem="relaxed").to(tl.int32)
    team = ticket // TEAM
    member = ticket % TEAM
    teams = tl.num_programs(0) // TEAM
    EACH: tl.constexpr = 2 if WIDEN and HALVES == 2 else 1
    x_ptr = words_of(x_ptr, HALVES) + member * BLOCK
    y_ptr = (y_ptr if EACH == 2 else words_of(y_ptr, HALVES)) + member * (BLOCK * EACH)
    left = N - member * BLOCK
    if STAGES == 1:
        ahead = part_of(x_ptr + tl.cast(team, tl.int64) * x_stride, left, BLOCK, WHOLE, DTYPE, HALVES)
    for index in tl.range(team, rows, teams, num_stages=STAGES):
        row = tl.cast(index, tl.int64)
        if STAGES == 1:
            words = ahead
            # After the last row this one again, which the cache still has: without a mask for it loads stay 128 bit.
            after = tl.where(row + teams < rows, row + teams, row)
            ahead = part_of(x_ptr + after * x_stride, left, BLOCK, WHOLE, DTYPE, HALVES)
        else:
            words = part_of(x_ptr + row * x_stride, left, BLOCK, WHOLE, DTYPE, HALVES)
        low = half(words, 0, DTYPE, HALVES).to(tl.float32)
        high = half(words, HALVES - 1, DTYPE, HALVES).to(tl.float32)
        low, high, top, total = exponentials(low, high, HALVES)
        scale = 1.0
        # Always so, but Triton pipelines no loop that has another one directly inside. Both sides of the exchange are
        # in here, because the pipeliner moves what waits before what hands in where it sees no value passed on.
        if rows > 0:
            scale = scale_of(sync_ptr + row * TEAM, member, top, total, TEAM)
        store_part(y_ptr + row * y_stride, low * scale, high * scale, left, BLOCK, WHOLE, DTYPE, HALVES, WIDEN)


def team(columns: int, dtype: torch.dtype, halves: int, widen: bool, block: int, warps: int, stages: int) -> Variant:
    """One variant for rows of this length, `block` elements a program. halves: elements in a word that is loaded."""
    words, block = columns // halves, block // halves
    size = triton.cdiv(words, block)
    constants = (
        ("N", words), ("BLOCK", block), ("TEAM", size), ("WHOLE", size * block == words), ("HALVES", halves),
        ("DTYPE", DTYPES[dtype]), ("WIDEN", widen), ("STAGES", stages),
    )  # fmt: skip
    held = block // (32 * warps)
    registers = held * (halves + 1) + 32 if stages == 1 else held * halves + 24
    if halves * dtype.itemsize == 2 or widen:  # single 16-bit elements; a store in another layout
        registers += 40
    shared = (stages - 1) * block * halves * dtype.itemsize + (8 * block if widen and halves == 2 else 0) + 1024
    return Variant(softmax_team, constants, warps, None, ("BLOCK", "STAGES"), shared, registers)


def teams(columns: int, dtype: torch.dtype, packable: bool, widen: bool) -> list[Variant]:
    """Variants worth timing: 64 KiB of loads or more under way on a multiprocessor."""
    sizes = ((8192, 4, 3), (4096, 2, 3), (8192, 4, 1), (4096, 2, 1))
    halves = 2 if packable else 1
    return [team(columns, dtype, halves, widen, *s) for s in sizes if 1 < triton.cdiv(columns, s[0]) <= MOST]


def launch_team(variant: Variant, x: torch.Tensor, y: torch.Tensor) -> None:
    """Run one variant on x [rows, N] into y: as many teams as are resident at once."""
    rows, size = x.shape[0], variant["TEAM"]
    halves, narrow = variant["HALVES"], 1 if variant["WIDEN"] else variant["HALVES"]
    resident = min(65536 // (variant.registers * 32 * variant.warps), (227 << 10) // (variant.shared_bytes + 1024), 32)
    programs = size * max(1, min(rows, multiprocessors(x.device) * max(1, resident) // size))
    sync = torch.zeros(1 + rows * size, dtype=torch.int64, device=x.device)
    softmax_team[(programs,)](x, y, sync, rows, x.stride(0) // halves, y.stride(0) // narrow, **variant.meta)
