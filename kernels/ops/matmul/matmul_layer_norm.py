"""A matrix product with LayerNorm over its rows: Y = (A @ B - mean) * rsqrt(var + eps) * weight + bias.

Traffic: A and B read once, Y written once; 2 M N K floating-point operations. All N columns of a row must be in one
tile, so N is at most 512; then the product is never written and read again, which is most of the traffic where K is
as short as N. Two kernels: one walks over K as any product does; the other, for K of 256 or less, keeps all of B in
shared memory, and loads the next rows of A into registers while it normalises these.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from kernels.ops.matmul.gemm import (
    DTYPES,
    build_of,
    checked,
    columns,
    descriptor,
    product,
    shared_bytes,
    tma_takes,
    transposed,
)
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant, multiprocessors

tuner = Tuner("matmul_layer_norm")
WIDEST = 512
"""Columns of the product: with 64 rows, 128 accumulators a thread of 256."""


def reference(
    a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    """What is computed, in plain PyTorch."""
    return F.layer_norm(wide(a @ b), (b.shape[1],), wide(weight), wide(bias), eps).to(a.dtype)


@triton.jit
def normalised(acc, N, eps, BN: tl.constexpr, WHOLE_N: tl.constexpr):
    """acc less its mean, over its standard deviation; the variance from the differences, as it is exact."""
    if not WHOLE_N:
        inside = tl.arange(0, BN)[None, :] < N
        acc = tl.where(inside, acc, 0.0)
    acc -= (tl.sum(acc, 1) / N)[:, None]
    if not WHOLE_N:
        acc = tl.where(inside, acc, 0.0)
    return acc * tl.rsqrt(tl.sum(acc * acc, 1) / N + eps)[:, None]


@triton.jit
def stored(
    y, y_ptr, weight, bias, row, M, N, y_row, BM: tl.constexpr, BN: tl.constexpr, PIECES: tl.constexpr,
    TMA: tl.constexpr,
):  # fmt: skip
    """y * weight + bias into rows of y_ptr, in pieces of columns. TMA: y_ptr is a descriptor of such a piece."""
    width: tl.constexpr = BN // PIECES
    pieces = columns(y, BM, BN, PIECES)
    for i in tl.static_range(PIECES):
        cols = i * width + tl.arange(0, width)
        w = tl.load(weight + cols, mask=cols < N, other=0.0).to(tl.float32)
        z = pieces[i] * w[None, :] + tl.load(bias + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
        if TMA:
            y_ptr.store([row, i * width], z.to(y_ptr.dtype))
        else:
            rows = (row + tl.arange(0, BM)).to(tl.int64)[:, None]
            at = y_ptr + rows * y_row + cols[None, :]
            tl.store(at, z.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N)[None, :])


@triton.jit
def matmul_layer_norm_kernel(
    a, b, y, weight, bias, M, N, K, a_row, a_col, b_row, b_col, y_row, eps, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, PIECES: tl.constexpr, FLATTEN: tl.constexpr, TMA: tl.constexpr, A_T: tl.constexpr,
    B_T: tl.constexpr, EVEN_K: tl.constexpr, WHOLE_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """BM whole rows of the result at a time. TMA: a, b, y are descriptors, y's of one piece of columns."""
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM), tl.num_programs(0), flatten=FLATTEN):
        acc = product(
            a, b, tile * BM, 0, M, N, K, a_row, a_col, b_row, b_col, BM, BN, BK, TMA, A_T, B_T, EVEN_K, PRECISION
        )  # fmt: skip
        acc = normalised(acc, N, eps, BN, WHOLE_N)
        stored(acc, y, weight, bias, tile * BM, M, N, y_row, BM, BN, PIECES, TMA)


@triton.jit
def rows_at(a, row, M, K, a_row, a_col, BM: tl.constexpr, BK: tl.constexpr, WHOLE_K: tl.constexpr):
    """Rows from `row` on, all K columns; those beyond M are the first ones again."""
    rows = ((row + tl.arange(0, BM)) % M).to(tl.int64)
    ks = tl.arange(0, BK)
    at = a + rows[:, None] * a_row + ks[None, :].to(tl.int64) * a_col
    if WHOLE_K:
        x = tl.load(at)
    else:
        x = tl.load(at, mask=ks[None, :] < K, other=0.0)
    return x


