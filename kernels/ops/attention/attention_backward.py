"""Attention, backward: gradients of Q, K and V from that of softmax(cap(scale * Q K^T)) V, the scores made anew.

For what `flash_attention` computes without a bias: plain, causal, within a sliding window, soft-capped, with query
heads that share key heads. From O, the log-sum-exp of each row and dO three kernels make the gradients: one writes
delta = sum(dO * O) of each row (less the log-sum-exp's own gradient, where it has one); one takes BN keys and walks
over the queries that see them, of all heads that share the keys, for dK and dV; one takes BM queries and walks over
the keys that they see, for dQ. Nothing is added atomically: the result is the same every time, for two products of
five done twice, Q K^T and dO V^T (Dao, 2023, adds dQ atomically; cuDNN's deterministic form does not).

Traffic: Q, K, V, O and dO read, dQ, dK and dV written, once each. 10 D floating-point operations for a pair of query
and key that sees each other (14 here), and one exponential (two here).

Blocks that the mask leaves whole go through loops without masks. A row beyond the last, or one that sees no key, has a
log-sum-exp of infinity here, so that its share of every key is 0. Sums of dK and dV fill a thread's registers; some
variants spill.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.ops.attention import flash_attention as forward
from kernels.ops.attention.flash_attention import (
    block_and_head,
    heads_together,
    pairs_seen,
    readable,
    rows_of_head,
    tanh_of,
    tma_takes_heads,
)
from kernels.ops.matmul.gemm import SHARED_KIB
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

queries_tuner = Tuner("attention_backward_queries")
keys_tuner = Tuner("attention_backward_keys")

Tensor = torch.Tensor


def reference(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, causal: bool = False,
    window: int | None = None, cap: float | None = None, scale: float | None = None, dlse: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """What is computed, in plain PyTorch."""
    sharing, scale = q.shape[1] // max(1, k.shape[1]), q.shape[-1] ** -0.5 if scale is None else scale
    keys, values = (x.repeat_interleave(sharing, 1) for x in (k, v))
    p, slope = _shares(q, keys, lse, causal, window, cap, scale)
    delta = (wide(do) * wide(o)).sum(-1, keepdim=True)
    delta = delta if dlse is None else delta - dlse[..., None]
    ds = p * (wide(do @ values.transpose(-1, -2)) - delta)
    ds = (ds if slope is None else ds * slope).to(q.dtype)
    dk = _summed(ds.transpose(-1, -2) @ q, sharing) * scale
    return ds @ keys * scale, dk, _summed(p.to(v.dtype).transpose(-1, -2) @ do, sharing)


def _shares(
    q: Tensor, keys: Tensor, lse: Tensor, causal: bool, window: int | None, cap: float | None, scale: float
) -> tuple[Tensor, Tensor | None]:
    """exp(score - log-sum-exp), 0 where nothing is seen, and the slope of the cap where there is one."""
    s, slope = wide(q @ keys.transpose(-1, -2)) * scale, None
    if cap is not None:
        bent = torch.tanh(s / cap)
        s, slope = cap * bent, 1 - bent * bent
    seen = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device)
    seen = seen.tril() if causal else seen
    seen = seen if window is None else seen.triu(-window)
    return torch.where(seen, torch.exp(s - lse[..., None]), 0.0), slope


def _summed(x: Tensor, sharing: int) -> Tensor:
    """[B, H, T, D] -> [B, H / sharing, T, D]: of the heads that share keys."""
    summed: Tensor = x.unflatten(1, (x.shape[1] // max(1, sharing), sharing)).sum(2)
    return summed


def terms(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, causal: bool = False,
    window: int | None = None, cap: float | None = None, scale: float | None = None, dlse: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Of each gradient's elements, the sum of the absolute values that are added for them.

    A query that sees one key has none of q and k: do @ v and delta cancel, and their roundings are left.
    """
    sharing, scale = q.shape[1] // max(1, k.shape[1]), q.shape[-1] ** -0.5 if scale is None else scale
    keys, values = (x.repeat_interleave(sharing, 1) for x in (k, v))
    p, slope = _shares(q, keys, lse, causal, window, cap, scale)
    both = do.abs() @ values.abs().transpose(-1, -2) + (do * o).abs().sum(-1, keepdim=True)
    both = p * (both if dlse is None else both + dlse.abs()[..., None])
    both = (both if slope is None else both * slope) * abs(scale)
    dk = _summed(both.transpose(-1, -2) @ q.abs(), sharing)
    return both @ keys.abs(), dk, _summed(p.transpose(-1, -2) @ do.abs(), sharing)


