"""Product of f32 on tensor cores with f32's accuracy: every number as a sum of three of bf16, six products of those.

A number of f32 has 24 bits of mantissa and one of bf16 has 8, with the same exponents: x = x0 + x1 + x2, each part what
rounding to bf16 leaves of the one before. Of the nine products of parts the three smallest are left out, 2^-24 of
|a b| together at most, as much as rounding a product to f32 may cost ("bf16x6" of Intel's oneMKL and of `tl.dot`).
Parts are made once, 6 bytes of workspace an element of A and B, so that a tile of the product reads bf16 through TMA,
as a product of bf16 over 6 K does; `tl.dot` with this precision makes them again in every tile that reads an operand.

Tensor cores round what they have added towards zero at every 16 steps of K, which over K of thousands makes more of an
error than FMA, whose rounding goes both ways. So CHUNK steps of K are summed, the small products first, and each sum
is added in f32. Infinities times a part of the other sign are NaN: where a tile has NaN, the product of the largest
parts tells what f32 has (but of infinity by a number that rounds to no part, below 2^-134). Numbers below 2^-110 keep
fewer bits, since their third part is below bf16's range.

Traffic: f32 read once, parts written once and read six times by tile; 12 M N K operations of the matrix units.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.ops.matmul.gemm import SHARED_KIB, has_tma, refused, shared_bytes, tile_at, transposed
from kernels.spec import Build
from kernels.tuning import Variant

PARTS = 3
LARGEST_BF16 = tl.constexpr(3.3895313892515355e38)
FIRST_PARTS: tl.constexpr = tl.constexpr(0b00_00_01_00_01_10)
SECOND_PARTS: tl.constexpr = tl.constexpr(0b00_01_00_10_01_00)
"""Of the six products, the smallest first, two bits each from the lowest on: the part of A, the part of B."""
MOST_REGISTERS = 255
"""Of a thread: of both sums of a tile of 128 x 256 more than fit, and what is kept in memory between two chunks costs
less than a smaller tile's loads (1,240 us against 1,328, docs/kernels.md)."""
FEWEST_FLOPS = 2 * 512**3
"""Below, parts cost more than they bring."""


