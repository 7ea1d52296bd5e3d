"""Mean over the rows of each segment of a jagged tensor.

Reference: index_add by segment, then a division; an empty segment has the mean of nothing, NaN. Traffic: values read
once, means written once, (rows + segments) * columns * itemsize bytes. Every program takes the same number of rows,
whatever segments they belong to, so that one long segment costs no more than many short ones. What a segment has in
several programs goes through f32 partial sums, which a second launch adds in a fixed order: the result of a call
never changes from run to run.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.ops.shared.rows import DTYPES
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant

tuner = Tuner("jagged_mean")


def reference(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    lengths = offsets[1:] - offsets[:-1]
    count = lengths.shape[0]
    segment = torch.repeat_interleave(
        torch.arange(count, device=values.device), lengths, output_size=values.shape[0]
    )  # fmt: skip
    total = torch.zeros(count, values.shape[1], device=values.device, dtype=values.dtype).index_add(0, segment, values)
    return total / lengths[:, None]


@triton.jit
def segment_of(offsets_ptr, segments, row):
    """The segment that holds this row: the last whose offset is not beyond it."""
    low = segments * 0
    high = segments + 0
    while high - low > 1:
        middle = (low + high) // 2
        below = tl.load(offsets_ptr + middle) <= row
        low = tl.where(below, middle, low)
        high = tl.where(below, high, middle)
    return low


@triton.jit(do_not_specialize=("segments",))
def jagged_mean_parts(
    v_ptr, offsets_ptr, y_ptr, parts_ptr, rows, segments, columns, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """ROWS rows a program: means of segments that lie inside, sums of the others into parts [programs, 2, columns].

    Of a segment that begins before these rows in parts[:, 0], of one that only ends after them in parts[:, 1].
    """
    block = tl.program_id(0).to(tl.int64)
    first = block * ROWS
    row = tl.arange(0, ROWS)[:, None]
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = v_ptr + first * stride + row.to(tl.int64) * stride + col[None, :]
    if WHOLE:
        x = tl.load(at).to(tl.float32)
    else:
        x = tl.load(at, mask=(row < rows - first) & (col[None, :] < columns), other=0.0).to(tl.float32)
    end = tl.minimum(first + ROWS, rows)
    s = segment_of(offsets_ptr, segments, first)
    done = first
    while (done < end) & (s < segments):
        begin = tl.load(offsets_ptr + s).to(tl.int64)
        stop = tl.load(offsets_ptr + s + 1).to(tl.int64)
        until = tl.minimum(stop, end)
        if until > done:
            here = (row >= (done - first).to(tl.int32)) & (row < (until - first).to(tl.int32))
            total = tl.sum(tl.where(here, x, 0.0), 0)
            if (begin >= first) & (stop <= end):
                mean = total / (stop - begin).to(tl.float32)
                tl.store(y_ptr + s.to(tl.int64) * columns + col, mean, mask=col < columns)
            else:
                slot = 2 * block + tl.where(begin < first, 0, 1)
                tl.store(parts_ptr + slot * columns + col, total, mask=col < columns)
            done = until
        s += 1


@triton.jit
def jagged_mean_join(
    offsets_ptr, y_ptr, parts_ptr, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr
):
    """One segment a program: the mean from its parts, where it has several; NaN where it is empty."""
    s = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.load(offsets_ptr + s).to(tl.int64)
    stop = tl.load(offsets_ptr + s + 1).to(tl.int64)
    first = begin // ROWS
    last = (stop - 1) // ROWS
    to = y_ptr + s * columns + col
    if stop <= begin:
        tl.store(to, tl.full((BLOCK,), float("nan"), tl.float32), mask=col < columns)
    elif last > first:
        part = tl.arange(0, PARTS)[:, None]
        total = tl.zeros((PARTS, BLOCK), tl.float32)
        for start in range(first, last + 1, PARTS):
            here = start + part
            at = parts_ptr + (2 * here + tl.where(here == first, 1, 0)) * columns + col[None, :]
            total += tl.load(at, mask=(here <= last) & (col[None, :] < columns), other=0.0)
        tl.store(to, tl.sum(total, 0) / (stop - begin).to(tl.float32), mask=col < columns)


TILES = ((64, 4), (16, 2), (16, 1), (32, 2), (32, 1), (64, 2), (8, 1))
"""Rows of 128 columns, warps."""
WIDEST = 256


def space(rows: int, columns: int) -> list[Variant]:
    """Variants worth timing for tensors of this size."""
    block = min(WIDEST, triton.next_power_of_2(columns))
    variants = []
    for height, warps in TILES:
        count = min(max(8, height * 128 // block), 512)
        whole = rows % count == 0 and columns % block == 0
        constants = (("ROWS", count), ("BLOCK", block), ("WHOLE", whole))
        variants.append(Variant(jagged_mean_parts, constants, warps, tuned=("ROWS",)))
    return list(dict.fromkeys(variants))


def joined(block: int, rows: int) -> Variant:
    """How partial sums are added: 32 at a time."""
    return Variant(jagged_mean_join, (("ROWS", rows), ("BLOCK", block), ("PARTS", 32)), 4)


def launch(variant: Variant, values: torch.Tensor, offsets: torch.Tensor, y: torch.Tensor) -> None:
    """Run one variant on values [rows, columns], rows contiguous, into a contiguous y [segments, columns]."""
    rows, columns = values.shape
    height, block = variant["ROWS"], variant["BLOCK"]
    blocks, wide = triton.cdiv(rows, height), triton.cdiv(columns, block)
    parts = torch.empty((blocks, 2, columns), dtype=torch.float32, device=values.device)
    if blocks:
        jagged_mean_parts[(blocks, wide)](
            values, offsets, y, parts, rows, y.shape[0], columns, values.stride(0), **variant.meta
        )
    jagged_mean_join[(y.shape[0], wide)](offsets, y, parts, columns, **joined(block, height).meta)


def checked(name: str, values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """values with contiguous rows. Raises TypeError and ValueError for what jagged kernels do not take."""
    if values.dtype not in DTYPES or offsets.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} takes f32, f16 or bf16 and i64 or i32, not {values.dtype} and {offsets.dtype}")
    if values.dim() != 2 or offsets.dim() != 1 or not offsets.numel():
        raise ValueError(f"values are [rows, columns], offsets [segments + 1], not {values.shape} and {offsets.shape}")
    return values if values.stride(1) == 1 else values.contiguous()


def jagged_mean(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Means [S, columns] of values [rows, columns], f32, f16 or bf16; segment s has rows offsets[s] to offsets[s + 1].

    offsets: [S + 1] in i64 or i32, sorted, from 0 to rows; not looked at before the launch. An empty segment has NaN.
    Summed in f32, in the same order in every run. Raises TypeError for other dtypes, ValueError for other shapes.
    """
    values, offsets = checked("jagged_mean", values, offsets), offsets.contiguous()
    y = torch.empty((offsets.shape[0] - 1, values.shape[1]), dtype=values.dtype, device=values.device)
    if y.numel():
        key = (*values.shape, y.shape[0], values.dtype, offsets.dtype, values.stride(0))
        variant = tuner.pick(key, lambda: space(*values.shape), launch, values, offsets, y)
        launch(variant, values, offsets, y)
    return y


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor]:
    """Arguments to try it on. longest: share of the rows that one segment in the middle has."""
    values = make.normal((c["rows"], c["columns"]), c.torch_dtype)
    if not c.get("longest"):
        return values, make.offsets(c["segments"], c["rows"])
    some = make.offsets(c["segments"] - 1, c["rows"] - int(c["rows"] * c["longest"]))
    half = c["segments"] // 2
    return values, torch.cat((some[:half], some[half - 1 :] + int(c["rows"] * c["longest"])))


