"""Forward kernels of the normalisations over the last axis, one family; forward.py chooses and launches them.

y = (x - mean) * rstd * weight + bias, mean left out by RMSNorm; x may be the sum of an input and a residual, which is
then rounded to the dtype, kept as an output, and normalised as it was kept.
"""

import triton
import triton.language as tl

from kernels.ops.shared.pairs import INTERPRETED, bits_of, high_half, kept, low_half, pair_of
from kernels.ops.shared.prefetch import ask_for

ANYHOW = tl.constexpr("")
"""No eviction policy; wrapped, because Triton 3.6 takes no plain string as a default."""


@triton.jit
def words_of(ptr, HALVES: tl.constexpr):
    """A pointer to 32-bit words: to pairs of 16-bit floats (HALVES 2) or to f32 as they are (1)."""
    if HALVES == 2:
        words = ptr.to(tl.pointer_type(tl.int32), bitcast=True)
    else:
        words = ptr
    return words


@triton.jit
def load_words(ptr, START: tl.constexpr, BLOCK: tl.constexpr, WORDS: tl.constexpr, EVICT: tl.constexpr = ANYHOW):
    """BLOCK words from START on of a row of WORDS; 0 beyond its end."""
    col = START + tl.arange(0, BLOCK)
    if START + BLOCK <= WORDS:
        return tl.load(ptr + col, eviction_policy=EVICT)
    return tl.load(ptr + col, mask=col < WORDS, other=0, eviction_policy=EVICT)


@triton.jit
def store_words(ptr, word, START: tl.constexpr, BLOCK: tl.constexpr, WORDS: tl.constexpr, EVICT: tl.constexpr = ANYHOW):
    """The counterpart of load_words."""
    col = START + tl.arange(0, BLOCK)
    if START + BLOCK <= WORDS:
        tl.store(ptr + col, word, eviction_policy=EVICT)
    else:
        tl.store(ptr + col, word, mask=col < WORDS, eviction_policy=EVICT)


@triton.jit
def half(word, h: tl.constexpr, DTYPE: tl.constexpr, HALVES: tl.constexpr):
    """Float h of a word, as f32."""
    if HALVES == 1:
        value = word
    elif h == 0:
        value = low_half(word, DTYPE)
    else:
        value = high_half(word, DTYPE)
    return value


@triton.jit
def again(word, result, zero, HALVES: tl.constexpr):
    """`kept` for pairs: they are converted again after `result` is known; f32 are held as they are."""
    if HALVES == 2:
        word = kept(word, result, zero)
    return word


@triton.jit
def rounded(x, DTYPE: tl.constexpr):
    """An f32 as it reads back after a store in DTYPE; the interpreter would cut bits off where a GPU rounds."""
    if INTERPRETED and DTYPE == tl.bfloat16:  # noqa: SIM300 - DTYPE is the variable
        return low_half(bits_of(x, DTYPE), DTYPE)
    return x.to(DTYPE).to(tl.float32)


@triton.jit
def normed(x, w, b, mean, rstd, CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr):
    """One element's result in f32."""
    if CENTERED:
        x = x - mean
    y = x * rstd
    if WEIGHT:
        y = y * w
    if BIAS:
        y = y + b
    return y


