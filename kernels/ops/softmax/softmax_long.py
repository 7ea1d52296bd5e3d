"""Softmax over the last axis of few, very long rows: every row is shared by many programs.

Two ways. Split: one kernel writes the largest value and the sum of every part of a row, a second one joins them and
reads the row again, from L2 where it fits there. Together: every program holds its part in registers, and they wait
for each other once; launched cooperatively, so that all of them are resident or none starts.
Traffic: every element read once and written once; Split reads it twice, the second time mostly from L2.
Takes f32, f16, bf16; the result is like x or f32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.ops.shared.pairs import exp_of, rounded
from kernels.ops.shared.rows import DTYPES, rows_of
from kernels.ops.shared.tickets import tickets
from kernels.ops.softmax.softmax_spec import cost, inputs, reference
from kernels.spec import Build, Operation, case
from kernels.tuning import Tuner, Variant, multiprocessors

tuner = Tuner("softmax_long")


@triton.jit
def _joined(part_ptr, row, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    """Largest value and sum of a whole row from those of its parts, read past the L1 cache."""
    part = tl.arange(0, WIDTH)
    at = part_ptr + (row.to(tl.int64) * PARTS + part) * 2
    tops = tl.load(at, mask=part < PARTS, other=float("-inf"), cache_modifier=".cg")
    sums = tl.load(at + 1, mask=part < PARTS, other=0.0, cache_modifier=".cg")
    largest = tl.max(tops, 0)
    # A part of -inf alone has the sum 0, one with NaN has it in its sum.
    return largest, tl.sum(sums * exp_of(tops - largest), 0)


@triton.jit
def _part(x, part_ptr, row, index, PARTS: tl.constexpr):
    """Keep the largest value of x and the sum of its exponentials."""
    top = tl.max(x, 0)
    shift = tl.where(top == float("-inf"), 0.0, top)
    at = part_ptr + (row.to(tl.int64) * PARTS + index) * 2
    tl.store(at, top)
    tl.store(at + 1, tl.sum(exp_of(x - shift), 0))


@triton.jit
def softmax_parts(x_ptr, part_ptr, x_stride, N: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """Largest value and sum of BLOCK elements of one row."""
    row, index = tl.program_id(1), tl.program_id(0)
    at = index.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(
        x_ptr + row.to(tl.int64) * x_stride + at, mask=at < N, other=float("-inf"), eviction_policy="evict_last"
    )
    _part(x.to(tl.float32), part_ptr, row, index, PARTS)


@triton.jit
def softmax_join(
    x_ptr, y_ptr, part_ptr, x_stride, y_stride, N: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """The result for BLOCK elements of one row; last parts first, which L2 still has."""
    row, index = tl.program_id(1), tl.num_programs(0) - 1 - tl.program_id(0)
    at = index.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row.to(tl.int64) * x_stride + at, mask=at < N, other=0.0, eviction_policy="evict_first")
    largest, full = _joined(part_ptr, row, PARTS, WIDTH)
    y = rounded(exp_of(x.to(tl.float32) - largest) * (1.0 / full), y_ptr)
    tl.store(y_ptr + row.to(tl.int64) * y_stride + at, y, mask=at < N)


@triton.jit
def softmax_together(
    x_ptr, y_ptr, part_ptr, ticket_ptr, x_stride, y_stride, N: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """BLOCK elements of one row, held while all PARTS programs of the row hand in their largest value and sum.

    ticket_ptr: one int64 a row, a multiple of PARTS before and after every launch, so that nothing need be cleared.
    """
    row, index = tl.program_id(1), tl.program_id(0)
    at = index.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(
        x_ptr + row.to(tl.int64) * x_stride + at, mask=at < N, other=float("-inf"), eviction_policy="evict_first"
    )
    x = x.to(tl.float32)
    _part(x, part_ptr, row, index, PARTS)
    tl.debug_barrier()  # the part is written before any thread of this program says so
    mine = tl.atomic_add(ticket_ptr + row, 1, sem="acq_rel", scope="gpu")
    wanted = (mine // PARTS + 1) * PARTS
    seen = mine + 1
    while seen < wanted:
        seen = tl.atomic_add(ticket_ptr + row, 0, sem="acquire", scope="gpu")
    tl.debug_barrier()
    largest, full = _joined(part_ptr, row, PARTS, WIDTH)
    y = rounded(exp_of(x - largest) * (1.0 / full), y_ptr)
    tl.store(y_ptr + row.to(tl.int64) * y_stride + at, y, mask=at < N)


def space(rows: int, columns: int, processors: int) -> list[Variant]:
    """Split in parts of 4096 to 16384; together where every program is resident by registers: at most 64 a thread."""
    variants = [
        _variant(softmax_join, columns, min(block, triton.next_power_of_2(columns)), warps)
        for block, warps in ((8192, 8), (4096, 8), (16384, 16))
        if triton.cdiv(columns, block) <= 8192
    ]
    # Registers hold two programs of 16 warps a multiprocessor, or one of 32.
    for block, warps, resident in ((32768, 32, 1), (16384, 16, 2), (16384, 32, 1), (8192, 8, 4)):
        if rows * triton.cdiv(columns, block) <= processors * resident:
            variants.append(_variant(softmax_together, columns, block, warps))
    return variants


def _variant(kernel: object, columns: int, block: int, warps: int) -> Variant:
    parts = triton.cdiv(columns, block)
    constants = (("N", columns), ("BLOCK", block), ("PARTS", parts), ("WIDTH", triton.next_power_of_2(parts)))
    options = (("launch_cooperative_grid", True),) if kernel is softmax_together else ()
    return Variant(kernel, constants, warps, tuned=("BLOCK",), options=options)


def launch(variant: Variant, x: torch.Tensor, y: torch.Tensor) -> None:
    """Run one variant on x [rows, N] into y of the same shape; rows contiguous, strides as they are."""
    rows, parts = x.shape[0], variant["PARTS"]
    kept = torch.empty(2 * rows * parts, dtype=torch.float32, device=x.device)
    meta = variant.meta
    if variant.kernel is softmax_together:
        ticket = tickets(x.device, parts, rows)
        softmax_together[(parts, rows)](x, y, kept, ticket, x.stride(0), y.stride(0), **meta)
        return
    first = {k: v for k, v in meta.items() if k != "WIDTH"}
    softmax_parts[(parts, rows)](x, kept, x.stride(0), **first)
    softmax_join[(parts, rows)](x, y, kept, x.stride(0), y.stride(0), **meta)


def softmax_into(x: torch.Tensor, y: torch.Tensor) -> None:
    """Softmax over the last axis of x [rows, N] into y of the same shape; not empty, rows contiguous, N < 2^27."""
    rows, columns = x.shape
    key = (rows, columns, x.dtype, y.dtype, x.stride(0))
    variant = tuner.pick(key, lambda: space(rows, columns, multiprocessors(x.device)), launch, x, y)
    launch(variant, x, y)


def softmax_long(x: torch.Tensor, widen: bool = False) -> torch.Tensor:
    """Softmax over the last axis of x [..., N] in f32, f16 or bf16; computed in f32, the result is contiguous.

    widen: the result is f32. Meant for fewer rows than there are multiprocessors: `softmax` comes here
    by itself. x is copied where its rows are not contiguous. Raises TypeError for other dtypes, ValueError for more
    than 65535 rows or rows of 2^27 elements.
    """
    if x.dtype not in DTYPES:
        raise TypeError(f"softmax_long takes f32, f16 or bf16, not {x.dtype}")
    y = torch.empty(x.shape, dtype=torch.float32 if widen else x.dtype, device=x.device)
    if x.numel() == 0:
        return y
    flat = rows_of(x)
    if flat.shape[0] > 65535 or flat.shape[1] >= 1 << 27:
        raise ValueError(f"softmax_long takes up to 65535 rows of less than 2^27 elements, not {[*flat.shape]}")
    softmax_into(flat, y.view(flat.shape))
    return y


_PARTS = {"x_ptr": "*bf16", "part_ptr": "*fp32", "x_stride": "i32"}
_JOIN = {"x_ptr": "*bf16", "y_ptr": "*fp32", "part_ptr": "*fp32", "x_stride": "i32", "y_stride": "i32"}
_TOGETHER = {"x_ptr": "*bf16", "y_ptr": "*fp32", "part_ptr": "*fp32", "ticket_ptr": "*i64", "x_stride": "i32",
             "y_stride": "i32"}  # fmt: skip
_STRIDES = ("x_stride", "y_stride")
_BLOCKS = (("N", 1 << 20), ("BLOCK", 8192), ("PARTS", 128))
OPERATIONS = (
    Operation(
        name="softmax_long", run=softmax_long, reference=reference, inputs=inputs, cost=cost,
        checks=(
            *(case(d, rows=r, columns=n) for d in ("f32", "f16", "bf16")
              for r, n in ((0, 5), (1, 1), (2, 9000), (1, 30001))),
            case("f16", rows=1, columns=8192), case("bf16", rows=2, columns=8193, widen=True),
            case("bf16", rows=3, columns=0), case("f32", rows=5, columns=10000),
        ),
        cases=(
            case("bf16", rows=4, columns=1 << 20, widen=True, region="softmax_rows_1M_few"),
            case("bf16", rows=1, columns=1 << 24), case("f32", rows=32, columns=1 << 18),
        ),
        forms=("plain", "strided", "misaligned", "special"),
        builds=(
            Build(Variant(softmax_parts, _BLOCKS, 8), _PARTS, divisible=("x_stride",)),
            Build(_variant(softmax_join, 1 << 20, 8192, 8), _JOIN, divisible=_STRIDES),
            Build(_variant(softmax_together, 1 << 20, 32768, 32), _TOGETHER, divisible=_STRIDES),
        ),
    ),
)  # fmt: skip
