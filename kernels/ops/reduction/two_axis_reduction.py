"""Sums over both axes of one matrix, in one walk: x.sum(0) and x.sum(1), in f32.

Traffic: x read once, rows + columns f32 written: (rows * columns * itemsize + 4 (rows + columns)) bytes. Two sums apart
read x twice. A program walks down a strip of columns, whose sums stay in registers; of every row it leaves the sum over
its strip. A second kernel adds up what the programs left, in a fixed order: the same bits in every run, no atomics.
"""

import torch
import triton
import triton.language as tl

from kernels.ops.shared.rows import DTYPES, rows_of
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

SHORTEST = 128
"""Fewest rows that a program walks down, where there are more: the columns' partial sums are 1/128 of x at most."""
PROGRAMS = (2112, 8448)
"""Programs aimed at: 16 or 64 for each of 132 multiprocessors. More leave more partial sums, fewer a ragged end."""

tuner = Tuner("two_axis_reduction")


def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums over rows [N] and over columns [M]."""
    return wide(x).sum(0), wide(x).sum(1)


@triton.jit
def two_axis_walk(
    x_ptr, by_row_ptr, by_column_ptr, M, N, x_stride, WALK: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    AHEAD: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """A strip of BLOCK columns, WALK rows down. by_row [strips, M], by_column [walks, N].

    AHEAD: tiles loaded ahead through shared memory, 0 for none. WHOLE: no element is outside.
    """
    strip = tl.program_id(0)
    walk = tl.program_id(1)
    col = strip * BLOCK + tl.arange(0, BLOCK)[None, :]
    first = walk.to(tl.int64) * WALK
    x_ptr += first * x_stride
    by_row_ptr += strip.to(tl.int64) * M + first
    left = M - first
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in tl.range(0, WALK, ROWS, num_stages=AHEAD):
        row = start + tl.arange(0, ROWS)
        at = x_ptr + row[:, None].to(tl.int64) * x_stride + col
        if WHOLE:
            x = tl.load(at, eviction_policy="evict_first").to(tl.float32)
            tl.store(by_row_ptr + row, tl.sum(x, 1))
        else:
            x = tl.load(at, mask=(row[:, None] < left) & (col < N), other=0.0, eviction_policy="evict_first")
            x = x.to(tl.float32)
            tl.store(by_row_ptr + row, tl.sum(x, 1), mask=row < left)
        total += x
    place = strip * BLOCK + tl.arange(0, BLOCK)
    tl.store(by_column_ptr + walk.to(tl.int64) * N + place, tl.sum(total, 0), mask=place < N)


@triton.jit
def add_partials(
    a_ptr, b_ptr, into_a_ptr, into_b_ptr, a_parts, b_parts, A, B, BLOCK: tl.constexpr, PARTS: tl.constexpr
):
    """Sums over the first axis of a [a_parts, A] and of b [b_parts, B], BLOCK columns of either a program."""
    program = tl.program_id(0)
    blocks = tl.cdiv(A, BLOCK)
    if program < blocks:
        ptr, into_ptr, parts, n, block = a_ptr, into_a_ptr, a_parts, A, program
    else:
        ptr, into_ptr, parts, n, block = b_ptr, into_b_ptr, b_parts, B, program - blocks
    col = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((PARTS, BLOCK), tl.float32)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)[:, None]
        total += tl.load(
            ptr + part.to(tl.int64) * n + col[None, :], mask=(part < parts) & (col[None, :] < n), other=0.0
        )
    tl.store(into_ptr + col, tl.sum(total, 0), mask=col < n)


def space(rows: int, columns: int, itemsize: int) -> list[Variant]:
    """32 to 64 elements a thread; a strip as wide as one warp's load leaves the rows' sums within a warp."""
    vector = 16 // itemsize
    variants: list[Variant] = []
    shapes = [(32, 32 * vector, 4), (16, 64 * vector, 4), (16, 128 * vector, 8)]
    plans = [(*shape, 0, aim) for shape in shapes for aim in PROGRAMS] + [
        (*shape, 3, PROGRAMS[0]) for shape in shapes[:2]
    ]
    for tall, broad, warps, ahead, aim in plans:
        block = max(16, min(broad, triton.next_power_of_2(columns)))
        walk = max(SHORTEST, triton.next_power_of_2(triton.cdiv(rows * triton.cdiv(columns, block), aim)))
        walk = max(tall, min(walk, triton.next_power_of_2(rows)))
        constants = (
            ("WALK", walk), ("ROWS", tall), ("BLOCK", block), ("AHEAD", ahead),
            ("WHOLE", rows % walk == 0 and columns % block == 0),
        )  # fmt: skip
        shared = ahead * tall * block * itemsize
        variants.append(Variant(two_axis_walk, constants, warps, tuned=("WALK", "ROWS", "AHEAD"), shared_bytes=shared))
    return list(dict.fromkeys(variants))


def launch(variant: Variant, x: torch.Tensor, over_rows: torch.Tensor, over_columns: torch.Tensor) -> None:
    """Run one variant on x [M, N] with contiguous rows into f32 [N] and [M]."""
    rows, columns = x.shape
    strips, walks = triton.cdiv(columns, variant["BLOCK"]), triton.cdiv(rows, variant["WALK"])
    partial = torch.empty(
        (strips > 1) * strips * rows + (walks > 1) * walks * columns, dtype=torch.float32, device=x.device
    )
    by_row = partial[: strips * rows] if strips > 1 else over_columns
    by_column = partial[(strips > 1) * strips * rows :] if walks > 1 else over_rows
    two_axis_walk[(strips, walks)](x, by_row, by_column, rows, columns, x.stride(0), **variant.meta)
    if partial.numel():
        # What is complete already is left out: no columns of it.
        m, n = (strips > 1) * rows, (walks > 1) * columns
        grid = (triton.cdiv(m, 128) + triton.cdiv(n, 128),)
        add_partials[grid](by_row, by_column, over_columns, over_rows, strips, walks, m, n, **ADD.meta)


ADD = Variant(add_partials, (("BLOCK", 128), ("PARTS", 16)), 4)


def two_axis_reduction(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x.sum(0) [N] and x.sum(1) [M], both f32, of x [M, N] in f32, f16 or bf16; copied where rows are not contiguous.

    Raises TypeError for other dtypes, ValueError for other than two axes.
    """
    if x.dtype not in DTYPES:
        raise TypeError(f"two_axis_reduction takes f32, f16 or bf16, not {x.dtype}")
    if x.dim() != 2:
        raise ValueError(f"two_axis_reduction takes a matrix, not {[*x.shape]}")
    rows, columns = x.shape
    over_rows = torch.empty(columns, dtype=torch.float32, device=x.device)
    over_columns = torch.empty(rows, dtype=torch.float32, device=x.device)
    if x.numel() == 0:
        return over_rows.zero_(), over_columns.zero_()
    x = rows_of(x)
    key = (rows, columns, x.dtype, x.stride(0), x.data_ptr() % 16 == 0)
    variant = tuner.pick(key, lambda: space(rows, columns, x.element_size()), launch, x, over_rows, over_columns)
    launch(variant, x, over_rows, over_columns)
    return over_rows, over_columns


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor]:
    """Arguments to try it on: of mean 1, since a sum near 0 has no relative error to speak of."""
    return (make.normal((c["rows"], c["columns"]), c.torch_dtype, mean=1.0),)


