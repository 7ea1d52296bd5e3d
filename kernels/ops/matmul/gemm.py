"""What kernels around a matrix product share: tile order, the product of one tile, and when TMA can be used.

Operands are A [M, K] and B [K, N] in any strides. Pointers take all of them; TMA (tensor memory accelerator: a copy
engine from sm_90 on) takes 16-bit matrices with one unit stride, the other a multiple of 16 bytes, on a base that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.spec import Build
from kernels.tuning import Variant

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
PRECISIONS = ("ieee", "tf32", "tf32x3")
"""How products of f32 are taken: exactly; of 10-bit mantissas; of three products of those. Others are exact."""


@triton.jit
def tile_at(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and column of a tile: GROUP_M rows of tiles are walked down before the next column, to reuse B in L2.

    GROUP_M 1 is the plain order, row of tiles by row of tiles.
    """
    across = tl.cdiv(N, BN)
    first = tile // (GROUP_M * across) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BM) - first, GROUP_M)
    within = tile % (GROUP_M * across)
    return (first + within % height) * BM, within // height * BN


@triton.jit
def product(
    a, b, row, col, M, N, K, a_row, a_col, b_row, b_col, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    TMA: tl.constexpr, A_T: tl.constexpr, B_T: tl.constexpr, EVEN_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A[row : row + BM] @ B[:, col : col + BN] in f32. What lies outside of [M, N] is finite or not, and never stored.

    TMA: a and b are descriptors, of the transposed matrix where A_T or B_T; otherwise pointers.
    """
    acc = tl.zeros((BM, BN), tl.float32)
    if TMA:
        for k in range(0, K, BK):
            if A_T:
                x = a.load([k, row]).T
            else:
                x = a.load([row, k])
            if B_T:
                y = b.load([col, k]).T
            else:
                y = b.load([k, col])
            acc = tl.dot(x, y, acc)
    else:
        # Rows and columns outside wrap around: loads need no mask for them.
        rows = ((row + tl.arange(0, BM)) % M).to(tl.int64)
        cols = ((col + tl.arange(0, BN)) % N).to(tl.int64)
        ks = tl.arange(0, BK)
        at_a = a + rows[:, None] * a_row + ks[None, :].to(tl.int64) * a_col
        at_b = b + ks[:, None].to(tl.int64) * b_row + cols[None, :] * b_col
        for k in range(0, K, BK):
            if EVEN_K:
                x = tl.load(at_a)
                y = tl.load(at_b)
            else:
                x = tl.load(at_a, mask=ks[None, :] < K - k, other=0.0)
                y = tl.load(at_b, mask=ks[:, None] < K - k, other=0.0)
            acc = tl.dot(x, y, acc, input_precision=PRECISION)
            at_a += BK * tl.cast(a_col, tl.int64)
            at_b += BK * tl.cast(b_row, tl.int64)
    return acc


@triton.jit
def columns(x, BM: tl.constexpr, BN: tl.constexpr, PIECES: tl.constexpr):
    """x [BM, BN] cut into 2 or 4 pieces of BN / PIECES columns, from left to right."""
    left, right = tl.permute(tl.reshape(x, (BM, 2, BN // 2)), (0, 2, 1)).split()
    if PIECES == 4:
        first, second = tl.permute(tl.reshape(left, (BM, 2, BN // 4)), (0, 2, 1)).split()
        third, fourth = tl.permute(tl.reshape(right, (BM, 2, BN // 4)), (0, 2, 1)).split()
        pieces = (first, second, third, fourth)
    else:
        pieces = (left, right)
    return pieces


@cache
def has_tma(device: torch.device) -> bool:
    """Whether this device copies by TMA; the interpreter does as if."""
    if knobs.runtime.interpret:
        return True
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) >= (9, 0)


def transposed(x: torch.Tensor) -> bool:
    """Whether columns, not rows, are contiguous."""
    return x.stride(1) != 1 and x.stride(0) == 1


def tma_takes(*matrices: torch.Tensor, itemsize: int = 2) -> bool:
    """Whether all of them can be described to TMA: matrices of `itemsize` bytes an element."""
    return all(
        x.element_size() == itemsize
        and x.numel() > 0
        and min(x.stride()) == 1
        and x.stride(0 if x.stride(1) == 1 else 1) * itemsize % 16 == 0
        and x.data_ptr() % 16 == 0
        and has_tma(x.device)
        for x in matrices
    )


def descriptor(x: torch.Tensor, block: Sequence[int]) -> TensorDescriptor:
    """Of x, or of its transpose where columns are contiguous; block: rows and columns of x at a time."""
    if transposed(x):
        return TensorDescriptor(x.T, list(x.T.shape), list(x.T.stride()), [block[1], block[0]])
    return TensorDescriptor(x, list(x.shape), list(x.stride()), list(block))


def shared_bytes(bm: int, bn: int, bk: int, stages: int, itemsize: int, kept: int = 0) -> int:
    """Shared memory of a pipelined product: `stages` pairs of tiles, and `kept` bytes more."""
    return stages * (bm + bn) * bk * itemsize + kept


def checked(
    a: torch.Tensor, b: torch.Tensor, precision: str, what: str, precisions: Sequence[str] = PRECISIONS
) -> tuple[int, int, int]:
    """M, N, K of A @ B. Raises TypeError, ValueError for what `what` does not take."""
    if a.dtype != b.dtype or a.dtype not in DTYPES:
        raise TypeError(f"{what} takes two of f32, f16 or bf16 alike, not {a.dtype} and {b.dtype}")
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"{what} takes [M, K] and [K, N], not {[*a.shape]} and {[*b.shape]}")
    if a.device != b.device:
        raise ValueError(f"{what} takes matrices of one device, not {a.device} and {b.device}")
    if precision not in precisions:
        raise ValueError(f"precision is one of {', '.join(precisions)}, not {precision!r}")
    return a.shape[0], b.shape[1], a.shape[1]


SHARED_KIB = {"sm_80": 163, "sm_90": 227, "sm_100": 227, "sm_120": 99, "gfx942": 64}
"""Shared memory of a program."""


def build_of(
    variant: Variant, pointers: Sequence[str] = ("a", "b"), tiles: Mapping[str, tuple[int, int]] | None = None,
    beside: Mapping[str, str] | None = None, integers: Sequence[str] = (), b_transposed: bool = False,
) -> Build:  # fmt: skip
    """A variant as it is compiled offline: bf16, A [M, K] with contiguous rows, sizes multiples of 16.

    pointers: A, B and what else TMA may describe; tiles: the blocks of the latter. beside: other arguments and their
    types. integers: names of the sizes and strides, without those of A and B. b_transposed: of B the columns are
    contiguous, not the rows; a variant with TMA says so itself.
    """
    bm, bn, bk, stages = variant["BM"], variant["BN"], variant["BK"], variant.stages or 1
    described = bool(dict(variant.constants).get("TMA"))
    across = variant["B_T"] if described else b_transposed
    blocks = {"a": (bm, bk), "b": (bn, bk) if across else (bk, bn), **(tiles or {})}
    far = ("a_row", "b_col" if across else "b_row")
    near = ("a_col", "b_row" if across else "b_col")
    signature = {
        **{p: f"tensordesc<bf16[{blocks[p][0]},{blocks[p][1]}]>" if described else "*bf16" for p in pointers},
        **(beside or {}), **dict.fromkeys(("M", "N", "K", *far, *(near if described else ()), *integers), "i32"),
    }  # fmt: skip
    ones = () if described else tuple((n, 1) for n in near)
    # AMD's compiler keeps one stage in registers.
    held = {t: shared_bytes(bm, bn, bk, max(1, stages - (t == "gfx942")), 2) for t in SHARED_KIB}
    held = {t: max(n, variant.shared_bytes if t != "gfx942" else 0) for t, n in held.items()}
    return Build(
        replace(variant, constants=variant.constants + ones), signature,
        ("M", "N", "K", *far, *integers), refused(described, held),
    )  # fmt: skip


def refused(described: bool, held: Mapping[str, int]) -> dict[str, str]:
    """Target -> why a variant is not compiled for it. described: by TMA. held: bytes of shared memory there."""
    without = {t: "has no TMA" for t in ("sm_80", "gfx942") if described}
    large = {t: f"its tiles are larger than {SHARED_KIB[t]} KiB of shared memory" for t, n in held.items()
             if n > SHARED_KIB[t] * 1024}  # fmt: skip
    return large | without


def strips(
    kernel: Any, a: torch.Tensor, b: torch.Tensor, tma: bool, precision: str, others: tuple[tuple[str, Any], ...]
) -> list[Variant]:
    """Variants of a kernel whose programs walk over STRIP tiles of one row of tiles and keep something for each row.

    It takes the constants BM, BN, BK, STRIP, FLATTEN, TMA, A_T, B_T, EVEN_K, WHOLE_N, PRECISION, and `others`.
    """
    (m, k), n, size = a.shape, b.shape[1], a.element_size()

    def tile(
        bm: int, bn: int, bk: int, warps: int, stages: int, strip: int, described: bool = False, flat: bool = True
    ) -> Variant:
        bm, bn = min(bm, max(16, triton.next_power_of_2(m))), min(bn, max(16, triton.next_power_of_2(n)))
        constants: tuple[tuple[str, Any], ...] = (
            ("BM", bm), ("BN", bn), ("BK", bk), ("STRIP", strip), ("FLATTEN", flat), ("TMA", described),
            ("A_T", described and transposed(a)), ("B_T", described and transposed(b)), ("EVEN_K", k % bk == 0),
            ("WHOLE_N", n % bn == 0), ("PRECISION", precision), *others,
        )  # fmt: skip
        names = ("BM", "BN", "BK", "STRIP", "FLATTEN", "TMA")
        shared = shared_bytes(bm, bn, bk, stages, size)
        return Variant(kernel, constants, warps, stages, names, shared, bm * bn // (32 * warps) + 64)

    if size == 4:
        wide = [tile(128, 128, 16, 8, 3, 8, flat=False), tile(128, 128, 32, 8, 2, 8, flat=False)]
        return [tile(64, 64, 32, 4, 3, 8, flat=False), tile(128, 64, 32, 4, 3, 8, flat=False), *wide]
    rows = [tile(128, 128, 64, 8, 3, 8), tile(128, 128, 32, 4, 4, 8, flat=False)]
    # Few rows of tiles: shorter strips, or most multiprocessors would have none.
    if m * n < 132 * 8 * 128 * 256:
        return [tile(128, 128, 64, 8, 3, 1), tile(64, 128, 64, 4, 4, 2), tile(64, 64, 64, 4, 4, 4), *rows]
    if not tma:
        return [tile(128, 256, 64, 8, 3, 8), *rows, tile(128, 256, 64, 8, 3, 8, flat=False)]
    return [
        tile(128, 256, 64, 8, 4, 8, True), tile(128, 256, 64, 8, 4, 4, True), tile(128, 128, 64, 4, 3, 8, True, False),
        tile(256, 128, 64, 8, 4, 8, True), tile(128, 256, 64, 8, 4, 8, True, False), tile(128, 256, 64, 8, 3, 8, True),
        *rows,
    ]  # fmt: skip
