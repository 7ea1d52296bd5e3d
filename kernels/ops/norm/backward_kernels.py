"""What the backwards of the normalisations over the last axis share: one family of kernels.

With xhat = (x - mean) * rstd and g = dy * weight: dx = rstd * (g - xhat * mean(g * xhat) - mean(g)), dw = the sum over
rows of dy * xhat, db = that of dy; RMSNorm leaves both means out but that of g * xhat. Every program adds up its own
rows' dw and db in f32; `sum_partials` adds those of all programs, always in one order.
"""

import triton
import triton.language as tl

from kernels.ops.norm.forward_kernels import again, half, load_words, statistics, store_words, words_of
from kernels.ops.shared.pairs import kept, pair_of


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
    words. LATE: the weight is read again for every row, from L1 or L2, where it does not fit with the sums.
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
    words = tl.zeros((BLOCK,), w_ptr.dtype.element_ty)
    if kept(zero, result, zero) == 0:
        words = load_words(w_ptr, START, BLOCK, WORDS)
    return words


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


# ---- long rows by teams of programs
# The backward of a normalisation whose rows are too long for one program: TEAM programs share each row.
#
# A program holds its columns' sums of dw in registers while it walks, as gradient_packed does, which for whole rows of
# 65536 would need every register there is. A row's two means are exchanged through memory, one row behind the loads, so
# that nobody waits for them: x and dy are read once.
#
# Programs wait for each other, and no order of starting is promised. So a program takes its place by a ticket that it
# draws when it starts: all places before its own are taken by programs that run or are done, so the members of the
# first unfinished team are running or next to start, whatever else occupies the GPU, and nobody waits for ever.
@triton.jit
def publish(at, value, there):
    """A sum in one 32-bit word that is never 0, which says by itself that it is there: no fence is needed."""
    bits = value.to(tl.int32, bitcast=True)
    tl.atomic_xchg(at, tl.where(bits == 0, -2147483648, bits), mask=there, sem="relaxed")


@triton.jit
def collected(at, TEAM: tl.constexpr):
    """The sum of what TEAM programs published, always in one order. Waits.

    64 lanes, however few are asked for, so that a warp has one of each word and all its threads decide alike.
    """
    lane = tl.arange(0, 64)
    words = tl.load(at + lane, mask=lane < TEAM, other=-2147483648, volatile=True)
    while tl.sum((words == 0).to(tl.int32), 0) > 0:
        words = tl.load(at + lane, mask=lane < TEAM, other=-2147483648, volatile=True)
    return tl.sum(words.to(tl.float32, bitcast=True), 0)


@triton.jit
def span(ptr, START: tl.constexpr, BLOCK: tl.constexpr, left, there, WHOLE: tl.constexpr):
    """BLOCK words from START on of a program's part of a row, `left` words long; 0 where the row is not there."""
    col = START + tl.arange(0, BLOCK)
    if WHOLE:
        inside = there & (col >= 0)
    else:
        inside = there & (col < left)
    return tl.load(ptr + col, mask=inside, other=0)


