"""Kernels of stored weights that need no matrix units: few rows, and weights unpacked into 16 bits for many."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.ops.shared.pairs import high_half, low_half, pair_of

EXPONENT = 0x4B000000
"""Of 2^23 as f32, whose mantissa then is a whole number."""


@triton.jit
def number_at(word, exponent, place: tl.constexpr, BITS: tl.constexpr, LESS: tl.constexpr):
    """The number at a place of a word as f32, less LESS. It is masked where it stands, within an exponent of which the
    last digit stands there too; those beyond the mantissa's 23 bits are shifted there together.

    exponent: EXPONENT, which is no constant, because mask and exponent are one instruction only where one of both is
    in a register.
    """
    within: tl.constexpr = 23 // BITS
    at: tl.constexpr = BITS * (place % within)
    turn: tl.constexpr = BITS * (place // within * within)
    if turn > 0:
        word = word >> turn
    bits = (word & (((1 << BITS) - 1) << at)) | (exponent - (at << 23))
    less: tl.constexpr = float(1 << (23 - at)) + LESS
    return bits.to(tl.float32, bitcast=True) - less


@triton.jit
def scale_and_zero(
    scale, zero, offset, at, inside, ZERO: tl.constexpr, NUMBER: tl.constexpr, MIDDLE: tl.constexpr = 0.0
):  # fmt: skip
    """Scales as f32, and zero points less MIDDLE, which is taken off of the numbers already."""
    s = tl.load(scale + at, mask=inside, other=0.0).to(tl.float32)
    z = s * 0.0 - MIDDLE
    if ZERO:
        z = tl.load(zero + at, mask=inside, other=0.0).to(tl.float32) - MIDDLE
    elif NUMBER:
        z = s * 0.0 + (offset - MIDDLE)
    return s, z


@triton.jit
def chunk_sums(x, word, at, inside, exponent, BITS: tl.constexpr, LESS: tl.constexpr, SUMS: tl.constexpr):
    """Of words [BN, BC, 4] and pairs of numbers of x at [1, BC, 4]: sums of products [BN, BC], of x [1, BC]."""
    dtype: tl.constexpr = x.dtype.element_ty
    products = tl.zeros(word.shape, tl.float32)
    total = tl.zeros(at.shape, tl.float32)
    for i in tl.static_range(16 // BITS):
        pair = tl.load(x.to(tl.pointer_type(tl.int32)) + at + i, mask=inside, other=0)
        low, high = low_half(pair, dtype), high_half(pair, dtype)
        products += number_at(word, exponent, 2 * i, BITS, LESS) * low
        products += number_at(word, exponent, 2 * i + 1, BITS, LESS) * high
        if SUMS:
            total += low + high
    return tl.sum(products, 2), tl.sum(total, 2)


@triton.jit
def weight_only_words(
    x, w, scale, zero, bias, y, M, N, K, x_row, w_row, group, groups, offset, exponent, ROWS: tl.constexpr,
    BN: tl.constexpr, BC: tl.constexpr, BITS: tl.constexpr, SPLIT_K: tl.constexpr, STAGES: tl.constexpr,
    EVEN: tl.constexpr, GROUPED: tl.constexpr, SIGNED: tl.constexpr, ZERO: tl.constexpr, NUMBER: tl.constexpr,
    BIAS: tl.constexpr,
):  # fmt: skip
    """BN columns of Y for ROWS <= 4 rows; one part of K, into y [SPLIT_K, M, N] where there are several.

    w: words, of which a thread takes chunks of four that are within one group. Scale and zero point come after the sum
    of a chunk. x_row, w_row: pairs and words from row to row.
    """
    part = tl.program_id(1)
    per: tl.constexpr = 32 // BITS
    wide: tl.constexpr = BC * 4 * per
    sums: tl.constexpr = ZERO or NUMBER
    less: tl.constexpr = 128.0 if SIGNED else 0.0
    share = tl.cdiv(tl.cdiv(K, SPLIT_K), wide) * wide
    first = part * share
    last = tl.minimum(first + share, K)
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    wrapped = (row % N).to(tl.int64)
    chunk = tl.arange(0, BC)
    col = chunk[None, :, None] * 4 + tl.arange(0, 4)[None, None, :]
    at = w + wrapped[:, None, None] * w_row + col
    at_scale = wrapped[:, None] * groups
    acc0 = tl.zeros((BN, BC), tl.float32)
    acc1 = tl.zeros((BN, BC), tl.float32)
    acc2 = tl.zeros((BN, BC), tl.float32)
    acc3 = tl.zeros((BN, BC), tl.float32)
    all0 = tl.zeros((1, BC), tl.float32)
    all1 = tl.zeros((1, BC), tl.float32)
    all2 = tl.zeros((1, BC), tl.float32)
    all3 = tl.zeros((1, BC), tl.float32)
    for k in tl.range(first, last, wide, num_stages=STAGES):
        inside = k + col * per < last
        if EVEN:
            word = tl.load(at + k // per, eviction_policy="evict_first")
            inside = col >= 0
        else:
            word = tl.load(at + k // per, mask=inside, other=0)
        if SIGNED:
            word = word ^ -2139062144
        at_x = k // 2 + col * (per // 2)
        if GROUPED:
            of = tl.minimum(k + chunk * (4 * per), K - 1) // group
            s, z = scale_and_zero(scale, zero, offset, at_scale + of[None, :], (row < N)[:, None], ZERO, NUMBER)
        sum0, total0 = chunk_sums(x, word, at_x, inside, exponent, BITS, less, sums)
        if GROUPED:
            acc0 += (sum0 - z * total0) * s
        else:
            acc0 += sum0
            all0 += total0
        if ROWS > 1:
            sum1, total1 = chunk_sums(x, word, at_x + x_row, inside, exponent, BITS, less, sums)
            if GROUPED:
                acc1 += (sum1 - z * total1) * s
            else:
                acc1 += sum1
                all1 += total1
        if ROWS > 2:
            sum2, total2 = chunk_sums(x, word, at_x + 2 * x_row, inside, exponent, BITS, less, sums)
            if GROUPED:
                acc2 += (sum2 - z * total2) * s
            else:
                acc2 += sum2
                all2 += total2
        if ROWS > 3:
            sum3, total3 = chunk_sums(x, word, at_x + 3 * x_row, inside, exponent, BITS, less, sums)
            if GROUPED:
                acc3 += (sum3 - z * total3) * s
            else:
                acc3 += sum3
                all3 += total3
    results = (acc0, acc1, acc2, acc3)
    totals = (all0, all1, all2, all3)
    for m in tl.static_range(ROWS):
        v = tl.sum(results[m], 1)
        if not GROUPED:
            s, z = scale_and_zero(scale, zero, offset, row, row < N, ZERO, NUMBER)
            v = (v - z * tl.sum(tl.sum(totals[m], 1), 0)) * s
        if BIAS:
            v += tl.load(bias + row, mask=row < N, other=0.0).to(tl.float32)
        tl.store(y + (part.to(tl.int64) * M + m) * N + row, v.to(y.dtype.element_ty), mask=row < N)


@triton.jit
def weight_only_bytes(
    x, w, scale, zero, bias, y, M, N, K, x_row, w_row, group, groups, offset, ROWS: tl.constexpr, BN: tl.constexpr,
    BW: tl.constexpr, PER: tl.constexpr, SPLIT_K: tl.constexpr, GROUPED: tl.constexpr, ZERO: tl.constexpr,
    NUMBER: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """As weight_only_words, of bytes that are no whole words, PER numbers each: BN columns of Y, one row after the
    other, in programs of a row of X.
    """
    part, m = tl.program_id(1), tl.program_id(2)
    wide: tl.constexpr = BW * PER
    share = tl.cdiv(tl.cdiv(K, SPLIT_K), wide) * wide
    first = part * share
    last = tl.minimum(first + share, K)
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    wrapped = (row % N).to(tl.int64)[:, None]
    col = tl.arange(0, BW)
    from_x = x + m.to(tl.int64) * x_row
    acc = tl.zeros((BN, BW), tl.float32)
    for k in range(first, last, wide):
        where = k + col * PER
        inside = where < last
        element = tl.load(w + wrapped * w_row + (k // PER + col)[None, :], mask=inside[None, :], other=0).to(tl.int32)
        at = wrapped * groups + (tl.minimum(where, K - 1) // group)[None, :]
        s, z = scale_and_zero(scale, zero, offset, at, inside[None, :], ZERO, NUMBER)
        for place in tl.static_range(PER):
            v = tl.load(from_x + where + place, mask=inside, other=0.0).to(tl.float32)
            q = (element >> (4 * place)) & 15 if PER == 2 else element
            acc += (q.to(tl.float32) - z) * (v[None, :] * s)
    total = tl.sum(acc, 1)
    if BIAS:
        total += tl.load(bias + row, mask=row < N, other=0.0).to(tl.float32)
    tl.store(y + (part.to(tl.int64) * M + m) * N + row, total.to(y.dtype.element_ty), mask=row < N)


@triton.jit
def unpack_weights(
    w, scale, zero, out, N, w_row, groups, words, offset, exponent, BITS: tl.constexpr, BG: tl.constexpr,
    BW: tl.constexpr, BF16: tl.constexpr, SIGNED: tl.constexpr, ZERO: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """out [N, K] of 16 bits, written as pairs = (W - zero) * scale, of BG groups of `words` words, BW of them."""
    which = tl.program_id(0) * BG + tl.arange(0, BG)
    row, of = (which // groups).to(tl.int64), which % groups
    j = tl.program_id(1) * BW + tl.arange(0, BW)
    inside = (row < N)[:, None] & (j < words)[None, :]
    word = tl.load(w + row[:, None] * w_row + (of * words)[:, None] + j[None, :], mask=inside, other=0)
    s, z = scale_and_zero(scale, zero, offset, which[:, None], (row < N)[:, None], ZERO, NUMBER)
    dtype: tl.constexpr = tl.bfloat16 if BF16 else tl.float16
    less: tl.constexpr = 128.0 if SIGNED else 0.0
    if SIGNED:
        word = word ^ -2139062144
    p0 = unpacked_pair(word, s, z, exponent, 0, BITS, less, dtype)
    p1 = unpacked_pair(word, s, z, exponent, 2, BITS, less, dtype)
    pairs: tl.constexpr = 16 // BITS
    if BITS == 4:
        p2 = unpacked_pair(word, s, z, exponent, 4, BITS, less, dtype)
        p3 = unpacked_pair(word, s, z, exponent, 6, BITS, less, dtype)
        joined = tl.join(tl.join(p0, p2), tl.join(p1, p3))
    else:
        joined = tl.join(p0, p1)
    result = tl.reshape(joined, (BG, BW * pairs))
    at = tl.program_id(1) * (BW * pairs) + tl.arange(0, BW * pairs)
    into = out + which.to(tl.int64)[:, None] * (words * pairs) + at[None, :]
    tl.store(into, result, mask=(row < N)[:, None] & (at < words * pairs)[None, :])


@triton.jit
def unpacked_pair(
    word, s, z, exponent, place: tl.constexpr, BITS: tl.constexpr, LESS: tl.constexpr, DTYPE: tl.constexpr
):  # fmt: skip
    """Numbers at a place and the next, less z, times s, as one int32."""
    low = (number_at(word, exponent, place, BITS, LESS) - z) * s
    high = (number_at(word, exponent, place + 1, BITS, LESS) - z) * s
    return pair_of(low, high, DTYPE)


@triton.jit
def join_parts(parts, bias, y, n, N, SPLIT_K: tl.constexpr, BIAS: tl.constexpr, BLOCK: tl.constexpr):
    """y = the sum of parts [SPLIT_K, n], in their order, and bias [N]."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(SPLIT_K):
        total += tl.load(parts + part * n + at, mask=at < n, other=0.0)
    if BIAS:
        total += tl.load(bias + at % N, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + at, total.to(y.dtype.element_ty), mask=at < n)
