"""What the backwards of the normalisations over the last axis share: one family of kernels.

With xhat = (x - mean) * rstd and g = dy * weight: dx = rstd * (g - xhat * mean(g * xhat) - mean(g)), dw = the sum over
rows of dy * xhat, db = that of dy; RMSNorm leaves both means out but that of g * xhat. Every program adds up its own
rows' dw and db in f32; `sum_partials` adds those of all programs, always in one order.
"""

import triton
import triton.language as tl

from kernels.device import kept, pair_of
from kernels.norm_kernels import again, half, load_words, statistics, store_words, words_of


@triton.jit
def centered(x, mean, rstd, CENTERED: tl.constexpr):
    """xhat."""
    if CENTERED:
        x = x - mean
    return x * rstd


@triton.jit
def gradient_packed(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, rows, dy_stride, x_stride, dx_stride, eps, zero,
    WORDS: tl.constexpr, BLOCK: tl.constexpr, CHUNKS: tl.constexpr, HALVES: tl.constexpr, DTYPE: tl.constexpr,
    CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, GIVEN: tl.constexpr, STAGES: tl.constexpr,
    LATE: tl.constexpr = False,
):  # fmt: skip
    """A program walks over rows, STAGES - 1 of them in flight, and holds each as words, and its sums of dw and db.

    dw_ptr, db_ptr: [programs, N] in f32. GIVEN: mean and rstd are inputs; else they are computed again. Strides in
    words. LATE: the weight is read again for every row, from L1 or L2, where it does not fit beside the sums.
    """
    dy_ptr, x_ptr, w_ptr = words_of(dy_ptr, HALVES), words_of(x_ptr, HALVES), words_of(w_ptr, HALVES)
    dx_ptr = words_of(dx_ptr, HALVES)
    N: tl.constexpr = WORDS * HALVES
    weights = ()
    dws = ()
    dbs = ()
    for i in tl.static_range(CHUNKS):
        if WEIGHT and not LATE:
            weights = weights + (load_words(w_ptr, i * BLOCK, BLOCK, WORDS),)  # noqa: RUF005 - tuples know only this
        for _ in tl.static_range(HALVES):
            if WEIGHT:
                dws = dws + (tl.zeros((BLOCK,), tl.float32),)  # noqa: RUF005
            if BIAS:
                dbs = dbs + (tl.zeros((BLOCK,), tl.float32),)  # noqa: RUF005
    first = tl.program_id(0)
    step = tl.num_programs(0)
    # Scalars are not pipelined by the compiler: those of the next row are asked for while this one is at work.
    next_mean = 0.0
    next_rstd = 0.0
    if GIVEN:
        next_rstd = tl.load(rstd_ptr + first, mask=first < rows, other=0.0)
        if CENTERED:
            next_mean = tl.load(mean_ptr + first, mask=first < rows, other=0.0)
    for index in tl.range(first, rows, step, num_stages=STAGES):
        row = tl.cast(index, tl.int64)
        xs = ()
        gs = ()
        for i in tl.static_range(CHUNKS):
            xs = xs + (load_words(x_ptr + row * x_stride, i * BLOCK, BLOCK, WORDS),)  # noqa: RUF005
            gs = gs + (load_words(dy_ptr + row * dy_stride, i * BLOCK, BLOCK, WORDS),)  # noqa: RUF005
        if GIVEN:
            mean = next_mean
            rstd = next_rstd
            next_rstd = tl.load(rstd_ptr + row + step, mask=row + step < rows, other=0.0)
            if CENTERED:
                next_mean = tl.load(mean_ptr + row + step, mask=row + step < rows, other=0.0)
        else:
            mean = 0.0
            if CENTERED:
                total = tl.zeros((BLOCK,), tl.float32)
                for i in tl.static_range(CHUNKS):
                    for h in tl.static_range(HALVES):
                        total += half(xs[i], h, DTYPE, HALVES)
                mean = tl.sum(total, 0) / N
            squares = tl.zeros((BLOCK,), tl.float32)
            for i in tl.static_range(CHUNKS):
                for h in tl.static_range(HALVES):
                    d = half(xs[i], h, DTYPE, HALVES)
                    if CENTERED:
                        d = d - mean
                        if (i + 1) * BLOCK > WORDS:
                            d = tl.where(i * BLOCK + tl.arange(0, BLOCK) < WORDS, d, 0.0)
                    squares += d * d
            rstd = tl.rsqrt(tl.sum(squares, 0) / N + eps)
        along = tl.zeros((BLOCK,), tl.float32)
        plain = tl.zeros((BLOCK,), tl.float32)
        new_dws = ()
        new_dbs = ()
        for i in tl.static_range(CHUNKS):
            word = xs[i] if LATE else again(xs[i], rstd, zero, HALVES)
            w = word
            if WEIGHT:
                if LATE:
                    w = weight_again(w_ptr, rstd, zero, i * BLOCK, BLOCK, WORDS)
                else:
                    w = again(weights[i], rstd, zero, HALVES)
            for h in tl.static_range(HALVES):
                xhat = centered(half(word, h, DTYPE, HALVES), mean, rstd, CENTERED)
                dy = half(gs[i], h, DTYPE, HALVES)
                g = dy
                if WEIGHT:
                    g = dy * half(w, h, DTYPE, HALVES)
                    new_dws = new_dws + (dws[i * HALVES + h] + dy * xhat,)  # noqa: RUF005
                if BIAS:
                    new_dbs = new_dbs + (dbs[i * HALVES + h] + dy,)  # noqa: RUF005
                along += g * xhat
                if CENTERED:
                    plain += g
        dws = new_dws
        dbs = new_dbs
        c = tl.sum(along, 0) / N
        c0 = 0.0
        if CENTERED:
            c0 = tl.sum(plain, 0) / N
        for i in tl.static_range(CHUNKS):
            w = xs[i]
            if WEIGHT:
                if LATE:
                    w = weight_again(w_ptr, c, zero, i * BLOCK, BLOCK, WORDS)
                else:
                    w = weights[i]
            dx = slopes(xs[i], gs[i], w, mean, rstd, c, c0, zero, HALVES, DTYPE, CENTERED, WEIGHT)
            store_words(dx_ptr + row * dx_stride, dx, i * BLOCK, BLOCK, WORDS)
    at = tl.cast(first, tl.int64) * N
    for i in tl.static_range(CHUNKS):
        for h in tl.static_range(HALVES):
            col = i * BLOCK + tl.arange(0, BLOCK)
            if WEIGHT:
                tl.store(dw_ptr + at + col * HALVES + h, dws[i * HALVES + h], mask=col < WORDS)
            if BIAS:
                tl.store(db_ptr + at + col * HALVES + h, dbs[i * HALVES + h], mask=col < WORDS)