@triton.jit
def gradient_team(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, sync_ptr, rows, dy_stride, x_stride, dx_stride,
    zero, WORDS: tl.constexpr, BLOCK: tl.constexpr, CHUNKS: tl.constexpr, HALVES: tl.constexpr, DTYPE: tl.constexpr,
    CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, TEAM: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """BLOCK * CHUNKS words of every row of its team. dw_ptr, db_ptr: [teams, N] in f32; strides in words.

    sync_ptr: 1 + rows * 2 * TEAM words of int32, all 0. WHOLE: the programs' parts fill the row.
    """
    dy_ptr, x_ptr, w_ptr = words_of(dy_ptr, HALVES), words_of(x_ptr, HALVES), words_of(w_ptr, HALVES)
    dx_ptr = words_of(dx_ptr, HALVES)
    N: tl.constexpr = WORDS * HALVES
    ticket = tl.atomic_add(sync_ptr, 1, sem="relaxed")
    sync_ptr += 1
    member = ticket % TEAM
    team = ticket // TEAM
    teams = tl.num_programs(0) // TEAM
    own = member * (BLOCK * CHUNKS)
    left = WORDS - own
    w_ptr += own
    x_ptr += own
    dy_ptr += own
    dx_ptr += own
    weights = ()
    dws = ()
    dbs = ()
    # Row `team + teams` being loaded (xs, gs), row `team` whose sums are out (old_xs, old_gs).
    xs = ()
    gs = ()
    old_xs = ()
    old_gs = ()
    first = tl.cast(team, tl.int64)
    for i in tl.static_range(CHUNKS):
        if WEIGHT:
            weights = weights + (span(w_ptr, i * BLOCK, BLOCK, left, True, WHOLE),)  # noqa: RUF005 - tuples know this
        for _ in tl.static_range(HALVES):
            if WEIGHT:
                dws = dws + (tl.zeros((BLOCK,), tl.float32),)  # noqa: RUF005
            if BIAS:
                dbs = dbs + (tl.zeros((BLOCK,), tl.float32),)  # noqa: RUF005
        xs = xs + (span(x_ptr + first * x_stride, i * BLOCK, BLOCK, left, first < rows, WHOLE),)  # noqa: RUF005
        gs = gs + (span(dy_ptr + first * dy_stride, i * BLOCK, BLOCK, left, first < rows, WHOLE),)  # noqa: RUF005
        old_xs = old_xs + (tl.zeros((BLOCK,), tl.int32 if HALVES == 2 else tl.float32),)  # noqa: RUF005
        old_gs = old_gs + (tl.zeros((BLOCK,), tl.int32 if HALVES == 2 else tl.float32),)  # noqa: RUF005
    mean = 0.0
    rstd = 0.0
    old_mean = 0.0
    old_rstd = 0.0
    rstd = tl.load(rstd_ptr + first, mask=first < rows, other=0.0)
    if CENTERED:
        mean = tl.load(mean_ptr + first, mask=first < rows, other=0.0)
    # One turn more than there are rows: each adds up one row and finishes the one before.
    for index in range(team, rows + teams, teams):
        row = tl.cast(index, tl.int64)
        after = row + teams
        before = row - teams
        next_xs = ()
        next_gs = ()
        for i in tl.static_range(CHUNKS):
            next_xs = next_xs + (span(x_ptr + after * x_stride, i * BLOCK, BLOCK, left, after < rows, WHOLE),)  # noqa: RUF005
            next_gs = next_gs + (span(dy_ptr + after * dy_stride, i * BLOCK, BLOCK, left, after < rows, WHOLE),)  # noqa: RUF005
        next_rstd = tl.load(rstd_ptr + after, mask=after < rows, other=0.0)
        next_mean = 0.0
        if CENTERED:
            next_mean = tl.load(mean_ptr + after, mask=after < rows, other=0.0)
        along = tl.zeros((BLOCK,), tl.float32)
        plain = tl.zeros((BLOCK,), tl.float32)
        new_dws = ()
        new_dbs = ()
        for i in tl.static_range(CHUNKS):
            for h in tl.static_range(HALVES):
                xhat = centered(half(xs[i], h, DTYPE, HALVES), mean, rstd, CENTERED)
                dy = half(gs[i], h, DTYPE, HALVES)
                g = dy
                if WEIGHT:
                    g = dy * half(again(weights[i], rstd, zero, HALVES), h, DTYPE, HALVES)
                    new_dws = new_dws + (dws[i * HALVES + h] + dy * xhat,)  # noqa: RUF005
                if BIAS:
                    new_dbs = new_dbs + (dbs[i * HALVES + h] + dy,)  # noqa: RUF005
                along += g * xhat
                if CENTERED:
                    plain += g
        dws = new_dws
        dbs = new_dbs
        publish(sync_ptr + row * (2 * TEAM) + member, tl.sum(along, 0), row < rows)
        if CENTERED:
            publish(sync_ptr + row * (2 * TEAM) + TEAM + member, tl.sum(plain, 0), row < rows)
        if before >= 0:
            c = collected(sync_ptr + before * (2 * TEAM), TEAM) / N
            c0 = 0.0
            if CENTERED:
                c0 = collected(sync_ptr + before * (2 * TEAM) + TEAM, TEAM) / N
            for i in tl.static_range(CHUNKS):
                dx = slopes(old_xs[i], old_gs[i], weights[i] if WEIGHT else old_xs[i], old_mean, old_rstd, c, c0, zero,
                            HALVES, DTYPE, CENTERED, WEIGHT)  # fmt: skip
                col = i * BLOCK + tl.arange(0, BLOCK)
                if WHOLE:
                    tl.store(dx_ptr + before * dx_stride + col, dx)
                else:
                    tl.store(dx_ptr + before * dx_stride + col, dx, mask=col < left)
        old_xs = xs
        old_gs = gs
        old_mean = mean
        old_rstd = rstd
        xs = next_xs
        gs = next_gs
        mean = next_mean
        rstd = next_rstd
    at = tl.cast(team, tl.int64) * N + own * HALVES
    for i in tl.static_range(CHUNKS):
        col = i * BLOCK + tl.arange(0, BLOCK)
        for h in tl.static_range(HALVES):
            if WEIGHT:
                tl.store(dw_ptr + at + col * HALVES + h, dws[i * HALVES + h], mask=col < left)
            if BIAS:
                tl.store(db_ptr + at + col * HALVES + h, dbs[i * HALVES + h], mask=col < left)


# ---- sums by strips of columns
# The backward of a normalisation whose sums of dw and db do not fit with a row: strips of columns first, then dx.
#
# One launch has two kinds of work. A strip: a few columns of a chunk of rows; its dw and db stay in registers, and of
# every row it leaves what belongs to the row's two means. A piece: dx of a part of one row, from those means. Pieces
# come some chunks after their strips, so that nobody waits for long, and soon enough that x and dy are still in L2:
# memory reads both once, although every element is loaded twice.
#
# Pieces wait for strips, strips for nobody. No order of starting is promised, so a program takes its place by a ticket
# that it draws when it starts: all strips that a piece waits for are done or running (as in gradient_team).
@triton.jit
def gradient_chunks(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, sync_ptr, rows, dy_stride, x_stride, dx_stride,
    chunks, lag, zero, WORDS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
    PIECE: tl.constexpr, HELD: tl.constexpr, LANES: tl.constexpr, HALVES: tl.constexpr, DTYPE: tl.constexpr,
    CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Strips of BLOCK words, ROWS rows a step, and, `lag` chunks of CHUNK rows later, pieces of HELD times PIECE words.

    dw_ptr, db_ptr: [chunks, N] in f32; strides in words. sync_ptr: 1 + rows * strips words of
    int32, all 0, twice as many rows where CENTERED.
    LANES: see `published`.
    """
    dy_ptr, x_ptr, w_ptr = words_of(dy_ptr, HALVES), words_of(x_ptr, HALVES), words_of(w_ptr, HALVES)
    dx_ptr = words_of(dx_ptr, HALVES)
    STRIPS: tl.constexpr = (WORDS + BLOCK - 1) // BLOCK
    PARTS: tl.constexpr = (WORDS + HELD * PIECE - 1) // (HELD * PIECE)
    ticket = tl.atomic_add(sync_ptr, 1, sem="relaxed")
    sync_ptr += 1
    turn = ticket // (STRIPS + CHUNK * PARTS)
    item = ticket % (STRIPS + CHUNK * PARTS)
    if item < STRIPS:
        if turn < chunks:
            strip(dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dw_ptr, db_ptr, sync_ptr, rows, dy_stride, x_stride, turn,
                  item, WORDS, BLOCK, ROWS, CHUNK, STRIPS, HALVES, DTYPE, CENTERED, WEIGHT, BIAS, STAGES)  # fmt: skip
    else:
        row = tl.cast(turn - lag, tl.int64) * CHUNK + (item - STRIPS) // PARTS
        if (turn >= lag) & (row < rows):
            start = (item - STRIPS) % PARTS * (HELD * PIECE)
            piece(dy_ptr + row * dy_stride + start, x_ptr + row * x_stride + start, w_ptr + start, mean_ptr + row,
                  rstd_ptr + row, dx_ptr + row * dx_stride + start, sync_ptr + row * (STRIPS * (1 + CENTERED)),
                  WORDS - start, zero, WORDS, PIECE, HELD, STRIPS, LANES, HALVES, DTYPE, CENTERED,
                  WEIGHT)  # fmt: skip


@triton.jit
def strip(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dw_ptr, db_ptr, sync_ptr, rows, dy_stride, x_stride, chunk, at,
    WORDS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, STRIPS: tl.constexpr,
    HALVES: tl.constexpr, DTYPE: tl.constexpr, CENTERED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """dw and db of strip `at` over one chunk of rows, and its part of those rows' sums of g * xhat and g."""
    N: tl.constexpr = WORDS * HALVES
    WHOLE: tl.constexpr = WORDS % BLOCK == 0
    line = at * BLOCK + tl.arange(0, BLOCK)
    col = line[None, :]
    weight = tl.zeros((1, BLOCK), tl.int32 if HALVES == 2 else tl.float32)
    if WEIGHT:
        weight = tl.load(w_ptr + col, mask=col < WORDS, other=0)
    dws = ()
    dbs = ()
    for _ in tl.static_range(HALVES):
        if WEIGHT:
            dws = dws + (tl.zeros((ROWS, BLOCK), tl.float32),)  # noqa: RUF005 - tuples know only this
        if BIAS:
            dbs = dbs + (tl.zeros((ROWS, BLOCK), tl.float32),)  # noqa: RUF005
    first = tl.cast(chunk, tl.int64) * CHUNK
    for start in tl.range(0, CHUNK, ROWS, num_stages=STAGES):
        line_of = first + start + tl.arange(0, ROWS)
        row = line_of[:, None]
        inside = row < rows
        if not WHOLE:
            inside = inside & (col < WORDS)
        x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0)
        dy = tl.load(dy_ptr + row * dy_stride + col, mask=inside, other=0)
        rstd = tl.load(rstd_ptr + line_of, mask=line_of < rows, other=0.0)[:, None]
        mean = rstd
        if CENTERED:
            mean = tl.load(mean_ptr + line_of, mask=line_of < rows, other=0.0)[:, None]
        along = tl.zeros((ROWS, BLOCK), tl.float32)
        plain = tl.zeros((ROWS, BLOCK), tl.float32)
        new_dws = ()
        new_dbs = ()
        for h in tl.static_range(HALVES):
            xhat = centered(half(x, h, DTYPE, HALVES), mean, rstd, CENTERED)
            if not WHOLE:
                xhat = tl.where(inside, xhat, 0.0)
            up = half(dy, h, DTYPE, HALVES)
            g = up
            if WEIGHT:
                g = up * half(weight, h, DTYPE, HALVES)
                new_dws = new_dws + (dws[h] + up * xhat,)  # noqa: RUF005
            if BIAS:
                new_dbs = new_dbs + (dbs[h] + up,)  # noqa: RUF005
            along += g * xhat
            plain += g
        dws = new_dws
        dbs = new_dbs
        into = sync_ptr + line_of * (STRIPS * (1 + CENTERED)) + at
        publish(into, tl.sum(along, 1), line_of < rows)
        if CENTERED:
            publish(into + STRIPS, tl.sum(plain, 1), line_of < rows)
    to = tl.cast(chunk, tl.int64) * N + line * HALVES
    for h in tl.static_range(HALVES):
        if WEIGHT:
            tl.store(dw_ptr + to + h, tl.sum(dws[h], 0), mask=line < WORDS)
        if BIAS:
            tl.store(db_ptr + to + h, tl.sum(dbs[h], 0), mask=line < WORDS)


@triton.jit
def piece(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, sync_ptr, left, zero, WORDS: tl.constexpr, PIECE: tl.constexpr,
    HELD: tl.constexpr, STRIPS: tl.constexpr, LANES: tl.constexpr, HALVES: tl.constexpr, DTYPE: tl.constexpr,
    CENTERED: tl.constexpr, WEIGHT: tl.constexpr,
):  # fmt: skip
    """dx of HELD * PIECE words of one row, `left` of them there; they are asked for before its means are waited for."""
    N: tl.constexpr = WORDS * HALVES
    WHOLE: tl.constexpr = WORDS % (HELD * PIECE) == 0
    xs = ()
    gs = ()
    for i in tl.static_range(HELD):
        col = i * PIECE + tl.arange(0, PIECE)
        if WHOLE:
            xs = xs + (tl.load(x_ptr + col, eviction_policy="evict_first"),)  # noqa: RUF005 - tuples know only this
            gs = gs + (tl.load(dy_ptr + col, eviction_policy="evict_first"),)  # noqa: RUF005
        else:
            inside = col < left
            xs = xs + (tl.load(x_ptr + col, mask=inside, other=0, eviction_policy="evict_first"),)  # noqa: RUF005
            gs = gs + (tl.load(dy_ptr + col, mask=inside, other=0, eviction_policy="evict_first"),)  # noqa: RUF005
    rstd = tl.load(rstd_ptr)
    mean = rstd
    c = published(sync_ptr, STRIPS, LANES) / N
    c0 = c
    if CENTERED:
        mean = tl.load(mean_ptr)
        c0 = published(sync_ptr + STRIPS, STRIPS, LANES) / N
    for i in tl.static_range(HELD):
        col = i * PIECE + tl.arange(0, PIECE)
        w = xs[i]
        if WEIGHT:
            w = tl.load(w_ptr + col, mask=col < left, other=0, eviction_policy="evict_last")
        dx = slopes(xs[i], gs[i], w, mean, rstd, c, c0, zero, HALVES, DTYPE, CENTERED, WEIGHT)
        if WHOLE:
            tl.store(dx_ptr + col, dx, eviction_policy="evict_first")
        else:
            tl.store(dx_ptr + col, dx, mask=col < left, eviction_policy="evict_first")


@triton.jit
def published(at, STRIPS: tl.constexpr, LANES: tl.constexpr):
    """The sum of what the strips left of one row, always in one order. Waits until all of them have.

    LANES: a power of two, as many as threads or more: where two threads look at one word they may see it differ.
    """
    lane = tl.arange(0, LANES)
    words = tl.load(at + lane, mask=lane < STRIPS, other=-2147483648, volatile=True)
    while tl.sum((words == 0).to(tl.int32), 0) > 0:
        words = tl.load(at + lane, mask=lane < STRIPS, other=-2147483648, volatile=True)
    return tl.sum(words.to(tl.float32, bitcast=True), 0)
