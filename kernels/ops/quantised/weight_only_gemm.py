"""Rows times weights that are stored in 8 or 4 bits: Y = X [M, K] @ ((W - zero) * scale)^T + bias, W [N, K].

Weights of 8 bits are a byte each, those of 4 bits two to a byte, of columns 2 i and 2 i + 1 in its low and its high
half. A scale and a zero point belong to a row of W or to a group of numbers of a row. X is bf16 or f16.

Decoding has few rows, so it takes no less than N K bits / 8 / bandwidth: half or a quarter of what weights of 16 bits
need. What stands against that is the arithmetic before the product: a multiprocessor of an H200 gets 18 bytes, 36
numbers of 4 bits, in a clock, and has 64 lanes for integers and 128 for multiply-adds. Hence:

- up to 4 rows no matrix units: words, of which each number is masked where it stands and made a float by an exponent
  put around it whose last digit stands there (for the lowest that of 2^23), one subtraction and one multiply-add;
  scale and zero once for the four words of a thread, by the sum of x;
- more rows by the matrix units, weights as the left operand, so that they stay in registers: elements of 16 bits, in
  each register two, masked and subtracted from as two. 128 + q in bf16 and 1024 + q in f16 are q with an exponent
  around it, of which one exact subtraction makes q - 8. Products are of numbers around 0, bytes without a sign less
  128: a sum that much would be taken off of loses its digits where X has a mean. What is left of the zero point, and
  the scale, come after the product of a group, on [BN, BM] results and not on [BN, BK] weights;
- K in parts where N alone has too few programs: f32 parts, added by a second kernel in their order, without atomics;
- from 128 rows on also weights unpacked in every call into numbers of X's type by one kernel, for a library's product:
  arithmetic bounds it, and each weight would be made a float once for every tile of rows. They are rounded to that
  type, as weights that were stored in 16 bits are.

torch.compile fuses the unpacking into the product of one row, and writes unpacked weights for more.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language import target_info

from kernels.ops.matmul.gemm import SHARED_KIB
from kernels.ops.quantised.weight_only_kernels import (
    EXPONENT,
    join_parts,
    scale_and_zero,
    unpack_weights,
    weight_only_bytes,
    weight_only_words,
)
from kernels.ops.shared.pairs import INTERPRETED
from kernels.ops.shared.rows import rows_of
from kernels.spec import Build, Case, Cost, Maker, Operation, case
from kernels.tuning import Tuner, Variant

tuner = Tuner("weight_only_gemm")
DTYPES = (torch.bfloat16, torch.float16)
SCALES = (torch.float32, torch.bfloat16, torch.float16)
FEW_ROWS = 4
"""Rows up to which the matrix units, which take 16, are left out."""
LEAST_GROUP = 32
LEAST_UNPACKED = 128
"""Rows from which weights unpacked into 16 bits, written and read again, are worth a library's product."""


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


@triton.constexpr_function
def packed(place: int, bits: int, flip: bool, bf16: bool) -> str:
    """PTX of the numbers at a place of two elements of 16 bits, those of one register: less 8, or 128, as two floats.

    flip: of bytes with a sign.
    """
    if bits == 4:
        exponent, less = ("0x43004300", "0xC308C308") if bf16 else ("0x64006400", "0xE408E408")
        added = "mov.b32 a, 0x3F803F80; fma.rn.bf16x2 $0, t, a, b;" if bf16 else "add.rn.f16x2 $0, t, b;"
        return (
            f"{{ .reg .b32 t, a, b; shr.u32 t, $1, {4 * place}; lop3.b32 t, t, 0x000F000F, {exponent}, 0xEA; "
            f"mov.b32 b, {less}; {added} }}"
        )
    turned = f".reg .b32 t, a, b; xor.b32 t, $1, {0x80808080 if flip else 0}; "
    if not bf16:
        bytes_at = f"prmt.b32 t, t, 0x64646464, {0x4240 + 0x101 * place}; "
        return f"{{ {turned}{bytes_at}mov.b32 b, 0xE480E480; add.rn.f16x2 $0, t, b; }}"
    made = "".join(
        f"prmt.b32 {r}, t, 0x4B000000, {0x7440 + place + 2 * i}; add.rn.f32 {r}, {r}, 0fCB000080; "
        for i, r in enumerate("ab")
    )
    return f"{{ {turned}{made}prmt.b32 $0, a, b, 0x7632; }}"