@triton.jit
def weight_again(w_ptr, result, zero, START: tl.constexpr, BLOCK: tl.constexpr, WORDS: tl.constexpr):
    """load_words once `result` is known (zero is 0): a branch, so that nothing is pipelined or held from before."""
    found = tl.zeros((BLOCK,), w_ptr.dtype.element_ty)
    if kept(zero, result, zero) == 0:
        found = load_words(w_ptr, START, BLOCK, WORDS)
    return found


@triton.jit
def slopes(
    x, dy, w, mean, rstd, c, c0, zero, HALVES: tl.constexpr, DTYPE: tl.constexpr, CENTERED: tl.constexpr,
    WEIGHT: tl.constexpr,
):  # fmt: skip
    """Words of dx from words of x, dy and weight, once the row's sums are known."""
    x, dy, w = again(x, c, zero, HALVES), again(dy, c, zero, HALVES), again(w, c, zero, HALVES)
    dx = slope(half(x, 0, DTYPE, HALVES), half(dy, 0, DTYPE, HALVES), half(w, 0, DTYPE, HALVES), mean, rstd, c, c0,
               CENTERED, WEIGHT)  # fmt: skip
    if HALVES == 2:
        high = slope(half(x, 1, DTYPE, HALVES), half(dy, 1, DTYPE, HALVES), half(w, 1, DTYPE, HALVES), mean, rstd, c,
                     c0, CENTERED, WEIGHT)  # fmt: skip
        dx = pair_of(dx, high, DTYPE)
    return dx


