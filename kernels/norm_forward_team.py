"""The forward of a normalisation over long rows by teams of programs: each holds its part, so a row is read once.

Teams walk over rows, places are drawn by ticket and sums are exchanged in words that are never 0, as in softmax_team,
whose text says why nobody waits for ever.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.device import pair_of
from kernels.norm_kernels import again, half, normed, words_of
from kernels.norm_kernels import rounded as as_stored


@triton.jit
def part_of(ptr, left, BLOCK: tl.constexpr, WHOLE: tl.constexpr, EVICT: tl.constexpr):
    """BLOCK words of a row, 0 from word `left` on."""
    at = tl.arange(0, BLOCK)
    if WHOLE:
        return tl.load(ptr + at, eviction_policy=EVICT)
    return tl.load(ptr + at, mask=at < left, other=0, eviction_policy=EVICT)


@triton.jit
def store_part(ptr, word, left, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    """The counterpart of part_of."""
    at = tl.arange(0, BLOCK)
    if WHOLE:
        tl.store(ptr + at, word, eviction_policy="evict_first")
    else:
        tl.store(ptr + at, word, mask=at < left, eviction_policy="evict_first")


@triton.jit
def float_of(word, h: tl.constexpr, DTYPE: tl.constexpr, HALVES: tl.constexpr):
    """Float h of a word, or the only one, of any dtype, as f32."""
    return half(word, h, DTYPE, HALVES).to(tl.float32)


@triton.jit
def moments(at, member, mean, squares, N: tl.constexpr, PART: tl.constexpr, TEAM: tl.constexpr, CENTERED: tl.constexpr):
    """Mean of a row and squares about it (0 and plain squares if not CENTERED) from those of its parts. Waits.

    Hands in this member's in one word that is never 0. PART: elements a member. 32 lanes, however few are needed: every
    warp reads all words, and no barrier is needed to decide.
    """
    low = squares.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    word = (tl.cast(mean, tl.float32).to(tl.int32, bitcast=True).to(tl.int64) << 32) | low
    tl.atomic_xchg(at + member, tl.where(word == 0, 2147483648, word), sem="relaxed")  # then squares is -0.0
    lane = tl.arange(0, 32)
    words = tl.load(at + lane, mask=lane < TEAM, other=2147483648, volatile=True)
    while tl.sum((words == 0).to(tl.int32), 0) > 0:
        words = tl.load(at + lane, mask=lane < TEAM, other=2147483648, volatile=True)
    total = tl.sum(words.to(tl.int32).to(tl.float32, bitcast=True), 0)
    mean = 0.0
    if CENTERED:
        means = (words >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        count = tl.minimum(tl.maximum(N - lane * PART, 0), PART).to(tl.float32)
        mean = tl.sum(means * count, 0) / N
        total += tl.sum(tl.where(lane < TEAM, count * (means - mean) * (means - mean), 0.0), 0)
    return mean, total


@triton.jit
def norm_together(
    x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, s_ptr, mean_ptr, rstd_ptr, sync_ptr, rows, x_stride, r_stride, y_stride, eps,
    zero, WORDS: tl.constexpr, BLOCK: tl.constexpr, TEAM: tl.constexpr, HALVES: tl.constexpr, DTYPE: tl.constexpr,
    RESIDUAL: tl.constexpr, CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, STATS: tl.constexpr,
    WHOLE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """BLOCK words of HALVES elements of every row of its team, with their weight and bias; strides in words.

    sync_ptr: rows * TEAM + 1 words of int64, all 0. WHOLE: TEAM * BLOCK is WORDS. STAGES as in softmax_team. Parts'
    means and squares are joined by Chan's formula, so that a large mean costs no digits.
    """
    ticket = tl.atomic_add(sync_ptr + tl.cast(rows, tl.int64) * TEAM, 1, sem="relaxed").to(tl.int32)
    team = ticket // TEAM
    member = ticket % TEAM
    teams = tl.num_programs(0) // TEAM
    own = member * BLOCK
    left = WORDS - own
    x_ptr, y_ptr, w_ptr = words_of(x_ptr, HALVES) + own, words_of(y_ptr, HALVES) + own, words_of(w_ptr, HALVES) + own
    r_ptr, s_ptr, b_ptr = words_of(r_ptr, HALVES) + own, words_of(s_ptr, HALVES) + own, words_of(b_ptr, HALVES) + own
    first = tl.cast(team, tl.int64)
    if STAGES == 1:
        ahead = part_of(x_ptr + first * x_stride, left, BLOCK, WHOLE, "evict_first")
        if RESIDUAL:
            ahead_r = part_of(r_ptr + first * r_stride, left, BLOCK, WHOLE, "evict_first")
    if WEIGHT:
        weight = part_of(w_ptr, left, BLOCK, WHOLE, "evict_last")
    if BIAS:
        bias = part_of(b_ptr, left, BLOCK, WHOLE, "evict_last")
    for index in tl.range(team, rows, teams, num_stages=STAGES):
        row = tl.cast(index, tl.int64)
        if STAGES == 1:
            words = ahead
            # After the last row this one again, which the cache still has: without a mask for it loads stay 128 bit.
            after = tl.where(row + teams < rows, row + teams, row)
            ahead = part_of(x_ptr + after * x_stride, left, BLOCK, WHOLE, "evict_first")
            if RESIDUAL:
                residual = ahead_r
                ahead_r = part_of(r_ptr + after * r_stride, left, BLOCK, WHOLE, "evict_first")
        else:
            words = part_of(x_ptr + row * x_stride, left, BLOCK, WHOLE, "evict_first")
            if RESIDUAL:
                residual = part_of(r_ptr + row * r_stride, left, BLOCK, WHOLE, "evict_first")
        if RESIDUAL:
            low = float_of(words, 0, DTYPE, HALVES) + float_of(residual, 0, DTYPE, HALVES)
            if HALVES == 2:
                high = float_of(words, 1, DTYPE, HALVES) + float_of(residual, 1, DTYPE, HALVES)
                words = pair_of(low, high, DTYPE)
            else:
                words = as_stored(low, DTYPE)
            store_part(s_ptr + row * y_stride, words, left, BLOCK, WHOLE)
        mean = 0.0
        if CENTERED:
            total = float_of(words, 0, DTYPE, HALVES)
            if HALVES == 2:
                total += float_of(words, 1, DTYPE, HALVES)
            mean = tl.sum(total, 0) / (tl.minimum(BLOCK, left) * HALVES).to(tl.float32)
            kept_words = again(words, mean, zero, HALVES)
        else:
            kept_words = words
        squares = tl.zeros((BLOCK,), tl.float32)
        for h in tl.static_range(HALVES):
            d = float_of(kept_words, h, DTYPE, HALVES) - mean
            if CENTERED and not WHOLE:
                d = tl.where(tl.arange(0, BLOCK) < left, d, 0.0)
            squares += d * d
        variance = tl.sum(squares, 0)
        if rows > 0:  # always: as in softmax_team
            mean, variance = moments(sync_ptr + row * TEAM, member, mean, variance, WORDS * HALVES, BLOCK * HALVES,
                                     TEAM, CENTERED)  # fmt: skip
        rstd = tl.rsqrt(variance / (WORDS * HALVES) + eps)
        words = again(words, rstd, zero, HALVES)
        w = again(weight, rstd, zero, HALVES) if WEIGHT else words
        b = again(bias, rstd, zero, HALVES) if BIAS else words
        y = normed(float_of(words, 0, DTYPE, HALVES), float_of(w, 0, DTYPE, HALVES), float_of(b, 0, DTYPE, HALVES),
                   mean, rstd, CENTERED, WEIGHT, BIAS)  # fmt: skip
        if HALVES == 2:
            high = normed(float_of(words, 1, DTYPE, HALVES), float_of(w, 1, DTYPE, HALVES),
                          float_of(b, 1, DTYPE, HALVES), mean, rstd, CENTERED, WEIGHT, BIAS)  # fmt: skip
            y = pair_of(y, high, DTYPE)
        else:
            y = as_stored(y, DTYPE)
        store_part(y_ptr + row * y_stride, y, left, BLOCK, WHOLE)
        if STATS:
            if member == 0:
                tl.store(rstd_ptr + row, rstd)
                if CENTERED:
                    tl.store(mean_ptr + row, mean)