@triton.jit
def around_zero(
    element, place: tl.constexpr, PER: tl.constexpr, BITS: tl.constexpr, SIGNED: tl.constexpr, dtype: tl.constexpr
):  # fmt: skip
    """The numbers at a place of elements of PER: of 4 bits less 8, bytes without a sign less 128.

    With the exponent of 128 in bf16, 1024 in f16, 2^23 in f32, around them, they are these plus q, and a subtraction
    gives a number that has all of its digits. Elements of 16 bits stand in registers as the two floats will.
    """
    if PER * BITS == 16 and target_info.is_cuda() and not INTERPRETED:
        code: tl.constexpr = packed(place, BITS, SIGNED, dtype == tl.bfloat16)
        if dtype == tl.bfloat16:
            number = tl.inline_asm_elementwise(code, "=r,r", [element], dtype=tl.bfloat16, is_pure=True, pack=2)
        else:
            number = tl.inline_asm_elementwise(code, "=r,r", [element], dtype=tl.float16, is_pure=True, pack=2)
    else:
        q = (element >> (place * BITS)).to(tl.int32) & ((1 << BITS) - 1)
        if BITS == 8:
            q = q ^ 128 if SIGNED else q
            number = (q - 128).to(dtype)
        else:
            exponent: tl.constexpr = 0x4300 if dtype == tl.bfloat16 else 0x6400
            less: tl.constexpr = 136.0 if dtype == tl.bfloat16 else 1032.0
            number = (q.to(tl.int16) | exponent).to(dtype, bitcast=True) - less
    return number


