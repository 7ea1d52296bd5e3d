"""A matrix product with what follows it: Y = activation(A @ B + bias) * mask + residual, each part optional.

Traffic: A, B, bias, mask and residual read once, Y written once; 2 M N K floating-point operations. PyTorch rounds to
the dtype after every step, the kernel once. What it saves is the walk over [M, N] after the product; what it must not
do is to keep the matrix units waiting meanwhile. So the accumulators are finished in pieces of columns, which holds
registers and shared memory down; the mask's and the residual's tiles are called into L2 while the product runs;
GELU of 16-bit results is eleven multiply-adds (see `gelu_of_16_bit`) where erf is some thirty operations. Smaller
tiles, two programs on a multiprocessor, hide one's epilogue behind the other's product; larger ones need less of L2.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language import target_info

from kernels.ops.matmul.gemm import (
    build_of,
    checked,
    columns,
    descriptor,
    product,
    shared_bytes,
    tile_at,
    tma_takes,
    transposed,
)  # fmt: skip
from kernels.ops.shared.activations import PLAIN, activation, known
from kernels.ops.shared.pairs import INTERPRETED
from kernels.ops.shared.rows import rows_of
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant, multiprocessors

tuner = Tuner("matmul_epilogue")


def reference(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, activation: str = "none",
    mask: torch.Tensor | None = None, residual: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """What is computed, in plain PyTorch."""
    y = a @ b
    if bias is not None:
        y = y + bias
    if activation != "none":
        y = PLAIN[activation](y)
    if mask is not None:
        y = y * mask
    return y if residual is None else y + residual


@triton.jit
def gelu_of_16_bit(x, TANH: tl.constexpr):
    """GELU by x * clamp(0.5 + x P(x²), 0, 1), P of degree 8, fitted to erf's form or tanh's on [-4.2, 4.2].

    The factor is within 1.3e-5 of the exact one everywhere, GELU within 5.5e-5: far below what rounding to f16 or
    bf16 costs near 1. P's first coefficient is positive, so beyond the fit the clamp alone decides.
    """
    u = x * x
    if TANH:
        p = 7.18395829e-11 * u - 6.64796396e-09
        p = p * u + 2.71055313e-07
        p = p * u - 6.48721834e-06
        p = p * u + 0.00010306832
        p = p * u - 0.00117247622
        p = p * u + 0.0100442637
        p = p * u - 0.0666667372
        p = p * u + 0.398899376
    else:
        p = 5.99802499e-11 * u - 5.63328806e-09
        p = p * u + 2.34366581e-07
        p = p * u - 5.76075718e-06
        p = p * u + 9.45742941e-05
        p = p * u - 0.00111414748
        p = p * u + 0.00983012933
        p = p * u - 0.0663603693
        p = p * u + 0.398907423
    if target_info.is_cuda() and not INTERPRETED:
        # The clamp comes with the multiply-add. It makes 0 of NaN, which the last product undoes.
        share = tl.inline_asm_elementwise(
            "fma.rn.sat.f32 $0, $1, $2, 0f3F000000;", "=f,f,f", [x, p], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        share = tl.minimum(tl.maximum(x * p + 0.5, 0.0), 1.0)
    return x * share


@triton.jit
def call_into_l2(ptr, row, col, M, N, stride, BM: tl.constexpr, BN: tl.constexpr, LINE: tl.constexpr):
    """Start bringing a tile into L2; nothing waits for it. LINE: elements in 128 bytes."""
    if target_info.is_cuda() and not INTERPRETED:
        rows = tl.minimum(row + tl.arange(0, BM), M - 1).to(tl.int64)[:, None]
        lines: tl.constexpr = (BN + LINE - 1) // LINE  # Triton 3.6's cdiv makes a tensor of constants
        cols = tl.minimum(col + tl.arange(0, lines) * LINE, N - 1)[None, :]
        at = (ptr + rows * stride + cols).to(tl.int64, bitcast=True)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def finished(
    y, bias, mask, residual, row, col, M, N, mask_row, residual_row, BM: tl.constexpr, WIDTH: tl.constexpr,
    BIAS: tl.constexpr, ACTIVATION: tl.constexpr, MASK: tl.constexpr, RESIDUAL: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    """What follows the product, on f32 y [BM, WIDTH] at (row, col). SHORT: 16-bit results."""
    rows = (row + tl.arange(0, BM)).to(tl.int64)[:, None]
    cols = (col + tl.arange(0, WIDTH))[None, :]
    inside = (rows < M) & (cols < N)
    # Both are asked for before either is needed.
    if MASK:
        factor = tl.load(mask + rows * mask_row + cols, mask=inside, other=0)
    if RESIDUAL:
        addend = tl.load(residual + rows * residual_row + cols, mask=inside, other=0)
    if BIAS:
        y += tl.load(bias + cols, mask=cols < N, other=0).to(tl.float32)
    if ACTIVATION == "none":
        pass
    elif SHORT and (ACTIVATION == "gelu" or ACTIVATION == "gelu_tanh"):
        y = gelu_of_16_bit(y, ACTIVATION == "gelu_tanh")
    else:
        y = activation(y, ACTIVATION)
    if MASK:
        y *= factor.to(tl.float32)
    if RESIDUAL:
        y += addend.to(tl.float32)
    return y


@triton.jit
def matmul_epilogue_kernel(
    a, b, c, bias, mask, residual, M, N, K, a_row, a_col, b_row, b_col, c_row, mask_row, residual_row,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, FLATTEN: tl.constexpr,
    PIECES: tl.constexpr, TMA: tl.constexpr, A_T: tl.constexpr, B_T: tl.constexpr, EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr, MASK: tl.constexpr,
    RESIDUAL: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    """Tiles BM x BN, finished in PIECES of columns. TMA: a, b, c are descriptors, c's block is one piece."""
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    width: tl.constexpr = BN // PIECES
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        row, col = tile_at(tile, M, N, BM, BN, GROUP_M)
        if MASK:
            call_into_l2(mask, row, col, M, N, mask_row, BM, BN, 1024 // mask.dtype.element_ty.primitive_bitwidth)
        if RESIDUAL:
            call_into_l2(residual, row, col, M, N, residual_row, BM, BN, 64)
        acc = product(
            a, b, row, col, M, N, K, a_row, a_col, b_row, b_col, BM, BN, BK, TMA, A_T, B_T, EVEN_K, PRECISION
        )  # fmt: skip
        pieces = columns(acc, BM, BN, PIECES)
        for i in tl.static_range(PIECES):
            y = finished(
                pieces[i], bias, mask, residual, row, col + i * width, M, N, mask_row, residual_row, BM, width,
                BIAS, ACTIVATION, MASK, RESIDUAL, SHORT,
            )  # fmt: skip
            if TMA:
                c.store([row, col + i * width], y.to(c.dtype))
            else:
                rows = (row + tl.arange(0, BM)).to(tl.int64)[:, None]
                cols = (col + i * width + tl.arange(0, width))[None, :]
                tl.store(c + rows * c_row + cols, y.to(c.dtype.element_ty), mask=(rows < M) & (cols < N))


def _after(bias: Any, activation: str, mask: Any, residual: Any, dtype: torch.dtype) -> tuple[tuple[str, Any], ...]:
    return (
        ("BIAS", bias is not None), ("ACTIVATION", activation), ("MASK", mask is not None),
        ("RESIDUAL", residual is not None), ("SHORT", dtype != torch.float32),
    )  # fmt: skip


def space(
    a: torch.Tensor, b: torch.Tensor, after: tuple[tuple[str, Any], ...], tma: bool, precision: str = "ieee"
) -> list[Variant]:
    """Variants worth timing, the likeliest first. after: the constants of the epilogue; tma: whether it can be used."""
    (m, k), n, size = a.shape, b.shape[1], a.element_size()

    def tile(
        bm: int, bn: int, bk: int, warps: int, stages: int, described: bool = False, flat: bool = False, group: int = 8
    ) -> Variant:
        a_t, b_t = described and transposed(a), described and transposed(b)
        constants: tuple[tuple[str, Any], ...] = (
            ("BM", bm), ("BN", bn), ("BK", bk), ("GROUP_M", group), ("FLATTEN", flat), ("PIECES", 4 if bn >= 64 else 2),
            ("TMA", described), ("A_T", a_t), ("B_T", b_t), ("EVEN_K", k % bk == 0), ("PRECISION", precision), *after,
        )  # fmt: skip
        # Flat, a piece of the mask and one of the result lie beside the stages; else they take the stages' place.
        shared = shared_bytes(bm, bn, bk, stages, size, bm * bn * size // 2 if flat else 0)
        names = ("BM", "BN", "BK", "GROUP_M", "FLATTEN", "TMA")
        return Variant(
            matmul_epilogue_kernel, constants, warps, stages, names, shared, bm * bn // (32 * warps) + 96
        )  # fmt: skip

    if size == 4:
        return [tile(64, 64, 32, 4, 3), tile(128, 64, 32, 4, 3), tile(128, 128, 16, 8, 3), tile(32, 32, 32, 4, 4)]
    if m <= 64:
        bm = 16 if m <= 16 else 32 if m <= 32 else 64
        variants = [tile(bm, 64, 64, 4, 5), tile(bm, 64, 128, 4, 3), tile(bm, 32, 128, 4, 4), tile(bm, 128, 64, 4, 4)]
        return variants + ([tile(bm, 64, 128, 4, 3, True), tile(bm, 128, 64, 4, 4, True)] if tma else [])
    if m * n < 132 * 64 * 128:
        return [tile(64, 64, 64, 4, 4), tile(64, 128, 64, 4, 4), tile(128, 128, 64, 8, 3)]
    if not tma:
        return [tile(128, 256, 64, 8, 3), tile(128, 128, 64, 4, 3), tile(128, 128, 64, 8, 3), tile(128, 128, 32, 4, 4)]
    return [
        tile(128, 256, 64, 8, 4, True, True), tile(128, 256, 64, 8, 4, True), tile(128, 128, 64, 4, 3, True),
        tile(256, 128, 64, 8, 4, True), tile(128, 256, 64, 8, 3, True, True), tile(128, 256, 64, 8, 4, True, True, 16),
        tile(128, 256, 64, 8, 3), tile(128, 128, 64, 4, 3),
    ]  # fmt: skip


def launch(
    variant: Variant, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, bias: torch.Tensor | None,
    mask: torch.Tensor | None, residual: torch.Tensor | None,
) -> None:  # fmt: skip
    """Run one variant on A [M, K] and B [K, N] into C [M, N]; rows of C, mask and residual are contiguous."""
    (m, k), n = a.shape, b.shape[1]
    bm, bn, bk = variant["BM"], variant["BN"], variant["BK"]
    tiles = triton.cdiv(m, bm) * triton.cdiv(n, bn)
    grid = (min(tiles, multiprocessors(a.device)),) if variant["FLATTEN"] else (tiles,)
    operands: tuple[Any, ...] = (a, b, c)
    if variant["TMA"]:
        operands = (descriptor(a, (bm, bk)), descriptor(b, (bk, bn)), descriptor(c, (bm, bn // variant["PIECES"])))
    optional = (bias, mask, residual)
    rows = tuple(0 if x is None else x.stride(0) for x in (mask, residual))
    matmul_epilogue_kernel[grid](
        *operands, *(a if x is None else x for x in optional), m, n, k, *a.stride(), *b.stride(), c.stride(0), *rows,
        **variant.meta,
    )  # fmt: skip


def matmul_epilogue(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, activation: str = "none",
    mask: torch.Tensor | None = None, residual: torch.Tensor | None = None, precision: str = "ieee",
) -> torch.Tensor:  # fmt: skip
    """activation(A [M, K] @ B [K, N] + bias [N]) * mask [M, N] + residual [M, N], in f32, f16 or bf16, any strides.

    activation: "none", "relu", "gelu", "gelu_tanh" or "silu". bias and residual are of A's dtype, mask too or bool.
    precision: of products of f32, "ieee", "tf32" or "tf32x3". Raises TypeError for other dtypes, ValueError for
    other shapes, devices, activations or precisions.
    """
    m, n, k = checked(a, b, precision, "matmul_epilogue")
    if activation != "none":
        known(activation)
    for name, x, shape in (("bias", bias, (n,)), ("mask", mask, (m, n)), ("residual", residual, (m, n))):
        if x is None:
            continue
        if x.shape != shape or x.device != a.device:
            raise ValueError(f"{name} is {[*x.shape]} on {x.device}, not {[*shape]} on {a.device}")
        if x.dtype != a.dtype and not (name == "mask" and x.dtype == torch.bool):
            raise TypeError(f"{name} is {x.dtype}, the product {a.dtype}")
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if c.numel() == 0:
        return c
    bias = None if bias is None else bias.contiguous()
    mask = None if mask is None else rows_of(mask.view(torch.uint8) if mask.dtype == torch.bool else mask)
    residual = None if residual is None else rows_of(residual)
    tma = k > 0 and tma_takes(a, b, c)
    after = _after(bias, activation, mask, residual, a.dtype)
    strides = (min(s, 2) for s in (*a.stride(), *b.stride()))
    key = (m, n, k, a.dtype, precision, tma, *after, mask is not None and mask.dtype, *strides)
    variant = tuner.pick(
        key, lambda: space(a, b, after, tma, precision), launch, a, b, c, bias, mask, residual
    )  # fmt: skip
    launch(variant, a, b, c, bias, mask, residual)
    return c


def inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try it on, of size 1. mask: "bool", "dtype" or none; transposed: of B the columns are contiguous."""
    m, n, k, dtype = c["m"], c["n"], c["k"], c.torch_dtype
    scale = max(k, 1) ** -0.5
    a = make.normal((m, k), dtype)
    b = make.normal((n, k), dtype, scale).T if c.get("transposed") else make.normal((k, n), dtype, scale)
    bias = make.normal((n,), dtype) if c.get("bias", 1) else None
    kind = c.get("mask", "dtype")
    mask = make.mask(0.9, (m, n), torch.bool if kind == "bool" else dtype) if kind else None
    residual = make.normal((m, n), dtype) if c.get("residual") else None
    return a, b, bias, c.get("activation", "gelu"), mask, residual


def cost(c: Case) -> Cost:
    """Every matrix once."""
    m, n, k, size = c["m"], c["n"], c["k"], c.itemsize
    mask = {"bool": 1, "dtype": size}.get(c.get("mask", "dtype"), 0)
    epilogue_bytes = m * n * (mask + size * bool(c.get("residual"))) + n * size * bool(c.get("bias", 1))
    return Cost((m * k + k * n + m * n) * size + epilogue_bytes, 2 * m * n * k)


def _rows(peer: str, **more: Any) -> tuple[Case, ...]:
    shapes = ((8192, 4096, 16384), (4096, 4096, 4096), (64, 4096, 14336))
    return tuple(case("bf16", peer, m=m, k=k, n=n, **more) for m, k, n in shapes)


A = torch.empty((8192, 4096), dtype=torch.bfloat16, device="meta")
B = torch.empty((4096, 16384), dtype=torch.bfloat16, device="meta")
AFTER = (("BIAS", True), ("ACTIVATION", "gelu"), ("MASK", True), ("RESIDUAL", False), ("SHORT", True))
BESIDE = {"bias": "*bf16", "mask": "*bf16", "residual": "*bf16"}


def _build(v: Variant) -> Build:
    piece = {"c": (v["BM"], v["BN"] // v["PIECES"])}
    return build_of(v, ("a", "b", "c"), piece, BESIDE, ("c_row", "mask_row", "residual_row"))


OPERATIONS = (
    Operation(
        name="matmul_epilogue", run=matmul_epilogue, reference=reference, inputs=inputs, cost=cost,
        beyond=case("bf16", m=65_600, k=64, n=32768),
        checks=(
            *(case("f16", m=33, n=70, k=40, activation=name) for name in ("none", "relu", "gelu", "gelu_tanh", "silu")),
            *(case("f32", m=40, n=33, k=35, activation=name, residual=1) for name in ("relu", "gelu", "gelu_tanh")),
            case("bf16", m=130, n=264, k=72), case("bf16", m=64, n=128, k=64, activation="gelu_tanh", mask=""),
            case("f16", m=1, n=1, k=1, residual=1), case("f16", m=5, n=7, k=0), case("f16", m=0, n=7, k=3),
            case("f16", m=3, n=0, k=3), case("f16", m=130, n=136, k=72, mask="bool", transposed=1),
            case("f16", m=17, n=24, k=16, bias=0, mask="", activation="silu"),
            case("f16", m=70, n=72, k=48, mask="bool", residual=1),
        ),
        cases=(
            *_rows("mm_bias_gelu_mask"), *_rows("mm_bias_gelutanh", activation="gelu_tanh", mask=""),
            case("bf16", m=8192, k=4096, n=16384, mask="bool", residual=1),
        ),
        builds=tuple(_build(v) for v in (*space(A, B, AFTER, True)[:3], space(A, B, AFTER, False)[3])),
        wrong_interpreted=("bf16",),
    ),
)  # fmt: skip
