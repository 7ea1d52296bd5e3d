"""Sum, mean or largest of the rows of each segment, given sorted offsets; and the gradient.

Reference: torch.segment_reduce; an empty segment has 0, NaN and -inf. Traffic: values read once, results written once,
(rows + segments) * columns * itemsize bytes. A program takes a segment, or several short ones side by side, and has
several rows of each under way; no search, since it begins with two offsets. What is longer than 2^17 numbers is split:
further programs look for long segments in their share of the rows, LONG of them, and what they find goes through f32
parts, which a second launch joins in a fixed order: no atomics, and no result changes from run to run. With at most
LONG rows in all there are none of these.

Backward: dx of a row is its segment's dy (a mean's divided by its rows): a program reads dy once and writes the
segment's rows. Of a maximum, rows as large as the largest share its gradient evenly (torch divides positive gradients
alone); a pass over the segment's values counts them first, which the second one then finds in a cache.

embedding_bag's gradient is the same kernel, with rows that are gathered and scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.ops.shared.pairs import rounded
from kernels.ops.shared.rows import DTYPES
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

MODES = ("sum", "mean", "max")
INDEXES = (torch.int32, torch.int64)

tuner = Tuner("segment_reduce")
backward_tuner = Tuner("segment_reduce_backward")


def reference(values: torch.Tensor, offsets: torch.Tensor, mode: str) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    return torch.segment_reduce(wide(values), mode, offsets=offsets, axis=0, unsafe=True).to(values.dtype)


def reference_backward(
    dy: torch.Tensor, values: torch.Tensor, y: torch.Tensor, offsets: torch.Tensor, mode: str
) -> torch.Tensor:
    """The gradient of the values, in plain PyTorch. values, y: of the forward, for max alone."""
    lengths = offsets[1:] - offsets[:-1]
    count = len(lengths)
    segment = torch.repeat_interleave(torch.arange(count, device=dy.device), lengths, output_size=len(values))
    if mode == "sum":
        return dy[segment]
    if mode == "mean":
        return (wide(dy) / lengths.clamp(min=1)[:, None])[segment].to(dy.dtype)
    largest = (values == y[segment]).to(wide(dy).dtype)
    ties = torch.zeros(dy.shape, dtype=largest.dtype, device=dy.device).index_add(0, segment, largest)
    return (largest * (wide(dy) / ties.clamp(min=1))[segment]).to(dy.dtype)


@triton.jit
def segment_holding(offsets_ptr, segments, row):
    """The segment that holds this row: the last whose offset is not beyond it. 127 offsets are compared at a time."""
    low = segments * 0
    width = segments + 0
    while width > 1:
        step = (width + 127) // 128
        ahead = (tl.arange(0, 128) + 1) * step
        offset = tl.load(offsets_ptr + low + ahead, mask=ahead < width, other=0)
        passed = tl.sum(((ahead < width) & (offset <= row)).to(tl.int32), 0) * step
        low += passed
        width = tl.minimum(step, width - passed)
    return low


@triton.jit
def program_role(chunks, period):
    """Whether this program takes a chunk of rows, and which; else which group of segments."""
    program = tl.program_id(0).to(tl.int64)
    before = tl.minimum((program + period - 1) // period, chunks)
    is_chunk = (program % period == 0) & (program // period < chunks)
    return is_chunk, tl.where(is_chunk, program // period, program - before)


@triton.jit
def long_segment(offsets_ptr, segments, first, end, SIDE: tl.constexpr, LONG: tl.constexpr):
    """The long segment that has rows in [first, end), which rows, and whether there is one.

    SIDE 0: one that began before, 1: one that begins here. LONG rows cannot have more of either.
    """
    s = segment_holding(offsets_ptr, segments, first if SIDE == 0 else end - 1).to(tl.int64)
    begin = tl.load(offsets_ptr + s).to(tl.int64)
    stop = tl.load(offsets_ptr + s + 1).to(tl.int64)
    aside = (begin < first) if SIDE == 0 else (begin >= first)
    here = (stop - begin > LONG) & aside & (stop > first) & (begin < end)
    return s, tl.maximum(begin, first), tl.minimum(stop, end), here


@triton.jit
def pieces(begin, stop, SEGMENTS: tl.constexpr):
    """These rows in SEGMENTS runs."""
    each = (stop - begin + SEGMENTS - 1) // SEGMENTS
    begins = begin + tl.arange(0, SEGMENTS) * each
    return tl.minimum(begins, stop), tl.minimum(begins + each, stop)


@triton.jit
def reduced_rows(
    v_ptr, rows_ptr, order_ptr, scale_ptr, pick_ptr, out_ptr, top, begin, stop, col, columns, stride,
    SEGMENTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, MODE: tl.constexpr, GATHER: tl.constexpr,
    SCALED: tl.constexpr, PICKED: tl.constexpr, PRODUCTS: tl.constexpr, TIES: tl.constexpr,
):  # fmt: skip
    """Sum or maximum of the rows [begin, stop) of each segment, [SEGMENTS, BLOCK]; ROWS of each under way at a time.

    Rows are a tile's first axis, so that a thread holds all of its columns' and reduces them alone.
    """
    low: tl.constexpr = float("-inf") if MODE == "max" else 0.0
    total = tl.full((SEGMENTS, BLOCK), low, tl.float32)
    inside = (col < columns)[None, None, :]
    for start in range(0, tl.max(stop - begin, 0), ROWS):
        place = begin[None, :] + start + tl.arange(0, ROWS)[:, None]
        held = place < stop[None, :]
        here = held[:, :, None] & inside
        row = place
        if GATHER:
            row = tl.load(rows_ptr + place, mask=held, other=0).to(tl.int64)
        if PICKED or PRODUCTS:
            sample = tl.load(order_ptr + place, mask=held, other=0).to(tl.int64)
        x = tl.load(v_ptr + (row * stride)[:, :, None] + col[None, None, :], mask=here, other=low).to(tl.float32)
        if PICKED:
            pick = tl.load(pick_ptr + (row * columns)[:, :, None] + col[None, None, :], mask=here, other=-1)
            x = tl.where(pick == sample.to(tl.int32)[:, :, None], x, 0.0)
        if PRODUCTS:
            product = tl.sum(x * top, 2)
            tl.store(out_ptr + sample, rounded(product, out_ptr), mask=held)
        if SCALED:
            x *= tl.load(scale_ptr + place, mask=held, other=0.0).to(tl.float32)[:, :, None]
        if TIES:
            total += tl.sum(tl.where(here & (x == top), 1.0, 0.0), 0)
        elif MODE == "max":
            total = tl.maximum(total, tl.max(x, 0))
        else:
            total += tl.sum(x, 0)
    return total


@triton.jit(do_not_specialize=("segments", "chunks", "period"))
def segment_parts(
    v_ptr, rows_ptr, order_ptr, scale_ptr, pick_ptr, out_ptr, top_ptr, offsets_ptr, y_ptr, parts_ptr, heads_ptr, count,
    segments, chunks, period, columns, stride, top_stride, SEGMENTS: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, LONG: tl.constexpr, MODE: tl.constexpr, GATHER: tl.constexpr, SCALED: tl.constexpr,
    PICKED: tl.constexpr, PRODUCTS: tl.constexpr, TIES: tl.constexpr,
):  # fmt: skip
    """SEGMENTS segments a program, ROWS rows of each at a time; or LONG rows, and what long segments have of them.

    That goes into parts [chunks, 2, columns]: of a segment that began before these rows in parts[:, 0], of one that
    begins here, whose number is put down in heads, in parts[:, 1].
    GATHER: row i is row rows_ptr[i] of the values. SCALED: times scale_ptr[i]. PICKED: a number counts only where
    pick_ptr, laid out as the values, is order_ptr[i]. PRODUCTS: out_ptr[order_ptr[i]] becomes the product of row i as
    it is with its segment's in top_ptr; BLOCK then holds all columns. TIES: what is summed is how many numbers are
    their segment's in top_ptr.
    """
    is_chunk, number = program_role(chunks, period)
    col = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    if is_chunk:
        first = number * LONG
        end = tl.minimum(first + LONG, count)
        head = number * 0 - 1
        for side in tl.static_range(2):
            s, low, high, there = long_segment(offsets_ptr, segments, first, end, side, LONG)
            if there:
                if side == 1:
                    head = s
                begins, stops = pieces(low, high, SEGMENTS)
                top = 0.0
                if TIES or PRODUCTS:
                    top = tl.load(
                        top_ptr + s * top_stride + col[None, None, :], mask=(col < columns)[None, None, :], other=0.0
                    ).to(tl.float32)
                each = reduced_rows(v_ptr, rows_ptr, order_ptr, scale_ptr, pick_ptr, out_ptr, top,
                                    begins, stops, col, columns, stride, SEGMENTS, ROWS, BLOCK, MODE, GATHER, SCALED,
                                    PICKED, PRODUCTS, TIES)  # fmt: skip
                part = tl.max(each, 0) if MODE == "max" else tl.sum(each, 0)
                tl.store(parts_ptr + (2 * number + side) * columns + col, part, mask=col < columns)
        tl.store(heads_ptr + number, head)
    else:
        segment = number * SEGMENTS + tl.arange(0, SEGMENTS)
        begin = tl.load(offsets_ptr + segment, mask=segment < segments, other=0).to(tl.int64)
        stop = tl.load(offsets_ptr + segment + 1, mask=segment < segments, other=0).to(tl.int64)
        size = stop - begin
        mine = (segment < segments) & (size <= LONG)
        top = 0.0
        if TIES or PRODUCTS:
            top = tl.load(
                top_ptr + (segment * top_stride)[None, :, None] + col[None, None, :],
                mask=(mine & (size > 0))[None, :, None] & (col < columns)[None, None, :], other=0.0,
            ).to(tl.float32)  # fmt: skip
        total = reduced_rows(v_ptr, rows_ptr, order_ptr, scale_ptr, pick_ptr, out_ptr, top, begin,
                             tl.where(mine, stop, begin), col, columns, stride, SEGMENTS, ROWS, BLOCK, MODE, GATHER,
                             SCALED, PICKED, PRODUCTS, TIES)  # fmt: skip
        if MODE == "mean":
            total = total / tl.maximum(size, 1).to(tl.float32)[:, None]
            total = tl.where((size > 0)[:, None], total, float("nan"))
        tl.store(y_ptr + (segment * columns)[:, None] + col[None, :], rounded(total, y_ptr),
                 mask=mine[:, None] & (col < columns)[None, :])  # fmt: skip


@triton.jit
def joined_segment(
    offsets_ptr, y_ptr, parts_ptr, s, col, columns, LONG: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr,
    MODE: tl.constexpr,
):  # fmt: skip
    """Write the result of a long segment from its parts."""
    begin = tl.load(offsets_ptr + s).to(tl.int64)
    stop = tl.load(offsets_ptr + s + 1).to(tl.int64)
    first = begin // LONG
    last = (stop - 1) // LONG
    low: tl.constexpr = float("-inf") if MODE == "max" else 0.0
    total = tl.full((PARTS, BLOCK), low, tl.float32)
    for start in range(first, last + 1, PARTS):
        here = start + tl.arange(0, PARTS)[:, None]
        at = parts_ptr + (2 * here + tl.where(here == first, 1, 0)) * columns + col[None, :]
        more = tl.load(at, mask=(here <= last) & (col[None, :] < columns), other=low)
        if MODE == "max":
            total = tl.maximum(total, more)
        else:
            total += more
    result = tl.max(total, 0) if MODE == "max" else tl.sum(total, 0)
    if MODE == "mean":
        result /= (stop - begin).to(tl.float32)
    tl.store(y_ptr + s * columns + col, rounded(result, y_ptr), mask=col < columns)


@triton.jit(do_not_specialize=("chunks",))
def segment_join(
    offsets_ptr, y_ptr, parts_ptr, heads_ptr, chunks, columns, HEADS: tl.constexpr, LONG: tl.constexpr,
    BLOCK: tl.constexpr, PARTS: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    """The results of the long segments that begin in HEADS chunks; mostly there are none."""
    group = tl.program_id(0).to(tl.int64) * HEADS
    col = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    chunk = group + tl.arange(0, HEADS)
    heads = tl.load(heads_ptr + chunk, mask=chunk < chunks, other=-1)
    if tl.max(heads, 0) >= 0:
        for i in range(HEADS):
            if group + i < chunks:
                s = tl.load(heads_ptr + group + i).to(tl.int64)
                if s >= 0:
                    joined_segment(offsets_ptr, y_ptr, parts_ptr, s, col, columns, LONG, BLOCK, PARTS, MODE)


@triton.jit
def spread_rows(
    x_ptr, dx_ptr, g, top, begin, stop, col, columns, stride, SEGMENTS: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    """g [1, SEGMENTS, BLOCK] to the rows [begin, stop) of each segment; of a maximum to those that are as large."""
    g = rounded(g, dx_ptr).to(dx_ptr.dtype.element_ty)
    whole = tl.broadcast_to(g, (ROWS, SEGMENTS, BLOCK))
    for start in range(0, tl.max(stop - begin, 0), ROWS):
        place = begin[None, :] + start + tl.arange(0, ROWS)[:, None]
        here = (place < stop[None, :])[:, :, None] & (col < columns)[None, None, :]
        share = whole
        if MODE == "max":
            x = tl.load(x_ptr + (place * stride)[:, :, None] + col[None, None, :], mask=here, other=0.0)
            share = tl.where(x.to(tl.float32) == top, whole, tl.zeros_like(whole))
        tl.store(dx_ptr + (place * columns)[:, :, None] + col[None, None, :], share, mask=here)


@triton.jit(do_not_specialize=("segments", "chunks", "period"))
def segment_spread(
    dy_ptr, x_ptr, y_ptr, ties_ptr, offsets_ptr, dx_ptr, count, segments, chunks, period, columns, stride,
    SEGMENTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, LONG: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    """dx of SEGMENTS segments a program; or, of LONG rows, of those that are in long segments or in none.

    ties: how many numbers are the largest, of long segments; the others' are counted here, before dx is written.
    """
    is_chunk, number = program_role(chunks, period)
    col = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    across = col[None, None, :]
    inside = (col < columns)[None, None, :]
    if is_chunk:
        first = number * LONG
        end = tl.minimum(first + LONG, count)
        for side in tl.static_range(2):
            s, low, high, there = long_segment(offsets_ptr, segments, first, end, side, LONG)
            if there:
                begins, stops = pieces(low, high, SEGMENTS)
                g = tl.load(dy_ptr + s * columns + across, mask=inside, other=0.0).to(tl.float32)
                top = g
                if MODE == "mean":
                    whole = tl.load(offsets_ptr + s + 1) - tl.load(offsets_ptr + s)
                    g = g * (1.0 / whole.to(tl.float32))
                if MODE == "max":
                    top = tl.load(y_ptr + s * columns + across, mask=inside, other=0.0).to(tl.float32)
                    g = g / tl.load(ties_ptr + s * columns + across, mask=inside, other=1.0)
                spread_rows(x_ptr, dx_ptr, tl.broadcast_to(g, (1, SEGMENTS, BLOCK)), top, begins, stops, col, columns,
                            stride, SEGMENTS, ROWS, BLOCK, MODE)  # fmt: skip
        # Rows before the first offset and from the last one on belong to no segment.
        nothing = tl.zeros((1, SEGMENTS, BLOCK), tl.float32)
        held = tl.load(offsets_ptr).to(tl.int64)
        if held > first:
            begins, stops = pieces(first, tl.minimum(held, end), SEGMENTS)
            spread_rows(x_ptr, dx_ptr, nothing, nothing, begins, stops, col, columns, stride, SEGMENTS, ROWS, BLOCK,
                        "sum")  # fmt: skip
        held = tl.load(offsets_ptr + segments).to(tl.int64)
        if held < end:
            begins, stops = pieces(tl.maximum(held, first), end, SEGMENTS)
            spread_rows(x_ptr, dx_ptr, nothing, nothing, begins, stops, col, columns, stride, SEGMENTS, ROWS, BLOCK,
                        "sum")  # fmt: skip
    else:
        segment = number * SEGMENTS + tl.arange(0, SEGMENTS)
        begin = tl.load(offsets_ptr + segment, mask=segment < segments, other=0).to(tl.int64)
        stop = tl.load(offsets_ptr + segment + 1, mask=segment < segments, other=0).to(tl.int64)
        size = stop - begin
        mine = (segment < segments) & (size <= LONG) & (size > 0)
        stop = tl.where(mine, stop, begin)
        at = (segment * columns)[None, :, None] + across
        here = mine[None, :, None] & inside
        g = tl.load(dy_ptr + at, mask=here, other=0.0).to(tl.float32)
        top = g
        if MODE == "mean":
            g = g * (1.0 / tl.maximum(size, 1).to(tl.float32))[None, :, None]
        if MODE == "max":
            top = tl.load(y_ptr + at, mask=here, other=0.0).to(tl.float32)
            ties = reduced_rows(x_ptr, x_ptr, x_ptr, x_ptr, x_ptr, x_ptr, top, begin, stop, col, columns,
                                stride, SEGMENTS, ROWS, BLOCK, "sum", False, False, False, False, True)  # fmt: skip
            g = g / tl.maximum(ties, 1.0)[None, :, :]
        spread_rows(x_ptr, dx_ptr, g, top, begin, stop, col, columns, stride, SEGMENTS, ROWS, BLOCK, MODE)


TILES = ((1024, 1), (2048, 1), (2048, 2), (4096, 4), (4096, 2), (8192, 4))
"""Numbers of a tile, warps."""
GATHERED = ((1024, 1), (2048, 2), (4096, 4))
"""Those of gathered rows, whose addresses need registers as well."""
WIDEST = 256
SPLIT = 1 << 17
"""Numbers of a segment in one program: what is longer is split."""
FORM = (("GATHER", False), ("SCALED", False), ("PICKED", False), ("PRODUCTS", False), ("TIES", False))
Form = tuple[tuple[str, bool], ...]
Sizes = tuple[tuple[str, int], ...]


def shapes(count: int, columns: int, segments: int, gathered: bool = False) -> list[tuple[Sizes, int]]:
    """SEGMENTS, ROWS, BLOCK and LONG worth timing, with warps: as many rows as segments have on average, or half.

    Of gathered rows, which begin with a load of where they are, also two and four times as many: one step for most
    segments. Those of a table's rows have one or two on average.
    """
    block = min(WIDEST, max(triton.next_power_of_2(columns), 16))
    usual = triton.next_power_of_2(max(1, -(-count // max(1, segments))))
    made = []
    for numbers, warps in GATHERED if gathered else TILES:
        rows = min(numbers // block, 128)
        for most in (4, 2) if gathered else (1,):
            height = min(rows, most * usual)
            for h in (height, max(1, height // 2)):
                sizes = (("SEGMENTS", rows // h), ("ROWS", h), ("BLOCK", block), ("LONG", max(16, SPLIT // block)))
                made.append((sizes, warps))
    return list(dict.fromkeys(made))


def space(count: int, columns: int, segments: int, mode: str, form: Form = FORM) -> list[Variant]:
    """Variants worth timing: 32 or 64 numbers a thread under way."""
    variants = []
    for sizes, warps in shapes(count, columns, segments, dict(form)["GATHER"]):
        held = dict(sizes)["SEGMENTS"] * dict(sizes)["ROWS"] * dict(sizes)["BLOCK"] // (32 * warps)
        registers = held * (3 if dict(form)["PICKED"] else 2) + 40
        constants = (*sizes, ("MODE", mode), *form)
        variants.append(Variant(segment_parts, constants, warps, tuned=("SEGMENTS", "ROWS"), registers=registers))
    return variants


def joined(variant: Variant) -> Variant:
    """How parts are joined: 128 at a time, of 32 columns."""
    own = (
        ("HEADS", 8),
        ("LONG", variant["LONG"]),
        ("BLOCK", min(32, variant["BLOCK"])),
        ("PARTS", 128),
        ("MODE", variant["MODE"]),
    )
    return Variant(segment_join, own, 4)


def programs(chunks: int, groups: int) -> tuple[int, int]:
    """All programs; every so many-th of the first ones takes a chunk, so that these neither come first nor last."""
    return chunks + groups, (chunks + groups) // chunks if chunks else chunks + groups + 1


@dataclass(frozen=True, slots=True)
class Gather:
    """How rows are gathered, scaled and picked: pointers of segment_parts, any tensor for one that is not used."""

    rows: torch.Tensor
    order: torch.Tensor
    scale: torch.Tensor
    pick: torch.Tensor
    out: torch.Tensor


def ungathered(values: torch.Tensor) -> Gather:
    """Rows as they come."""
    return Gather(values, values, values, values, values)


def launch(
    variant: Variant, values: torch.Tensor, gather: Gather, top: torch.Tensor, offsets: torch.Tensor, y: torch.Tensor,
    count: int, split_alone: bool = False,
) -> None:  # fmt: skip
    """Run one variant on `count` rows of values into contiguous y [segments, columns]; split_alone: only the segments
    that are split get a result."""
    segments, columns = y.shape
    long = variant["LONG"]
    chunks = triton.cdiv(count, long) if count > long else 0
    across = triton.cdiv(columns, variant["BLOCK"])
    parts = torch.empty((chunks, 2, columns), dtype=torch.float32, device=y.device)
    heads = torch.empty((chunks,), dtype=torch.int32, device=y.device)
    total, period = programs(chunks, 0 if split_alone else triton.cdiv(segments, variant["SEGMENTS"]))
    if total:
        segment_parts[(total, across)](
            values, gather.rows, gather.order, gather.scale, gather.pick, gather.out, top, offsets, y, parts, heads,
            count, segments, chunks, period, columns, values.stride(0), top.stride(0), **variant.meta,
        )  # fmt: skip
    if chunks:
        join = joined(variant)
        grid = (triton.cdiv(chunks, join["HEADS"]), triton.cdiv(columns, join["BLOCK"]))
        segment_join[grid](offsets, y, parts, heads, chunks, columns, **join.meta)


def checked(name: str, values: torch.Tensor, offsets: torch.Tensor, mode: str) -> torch.Tensor:
    """The values with contiguous rows. Raises TypeError and ValueError for what the kernels do not take."""
    if values.dtype not in DTYPES or offsets.dtype not in INDEXES:
        raise TypeError(f"{name} takes f32, f16 or bf16 and i32 or i64, not {values.dtype} and {offsets.dtype}")
    if values.dim() != 2 or offsets.dim() != 1 or not len(offsets):
        raise ValueError(f"{name} takes [rows, columns] and [segments + 1], not {[*values.shape]}, {[*offsets.shape]}")
    if mode not in MODES:
        raise ValueError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
    return values if values.stride(1) == 1 else values.contiguous()


def segment_reduce(values: torch.Tensor, offsets: torch.Tensor, mode: str) -> torch.Tensor:
    """Sum, mean or max ("sum", "mean", "max") of values[offsets[i] : offsets[i + 1]] for each i: [segments, columns].

    values [rows, columns] in f32, f16 or bf16, offsets [segments + 1] in i32 or i64, sorted, between 0 and rows: rows
    before the first and from the last on are in no segment. Computed in f32, the result like the values. A NaN is not
    the largest of anything else. Raises TypeError for other dtypes, ValueError for other shapes and modes.
    """
    values = checked("segment_reduce", values, offsets, mode)
    sizes = (len(values), values.shape[1])
    y = torch.empty((len(offsets) - 1, sizes[1]), dtype=values.dtype, device=values.device)
    if y.numel():
        offsets = offsets.contiguous()
        arguments = (values, ungathered(values), values, offsets, y, len(values))
        key = (*values.shape, len(y), values.dtype, offsets.dtype, mode, values.stride(0))
        variant = tuner.pick(key, lambda: space(*sizes, len(y), mode), launch, *arguments, uncopied=arguments[:-2])
        launch(variant, *arguments)
    return y


def spread_space(count: int, columns: int, segments: int, mode: str) -> list[Variant]:
    """Variants of the backward worth timing."""
    return [
        Variant(segment_spread, (*sizes, ("MODE", mode)), warps, tuned=("SEGMENTS", "ROWS"))
        for sizes, warps in shapes(count, columns, segments)
    ]


def launch_spread(
    variant: Variant, dy: torch.Tensor, values: torch.Tensor, y: torch.Tensor, offsets: torch.Tensor, dx: torch.Tensor
) -> None:
    """Run one variant of the backward into contiguous dx [rows, columns]."""
    count, columns = dx.shape
    segments, long = len(offsets) - 1, variant["LONG"]
    ties = dy
    if variant["MODE"] == "max" and count > long:
        # Rows of a long segment are in many programs: a launch before counts which of them are the largest.
        ties = torch.empty(y.shape, dtype=torch.float32, device=y.device)
        counting = tuple((name, True if name == "TIES" else value) for name, value in FORM)
        sizes = tuple(pair for pair in variant.constants if pair[0] in ("SEGMENTS", "ROWS", "BLOCK", "LONG"))
        first = Variant(segment_parts, (*sizes, ("MODE", "sum"), *counting), variant.warps)
        launch(first, values, ungathered(values), y, offsets, ties, count, split_alone=True)
    chunks = triton.cdiv(count, long)
    total, period = programs(chunks, triton.cdiv(segments, variant["SEGMENTS"]))
    segment_spread[(total, triton.cdiv(columns, variant["BLOCK"]))](
        dy, values, y, ties, offsets, dx, count, segments, chunks, period, columns, values.stride(0), **variant.meta
    )  # fmt: skip


def segment_reduce_backward(
    dy: torch.Tensor, values: torch.Tensor, y: torch.Tensor, offsets: torch.Tensor, mode: str
) -> torch.Tensor:
    """The gradient of segment_reduce's values, like them. dy, y: [segments, columns]; of values and y only "max" reads
    numbers. Raises as segment_reduce does."""
    values = checked("segment_reduce_backward", values, offsets, mode)
    for label, t in (("dy", dy), ("y", y)):
        if t.dtype != values.dtype or t.shape != (len(offsets) - 1, values.shape[1]):
            raise ValueError(f"{label} is {t.dtype}{[*t.shape]} for values of {values.dtype}{[*values.shape]}")
    dx = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    if not dx.numel() or not len(y):
        return dx.zero_()
    sizes = (len(values), values.shape[1])
    arguments = (dy.contiguous(), values, y.contiguous(), offsets.contiguous(), dx)
    key = (*values.shape, len(y), values.dtype, offsets.dtype, mode, values.stride(0))
    variant = backward_tuner.pick(
        key, lambda: spread_space(*sizes, len(y), mode), launch_spread, *arguments, uncopied=arguments[:-1]
    )
    launch_spread(variant, *arguments)
    return dx


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor, str]:
    """Arguments to try it on."""
    offsets = make.offsets(c["segments"], c["rows"], torch.int32 if c.get("short") else torch.int64)
    return make.normal((c["rows"], c["columns"]), c.torch_dtype), offsets, c["mode"]


def backward_inputs(c: Case, make: Maker) -> tuple[torch.Tensor, ...]:
    """Arguments to try the backward on; a few values are alike."""
    values, offsets, mode = inputs(c, make)
    values = values.copy_((values.float() * 4).round() / 4)
    dy = make.normal((c["segments"], c["columns"]), c.torch_dtype)
    return dy, values, reference(values, offsets, mode), offsets, mode  # type: ignore[return-value]


def _cost(c: Case) -> Cost:
    return Cost(bytes=(c["rows"] + c["segments"]) * c["columns"] * c.itemsize)


def _backward_cost(c: Case) -> Cost:
    """dy and dx; of a maximum the values and results as well."""
    return Cost(bytes=(2 if c["mode"] == "max" else 1) * _cost(c).bytes)


def deciding(arguments: Sequence[Any], part: slice) -> tuple[Any, ...]:
    """The arguments that give these segments."""
    values, offsets, mode = arguments
    own = offsets[part.start : part.stop + 1]
    return values[int(own[0]) : int(own[-1])].clone(), own - own[0], mode


def backward_deciding(arguments: Sequence[Any], part: slice) -> tuple[Any, ...]:
    """The arguments that give these rows' gradients, of sums: a segment cut short has another mean."""
    dy, values, y, offsets, mode = arguments
    return dy, values[part].clone(), y, offsets.clamp(part.start, part.stop) - part.start, mode


