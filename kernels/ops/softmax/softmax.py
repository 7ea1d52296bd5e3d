"""Softmax over the last axis.

Traffic: every element read once and written once while a row fits into one program's registers. Of longer rows the
first part is held and the rest read twice, the second time from its end, which is what the L2 cache still has. Teams
of programs, or clusters (softmax_cluster), hold a long row between them. Takes f32, f16, bf16; the result is like x or,
where asked for, f32. Few very long rows go to softmax_long.
Matches: `torch.softmax` and exp(x - max) / sum by hand, last axis, floating point, rows contiguous.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.language import target_info

from kernels.ops.norm.forward_kernels import half, words_of
from kernels.ops.shared.cluster import NO_CLUSTERS, takes
from kernels.ops.shared.pairs import (
    INTERPRETED,
    WORDS,
    chunks_of,
    exp_of,
    high_half,
    kept,
    low_half,
    lowest_pair,
    pair_of,
    pairs_at,
    registers,
    rounded,
    store_pairs,
)
from kernels.ops.shared.prefetch import ask_for
from kernels.ops.shared.rows import DTYPES, HELD, HELD_PACKED, paired, rows_of
from kernels.ops.softmax.softmax_cluster import launch_cluster, softmax_cluster
from kernels.ops.softmax.softmax_cluster import variant_of as cluster_variant
from kernels.ops.softmax.softmax_cluster import variants as cluster_variants
from kernels.ops.softmax.softmax_spec import cost, inputs, reference
from kernels.spec import Build, Operation, case
from kernels.tuning import Tuner, Variant, multiprocessors

NAME = "triton:softmax"
KIND = "softmax"
CALL = "from kernels.softmax import softmax\ny = softmax({x})"

tuner = Tuner("softmax")


@triton.jit
def softmax_rows(
    x_ptr, y_ptr, rows, x_stride, y_stride, N: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """ROWS rows a program, each held in registers. WHOLE: no element of the tile is outside."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (col < N)
    at = x_ptr + row * x_stride + col
    if WHOLE:
        x = tl.load(at).to(tl.float32)
    else:
        x = tl.load(at, mask=inside, other=float("-inf")).to(tl.float32)
    x = exp_of(x - tl.max(x, axis=1, keep_dims=True))
    y = rounded(x * (1.0 / tl.sum(x, axis=1, keep_dims=True)), y_ptr)
    if WHOLE:
        tl.store(y_ptr + row * y_stride + col, y)
    else:
        tl.store(y_ptr + row * y_stride + col, y, mask=inside)


@triton.jit
def _highest(pieces, top, COUNT: tl.constexpr, DTYPE: tl.constexpr):
    """Of `top` and the pairs of COUNT pieces, lane by lane; on NVIDIA pairs are compared as they are, two at once."""
    if target_info.is_cuda() and not INTERPRETED and COUNT > 0:
        LARGER: tl.constexpr = "max.bf16x2 $0, $1, $2;" if DTYPE == tl.bfloat16 else "max.f16x2 $0, $1, $2;"  # noqa: SIM300
        most = pieces[0]
        for i in tl.static_range(1, COUNT):
            most = tl.inline_asm_elementwise(LARGER, "=r,r,r", [most, pieces[i]], dtype=tl.int32, is_pure=True, pack=1)
        top = tl.maximum(top, tl.maximum(low_half(most, DTYPE), high_half(most, DTYPE)))
    else:
        for i in tl.static_range(COUNT):
            top = tl.maximum(top, tl.maximum(low_half(pieces[i], DTYPE), high_half(pieces[i], DTYPE)))
    return top


@triton.jit
def _power(x, largest):
    """exp(x - largest) by one multiply-add, up to a factor near 1 that all elements of a row share.

    That is the error of largest * log2(e), where it is rounded. From 2^23 on it could be a large one; there 16-bit
    numbers are so far apart that all below the largest give 0 without log2(e) too, and nothing is rounded.
    """
    a = tl.where(tl.abs(largest) < 8388608.0, 1.4426950408889634, 1.0)
    if INTERPRETED:  # it rounds the product, which a GPU does not
        return tl.exp2((x - largest) * a)
    return tl.exp2(tl.fma(x, a, -(largest * a)))


