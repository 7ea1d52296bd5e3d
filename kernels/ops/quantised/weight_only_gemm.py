"""Rows times weights that are stored in 8 or 4 bits: Y = X [M, K] @ ((W - zero) * scale)^T + bias, W [N, K].

Weights of 8 bits are a byte each, those of 4 bits two to a byte, of columns 2 i and 2 i + 1 in its low and its high
half. A scale and a zero point belong to a row of W or to a group of numbers of a row. X is bf16 or f16.

Decoding has few rows, so it takes no less than N K bits / 8 / bandwidth: half or a quarter of what weights of 16 bits
need. What stands against that is the arithmetic before the product: a multiprocessor of an H200 gets 18 bytes, 36
numbers of 4 bits, in a clock, and has 64 lanes for integers and 128 for multiply-adds. Hence:

- up to 4 rows no matrix units: words of 8 numbers, each masked where it stands and made a float by an exponent put
  around it (a number of 4 bits in the mantissa of 2^23), one subtraction and one multiply-add; scale and zero once for
  the 8 of a word, by the sum of x;
- more rows by the matrix units, weights as the left operand, so that they stay in registers: 128 + q in bf16 and
  1024 + q in f16 are q with an exponent around it, of which one exact subtraction makes q - 8. Products are of numbers
  around 0, bytes without a sign less 128: a sum that much would be taken off of loses its digits where X has a mean.
  What is left of the zero point, and the scale, come after the product of a group, on [BN, BM] results and not on
  [BN, BK] weights;
- K in parts where N alone has too few programs: f32 parts, added by a second kernel in their order, without atomics.

torch.compile fuses the unpacking into the product of one row, and writes unpacked weights for more.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.ops.matmul.gemm import SHARED_KIB
from kernels.ops.shared.rows import rows_of
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant

tuner = Tuner("weight_only_gemm")
DTYPES = (torch.bfloat16, torch.float16)
SCALES = (torch.float32, torch.bfloat16, torch.float16)
FEW_ROWS = 4
"""Rows up to which the matrix units, which take 16, are left out."""
LEAST_GROUP = 32
EXPONENT = 0x4B000000
"""Of 2^23 as f32, whose mantissa then is a whole number."""


def unpacked(w: torch.Tensor, columns: int) -> torch.Tensor:
    """W [N, K] as whole numbers, of bytes or halves of bytes."""
    if w.shape[1] == columns:
        return w
    halves = w.view(torch.uint8)
    return torch.stack((halves & 15, halves >> 4), -1).flatten(1)


def reference(
    x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | float | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """What is computed, in plain PyTorch: in float64 where x is, else in f32."""
    high = torch.float64 if x.dtype == torch.float64 else torch.float32
    n, k = w.shape[0], x.shape[-1]
    groups = scale.numel() // n
    q = unpacked(w, k).to(high).view(n, groups, -1)
    if zero is not None:
        q = q - (zero.to(high).view(n, groups, 1) if isinstance(zero, torch.Tensor) else zero)
    y = x.to(high) @ (q * scale.to(high).view(n, groups, 1)).view(n, k).T
    return (y if bias is None else y + bias.to(high)).to(x.dtype)


@triton.jit
def number_at(element, exponent, place: tl.constexpr, PER: tl.constexpr):
    """The number at a place of an element as f32. Of a word it is masked where it stands, and so is 16 to the power of
    its place times as large; those beyond the mantissa's 23 bits are shifted there together. exponent: EXPONENT, which
    is no constant, because mask and exponent are one instruction only where one of both is in a register.
    """
    if PER == 8:
        shifted: tl.constexpr = place if place < 5 else place - 5
        word = element if place < 5 else element >> 20
        bits = (word & (15 << (4 * shifted))) | exponent
        q = bits.to(tl.float32, bitcast=True) - 8388608.0
    elif PER == 2:
        q = ((element >> (4 * place)) & 15).to(tl.float32)
    else:
        q = element.to(tl.float32)
    return q


@triton.jit
def against(v, place: tl.constexpr, PER: tl.constexpr):
    """What the number at a place is multiplied by: v, without the power of 16 that the number of a word has."""
    if PER == 8:
        power: tl.constexpr = 1.0 / (1 << (4 * (place if place < 5 else place - 5)))
        v = v * power
    return v[None, :]


@triton.jit
def scaled_part(
    part, total, scale, zero, offset, row, group, inside, N, groups, ZERO: tl.constexpr, NUMBER: tl.constexpr,
    MIDDLE: tl.constexpr = 0.0,
):  # fmt: skip
    """(part - (zero - MIDDLE) * total) * scale: of one group's numbers, of which MIDDLE is taken already. total: the
    sum of x, as many as part has columns.
    """
    at = row.to(tl.int64) * groups + group
    s = tl.load(scale + at, mask=inside, other=0.0).to(tl.float32)
    if ZERO:
        part -= (tl.load(zero + at, mask=inside, other=0.0).to(tl.float32) - MIDDLE) * total
    elif NUMBER:
        part -= (offset - MIDDLE) * total
    elif MIDDLE != 0.0:
        part += MIDDLE * total
    return part * s


@triton.jit
def weight_only_gemv(
    x, w, scale, zero, bias, y, M, N, K, x_row, w_row, group, groups, offset, exponent, ROWS: tl.constexpr,
    BN: tl.constexpr, BW: tl.constexpr, PER: tl.constexpr, SPLIT_K: tl.constexpr, STAGES: tl.constexpr,
    EVEN: tl.constexpr, GROUPED: tl.constexpr, SPREAD: tl.constexpr, ZERO: tl.constexpr, NUMBER: tl.constexpr,
    BIAS: tl.constexpr,
):  # fmt: skip
    """BN columns of Y for ROWS <= 4 rows; one part of K, into y [SPLIT_K, M, N] where there are several.

    w: PER numbers an element. GROUPED: scales of groups, SPREAD: several of them in one tile of BW elements.
    """
    part = tl.program_id(1)
    wide: tl.constexpr = BW * PER
    share = tl.cdiv(tl.cdiv(K, SPLIT_K), wide) * wide
    first = part * share
    last = tl.minimum(first + share, K)
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    wrapped = (row % N)[:, None]
    col = tl.arange(0, BW)
    at = w + wrapped.to(tl.int64) * w_row
    acc0 = tl.zeros((BN, BW), tl.float32)
    acc1 = tl.zeros((BN, BW), tl.float32)
    acc2 = tl.zeros((BN, BW), tl.float32)
    acc3 = tl.zeros((BN, BW), tl.float32)
    sum0 = tl.zeros((BW,), tl.float32)
    sum1 = tl.zeros((BW,), tl.float32)
    sum2 = tl.zeros((BW,), tl.float32)
    sum3 = tl.zeros((BW,), tl.float32)
    for k in tl.range(first, last, wide, num_stages=STAGES):
        where = k + col * PER
        inside = where < last
        if EVEN:
            element = tl.load(at + (k // PER + col)[None, :], eviction_policy="evict_first")
        else:
            element = tl.load(at + (k // PER + col)[None, :], mask=inside[None, :], other=0)
        if PER != 8:
            element = element.to(tl.int32)
        if GROUPED:
            part0 = tl.zeros((BN, BW), tl.float32)
            part1 = tl.zeros((BN, BW), tl.float32)
            part2 = tl.zeros((BN, BW), tl.float32)
            part3 = tl.zeros((BN, BW), tl.float32)
            sum0 = tl.zeros((BW,), tl.float32)
            sum1 = tl.zeros((BW,), tl.float32)
            sum2 = tl.zeros((BW,), tl.float32)
            sum3 = tl.zeros((BW,), tl.float32)
        else:
            part0, part1, part2, part3 = acc0, acc1, acc2, acc3
        for place in tl.static_range(PER):
            q = number_at(element, exponent, place, PER)
            v0 = tl.load(x + where + place, mask=inside, other=0.0).to(tl.float32)
            sum0 += v0
            part0 += q * against(v0, place, PER)
            if ROWS > 1:
                v1 = tl.load(x + x_row + where + place, mask=inside, other=0.0).to(tl.float32)
                sum1 += v1
                part1 += q * against(v1, place, PER)
            if ROWS > 2:
                v2 = tl.load(x + 2 * x_row + where + place, mask=inside, other=0.0).to(tl.float32)
                sum2 += v2
                part2 += q * against(v2, place, PER)
            if ROWS > 3:
                v3 = tl.load(x + 3 * x_row + where + place, mask=inside, other=0.0).to(tl.float32)
                sum3 += v3
                part3 += q * against(v3, place, PER)
        if GROUPED:
            # Where a tile is within one group its scale is one a row.
            of = tl.minimum(where // group, groups - 1)[None, :] if SPREAD else k // group
            there = (row < N)[:, None]
            acc0 += scaled_part(part0, sum0[None, :], scale, zero, offset, wrapped, of, there, N, groups, ZERO, NUMBER)
            if ROWS > 1:
                acc1 += scaled_part(
                    part1, sum1[None, :], scale, zero, offset, wrapped, of, there, N, groups, ZERO, NUMBER
                )  # fmt: skip
            if ROWS > 2:
                acc2 += scaled_part(
                    part2, sum2[None, :], scale, zero, offset, wrapped, of, there, N, groups, ZERO, NUMBER
                )  # fmt: skip
            if ROWS > 3:
                acc3 += scaled_part(
                    part3, sum3[None, :], scale, zero, offset, wrapped, of, there, N, groups, ZERO, NUMBER
                )  # fmt: skip
        else:
            acc0, acc1, acc2, acc3 = part0, part1, part2, part3
    results = (acc0, acc1, acc2, acc3)
    sums = (sum0, sum1, sum2, sum3)
    for m in tl.static_range(ROWS):
        z = tl.sum(results[m], 1)
        if not GROUPED:
            z = scaled_part(z, tl.sum(sums[m], 0), scale, zero, offset, row, 0, row < N, N, 1, ZERO, NUMBER)
        if BIAS:
            z += tl.load(bias + row, mask=row < N, other=0.0).to(tl.float32)
        tl.store(y + (part.to(tl.int64) * M + m) * N + row, z.to(y.dtype.element_ty), mask=row < N)


@triton.jit
def around_zero(q, dtype: tl.constexpr):
    """q - 8, of numbers of 4 bits: with the exponent of 128 in bf16, 1024 in f16, around them, they are these plus q,
    and a subtraction gives a number that has all of its digits.
    """
    exponent: tl.constexpr = 0x4300 if dtype == tl.bfloat16 else 0x6400
    less: tl.constexpr = 136.0 if dtype == tl.bfloat16 else 1032.0
    return (q.to(tl.int16) | exponent).to(dtype, bitcast=True) - less


@triton.jit
def weight_only_dot(
    x, w, scale, zero, bias, y, M, N, K, x_row, w_row, group, groups, offset, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, SPLIT_K: tl.constexpr, HALVES: tl.constexpr, EVEN: tl.constexpr, GROUPED: tl.constexpr,
    ZERO: tl.constexpr, NUMBER: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """BN columns and BM rows of Y, one part of K, into y [SPLIT_K, M, N] where there are several.

    HALVES: two numbers a byte. GROUPED: scales of groups, of which BK is a part.
    """
    down = tl.cdiv(M, BM)
    # Programs that run together read the same weights.
    first_row, col = tl.program_id(0) % down * BM, tl.program_id(0) // down * BN
    part = tl.program_id(1)
    share = tl.cdiv(tl.cdiv(K, SPLIT_K), BK) * BK
    first = part * share
    last = tl.minimum(first + share, K)
    per: tl.constexpr = 2 if HALVES else 1
    dtype: tl.constexpr = x.dtype.element_ty
    unsigned: tl.constexpr = w.dtype.element_ty == tl.uint8
    middle: tl.constexpr = 8.0 if HALVES else (128.0 if unsigned else 0.0)
    columns = col + tl.arange(0, BN)
    rows = first_row + tl.arange(0, BM)
    ks = tl.arange(0, BK // per)
    at_w = w + (columns % N).to(tl.int64)[:, None] * w_row + ks[None, :]
    numbers = tl.arange(0, BK)
    at_x = x + (rows % M).to(tl.int64)[None, :] * x_row + numbers[:, None]
    acc = tl.zeros((BN, BM), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for k in range(first, last, BK):
        if EVEN:
            element = tl.load(at_w + k // per)
            some = tl.load(at_x + k)
        else:
            element = tl.load(at_w + k // per, mask=(k + ks * per < last)[None, :], other=0)
            some = tl.load(at_x + k, mask=(k + numbers < last)[:, None], other=0.0)
        before = tl.zeros((BN, BM), tl.float32) if GROUPED else acc
        if HALVES:
            even, odd = tl.permute(tl.reshape(some, (BK // 2, 2, BM)), (0, 2, 1)).split()
            p = tl.dot(around_zero(element & 15, dtype), even, before)
            p = tl.dot(around_zero((element >> 4) & 15, dtype), odd, p)
        elif unsigned:
            p = tl.dot((element ^ 128).to(tl.int8, bitcast=True).to(dtype), some, before)
        else:
            p = tl.dot(element.to(dtype), some, before)
        sums = tl.sum(some.to(tl.float32), 0) if ZERO or NUMBER or middle != 0.0 else total
        if GROUPED:
            acc += scaled_part(
                p, sums[None, :], scale, zero, offset, (columns % N)[:, None], k // group, (columns < N)[:, None], N,
                groups, ZERO, NUMBER, middle,
            )  # fmt: skip
        else:
            acc = p
            total += sums
    if not GROUPED:
        acc = scaled_part(
            acc, total[None, :], scale, zero, offset, columns[:, None], 0, (columns < N)[:, None], N, 1, ZERO, NUMBER,
            middle,
        )  # fmt: skip
    if BIAS:
        acc += tl.load(bias + columns, mask=columns < N, other=0.0).to(tl.float32)[:, None]
    into = y + (part.to(tl.int64) * M + rows)[None, :] * N + columns[:, None]
    tl.store(into, acc.to(y.dtype.element_ty), mask=(rows < M)[None, :] & (columns < N)[:, None])


@triton.jit
def join_parts(parts, bias, y, n, N, SPLIT_K: tl.constexpr, BIAS: tl.constexpr, BLOCK: tl.constexpr):
    """y = the sum of parts [SPLIT_K, n], in their order, and bias [N]."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(SPLIT_K):
        total += tl.load(parts + part * n + at, mask=at < n, other=0.0)
    if BIAS:
        total += tl.load(bias + at % N, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + at, total.to(y.dtype.element_ty), mask=at < n)