@triton.jit
def norm_packed(
    x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, s_ptr, mean_ptr, rstd_ptr, rows, x_stride, r_stride, y_stride, eps, zero,
    WORDS: tl.constexpr, BLOCK: tl.constexpr, CHUNKS: tl.constexpr, HALVES: tl.constexpr, DTYPE: tl.constexpr,
    RESIDUAL: tl.constexpr, CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, STATS: tl.constexpr,
    STAGES: tl.constexpr, EARLY: tl.constexpr, AHEAD: tl.constexpr, BULK: tl.constexpr,
):  # fmt: skip
    """A row held as 32-bit words in CHUNKS pieces; strides in words.

    STAGES 1: a program a row. More: a program walks over rows, that many in flight but one. EARLY: weight and bias are
    loaded before the first row and held, as they must be where loads of the walk go through shared memory. AHEAD: a
    program walks, and asks for so many quarters of its next row as soon as the loads of one are under way.
    """
    EVICT: tl.constexpr = "evict_first" if AHEAD > 0 else ""  # what was asked for has to stay longer
    x_ptr, y_ptr, w_ptr = words_of(x_ptr, HALVES), words_of(y_ptr, HALVES), words_of(w_ptr, HALVES)
    r_ptr, s_ptr, b_ptr = words_of(r_ptr, HALVES), words_of(s_ptr, HALVES), words_of(b_ptr, HALVES)
    weights = ()
    biases = ()
    for i in tl.static_range(CHUNKS):
        if WEIGHT and EARLY:
            weights = weights + (load_words(w_ptr, i * BLOCK, BLOCK, WORDS),)  # noqa: RUF005 - tuples know only this
        if BIAS and EARLY:
            biases = biases + (load_words(b_ptr, i * BLOCK, BLOCK, WORDS),)  # noqa: RUF005
    for index in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        row = tl.cast(index, tl.int64)
        pieces = ()
        others = ()
        for i in tl.static_range(CHUNKS):
            pieces = pieces + (load_words(x_ptr + row * x_stride, i * BLOCK, BLOCK, WORDS, EVICT),)  # noqa: RUF005
            if RESIDUAL:
                other = load_words(r_ptr + row * r_stride, i * BLOCK, BLOCK, WORDS, EVICT)
                others = others + (other,)  # noqa: RUF005
        if RESIDUAL:
            sums = ()
            for i in tl.static_range(CHUNKS):
                s = half(pieces[i], 0, DTYPE, HALVES) + half(others[i], 0, DTYPE, HALVES)
                if HALVES == 2:
                    s = pair_of(s, high_half(pieces[i], DTYPE) + high_half(others[i], DTYPE), DTYPE)
                store_words(s_ptr + row * y_stride, s, i * BLOCK, BLOCK, WORDS, EVICT)
                sums = sums + (s,)  # noqa: RUF005
            pieces = sums
        if AHEAD > 0:  # after the sums: both rows and more need more registers than there are
            after = tl.where(row + tl.num_programs(0) < rows, row + tl.num_programs(0), row)
            ask_for(x_ptr + after * x_stride, WORDS, AHEAD, BULK, BLOCK // 4)
            if RESIDUAL:
                ask_for(r_ptr + after * r_stride, WORDS, AHEAD, BULK, BLOCK // 4)
        total = tl.zeros((BLOCK,), tl.float32)
        for i in tl.static_range(CHUNKS):
            for h in tl.static_range(HALVES):
                x = half(pieces[i], h, DTYPE, HALVES)
                total += x if CENTERED else x * x
        mean = tl.sum(total, 0) / (WORDS * HALVES)
        variance = mean
        if CENTERED:
            squares = tl.zeros((BLOCK,), tl.float32)
            for i in tl.static_range(CHUNKS):
                word = again(pieces[i], mean, zero, HALVES)
                for h in tl.static_range(HALVES):
                    d = half(word, h, DTYPE, HALVES) - mean
                    if (i + 1) * BLOCK > WORDS:
                        d = tl.where(i * BLOCK + tl.arange(0, BLOCK) < WORDS, d, 0.0)
                    squares += d * d
            variance = tl.sum(squares, 0) / (WORDS * HALVES)
        rstd = tl.rsqrt(variance + eps)
        if STATS:
            tl.store(rstd_ptr + row, rstd)
            if CENTERED:
                tl.store(mean_ptr + row, mean)
        for i in tl.static_range(CHUNKS):
            word = again(pieces[i], rstd, zero, HALVES)
            w = word
            b = word
            if WEIGHT:
                if EARLY:
                    w = again(weights[i], rstd, zero, HALVES)
                else:
                    # A walk keeps the weight in the L1 cache, which has no room for the bias as well.
                    w = load_words(w_ptr, i * BLOCK, BLOCK, WORDS, "evict_last" if AHEAD > 0 else "")
            if BIAS:
                if EARLY:
                    b = again(biases[i], rstd, zero, HALVES)
                else:
                    b = load_words(b_ptr, i * BLOCK, BLOCK, WORDS)
            y = normed(half(word, 0, DTYPE, HALVES), half(w, 0, DTYPE, HALVES), half(b, 0, DTYPE, HALVES), mean, rstd,
                       CENTERED, WEIGHT, BIAS)  # fmt: skip
            if HALVES == 2:
                high = normed(high_half(word, DTYPE), high_half(w, DTYPE), high_half(b, DTYPE), mean, rstd,
                              CENTERED, WEIGHT, BIAS)  # fmt: skip
                y = pair_of(y, high, DTYPE)
            store_words(y_ptr + row * y_stride, y, i * BLOCK, BLOCK, WORDS, EVICT)


@triton.jit
def norm_rows(
    x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, s_ptr, mean_ptr, rstd_ptr, rows, x_stride, r_stride, y_stride, eps,
    N: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, DTYPE: tl.constexpr,
    RESIDUAL: tl.constexpr, CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, STATS: tl.constexpr,
):  # fmt: skip
    """ROWS rows a program, each held in registers as f32: rows that are short, or of single 16-bit elements."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (col < N)
    x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
    if RESIDUAL:
        x += tl.load(r_ptr + row * r_stride + col, mask=inside, other=0.0).to(tl.float32)
        x = rounded(x, DTYPE)
        tl.store(s_ptr + row * y_stride + col, x, mask=inside)
    mean = tl.sum(x, axis=1, keep_dims=True) / N
    d = x
    if CENTERED:
        d = tl.where(inside, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(d * d, axis=1, keep_dims=True) / N + eps)
    if STATS:
        tl.store(rstd_ptr + row, rstd, mask=row < rows)
        if CENTERED:
            tl.store(mean_ptr + row, mean, mask=row < rows)
    w = x
    b = x
    if WEIGHT:
        w = tl.load(w_ptr + col, mask=col < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if BIAS:
        b = tl.load(b_ptr + col, mask=col < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
    tl.store(y_ptr + row * y_stride + col, normed(x, w, b, mean, rstd, CENTERED, WEIGHT, BIAS), mask=inside)


@triton.jit
def walked(x_ptr, r_ptr, at, inside, RESIDUAL: tl.constexpr, DTYPE: tl.constexpr, EVICT: tl.constexpr):
    """Elements of a row, with its residual: f32, as the sum reads back from memory; 0 beyond the end."""
    x = tl.load(x_ptr + at, mask=inside, other=0.0, eviction_policy=EVICT).to(tl.float32)
    if RESIDUAL:
        x += tl.load(r_ptr + at, mask=inside, other=0.0, eviction_policy=EVICT).to(tl.float32)
        x = rounded(x, DTYPE)
    return x


@triton.jit
def statistics(
    x_ptr, r_ptr, N: tl.constexpr, BLOCK: tl.constexpr, RESIDUAL: tl.constexpr, CENTERED: tl.constexpr,
    DTYPE: tl.constexpr,
):  # fmt: skip
    """Mean and variance of one row, 0 and mean of squares if not CENTERED: one walk, Welford's sums in every lane."""
    col = tl.arange(0, BLOCK)
    average = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    count = 0.0
    for start in range(0, N, BLOCK):
        inside = start + col < N
        x = walked(x_ptr, r_ptr, start + col, inside, RESIDUAL, DTYPE, "evict_last")
        if CENTERED:
            count += 1.0
            d = x - average
            grown = average + d / count
            squares = tl.where(inside, squares + d * (x - grown), squares)
            average = tl.where(inside, grown, average)
        else:
            squares += x * x
    mean = 0.0
    if CENTERED:
        seen = ((N - col + BLOCK - 1) // BLOCK).to(tl.float32)  # elements of this lane
        # From the first element on, not from 0: a large mean would cost digits.
        one = walked(x_ptr, r_ptr, 0, True, RESIDUAL, DTYPE, "evict_last")
        mean = one + tl.sum((average - one) * seen, 0) / N
        squares += (average - mean) * (average - mean) * seen
    return mean, tl.sum(squares, 0) / N


@triton.jit
def norm_loop(
    x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, s_ptr, mean_ptr, rstd_ptr, rows, x_stride, r_stride, y_stride, eps,
    N: tl.constexpr, BLOCK: tl.constexpr, DTYPE: tl.constexpr,
    RESIDUAL: tl.constexpr, CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, STATS: tl.constexpr,
):  # fmt: skip
    """One row a program in two walks: its statistics, then the result."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    r_ptr += row * r_stride
    col = tl.arange(0, BLOCK)
    mean, variance = statistics(x_ptr, r_ptr, N, BLOCK, RESIDUAL, CENTERED, DTYPE)
    rstd = tl.rsqrt(variance + eps)
    if STATS:
        tl.store(rstd_ptr + row, rstd)
        if CENTERED:
            tl.store(mean_ptr + row, mean)
    for start in range(0, N, BLOCK):
        at = start + col
        x = walked(x_ptr, r_ptr, at, at < N, RESIDUAL, DTYPE, "evict_first")
        if RESIDUAL:
            tl.store(s_ptr + row * y_stride + at, x, mask=at < N)
        w = x
        b = x
        if WEIGHT:
            w = tl.load(w_ptr + at, mask=at < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
        if BIAS:
            b = tl.load(b_ptr + at, mask=at < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
        tl.store(y_ptr + row * y_stride + at, normed(x, w, b, mean, rstd, CENTERED, WEIGHT, BIAS), mask=at < N)


# ---- long rows by teams of programs
# The forward of a normalisation over long rows by teams of programs: each holds its part, so a row is read once.
#
# Teams walk over rows, places are drawn by ticket and sums are exchanged in words that are never 0, as in
# softmax_team, whose text says why nobody waits for ever.
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
                words = rounded(low, DTYPE)
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
            y = rounded(y, DTYPE)
        store_part(y_ptr + row * y_stride, y, left, BLOCK, WHOLE)
        if STATS:
            if member == 0:
                tl.store(rstd_ptr + row, rstd)
                if CENTERED:
                    tl.store(mean_ptr + row, mean)