@triton.jit
def slope(x, dy, w, mean, rstd, c, c0, CENTERED: tl.constexpr, WEIGHT: tl.constexpr):
    """dx of one element. c, c0: the row's mean(g * xhat) and mean(g)."""
    g = dy
    if WEIGHT:
        g = dy * w
    d = g - centered(x, mean, rstd, CENTERED) * c
    if CENTERED:
        d = d - c0
    return d * rstd


@triton.jit
def gradient_rows(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, rows, dy_stride, x_stride, dx_stride, eps,
    N: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, GIVEN: tl.constexpr,
):  # fmt: skip
    """ROWS rows at a time, held as f32: rows that are short, or of single 16-bit elements. Strides in elements."""
    col = tl.arange(0, BLOCK)[None, :]
    dw = tl.zeros((ROWS, BLOCK), tl.float32)
    db = tl.zeros((ROWS, BLOCK), tl.float32)
    w = tl.zeros((1, BLOCK), tl.float32)
    if WEIGHT:
        w = tl.load(w_ptr + col, mask=col < N, other=0.0).to(tl.float32)
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = tl.cast(start, tl.int64) + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (col < N)
        x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * dy_stride + col, mask=inside, other=0.0).to(tl.float32)
        mean = tl.zeros((ROWS, 1), tl.float32)
        if GIVEN:
            rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)
            if CENTERED:
                mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0)
        else:
            if CENTERED:
                mean = tl.sum(x, axis=1, keep_dims=True) / N
            d = tl.where(inside, x - mean, 0.0)
            rstd = tl.rsqrt(tl.sum(d * d, axis=1, keep_dims=True) / N + eps)
        g = dy * w if WEIGHT else dy
        xhat = centered(x, mean, rstd, CENTERED)
        xhat = tl.where(inside, xhat, 0.0)
        if WEIGHT:
            dw += dy * xhat
        if BIAS:
            db += dy
        c = tl.sum(g * xhat, axis=1, keep_dims=True) / N
        c0 = tl.sum(g, axis=1, keep_dims=True) / N if CENTERED else c
        tl.store(dx_ptr + row * dx_stride + col, slope(x, dy, w, mean, rstd, c, c0, CENTERED, WEIGHT), mask=inside)
    at = tl.program_id(0).to(tl.int64) * N + tl.arange(0, BLOCK)
    if WEIGHT:
        tl.store(dw_ptr + at, tl.sum(dw, 0), mask=tl.arange(0, BLOCK) < N)
    if BIAS:
        tl.store(db_ptr + at, tl.sum(db, 0), mask=tl.arange(0, BLOCK) < N)


