"""Running sum along the last axis.

Reference: torch.cumsum(x, -1). Traffic: read once, written once, 2 * rows * columns * itemsize bytes. Few long rows
are cut into pieces, each of which waits for the sums of those before it; or they are read twice, once for these sums.
Sums are taken in f32; each result is a sum of the order of log2(columns) roundings, not of columns (Triton's
interpreter adds one after the other). Takes f32, f16 and bf16.
"""

import torch
import triton
import triton.language as tl

from kernels.ops.shared.rows import DTYPES, held_dtype, rows_of
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant

HELD = 8192
"""Longest row that one program scans at once."""
FEW = 528
"""Fewer rows than this, 4 for each of 132 multiprocessors, are cut into pieces where they are long."""

MOST_PIECES = 2048
"""Of a row whose pieces read all sums before their own: these are then at most an eighth of what a piece reads."""

tuner = Tuner("cumsum")


def reference(x: torch.Tensor) -> torch.Tensor:
    """As torch has it."""
    return torch.cumsum(x, -1)


@triton.jit
def cumsum_rows(
    x_ptr, y_ptr, before_ptr, rows, x_stride, y_stride, N, PIECES: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """ROWS pieces of rows a program; before_ptr: running sums of the pieces [rows, PIECES], if more than one."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = (row % PIECES) * WIDTH + tl.arange(0, BLOCK)[None, :]
    line = row // PIECES
    if WHOLE:
        x = tl.load(x_ptr + line * x_stride + col).to(tl.float32)
    else:
        inside = (row < rows) & (tl.arange(0, BLOCK)[None, :] < WIDTH) & (col < N)
        x = tl.load(x_ptr + line * x_stride + col, mask=inside, other=0.0).to(tl.float32)
    y = tl.cumsum(x, 1)
    if PIECES > 1:
        y += tl.load(before_ptr + row - 1, mask=(row < rows) & (row % PIECES > 0), other=0.0)
    if WHOLE:
        tl.store(y_ptr + line * y_stride + col, y)
    else:
        tl.store(y_ptr + line * y_stride + col, y, mask=inside)


@triton.jit
def cumsum_loop(x_ptr, y_ptr, x_stride, y_stride, N, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """One row a program, BLOCK columns at a time. ROWS is 1."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    before = tl.full((), 0.0, tl.float32)
    for start in range(0, N, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + col, mask=col < N, other=0.0).to(tl.float32)
        tl.store(y_ptr + col, before + tl.cumsum(x, 0), mask=col < N)
        before += tl.sum(x, 0)


@triton.jit
def cumsum_waiting(
    x_ptr, y_ptr, words_ptr, rows, x_stride, y_stride, N, PIECES: tl.constexpr, WIDTH: tl.constexpr,
    SLOTS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """One piece of a row a program, which hands in its sum and waits for those of all pieces before it.

    words_ptr: rows * PIECES + 1 words of int32, all 0: sums as bits, 0 where there is none yet, and a counter. Pieces
    are taken in the order in which programs start, so that whatever one waits for is running or done. The sums are
    added in one order however they arrive: the same result every time. SLOTS: power of 2, PIECES or more.
    """
    ticket = tl.atomic_add(words_ptr + tl.cast(rows, tl.int64) * PIECES, 1, sem="relaxed")
    piece = ticket // rows
    row = (ticket % rows).to(tl.int64)
    col = piece * WIDTH + tl.arange(0, WIDTH)
    if WHOLE:
        x = tl.load(x_ptr + row * x_stride + col, eviction_policy="evict_first").to(tl.float32)
    else:
        x = tl.load(x_ptr + row * x_stride + col, mask=col < N, other=0.0, eviction_policy="evict_first")
        x = x.to(tl.float32)
    bits = tl.sum(x, 0).to(tl.int32, bitcast=True)
    at = words_ptr + row * PIECES
    tl.atomic_xchg(at + piece, tl.where(bits == 0, -2147483648, bits), sem="relaxed")  # 0 is handed in as -0.0
    y = tl.cumsum(x, 0)
    slot = tl.arange(0, SLOTS)
    words = tl.load(at + slot, mask=slot < piece, other=-2147483648, volatile=True)
    while tl.sum((words == 0).to(tl.int32), 0) > 0:
        words = tl.load(at + slot, mask=slot < piece, other=-2147483648, volatile=True)
    y += tl.sum(words.to(tl.float32, bitcast=True), 0)
    if WHOLE:
        tl.store(y_ptr + row * y_stride + col, y, eviction_policy="evict_first")
    else:
        tl.store(y_ptr + row * y_stride + col, y, mask=col < N, eviction_policy="evict_first")


@triton.jit
def piece_sums(x_ptr, s_ptr, x_stride, N, PIECES: tl.constexpr, WIDTH: tl.constexpr):
    """Sum of one piece of WIDTH columns a program: s [rows, PIECES]."""
    piece = tl.program_id(0).to(tl.int64)
    col = (piece % PIECES) * WIDTH + tl.arange(0, WIDTH)
    x = tl.load(x_ptr + (piece // PIECES) * x_stride + col, mask=col < N, other=0.0).to(tl.float32)
    tl.store(s_ptr + piece, tl.sum(x, 0))


def space(rows: int, columns: int) -> list[Variant]:
    """Rows held at once up to 8192 columns; beyond, in a loop, or in pieces where rows are too few to fill a GPU."""
    block = max(16, triton.next_power_of_2(columns))
    variants: list[Variant] = []
    if columns <= HELD:
        for elements, warps in ((2048, 1), (2048, 2), (2048, 4), (4096, 2), (4096, 4), (8192, 8)):
            count = max(1, min(elements // block, triton.next_power_of_2(rows)))
            if count * block <= 128 * 32 * warps:
                variants.append(_rows(1, columns, block, count, rows % count == 0 and block == columns, warps))
    else:
        if rows < FEW:
            for width, warps in ((8192, 8), (4096, 4), (8192, 16), (4096, 8), (16384, 16)):
                pieces = triton.cdiv(columns, width)
                if 1 < pieces <= MOST_PIECES:
                    variants.append(_waiting(pieces, width, columns % width == 0, warps))
            for width, warps in ((4096, 4), (8192, 8)):
                pieces = triton.cdiv(columns, width)
                variants.append(_rows(pieces, width, width, 1, columns % width == 0, warps))
        if rows >= FEW or columns <= 4 * HELD:
            for width, warps in ((2048, 4), (4096, 4), (4096, 8), (8192, 8)):
                variants.append(Variant(cumsum_loop, (("BLOCK", width), ("ROWS", 1)), warps))
    return list(dict.fromkeys(variants))


def _rows(pieces: int, width: int, block: int, count: int, whole: bool, warps: int) -> Variant:
    constants = (("PIECES", pieces), ("WIDTH", width), ("BLOCK", block), ("ROWS", count), ("WHOLE", whole))
    return Variant(cumsum_rows, constants, warps, tuned=("ROWS", "PIECES") if pieces == 1 else ("WIDTH",))


def _waiting(pieces: int, width: int, whole: bool, warps: int) -> Variant:
    slots = max(32, triton.next_power_of_2(pieces))
    constants = (("PIECES", pieces), ("WIDTH", width), ("SLOTS", slots), ("WHOLE", whole))
    return Variant(cumsum_waiting, constants, warps, tuned=("WIDTH",))


def launch(variant: Variant, x: torch.Tensor, y: torch.Tensor) -> None:
    """Run one variant on x [rows, N] into y of the same shape; rows contiguous, strides as they are."""
    rows, columns = x.shape
    if variant.kernel is cumsum_loop:
        cumsum_loop[(rows,)](x, y, x.stride(0), y.stride(0), columns, **variant.meta)
        return
    pieces, before = variant["PIECES"], y
    if variant.kernel is cumsum_waiting:
        words = torch.zeros(rows * pieces + 1, dtype=torch.int32, device=x.device)
        cumsum_waiting[(rows * pieces,)](x, y, words, rows, x.stride(0), y.stride(0), columns, **variant.meta)
        return
    if pieces > 1:
        sums = torch.empty((rows, pieces), dtype=torch.float32, device=x.device)
        piece_sums[(rows * pieces,)](x, sums, x.stride(0), columns, pieces, variant["WIDTH"], num_warps=8)
        before = cumsum(sums)
    grid = (triton.cdiv(rows * pieces, variant["ROWS"]),)
    cumsum_rows[grid](x, y, before, rows * pieces, x.stride(0), y.stride(0), columns, **variant.meta)


def cumsum(x: torch.Tensor) -> torch.Tensor:
    """Running sum along the last axis of x [..., N] in f32, f16 or bf16; summed in f32, the result is contiguous.

    Raises TypeError for other dtypes.
    """
    if x.dtype not in DTYPES:
        raise TypeError(f"cumsum takes f32, f16 or bf16, not {x.dtype}")
    if x.dim() == 0 or x.numel() == 0:
        return x.clone()
    y = torch.empty(x.shape, dtype=held_dtype(x.dtype), device=x.device)
    flat, into = rows_of(x), rows_of(y)
    rows, columns = flat.shape
    key = (rows, columns, x.dtype, flat.stride(0), flat.data_ptr() % 16 == 0)
    variant = tuner.pick(key, lambda: space(rows, columns), launch, flat, into)
    launch(variant, flat, into)
    return y if y.dtype == x.dtype else y.to(x.dtype)


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor]:
    """Arguments to try it on."""
    return (make.normal((c["rows"], c["columns"]), c.torch_dtype),)


ROWS_SIGNATURE = {
    "x_ptr": "*fp32", "y_ptr": "*fp32", "before_ptr": "*fp32", "rows": "i32", "x_stride": "i32", "y_stride": "i32",
    "N": "i32",
}  # fmt: skip
WAITING_SIGNATURE = {
    "x_ptr": "*fp32", "y_ptr": "*fp32", "words_ptr": "*i32", "rows": "i32", "x_stride": "i32", "y_stride": "i32",
    "N": "i32",
}  # fmt: skip
LOOP_SIGNATURE = {"x_ptr": "*bf16", "y_ptr": "*bf16", "x_stride": "i32", "y_stride": "i32", "N": "i32"}
SUMS_SIGNATURE = {"x_ptr": "*bf16", "s_ptr": "*fp32", "x_stride": "i32", "N": "i32"}
STRIDES = ("x_stride", "y_stride", "N")
OPERATIONS = (
    Operation(
        name="cumsum", run=cumsum, reference=reference, inputs=inputs,
        beyond=case("bf16", rows=1_050_000, columns=2048),
        cost=lambda c: Cost(bytes=2 * c["rows"] * c["columns"] * c.itemsize),
        checks=(
            *(case(d, rows=r, columns=n) for d in ("f32", "f16", "bf16")
              for r, n in ((0, 5), (3, 0), (1, 1), (33, 31), (5, 1000))),
            *(case(d, rows=r, columns=n) for d in ("f16", "bf16") for r, n in ((3, 2048), (2, 20_000))),
            case("bf16", rows=7, columns=600),
        ),
        cases=(
            case("f32", peer="cumsum_fp32", rows=32768, columns=2048),
            case("bf16", rows=16384, columns=4096),
            case("f32", rows=16, columns=4_194_304),
        ),
        builds=(
            Build(space(32768, 2048)[2], ROWS_SIGNATURE, divisible=STRIDES),
            *(Build(v, WAITING_SIGNATURE, divisible=STRIDES) for v in space(16, 1 << 22)[:2]),
            Build(space(8, 1 << 20)[5], ROWS_SIGNATURE, divisible=STRIDES),
            Build(space(4096, 65536)[1], LOOP_SIGNATURE, divisible=STRIDES),
            Build(Variant(piece_sums, (("PIECES", 128), ("WIDTH", 8192)), 8), SUMS_SIGNATURE, divisible=STRIDES[::2]),
        ),
        forms=("plain", "strided", "misaligned", "special"),
    ),
)  # fmt: skip
