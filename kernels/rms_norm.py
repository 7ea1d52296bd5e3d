"""RMSNorm over the last axis: x * rsqrt(mean(x²) + eps) * weight, forward.

Reference: torch.nn.functional.rms_norm. Traffic: x read once, y written once, 2 * rows * columns * itemsize bytes,
and the weight once, while a row fits into one program's registers; longer rows are read twice, the second time
mostly from L2. Matches: RMSNorm by hand or called, last axis, with or without weight, rows contiguous.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.device import high_half, kept, low_half, pair_of
from kernels.rows import CHUNKS, DTYPES, HELD, HELD_PACKED, held_dtype, paired, rows_of
from kernels.tuning import Tuner, Variant

NAME = "triton:rms_norm"
KIND = "rms_norm"
CALL = "from kernels.rms_norm import rms_norm\ny = rms_norm({x}, {weight}, {eps})"

tuner = Tuner()


def reference(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """RMSNorm over the last axis as torch has it."""
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)


def bytes_moved(rows: int, columns: int, itemsize: int) -> int:
    """Fewest bytes: x and weight read once, y written once."""
    return (2 * rows + 1) * columns * itemsize


@triton.jit
def rms_norm_rows(
    x_ptr, w_ptr, y_ptr, rows, x_stride, y_stride, eps, N: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    WEIGHT: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """ROWS rows a program, each held in registers. WHOLE: no element of the tile is outside."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (col < N)
    at = x_ptr + row * x_stride + col
    if WHOLE:
        x = tl.load(at).to(tl.float32)
    else:
        x = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / N + eps)
    if WEIGHT:
        if WHOLE:
            y *= tl.load(w_ptr + col, eviction_policy="evict_last").to(tl.float32)
        else:
            y *= tl.load(w_ptr + col, mask=col < N, eviction_policy="evict_last").to(tl.float32)
    if WHOLE:
        tl.store(y_ptr + row * y_stride + col, y)
    else:
        tl.store(y_ptr + row * y_stride + col, y, mask=inside)