SIZES = ((0, 1, 4), (1, 1, 1), (50, 1, 7), (70, 12, 33), (3, 9, 40), (200, 5, 64))
CHECKS = (
    *(case(d, rows=r, segments=s, columns=n) for d in ("f32", "f16", "bf16") for r, s, n in SIZES),
    case("f32", rows=300, segments=6, columns=20, longest=0.9),
    case("f32", rows=40, segments=2, columns=300),
    case("bf16", rows=160, segments=2, columns=48),
    case("f32", rows=160, segments=2, columns=48),
)
CASES = (
    case("bf16", rows=1 << 20, segments=4096, columns=256),
    case("f32", rows=131072, segments=512, columns=128, longest=0.5),
)
SIGNATURE = {
    "v_ptr": "*fp32", "offsets_ptr": "*i64", "y_ptr": "*fp32", "parts_ptr": "*fp32", "rows": "i32", "segments": "i32",
    "columns": "i32", "stride": "i32",
}  # fmt: skip
JOIN = {"offsets_ptr": "*i64", "y_ptr": "*fp32", "parts_ptr": "*fp32", "columns": "i32"}
OPERATIONS = (
    Operation(
        name="jagged_mean", run=jagged_mean, reference=reference, inputs=inputs,
        cost=lambda c: Cost(bytes=(c["rows"] + c["segments"]) * c["columns"] * c.itemsize + 8 * c["segments"]),
        checks=CHECKS, cases=(case("f32", region="jagged_mean", rows=131072, segments=512, columns=128), *CASES),
        builds=(
            Build(space(131072, 128)[0], SIGNATURE, divisible=("rows", "columns", "stride")),
            Build(joined(128, 64), JOIN, divisible=("columns",)),
        ),
        forms=("plain", "strided", "misaligned", "special"),
    ),
)  # fmt: skip
