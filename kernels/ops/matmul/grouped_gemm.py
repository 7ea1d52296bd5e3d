"""Products of groups of rows, each with a matrix of its own, as in a mixture of experts: Y[i] = X[i] @ W[e(i)].

Rows i are sorted by expert e; offsets [E + 1] say where each begins. Two things that come before and after in a layer
are part of the product: rows are read from where they are (X[source[i]]: tokens need not be copied k times, sorted),
and written where they belong, times a weight (Y[target[i]] = weight[i] * ...: in the tokens' order again, so that what
is left is a sum over k neighbours). Every row is written once, the result is the same in every run; no atomics.

Traffic: the rows of X once, W of every expert that has a row once, Y once; 2 T K N floating-point operations. With
T / E rows an expert, every number of W is worth T / E multiply-adds: bandwidth binds below some 200 to 300, as in
decoding.

How many tiles an expert has only the device knows. Every program reads the offsets, adds up the tiles and finds its own
among them: nothing waits for the host. The gradient of X is the same product by W transposed; that of W walks over the
rows of one expert, [K, N] tile by tile.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.ops.matmul.gemm import DTYPES, SHARED_KIB, refused, shared_bytes, tile_at, tma_takes
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant, multiprocessors

tuner = Tuner("grouped_gemm")
gradient_tuner = Tuner("grouped_gemm_weight_gradient")
INDICES = (torch.int32, torch.int64)
MOST_EXPERTS = 1024


def _placed(rows: torch.Tensor, target: torch.Tensor | None) -> torch.Tensor:
    return rows if target is None else torch.empty_like(rows).index_copy_(0, target.long(), rows)


def reference(
    x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor, source: torch.Tensor | None = None,
    target: torch.Tensor | None = None, weight: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """What is computed, in plain PyTorch: a product for each expert."""
    x = x if source is None else x[source.long()]
    ends = offsets.tolist()
    y = torch.cat([x[a:b] @ w[e] for e, (a, b) in enumerate(pairwise(ends))])
    if weight is not None:
        y = (wide(y) * wide(weight)[:, None]).to(y.dtype)
    return _placed(y, target)


def reference_backward(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor, source: torch.Tensor | None = None,
    target: torch.Tensor | None = None, weight: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradients of the rows, in their sorted order, and of W."""
    x = x if source is None else x[source.long()]
    dy = dy if target is None else dy[target.long()]
    dy = dy if weight is None else (wide(dy) * wide(weight)[:, None]).to(dy.dtype)
    ends = offsets.tolist()
    spans = list(pairwise(ends))
    dx = torch.cat([dy[a:b] @ w[e].T for e, (a, b) in enumerate(spans)])
    return dx, torch.stack([x[a:b].T @ dy[a:b] for a, b in spans])