@triton.jit
def rms_norm_packed(
    x_ptr, w_ptr, y_ptr, x_stride, y_stride, eps, zero, PAIRS: tl.constexpr, BLOCK: tl.constexpr, CHUNKS: tl.constexpr,
    DTYPE: tl.constexpr, WEIGHT: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """One row a program, held as pairs of 16-bit floats in CHUNKS pieces; strides in pairs. PAIRS: pairs in a row."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    pieces = ()
    for i in tl.static_range(CHUNKS):
        if WHOLE:
            piece = tl.load(x_ptr + i * BLOCK + col)
        else:
            piece = tl.load(x_ptr + i * BLOCK + col, mask=i * BLOCK + col < PAIRS, other=0)
        pieces = pieces + (piece,)  # noqa: RUF005 - Triton's tuples know only this
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(CHUNKS):
        low, high = low_half(pieces[i], DTYPE), high_half(pieces[i], DTYPE)
        total += low * low + high * high
    scale = tl.rsqrt(tl.sum(total, 0) / (2 * PAIRS) + eps)
    for i in tl.static_range(CHUNKS):
        at = i * BLOCK + col
        x = kept(pieces[i], scale, zero)
        low, high = low_half(x, DTYPE) * scale, high_half(x, DTYPE) * scale
        if WEIGHT:
            if WHOLE:
                w = tl.load(w_ptr + at, eviction_policy="evict_last")
            else:
                w = tl.load(w_ptr + at, mask=at < PAIRS, eviction_policy="evict_last")
            low, high = low * low_half(w, DTYPE), high * high_half(w, DTYPE)
        if WHOLE:
            tl.store(y_ptr + at, pair_of(low, high, DTYPE))
        else:
            tl.store(y_ptr + at, pair_of(low, high, DTYPE), mask=at < PAIRS)


@triton.jit
def rms_norm_loop(
    x_ptr, w_ptr, y_ptr, x_stride, y_stride, eps, N: tl.constexpr, BLOCK: tl.constexpr, WEIGHT: tl.constexpr
):
    """One row a program in two walks: sum of squares, then the result."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    col = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        inside = start + col < N
        x = tl.load(x_ptr + start + col, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        total += x * x
    scale = tl.rsqrt(tl.sum(total, 0) / N + eps)
    for start in range(0, N, BLOCK):
        inside = start + col < N
        y = tl.load(x_ptr + start + col, mask=inside, eviction_policy="evict_first").to(tl.float32) * scale
        if WEIGHT:
            y *= tl.load(w_ptr + start + col, mask=inside, eviction_policy="evict_last").to(tl.float32)
        tl.store(y_ptr + start + col, y, mask=inside)


def space(rows: int, columns: int, dtype: torch.dtype, packable: bool, weight: bool) -> list[Variant]:
    """Variants worth timing for rows of this length: 8 to 64 elements a thread, no tile wider than a row needs."""
    block = triton.next_power_of_2(max(1, columns))
    found: list[Variant] = []
    if block <= 2048:
        for elements, warps in ((2048, 2), (2048, 4), (4096, 4), (8192, 8)):
            count = max(1, min(elements // block, triton.next_power_of_2(rows)))
            found.append(_rows(columns, block, count, rows, warps, weight))
    elif block <= HELD:
        for count in (1, 2) if block <= 8192 else (1,):
            found += [
                _rows(columns, block, count, rows, w, weight)
                for w in (4, 8, 16, 32)
                if 8 <= count * block // (32 * w) <= 64
            ]
    if packable and HELD // 2 <= block <= HELD_PACKED:
        pairs, chunk = columns // 2, block // 2 // CHUNKS
        whole = pairs == chunk * CHUNKS
        packed = (("PAIRS", pairs), ("BLOCK", chunk), ("CHUNKS", CHUNKS), ("DTYPE", DTYPES[dtype]))
        constants = (*packed, ("WEIGHT", weight), ("WHOLE", whole))
        found += [Variant(rms_norm_packed, constants, w) for w in ((16, 32) if block < HELD_PACKED else (32,))]
    if block > HELD or not found:
        for width, warps in ((2048, 8), (4096, 16), (8192, 32), (16384, 32)):
            constants = (("N", columns), ("BLOCK", min(width, block)), ("WEIGHT", weight))
            found.append(Variant(rms_norm_loop, constants, warps))
    return list(dict.fromkeys(found))


def _rows(columns: int, block: int, count: int, rows: int, warps: int, weight: bool) -> Variant:
    whole = columns == block and rows % count == 0
    constants = (("N", columns), ("BLOCK", block), ("ROWS", count), ("WEIGHT", weight), ("WHOLE", whole))
    return Variant(rms_norm_rows, constants, warps)


def launch(variant: Variant, x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, eps: float) -> None:
    """Run one variant on x [rows, N] into y of the same shape; rows contiguous, strides as they are."""
    rows = x.shape[0]
    if variant.kernel is rms_norm_packed:
        a, b, c = (t.view(torch.int32) for t in (x, weight, y))
        rms_norm_packed[(rows,)](a, b, c, a.stride(0), c.stride(0), eps, 0, **variant.meta)
    elif variant.kernel is rms_norm_loop:
        rms_norm_loop[(rows,)](x, weight, y, x.stride(0), y.stride(0), eps, **variant.meta)
    else:
        grid = (triton.cdiv(rows, dict(variant.constants)["ROWS"]),)
        rms_norm_rows[grid](x, weight, y, rows, x.stride(0), y.stride(0), eps, **variant.meta)


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6) -> torch.Tensor:
    """RMSNorm over the last axis of x [..., N] in f32, f16 or bf16, weight [N] or None; computed in f32, result like x.

    x is copied where its rows are not contiguous or its leading dimensions are not one stride. Raises TypeError for
    other dtypes, ValueError for a weight of another size.
    """
    if x.dtype not in DTYPES:
        raise TypeError(f"rms_norm takes f32, f16 or bf16, not {x.dtype}")
    if weight is not None and weight.shape != x.shape[-1:]:
        raise ValueError(f"the weight has shape {tuple(weight.shape)}, a row {x.shape[-1]} elements")
    y = torch.empty(x.shape, dtype=held_dtype(x.dtype), device=x.device)
    if x.numel() == 0:
        return y.to(x.dtype)
    flat, into = rows_of(x), rows_of(y)
    w = flat if weight is None else weight.contiguous()
    rows, columns = flat.shape
    fits = weight is None or (w.dtype == x.dtype and w.storage_offset() % 2 == 0)
    packable = x.element_size() == 2 and y.dtype == x.dtype and paired(flat) and fits
    key = (rows, columns, x.dtype, flat.stride(0), packable, weight is None or w.dtype, x.device)
    variant = tuner.pick(
        key,
        lambda: space(rows, columns, x.dtype, packable, weight is not None),
        lambda v: launch(v, flat, w, into, eps),
    )
    launch(variant, flat, w, into, eps)
    return y if y.dtype == x.dtype else y.to(x.dtype)
