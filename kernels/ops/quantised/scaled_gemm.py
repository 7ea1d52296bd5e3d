"""Products of one-byte numbers with scales: C = (A * scale_a) @ (B * scale_b), A [M, K], B [K, N], f8e4m3 or int8.

Scales, f32: one of all numbers or one a row of A, and one of all or one a column of B; or, f8 only, one for 1 x 128
numbers of A and one for 128 x 128 of B, as DeepGEMM has them. Traffic: (M K + K N) bytes read, 2 M N written, and the
scales. It takes no less than the larger of (M K + K N + 2 M N) / bandwidth and 2 M N K / the rate of one-byte products,
which is twice that of 16 bits: a few rows are bound by memory, some hundreds by the matrix units.

The matrix units of sm_90 add products of f8 with some 14 bits. So the sum is moved to f32 registers after every 128 of
K: a second tile of accumulators, M N K / 128 additions, and no tile larger than 128 x 128 for 8 warps. `fast` leaves
that out, as torch._scaled_mm's use_fast_accum does. Scales a block need that move anyway, and are a multiply-add in it.
int8 is summed exactly in int32.
A few rows by few columns have too few tiles for all multiprocessors: parts of K then, added by a second kernel in their
order. torch.compile calls _scaled_mm, and a product of int8 with what follows it.

In Triton's interpreter f8 is multiplied as f32 and `fast` changes nothing; what the matrix units do with 14 bits shows
on a GPU only (`tools/gpu/check_kernels.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.ops.matmul.gemm import (
    SHARED_KIB,
    columns,
    descriptor,
    refused,
    shared_bytes,
    tile_at,
    tma_takes,
    transposed,
)
from kernels.spec import DTYPES, Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant, multiprocessors

tuner = Tuner("scaled_gemm")
BLOCK = 128
"""Numbers of a row that share a scale, and of a column of B, where scales are a block's."""
RESULTS = ("bf16", "f16", "f32")
LONGEST_INT8 = 1 << 17
"""Products of K = 131,072 numbers of -128 are 2^31: from there on int32 may not hold the sum."""


def _spread(scale: torch.Tensor, x: torch.Tensor, high: int, wide: int) -> torch.Tensor:
    """Scales of blocks of high x wide numbers of x, one for each number."""
    rows, columns = x.shape
    blocks = scale.reshape(triton.cdiv(rows, high), triton.cdiv(columns, wide))
    return blocks.repeat_interleave(high, 0).repeat_interleave(wide, 1)[:rows, :columns]


def reference(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, dtype: str = "bf16",
    block: bool = False, turned: bool = False, fast: bool = False,
) -> torch.Tensor:  # fmt: skip
    """What is computed, in plain PyTorch: in float64 where the scales are, else in f32."""
    x, y = a.to(scale_a.dtype), b.to(scale_a.dtype)
    if block:
        x = x * _spread(scale_a, a, 1, BLOCK)
        y = y * _spread(scale_b, b, BLOCK, BLOCK)
    z = x @ (y.T if turned else y)
    z = z if block else z * scale_a.reshape(-1, 1) * scale_b.reshape(1, -1)
    return z if scale_a.dtype == torch.float64 else z.to(DTYPES[dtype])