INTEGERS = ("rows_ptr", "order_ptr", "offsets_ptr")
SIGNATURE = {
    **dict.fromkeys(("v_ptr", "scale_ptr", "out_ptr", "top_ptr", "y_ptr", "dy_ptr", "x_ptr", "dx_ptr"), "*bf16"),
    **dict.fromkeys(INTEGERS, "*i64"), "pick_ptr": "*i32", "parts_ptr": "*fp32", "ties_ptr": "*fp32",
    "heads_ptr": "*i32",
    **dict.fromkeys(("count", "segments", "chunks", "period", "columns", "stride", "top_stride"), "i32"),
}  # fmt: skip


def build(variant: Variant, **types: str) -> Build:
    """Its signature in the order of its arguments; types: of those that are not as usual."""
    names = variant.kernel.arg_names
    divisible = tuple(n for n in ("columns", "stride", "top_stride") if n in names)
    return Build(variant, {k: (SIGNATURE | types)[k] for k in names if k in SIGNATURE}, divisible)


LARGE = (1 << 20, 256, 1 << 15)
FORMS = ("plain", "strided", "misaligned")
OPERATIONS = (
    Operation(
        name="segment_reduce", run=segment_reduce, reference=reference, inputs=inputs, cost=_cost, forms=FORMS,
        beyond=case("bf16", rows=(1 << 23) + 77, columns=256, segments=1 << 16, mode="mean"), deciding=deciding,
        checks=(
            *(case(d, rows=r, columns=n, segments=s, mode=m) for d in ("f32", "bf16") for m in MODES
              for r, n, s in ((100, 33, 7), (300, 130, 40), (5, 1, 9))),
            case("f16", rows=700, columns=16, segments=1, mode="mean"), case("f32", rows=0, columns=4, segments=3,
                                                                            mode="max"),
            case("bf16", rows=256, columns=64, segments=60, mode="max", short=True),
        ),
        cases=(
            *(case("bf16", rows=1 << 20, columns=256, segments=1 << 15, mode=m) for m in MODES),
            case("f32", rows=1 << 21, columns=64, segments=1 << 18, mode="sum"),
        ),
        builds=(*(build(space(*LARGE, m)[2]) for m in MODES), build(joined(space(*LARGE, "max")[2])),
                build(space(1 << 21, 64, 1 << 18, "sum")[2], v_ptr="*fp32", y_ptr="*fp32")),
    ),
    Operation(
        name="segment_reduce_backward", run=segment_reduce_backward, reference=reference_backward,
        inputs=backward_inputs, cost=_backward_cost, forms=FORMS,
        beyond=case("bf16", rows=(1 << 23) + 77, columns=256, segments=1 << 16, mode="sum"), deciding=backward_deciding,
        checks=(
            *(case(d, rows=r, columns=n, segments=s, mode=m) for d in ("f32", "bf16") for m in MODES
              for r, n, s in ((100, 33, 7), (5, 1, 9))),
            case("f16", rows=700, columns=16, segments=1, mode="max"),
            case("f32", rows=0, columns=4, segments=3, mode="max"),
            case("bf16", rows=256, columns=64, segments=60, mode="max", short=True),
        ),
        cases=tuple(case("bf16", rows=1 << 20, columns=256, segments=1 << 15, mode=m) for m in MODES),
        builds=tuple(build(spread_space(*LARGE, m)[2]) for m in MODES),
    ),
)  # fmt: skip