@triton.jit
def delta_kernel(
    do, o, lse, dlse, delta, top, heads, height, padded, do_batch, do_head, do_row, o_batch, o_head, o_row,
    D: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr, GIVEN: tl.constexpr,
):  # fmt: skip
    """delta, and the log-sum-exp in units of log2, infinite where there is none, of ROWS rows of one head.

    Both have `padded` rows a head, so that no later load of them needs a mask: 0 and infinity behind the last.
    GIVEN: the log-sum-exp has a gradient of its own.
    """
    blocks = tl.cdiv(padded, ROWS)
    z = (tl.program_id(0) // blocks).to(tl.int64)
    row = (tl.program_id(0) % blocks) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, DP)
    inside = row < height
    whole = inside[:, None] & (d < D)[None, :]
    batch, head, far = z // heads, z % heads, row.to(tl.int64)[:, None]
    a = tl.load(do + batch * do_batch + head * do_head + far * do_row + d[None, :], mask=whole, other=0.0)
    b = tl.load(o + batch * o_batch + head * o_head + far * o_row + d[None, :], mask=whole, other=0.0)
    total = tl.sum(a.to(tl.float32) * b.to(tl.float32), 1)
    at = z * height + row
    if GIVEN:
        total -= tl.load(dlse + at, mask=inside, other=0.0).to(tl.float32)
    most = tl.load(lse + at, mask=inside, other=float("-inf"))
    to = z * padded + row
    tl.store(delta + to, total, mask=row < padded)
    tl.store(top + to, tl.where(most == float("-inf"), float("inf"), most * 1.4426950408889634), mask=row < padded)


@triton.jit
def shares(raw, top, factor, cap, CAP: tl.constexpr, APPROXIMATE: tl.constexpr):
    """exp(score - log-sum-exp) of products of queries and keys, and the slope of the cap there (1 without one)."""
    if CAP:
        bent = tanh_of(raw * factor, APPROXIMATE)
        p = tl.exp2(cap * bent - top)
        slope = 1.0 - bent * bent
    else:
        p = tl.exp2(raw * factor - top)
        slope = 1.0
    return p, slope


