"""The backward of a normalisation whose sums of dw and db do not fit beside a row: strips of columns first, then dx.

One launch has two kinds of work. A strip: a few columns of a chunk of rows; its dw and db stay in registers, and of
every row it leaves what belongs to the row's two means. A piece: dx of a part of one row, from those means. Pieces come
some chunks after their strips, so that nobody waits for long, and soon enough that x and dy are still in L2: memory
reads both once, although every element is loaded twice.

Pieces wait for strips, strips for nobody. No order of starting is promised, so a program takes its place by a ticket
that it draws when it starts: all strips that a piece waits for are done or running (as in norm_team.py).
"""

import triton
import triton.language as tl

from kernels.norm_gradients import centered, slopes
from kernels.norm_kernels import half, words_of
from kernels.norm_team import publish


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
