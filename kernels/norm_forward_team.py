"""The forward of a normalisation over long rows by TEAM programs a row: each holds its part, so a row is read once.

Places are drawn by ticket and sums exchanged in words that are never 0, as in norm_team and softmax_team.
"""

import triton
import triton.language as tl

from kernels.norm_kernels import normed, rounded


@triton.jit
def norm_together(
    x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, s_ptr, mean_ptr, rstd_ptr, sync_ptr, x_stride, r_stride, y_stride, eps,
    N: tl.constexpr, BLOCK: tl.constexpr, TEAM: tl.constexpr, DTYPE: tl.constexpr, RESIDUAL: tl.constexpr,
    CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, STATS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """BLOCK elements of one row. sync_ptr: 1 + rows * TEAM words of int64, all 0. WHOLE: TEAM * BLOCK is N.

    A part hands in its mean and its squares about that (0 and plain squares for RMSNorm); they are joined by Chan's
    formula, so that a large mean costs no digits.
    """
    ticket = tl.atomic_add(sync_ptr, 1, sem="relaxed")
    row = ticket // TEAM
    member = ticket % TEAM
    at = member * BLOCK + tl.arange(0, BLOCK)
    inside = at < N if not WHOLE else at >= 0
    x = tl.load(x_ptr + row * x_stride + at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    if RESIDUAL:
        r = tl.load(r_ptr + row * r_stride + at, mask=inside, other=0.0, eviction_policy="evict_first")
        x = rounded(x + r.to(tl.float32), DTYPE)
        tl.store(s_ptr + row * y_stride + at, x, mask=inside)
    w = 1.0
    b = 0.0
    if WEIGHT:
        w = tl.load(w_ptr + at, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if BIAS:
        b = tl.load(b_ptr + at, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    own = 0.0
    if CENTERED:
        own = tl.sum(x, 0) / tl.minimum(BLOCK, N - member * BLOCK).to(tl.float32)
        squares = tl.sum(tl.where(inside, (x - own) * (x - own), 0.0), 0)
    else:
        squares = tl.sum(x * x, 0)
    low = squares.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    word = (tl.cast(own, tl.float32).to(tl.int32, bitcast=True).to(tl.int64) << 32) | low
    sync_ptr += 1 + row * TEAM
    tl.atomic_xchg(sync_ptr + member, tl.where(word == 0, 2147483648, word), sem="relaxed")  # then squares is -0.0
    # 64 lanes, however few are needed, so that all threads decide alike.
    lane = tl.arange(0, 64)
    words = tl.load(sync_ptr + lane, mask=lane < TEAM, other=2147483648, volatile=True)
    while tl.sum((words == 0).to(tl.int32), 0) > 0:
        words = tl.load(sync_ptr + lane, mask=lane < TEAM, other=2147483648, volatile=True)
    total = tl.sum(words.to(tl.int32).to(tl.float32, bitcast=True), 0)
    mean = 0.0
    if CENTERED:
        means = (words >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        count = tl.minimum(tl.maximum(N - lane * BLOCK, 0), BLOCK).to(tl.float32)
        mean = tl.sum(means * count, 0) / N
        total += tl.sum(tl.where(lane < TEAM, count * (means - mean) * (means - mean), 0.0), 0)
    rstd = tl.rsqrt(total / N + eps)
    y = rounded(normed(x, w, b, mean, rstd, CENTERED, WEIGHT, BIAS), DTYPE)
    tl.store(y_ptr + row * y_stride + at, y, mask=inside, eviction_policy="evict_first")
    if STATS:
        if member == 0:
            tl.store(rstd_ptr + row, rstd)
            if CENTERED:
                tl.store(mean_ptr + row, mean)