def _cost(c: Case) -> Cost:
    return Cost(bytes=c["rows"] * c["columns"] * c.itemsize + 4 * (c["rows"] + c["columns"]))


SIGNATURE = {
    "x_ptr": "*fp32", "by_row_ptr": "*fp32", "by_column_ptr": "*fp32", "M": "i32", "N": "i32", "x_stride": "i32"
}  # fmt: skip
ADD_SIGNATURE = {
    "a_ptr": "*fp32", "b_ptr": "*fp32", "into_a_ptr": "*fp32", "into_b_ptr": "*fp32",
    "a_parts": "i32", "b_parts": "i32", "A": "i32", "B": "i32",
}  # fmt: skip
OPERATIONS = (
    Operation(
        name="two_axis_reduction", run=two_axis_reduction, reference=reference, inputs=inputs, cost=_cost,
        beyond=case("bf16", rows=131_200, columns=16384),
        checks=(
            *(case(d, rows=m, columns=n) for d in ("f32", "f16", "bf16")
              for m, n in ((0, 5), (5, 0), (1, 1), (1, 3000), (1500, 1), (33, 777), (1040, 300))),
            case("bf16", rows=64, columns=512),
            case("bf16", rows=70, columns=530),
        ),
        cases=(
            case("f32", peer="two_axis_reduce", rows=32768, columns=2048),
            case("bf16", region="two_axis_reduction", rows=16384, columns=16384),
            case("bf16", rows=8192, columns=4096),
        ),
        builds=(
            *(Build(v, SIGNATURE, divisible=("M", "N", "x_stride")) for v in space(32768, 2048, 4)[::4]),
            Build(ADD, ADD_SIGNATURE, divisible=("A", "B")),
        ),
        forms=("plain", "strided", "misaligned", "special"),
    ),
)  # fmt: skip
