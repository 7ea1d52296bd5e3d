"""Two matrix products with an activation between them: Y = activation(X @ W1 + b1) @ W2 + b2 + residual.

Biases and residual are optional. Traffic: X, both weights and the residual read once, Y written once; 2 M H (K + N)
floating-point operations. All H columns of a hidden row must be in one tile, so H is at most 256; then the hidden rows
never leave the registers: they are rounded to the dtype, as the matrix units take them, and multiplied again. PyTorch
writes and reads [M, H] for the product, for the activation and once more. Two kernels: where K, H and N are all 256 or
less, one that keeps both weights in shared memory and walks over rows; the other walks over K as any product does, and
then over pieces of N.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.ops.matmul.gemm import (
    SHARED_KIB,
    checked,
    descriptor,
    product,
    refused,
    shared_bytes,
    tma_takes,
    transposed,
)
from kernels.ops.matmul.matmul_epilogue import finished
from kernels.ops.matmul.matmul_layer_norm import rows_at
from kernels.ops.shared.activations import PLAIN, known
from kernels.ops.shared.rows import rows_of
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant, multiprocessors

tuner = Tuner("fused_mlp")
WIDEST = 256
"""Columns of the hidden layer: with 64 rows, 128 accumulators a thread of 128, and the second product's as well."""