@triton.jit
def scaled_product(
    a, b, scale_a, scale_b, row, col, first, last, M, N, a_row, a_col, b_row, b_col, sa_row, sa_col, sb_row, sb_col,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TMA: tl.constexpr, A_T: tl.constexpr, B_T: tl.constexpr,
    EVEN_K: tl.constexpr, INTEGER: tl.constexpr, BLOCKED: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """A[row : row + BM, first : last] @ B[first : last, col : col + BN]: f32, scaled already where BLOCKED, or i32."""
    total: tl.constexpr = tl.int32 if INTEGER else tl.float32
    acc = tl.zeros((BM, BN), total)
    # Rows and columns outside wrap around: loads need no mask for them.
    rows = ((row + tl.arange(0, BM)) % M).to(tl.int64)
    cols = ((col + tl.arange(0, BN)) % N).to(tl.int64)
    ks = first + tl.arange(0, BK)
    if not TMA:
        at_a = a + rows[:, None] * a_row + ks[None, :].to(tl.int64) * a_col
        at_b = b + ks[:, None].to(tl.int64) * b_row + cols[None, :] * b_col
    if BLOCKED:
        at_sa = scale_a + rows * sa_row + (first // 128) * sa_col
        # A tile is no wider than a block and begins where one does, or within: one scale for all of its columns.
        at_sb = scale_b + (col // 128).to(tl.int64) * sb_col + (first // 128) * sb_row
    for k in range(first, last, BK):
        if TMA:
            if A_T:
                x = a.load([k, row]).T
            else:
                x = a.load([row, k])
            if B_T:
                y = b.load([col, k]).T
            else:
                y = b.load([k, col])
        else:
            if EVEN_K:
                x = tl.load(at_a)
                y = tl.load(at_b)
            else:
                x = tl.load(at_a, mask=ks[None, :] < last - (k - first), other=0.0)
                y = tl.load(at_b, mask=ks[:, None] < last - (k - first), other=0.0)
            at_a += BK * tl.cast(a_col, tl.int64)
            at_b += BK * tl.cast(b_row, tl.int64)
        if BLOCKED:
            scale = tl.load(at_sa) * tl.load(at_sb)
            acc += tl.dot(x, y) * scale[:, None]
            at_sa += sa_col
            at_sb += sb_row
        elif INTEGER:
            acc = tl.dot(x, y, acc, out_dtype=tl.int32)
        elif FAST:
            acc = tl.dot(x, y, acc)
        else:
            acc = tl.dot(x, y, acc, max_num_imprecise_acc=128)
    return acc


@triton.jit
def stored_tile(c, y, row, col, M, N, c_row, BM: tl.constexpr, WIDTH: tl.constexpr, TMA: tl.constexpr):
    """y [BM, WIDTH] into C at (row, col)."""
    if TMA:
        c.store([row, col], y.to(c.dtype))
    else:
        rows = (row + tl.arange(0, BM)).to(tl.int64)[:, None]
        cols = (col + tl.arange(0, WIDTH))[None, :]
        tl.store(c + rows * c_row + cols, y.to(c.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def scaled_gemm_kernel(
    a, b, c, scale_a, scale_b, M, N, K, a_row, a_col, b_row, b_col, c_row, sa_row, sa_col, sb_row, sb_col,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, FLATTEN: tl.constexpr,
    TMA: tl.constexpr, A_T: tl.constexpr, B_T: tl.constexpr, EVEN_K: tl.constexpr, INTEGER: tl.constexpr,
    BLOCKED: tl.constexpr, FAST: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """Tiles BM x BN of C, each by one program. TMA: a, b, c are descriptors, c's block is half a tile wide.

    Scales that are no block's have a stride of 0 along rows or columns where there is one for all. Where SPLIT_K is not
    1, a part of K goes into c [SPLIT_K, M, N] of f32 or int32 as it is, for `join_scaled`.
    """
    first, last = 0, K
    if SPLIT_K > 1:
        share = tl.cdiv(tl.cdiv(K, BK), SPLIT_K) * BK
        first = tl.program_id(1) * share
        last = tl.minimum(first + share, K)
        c += tl.program_id(1).to(tl.int64) * M * N
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        row, col = tile_at(tile, M, N, BM, BN, GROUP_M)
        acc = scaled_product(
            a, b, scale_a, scale_b, row, col, first, last, M, N, a_row, a_col, b_row, b_col, sa_row, sa_col, sb_row,
            sb_col, BM, BN, BK, TMA, A_T, B_T, EVEN_K, INTEGER, BLOCKED, FAST,
        )  # fmt: skip
        if BLOCKED or SPLIT_K > 1:
            y = acc
        else:
            rows = row + tl.arange(0, BM)
            cols = col + tl.arange(0, BN)
            of_row = tl.load(scale_a + rows.to(tl.int64) * sa_row, mask=rows < M, other=0.0)
            of_col = tl.load(scale_b + cols.to(tl.int64) * sb_col, mask=cols < N, other=0.0)
            y = acc.to(tl.float32) * of_row[:, None] * of_col[None, :]
        if TMA:
            left, right = columns(y, BM, BN, 2)
            stored_tile(c, left, row, col, M, N, c_row, BM, BN // 2, True)
            stored_tile(c, right, row, col + BN // 2, M, N, c_row, BM, BN // 2, True)
        else:
            stored_tile(c, y, row, col, M, N, c_row, BM, BN, False)


@triton.jit
def join_scaled(
    parts, c, scale_a, scale_b, count, N, c_row, sa_row, sb_col, SPLIT_K: tl.constexpr, BLOCKED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """C [M, N], of count numbers: the sum of parts [SPLIT_K, M, N], in their order, scaled where not BLOCKED."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), parts.dtype.element_ty)
    for part in tl.static_range(SPLIT_K):
        total += tl.load(parts + part * count + at, mask=at < count, other=0)
    row, col = at // N, at % N
    y = total.to(tl.float32)
    if not BLOCKED:
        y *= tl.load(scale_a + row * sa_row, mask=at < count, other=0.0)
        y *= tl.load(scale_b + col * sb_col)
    tl.store(c + row * c_row + col, y.to(c.dtype.element_ty), mask=at < count)


def space(a: torch.Tensor, b: torch.Tensor, blocked: bool, tma: bool, fast: bool = False) -> list[Variant]:
    """Variants worth timing for these operands, the likeliest first; tma: whether TMA takes all three matrices."""
    (m, k), n, integer = a.shape, b.shape[1], a.dtype == torch.int8
    twice = blocked or (not integer and not fast)  # two tiles of accumulators

    def tile(
        bm: int, bn: int, warps: int, stages: int, described: bool = False, flat: bool = False, bk: int = BLOCK,
        split: int = 1,
    ) -> Variant:  # fmt: skip
        constants: tuple[tuple[str, Any], ...] = (
            ("BM", bm), ("BN", bn), ("BK", bk), ("GROUP_M", 8), ("FLATTEN", flat), ("TMA", described),
            ("A_T", described and transposed(a)), ("B_T", described and transposed(b)), ("EVEN_K", k % bk == 0),
            ("INTEGER", integer), ("BLOCKED", blocked), ("FAST", fast), ("SPLIT_K", split),
        )  # fmt: skip
        shared = shared_bytes(bm, bn, bk, stages, 1, bm * bn if described else 0)
        held = (2 if twice else 1) * bm * bn // (32 * warps)
        names = ("BM", "BN", "BK", "FLATTEN", "TMA", "SPLIT_K")
        return Variant(scaled_gemm_kernel, constants, warps, stages, names, shared, held + 40)

    def parts(bn: int) -> list[int]:
        """Parts of K by which an H200's multiprocessors have one to four programs each; none where N has them."""
        across = triton.cdiv(n, bn)
        return [s for s in (2, 4, 8) if across < 132 * 2 and 120 <= across * s <= 132 * 4 and k // s >= 2 * BLOCK]

    if m <= 64:
        bm = 16 if m <= 16 else 32 if m <= 32 else 64
        few = [tile(bm, 64, 4, 4), tile(bm, 32, 4, 5), tile(bm, 128, 4, 4), tile(bm, 64, 8, 4)]
        # Memory answers after some 1500 cycles, in which a multiprocessor takes 28 KiB of B: these have them under way.
        few += [tile(bm, 32, 4, 8), tile(bm, 32, 4, 12), tile(bm, 64, 4, 7)]
        few += [] if blocked else [tile(bm, 64, 4, 3, bk=256), tile(bm, 32, 4, 4, bk=256)]
        few += [tile(bm, bn, 4, 4, split=s) for bn in (64, 128) for s in parts(bn)]
        few += [tile(bm, 64, 4, 7, split=s) for s in parts(64)[:1]]
        pairs = ((64, 4), (128, 4), (32, 8), (32, 12), (64, 7))
        return few + ([tile(bm, bn, 4, stages, True) for bn, stages in pairs] if tma else [])
    small = [tile(64, 64, 4, 4), tile(64, 128, 4, 3)]
    if m * n < 132 * 64 * 128:
        return [*small, tile(128, 64, 4, 3), *([tile(64, 64, 4, 5, True), tile(64, 128, 4, 4, True)] if tma else [])]
    large = [tile(128, 128, 8, 3), *small]
    if not twice:
        large = [tile(128, 256, 8, 3), tile(256, 128, 8, 3), *large]
    if tma:
        described = [tile(128, 128, 8, 4, True, True), tile(128, 128, 8, 4, True), tile(64, 128, 4, 4, True)]
        if not twice:
            wide = [tile(128, 256, 8, 4, True, True), tile(128, 256, 8, 3, True, True), tile(128, 256, 8, 4, True),
                    tile(256, 128, 8, 4, True), tile(128, 128, 4, 4, True)]  # fmt: skip
            described = [*wide, *described]
        elif not blocked:
            described.append(tile(64, 256, 8, 4, True))
        large = [*described, *large]
    return large


def launch(
    variant: Variant, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> None:
    """Run one variant on A [M, K] and B [K, N] into C [M, N], whose rows are contiguous; scales are matrices."""
    (m, k), n = a.shape, b.shape[1]
    bm, bn, bk = variant["BM"], variant["BN"], variant["BK"]
    tiles = triton.cdiv(m, bm) * triton.cdiv(n, bn)
    grid = (min(tiles, multiprocessors(a.device)),) if variant["FLATTEN"] else (tiles,)
    operands: tuple[Any, ...] = (a, b, c)
    if variant["TMA"]:
        operands = (descriptor(a, (bm, bk)), descriptor(b, (bk, bn)), descriptor(c, (bm, bn // 2)))
    of_scales = (*scale_a.stride(), *scale_b.stride())
    if not variant["BLOCKED"]:  # one number for all is at the same place for each
        of_scales = (scale_a.stride(0) if scale_a.shape[0] > 1 else 0, 0, 0,
                     scale_b.stride(1) if scale_b.shape[1] > 1 else 0)  # fmt: skip
    split, c_row = variant["SPLIT_K"], c.stride(0)
    if split > 1:
        kind = torch.int32 if variant["INTEGER"] else torch.float32
        operands, c_row = (a, b, torch.empty((split, m, n), dtype=kind, device=a.device)), n
    scaled_gemm_kernel[(*grid, split)](
        *operands, scale_a, scale_b, m, n, k, *a.stride(), *b.stride(), c_row, *of_scales, **variant.meta
    )
    if split > 1:
        join_scaled[(triton.cdiv(m * n, 1024),)](
            operands[2], c, scale_a, scale_b, m * n, n, c.stride(0), of_scales[0], of_scales[3], SPLIT_K=split,
            BLOCKED=variant["BLOCKED"], BLOCK=1024, num_warps=4,
        )  # fmt: skip


def _scales(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, block: bool, turned: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both as matrices: of A along its rows, of B [K, N] along its columns, or of their blocks. Raises ValueError."""
    (m, k), n = a.shape, b.shape[1]
    across, down = triton.cdiv(k, BLOCK), triton.cdiv(n, BLOCK)
    if block:
        wanted = {"scale_a": [(m, across)], "scale_b": [(down, across) if turned else (across, down)]}
    else:
        wanted = {"scale_a": [(1, 1), (m, 1)], "scale_b": [(1, 1), (1, n)]}
    made = []
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        shape = next((s for s in wanted[name] if scale.numel() == math.prod(s) and _in_order(scale.shape, s)), None)
        if shape is None:
            raise ValueError(f"{name} is {[*scale.shape]}, it must be one of {[list(s) for s in wanted[name]]}")
        made.append(scale.reshape(shape))
    return made[0], made[1].T if block and turned else made[1]


def _in_order(given: Sequence[int], wanted: Sequence[int]) -> bool:
    """The same axes but for those of one number; an axis alone may be a row or a column."""
    return [n for n in given if n != 1] == [n for n in wanted if n != 1]


def _checked(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, dtype: str, block: bool
) -> None:
    """Raises TypeError, ValueError."""
    if a.dtype != b.dtype or a.dtype not in (torch.float8_e4m3fn, torch.int8):
        raise TypeError(f"scaled_gemm takes two of f8e4m3 or int8 alike, not {a.dtype} and {b.dtype}")
    if dtype not in RESULTS or {scale_a.dtype, scale_b.dtype} != {torch.float32}:
        raise TypeError(
            f"scaled_gemm gives bf16, f16 or f32 by scales in f32, not {dtype} by {scale_a.dtype} and {scale_b.dtype}"
        )
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"scaled_gemm takes [M, K] and [K, N], not {[*a.shape]} and {[*b.shape]}")
    if len({t.device for t in (a, b, scale_a, scale_b)}) > 1:
        raise ValueError("scaled_gemm takes matrices and scales of one device")
    if a.dtype == torch.int8 and (block or a.shape[1] >= LONGEST_INT8):
        raise ValueError("int8 takes no scales of blocks" if block else f"K is {a.shape[1]}: int32 overflows")
    if a.device.type == "cuda" and torch.version.hip is None and a.dtype != torch.int8:
        capability = torch.cuda.get_device_capability(a.device)
        if capability < (8, 9):
            raise ValueError(f"f8 products need sm_89, this GPU is sm_{capability[0]}{capability[1]}")


def scaled_gemm(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, dtype: str = "bf16",
    block: bool = False, turned: bool = False, fast: bool = False,
) -> torch.Tensor:  # fmt: skip
    """(A [M, K] * scale_a) @ (B [K, N] * scale_b), both f8e4m3 or int8, in any strides; the result contiguous.

    scale_a: f32, one number or [M, 1]; scale_b: one or [1, N]. block, f8 only: scale_a [M, K / 128], scale_b
    [K / 128, N / 128], rounded up. turned: B is [N, K], as nn.Linear keeps it, and so are its scales. dtype: of the
    result, "bf16", "f16" or "f32". fast: sums of f8 stay in the matrix units, which keep some 14 bits on sm_90. Raises
    TypeError for other dtypes, ValueError for other shapes, a GPU without f8, or a K at which int32 overflows.
    """
    b = b.T if turned and b.dim() == 2 else b
    _checked(a, b, scale_a, scale_b, dtype, block)
    scale_a, scale_b = _scales(a, b, scale_a, scale_b, block, turned)
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=DTYPES[dtype], device=a.device)
    if c.numel() == 0:
        return c
    if k == 0:
        return c.zero_()
    tma = tma_takes(a, b, itemsize=1) and tma_takes(c)
    fast = fast and a.dtype != torch.int8 and not block
    by_row = (scale_a.numel() > 1, scale_b.numel() > 1)
    key = (m, n, k, a.dtype, dtype, block, *by_row, fast, tma, *(min(s, 2) for s in (*a.stride(), *b.stride())))
    variant = tuner.pick(key, lambda: space(a, b, block, tma, fast), launch, a, b, c, scale_a, scale_b,
                          uncopied=(a, b, scale_a, scale_b))  # fmt: skip
    launch(variant, a, b, c, scale_a, scale_b)
    return c


def inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try it on: results of size 1. scales: "tensor", "row" or "block"; kind: "f8" or "int8"; untidy: B is
    given as [K, N] with contiguous rows.
    """
    m, n, k, scales, turned = c["m"], c["n"], c["k"], c["scales"], not c.get("untidy")
    b_shape = (n, k) if turned else (k, n)
    if c.get("kind", "f8") == "int8":
        a, b = (make.integers(256, s).sub(128).to(torch.int8) for s in ((m, k), b_shape))
        size = 1 / (74.0 * max(k, 1) ** 0.25)
    else:
        a, b = (make.normal(s, torch.float8_e4m3fn) for s in ((m, k), b_shape))
        size = max(k, 1) ** -0.25
    blocks = tuple(triton.cdiv(s, BLOCK) for s in b_shape)
    shapes = {"tensor": ((), ()), "row": ((m, 1), (n, 1) if turned else (1, n)),
              "block": ((m, triton.cdiv(k, BLOCK)), blocks)}[scales]  # fmt: skip
    scale_a, scale_b = ((make.normal(s, torch.float32, 0.2, 1.0).abs() + 0.1).mul_(size) for s in shapes)
    return a, b, scale_a, scale_b, c.dtype, scales == "block", turned, bool(c.get("fast", 0))


def cost(c: Case) -> Cost:
    """Every matrix and every scale once."""
    m, n, k = c["m"], c["n"], c["k"]
    scales = {"tensor": 2, "row": m + n, "block": triton.cdiv(k, BLOCK) * (m + triton.cdiv(n, BLOCK))}[c["scales"]]
    return Cost(m * k + k * n + m * n * c.itemsize + 4 * scales, 2 * m * n * k)


NO_F8 = "has no products of f8e4m3"
STRIDES = ("a_row", "b_col", "c_row")


def build_of(v: Variant, kind: str) -> Build:
    """As compiled offline: rows of A and columns of B contiguous, bf16 results, sizes multiples of 16."""
    bm, bn, bk, described = v["BM"], v["BN"], v["BK"], v["TMA"]
    name = "i8" if kind == "int8" else "fp8e4nv"
    blocks = {"a": f"{name}[{bm},{bk}]", "b": f"{name}[{bn},{bk}]", "c": f"bf16[{bm},{bn // 2}]"}
    parts = "*i32" if kind == "int8" else "*fp32"
    pointers = {"a": f"*{name}", "b": f"*{name}", "c": parts if v["SPLIT_K"] > 1 else "*bf16"}
    of_scales = ("sa_row", "sa_col", "sb_row", "sb_col")
    signature = {
        **{p: f"tensordesc<{blocks[p]}>" if described else pointers[p] for p in "abc"},
        "scale_a": "*fp32", "scale_b": "*fp32",
        **dict.fromkeys(("M", "N", "K", *STRIDES, "a_col", "b_row", *of_scales), "i32"),
    }  # fmt: skip
    order = ("a", "b", "c", "scale_a", "scale_b", "M", "N", "K", "a_row", "a_col", "b_row", "b_col", "c_row",
             *of_scales)  # fmt: skip
    constants: tuple[tuple[str, Any], ...] = () if described else (("a_col", 1), ("b_row", 1))
    stages = v.stages or 1
    # AMD's compiler keeps one stage in registers.
    held = {t: shared_bytes(bm, bn, bk, max(1, stages - (t == "gfx942")), 1) for t in SHARED_KIB}
    without = refused(described, held) | ({} if kind == "int8" else {"sm_80": NO_F8})
    given = {n: signature[n] for n in order if n not in dict(constants)}
    return Build(replace(v, constants=v.constants + constants), given, ("M", "N", "K", *STRIDES), without)


def _described(kind: str, blocked: bool, tma: bool, which: int, m: int = 8192) -> Build:
    dtype = torch.int8 if kind == "int8" else torch.float8_e4m3fn
    a = torch.empty((m, 4096), dtype=dtype, device="meta")
    b = torch.empty((8192, 4096), dtype=dtype, device="meta").T
    return build_of(space(a, b, blocked, tma)[which], kind)


A_FEW = torch.empty((16, 14336), dtype=torch.float8_e4m3fn, device="meta")
B_FEW = torch.empty((4096, 14336), dtype=torch.float8_e4m3fn, device="meta").T
LARGE = ((8192, 4096, 14336), (4096, 7168, 4096), (16, 4096, 14336), (64, 7168, 4096))
_SUMS = (
    "Sums of f8 go to f32 registers after every 128 of K, in which the matrix units wait here and work on another tile "
    "in cuBLAS; two sets of accumulators leave no room for tiles of 128 x 256. Tried: adding each sum while the next "
    "one is made, in two tiles of sums by turns, "
)
_TILES = "; 64 x 64 to 128 x 128 and 64 x 256, by TMA or pointers, persistent or not"
_BY_ROW = "It ran with the tile that one scale a matrix had chosen, not yet with one of its own."
LOSES = {
    "bf16 m=8192 k=4096 n=14336 scales=tensor":
        f"cuBLAS takes 682 us, 644 without these sums, this 941. {_SUMS}1019{_TILES} (931 to 1361).",
    "bf16 m=8192 k=4096 n=14336 scales=row":
        f"cuBLAS takes 698 us, 626 without these sums, this 1045. {_BY_ROW}",
    "bf16 m=4096 k=7168 n=4096 scales=tensor": f"cuBLAS takes 172 us, 161 without these sums, this 227. {_SUMS}259.",
    "bf16 m=4096 k=7168 n=4096 scales=row": f"cuBLAS takes 173 us, 161 without these sums, this 243. {_BY_ROW}",
    "bf16 m=8192 k=4096 n=14336 scales=block":
        f"cuBLAS takes 747 us, this 1059. {_SUMS}1147{_TILES} (1045 to 1619).",
    "bf16 m=4096 k=7168 n=4096 scales=block": f"cuBLAS takes 188 us, this 264. {_SUMS}279.",
    "bf16 m=8192 k=4096 n=14336 scales=row fast=1":
        "cuBLAS takes 625 us, this 660. Tried: tiles of 64 x 64 to 128 x 256 and 256 x 128, by TMA or pointers, "
        "persistent or not (650 to 1352).",
    "bf16 m=64 k=7168 n=4096 scales=tensor":
        "cuBLAS takes 14.1 us, 13.9 without these sums, this 17.2: of 7.1 at the copy rate. Tried: 32 to 128 columns "
        "a program, K whole and in 2, 4 and 8 parts (16.9 to 26.8).",
}  # fmt: skip
"""By the run of 2026-11-27 on an H200. The advice calls torch's: faster here are few rows, and int8."""

OPERATIONS = (
    Operation(
        name="scaled_gemm", run=scaled_gemm, reference=reference, inputs=inputs, cost=cost, loses=LOSES,
        beyond=case("bf16", m=135_000, k=128, n=16384, scales="row"),
        checks=(
            *(case(d, m=m, k=k, n=n, scales=s) for d, s in (("bf16", "tensor"), ("f16", "row"), ("bf16", "block"))
              for m, k, n in ((1, 1, 1), (3, 0, 4), (33, 35, 70), (70, 300, 140))),
            case("f16", m=0, k=3, n=4, scales="row"), case("f16", m=3, k=4, n=0, scales="block"),
            case("f32", m=20, k=64, n=48, scales="block"), case("f16", m=40, k=48, n=72, scales="row", untidy=1),
            case("f16", m=130, k=256, n=264, scales="row", fast=1), case("f16", m=5, k=600, n=33, scales="block"),
            *(case("f16", m=m, k=k, n=n, scales=s, kind="int8") for s in ("tensor", "row")
              for m, k, n in ((1, 1, 1), (33, 35, 70), (70, 300, 40))),
            case("bf16", m=64, k=64, n=64, scales="tensor", kind="int8"),
            case("bf16", m=66, k=272, n=144, scales="block"),
        ),
        cases=(
            *(case("bf16", m=m, k=k, n=n, scales=s) for s in ("tensor", "row", "block") for m, k, n in LARGE),
            *(case("bf16", m=m, k=k, n=n, scales="row", fast=1) for m, k, n in LARGE[:1]),
            *(case("bf16", m=m, k=k, n=n, scales="row", kind="int8") for m, k, n in (*LARGE[:1], *LARGE[3:])),
        ),
        builds=(
            _described("f8", False, True, 0), _described("f8", False, False, 0), _described("f8", True, True, 0),
            _described("f8", True, False, 1), _described("f8", False, False, 0, 16),
            _described("int8", False, True, 0), _described("int8", False, False, 2),
            *(build_of(next(v for v in space(A_FEW, B_FEW, blocked, False) if v["SPLIT_K"] > 1), "f8")
              for blocked in (False, True)),
            build_of(next(v for v in space(A_FEW, B_FEW, False, False) if v["BK"] == 256), "f8"),
        ),
    ),
)  # fmt: skip
