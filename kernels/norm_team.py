"""The backward of a normalisation whose rows are too long for one program: TEAM programs share each row.

A program holds its columns' sums of dw in registers while it walks, as gradient_packed does, which for whole rows of
65536 would need every register there is. A row's two means are exchanged through memory, one row behind the loads, so
that nobody waits for them: x and dy are read once.

Programs wait for each other, and no order of starting is promised. So a program takes its place by a ticket that it
draws when it starts: all places before its own are taken by programs that run or are done, so the members of the first
unfinished team are running or next to start, whatever else occupies the GPU, and nobody waits for ever.
"""

import triton
import triton.language as tl

from kernels.norm_gradients import centered, slopes
from kernels.norm_kernels import again, half, words_of


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