@triton.jit
def _largest_and_sum(pieces, top, total, zero, HELD: tl.constexpr, DTYPE: tl.constexpr):
    """Of held pairs, and of what each lane has seen before: the largest of all, and the sum of all exponentials."""
    largest = tl.max(_highest(pieces, top, HELD, DTYPE), 0)
    # A lane of -inf alone adds 0 * exp(-inf); one that saw NaN has it in its sum, though not in its largest value.
    total = total * _power(top, largest)
    for i in tl.static_range(HELD):
        x = pieces[i]
        if INTERPRETED or not target_info.is_cuda():  # else they have not been unpacked yet
            x = kept(x, largest, zero)
        total += _power(low_half(x, DTYPE), largest) + _power(high_half(x, DTYPE), largest)
    return largest, tl.sum(total, 0)


@triton.jit
def _write(y_ptr, start, x, largest, scale, BLOCK: tl.constexpr, END: tl.constexpr, INSIDE: tl.constexpr,
           DTYPE: tl.constexpr, WIDEN: tl.constexpr):  # fmt: skip
    """exp(x - largest) * scale of BLOCK pairs, as pairs or as twice as many f32."""
    low = _power(low_half(x, DTYPE), largest) * scale
    high = _power(high_half(x, DTYPE), largest) * scale
    if WIDEN:
        at = 2 * start + tl.arange(0, 2 * BLOCK)
        y = tl.interleave(low, high)
        if INSIDE:
            tl.store(y_ptr + at, y, eviction_policy="evict_first")
        else:
            tl.store(y_ptr + at, y, mask=at < 2 * END, eviction_policy="evict_first")
    else:
        store_pairs(y_ptr, start, pair_of(low, high, DTYPE), BLOCK, END, INSIDE)