@triton.jit
def bf16_parts(
    x, parts, rows, columns, x_row, x_column, pitch, row_step, part_step, BR: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """x [rows, columns] of f32 -> three matrices of bf16 [rows, pitch], zeros behind the columns.

    From one row to the next are row_step elements, from one matrix to the next part_step.
    """
    across = tl.cdiv(pitch, BC)
    row = (tl.program_id(0) // across * BR + tl.arange(0, BR)).to(tl.int64)[:, None]
    column = (tl.program_id(0) % across * BC + tl.arange(0, BC)).to(tl.int64)[None, :]
    inside = (row < rows) & (column < columns)
    rest = tl.load(x + row * x_row + column * x_column, mask=inside, other=0.0)
    at = parts + row * row_step + column
    far = tl.cast(part_step, tl.int64)  # twice that is more than 2^31 from 2^30 elements on
    finite = tl.abs(rest) < float("inf")
    for part in tl.static_range(3):
        # Rounding must not make an infinity of a number that is none.
        near = tl.where(finite, tl.minimum(tl.maximum(rest, -LARGEST_BF16), LARGEST_BF16), rest).to(tl.bfloat16)
        tl.store(at + part * far, near.to(parts.dtype.element_ty), mask=(row < rows) & (column < pitch))
        rest = tl.where(finite, rest - near.to(tl.float32), 0.0)


@triton.jit
def _tile(x, first, k, part, size, pitch, K_ROWS: tl.constexpr):
    """Part `part` of an operand's tile, K along the rows of what TMA reads where K_ROWS."""
    if K_ROWS:
        tile = x.load([k, part * pitch + first])
    else:
        tile = x.load([part * size + first, k])
    return tile


@triton.jit
def parts_product(
    a, b, c, M, N, K, a_pitch, b_pitch, c_row, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP_M: tl.constexpr, CHUNK: tl.constexpr, A_K_ROWS: tl.constexpr, B_K_ROWS: tl.constexpr,
):  # fmt: skip
    """A tile BM x BN of C [M, N] f32. a, b: descriptors of the parts, one below another, or in one row where K_ROWS."""
    row, col = tile_at(tl.program_id(0), M, N, BM, BN, GROUP_M)
    total = tl.zeros((BM, BN), tl.float32)
    for begin in range(0, K, CHUNK):
        steps = tl.cdiv(tl.minimum(K - begin, CHUNK), BK)
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(0, steps * 6):
            which = 2 * (step // steps)
            k = begin + step % steps * BK
            x = _tile(a, row, k, (FIRST_PARTS >> which) & 3, M, a_pitch, A_K_ROWS)
            y = _tile(b, col, k, (SECOND_PARTS >> which) & 3, N, b_pitch, B_K_ROWS)
            acc = tl.dot(x if not A_K_ROWS else x.T, y if B_K_ROWS else y.T, acc)
        total += acc
    if tl.max((total != total).to(tl.int32)) > 0:
        whole = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            x = _tile(a, row, k, 0, M, a_pitch, A_K_ROWS)
            y = _tile(b, col, k, 0, N, b_pitch, B_K_ROWS)
            whole = tl.dot(x if not A_K_ROWS else x.T, y if B_K_ROWS else y.T, whole)
        total = tl.where(total != total, whole, total)
    rows = (row + tl.arange(0, BM)).to(tl.int64)[:, None]
    cols = (col + tl.arange(0, BN))[None, :]
    tl.store(c + rows * c_row + cols, total, mask=(rows < M) & (cols < N))


def _variant(
    bm: int, bn: int, bk: int, warps: int, stages: int, chunk: int, a_k_rows: bool = False, b_k_rows: bool = True
) -> Variant:
    constants: tuple[tuple[str, Any], ...] = (
        ("BM", bm), ("BN", bn), ("BK", bk), ("GROUP_M", 8), ("CHUNK", chunk), ("A_K_ROWS", a_k_rows),
        ("B_K_ROWS", b_k_rows),
    )  # fmt: skip
    return Variant(
        parts_product, constants, warps, stages, ("BM", "BN", "BK", "GROUP_M", "CHUNK"),
        shared_bytes(bm, bn, bk, stages, 2), min(2 * bm * bn // (32 * warps) + 40, MOST_REGISTERS),
    )  # fmt: skip


SHAPES = (
    (128, 256, 64, 8, 4, 256), (256, 128, 64, 8, 4, 256), (128, 128, 64, 8, 4, 256), (256, 128, 64, 16, 4, 256),
    (128, 256, 64, 16, 4, 256), (128, 128, 64, 8, 6, 256),
)  # fmt: skip
"""BM, BN, BK, warps, stages, CHUNK."""
SMALL = ((64, 64, 32, 4, 3, 64),)


def tiles(a: torch.Tensor, b: torch.Tensor) -> list[Variant]:
    """Variants for A [M, K] @ B [K, N] of f32, the likeliest first; none where parts cost more than they bring."""
    (m, k), n = a.shape, b.shape[1]
    interpreted = knobs.runtime.interpret
    if not has_tma(a.device) or not k or (not interpreted and 2 * m * n * k < FEWEST_FLOPS):
        return []
    # In the interpreter small tiles and chunks, so that small cases have several.
    shapes = SMALL if interpreted else SHAPES
    return [_variant(*shape, a_k_rows=transposed(a), b_k_rows=not transposed(b)) for shape in shapes]


def _parts(x: torch.Tensor, k_rows: bool, block: int, bk: int) -> tuple[TensorDescriptor, int]:
    """The descriptor of x's parts, and from one part to the next along what K does not run: columns where k_rows.

    x: [anything, K], or [K, anything] where k_rows.
    """
    rows, columns = x.shape
    pitch = triton.cdiv(columns, 8) * 8  # TMA wants rows of 16 bytes
    # The interpreter's products of bf16 are wrong: there, the same numbers in f32.
    dtype = torch.float32 if knobs.runtime.interpret else torch.bfloat16
    if k_rows:
        parts = torch.empty((rows, PARTS * pitch), dtype=dtype, device=x.device)
        step = pitch
    else:
        parts = torch.empty((PARTS * rows, pitch), dtype=dtype, device=x.device)
        step = rows * pitch
    grid = (triton.cdiv(rows, 8) * triton.cdiv(pitch, 512),)  # one axis: the second ends at 65,535
    bf16_parts[grid](x, parts, rows, columns, *x.stride(), pitch, parts.stride(0), step, BR=8, BC=512, num_warps=4)
    shape = [rows, PARTS * pitch] if k_rows else [PARTS * rows, columns]
    return TensorDescriptor(parts, shape, [parts.stride(0), 1], [bk, block] if k_rows else [block, bk]), pitch


def launch(variant: Variant, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """A [M, K] @ B [K, N] into C [M, N], whose rows are contiguous; all f32, A and B in any strides."""
    (m, k), n = a.shape, b.shape[1]
    bm, bn, bk = variant["BM"], variant["BN"], variant["BK"]
    a_k_rows, b_k_rows = variant["A_K_ROWS"], variant["B_K_ROWS"]
    first, a_pitch = _parts(a.T if a_k_rows else a, a_k_rows, bm, bk)
    second, b_pitch = _parts(b if b_k_rows else b.T, b_k_rows, bn, bk)
    grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)
    parts_product[grid](first, second, c, m, n, k, a_pitch, b_pitch, c.stride(0), **variant.meta)


def builds() -> list[Build]:
    """What is compiled offline: B's rows contiguous, and its columns."""
    made = []
    for shape, b_k_rows in ((SHAPES[0], True), (SHAPES[2], False)):
        variant = _variant(*shape, b_k_rows=b_k_rows)
        bm, bn, bk = variant["BM"], variant["BN"], variant["BK"]
        across = f"tensordesc<bf16[{bk},{bn}]>" if b_k_rows else f"tensordesc<bf16[{bn},{bk}]>"
        signature = {
            "a": f"tensordesc<bf16[{bm},{bk}]>", "b": across, "c": "*fp32",
            **dict.fromkeys(("M", "N", "K", "a_pitch", "b_pitch", "c_row"), "i32"),
        }  # fmt: skip
        held = dict.fromkeys(SHARED_KIB, variant.shared_bytes)
        made.append(Build(variant, signature, ("M", "N", "K", "a_pitch", "b_pitch", "c_row"), refused(True, held)))
    return made