def reference(
    x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, activation: str = "relu", b1: torch.Tensor | None = None,
    b2: torch.Tensor | None = None, residual: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """What is computed, in plain PyTorch."""
    hidden = PLAIN[activation](x @ w1 if b1 is None else x @ w1 + b1)
    y = hidden @ w2
    if b2 is not None:
        y = y + b2
    return y if residual is None else y + residual


@triton.jit
def hidden_of(
    acc, b1, row, M, H, dtype: tl.constexpr, BM: tl.constexpr, BH: tl.constexpr, BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr, SHORT: tl.constexpr, WHOLE_H: tl.constexpr,
):  # fmt: skip
    """The first product's rows, finished and rounded: the second's operand. Beyond H it is 0, whatever X holds."""
    h = finished(acc, b1, b1, b1, row, 0, M, H, 0, 0, BM, BH, BIAS, ACTIVATION, False, False, SHORT)
    if not WHOLE_H:
        h = tl.where(tl.arange(0, BH)[None, :] < H, h, 0.0)
    return h.to(dtype)


@triton.jit
def stored(
    acc, y, b2, residual, row, col, M, N, y_row, residual_row, BM: tl.constexpr, BN: tl.constexpr, BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr, SHORT: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """The second product's tile with what is added, into y. TMA: y is a descriptor of such a tile."""
    z = finished(
        acc, b2, b2, residual, row, col, M, N, 0, residual_row, BM, BN, BIAS, "none", False, RESIDUAL, SHORT
    )  # fmt: skip
    if TMA:
        y.store([row, col], z.to(y.dtype))
    else:
        rows = (row + tl.arange(0, BM)).to(tl.int64)[:, None]
        cols = (col + tl.arange(0, BN))[None, :]
        tl.store(y + rows * y_row + cols, z.to(y.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def matrix_at(w, col, ROWS, COLUMNS, w_row, w_col, BR: tl.constexpr, BC: tl.constexpr):
    """BC columns of a matrix from `col` on, all of its rows; 0 outside of it."""
    rows = tl.arange(0, BR)[:, None]
    cols = (col + tl.arange(0, BC))[None, :]
    at = w + rows.to(tl.int64) * w_row + cols.to(tl.int64) * w_col
    return tl.load(at, mask=(rows < ROWS) & (cols < COLUMNS), other=0.0)


@triton.jit
def fused_mlp_resident(
    x, w1, w2, y, b1, b2, residual, M, K, H, N, x_row, x_col, w1_row, w1_col, w2_row, w2_col, y_row, residual_row,
    BM: tl.constexpr, BK: tl.constexpr, BH: tl.constexpr, BN: tl.constexpr, TMA: tl.constexpr, X_T: tl.constexpr,
    EVEN_K: tl.constexpr, WHOLE_H: tl.constexpr, BIAS1: tl.constexpr, BIAS2: tl.constexpr, RESIDUAL: tl.constexpr,
    ACTIVATION: tl.constexpr, SHORT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """BM rows at a time, both weights held; loads of the next rows are under way. TMA: x and y are descriptors."""
    first = matrix_at(w1, 0, K, H, w1_row, w1_col, BK, BH)
    second = matrix_at(w2, 0, H, N, w2_row, w2_col, BH, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM), tl.num_programs(0)):
        row = tile * BM
        if TMA:
            if X_T:
                rows = x.load([0, row]).T
            else:
                rows = x.load([row, 0])
        else:
            rows = rows_at(x, row, M, K, x_row, x_col, BM, BK, EVEN_K)
        acc = tl.dot(rows, first, input_precision=PRECISION)
        h = hidden_of(acc, b1, row, M, H, first.dtype, BM, BH, BIAS1, ACTIVATION, SHORT, WHOLE_H)
        acc = tl.dot(h, second, input_precision=PRECISION)
        stored(acc, y, b2, residual, row, 0, M, N, y_row, residual_row, BM, BN, BIAS2, RESIDUAL, SHORT, TMA)


@triton.jit
def fused_mlp_kernel(
    x, w1, w2, y, b1, b2, residual, M, K, H, N, x_row, x_col, w1_row, w1_col, w2_row, w2_col, y_row, residual_row,
    BM: tl.constexpr, BK: tl.constexpr, BH: tl.constexpr, BN: tl.constexpr, TMA: tl.constexpr, X_T: tl.constexpr,
    W1_T: tl.constexpr, W2_T: tl.constexpr, EVEN_K: tl.constexpr, WHOLE_H: tl.constexpr, BIAS1: tl.constexpr,
    BIAS2: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, SHORT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """BM rows of Y, BN columns at a time. TMA: x, w1, w2 and y are descriptors.

    The last columns come first: a residual that is X lies in L2 there, where this program has read it last (60 us and
    then 54 for 8,192 rows of 2,048, 127 and 124 for 16,384 of 4,096, which are larger than L2).
    """
    row = tl.program_id(0) * BM
    acc = product(
        x, w1, row, 0, M, H, K, x_row, x_col, w1_row, w1_col, BM, BH, BK, TMA, X_T, W1_T, EVEN_K, PRECISION
    )  # fmt: skip
    dtype: tl.constexpr = w1.dtype if TMA else w1.dtype.element_ty
    h = hidden_of(acc, b1, row, M, H, dtype, BM, BH, BIAS1, ACTIVATION, SHORT, WHOLE_H)
    for done in tl.range(0, N, BN):
        col = (tl.cdiv(N, BN) - 1) * BN - done
        if TMA:
            if W2_T:
                w = w2.load([col, 0]).T
            else:
                w = w2.load([0, col])
        else:
            w = matrix_at(w2, col, H, N, w2_row, w2_col, BH, BN)
        z = tl.dot(h, w, input_precision=PRECISION)
        stored(z, y, b2, residual, row, col, M, N, y_row, residual_row, BM, BN, BIAS2, RESIDUAL, SHORT, TMA)


def _power(n: int) -> int:
    return max(16, int(triton.next_power_of_2(n)))


def _epilogue(
    b1: torch.Tensor | None, activation: str, b2: torch.Tensor | None, residual: torch.Tensor | None,
    dtype: torch.dtype,
) -> tuple[tuple[str, Any], ...]:  # fmt: skip
    return (
        ("BIAS1", b1 is not None), ("BIAS2", b2 is not None), ("RESIDUAL", residual is not None),
        ("ACTIVATION", activation), ("SHORT", dtype != torch.float32),
    )  # fmt: skip


def space(
    x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, epilogue: tuple[tuple[str, Any], ...], tma: bool,
    precision: str = "ieee",
) -> list[Variant]:  # fmt: skip
    """Variants worth timing, the likeliest first. epilogue: the constants of what is not a product; tma: whether TMA
    takes X, both weights and the result.
    """
    (m, k), (h, n), size = x.shape, w2.shape, x.element_size()
    bh = _power(h)
    fit = (("WHOLE_H", h == bh), ("PRECISION", precision), *epilogue)
    names = ("BM", "BK", "BN", "TMA")

    def resident(bm: int, warps: int, stages: int, described: bool = False) -> Variant:
        bk, bn = _power(k), _power(n)
        constants: tuple[tuple[str, Any], ...] = (
            ("BM", bm), ("BK", bk), ("BH", bh), ("BN", bn), ("TMA", described), ("X_T", described and transposed(x)),
            ("EVEN_K", k == bk), *fit,
        )  # fmt: skip
        weights = (bk * bh + bh * bn) * size
        shared = weights + (stages * bm * bk + bm * bn) * size
        held = bm * (max(bh, bn) + bh // 2) // (32 * warps)
        return Variant(fused_mlp_resident, constants, warps, stages, names, shared, held + 48)

    def walk(bm: int, bk: int, bn: int, warps: int, stages: int, described: bool = False) -> Variant:
        bn = min(bn, _power(n))
        turned = [described and transposed(t) for t in (x, w1, w2)]
        constants: tuple[tuple[str, Any], ...] = (
            ("BM", bm), ("BK", bk), ("BH", bh), ("BN", bn), ("TMA", described), ("X_T", turned[0]), ("W1_T", turned[1]),
            ("W2_T", turned[2]), ("EVEN_K", k % bk == 0), *fit,
        )  # fmt: skip
        # The stages of the first product, then those of the second.
        shared = max(shared_bytes(bm, bh, bk, stages, size), (stages * bh * bn + bm * bn) * size)
        held = bm * (max(bh, bn) + bh // 2) // (32 * warps)
        return Variant(fused_mlp_kernel, constants, warps, stages, names, shared, held + 64)

    kept = 0 < k <= WIDEST and n <= WIDEST
    if size == 4:
        variants = [walk(32, 32, 32, 4, 2), walk(16, 32, 32, 4, 3), walk(64, 16, 32, 8, 2)]
        return [*([resident(16, 4, 2)] if kept and bh * (k + n) <= 16384 else []), *variants]
    rows = 16 if m <= 132 * 16 else 32 if m <= 132 * 32 else 64
    variants = [walk(rows, 64, 128, 4, 4), walk(rows, 64, 128, 8, 3), walk(rows, 64, 64, 4, 3)]
    if tma and rows == 64:
        variants = [
            walk(64, 128, 128, 4, 4, True),
            walk(64, 64, 128, 4, 5, True),
            walk(64, 64, 128, 4, 4, True),
            *variants,
        ]
    if kept:
        # Stages of 16 KiB of rows each: with two, a program waits for memory (99 us where with four it took 76).
        warps = 4 if bh <= 128 and n <= 128 else 8
        first = [resident(64, warps, 4), resident(128, 8, 3), resident(64, warps, 2)]
        if tma:
            described = [resident(128, 8, 4, True), resident(128, warps, 4, True), resident(64, warps, 4, True)]
            first = [*described, resident(64, warps, 2, True), resident(128, 8, 3, True), *first]
        variants = [*first, *variants[-2:]]
    variants = [v for v in variants if v.shared_bytes <= SHARED_KIB["sm_90"] * 1024]
    # The least of GPUs has 64 KiB.
    return variants if min(v.shared_bytes for v in variants) <= 65536 else [*variants, walk(16, 32, 32, 4, 2)]


def launch(
    variant: Variant, x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, y: torch.Tensor, b1: torch.Tensor | None,
    b2: torch.Tensor | None, residual: torch.Tensor | None,
) -> None:  # fmt: skip
    """Run one variant on X [M, K], W1 [K, H] and W2 [H, N] into Y [M, N]; rows of Y and residual are contiguous."""
    (m, k), (h, n) = x.shape, w2.shape
    bm, bk, bh, bn = (variant[c] for c in ("BM", "BK", "BH", "BN"))
    tiles = triton.cdiv(m, bm)
    epilogue = (x if t is None else t for t in (b1, b2, residual))
    strides = (*x.stride(), *w1.stride(), *w2.stride(), y.stride(0), 0 if residual is None else residual.stride(0))
    operands: tuple[Any, ...] = (x, w1, w2, y)
    if variant.kernel is fused_mlp_resident:
        # As many as are resident at once: the weights are loaded once for each.
        each = max(1, min(232448 // (variant.shared_bytes + 1024), 65536 // (32 * variant.warps * variant.registers)))
        if variant["TMA"]:
            operands = (descriptor(x, (bm, bk)), w1, w2, descriptor(y, (bm, bn)))
        grid = (min(tiles, multiprocessors(x.device) * each),)
        fused_mlp_resident[grid](*operands, *epilogue, m, k, h, n, *strides, **variant.meta)
        return
    if variant["TMA"]:
        blocks = ((bm, bk), (bk, bh), (bh, bn), (bm, bn))
        operands = tuple(descriptor(t, block) for t, block in zip(operands, blocks, strict=True))
    fused_mlp_kernel[(tiles,)](*operands, *epilogue, m, k, h, n, *strides, **variant.meta)


def fused_mlp(
    x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, activation: str = "relu", b1: torch.Tensor | None = None,
    b2: torch.Tensor | None = None, residual: torch.Tensor | None = None, precision: str = "ieee",
) -> torch.Tensor:  # fmt: skip
    """activation(X [..., K] @ W1 [K, H] + b1 [H]) @ W2 [H, N] + b2 [N] + residual [..., N], H at most 256.

    The residual has as many rows as X, in axes of its own. All of one dtype, f32, f16 or bf16, weights in any strides;
    computed in f32, the hidden rows rounded to the dtype. activation: "relu", "gelu", "gelu_tanh" or "silu". precision:
    of products of f32. Raises TypeError for other dtypes, ValueError for shapes that do not fit.
    """
    known(activation)
    if x.dim() == 0:
        raise ValueError("fused_mlp takes rows, not a single number")
    rows = x if x.dim() == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    m, h, _ = checked(rows, w1, precision, "fused_mlp")
    if w2.dtype != x.dtype:
        raise TypeError(f"fused_mlp takes weights alike, not {w1.dtype} and {w2.dtype}")
    if w2.dim() != 2 or w2.shape[0] != h or w2.device != x.device:
        raise ValueError(f"w2 is {[*w2.shape]} on {w2.device}, the hidden layer has {h} columns on {x.device}")
    if h > WIDEST:
        raise ValueError(f"fused_mlp takes up to {WIDEST} hidden columns, not {h}")
    n = w2.shape[1]
    residual = None if residual is None else rows_of(residual)
    for name, t, shape in (("b1", b1, (h,)), ("b2", b2, (n,)), ("residual", residual, (m, n))):
        if t is not None and (t.shape != shape or t.device != x.device):
            raise ValueError(f"{name} is {[*t.shape]} on {t.device}, not {[*shape]} on {x.device}")
        if t is not None and t.dtype != x.dtype:
            raise TypeError(f"{name} is {t.dtype}, the product {x.dtype}")
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y.view(*x.shape[:-1], n)
    if h == 0:  # no products: what is added is left
        y.zero_()
        for t in (b2, residual):
            y = y if t is None else y + t
        return y.view(*x.shape[:-1], n)
    b1, b2 = (None if b is None else b.contiguous() for b in (b1, b2))
    tma = min(rows.shape[1], h) > 0 and tma_takes(rows, w1, w2, y)
    epilogue = _epilogue(b1, activation, b2, residual, x.dtype)
    strides = (min(s, 2) for t in (rows, w1, w2) for s in t.stride())
    key = (m, h, n, rows.shape[1], x.dtype, precision, tma, *epilogue, *strides)
    variant = tuner.pick(
        key, lambda: space(rows, w1, w2, epilogue, tma, precision), launch, rows, w1, w2, y, b1, b2, residual
    )  # fmt: skip
    launch(variant, rows, w1, w2, y, b1, b2, residual)
    return y.view(*x.shape[:-1], n)


def inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try it on. transposed: of both weights the columns are contiguous, as nn.Linear keeps them."""
    m, k, h, n, dtype = c["m"], c["k"], c["h"], c["n"], c.torch_dtype

    def weight(rows: int, columns: int) -> torch.Tensor:
        scale = max(rows, 1) ** -0.5
        if c.get("transposed"):
            return make.normal((columns, rows), dtype, scale).T
        return make.normal((rows, columns), dtype, scale)

    x, w1, w2 = make.normal((m, k), dtype), weight(k, h), weight(h, n)
    b1, b2 = (make.normal((size,), dtype) if c.get("bias") else None for size in (h, n))
    residual = make.normal((m, n), dtype) if c.get("residual") else None
    return x, w1, w2, c.get("activation", "relu"), b1, b2, residual


def cost(c: Case) -> Cost:
    """Every matrix once."""
    m, k, h, n = c["m"], c["k"], c["h"], c["n"]
    elements = m * (k + n) + h * (k + n) + m * n * bool(c.get("residual")) + (h + n) * bool(c.get("bias"))
    return Cost(elements * c.itemsize, 2 * m * h * (k + n))


def _meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device="meta")


def _build(v: Variant) -> Build:
    """A variant as it is compiled offline: bf16, rows contiguous, sizes multiples of 16."""
    described = v["TMA"]
    bm, bk, bh, bn = (v[c] for c in ("BM", "BK", "BH", "BN"))
    walks = v.kernel is fused_mlp_kernel
    blocks = {"x": (bm, bk), "y": (bm, bn)} | ({"w1": (bk, bh), "w2": (bh, bn)} if walks else {})
    far, near = ("x_row", "w1_row", "w2_row"), ("x_col", "w1_col", "w2_col")
    pointers = {
        p: f"tensordesc<bf16[{blocks[p][0]},{blocks[p][1]}]>" if described and p in blocks else "*bf16"
        for p in ("x", "w1", "w2", "y", "b1", "b2", "residual")
    }
    integers = ("M", "K", "H", "N", *far, "y_row", "residual_row")
    # AMD's compiler keeps a stage in registers; what it makes is on record.
    without = refused(described, {t: 0 if t == "gfx942" else v.shared_bytes for t in SHARED_KIB})
    ones = tuple((name, 1) for name in near)
    return Build(
        replace(v, constants=v.constants + ones), pointers | dict.fromkeys(integers, "i32"), integers, without
    )  # fmt: skip


RELU = _epilogue(None, "relu", None, None, torch.bfloat16)
SMALL = space(_meta(131072, 128), _meta(128, 128), _meta(128, 128), RELU, True)
ADAPTER = space(
    _meta(32768, 4096), _meta(4096, 64), _meta(64, 4096),
    (("BIAS1", True), ("BIAS2", True), ("RESIDUAL", True), ("ACTIVATION", "gelu"), ("SHORT", True)), True,
)  # fmt: skip

OPERATIONS = (
    Operation(
        name="fused_mlp", run=fused_mlp, reference=reference, inputs=inputs, cost=cost,
        beyond=case("bf16", m=4_200_000, k=64, h=32, n=512),
        checks=(
            *(case("f16", m=33, k=40, h=24, n=70, activation=name, bias=1) for name in PLAIN),
            *(case("f32", m=40, k=35, h=33, n=20, activation=name, residual=1) for name in ("relu", "gelu", "silu")),
            case("f16", m=70, k=72, h=48, n=136, transposed=1, bias=1, residual=1),
            case("f16", m=150, k=64, h=64, n=64), case("f16", m=1, k=1, h=1, n=1),
            case("f16", m=5, k=0, h=7, n=3, bias=1), case("f16", m=0, k=7, h=3, n=2), case("f16", m=3, k=2, h=5, n=0),
            case("f16", m=5, k=300, h=0, n=3, bias=1, residual=1),
            case("f16", m=40, k=300, h=24, n=312, activation="gelu_tanh"),
            case("bf16", m=130, k=128, h=128, n=128, activation="silu"), case("bf16", m=64, k=600, h=256, n=520),
        ),
        cases=(
            case("f16", region="tiny_hidden_fused_mlp", m=1048576, k=64, h=64, n=64),
            case("bf16", m=524288, k=128, h=128, n=128, activation="gelu", bias=1),
            case("bf16", m=262144, k=32, h=128, n=32, activation="silu"),
            case("bf16", m=16384, k=4096, h=64, n=4096, activation="gelu", bias=1, residual=1, transposed=1),
        ),
        builds=tuple(_build(v) for v in (SMALL[0], SMALL[2], SMALL[5], ADAPTER[0], ADAPTER[1], ADAPTER[3])),
        wrong_interpreted=("bf16",),
    ),
)  # fmt: skip