@triton.jit
def softmax_packed(
    x_ptr, y_ptr, x_stride, y_stride, zero, PAIRS: tl.constexpr, BLOCK: tl.constexpr, HELD: tl.constexpr,
    DTYPE: tl.constexpr, WIDEN: tl.constexpr, UNROLL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One row a program: HELD pieces of BLOCK pairs in registers, the rest read twice, UNROLL pieces a step.

    x_stride in pairs, y_stride in pairs or f32 (WIDEN). PAIRS: pairs in a row.
    """
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    REST: tl.constexpr = HELD * BLOCK
    STEP: tl.constexpr = UNROLL * BLOCK
    STEPS: tl.constexpr = (PAIRS - REST + STEP - 1) // STEP if PAIRS > REST else 0
    EVEN: tl.constexpr = (PAIRS - REST) % STEP == 0
    nothing = lowest_pair(DTYPE)
    pieces = ()
    for i in tl.static_range(HELD):
        piece = pairs_at(x_ptr, i * BLOCK, BLOCK, PAIRS, nothing, (i + 1) * BLOCK <= PAIRS, "evict_first")
        pieces = pieces + (piece,)  # noqa: RUF005 - Triton's tuples know only this
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in tl.range(0, STEPS, num_stages=STAGES):
        read = ()
        for i in tl.static_range(UNROLL):
            start = REST + step * STEP + i * BLOCK
            piece = pairs_at(x_ptr, start, BLOCK, PAIRS, nothing, EVEN, "evict_last")
            read = read + (piece,)  # noqa: RUF005
        larger = _highest(read, top, UNROLL, DTYPE)
        shift = tl.where(larger == float("-inf"), 0.0, larger)  # a lane that has seen nothing stays at 0
        total = total * exp_of(top - shift)
        for i in tl.static_range(UNROLL):
            total += exp_of(low_half(read[i], DTYPE) - shift) + exp_of(high_half(read[i], DTYPE) - shift)
        top = larger
    largest, full = _largest_and_sum(pieces, top, total, zero, HELD, DTYPE)
    scale = 1.0 / full
    for i in tl.static_range(HELD):
        x = kept(pieces[i], full, zero)
        _write(y_ptr, i * BLOCK, x, largest, scale, BLOCK, PAIRS, (i + 1) * BLOCK <= PAIRS, DTYPE, WIDEN)
    for back in tl.range(0, STEPS, num_stages=STAGES):
        for i in tl.static_range(UNROLL):
            start = REST + (STEPS - 1 - back) * STEP + i * BLOCK
            x = pairs_at(x_ptr, start, BLOCK, PAIRS, nothing, EVEN, "evict_first")
            _write(y_ptr, start, x, largest, scale, BLOCK, PAIRS, EVEN, DTYPE, WIDEN)


@triton.jit
def softmax_ahead(
    x_ptr, y_ptr, rows, x_stride, y_stride, zero, PAIRS: tl.constexpr, BLOCK: tl.constexpr, HELD: tl.constexpr,
    DTYPE: tl.constexpr, AHEAD: tl.constexpr, BULK: tl.constexpr,
):  # fmt: skip
    """Rows one after the other; strides in pairs. A program that fills a multiprocessor with one row otherwise leaves
    the memory idle while it computes exponentials.

    AHEAD 0: the next row is copied into shared memory, but only once this one is written: Triton's pipeliner puts the
    copies of a loop of two stages at its end (3.6, 3.7), and for three a row is too long. More: so many quarters of it
    are asked for, shared/prefetch.py.
    """
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=1 if AHEAD > 0 else 2):
        x_row = x_ptr + tl.cast(row, tl.int64) * x_stride
        y_row = y_ptr + tl.cast(row, tl.int64) * y_stride
        pieces = ()
        for i in tl.static_range(HELD):
            piece = pairs_at(
                x_row, i * BLOCK, BLOCK, PAIRS, lowest_pair(DTYPE), (i + 1) * BLOCK <= PAIRS, "evict_first"
            )
            pieces = pieces + (piece,)  # noqa: RUF005
        if AHEAD > 0:
            after = tl.where(row + tl.num_programs(0) < rows, row + tl.num_programs(0), row)
            ask_for(x_ptr + tl.cast(after, tl.int64) * x_stride, PAIRS, AHEAD, BULK, BLOCK // 4)
        top = tl.full((BLOCK,), float("-inf"), tl.float32)
        largest, full = _largest_and_sum(pieces, top, tl.zeros((BLOCK,), tl.float32), zero, HELD, DTYPE)
        scale = 1.0 / full
        for i in tl.static_range(HELD):
            x = kept(pieces[i], full, zero)
            _write(y_row, i * BLOCK, x, largest, scale, BLOCK, PAIRS, (i + 1) * BLOCK <= PAIRS, DTYPE, False)


@triton.jit
def softmax_loop(
    x_ptr, y_ptr, x_stride, y_stride, N: tl.constexpr, BLOCK: tl.constexpr, LANE: tl.constexpr, STAGES: tl.constexpr
):
    """One row a program in two walks: largest and sum together (online softmax), then the result from the end.

    LANE neighbours share one largest value, which costs one exponential for each step and not for each element.
    """
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    col = tl.arange(0, BLOCK // LANE)[:, None] * LANE + tl.arange(0, LANE)[None, :]
    STEPS: tl.constexpr = (N + BLOCK - 1) // BLOCK
    top = tl.full((BLOCK // LANE,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK // LANE,), tl.float32)
    for step in tl.range(0, STEPS, num_stages=STAGES):
        at = step * BLOCK + col
        x = tl.load(x_ptr + at, mask=at < N, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
        larger = tl.maximum(top, tl.max(x, 1))
        shift = tl.where(larger == float("-inf"), 0.0, larger)
        total = total * exp_of(top - shift) + tl.sum(exp_of(x - shift[:, None]), 1)
        top = larger
    largest = tl.max(top, 0)
    scale = 1.0 / tl.sum(total * exp_of(top - largest), 0)
    for back in tl.range(0, STEPS, num_stages=STAGES):
        at = (STEPS - 1 - back) * BLOCK + col
        x = tl.load(x_ptr + at, mask=at < N, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = rounded(exp_of(x - largest) * scale, y_ptr)
        tl.store(y_ptr + at, y, mask=at < N, eviction_policy="evict_first")


# ---- long rows by teams of programs
# Softmax of long rows by teams of programs: each holds its part of a row in registers, so that a row is read once.
#
# A team walks over rows. A program asks for its part of a following row before it hands in what it knows of this one,
# so that loads are under way while it waits for the others. It hands in its largest value and its sum in one 64-bit
# word that is never 0, which says by itself that it is there. Every element is exponentiated once, against its part's
# largest value.
#
# Programs wait for each other, and no order of starting is promised: a program takes its place by a ticket that it
# draws when it starts, so the places taken are always the first ones. All teams but the last of these are complete.
# They wait for nobody else, finish their rows and leave their multiprocessors to programs that have not started, so
# that the last team becomes complete as well, whatever else occupies the GPU. It is only asked that one team fits onto
# the GPU.
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
    sizes = [(8192, 4, 3), (4096, 2, 3), (8192, 4, 1), (4096, 2, 1)]
    if packable:  # smaller teams wait for fewer; more warps are done sooner with what they hand in
        sizes += [(8192, 8, 3), (16384, 16, 3), (16384, 8, 3), (8192, 8, 4)]
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


def space(
    rows: int, columns: int, dtype: torch.dtype, packable: bool, widen: bool = False, clustered: bool = False
) -> list[Variant]:
    """Variants worth timing for rows of this length: 8 to 64 elements a thread, no tile wider than a row needs.

    clustered: clusters of programs compute these rows as well (shared/cluster.py).
    """
    block = triton.next_power_of_2(max(1, columns))
    variants = cluster_variants(columns, dtype, 4 // dtype.itemsize) if clustered else []
    if block <= 2048:
        for elements, warps in ((2048, 2), (2048, 4), (4096, 4), (8192, 8)):
            count = max(1, min(elements // block, triton.next_power_of_2(rows)))
            variants.append(_rows(columns, block, count, rows, warps))
    elif block <= HELD:
        for count in (1, 2) if block <= 8192 else (1,):
            variants += [
                _rows(columns, block, count, rows, w) for w in (4, 8, 16, 32) if 8 <= count * block // (32 * w) <= 64
            ]
    if packable and block >= HELD // 2:
        variants += _packed(columns // 2, dtype, widen and dtype != torch.float32)
    if all(v.kernel is softmax_cluster for v in variants) or (block > HELD and not packable):
        lane = 16 // dtype.itemsize
        for width, warps, stages in ((4096, 8, 1), (8192, 16, 3), (16384, 32, 1), (16384, 32, 3)):
            constants = (("N", columns), ("BLOCK", min(width, block)), ("LANE", lane), ("STAGES", stages))
            shared = (stages - 1) * width * dtype.itemsize + 1024
            variants.append(Variant(softmax_loop, constants, warps, tuned=("BLOCK", "STAGES"), shared_bytes=shared))
    if columns > HELD // 2 and not knobs.runtime.interpret:  # there programs run one after another: none can wait
        variants += teams(columns, dtype, packable, widen and dtype != torch.float32)
    return list(dict.fromkeys(variants))


def _rows(columns: int, block: int, count: int, rows: int, warps: int) -> Variant:
    whole = columns == block and rows % count == 0
    constants = (("N", columns), ("BLOCK", block), ("ROWS", count), ("WHOLE", whole))
    return Variant(softmax_rows, constants, warps, tuned=("ROWS",))


def _packed(pairs: int, dtype: torch.dtype, widen: bool) -> list[Variant]:
    """Rows that are held whole, with or without the next one in shared memory; of longer rows as much as fits."""
    variants = []
    if pairs <= HELD_PACKED // 2:
        for warps in (8, 16, 32):
            held = chunks_of(pairs, warps)
            if 3 <= held <= 16 and registers(held) * warps * 32 <= 65536:
                variants.append(_held(pairs, dtype, warps, held, widen=widen))
                if not widen:
                    variants.append(_ahead(pairs, dtype, warps))
        if pairs > HELD // 2 and not widen:
            variants += [_ahead(pairs, dtype, *choice) for choice in ((32, 4, True), (32, 4, False), (16, 4, True))]
        return variants
    for warps, held, unroll, stages in ((32, 6, 2, 2), (32, 4, 2, 3), (32, 0, 2, 4), (16, 16, 2, 3), (16, 8, 2, 4)):
        variants.append(_held(pairs, dtype, warps, held, unroll, stages, widen))
    return variants


def _ahead(pairs: int, dtype: torch.dtype, warps: int, quarters: int = 0, bulk: bool = False) -> Variant:
    """softmax_ahead by so many warps: with the next row in shared memory, or so many quarters of it asked for."""
    block, held = warps * 32 * WORDS, chunks_of(pairs, warps)
    constants = (("PAIRS", pairs), ("BLOCK", block), ("HELD", held), ("DTYPE", DTYPES[dtype]), ("AHEAD", quarters),
                 ("BULK", bulk))  # fmt: skip
    shared = 1024 if quarters else 4 * held * block + 1024
    return Variant(softmax_ahead, constants, warps, None, ("BLOCK", "AHEAD", "BULK"), shared, registers(held))


def _held(
    pairs: int, dtype: torch.dtype, warps: int, held: int, unroll: int = 1, stages: int = 1, widen: bool = False
) -> Variant:
    block = warps * 32 * WORDS
    constants = (("PAIRS", pairs), ("BLOCK", block), ("HELD", held), ("DTYPE", DTYPES[dtype]), ("WIDEN", widen),
                 ("UNROLL", unroll), ("STAGES", stages))  # fmt: skip
    whole = held * block >= pairs  # HELD follows from the row's length then
    return Variant(
        softmax_packed, constants, warps, tuned=("BLOCK",) if whole else ("HELD", "UNROLL", "STAGES"),
        shared_bytes=4 * (stages - 1) * unroll * block + (8 * block if widen else 0) + 1024, registers=registers(held),
    )  # fmt: skip


def launch(variant: Variant, x: torch.Tensor, y: torch.Tensor) -> None:
    """Run one variant on x [rows, N] into y of the same shape; rows contiguous, strides as they are."""
    rows = x.shape[0]
    if variant.kernel is softmax_packed:
        a, b = x.view(torch.int32), y if variant["WIDEN"] else y.view(torch.int32)
        softmax_packed[(rows,)](a, b, a.stride(0), b.stride(0), 0, **variant.meta)
    elif variant.kernel is softmax_ahead:
        a, b = x.view(torch.int32), y.view(torch.int32)
        resident = max(1, 65536 // (variant.registers * 32 * variant.warps))
        programs = min(rows, multiprocessors(x.device) * resident)
        softmax_ahead[(programs,)](a, b, rows, a.stride(0), b.stride(0), 0, **variant.meta)
    elif variant.kernel is softmax_cluster:
        launch_cluster(variant, x, y)
    elif variant.kernel is softmax_team:
        launch_team(variant, x, y)
    elif variant.kernel is softmax_loop:
        softmax_loop[(rows,)](x, y, x.stride(0), y.stride(0), **variant.meta)
    else:
        grid = (triton.cdiv(rows, variant["ROWS"]),)
        softmax_rows[grid](x, y, rows, x.stride(0), y.stride(0), **variant.meta)


def softmax(x: torch.Tensor, widen: bool = False) -> torch.Tensor:
    """Softmax over the last axis of x [..., N] in f32, f16 or bf16; computed in f32, the result is contiguous.

    widen: the result is f32, as of torch.softmax(x.float(), -1). x is copied where its rows are not contiguous or its
    leading dimensions are not one stride. Raises TypeError for other dtypes.
    """
    if x.dtype not in DTYPES:
        raise TypeError(f"softmax takes f32, f16 or bf16, not {x.dtype}")
    y = torch.empty(x.shape, dtype=torch.float32 if widen else x.dtype, device=x.device)
    if x.numel() == 0:
        return y
    flat, into = rows_of(x), y.view(-1, x.shape[-1])
    rows, columns = flat.shape
    if HELD < columns < 1 << 27 and 2 * rows <= multiprocessors(x.device):
        from kernels.ops.softmax.softmax_long import softmax_into  # that file's kernels are for few rows alone

        softmax_into(flat, into)
        return y
    packable = x.element_size() == 2 and paired(flat)
    clustered = x.dtype == y.dtype and takes((flat, into))
    key = (rows, columns, x.dtype, y.dtype, flat.stride(0), packable, clustered)
    variant = tuner.pick(key, lambda: space(rows, columns, x.dtype, packable, widen, clustered), launch, flat, into)
    launch(variant, flat, into)
    return y


def _rows_signature(dtype: str) -> dict[str, str]:
    return {"x_ptr": dtype, "y_ptr": dtype, "rows": "i32", "x_stride": "i32", "y_stride": "i32"}


_PAIRS = {"x_ptr": "*i32", "y_ptr": "*i32", "x_stride": "i32", "y_stride": "i32", "zero": "i32"}
_AHEAD = {**_rows_signature("*i32"), "zero": "i32"}
_LOOP = {k: v for k, v in _rows_signature("*fp32").items() if k != "rows"}
_TEAM = {**_rows_signature("*bf16"), "sync_ptr": "*i64"}
_STRIDES = ("x_stride", "y_stride")
_SHARED = {"gfx942": "128 KiB of shared memory, it has 64", "sm_120": "128 KiB of shared memory, it has 99"}
_WIDE = {**_PAIRS, "y_ptr": "*fp32"}
OPERATIONS = (
    Operation(
        name="softmax", run=softmax, reference=reference, inputs=inputs, cost=cost,
        beyond=case("bf16", rows=32_800, columns=65536),
        checks=(
            *(case(d, rows=r, columns=n) for d in ("f32", "f16", "bf16")
              for r, n in ((0, 5), (1, 1), (5, 1000), (7, 130), (3, 4096), (2, 2054))),
            case("bf16", rows=2, columns=16390), case("bf16", rows=1, columns=70000),
            case("f16", rows=1, columns=40001), case("f32", rows=1, columns=33000),
            case("bf16", rows=1, columns=140000, widen=True), case("bf16", rows=5, columns=3000, widen=True),
            case("f32", rows=7, columns=320),
            *(case(d, rows=3, columns=n) for d, n in (("bf16", 65536 - 32), ("f16", 32800), ("f32", 32768))),
        ),
        cases=(
            case("bf16", rows=16384, columns=4096, peer="softmax_fwd", region="softmax_rows_4k"),
            case("bf16", rows=8192, columns=16384, peer="softmax_fwd"),
            case("bf16", rows=4096, columns=65536, peer="softmax_fwd"),
            case("bf16", rows=4096, columns=131072, widen=True, region="softmax_rows_128k"),
            case("f32", rows=4096, columns=50257), case("f16", rows=1 << 20, columns=128),
        ),
        forms=("plain", "strided", "misaligned", "special"),
        builds=(
            Build(_rows(4096, 4096, 1, 1 << 14, 8), _rows_signature("*bf16"), divisible=_STRIDES),
            Build(_held(32768, torch.bfloat16, 16, 16), _PAIRS, divisible=_STRIDES),
            Build(_ahead(32768, torch.bfloat16, 32), _AHEAD, divisible=_STRIDES, without=_SHARED),
            *(Build(_ahead(32768, torch.bfloat16, 32, 4, b), _AHEAD, divisible=_STRIDES) for b in (True, False)),
            Build(_held(65536, torch.bfloat16, 32, 4, 2, 3, True), _WIDE, divisible=_STRIDES),
            Build(space(1, 50257, torch.float32, False)[1], _LOOP, divisible=_STRIDES),
            *(Build(team(65536, torch.bfloat16, 2, False, *s), _TEAM, divisible=_STRIDES)
              for s in ((8192, 4, 1), (8192, 4, 3), (8192, 8, 3), (16384, 16, 3))),
            Build(cluster_variant(65536, torch.bfloat16, 2), _rows_signature("*bf16"), divisible=_STRIDES,
                  without=NO_CLUSTERS),
        ),
    ),
)  # fmt: skip