@triton.jit
def matmul_layer_norm_resident(
    a, b, y, weight, bias, M, N, K, a_row, a_col, b_row, b_col, y_row, eps, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, PIECES: tl.constexpr, EVEN_K: tl.constexpr, WHOLE_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The same with all of B [K, N] held, BK >= K; the next BM rows of A are under way while these are finished."""
    cols = tl.arange(0, BN)
    ks = tl.arange(0, BK)
    at = b + ks[:, None].to(tl.int64) * b_row + cols[None, :].to(tl.int64) * b_col
    held = tl.load(at, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
    step = tl.num_programs(0) * BM
    row = tl.program_id(0) * BM
    x = rows_at(a, row, M, K, a_row, a_col, BM, BK, EVEN_K)
    for first in tl.range(row, M, step, num_stages=1):
        following = rows_at(a, first + step, M, K, a_row, a_col, BM, BK, EVEN_K)
        acc = tl.dot(x, held, input_precision=PRECISION)
        acc = normalised(acc, N, eps, BN, WHOLE_N)
        stored(acc, y, weight, bias, first, M, N, y_row, BM, BN, PIECES, False)
        x = following


def space(a: torch.Tensor, b: torch.Tensor, tma: bool, precision: str = "ieee") -> list[Variant]:
    """Variants worth timing for these operands, the likeliest first; tma: whether TMA takes A, B and the result."""
    k, n, size = a.shape[1], b.shape[1], a.element_size()
    bn = max(16, triton.next_power_of_2(n))
    fit = (("WHOLE_N", n == bn), ("PRECISION", precision))
    pieces = ("PIECES", 4 if bn >= 64 else 2)

    def walk(bm: int, bk: int, warps: int, stages: int, described: bool = False, flat: bool = False) -> Variant:
        a_t, b_t = described and transposed(a), described and transposed(b)
        constants: tuple[tuple[str, Any], ...] = (
            ("BM", bm), ("BN", bn), ("BK", bk), pieces, ("FLATTEN", flat), ("TMA", described),
            ("A_T", a_t), ("B_T", b_t), ("EVEN_K", k % bk == 0), *fit,
        )  # fmt: skip
        shared = shared_bytes(bm, bn, bk, stages, size, bm * bn * size // 4 if flat else 0)
        names = ("BM", "BN", "BK", "FLATTEN", "TMA")
        return Variant(matmul_layer_norm_kernel, constants, warps, stages, names, shared, bm * bn // (32 * warps) + 80)

    def resident(bm: int, warps: int) -> Variant:
        bk = max(16, triton.next_power_of_2(k))
        constants = (("BM", bm), ("BN", bn), ("BK", bk), pieces, ("EVEN_K", k == bk), *fit)
        held = bm * (bn + bk // 2) // (32 * warps)
        shared = shared_bytes(bm, bn, bk, 1, size)
        return Variant(matmul_layer_norm_resident, constants, warps, 1, ("BM", "BN", "BK"), shared, held + 48)

    kept = 0 < k <= 256 and bn <= 256
    if size == 4:
        return [walk(16, 32, 4, 3), walk(32, 32, 8, 3), *([resident(16, 4)] if kept and k <= 64 else [])]
    rows, warps = (64, 8) if bn > 256 else (128, 8)
    variants = [walk(rows, 32, warps, 4), walk(64, 64, 4 if bn <= 256 else 8, 2), walk(rows, 64, warps, 3)]
    if kept:
        variants = [resident(128, 8), resident(64, 8), resident(64, 4), *variants]
    if tma:
        variants += [
            walk(rows, 64, warps, 3, True, True),
            walk(rows, 64, warps, 3, True),
            walk(64, 64, 8, 4, True, True),
        ]
    return variants


def launch(
    variant: Variant, a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, y: torch.Tensor,
    eps: float,
) -> None:  # fmt: skip
    """Run one variant on A [M, K] and B [K, N] into Y [M, N], whose rows are contiguous."""
    (m, k), n = a.shape, b.shape[1]
    bm, bn, bk = variant["BM"], variant["BN"], variant["BK"]
    tiles = triton.cdiv(m, bm)
    strides = (*a.stride(), *b.stride(), y.stride(0))
    if variant.kernel is matmul_layer_norm_resident:
        # As many as are resident at once: B is loaded once for each.
        each = max(1, min(232448 // (variant.shared_bytes + 1024), 2048 // (32 * variant.warps * 2)))
        grid = (min(tiles, multiprocessors(a.device) * each),)
        matmul_layer_norm_resident[grid](a, b, y, weight, bias, m, n, k, *strides, eps, **variant.meta)
        return
    grid = (min(tiles, multiprocessors(a.device)) if variant["FLATTEN"] else tiles,)
    operands: tuple[Any, ...] = (a, b, y)
    if variant["TMA"]:
        operands = (descriptor(a, (bm, bk)), descriptor(b, (bk, bn)), descriptor(y, (bm, bn // variant["PIECES"])))
    matmul_layer_norm_kernel[grid](*operands, weight, bias, m, n, k, *strides, eps, **variant.meta)


def matmul_layer_norm(
    a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5,
    precision: str = "ieee",
) -> torch.Tensor:  # fmt: skip
    """LayerNorm over the rows of A [M, K] @ B [K, N], N at most 512, with weight and bias [N].

    A and B both f32, f16 or bf16, in any strides, weight and bias of any of these; computed in f32, the result like
    A. precision: of products of f32. Raises TypeError for other dtypes, ValueError for shapes that do not fit.
    """
    m, n, k = checked(a, b, precision, "matmul_layer_norm")
    if n > WIDEST:
        raise ValueError(f"matmul_layer_norm takes up to {WIDEST} columns, not {n}")
    if weight.shape != (n,) or bias.shape != (n,):
        raise ValueError(f"weight and bias are {[*weight.shape]} and {[*bias.shape]}, a row has {n} elements")
    if not {weight.dtype, bias.dtype} <= set(DTYPES):
        raise TypeError(f"matmul_layer_norm takes f32, f16 or bf16, not weight {weight.dtype}, bias {bias.dtype}")
    y = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if y.numel() == 0:
        return y
    weight, bias = weight.contiguous(), bias.contiguous()
    tma = k > 0 and tma_takes(a, b, y)
    strides = (min(s, 2) for s in (*a.stride(), *b.stride()))
    key = (m, n, k, a.dtype, weight.dtype, bias.dtype, precision, tma, *strides)
    variant = tuner.pick(key, lambda: space(a, b, tma, precision), launch, a, b, weight, bias, y, eps)
    launch(variant, a, b, weight, bias, y, eps)
    return y


def inputs(c: Case, make: Maker) -> tuple[torch.Tensor, ...]:
    """Arguments to try it on."""
    m, n, k, dtype = c["m"], c["n"], c["k"], c.torch_dtype
    a, b = make.normal((m, k), dtype), make.normal((k, n), dtype, max(k, 1) ** -0.5)
    return a, b, make.normal((n,), dtype), make.normal((n,), dtype)


def cost(c: Case) -> Cost:
    """Every matrix once."""
    m, n, k = c["m"], c["n"], c["k"]
    return Cost((m * k + k * n + m * n + 2 * n) * c.itemsize, 2 * m * n * k)


A = torch.empty((131072, 256), dtype=torch.bfloat16, device="meta")
B = torch.empty((256, 256), dtype=torch.bfloat16, device="meta")
BESIDE = {"weight": "*bf16", "bias": "*bf16", "eps": "fp32"}


def _build(v: Variant) -> Build:
    return build_of(v, ("a", "b", "y"), {"y": (v["BM"], v["BN"] // v["PIECES"])}, BESIDE, ("y_row",))


OPERATIONS = (
    Operation(
        name="matmul_layer_norm", run=matmul_layer_norm, reference=reference, inputs=inputs, cost=cost,
        beyond=case("bf16", m=4_200_000, k=64, n=512),
        loses={
            "bf16 m=65536 k=1024 n=512":
                "torch.compile (cuBLAS, then a kernel that reads its result again) takes 136 us, this 141: a program "
                "of 64 x 512 outputs leaves no room for another on its multiprocessor, and the tensor cores idle "
                "while it normalises. Tried: 32 to 128 rows, by TMA or pointers.",
        },
        checks=(
            *(case(d, m=m, k=k, n=n) for d in ("f32", "f16")
              for m, k, n in ((1, 1, 2), (0, 4, 4), (3, 0, 9), (33, 40, 70), (130, 300, 64))),
            case("f16", m=40, k=32, n=300), case("f32", m=20, k=64, n=64), case("bf16", m=64, k=64, n=512),
            case("f16", m=70, k=64, n=64),
        ),
        cases=(
            case("bf16", region="gemm_layernorm_epilogue", m=131072, k=256, n=256),
            case("bf16", m=65536, k=1024, n=512),
        ),
        builds=tuple(_build(space(A, B, True)[i]) for i in (0, 3, 6)),
        wrong_interpreted=("bf16",),
    ),
)  # fmt: skip