@triton.jit
def gradient_sums(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, c_ptr, dw_ptr, db_ptr, rows, dy_stride, x_stride, blocks,
    N: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Of rows that no program holds: BLOCK columns of every ROWS-th group of rows, in one walk.

    c_ptr: [rows, 2, blocks], the part of each row's sums that lies in these columns. dw_ptr, db_ptr: [groups, N].
    """
    block, group = tl.program_id(0), tl.program_id(1)
    line = block * BLOCK + tl.arange(0, BLOCK)
    col = line[None, :]
    dw = tl.zeros((ROWS, BLOCK), tl.float32)
    db = tl.zeros((ROWS, BLOCK), tl.float32)
    w = tl.zeros((1, BLOCK), tl.float32)
    if WEIGHT:
        w = tl.load(w_ptr + col, mask=col < N, other=0.0).to(tl.float32)
    for start in tl.range(group * ROWS, rows, tl.num_programs(1) * ROWS, num_stages=3):
        line_of = tl.cast(start, tl.int64) + tl.arange(0, ROWS)
        row = line_of[:, None]
        inside = (row < rows) & (col < N)
        x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * dy_stride + col, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)
        mean = rstd
        if CENTERED:
            mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0)
        xhat = tl.where(inside, centered(x, mean, rstd, CENTERED), 0.0)
        g = dy * w if WEIGHT else dy
        if WEIGHT:
            dw += dy * xhat
        if BIAS:
            db += dy
        at = c_ptr + line_of * 2 * blocks + block
        tl.store(at, tl.sum(g * xhat, axis=1), mask=line_of < rows)
        if CENTERED:
            tl.store(at + blocks, tl.sum(g, axis=1), mask=line_of < rows)
    at = group.to(tl.int64) * N + line
    if WEIGHT:
        tl.store(dw_ptr + at, tl.sum(dw, 0), mask=line < N)
    if BIAS:
        tl.store(db_ptr + at, tl.sum(db, 0), mask=line < N)


@triton.jit
def gradient_finish(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, c_ptr, dx_ptr, dy_stride, x_stride, dx_stride, blocks,
    N: tl.constexpr, BLOCK: tl.constexpr, MOST: tl.constexpr, CENTERED: tl.constexpr, WEIGHT: tl.constexpr,
):  # fmt: skip
    """dx of BLOCK columns of one row, from the sums that gradient_sums left. MOST: `blocks`, to a power of two."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    part = tl.arange(0, MOST)
    at = c_ptr + row * 2 * blocks + part
    c = tl.sum(tl.load(at, mask=part < blocks, other=0.0), 0) / N
    c0 = c
    if CENTERED:
        c0 = tl.sum(tl.load(at + blocks, mask=part < blocks, other=0.0), 0) / N
    x = tl.load(x_ptr + row * x_stride + col, mask=col < N, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * dy_stride + col, mask=col < N, other=0.0).to(tl.float32)
    w = x
    if WEIGHT:
        w = tl.load(w_ptr + col, mask=col < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    mean = rstd
    if CENTERED:
        mean = tl.load(mean_ptr + row)
    tl.store(dx_ptr + row * dx_stride + col, slope(x, dy, w, mean, rstd, c, c0, CENTERED, WEIGHT), mask=col < N)


@triton.jit
def sum_partials(
    part_ptr, other_ptr, out_ptr, other_out_ptr, count, N: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr
):
    """Columns of [count, N] in f32 -> [N]; program (i, 1) does the same for the other pair."""
    if tl.program_id(1) == 1:
        add_columns(other_ptr, other_out_ptr, count, N, BLOCK, ROWS)
    else:
        add_columns(part_ptr, out_ptr, count, N, BLOCK, ROWS)


@triton.jit
def add_columns(part_ptr, out_ptr, count, N: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """BLOCK columns, ROWS of their parts at a time."""
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, count, ROWS):
        row = (start + tl.arange(0, ROWS))[:, None]
        inside = (row < count) & (col < N)[None, :]
        total += tl.load(part_ptr + row.to(tl.int64) * N + col[None, :], mask=inside, other=0.0)
    tl.store(out_ptr + col, tl.sum(total, 0), mask=col < N)


@triton.jit
def row_statistics(
    x_ptr, mean_ptr, rstd_ptr, x_stride, eps, N: tl.constexpr, BLOCK: tl.constexpr, CENTERED: tl.constexpr
):
    """mean and rstd of one row, for a backward that is not given them and cannot hold a row."""
    row = tl.program_id(0).to(tl.int64)
    at = x_ptr + row * x_stride
    mean, variance = statistics(at, at, N, BLOCK, False, CENTERED, tl.float32)
    tl.store(rstd_ptr + row, tl.rsqrt(variance + eps))
    if CENTERED:
        tl.store(mean_ptr + row, mean)
