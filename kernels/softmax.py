"""Softmax over the last axis.

Reference: torch.softmax(x, -1). Traffic: every element read once and written once, 2 * rows * columns * itemsize
bytes, while a row fits into one program's registers; rows beyond that are read twice, the second time mostly from L2.
Matches: `torch.softmax` and exp(x - max) / sum by hand, last axis, floating point, rows contiguous.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.device import exp_of, high_half, kept, low_half, pair_of
from kernels.rows import CHUNKS, DTYPES, HELD, HELD_PACKED, held_dtype, paired, rows_of
from kernels.tuning import Tuner, Variant

NAME = "triton:softmax"
KIND = "softmax"
CALL = "from kernels.softmax import softmax\ny = softmax({x})"

tuner = Tuner()


def reference(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last axis as torch has it."""
    return torch.softmax(x, -1)


def bytes_moved(rows: int, columns: int, itemsize: int) -> int:
    """Fewest bytes: read and written once."""
    return 2 * rows * columns * itemsize


@triton.jit
def softmax_rows(
    x_ptr,
    y_ptr,
    rows,
    x_stride,
    y_stride,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """ROWS rows a program, each held in registers. WHOLE: no element of the tile is outside."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (col < N)
    at = x_ptr + row * x_stride + col
    if WHOLE:
        x = tl.load(at).to(tl.float32)
    else:
        x = tl.load(at, mask=inside, other=float("-inf")).to(tl.float32)
    x = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
    y = x * (1.0 / tl.sum(x, axis=1, keep_dims=True))
    if WHOLE:
        tl.store(y_ptr + row * y_stride + col, y)
    else:
        tl.store(y_ptr + row * y_stride + col, y, mask=inside)


@triton.jit
def softmax_packed(
    x_ptr, y_ptr, x_stride, y_stride, zero, PAIRS: tl.constexpr, BLOCK: tl.constexpr, CHUNKS: tl.constexpr,
    DTYPE: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """One row a program, held as pairs of 16-bit floats in CHUNKS pieces; strides in pairs. PAIRS: pairs in a row."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    # a pair of -inf; not in the loop, where Triton 3.6 refuses a second constexpr of one name
    nothing: tl.constexpr = -8323200 if DTYPE == tl.bfloat16 else -67044352  # noqa: SIM300
    pieces = ()
    for i in tl.static_range(CHUNKS):
        if WHOLE:
            piece = tl.load(x_ptr + i * BLOCK + col)
        else:
            piece = tl.load(x_ptr + i * BLOCK + col, mask=i * BLOCK + col < PAIRS, other=nothing)
        pieces = pieces + (piece,)  # noqa: RUF005 - Triton's tuples know only this
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    for i in tl.static_range(CHUNKS):
        top = tl.maximum(top, tl.maximum(low_half(pieces[i], DTYPE), high_half(pieces[i], DTYPE)))
    largest = tl.max(top, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(CHUNKS):
        x = kept(pieces[i], largest, zero)
        total += exp_of(low_half(x, DTYPE) - largest) + exp_of(high_half(x, DTYPE) - largest)
    full = tl.sum(total, 0)
    scale = 1.0 / full
    for i in tl.static_range(CHUNKS):
        x = kept(pieces[i], full, zero)
        low = exp_of(low_half(x, DTYPE) - largest) * scale
        high = exp_of(high_half(x, DTYPE) - largest) * scale
        at = y_ptr + i * BLOCK + col
        if WHOLE:
            tl.store(at, pair_of(low, high, DTYPE))
        else:
            tl.store(at, pair_of(low, high, DTYPE), mask=i * BLOCK + col < PAIRS)


@triton.jit
def softmax_loop(x_ptr, y_ptr, x_stride, y_stride, N: tl.constexpr, BLOCK: tl.constexpr):
    """One row a program in two walks: largest and sum together (online softmax), then the result."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    col = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        inside = start + col < N
        at = x_ptr + start + col
        x = tl.load(at, mask=inside, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
        larger = tl.maximum(top, x)
        shift = tl.where(larger == float("-inf"), 0.0, larger)  # a lane that has seen nothing stays at 0
        total = total * tl.exp(top - shift) + tl.exp(x - shift)
        top = larger
    largest = tl.max(top, 0)
    # A lane of -inf alone adds 0 * exp(-inf); one that saw NaN has it in its sum, though not in its largest value.
    full = tl.sum(total * tl.exp(top - largest), 0)
    scale = 1.0 / full
    for start in range(0, N, BLOCK):
        inside = start + col < N
        x = tl.load(x_ptr + start + col, mask=inside, eviction_policy="evict_first").to(tl.float32)
        tl.store(y_ptr + start + col, tl.exp(x - largest) * scale, mask=inside)


def space(rows: int, columns: int, dtype: torch.dtype, packable: bool) -> list[Variant]:
    """Variants worth timing for rows of this length: 8 to 64 elements a thread, no tile wider than a row needs."""
    block = triton.next_power_of_2(max(1, columns))
    found: list[Variant] = []
    if block <= 2048:
        tiles = [(2048, 2), (2048, 4), (4096, 4), (8192, 8)]
        for elements, warps in tiles:
            count = max(1, min(elements // block, triton.next_power_of_2(rows)))
            found.append(_rows(columns, block, count, rows, warps))
    elif block <= HELD:
        for count in (1, 2) if block <= 8192 else (1,):
            found += [
                _rows(columns, block, count, rows, w) for w in (4, 8, 16, 32) if 8 <= count * block // (32 * w) <= 64
            ]
    if packable and HELD // 2 <= block <= HELD_PACKED:
        pairs = columns // 2
        chunk = block // 2 // CHUNKS
        whole = pairs == chunk * CHUNKS
        constants = (("PAIRS", pairs), ("BLOCK", chunk), ("CHUNKS", CHUNKS), ("DTYPE", DTYPES[dtype]), ("WHOLE", whole))
        found += [Variant(softmax_packed, constants, w) for w in ((16, 32) if block < HELD_PACKED else (32,))]
    if block > HELD or not found:
        for width, warps in ((2048, 8), (4096, 16), (8192, 32), (16384, 32)):
            found.append(Variant(softmax_loop, (("N", columns), ("BLOCK", min(width, block))), warps))
    return list(dict.fromkeys(found))


def _rows(columns: int, block: int, count: int, rows: int, warps: int) -> Variant:
    whole = columns == block and rows % count == 0
    return Variant(softmax_rows, (("N", columns), ("BLOCK", block), ("ROWS", count), ("WHOLE", whole)), warps)


def launch(variant: Variant, x: torch.Tensor, y: torch.Tensor) -> None:
    """Run one variant on x [rows, N] into y of the same shape; rows contiguous, strides as they are."""
    rows = x.shape[0]
    if variant.kernel is softmax_packed:
        a, b = x.view(torch.int32), y.view(torch.int32)
        softmax_packed[(rows,)](a, b, a.stride(0), b.stride(0), 0, **variant.meta)
    elif variant.kernel is softmax_loop:
        softmax_loop[(rows,)](x, y, x.stride(0), y.stride(0), **variant.meta)
    else:
        grid = (triton.cdiv(rows, dict(variant.constants)["ROWS"]),)
        softmax_rows[grid](x, y, rows, x.stride(0), y.stride(0), **variant.meta)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last axis of x [..., N] in f32, f16 or bf16; computed in f32, the result is contiguous.

    x is copied where its rows are not contiguous or its leading dimensions are not one stride. Raises TypeError for
    other dtypes.
    """
    if x.dtype not in DTYPES:
        raise TypeError(f"softmax takes f32, f16 or bf16, not {x.dtype}")
    y = torch.empty(x.shape, dtype=held_dtype(x.dtype), device=x.device)
    if x.numel() == 0:
        return y.to(x.dtype)
    flat, into = rows_of(x), rows_of(y)
    rows, columns = flat.shape
    packable = x.element_size() == 2 and y.dtype == x.dtype and paired(flat)
    key = (rows, columns, x.dtype, flat.stride(0), packable, x.device)
    variant = tuner.pick(key, lambda: space(rows, columns, x.dtype, packable), lambda v: launch(v, flat, into))
    launch(variant, flat, into)
    return y if y.dtype == x.dtype else y.to(x.dtype)