@triton.jit
def tiles_until(offsets, E, BM: tl.constexpr, EXPERTS: tl.constexpr):
    """How many tiles of BM rows the experts up to each have, [EXPERTS]."""
    e = tl.arange(0, EXPERTS)
    first = tl.load(offsets + e, mask=e < E, other=0).to(tl.int32)
    last = tl.load(offsets + e + 1, mask=e < E, other=0).to(tl.int32)
    return tl.cumsum((last - first + BM - 1) // BM, 0)


@triton.jit
def rows_of_tile(until, offsets, tile, BM: tl.constexpr):
    """(expert, first row, end of the expert's rows) of a tile of rows."""
    expert = tl.sum((until <= tile).to(tl.int32), 0)
    before = tl.max(tl.where(until <= tile, until, 0), 0)
    first = tl.load(offsets + expert).to(tl.int32) + (tile - before) * BM
    return expert, first, tl.load(offsets + expert + 1).to(tl.int32)


@triton.jit
def grouped_gemm_kernel(
    x, w, y, offsets, source, target, weight, T, N, K, E, x_row, x_col, w_expert, w_row, w_col, y_row, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, EXPERTS: tl.constexpr, FLATTEN: tl.constexpr,
    TMA: tl.constexpr, W_T: tl.constexpr, GATHER: tl.constexpr, SCATTER: tl.constexpr, WEIGHTED: tl.constexpr,
    EVEN_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Tiles BM x BN of the rows of one expert. TMA: w is a descriptor of [E K, N], or of [E N, K] where W_T, and x one
    of its rows where they are not gathered.
    """
    until = tiles_until(offsets, E, BM, EXPERTS)
    down = tl.max(until, 0)
    tiles = down * tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        at_row, col = tile_at(tile, down * BM, N, BM, BN, GROUP_M)
        expert, first, last = rows_of_tile(until, offsets, at_row // BM, BM)
        rows = first + tl.arange(0, BM)
        inside = rows < last
        # Rows of the next expert are computed with, and not stored.
        near = tl.minimum(rows, T - 1)
        of = (tl.load(source + near) if GATHER else near).to(tl.int64)
        cols = ((col + tl.arange(0, BN)) % N).to(tl.int64)
        ks = tl.arange(0, BK)
        acc = tl.zeros((BM, BN), tl.float32)
        if not TMA or GATHER:
            at_x = x + of[:, None] * x_row + ks[None, :].to(tl.int64) * x_col
        if not TMA:
            at_w = w + expert.to(tl.int64) * w_expert + ks[:, None].to(tl.int64) * w_row + cols[None, :] * w_col
        for k in range(0, K, BK):
            if TMA and not GATHER:
                a = x.load([first, k])
            else:
                if EVEN_K:
                    a = tl.load(at_x)
                else:
                    a = tl.load(at_x, mask=ks[None, :] < K - k, other=0.0)
                at_x += BK * tl.cast(x_col, tl.int64)
            if TMA:
                if W_T:
                    b = w.load([expert * N + col, k]).T
                else:
                    b = w.load([expert * K + k, col])
            else:
                if EVEN_K:
                    b = tl.load(at_w)
                else:
                    b = tl.load(at_w, mask=ks[:, None] < K - k, other=0.0)
                at_w += BK * tl.cast(w_row, tl.int64)
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
        if WEIGHTED:
            acc *= tl.load(weight + near).to(tl.float32)[:, None]
        into = (tl.load(target + near) if SCATTER else near).to(tl.int64)
        columns = col + tl.arange(0, BN)
        tl.store(
            y + into[:, None] * y_row + columns[None, :], acc.to(y.dtype.element_ty),
            mask=inside[:, None] & (columns < N)[None, :],
        )  # fmt: skip


@triton.jit
def weight_gradient_kernel(
    x, dy, dw, offsets, source, target, weight, N, K, x_row, x_col, d_row, d_col, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, GROUP_M: tl.constexpr, GATHER: tl.constexpr, SCATTER: tl.constexpr, WEIGHTED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """A tile BM x BN of one expert's dW [K, N]: over its rows, BK at a time."""
    row, col = tile_at(tl.program_id(0), K, N, BM, BN, GROUP_M)
    expert = tl.program_id(1)
    first = tl.load(offsets + expert).to(tl.int32)
    last = tl.load(offsets + expert + 1).to(tl.int32)
    of_x = ((row + tl.arange(0, BM)) % K).to(tl.int64) * x_col
    of_d = ((col + tl.arange(0, BN)) % N).to(tl.int64) * d_col
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(first, last, BK):
        i = start + tl.arange(0, BK)
        inside = i < last
        at_x = (tl.load(source + i, mask=inside, other=0) if GATHER else i).to(tl.int64)
        at_d = (tl.load(target + i, mask=inside, other=0) if SCATTER else i).to(tl.int64)
        a = tl.load(x + at_x[None, :] * x_row + of_x[:, None], mask=inside[None, :], other=0.0)
        b = tl.load(dy + at_d[:, None] * d_row + of_d[None, :], mask=inside[:, None], other=0.0)
        if WEIGHTED:
            share = tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
            b = (b.to(tl.float32) * share[:, None]).to(dy.dtype.element_ty)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    rows = (row + tl.arange(0, BM)).to(tl.int64)[:, None]
    cols = (col + tl.arange(0, BN))[None, :]
    into = dw + expert.to(tl.int64) * K * N + rows * N + cols
    tl.store(into, acc.to(dw.dtype.element_ty), mask=(rows < K) & (cols < N))


@triton.jit
def weigh_rows_kernel(
    d, x, source, weight, made, K, d_row, x_row, x_col, BLOCK: tl.constexpr, GATHER: tl.constexpr
):  # fmt: skip
    """One row i: made[i] = D[i] . X[source[i]], D[i] *= weight[i]."""
    row = tl.program_id(0).to(tl.int64)
    of = tl.load(source + row).to(tl.int64) if GATHER else row
    share = tl.load(weight + row).to(tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, K, BLOCK):
        col = k + tl.arange(0, BLOCK)
        mine = tl.load(d + row * d_row + col, mask=col < K, other=0.0).to(tl.float32)
        total += mine * tl.load(x + of * x_row + col.to(tl.int64) * x_col, mask=col < K, other=0.0).to(tl.float32)
        tl.store(d + row * d_row + col, (mine * share).to(d.dtype.element_ty), mask=col < K)
    tl.store(made + row, tl.sum(total, 0).to(made.dtype.element_ty))


def _power(n: int) -> int:
    return max(16, int(triton.next_power_of_2(n)))


def stacked(w: torch.Tensor) -> torch.Tensor | None:
    """W [E, K, N] as one matrix: [E K, N], or [E N, K] where its columns are contiguous; None where it is neither."""
    for turned in (w, w.mT):
        if turned.is_contiguous():
            return turned.reshape(-1, turned.shape[-1])
    return None


Flags = tuple[tuple[str, Any], ...]


def space(t: int, w: torch.Tensor, flags: Flags, tma: bool, precision: str = "ieee") -> list[Variant]:
    """Variants worth timing for T rows and W [E, K, N], the likeliest first. flags: GATHER, SCATTER, WEIGHTED; tma:
    whether TMA takes W, and X where it is not gathered.
    """
    (e, k, n), size = w.shape, w.element_size()
    each = triton.cdiv(t, e)

    def tile(
        bm: int, bn: int, bk: int, warps: int, stages: int, described: bool = False, flat: bool = False, group: int = 8
    ) -> Variant:
        bn = min(bn, _power(n))
        constants: tuple[tuple[str, Any], ...] = (
            ("BM", bm), ("BN", bn), ("BK", bk), ("GROUP_M", group), ("EXPERTS", _power(e)), ("FLATTEN", flat),
            ("TMA", described), ("W_T", described and not w.is_contiguous()), *flags, ("EVEN_K", k % bk == 0),
            ("PRECISION", precision),
        )  # fmt: skip
        shared = shared_bytes(bm, bn, bk, stages, size, bm * bn if flat else 0) + 4 * _power(e)
        return Variant(
            grouped_gemm_kernel, constants, warps, stages, ("BM", "BN", "BK", "GROUP_M", "FLATTEN", "TMA"), shared,
            bm * bn // (32 * warps) + 64,
        )  # fmt: skip

    if size == 4:
        return [tile(32, 64, 32, 4, 3), tile(64, 64, 32, 4, 3), tile(16, 64, 32, 4, 3), tile(128, 64, 32, 4, 3)]
    tma = tma and (k % 64 == 0 or not w.is_contiguous())  # or K's last rows would be those of the next expert
    if each <= 32:
        bm = 16 if each <= 16 else 32
        few = [tile(bm, 64, 128, 4, 4), tile(bm, 128, 64, 4, 4), tile(bm, 128, 128, 4, 3), tile(64, 128, 64, 4, 4)]
        described = [tile(bm, 128, 64, 4, 5, True), tile(bm, 128, 128, 4, 3, True), tile(64, 128, 64, 4, 4, True)]
        return [*(v for v in (described if tma else ()) if k % v["BK"] == 0 or v["W_T"]), *few]
    plain = [tile(64, 128, 64, 4, 4), tile(128, 128, 64, 8, 3), tile(128, 128, 64, 4, 3), tile(64, 256, 64, 8, 3)]
    if each > 256:
        plain = [tile(128, 256, 64, 8, 3), *plain]
    if not tma:
        return plain
    described = [tile(128, 128, 64, 4, 4, True), tile(64, 128, 64, 4, 4, True), tile(128, 128, 64, 8, 4, True, True)]
    if each > 128:
        described = [tile(128, 256, 64, 8, 4, True, True), tile(128, 256, 64, 8, 4, True), *described,
                     tile(128, 256, 64, 8, 3, True, True, 16)]  # fmt: skip
    return [*described, *plain]


def gradient_space(e: int, n: int, k: int, t: int, size: int, flags: Flags, precision: str = "ieee") -> list[Variant]:
    """Variants of the weights' gradient."""

    def tile(bm: int, bn: int, bk: int, warps: int, stages: int) -> Variant:
        bm, bn = min(bm, _power(k)), min(bn, _power(n))
        constants = (("BM", bm), ("BN", bn), ("BK", bk), ("GROUP_M", 8), *flags, ("PRECISION", precision))
        shared = shared_bytes(bm, bn, bk, stages, size)
        return Variant(
            weight_gradient_kernel, constants, warps, stages, ("BM", "BN", "BK"), shared, bm * bn // (32 * warps) + 64
        )  # fmt: skip

    if size == 4:
        return [tile(64, 64, 32, 4, 3), tile(64, 64, 16, 4, 3), tile(32, 64, 32, 4, 3)]
    return [tile(128, 256, 64, 8, 3), tile(128, 128, 64, 8, 3), tile(128, 128, 64, 4, 3), tile(128, 128, 32, 4, 4),
            tile(64, 128, 64, 4, 3)]  # fmt: skip


def launch(
    variant: Variant, x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, offsets: torch.Tensor,
    source: torch.Tensor | None, target: torch.Tensor | None, weight: torch.Tensor | None,
) -> None:  # fmt: skip
    """Run one variant on the rows of X and W [E, K, N] into Y [T, N], whose rows are contiguous."""
    (e, k, n), t = w.shape, y.shape[0]
    bm, bn, bk = variant["BM"], variant["BN"], variant["BK"]
    # No expert has more than one tile that is not full.
    tiles = (t // bm + min(e, t)) * triton.cdiv(n, bn)
    grid = (min(tiles, multiprocessors(x.device)),) if variant["FLATTEN"] else (tiles,)
    rows, weights = (x, w) if not variant["TMA"] else _described(variant, x, w, (bm, bn, bk))
    given = tuple(offsets if i is None else i for i in (source, target, weight))
    grouped_gemm_kernel[grid](
        rows, weights, y, offsets, *given, t, n, k, e, *x.stride(), *w.stride(), y.stride(0), **variant.meta
    )  # fmt: skip


def _described(variant: Variant, x: torch.Tensor, w: torch.Tensor, block: tuple[int, int, int]) -> tuple[Any, Any]:
    from triton.tools.tensor_descriptor import TensorDescriptor

    (bm, bn, bk), matrix = block, stacked(w)
    assert matrix is not None
    sizes = [bn, bk] if variant["W_T"] else [bk, bn]
    weights = TensorDescriptor(matrix, list(matrix.shape), list(matrix.stride()), sizes)
    if variant["GATHER"]:
        return x, weights
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [bm, bk]), weights


def launch_gradient(
    variant: Variant, x: torch.Tensor, dy: torch.Tensor, dw: torch.Tensor, offsets: torch.Tensor,
    source: torch.Tensor | None, target: torch.Tensor | None, weight: torch.Tensor | None,
) -> None:  # fmt: skip
    """Run one variant on the rows of X and dY into dW [E, K, N], contiguous."""
    e, k, n = dw.shape
    given = tuple(offsets if i is None else i for i in (source, target, weight))
    weight_gradient_kernel[(triton.cdiv(k, variant["BM"]) * triton.cdiv(n, variant["BN"]), e)](
        x, dy, dw, offsets, *given, n, k, *x.stride(), *dy.stride(), **variant.meta
    )  # fmt: skip


def _checked(
    x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor, source: torch.Tensor | None, target: torch.Tensor | None,
    weight: torch.Tensor | None,
) -> int:  # fmt: skip
    """T. Raises TypeError, ValueError."""
    if x.dtype != w.dtype or x.dtype not in DTYPES:
        raise TypeError(f"grouped_gemm takes two of f32, f16 or bf16 alike, not {x.dtype} and {w.dtype}")
    if x.dim() != 2 or w.dim() != 3 or x.shape[1] != w.shape[1]:
        raise ValueError(f"grouped_gemm takes rows [T, K] and [E, K, N], not {[*x.shape]} and {[*w.shape]}")
    wrong = [i.dtype for i in (offsets, source, target) if i is not None and i.dtype not in INDICES]
    if wrong:
        raise TypeError(f"offsets, source and target are i32 or i64, not {wrong[0]}")
    if not 0 < w.shape[0] <= MOST_EXPERTS or offsets.shape != (w.shape[0] + 1,):
        raise ValueError(f"{w.shape[0]} experts of up to {MOST_EXPERTS} have one offset more, not {[*offsets.shape]}")
    t = x.shape[0] if source is None else source.shape[0]
    if any(i is not None and i.shape != (t,) for i in (source, target, weight)):
        raise ValueError(f"source, target and weight are one number for each of {t} rows")
    if weight is not None and weight.dtype not in DTYPES:
        raise TypeError(f"weight is f32, f16 or bf16, not {weight.dtype}")
    if any(i is not None and i.device != x.device for i in (w, offsets, source, target, weight)):
        raise ValueError(f"grouped_gemm takes tensors of one device, {x.device}")
    return t


def _flags(source: Any, target: Any, weight: Any) -> Flags:
    return (("GATHER", source is not None), ("SCATTER", target is not None), ("WEIGHTED", weight is not None))


def grouped_gemm(
    x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor, source: torch.Tensor | None = None,
    target: torch.Tensor | None = None, weight: torch.Tensor | None = None, precision: str = "ieee",
) -> torch.Tensor:  # fmt: skip
    """Y [T, N]: Y[target[i]] = weight[i] * (X[source[i]] @ W[e]) for every row i of expert e; f32, f16 or bf16.

    W [E, K, N] in any strides; offsets [E + 1], from 0 to T: expert e has the rows offsets[e] to offsets[e + 1], maybe
    none. source [T]: rows of X, which is [T, K] without; target [T]: every row of Y once, the rows' own without; weight
    [T], in f32, f16 or bf16. Accumulated in f32, rounded once. Raises TypeError for other dtypes, ValueError for shapes
    that do not fit. What offsets, source and target hold is not looked at.
    """
    t = _checked(x, w, offsets, source, target, weight)
    (e, k, n) = w.shape
    y = torch.empty((t, n), dtype=x.dtype, device=x.device)
    if y.numel() == 0 or k == 0:
        return y.zero_()
    offsets = offsets.contiguous()
    source, target, weight = (None if i is None else i.contiguous() for i in (source, target, weight))
    matrix, flags = stacked(w), _flags(source, target, weight)
    tma = matrix is not None and tma_takes(matrix) and (source is not None or (x.stride(1) == 1 and tma_takes(x)))
    key = (t, n, k, e, x.dtype, precision, tma, *flags, *(min(s, 2) for s in (*x.stride(), *w.stride()[1:])))
    variant = tuner.pick(
        key, lambda: space(t, w, flags, tma, precision), launch, x, w, y, offsets, source, target, weight,
        uncopied=(x, w, offsets, source, target, weight),
    )  # fmt: skip
    launch(variant, x, w, y, offsets, source, target, weight)
    return y


def grouped_mm(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """grouped_gemm as F.grouped_mm says it: ends [E], where the rows of each expert end, the last one's at T."""
    return grouped_gemm(x, w, with_start(ends))


def with_start(ends: torch.Tensor) -> torch.Tensor:
    """Offsets [E + 1] of groups that end at these."""
    return torch.nn.functional.pad(ends, (1, 0))


def grouped_gemm_backward(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor, source: torch.Tensor | None = None,
    target: torch.Tensor | None = None, weight: torch.Tensor | None = None, precision: str = "ieee",
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradients of `grouped_gemm` for its rows X[source[i]], [T, K] in their sorted order, and for W [E, K, N].

    dy [T, N] like Y. The gradient of X sums those of the rows that are the same one; that of weight `wanted_gradients`
    makes. Raises the errors of `grouped_gemm`.
    """
    dx, dw, _ = wanted_gradients(dy, x, w, offsets, source, target, weight, (True, True, False), precision)
    assert dx is not None and dw is not None
    return dx, dw


def wanted_gradients(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor, source: torch.Tensor | None,
    target: torch.Tensor | None, weight: torch.Tensor | None, wanted: tuple[bool, bool, bool], precision: str = "ieee",
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:  # fmt: skip
    """`grouped_gemm_backward`, and the gradient of weight [T]: of the three those that are wanted, else None.

    That of weight i is the row i of dY @ W^T, which the gradient of X is too but for the weight, times that of X: no
    product is made for it. Raises the errors of `grouped_gemm`.
    """
    t = _checked(x, w, offsets, source, target, weight)
    (e, k, n) = w.shape
    if dy.shape != (t, n) or dy.dtype != x.dtype or dy.device != x.device:
        raise ValueError(f"dy is {dy.dtype} {[*dy.shape]}, the result was {x.dtype} {[t, n]}")
    of_x, of_w, of_weight = wanted
    dx, dweight = None, None
    if weight is not None and of_weight:
        dx = grouped_gemm(dy, w.mT, offsets, target, None, None, precision)
        dweight = weigh_rows(dx, x, source, weight)
    elif of_x:
        dx = grouped_gemm(dy, w.mT, offsets, target, None, weight, precision)
    dx = dx if of_x else None
    if not of_w:
        return dx, None, dweight
    dw = torch.empty((e, k, n), dtype=w.dtype, device=w.device)
    if dw.numel() and t:
        offsets = offsets.contiguous()
        source, target, weight = (None if i is None else i.contiguous() for i in (source, target, weight))
        flags = _flags(source, target, weight)
        key = (t, n, k, e, x.dtype, precision, *flags, *(min(s, 2) for s in (*x.stride(), *dy.stride())))
        size = x.element_size()
        variant = gradient_tuner.pick(
            key, lambda: gradient_space(e, n, k, t, size, flags, precision), launch_gradient, x, dy, dw, offsets,
            source, target, weight, uncopied=(x, dy, offsets, source, target, weight),
        )  # fmt: skip
        launch_gradient(variant, x, dy, dw, offsets, source, target, weight)
    else:
        dw.zero_()
    return dx, dw, dweight


def weigh_rows(
    d: torch.Tensor, x: torch.Tensor, source: torch.Tensor | None, weight: torch.Tensor
) -> torch.Tensor:  # fmt: skip
    """D [T, K], in place, times weight [T]; before that its rows' products with X[source[i]], [T] like weight."""
    weight = weight.contiguous()
    source = None if source is None else source.contiguous()
    made = torch.empty_like(weight)
    if not d.numel():
        return made.zero_()
    variant = row_variant(source is not None)
    weigh_rows_kernel[(d.shape[0],)](
        d, x, weight if source is None else source, weight, made, d.shape[1], d.stride(0), *x.stride(), **variant.meta
    )
    return made


def row_variant(gather: bool) -> Variant:
    """Of the rows' products: bound by memory, nothing to choose."""
    return Variant(weigh_rows_kernel, (("BLOCK", 2048), ("GATHER", gather)), 4)


def _routed(c: Case, make: Maker) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(offsets, the pairs of a token and one of its experts sorted by expert, weights): "even", every expert as likely
    as another, or cut at random, with experts that have none.
    """
    t, e = c["t"], c["e"]
    if c.get("even"):
        chosen = make.integers(e, (t,))
        counts = torch.bincount(chosen, minlength=e)
        offsets = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
        pairs = chosen.argsort(stable=True)
    else:
        offsets = make.offsets(e, t)
        pairs = make.integers(1 << 30, (t,)).argsort(stable=True)
    return offsets.int(), pairs, make.normal((t,), torch.float32, 0.2, 0.5)


def inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try it on. t: rows, `top` of them a token; mode: "plain", "gather" from tokens, or "scatter", back
    to them with weights; turned: columns of W contiguous, as nn.Linear keeps them.
    """
    t, k, n, e, mode, top = c["t"], c["k"], c["n"], c["e"], c.get("mode", "plain"), c.get("top", 1)
    offsets, pairs, weight = _routed(c, make)
    tokens = triton.cdiv(t, top) if mode == "gather" else t
    x, size = make.normal((tokens, k), c.torch_dtype), max(k, 1) ** -0.5
    w = (
        make.normal((e, n, k), c.torch_dtype, size).mT
        if c.get("turned")
        else make.normal((e, k, n), c.torch_dtype, size)
    )
    gather, scatter = mode == "gather", mode == "scatter"
    return x, w, offsets, pairs // top if gather else None, pairs if scatter else None, weight if scatter else None


def inputs_backward(c: Case, make: Maker) -> tuple[Any, ...]:
    """The same, behind the result's gradient."""
    return make.normal((c["t"], c["n"]), c.torch_dtype), *inputs(c, make)


def _experts(c: Case) -> int:
    """With a row, at most."""
    return min(int(c["e"]), int(c["t"]))


def cost(c: Case) -> Cost:
    """Rows, results and the weights of experts that have a row once."""
    t, k, n = c["t"], c["k"], c["n"]
    tokens = triton.cdiv(t, c.get("top", 1)) if c.get("mode") == "gather" else t
    return Cost((tokens * k + t * n + _experts(c) * k * n) * c.itemsize, 2 * t * k * n)


def cost_backward(c: Case) -> Cost:
    """Both gradients of what was read and written."""
    t, k, n = c["t"], c["k"], c["n"]
    return Cost((2 * t * (k + n) + (_experts(c) + c["e"]) * k * n) * c.itemsize, 4 * t * k * n)


def _build(v: Variant) -> Build:
    """As compiled offline: bf16, W of nn.Linear's layout, sizes multiples of 16."""
    bm, bn, bk, described = v["BM"], v["BN"], v["BK"], v["TMA"]
    rows = f"tensordesc<bf16[{bm},{bk}]>" if described and not v["GATHER"] else "*bf16"
    signature = {
        "x": rows, "w": f"tensordesc<bf16[{bn},{bk}]>" if described else "*bf16", "y": "*bf16", "offsets": "*i32",
        "source": "*i64", "target": "*i64", "weight": "*fp32",
        **dict.fromkeys(("T", "N", "K", "E", "x_row", "x_col", "w_expert", "w_row", "w_col", "y_row"), "i32"),
    }  # fmt: skip
    held = {t: shared_bytes(bm, bn, bk, max(1, (v.stages or 1) - (t == "gfx942")), 2) for t in SHARED_KIB}
    ones = ("x_col", "w_row")
    near = Variant(
        v.kernel, (*v.constants, *((n, 1) for n in ones)), v.warps, v.stages, v.tuned, v.shared_bytes, v.registers
    )  # fmt: skip
    given = {n: s for n, s in signature.items() if n not in ones}
    return Build(near, given, ("T", "N", "K", "x_row", "w_expert", "w_col", "y_row"), refused(described, held))


def _gradient_build(v: Variant) -> Build:
    signature = {
        "x": "*bf16", "dy": "*bf16", "dw": "*bf16", "offsets": "*i32", "source": "*i64", "target": "*i64",
        "weight": "*fp32", **dict.fromkeys(("N", "K", "x_row", "d_row"), "i32"),
    }  # fmt: skip
    near = Variant(
        v.kernel, (*v.constants, ("x_col", 1), ("d_col", 1)), v.warps, v.stages, v.tuned, v.shared_bytes, v.registers
    )  # fmt: skip
    held = dict.fromkeys(SHARED_KIB, v.shared_bytes)
    held["gfx942"] = shared_bytes(v["BM"], v["BN"], v["BK"], max(1, (v.stages or 1) - 1), 2)
    return Build(near, signature, ("N", "K", "x_row", "d_row"), refused(False, held))


def _rows_build() -> Build:
    """The rows' products with weights in f32."""
    v = row_variant(True)
    near = replace(v, constants=(*v.constants, ("x_col", 1)))
    signature = {"d": "*bf16", "x": "*bf16", "source": "*i64", "weight": "*fp32", "made": "*fp32",
                 **dict.fromkeys(("K", "d_row", "x_row"), "i32")}  # fmt: skip
    return Build(near, signature, ("K", "d_row", "x_row"))


PLAIN, GATHER, SCATTER = _flags(None, None, None), _flags(1, None, None), _flags(None, 1, 1)
W = torch.empty((8, 28672, 4096), dtype=torch.bfloat16, device="meta").mT
CHECKS = (
    *(case(d, t=t, k=k, n=n, e=e, mode=m, top=2) for d in ("f32", "f16")
      for t, k, n, e, m in ((1, 1, 1, 1, "plain"), (70, 40, 33, 5, "plain"), (71, 40, 33, 5, "gather"),
                            (70, 33, 40, 7, "scatter"))),
    case("f16", t=200, k=128, n=72, e=3, turned=1), case("f16", t=40, k=64, n=64, e=20, mode="gather", top=4, even=1),
    case("f16", t=5, k=72, n=136, e=16, mode="scatter", turned=1), case("f16", t=0, k=8, n=8, e=3),
    case("bf16", t=64, k=64, n=64, e=4), case("f16", t=150, k=136, n=72, e=4, mode="scatter"),
)  # fmt: skip


def _routing(t: int, e: int, top: int, **sizes: int) -> dict[str, Any]:
    return {"t": t, "e": e, "top": top, "even": 1, "turned": 1, **sizes}


UP: tuple[dict[str, Any], ...] = (
    _routing(8192, 8, 2, k=4096, n=28672), _routing(32768, 32, 8, k=7168, n=4096),
    _routing(32768, 128, 8, k=2048, n=1536),
)  # fmt: skip
DOWN: tuple[dict[str, Any], ...] = (
    _routing(8192, 8, 2, k=14336, n=4096), _routing(32768, 32, 8, k=2048, n=7168),
    _routing(32768, 128, 8, k=768, n=2048),
)  # fmt: skip
"""Gate and up in one, and down, of 4,096 tokens: Mixtral 8x7B; DeepSeek V3 on 8 GPUs; Qwen 3 30B-A3B."""
OPERATIONS = (
    Operation(
        name="grouped_gemm", run=grouped_gemm, reference=reference, inputs=inputs, cost=cost,
        beyond=case("bf16", t=66_000, k=64, n=32768, e=1), checks=CHECKS,
        cases=(
            *(case("bf16", mode=m, **sizes) for pair in zip(UP, DOWN, strict=True)
              for m, sizes in zip(("gather", "scatter"), pair, strict=True)),
            case("bf16", **UP[0]), case("bf16", **UP[2]),
            case("bf16", mode="gather", **_routing(128, 8, 2, k=4096, n=28672)),
            case("bf16", mode="gather", **_routing(512, 128, 8, k=2048, n=1536)),
        ),
        builds=(
            *(_build(space(8192, W, PLAIN, True)[i]) for i in (0, 2)), _build(space(8192, W, GATHER, True)[1]),
            _build(space(8192, W, SCATTER, False)[1]), _build(space(128, W, GATHER, False)[0]),
        ),
        fixed=("e",), wrong_interpreted=("bf16",),
    ),
    Operation(
        name="grouped_gemm_backward", run=grouped_gemm_backward, reference=reference_backward, inputs=inputs_backward,
        cost=cost_backward, checks=CHECKS,
        cases=tuple(case("bf16", mode=m, **sizes) for pair in zip(UP[::2], DOWN[::2], strict=True)
                    for m, sizes in zip(("gather", "scatter"), pair, strict=True)),
        builds=(
            *(_gradient_build(gradient_space(8, 28672, 4096, 8192, 2, f)[i])
              for i, f in ((0, GATHER), (1, SCATTER), (4, PLAIN))),
            _rows_build(),
        ),
        fixed=("e",), wrong_interpreted=("bf16",),
    ),
)  # fmt: skip