def words_of(w: torch.Tensor, columns: int, group: int) -> torch.Tensor | None:
    """Weights of 4 bits as words of eight; None where a row or a group does not begin with a word."""
    fit = columns % 8 == 0 and group % 8 == 0 and w.stride(0) % 4 == 0 and w.data_ptr() % 4 == 0
    return w.view(torch.int32) if fit else None


def space(
    m: int, n: int, k: int, group: int, halves: bool, words: bool, after: tuple[tuple[str, Any], ...]
) -> list[Variant]:
    """Variants worth timing, the likeliest first. group: numbers that share a scale, K where a row does; words: weights
    of 4 bits can be read eight at a time; after: the constants of zero points and bias.
    """
    grouped = group < k
    per = (8 if words else 2) if halves else 1

    def rows(bn: int, bw: int, warps: int, split: int, stages: int = 2) -> Variant:
        spread = grouped and group % (bw * per) != 0
        constants: tuple[tuple[str, Any], ...] = (
            ("ROWS", m), ("BN", bn), ("BW", bw), ("PER", per), ("SPLIT_K", split), ("STAGES", stages),
            ("EVEN", k % (bw * per) == 0), ("GROUPED", grouped), ("SPREAD", spread), *after,
        )  # fmt: skip
        held = bn * bw // (32 * warps) * (m + 2 + (m if grouped else 0)) + 30 * (m + 1)
        return Variant(weight_only_gemv, constants, warps, None, ("BN", "BW", "SPLIT_K", "STAGES"), 0, held)

    def dot(bm: int, bn: int, bk: int, warps: int, stages: int, split: int = 1) -> Variant:
        bk = min(bk, group & -group) if grouped else bk
        constants: tuple[tuple[str, Any], ...] = (
            ("BM", bm), ("BN", bn), ("BK", bk), ("SPLIT_K", split), ("HALVES", halves), ("EVEN", k % bk == 0),
            ("GROUPED", grouped), *after,
        )  # fmt: skip
        shared = stages * (bn * bk // (2 if halves else 1) + bm * bk * 2) + bn * bk * 2
        held = bn * bm * (2 if grouped else 1) // (32 * warps) + 72
        return Variant(weight_only_dot, constants, warps, stages, ("BM", "BN", "BK", "SPLIT_K"), shared, held)

    def splits(bn: int, step: int) -> list[int]:
        """Parts of K by which an H200's multiprocessors have two to eight programs each; one is always tried."""
        across = triton.cdiv(n, bn)
        several = [s for s in (2, 4, 8, 16) if 132 <= across * s <= 132 * 8 and k // s >= 2 * step]
        return [1, *several[-3:]] if across < 132 * 4 else [1]

    variants: list[Variant] = []
    if m <= FEW_ROWS:
        tiles = ((16, 64, 4), (32, 32, 4), (8, 128, 4), (16, 128, 8)) if per == 8 else ((8, 512, 4), (16, 256, 4),
                 (4, 1024, 4), (8, 1024, 8))  # fmt: skip
        tiles = ((64, 16, 4), (128, 16, 4), *tiles[:3]) if grouped and per == 8 else tiles
        for bn, bw, warps in tiles if m <= 2 else (tiles[0], *tiles[2:4]):
            several = splits(bn, bw * per)
            variants += [rows(bn, bw, warps, s) for s in (several if (bn, bw) == tiles[0][:2] else several[-1:])]
        variants += [rows(*tiles[0], splits(tiles[0][0], tiles[0][1] * per)[-1], stages=3)]
        return [*variants, dot(16, 64, 128, 4, 4, splits(64, 128)[-1])]
    bm = 16 if m <= 16 else 32 if m <= 32 else 64 if m <= 64 else 128
    for bn, bk, warps, stages in ((64, 128, 4, 4), (64, 128, 4, 3), (128, 128, 8, 3), (128, 64, 4, 4), (64, 256, 8, 2)):
        several = splits(bn, bk)
        first = bn == 64 and stages == 4
        variants += [dot(bm, bn, bk, warps, stages, s) for s in (several if first else several[-1:])]
    if m > 128:
        variants += [dot(64, 128, 64, 4, 4), dot(128, 64, 64, 4, 4)]
    return variants


def launch(
    variant: Variant, x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None, offset: float,
    bias: torch.Tensor | None, y: torch.Tensor,
) -> None:  # fmt: skip
    """Run one variant on X [M, K] and stored weights into Y [M, N]; scale and zero [N, groups], contiguous."""
    (m, k), (n, groups) = x.shape, scale.shape
    group, split = k // groups, variant["SPLIT_K"]
    into = y if split == 1 else torch.empty((split, m, n), dtype=torch.float32, device=x.device)
    meta = variant.meta | {"BIAS": bool(variant["BIAS"]) and split == 1}
    given = (scale, scale if zero is None else zero, scale if bias is None else bias)
    if variant.kernel is weight_only_gemv:
        w = w.view(torch.int32) if variant["PER"] == 8 else w
        grid, more = (triton.cdiv(n, variant["BN"]), split), (EXPONENT,)
    else:
        grid, more = (triton.cdiv(n, variant["BN"]) * triton.cdiv(m, variant["BM"]), split), ()
    variant.kernel[grid](x, w, *given, into, m, n, k, x.stride(0), w.stride(0), group, groups, offset, *more, **meta)
    if split > 1:
        join_parts[(triton.cdiv(m * n, 1024),)](
            into, given[2], y, m * n, n, SPLIT_K=split, BIAS=bias is not None, BLOCK=1024, num_warps=4
        )


def _checked(
    x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | float | None, bias: torch.Tensor | None
) -> None:
    """Raises TypeError, ValueError."""
    k = x.shape[-1]
    if x.dtype not in DTYPES or w.dtype not in (torch.int8, torch.uint8):
        raise TypeError(f"weight_only_gemm takes bf16 or f16 by int8 or uint8, not {x.dtype} and {w.dtype}")
    wrong = [t.dtype for t in (scale, zero, bias) if isinstance(t, torch.Tensor) and t.dtype not in SCALES]
    if wrong:
        raise TypeError(f"scales, zero points and bias are f32, bf16 or f16, not {wrong[0]}")
    if w.dim() != 2 or w.shape[1] not in (k, k / 2):
        raise ValueError(f"weights are [N, {k}], or [N, {k / 2:g}] bytes of two, not {[*w.shape]}")
    n = w.shape[0]
    if n and (scale.numel() % n or not scale.numel() or k % (scale.numel() // n)):
        raise ValueError(f"scales are [{n}] or [{n}, groups of {k}], not {[*scale.shape]}")
    groups = scale.numel() // n if n else 1
    if groups > 1 and (k // groups) % LEAST_GROUP:
        raise ValueError(f"groups are of a multiple of {LEAST_GROUP} numbers, not {k // groups}")
    if groups > 1 and scale.dim() > 1 and scale.shape[0] != n:
        raise ValueError(f"scales are [{n}, {groups}], not {[*scale.shape]}")
    if isinstance(zero, torch.Tensor) and (
        zero.numel() != scale.numel() or (groups > 1 and zero.dim() > 1 and zero.shape[0] != n)
    ):
        raise ValueError(f"zero points are as many as scales, {[*scale.shape]}, not {[*zero.shape]}")
    if bias is not None and bias.shape != (n,):
        raise ValueError(f"bias is [{n}], not {[*bias.shape]}")
    given = (t for t in (w, scale, zero, bias) if isinstance(t, torch.Tensor))
    if any(t.device != x.device for t in given):
        raise ValueError(f"weight_only_gemm takes tensors of one device, {x.device}")


def weight_only_gemm(
    x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | float | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """X [..., K] @ ((W - zero) * scale)^T + bias [N], X bf16 or f16, in any strides; the result like X, contiguous.

    W: int8 or uint8 [N, K]; or [N, K / 2], of which each byte is two numbers from 0 to 15, the one of the even column
    in its low half. scale: [N], or [N, groups], K / groups a multiple of 32; zero: the same, one number, or None. Both
    and bias f32, bf16 or f16. Raises TypeError for other dtypes, ValueError for shapes that do not fit.
    """
    if x.dim() == 0:
        raise ValueError("weight_only_gemm takes rows, not a single number")
    _checked(x, w, scale, zero, bias)
    (n, stored), k = w.shape, x.shape[-1]
    rows = rows_of(x.reshape(math.prod(x.shape[:-1]), k))
    m = rows.shape[0]
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    if y.numel() == 0 or k == 0:
        y.zero_()
        return (y if bias is None else y + bias.to(y.dtype)).view(*x.shape[:-1], n)
    halves = stored != k
    w = w.view(torch.uint8) if halves else w
    w = w if w.stride(1) == 1 or stored == 1 else w.contiguous()
    scale = scale.reshape(n, -1).contiguous()
    group = k // scale.shape[1]
    tensor = zero.reshape(n, -1).contiguous() if isinstance(zero, torch.Tensor) else None
    number = None if isinstance(zero, torch.Tensor) else zero
    bias = None if bias is None else bias.contiguous()
    words = halves and words_of(w, k, group) is not None
    after = (("ZERO", tensor is not None), ("NUMBER", number is not None), ("BIAS", bias is not None))
    key = (m, n, k, group, x.dtype, scale.dtype, w.dtype, halves, words, rows.stride(0) % 8 == 0, *after)
    arguments = (rows, w, scale, tensor, float(number or 0.0), bias, y)
    variant = tuner.pick(key, lambda: space(m, n, k, group, halves, words, after), launch, *arguments,
                          uncopied=arguments[:-1])  # fmt: skip
    launch(variant, *arguments)
    return y.view(*x.shape[:-1], n)


def _sizes(c: Case) -> tuple[int, int, int, int]:
    """M, N, K, numbers that share a scale: K a multiple of those, and even where two are in a byte."""
    group = c.get("group", 0)
    unit = group or (2 if c["bits"] == 4 else 1)
    k = triton.cdiv(c["k"], unit) * unit
    return c["m"], c["n"], k, group or k


def inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try it on: results of size 1. zero: "tensor", "number" or "" for none; K is rounded up to groups.
    unsigned: bytes of 8 bits without a sign; positive: X has no negative number, and so a mean.
    """
    m, n, k, group = _sizes(c)
    half, dtype = c["bits"] == 4, c.torch_dtype
    if half:
        w = make.integers(256, (n, k // 2)).to(torch.uint8)
    else:
        w = make.integers(256, (n, k)).to(torch.uint8)
        w = w if c.get("unsigned") else w.sub(128).view(torch.int8)
    size = max(k, 1) ** -0.5 / (4.6 if half else 74.0)
    groups = (n, k // group) if group < k else (n,)
    scale = (make.normal(groups, torch.float32, 0.2, 1.0).abs() + 0.1).mul_(size).to(dtype)
    kind, middle = c.get("zero", ""), 8.0 if half else 128.0 if c.get("unsigned") else 3.0
    zero = make.normal(groups, dtype, 1.0, middle) if kind == "tensor" else middle if kind == "number" else None
    x = make.normal((m, k), dtype)
    x = x.abs_() if c.get("positive") else x
    return x, w, scale, zero, make.normal((n,), dtype) if c.get("bias") else None


def cost(c: Case) -> Cost:
    """Rows, weights, scales and results once."""
    m, n, k, group = _sizes(c)
    scales = n * (k // max(group, 1)) * c.itemsize * (2 if c.get("zero") == "tensor" else 1)
    return Cost((m * k + m * n) * c.itemsize + n * k * c["bits"] // 8 + scales, 2 * m * n * k)


def _build(
    m: int, group: int, halves: bool, which: int, after: tuple[tuple[str, Any], ...], stored: str = "*i8"
) -> Build:
    """A variant as compiled offline: bf16, sizes multiples of 16."""
    v = space(m, 4096, 8192, group, halves, halves, after)[which]
    w = "*i32" if halves and v.kernel is weight_only_gemv else "*u8" if halves else stored
    integers = ("M", "N", "K", "x_row", "w_row", "group", "groups")
    y = "*fp32" if v["SPLIT_K"] > 1 else "*bf16"
    signature = {"x": "*bf16", "w": w, "scale": "*bf16", "zero": "*bf16", "bias": "*bf16", "y": y,
                 **dict.fromkeys(integers, "i32"), "offset": "fp32",
                 **({"exponent": "i32"} if v.kernel is weight_only_gemv else {})}  # fmt: skip
    without = {t: f"its tiles are larger than {kib} KiB of shared memory" for t, kib in SHARED_KIB.items()
               if v.shared_bytes > kib * 1024}  # fmt: skip
    return Build(v, signature, ("N", "K", "x_row", "w_row", "group"), without)


PLAIN = (("ZERO", False), ("NUMBER", False), ("BIAS", False))
ZEROS = (("ZERO", True), ("NUMBER", False), ("BIAS", False))
NUMBERS = (("ZERO", False), ("NUMBER", True), ("BIAS", False))
LAYERS = ((4096, 4096), (28672, 4096), (4096, 14336))
"""N, K of a model of 8 billion parameters: out, gate and up, down."""
_EACH = "Each number of four bits is shifted, scaled and added by itself here. "
_AGAIN = "W is unpacked again for every 128 rows of X; the advice calls the other. "
LOSES = {
    "bf16 m=1 k=4096 n=4096 bits=4 group=128 zero=tensor":
        f"_weight_int4pack_mm takes 10.5 us, this 16.8. {_EACH}Tried: 10 more (16.7 to 55).",
    "bf16 m=1 k=4096 n=28672 bits=4 group=128 zero=tensor":
        f"_weight_int4pack_mm takes 36.9 us, this 49.8. {_EACH}Tried: 8 more (50 to 165).",
    "bf16 m=1 k=14336 n=4096 bits=4 group=128 zero=tensor":
        f"_weight_int4pack_mm takes 22.5 us, this 32.3. {_EACH}Tried: 10 more (32.6 to 182).",
    "bf16 m=4 k=4096 n=28672 bits=4 group=128 zero=tensor": "_weight_int4pack_mm takes 51.4 us, this 54.1.",
    "bf16 m=1 k=4096 n=28672 bits=4 group=32 zero=number":
        "gemlite takes 42.5 us, this 65.7: it packs W anew, once, for its own loads. Tried: 8 more (65.6 to 176).",
    "bf16 m=16 k=4096 n=4096 bits=8": "gemlite takes 14.7 us, this 15.3.",
    "bf16 m=16 k=4096 n=28672 bits=8": "gemlite takes 46.4 us, this 49.9.",
    "bf16 m=512 k=4096 n=28672 bits=4 group=128 zero=tensor":
        f"Unpacking W, then cuBLAS, takes 334 us, this 631. {_AGAIN}",
    "bf16 m=512 k=4096 n=28672 bits=8": f"Unpacking W, then cuBLAS, takes 247 us, this 295. {_AGAIN}",
    "bf16 m=512 k=14336 n=4096 bits=4 group=128 zero=tensor":
        f"Unpacking W, then cuBLAS, takes 177 us, this 341. {_AGAIN}",
    "bf16 m=512 k=14336 n=4096 bits=8": f"Unpacking W, then cuBLAS, takes 126 us, this 155. {_AGAIN}",
    "bf16 m=4096 k=4096 n=28672 bits=4 group=128 zero=tensor":
        f"Unpacking W, then cuBLAS, takes 1.41 ms, this 4.86. {_AGAIN}",
    "bf16 m=4096 k=4096 n=28672 bits=8": f"Unpacking W, then cuBLAS, takes 1.32 ms, this 2.32. {_AGAIN}",
    "bf16 m=4096 k=14336 n=4096 bits=4 group=128 zero=tensor":
        f"Unpacking W, then cuBLAS, takes 695 us, this 2654. {_AGAIN}",
    "bf16 m=4096 k=14336 n=4096 bits=8": f"Unpacking W, then cuBLAS, takes 642 us, this 1337. {_AGAIN}",
}  # fmt: skip
"""By the run of 2026-11-27 on an H200."""
OPERATIONS = (
    Operation(
        name="weight_only_gemm", run=weight_only_gemm, reference=reference, inputs=inputs, cost=cost, loses=LOSES,
        beyond=case("bf16", m=16_800, k=128, n=131072, bits=8),
        checks=(
            *(case("f16", m=m, k=k, n=n, bits=b) for b in (8, 4)
              for m, k, n in ((1, 1, 1), (0, 4, 4), (3, 0, 5), (2, 70, 33), (7, 130, 70), (70, 300, 40))),
            *(case("f16", m=m, k=200, n=37, bits=b, group=g, zero=z) for b, z in ((4, "tensor"), (4, "number"), (8, ""))
              for m, g in ((1, 32), (3, 64), (4, 128), (17, 32), (33, 128))),
            case("f16", m=20, k=96, n=40, bits=8, zero="tensor", bias=1), case("f16", m=2, k=54, n=40, bits=4, bias=1),
            case("bf16", m=1, k=256, n=64, bits=4, group=128, zero="tensor"), case("bf16", m=4, k=90, n=20, bits=8),
            case("bf16", m=16, k=256, n=64, bits=4, group=64, zero="tensor"),
            case("f16", m=1, k=640, n=72, bits=4, group=128, zero="tensor", bias=1),
            case("f16", m=18, k=640, n=72, bits=4, group=128, zero="tensor"),
            *(case("f16", m=m, k=14336, n=32, bits=4, group=g, zero=z, positive=1)
              for m, g, z in ((16, 0, "number"), (2, 0, "number"), (16, 128, "tensor"))),
            *(case("f16", m=m, k=k, n=32, bits=8, zero=z, unsigned=1, positive=p)
              for m, k, z, p in ((16, 14336, "number", 1), (20, 300, "tensor", 1), (20, 96, "", 0), (3, 70, "", 0))),
        ),
        cases=(
            *(case("bf16", m=m, k=k, n=n, bits=4, group=128, zero="tensor") for m in (1, 16, 64) for n, k in LAYERS),
            *(case("bf16", m=m, k=k, n=n, bits=8) for m in (1, 16, 64) for n, k in LAYERS),
            *(case("bf16", m=m, k=k, n=n, **more) for m in (512, 4096) for n, k in LAYERS[1:]
              for more in ({"bits": 4, "group": 128, "zero": "tensor"}, {"bits": 8})),
            case("bf16", m=4, k=4096, n=28672, bits=4, group=128, zero="tensor"),
            case("bf16", m=1, k=4096, n=28672, bits=4, group=32, zero="number"),
        ),
        builds=(
            _build(1, 128, True, 0, ZEROS), _build(1, 128, True, 2, ZEROS), _build(4, 128, True, 0, ZEROS),
            _build(1, 8192, False, 0, PLAIN), _build(16, 128, True, 0, ZEROS), _build(64, 128, True, 1, ZEROS),
            _build(16, 8192, False, 0, PLAIN), _build(16, 8192, False, 0, NUMBERS, "*u8"),
        ),
        fixed=("bits", "group"), wrong_interpreted=("bf16",),
    ),
)  # fmt: skip