@triton.jit
def halved(x, K: tl.constexpr, BM: tl.constexpr):
    """Rows of x [K, BM] of even and of odd number."""
    return tl.permute(tl.reshape(x, (K // 2, 2, BM)), (0, 2, 1)).split()


@triton.jit
def weight_only_dot(
    x, w, scale, zero, bias, y, M, N, K, x_row, w_row, group, groups, offset, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, SPLIT_K: tl.constexpr, PER: tl.constexpr, BITS: tl.constexpr, EVEN: tl.constexpr,
    GROUPED: tl.constexpr, SIGNED: tl.constexpr, ZERO: tl.constexpr, NUMBER: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """BN columns and BM rows of Y, one part of K, into y [SPLIT_K, M, N] where there are several.

    w: elements of PER numbers, bytes or two. GROUPED: scales of groups, of which BK is a part; read a step
    before, because the pipeline holds what a product takes and not what comes after it. Sums of x are a product too,
    with ones: without the matrix units they are as much arithmetic as the weights.
    """
    down = tl.cdiv(M, BM)
    # Programs that run together read the same weights.
    first_row, col = tl.program_id(0) % down * BM, tl.program_id(0) // down * BN
    part = tl.program_id(1)
    share = tl.cdiv(tl.cdiv(K, SPLIT_K), BK) * BK
    first = part * share
    last = tl.minimum(first + share, K)
    dtype: tl.constexpr = x.dtype.element_ty
    middle: tl.constexpr = 8.0 if BITS == 4 else (0.0 if SIGNED else 128.0)
    sums: tl.constexpr = ZERO or NUMBER or middle != 0.0
    columns = col + tl.arange(0, BN)
    rows = first_row + tl.arange(0, BM)
    ks = tl.arange(0, BK // PER)
    wrapped = (columns % N).to(tl.int64)[:, None]
    at_w = w + wrapped * w_row + ks[None, :]
    numbers = tl.arange(0, BK)
    at_x = x + (rows % M).to(tl.int64)[None, :] * x_row + numbers[:, None]
    there = (columns < N)[:, None]
    acc = tl.zeros((BN, BM), tl.float32)
    total = tl.zeros((BN, BM), tl.float32)
    ones = tl.full((BN, BK), 1.0, tl.float32).to(dtype)
    at = wrapped * groups
    next_s, next_z = scale_and_zero(
        scale, zero, offset, at + (tl.minimum(first, K - 1) // group if GROUPED else 0), there, ZERO, NUMBER, middle
    )  # fmt: skip
    for k in range(first, last, BK):
        s, z = next_s, next_z
        if GROUPED:
            next_s, next_z = scale_and_zero(
                scale, zero, offset, at + tl.minimum(k + BK, K - 1) // group, there, ZERO, NUMBER, middle
            )  # fmt: skip
        if EVEN:
            element = tl.load(at_w + k // PER)
            some = tl.load(at_x + k)
        else:
            element = tl.load(at_w + k // PER, mask=(k + ks * PER < last)[None, :], other=0)
            some = tl.load(at_x + k, mask=(k + numbers < last)[:, None], other=0.0)
        p = tl.zeros((BN, BM), tl.float32) if GROUPED else acc
        t = tl.zeros((BN, BM), tl.float32) if GROUPED else total
        if sums:
            t = tl.dot(ones, some, t)
        if PER == 1:
            p = tl.dot(around_zero(element, 0, PER, BITS, SIGNED, dtype), some, p)
        else:
            even, odd = halved(some, BK, BM)
            if PER == 2:
                pieces = (even, odd)
            else:
                first_of, third = halved(even, BK // 2, BM)
                second, fourth = halved(odd, BK // 2, BM)
                pieces = (first_of, second, third, fourth)
            for i in tl.static_range(PER):
                p = tl.dot(around_zero(element, i, PER, BITS, SIGNED, dtype), pieces[i], p)
        if GROUPED:
            acc += (p - z * t) * s
        else:
            acc, total = p, t
    if not GROUPED:
        acc = (acc - next_z * total) * next_s
    if BIAS:
        acc += tl.load(bias + columns, mask=columns < N, other=0.0).to(tl.float32)[:, None]
    into = y + (part.to(tl.int64) * M + rows)[None, :] * N + columns[:, None]
    tl.store(into, acc.to(y.dtype.element_ty), mask=(rows < M)[None, :] & (columns < N)[:, None])


def words_of(w: torch.Tensor, columns: int, group: int, rows: torch.Tensor) -> bool:
    """Whether weights are read as words and rows of X as pairs: each row begins with one, each group too, which also
    are whole chunks of four words.
    """
    per = 8 * w.shape[1] // max(columns, 1)
    per = 32 // max(per, 1)
    return (
        columns % per == 0 and group % per == 0 and (group == columns or group % (4 * per) == 0)
        and w.stride(0) % 4 == 0 and w.storage_offset() % 4 == 0 and w.data_ptr() % 4 == 0
        and (rows.stride(0) % 2 == 0 or rows.shape[0] == 1) and rows.data_ptr() % 4 == 0
    )  # fmt: skip


def space(
    m: int, n: int, k: int, group: int, halves: bool, words: bool, after: tuple[tuple[str, Any], ...],
    signed: bool = True, bf16: bool = True,
) -> list[Variant]:  # fmt: skip
    """Variants worth timing, the likeliest first. group: numbers that share a scale, K where a row does; words: weights
    can be read a word at a time; after: the constants of zero points and bias; signed: bytes with a sign.
    """
    grouped = group < k
    bits = 4 if halves else 8
    per = (16 if words else 8) // bits
    stored: tuple[tuple[str, Any], ...] = (("SIGNED", signed and not halves), *after)

    def rows(bn: int, bc: int, warps: int, split: int, stages: int = 1) -> Variant:
        """By words where they can be read so."""
        if not words:
            constants: tuple[tuple[str, Any], ...] = (
                ("ROWS", m), ("BN", 16), ("BW", 128), ("PER", 2 if halves else 1), ("SPLIT_K", split),
                ("GROUPED", grouped), *after,
            )  # fmt: skip
            return Variant(weight_only_bytes, constants, 4, None, ("SPLIT_K",), 0, 80)
        constants = (
            ("ROWS", m), ("BN", bn), ("BC", bc), ("BITS", bits), ("SPLIT_K", split), ("STAGES", stages),
            ("EVEN", k % (bc * 4 * (32 // bits)) == 0), ("GROUPED", grouped), *stored,
        )  # fmt: skip
        held = bn * bc // (32 * warps) * 12 + 24 * (m + 1)
        return Variant(
            weight_only_words, constants, warps, None, ("BN", "BC", "SPLIT_K", "STAGES"), stages * bn * bc * 16, held
        )

    def dot(bm: int, bn: int, bk: int, warps: int, stages: int, split: int = 1) -> Variant:
        bk = min(bk, group & -group) if grouped else bk
        numbers = per if bk // per >= 16 else 8 // bits  # a product is of 16 numbers at least
        constants: tuple[tuple[str, Any], ...] = (
            ("BM", bm), ("BN", bn), ("BK", bk), ("SPLIT_K", split), ("PER", numbers), ("BITS", bits),
            ("EVEN", k % bk == 0), ("GROUPED", grouped), *stored,
        )  # fmt: skip
        shared = stages * (bn * bk * bits // 8 + bm * bk * 2) + bm * bk * 2
        held = bn * bm * (3 if grouped else 2) // (32 * warps) + 72
        return Variant(weight_only_dot, constants, warps, stages, ("BM", "BN", "BK", "SPLIT_K"), shared, held)

    def splits(bn: int, step: int, most: int = 8) -> list[int]:
        """Parts of K by which an H200's multiprocessors have two to `most` programs each; one is always tried."""
        across = triton.cdiv(n, bn)
        several = [s for s in (2, 4, 8, 16) if 132 <= across * s <= 132 * most and k // s >= 2 * step]
        return [1, *several[-3:]] if across < 66 * most else [1]

    variants: list[Variant] = []
    if m <= FEW_ROWS:
        if not words:
            return [rows(0, 0, 4, s) for s in (1, splits(16, 256)[-1])]
        step = 16 * 4 * (32 // bits)
        shapes = [(32, 16, 4, 1), (16, 16, 4, 2), (32, 16, 4, 2), (16, 16, 4, 1)]
        for bn, bc, warps, stages in shapes if m > 1 else [*shapes[:3], (64, 16, 4, 1), (64, 16, 4, 2)]:
            several = splits(bn, step * bc // 16, 16)
            variants += [rows(bn, bc, warps, s, stages) for s in (several if stages == 1 else several[-2:])]
        few = splits(64, 128)
        dots = [dot(16, 64, 128, 4, 4, s) for s in few[-2:]]
        return variants + dots
    if m >= LEAST_UNPACKED and words and not dict(after)["BIAS"]:
        variants.append(unpacking(k, group, bits, signed, bf16, after))
    bm = 16 if m <= 16 else 32 if m <= 32 else 64 if m <= 64 else 128
    for bn, bk, warps, stages in ((64, 128, 4, 4), (64, 128, 4, 3), (128, 128, 8, 3), (128, 64, 4, 4), (64, 256, 4, 3)):
        several = splits(bn, bk)
        first = bn == 64 and stages == 4
        variants += [dot(bm, bn, bk, warps, stages, s) for s in (several if first else several[-1:])]
    if m > 64 and grouped:
        variants += [dot(64, 64, 128, 4, 4)]  # three results of 128 rows fill the registers
    if m > 128:
        variants += [dot(64, 128, 64, 4, 4), dot(128, 64, 64, 4, 4)]
    return variants


def unpacking(
    k: int, group: int, bits: int, signed: bool, bf16: bool, after: tuple[tuple[str, Any], ...]
) -> Variant:  # fmt: skip
    """Weights as 16 bits, by a kernel, for the library's product."""
    wide = min(256, triton.next_power_of_2(group * bits // 32))
    constants: tuple[tuple[str, Any], ...] = (
        ("BITS", bits), ("BG", 1024 // wide), ("BW", wide), ("BF16", bf16), ("SIGNED", signed and bits == 8),
        *(pair for pair in after if pair[0] != "BIAS"),
    )  # fmt: skip
    return Variant(unpack_weights, constants, 4, None, ("BW",), 0, 64)


def launch_unpacked(
    variant: Variant, x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None, offset: float,
    y: torch.Tensor,
) -> None:  # fmt: skip
    """Weights into 16 bits like X, and the product by torch.mm."""
    k, (n, groups) = x.shape[1], scale.shape
    out = torch.empty((n, k), dtype=x.dtype, device=x.device)
    words, w = k // groups * variant["BITS"] // 32, w.view(torch.int32)
    grid = (triton.cdiv(n * groups, variant["BG"]), triton.cdiv(words, variant["BW"]))
    unpack_weights[grid](
        w, scale, scale if zero is None else zero, out.view(torch.int32), n, w.stride(0), groups, words, offset,
        EXPONENT, **variant.meta,
    )  # fmt: skip
    torch.mm(x, out.T, out=y)


def launch(
    variant: Variant, x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None, offset: float,
    bias: torch.Tensor | None, y: torch.Tensor,
) -> None:  # fmt: skip
    """Run one variant on X [M, K] and stored weights into Y [M, N]; scale and zero [N, groups], contiguous."""
    if variant.kernel is unpack_weights:
        launch_unpacked(variant, x, w, scale, zero, offset, y)
        return
    (m, k), (n, groups) = x.shape, scale.shape
    group, split = k // groups, variant["SPLIT_K"]
    into = y if split == 1 else torch.empty((split, m, n), dtype=torch.float32, device=x.device)
    meta = variant.meta | {"BIAS": bool(variant["BIAS"]) and split == 1}
    given = (scale, scale if zero is None else zero, scale if bias is None else bias)
    across, x_row, more = triton.cdiv(n, variant["BN"]), x.stride(0), ()
    grid: tuple[int, ...] = (across, split)
    if variant.kernel is weight_only_words:
        w, x_row, more = w.view(torch.int32), x_row // 2, (EXPONENT,)
    elif variant.kernel is weight_only_bytes:
        grid = (across, split, m)
    else:
        w = w.view(torch.int16) if variant["PER"] * variant["BITS"] == 16 else w.view(torch.uint8)
        grid = (across * triton.cdiv(m, variant["BM"]), split)
    variant.kernel[grid](x, w, *given, into, m, n, k, x_row, w.stride(0), group, groups, offset, *more, **meta)
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
    words = words_of(w, k, group, rows)
    after = (("ZERO", tensor is not None), ("NUMBER", number is not None), ("BIAS", bias is not None))
    key = (m, n, k, group, x.dtype, scale.dtype, w.dtype, halves, words, rows.stride(0) % 8 == 0, *after)
    signed = w.dtype == torch.int8
    arguments = (rows, w, scale, tensor, float(number or 0.0), bias, y)
    variant = tuner.pick(
        key, lambda: space(m, n, k, group, halves, words, after, signed, x.dtype == torch.bfloat16), launch, *arguments,
        uncopied=arguments[:-1],
    )  # fmt: skip
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
    m: int, group: int, halves: bool, which: int, after: tuple[tuple[str, Any], ...], signed: bool = True
) -> Build:
    """A variant as compiled offline: bf16, sizes multiples of 16."""
    v = space(m, 4096, 8192, group, halves, True, after, signed)[which]
    if v.kernel is unpack_weights:
        pointers = {"w": "*i32", "scale": "*bf16", "zero": "*bf16", "out": "*i32"}
        integers: tuple[str, ...] = ("N", "w_row", "groups", "words")
    else:
        w = "*i32" if v.kernel is weight_only_words else "*i16"
        y = "*fp32" if v["SPLIT_K"] > 1 else "*bf16"
        pointers = {"x": "*bf16", "w": w, "scale": "*bf16", "zero": "*bf16", "bias": "*bf16", "y": y}
        integers = ("M", "N", "K", "x_row", "w_row", "group", "groups")
    exponent = {} if v.kernel is weight_only_dot else {"exponent": "i32"}
    signature = {**pointers, **dict.fromkeys(integers, "i32"), "offset": "fp32", **exponent}
    without = {t: f"its tiles are larger than {kib} KiB of shared memory" for t, kib in SHARED_KIB.items()
               if v.shared_bytes > kib * 1024}  # fmt: skip
    sizes = ("N", "w_row", "words") if v.kernel is unpack_weights else ("N", "K", "x_row", "w_row", "group")
    return Build(v, signature, sizes, without)


PLAIN = (("ZERO", False), ("NUMBER", False), ("BIAS", False))
ZEROS = (("ZERO", True), ("NUMBER", False), ("BIAS", False))
NUMBERS = (("ZERO", False), ("NUMBER", True), ("BIAS", False))
LAYERS = ((4096, 4096), (28672, 4096), (4096, 14336))
"""N, K of a model of 8 billion parameters: out, gate and up, down."""
OPERATIONS = (
    Operation(
        name="weight_only_gemm", run=weight_only_gemm, reference=reference, inputs=inputs, cost=cost,
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
            _build(1, 128, True, 0, ZEROS), _build(1, 128, True, 3, ZEROS), _build(2, 32, True, 0, NUMBERS),
            _build(1, 8192, False, 0, PLAIN), _build(4, 128, True, 0, ZEROS), _build(16, 128, True, 0, ZEROS),
            _build(64, 128, True, 1, ZEROS), _build(16, 8192, False, 0, PLAIN),
            _build(16, 8192, False, 0, NUMBERS, False), _build(512, 128, True, 0, ZEROS),
            _build(512, 8192, False, 0, PLAIN),
        ),
        fixed=("bits", "group"), wrong_interpreted=("bf16",),
    ),
)  # fmt: skip
