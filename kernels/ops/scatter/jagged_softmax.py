"""Softmax over the rows of each segment of a jagged tensor, every column by itself.

Reference: largest and sum of each segment by scatters, then a division. Traffic: values read once, results written
once, 2 rows * columns * itemsize bytes, while a segment fits into one program. Two ways, and tuning picks by the
first call's offsets: a program for each segment and some columns, which reads what does not fit twice; or programs of
as many rows each, whatever their segments, in three launches (largest and sum of each part, of each segment, the
results), which costs a second reading of most rows but no segment can be too long for it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.ops.scatter.jagged_mean import CHECKS, checked, inputs, segment_of
from kernels.ops.shared.pairs import exp_of
from kernels.spec import Build, Case, Cost, Operation, case
from kernels.tuning import Tuner, Variant

tuner = Tuner("jagged_softmax")


def reference(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    lengths = offsets[1:] - offsets[:-1]
    count, columns = lengths.shape[0], values.shape[1]
    segment = torch.repeat_interleave(
        torch.arange(count, device=values.device), lengths, output_size=values.shape[0]
    )  # fmt: skip
    lowest = torch.full((count, columns), float("-inf"), device=values.device, dtype=values.dtype)
    largest = lowest.scatter_reduce(0, segment[:, None].expand(-1, columns), values, "amax")
    e = torch.exp(values - largest[segment])
    return e / torch.zeros_like(largest).index_add(0, segment, e)[segment]


@triton.jit
def finite(top):
    """What to subtract for a largest value: 0 where there is none above -inf, so that such a part has the sum 0."""
    return tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def jagged_softmax_segments(v_ptr, offsets_ptr, y_ptr, columns, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK columns of one segment a program: held where it has at most ROWS rows, else walked twice."""
    s = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    begin = tl.load(offsets_ptr + s).to(tl.int64)
    stop = tl.load(offsets_ptr + s + 1).to(tl.int64)
    row = begin + tl.arange(0, ROWS)[:, None]
    if stop - begin <= ROWS:
        inside = (row < stop) & (col < columns)
        x = tl.load(v_ptr + row * stride + col, mask=inside, other=float("-inf")).to(tl.float32)
        e = exp_of(x - tl.max(x, 0)[None, :])
        tl.store(y_ptr + row * columns + col, e * (1.0 / tl.sum(e, 0))[None, :], mask=inside)
    else:
        top = tl.full((1, BLOCK), float("-inf"), tl.float32)
        total = tl.zeros((1, BLOCK), tl.float32)
        for start in range(0, stop - begin, ROWS):
            inside = (row + start < stop) & (col < columns)
            at = v_ptr + (row + start) * stride + col
            x = tl.load(at, mask=inside, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
            larger = tl.maximum(top, tl.max(x, 0)[None, :])
            shift = finite(larger)
            total = total * exp_of(top - shift) + tl.sum(exp_of(x - shift), 0)[None, :]
            top = larger
        scale = 1.0 / total
        for start in range(0, stop - begin, ROWS):
            inside = (row + start < stop) & (col < columns)
            x = tl.load(v_ptr + (row + start) * stride + col, mask=inside, other=0.0).to(tl.float32)
            tl.store(y_ptr + (row + start) * columns + col, exp_of(x - top) * scale, mask=inside)


@triton.jit(do_not_specialize=("segments",))
def jagged_softmax_blocks(
    v_ptr, offsets_ptr, y_ptr, parts_ptr, rows, segments, columns, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    LAST: tl.constexpr,
):  # fmt: skip
    """ROWS rows a program. First: segments that lie inside, and of the others largest and sum of this part.

    parts: [programs, 2, 2, columns], of a segment that begins before these rows, of one that only ends after them.
    LAST: results of those others; parts is then [segments, 2, columns], largest and sum of each, and programs run
    from the last rows, which are the likeliest to be in L2 still.
    """
    block = tl.program_id(0).to(tl.int64)
    if LAST:
        block = tl.num_programs(0) - 1 - block
    first = block * ROWS
    row = tl.arange(0, ROWS)[:, None]
    flat = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    col = flat[None, :]
    present = col < columns
    at = v_ptr + first * stride + row.to(tl.int64) * stride + col
    x = tl.load(at, mask=(row < rows - first) & present, other=float("-inf")).to(tl.float32)
    to = y_ptr + first * columns + row.to(tl.int64) * columns + col
    end = tl.minimum(first + ROWS, rows)
    s = segment_of(offsets_ptr, segments, first)
    done = first
    while (done < end) & (s < segments):
        begin = tl.load(offsets_ptr + s).to(tl.int64)
        stop = tl.load(offsets_ptr + s + 1).to(tl.int64)
        until = tl.minimum(stop, end)
        whole = (begin >= first) & (stop <= end)
        here = (row >= (done - first).to(tl.int32)) & (row < (until - first).to(tl.int32))
        if LAST:
            if (until > done) & (whole == 0):
                stats = parts_ptr + s.to(tl.int64) * 2 * columns + flat
                top = tl.load(stats, mask=flat < columns, other=0.0)
                scale = 1.0 / tl.load(stats + columns, mask=flat < columns, other=1.0)
                tl.store(to, exp_of(x - top[None, :]) * scale[None, :], mask=here & present)
        else:
            if until > done:
                top = tl.max(tl.where(here, x, float("-inf")), 0)[None, :]
                shift = tl.where(whole, top, finite(top))
                e = tl.where(here, exp_of(x - shift), 0.0)
                total = tl.sum(e, 0)[None, :]
                if whole:
                    tl.store(to, e * (1.0 / total), mask=here & present)
                else:
                    slot = 2 * block + tl.where(begin < first, 0, 1)
                    tl.store(parts_ptr + slot * 2 * columns + col, top, mask=present)
                    tl.store(parts_ptr + (slot * 2 + 1) * columns + col, total, mask=present)
        done = tl.maximum(done, until)
        s += 1


@triton.jit
def jagged_softmax_join(
    offsets_ptr, parts_ptr, stats_ptr, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr
):
    """One segment a program: largest and sum from its parts, where it has several."""
    s = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    begin = tl.load(offsets_ptr + s).to(tl.int64)
    stop = tl.load(offsets_ptr + s + 1).to(tl.int64)
    first = begin // ROWS
    last = (stop - 1) // ROWS
    if (stop > begin) & (last > first):
        part = tl.arange(0, PARTS)[:, None]
        top = tl.full((1, BLOCK), float("-inf"), tl.float32)
        total = tl.zeros((1, BLOCK), tl.float32)
        for start in range(first, last + 1, PARTS):
            here = start + part
            inside = (here <= last) & (col < columns)
            at = parts_ptr + (2 * here + tl.where(here == first, 1, 0)) * 2 * columns + col
            tops = tl.load(at, mask=inside, other=float("-inf"))
            totals = tl.load(at + columns, mask=inside, other=0.0)
            larger = tl.maximum(top, tl.max(tops, 0)[None, :])
            shift = finite(larger)
            total = total * exp_of(top - shift) + tl.sum(totals * exp_of(tops - shift), 0)[None, :]
            top = larger
        tl.store(stats_ptr + s * 2 * columns + col, top, mask=col < columns)
        tl.store(stats_ptr + (s * 2 + 1) * columns + col, total, mask=col < columns)


SEGMENTS = ((256, 32, 8), (512, 16, 8), (512, 32, 16), (128, 32, 4))
BLOCKS = ((32, 4), (64, 8), (16, 4))
"""Rows, columns, warps; rows of 128 columns, warps."""
WIDEST = 256


def space(columns: int) -> list[Variant]:
    """Variants worth timing, of both ways."""
    variants = []
    for rows, width, warps in SEGMENTS:
        block = min(width, triton.next_power_of_2(columns))
        variants.append(Variant(jagged_softmax_segments, (("ROWS", rows), ("BLOCK", block)), warps))
    block = min(WIDEST, triton.next_power_of_2(columns))
    for height, warps in BLOCKS:
        rows = min(max(16, height * 128 // block), 512)
        variants.append(Variant(jagged_softmax_blocks, (("ROWS", rows), ("BLOCK", block), ("LAST", False)), warps))
    return list(dict.fromkeys(variants))


def joined(block: int, rows: int) -> Variant:
    """How parts are joined: 16 at a time."""
    return Variant(jagged_softmax_join, (("ROWS", rows), ("BLOCK", block), ("PARTS", 16)), 4)


def launch(variant: Variant, values: torch.Tensor, offsets: torch.Tensor, y: torch.Tensor) -> None:
    """Run one variant on values [rows, columns], rows contiguous, into a contiguous y of the same shape."""
    rows, columns = values.shape
    segments, height, block = offsets.shape[0] - 1, variant["ROWS"], variant["BLOCK"]
    wide, stride = triton.cdiv(columns, block), values.stride(0)
    if variant.kernel is jagged_softmax_segments:
        jagged_softmax_segments[(segments, wide)](values, offsets, y, columns, stride, **variant.meta)
        return
    grid = (triton.cdiv(rows, height), wide)
    parts = torch.empty((grid[0] * 2 + segments, 2, columns), dtype=torch.float32, device=values.device)
    stats = parts[grid[0] * 2 :]
    sizes = (rows, segments, columns, stride)
    jagged_softmax_blocks[grid](values, offsets, y, parts, *sizes, **variant.meta)
    jagged_softmax_join[(segments, wide)](offsets, parts, stats, columns, **joined(block, height).meta)
    jagged_softmax_blocks[grid](values, offsets, y, stats, *sizes, **{**variant.meta, "LAST": True})


def jagged_softmax(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Softmax of values [rows, columns] in f32, f16 or bf16 over rows offsets[s] to offsets[s + 1] of each segment s.

    offsets: [S + 1] in i64 or i32, sorted, from 0 to rows; not looked at before the launch. Computed in f32, the
    result is contiguous. Raises TypeError for other dtypes, ValueError for other shapes.
    """
    values, offsets = checked("jagged_softmax", values, offsets), offsets.contiguous()
    y = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    if y.numel():
        key = (*values.shape, offsets.shape[0], values.dtype, offsets.dtype, values.stride(0))
        launch(tuner.pick(key, lambda: space(values.shape[1]), launch, values, offsets, y), values, offsets, y)
    return y


def cost(c: Case) -> Cost:
    """Read once, written once."""
    return Cost(bytes=2 * c["rows"] * c["columns"] * c.itemsize + 8 * c["segments"])


SIGNATURE = {
    "v_ptr": "*fp32", "offsets_ptr": "*i64", "y_ptr": "*fp32", "parts_ptr": "*fp32", "rows": "i32", "segments": "i32",
    "columns": "i32", "stride": "i32",
}  # fmt: skip
ALONE = {n: t for n, t in SIGNATURE.items() if n not in ("parts_ptr", "rows", "segments")}
JOIN = {"offsets_ptr": "*i64", "parts_ptr": "*fp32", "stats_ptr": "*fp32", "columns": "i32"}
LAST = Variant(jagged_softmax_blocks, (("ROWS", 32), ("BLOCK", 128), ("LAST", True)), 4)
OPERATIONS = (
    Operation(
        name="jagged_softmax", run=jagged_softmax, reference=reference, inputs=inputs, cost=cost,
        checks=tuple(c for c in CHECKS if c["rows"] >= 1 or c.dtype == "f32"),
        cases=(
            case("f32", rows=131072, segments=512, columns=128),
            case("f32", rows=131072, segments=512, columns=128, longest=0.5),
            case("bf16", rows=1 << 20, segments=4096, columns=256),
        ),
        builds=(
            Build(space(128)[0], ALONE, divisible=("columns", "stride")),
            Build(space(128)[4], SIGNATURE, divisible=("rows", "columns", "stride")),
            Build(LAST, SIGNATURE, divisible=("rows", "columns", "stride")),
            Build(joined(128, 32), JOIN, divisible=("columns",)),
        ),
        forms=("plain", "strided", "misaligned", "special"),
    ),
)  # fmt: skip