@triton.jit
def walk_queries(
    dk, dv, keys, values, q, do, top, delta, q_base, do_base, batch, head, cols, lo, hi, height, window, factor, cap,
    q_row, do_row, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    CAP: tl.constexpr, TMA: tl.constexpr, PRECISION: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """dk and dv [BN, DP] after the queries from lo to hi of one head; top, delta: of its rows."""
    for m in range(lo, hi, BM):
        m = tl.multiple_of(m, BM)
        rows = m + tl.arange(0, BM)
        tile = rows_of_head(q, q_base, batch, head, m, height, q_row, BM, D, DP, MASKED, TMA)
        upstream = rows_of_head(do, do_base, batch, head, m, height, do_row, BM, D, DP, MASKED, TMA)
        most = tl.load(top + rows)
        less = tl.load(delta + rows)
        raw = tl.dot(keys, tile.T, input_precision=PRECISION)
        p, slope = shares(raw, most[None, :], factor, cap, CAP, tile.dtype == tl.bfloat16)
        if MASKED and CAUSAL:
            p = tl.where(cols[:, None] <= rows[None, :], p, 0.0)
        if MASKED and WINDOW:
            p = tl.where(cols[:, None] >= rows[None, :] - window, p, 0.0)
        dv = tl.dot(p.to(upstream.dtype), upstream, dv, input_precision=PRECISION)
        ds = p * (tl.dot(values, upstream.T, input_precision=PRECISION) - less[None, :])
        if CAP:
            ds = ds * slope
        dk = tl.dot(ds.to(tile.dtype), tile, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit
def keys_kernel(
    q, k, v, do, top, delta, dk, dv, heads, all_heads, sharing, together, height, padded, width, window, factor, cap,
    scale,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, do_batch, do_head, do_row, dk_batch,
    dk_head, dk_row, dv_batch, dv_head, dv_row, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, TMA: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dK and dV of BN keys of one head: all queries that see them, of `sharing` heads. heads: of keys.

    Under a causal mask the first keys are seen by most queries, and begin first.
    """
    turned, z = block_and_head(tl.program_id(0), tl.cdiv(width, BN), all_heads, together)
    block = tl.cdiv(width, BN) - 1 - turned
    batch, key_head = z // heads, z % heads
    far = batch.to(tl.int64)
    first = block * BN
    cols = first + tl.arange(0, BN)
    k_base = far * k_batch + key_head.to(tl.int64) * k_head
    v_base = far * v_batch + key_head.to(tl.int64) * v_head
    keys = rows_of_head(k, k_base, batch, key_head, first, width, k_row, BN, D, DP, True, TMA)
    values = rows_of_head(v, v_base, batch, key_head, first, width, v_row, BN, D, DP, True, TMA)
    key_sums = tl.zeros((BN, DP), tl.float32)
    value_sums = tl.zeros((BN, DP), tl.float32)

    # Queries from lo to hi see any of these keys; from `left` to `right` all of them.
    # What TMA reads behind the last query is 0, pointers need a mask there.
    lo = 0
    left = 0
    hi = height
    right = height if TMA else height // BM * BM
    if CAUSAL:
        lo = first // BM * BM
        left = tl.cdiv(first + BN - 1, BM) * BM
    if WINDOW:
        hi = tl.minimum(height, first + BN + window)
        right = tl.minimum(right, (first + window + 1) // BM * BM)
    left = tl.minimum(left, tl.cdiv(hi, BM) * BM)
    right = tl.maximum(left, right)
    for g in range(0, sharing):
        head = key_head * sharing + g
        q_base = far * q_batch + head.to(tl.int64) * q_head
        do_base = far * do_batch + head.to(tl.int64) * do_head
        at = (far * heads * sharing + head) * padded
        if CAUSAL:
            key_sums, value_sums = walk_queries(
                key_sums, value_sums, keys, values, q, do, top + at, delta + at, q_base, do_base, batch, head, cols,
                lo, left, height, window, factor, cap, q_row, do_row, D, DP, BM, CAUSAL, WINDOW, CAP, TMA, PRECISION,
                True,
            )  # fmt: skip
        key_sums, value_sums = walk_queries(
            key_sums, value_sums, keys, values, q, do, top + at, delta + at, q_base, do_base, batch, head, cols, left,
            right, height, window, factor, cap, q_row, do_row, D, DP, BM, CAUSAL, WINDOW, CAP, TMA, PRECISION, False,
        )  # fmt: skip
        if WINDOW or not TMA:
            key_sums, value_sums = walk_queries(
                key_sums, value_sums, keys, values, q, do, top + at, delta + at, q_base, do_base, batch, head, cols,
                right, hi, height, window, factor, cap, q_row, do_row, D, DP, BM, CAUSAL, WINDOW, CAP, TMA, PRECISION,
                True,
            )  # fmt: skip

    d = tl.arange(0, DP)
    inside = (cols < width)[:, None] & (d < D)[None, :]
    to = dk + far * dk_batch + key_head.to(tl.int64) * dk_head + cols.to(tl.int64)[:, None] * dk_row + d[None, :]
    tl.store(to, (key_sums * scale).to(dk.dtype.element_ty), mask=inside)
    to = dv + far * dv_batch + key_head.to(tl.int64) * dv_head + cols.to(tl.int64)[:, None] * dv_row + d[None, :]
    tl.store(to, value_sums.to(dv.dtype.element_ty), mask=inside)


@triton.jit
def walk_keys(
    dq, tile, upstream, most, less, k, v, k_base, v_base, batch, head, rows, lo, hi, width, window, factor, cap, k_row,
    v_row, D: tl.constexpr, DP: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    CAP: tl.constexpr, TMA: tl.constexpr, PRECISION: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """dq [BM, DP] after the keys from lo to hi of one head."""
    for n in range(lo, hi, BN):
        n = tl.multiple_of(n, BN)
        keys = rows_of_head(k, k_base, batch, head, n, width, k_row, BN, D, DP, MASKED, TMA)
        values = rows_of_head(v, v_base, batch, head, n, width, v_row, BN, D, DP, MASKED, TMA)
        raw = tl.dot(tile, keys.T, input_precision=PRECISION)
        p, slope = shares(raw, most[:, None], factor, cap, CAP, tile.dtype == tl.bfloat16)
        if MASKED:
            cols = n + tl.arange(0, BN)
            p = tl.where(forward.visible(rows, cols, width, window, CAUSAL, WINDOW), p, 0.0)
        ds = p * (tl.dot(upstream, values.T, input_precision=PRECISION) - less[:, None])
        if CAP:
            ds = ds * slope
        dq = tl.dot(ds.to(keys.dtype), keys, dq, input_precision=PRECISION)
    return dq


@triton.jit
def queries_kernel(
    q, k, v, do, top, delta, dq, heads, all_heads, sharing, together, height, padded, width, window, factor, cap,
    scale,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, do_batch, do_head, do_row, dq_batch,
    dq_head, dq_row, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, CAP: tl.constexpr, TMA: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dQ of BM queries of one head: all keys that they see, in the forward's order. heads: of queries."""
    block, z = block_and_head(tl.program_id(0), tl.cdiv(height, BM), all_heads, together)
    batch, head, key_head = z // heads, z % heads, z % heads // sharing
    far, near = batch.to(tl.int64), head.to(tl.int64)
    first = block * BM
    rows = first + tl.arange(0, BM)
    inside = rows < height
    tile = rows_of_head(q, far * q_batch + near * q_head, batch, head, first, height, q_row, BM, D, DP, True, TMA)
    upstream = rows_of_head(
        do, far * do_batch + near * do_head, batch, head, first, height, do_row, BM, D, DP, True, TMA
    )  # fmt: skip
    at = z.to(tl.int64) * padded + rows
    most = tl.load(top + at)
    less = tl.load(delta + at)
    k_base = far * k_batch + key_head.to(tl.int64) * k_head
    v_base = far * v_batch + key_head.to(tl.int64) * v_head
    sums = tl.zeros((BM, DP), tl.float32)
    lo = 0
    left = 0
    hi = width
    right = width // BN * BN
    if CAUSAL:
        hi = tl.minimum(width, first + BM)
        right = tl.minimum(right, (first + 1) // BN * BN)
    if WINDOW:
        lo = tl.maximum(first - window, 0) // BN * BN
        left = tl.cdiv(tl.maximum(first + BM - 1 - window, 0), BN) * BN
        sums = walk_keys(
            sums, tile, upstream, most, less, k, v, k_base, v_base, batch, key_head, rows, lo, tl.minimum(left, hi),
            width, window, factor, cap, k_row, v_row, D, DP, BN, CAUSAL, WINDOW, CAP, TMA, PRECISION, True,
        )  # fmt: skip
    sums = walk_keys(
        sums, tile, upstream, most, less, k, v, k_base, v_base, batch, key_head, rows, left, right, width, window,
        factor, cap, k_row, v_row, D, DP, BN, CAUSAL, WINDOW, CAP, TMA, PRECISION, False,
    )  # fmt: skip
    sums = walk_keys(
        sums, tile, upstream, most, less, k, v, k_base, v_base, batch, key_head, rows, tl.maximum(left, right), hi,
        width, window, factor, cap, k_row, v_row, D, DP, BN, CAUSAL, WINDOW, CAP, TMA, PRECISION, True,
    )  # fmt: skip
    d = tl.arange(0, DP)
    to = dq + far * dq_batch + near * dq_head + rows.to(tl.int64)[:, None] * dq_row + d[None, :]
    tl.store(to, (sums * scale).to(dq.dtype.element_ty), mask=inside[:, None] & (d < D)[None, :])


KEYS_SHAPES = {
    64: ((64, 128, 8, 2), (64, 64, 4, 2), (128, 128, 8, 2), (32, 128, 4, 2), (64, 128, 4, 2)),
    128: ((64, 64, 8, 2), (64, 128, 8, 2), (32, 128, 8, 2), (64, 64, 4, 2), (32, 64, 4, 2), (64, 128, 8, 1)),
    256: ((64, 64, 8, 1), (32, 64, 8, 2), (64, 32, 4, 1), (32, 32, 4, 2)),
}
QUERIES_SHAPES = {
    64: ((128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3), (128, 64, 4, 2), (64, 128, 4, 2)),
    128: ((128, 64, 8, 2), (128, 128, 8, 2), (64, 64, 4, 2), (128, 64, 8, 3), (64, 64, 4, 3)),
    256: ((128, 32, 8, 2), (64, 32, 4, 2), (128, 64, 8, 1), (64, 64, 8, 1)),
}
"""By padded head dimension: BM queries, BN keys, warps and stages of 16-bit variants.

Two sums of [BN, DP] in the one, one of [BM, DP] in the other, and in both two tiles of [BM, BN] are in registers:
some of these spill a few of them (tests/records/kernel-builds.json says which, and how much).
"""
NARROW_SHAPES = ((32, 32, 4, 1), (16, 32, 4, 1), (32, 16, 4, 1))
"""The same for f32, whose exact products are no matter of the matrix units."""


def space(
    of_keys: bool, q: Tensor, k: Tensor, causal: bool, window: int | None, cap: float | None, tma: bool,
    precision: str = "ieee",
) -> list[Variant]:  # fmt: skip
    """Variants worth timing for these operands, the likeliest first; tma: whether TMA takes q, k, v and do."""
    (d, rows), columns, size = (q.shape[3], q.shape[2]), k.shape[2], q.element_size()
    dp = max(16, triton.next_power_of_2(d))

    def tile(bm: int, bn: int, warps: int, stages: int, described: bool = False) -> Variant:
        bm, bn = min(bm, max(16, triton.next_power_of_2(rows))), min(bn, max(16, triton.next_power_of_2(columns)))
        constants: tuple[tuple[str, Any], ...] = (
            ("D", d), ("DP", dp), ("BM", bm), ("BN", bn), ("CAUSAL", causal), ("WINDOW", window is not None),
            ("CAP", cap is not None), ("TMA", described), ("PRECISION", precision),
        )  # fmt: skip
        held, walked = (bn, bm) if of_keys else (bm, bn)
        shared = (2 * held + 2 * stages * walked) * dp * size
        sums = (2 if of_keys else 1) * held * dp
        registers = (sums + 2 * bm * bn + bm * bn * size // 4) // (32 * warps) + 30
        kernel = keys_kernel if of_keys else queries_kernel
        return Variant(kernel, constants, warps, stages, ("BM", "BN", "TMA"), shared, registers)

    shapes = NARROW_SHAPES if size == 4 else (KEYS_SHAPES if of_keys else QUERIES_SHAPES)[min(max(dp, 64), 256)]
    variants = [tile(*s) for s in shapes]
    if tma and size == 2:
        variants = [*(tile(*s, True) for s in shapes), *variants[:2]]
    return list(dict.fromkeys(variants))


def _descriptor(x: Tensor, rows: int, dp: int) -> TensorDescriptor:
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, dp])


def _factors(cap: float | None, scale: float) -> tuple[float, float]:
    log2e = math.log2(math.e)
    return (scale * log2e if cap is None else scale / cap), (cap or 0.0) * log2e


def launch_queries(
    variant: Variant, q: Tensor, k: Tensor, v: Tensor, do: Tensor, top: Tensor, delta: Tensor, dq: Tensor,
    window: int | None, cap: float | None, scale: float,
) -> None:  # fmt: skip
    """Run one variant on [batch, heads, rows, D] with contiguous rows into dq; top, delta: of `delta_of`."""
    (batch, heads, rows, d), columns = q.shape, k.shape[2]
    sharing = heads // k.shape[1]
    balanced = not variant["CAUSAL"] or variant["WINDOW"]
    together = heads_together(columns, d, q.element_size(), sharing, batch * heads, balanced)
    x: tuple[Any, ...] = (q, k, v, do)
    if variant["TMA"]:
        bm, bn, dp = variant["BM"], variant["BN"], variant["DP"]
        x = tuple(_descriptor(t, b, dp) for t, b in ((q, bm), (k, bn), (v, bn), (do, bm)))
    queries_kernel[(triton.cdiv(rows, variant["BM"]) * batch * heads,)](
        *x, top, delta, dq, heads, batch * heads, sharing, together, rows, delta.shape[2], columns,
        min(window or 0, 2**30), *_factors(cap, scale), scale, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        *do.stride()[:3], *dq.stride()[:3], **variant.meta,
    )  # fmt: skip


def launch_keys(
    variant: Variant, q: Tensor, k: Tensor, v: Tensor, do: Tensor, top: Tensor, delta: Tensor, dk: Tensor, dv: Tensor,
    window: int | None, cap: float | None, scale: float,
) -> None:  # fmt: skip
    """Run one variant into dk and dv; the rest as `launch_queries`."""
    (batch, heads, rows, d), (_, key_heads, columns, _) = q.shape, k.shape
    balanced = not variant["CAUSAL"] or variant["WINDOW"]
    together = heads_together(rows * (heads // key_heads), d, q.element_size(), 1, batch * key_heads, balanced)
    x: tuple[Any, ...] = (q, k, v, do)
    if variant["TMA"]:
        bm, bn, dp = variant["BM"], variant["BN"], variant["DP"]
        x = tuple(_descriptor(t, b, dp) for t, b in ((q, bm), (k, bn), (v, bn), (do, bm)))
    keys_kernel[(triton.cdiv(columns, variant["BN"]) * batch * key_heads,)](
        *x, top, delta, dk, dv, key_heads, batch * key_heads, heads // key_heads, together, rows, delta.shape[2],
        columns, min(window or 0, 2**30), *_factors(cap, scale), scale, *q.stride()[:3], *k.stride()[:3],
        *v.stride()[:3], *do.stride()[:3], *dk.stride()[:3], *dv.stride()[:3], **variant.meta,
    )  # fmt: skip


PADDED = 128
"""Queries of the largest block."""
DELTA = Variant(delta_kernel, (("D", 128), ("DP", 128), ("ROWS", 32), ("GIVEN", False)), 4)
"""Its rows a program at a head dimension of 128; others take as many elements."""


def delta_of(do: Tensor, o: Tensor, lse: Tensor, dlse: Tensor | None) -> tuple[Tensor, Tensor]:
    """(delta, log-sum-exp in units of log2), both f32 [batch, heads, rows up to a multiple of PADDED]."""
    batch, heads, rows, d = do.shape
    padded = triton.cdiv(rows, PADDED) * PADDED
    delta, top = (torch.empty((batch, heads, padded), dtype=torch.float32, device=do.device) for _ in range(2))
    dp = max(16, triton.next_power_of_2(d))
    held = max(1, DELTA["ROWS"] * DELTA["DP"] // dp)
    delta_kernel[(triton.cdiv(padded, held) * batch * heads,)](
        do, o, lse, lse if dlse is None else dlse, delta, top, heads, rows, padded, *do.stride()[:3], *o.stride()[:3],
        **{**DELTA.meta, "D": d, "DP": dp, "ROWS": held, "GIVEN": dlse is not None},
    )  # fmt: skip
    return delta, top


def refuse(do: Tensor, q: Tensor, o: Tensor, lse: Tensor, dlse: Tensor | None) -> None:
    """Raises TypeError or ValueError where results and gradients are not those of the queries."""
    if do.dtype != q.dtype or o.dtype != q.dtype:
        raise TypeError(f"do and o have q's dtype {q.dtype}, not {do.dtype} and {o.dtype}")
    if do.shape != q.shape or o.shape != q.shape:
        raise ValueError(f"do and o are {[*q.shape]} as q is, not {[*do.shape]} and {[*o.shape]}")
    for one in (lse, *(() if dlse is None else (dlse,))):
        if one.shape != q.shape[:3] or one.dtype != torch.float32:
            raise ValueError(
                f"log-sum-exps and their gradient are f32 {[*q.shape[:3]]}, not {one.dtype} {[*one.shape]}"
            )


def attention_backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, causal: bool = False,
    window: int | None = None, cap: float | None = None, scale: float | None = None, dlse: Tensor | None = None,
    precision: str = "ieee", of_queries: bool = True, of_keys: bool = True,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients of q, k and v from that of o, where (o, lse) = flash_attention(q, k, v, ..., logsumexp=True).

    do, o [B, H, S, D] of q's dtype; lse f32 [B, H, S], and dlse, its gradient, where it has one. The other arguments,
    and what is raised for them, are flash_attention's; it has no bias here. of_queries,
    of_keys: whether that of q is made, and those of k and v; None in their place where not. The same numbers every
    time.
    """
    forward.refuse(q, k, v, None, window, cap, precision)
    refuse(do, q, o, lse, dlse)
    do, q, k, v, o = (readable(x) for x in (do, q, k, v, o))
    lse, dlse = lse.contiguous(), None if dlse is None else dlse.contiguous()
    (batch, heads, rows, d), columns = q.shape, k.shape[2]
    scale = d**-0.5 if scale is None else scale
    dq = torch.empty_like(q) if of_queries else None
    dk, dv = (torch.empty_like(x) if of_keys else None for x in (k, v))
    if not q.numel() or not k.numel():
        for made in (dq, dk, dv):
            if made is not None:
                made.zero_()
        return dq, dk, dv
    delta, top = delta_of(do, o, lse, dlse)
    tma = all(tma_takes_heads(x) for x in (q, k, v, do))
    settings = (heads // k.shape[1], causal, window, cap is None, precision, tma)
    key = (batch * heads, rows, columns, d, q.dtype, *settings)
    more = (window, cap, scale)
    if dk is not None and dv is not None:
        chosen = keys_tuner.pick(
            key, lambda: space(True, q, k, causal, window, cap, tma, precision), launch_keys, q, k, v, do, top, delta,
            dk, dv, *more,
        )  # fmt: skip
        launch_keys(chosen, q, k, v, do, top, delta, dk, dv, *more)
    if dq is not None:
        chosen = queries_tuner.pick(
            key, lambda: space(False, q, k, causal, window, cap, tma, precision), launch_queries, q, k, v, do, top,
            delta, dq, *more,
        )  # fmt: skip
        launch_queries(chosen, q, k, v, do, top, delta, dq, *more)
    return dq, dk, dv


# ---- cases
# What it is tried on, what it costs at least, and how its variants are compiled offline.
AT_ONCE = 1 << 24
"""Scores up to which the forward of a case is made by its reference."""


def inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try it on: a forward's, with what it gave. More: see flash_attention's."""
    q, k, v, _, causal, window, cap, scale, _ = forward.inputs(c, make)
    plain = q.device.type == "cpu" or q.numel() // q.shape[3] * k.shape[2] <= AT_ONCE
    attend = forward.reference if plain else forward.flash_attention
    o, lse = attend(q, k, v, None, causal, window, cap, scale, True)
    do = make.normal(q.shape, c.torch_dtype)
    dlse = make.normal(q.shape[:3], torch.float32) if c.get("both", False) else None
    return do, q, k, v, o, lse, causal, window, cap, scale, dlse


def cost(c: Case) -> Cost:
    """Every tensor once; five products over the pairs that see each other."""
    b, kv, s, t, d = c["b"], c["kv"], c["s"], c.get("t", c["s"]), c["d"]
    h = kv * c.get("h", 1)
    moved = (4 * b * h * s * d + 4 * b * kv * t * d) * c.itemsize + 4 * b * h * s
    return Cost(moved, 10 * b * h * d * pairs_seen(s, t, c.get("causal", False), c.get("window")))


def _strides(*names: str) -> tuple[str, ...]:
    return tuple(f"{x}_{axis}" for x in names for axis in ("batch", "head", "row"))


SIZES = ("heads", "all_heads", "sharing", "together", "height", "padded", "width", "window")


def build_of(v: Variant, dtype: str = "bf16") -> Build:
    """A variant as it is compiled offline."""
    if v.kernel is delta_kernel:
        strides = _strides("do", "o")
        pointers = {"do": f"*{dtype}", "o": f"*{dtype}"} | dict.fromkeys(("lse", "dlse", "delta", "top"), "*fp32")
        return Build(
            v, pointers | dict.fromkeys(("heads", "height", "padded", *strides), "i32"), ("height", "padded", *strides)
        )
    bm, bn, dp = v["BM"], v["BN"], v["DP"]
    tiles = {"q": bm, "k": bn, "v": bn, "do": bm}
    signature = {n: f"tensordesc<{dtype}[1,1,{b},{dp}]>" if v["TMA"] else f"*{dtype}" for n, b in tiles.items()}
    made = ("dk", "dv") if v.kernel is keys_kernel else ("dq",)
    strides = _strides("q", "k", "v", "do", *made)
    signature |= {"top": "*fp32", "delta": "*fp32", **dict.fromkeys(made, f"*{dtype}"), **dict.fromkeys(SIZES, "i32")}
    signature |= dict.fromkeys(("factor", "cap", "scale"), "fp32") | dict.fromkeys(strides, "i32")
    refused = {}
    for target, room in SHARED_KIB.items():
        if v["TMA"] and target in ("sm_80", "gfx942"):
            refused[target] = "has no TMA"
        elif v.shared_bytes > room * 1024:
            refused[target] = f"its tiles are larger than {room} KiB of shared memory"
    return Build(v, signature, ("height", "padded", "width", *strides), refused)


_OTHER_WARPS = (
    "there loads, the four products and the exponentials are different warps' work, as in the forward; here two "
    "kernels, one along the keys and one along the queries, make the scores twice"
)
LOSES = {
    "bf16 b=4 kv=32 s=4096 d=128 causal=True":
        f"cuDNN takes 3.10 ms, FlexAttention 3.89, this 3.98: {_OTHER_WARPS}.",
    "bf16 b=16 kv=16 s=1024 d=64": f"cuDNN takes 480 us, FlexAttention 636, this 584: {_OTHER_WARPS}.",
}  # fmt: skip
"""By the run of 2026-11-27 on an H200; with a cap or a window nobody was faster."""

LONG, SHORT = forward.LONG, forward.SHORT
OPERATIONS = (
    Operation(
        name="attention_backward", run=attention_backward, reference=reference, inputs=inputs, cost=cost,
        loses=LOSES, terms=terms, beyond=case("bf16", b=2100, kv=8, s=1024, d=128, causal=True),
        checks=(
            *(case(d, b=1, kv=1, s=s, t=t, d=64) for d in ("f32", "f16") for s, t in ((1, 1), (0, 3), (5, 70))),
            case("f32", b=2, kv=1, h=3, s=33, d=16, causal=True),
            case("f16", b=1, kv=2, h=2, s=140, t=90, d=80, causal=True),
            case("f16", b=1, kv=1, s=90, t=150, d=96, causal=True, both=True),
            case("f16", b=1, kv=2, s=150, d=32, causal=True, window=40),
            case("f32", b=1, kv=1, s=90, t=40, d=20, window=3),
            case("f32", b=1, kv=1, s=130, t=40, d=16, causal=True, window=9),
            case("f16", b=2, kv=1, h=2, s=40, t=130, d=64, cap=5.0, size=3.0),
            case("f32", b=1, kv=2, s=40, t=70, d=32, causal=True, cap=20.0, both=True),
            case("f32", b=1, kv=1, h=2, s=20, t=40, d=8, scale=-0.3, window=9),
            case("f16", b=1, kv=1, s=70, d=256, causal=True),
            case("bf16", b=1, kv=2, h=2, s=200, d=64, causal=True, cap=30.0),
            case("bf16", b=2, kv=2, s=130, t=260, d=128, rows_first=True),
            case("f16", b=1, kv=2, h=2, s=70, t=72, d=64, causal=True, window=30, cap=10.0),
        ),
        cases=(
            case("bf16", b=4, kv=32, s=4096, d=128, causal=True),
            case("bf16", b=16, kv=16, s=1024, d=64),
            case("bf16", b=2, kv=8, h=4, s=4096, d=128, causal=True, window=512),
            case("bf16", b=2, kv=8, h=2, s=4096, d=128, causal=True, cap=50.0),
        ),
        builds=(
            *(build_of(v) for v in space(True, LONG, LONG, True, None, None, True)[:2]),
            *(build_of(v) for v in space(False, LONG, LONG, True, None, None, True)[:2]),
            *(build_of(space(of_keys, SHORT, SHORT, False, None, None, False)[1]) for of_keys in (True, False)),
            *(build_of(space(of_keys, LONG, LONG, True, 512, 50.0, False)[2]) for of_keys in (True, False)),
            build_of(DELTA),
        ),
        wrong_interpreted=("bf16",), fixed=("d",),
    ),
)  # fmt: skip
