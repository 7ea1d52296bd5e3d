"""Attention, forward: softmax(scale * Q K^T) V, without the scores ever reaching memory.

Scores may be soft-capped (cap * tanh(s / cap)), biased or masked by a tensor, causal, limited to a sliding window;
query heads may share key heads. Each program takes BM queries of one head and walks over blocks of BN keys with the
running maximum and sum of each row (Milakov and Gimelshein, 2018; Dao et al., 2022). Blocks that the mask leaves whole
go through a loop without masks, those on its edges through another, those outside of it through none.

Traffic: Q, K, V read once, O written once (keys and values again from L2, which the order of programs sees to). 4 D
floating-point operations for a pair of query and key that sees each other, and one exponential: at D = 128 an eighth
of a clock of a Hopper multiprocessor's matrix units and a sixteenth of its exponentials, so that neither hides behind
the other by itself. cuDNN and FlashAttention 3 arrange that by hand, as `flash_attention_hopper` does for some calls on
Hopper (there faster than cuDNN at D = 128); Triton leaves it to the two groups of four warps, or to two programs on a
multiprocessor. For plain attention elsewhere call SDPA; this file is to be read, and for what SDPA has no fast path
for: a cap or a window together with a bias.

Conventions: causal is aligned to the top left: query i sees keys 0 to i, as is_causal says in SDPA.
window: no key before i - window either; with causal and equal lengths flash_attn's window_size=(window, 0). A row that
sees no key, or only ones with a bias of -inf, gives 0 and a log-sum-exp of -inf, where softmax alone gives NaN.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language import target_info
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.ops.attention import hopper_variants
from kernels.ops.attention.flash_attention_hopper import flash_attention_hopper_kernel
from kernels.ops.matmul.gemm import DTYPES, PRECISIONS, SHARED_KIB, tma_takes
from kernels.ops.shared.pairs import INTERPRETED
from kernels.spec import Build, Case, Cost, Maker, Operation, case, wide
from kernels.tuning import Tuner, Variant

tuner = Tuner("flash_attention")


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None = None, causal: bool = False,
    window: int | None = None, cap: float | None = None, scale: float | None = None, logsumexp: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """What is computed, in plain PyTorch."""
    if q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    s = wide(q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if cap is not None:
        s = cap * torch.tanh(s / cap)
    if bias is not None:
        s = s.masked_fill(~bias, -math.inf) if bias.dtype == torch.bool else s + bias
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril(), -math.inf)
    if window is not None:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(-window), -math.inf)
    p = torch.softmax(s, -1)
    if bias is not None or window is not None:
        p = torch.where((s == -math.inf).all(-1, keepdim=True), 0.0, p)
    o = p.to(v.dtype) @ v
    return (o, torch.logsumexp(s, -1)) if logsumexp else o


# ---- scores and the order of blocks
# What scores of attention go through before softmax, block by block, and the order in which blocks of queries run.
#
# Scores are in units of log2: exp2(score) is exp of what PyTorch's softmax would see.
L2_BYTES = 32 << 20
"""Keys and values of heads that run together are held to this: half the L2 of an H100 or more."""


@triton.jit
def tanh_of(x, APPROXIMATE: tl.constexpr):
    """tanh of f32. APPROXIMATE: one instruction of sm_75 on, off by at most 2^-11 of the result (PTX ISA 7.0).

    Else by Cephes' tanhf: a polynomial below 0.625, where 1 - 2 / (exp(2x) + 1) would lose its digits.
    """
    if APPROXIMATE and target_info.is_cuda() and not INTERPRETED:
        return tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )  # fmt: skip
    z = x * x
    small = (((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z + 1.33314422036e-1) * z
    small = (small - 3.33332819422e-1) * z * x + x
    large = 1.0 - 2.0 / (tl.exp2(x * 2.8853900817779268) + 1.0)
    return tl.where(tl.abs(x) < 0.625, small, large)


@triton.jit
def biased(
    s, bias, rows, cols, height, width, bias_row, bias_col, BIAS: tl.constexpr, ONE_ROW: tl.constexpr
):  # fmt: skip
    """s [rows, cols] with the bias of this head added ("add"), or -inf where its mask is 0 ("mask").

    ONE_ROW: all rows have the same, so that it is read once.
    """
    if ONE_ROW:
        b = tl.load(bias + cols.to(tl.int64) * bias_col, mask=cols < width, other=0)[None, :]
    else:
        at = rows.to(tl.int64)[:, None] * bias_row + cols.to(tl.int64)[None, :] * bias_col
        b = tl.load(bias + at, mask=(rows < height)[:, None] & (cols < width)[None, :], other=0)
    if BIAS == "mask":
        return tl.where(b != 0, s, float("-inf"))
    return s + b.to(tl.float32) * 1.4426950408889634


@triton.jit
def visible(rows, cols, width, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Which keys `cols` each of the queries `rows` sees, [rows, cols]."""
    keep = (cols < width)[None, :]
    if CAUSAL:
        keep = keep & (cols[None, :] <= rows[:, None])
    if WINDOW:
        keep = keep & (cols[None, :] >= rows[:, None] - window)
    return keep


@triton.jit
def block_and_head(program, blocks, heads, together):
    """Which block of queries, of which head. `together` heads take turns, their last blocks first.

    Under a causal mask the last blocks have most to do: begun last, one of them would run alone at the end. Few
    heads at a time, because their keys and values then stay in L2 (as FlashAttention 3's scheduler does).
    """
    first = program // (together * blocks) * together
    height = tl.minimum(heads - first, together)
    within = program % (together * blocks)
    return blocks - 1 - within // height, first + within % height


def heads_together(keys: int, width: int, itemsize: int, sharing: int, heads: int, balanced: bool) -> int:
    """Heads that take turns: those whose keys and values fit in L2; one group of `sharing` where blocks are alike."""
    if balanced:
        return min(sharing, heads)
    return min(max(1, L2_BYTES // (2 * max(1, keys) * width * itemsize)) * sharing, heads)


@triton.jit
def rows_of_head(
    x, base, batch, head, row, height, x_row, ROWS: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    MASKED: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """x[batch, head, row : row + ROWS] as [ROWS, DP], zeros beyond D and beyond `height` rows.

    TMA: x is a descriptor; otherwise a pointer, `base` elements before the head. Not MASKED: all rows are there.
    """
    if TMA:
        tile = x.load([batch, head, row, 0]).reshape(ROWS, DP)
    else:
        rows = tl.arange(0, ROWS)
        d = tl.arange(0, DP)
        at = x + base + tl.cast(row, tl.int64) * x_row + (rows[:, None] * x_row + d[None, :])
        if MASKED:
            tile = tl.load(at, mask=(row + rows < height)[:, None] & (d < D)[None, :], other=0.0)
        elif D != DP:
            tile = tl.load(at, mask=(d < D)[None, :], other=0.0)
        else:
            tile = tl.load(at)
    return tile


@triton.jit
def take_block(
    acc, total, top, s, tile, v, bias, v_base, batch, head, rows, n, height, width, window, factor, cap, v_row,
    bias_row, bias_col, D: tl.constexpr, DP: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr, ONE_ROW: tl.constexpr, FOLD: tl.constexpr,
    TMA: tl.constexpr, PRECISION: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """acc, total and top after the BN keys from n, whose products with the queries are s [BM, BN]."""
    cols = n + tl.arange(0, BN)
    if CAP:
        s = cap * tanh_of(s * factor, tile.dtype == tl.bfloat16)
    elif not FOLD:
        s = s * factor
    if BIAS != "":
        s = biased(s, bias, rows, cols, height, width, bias_row, bias_col, BIAS, ONE_ROW)
    if MASKED:
        s = tl.where(visible(rows, cols, width, window, CAUSAL, WINDOW), s, float("-inf"))
    if FOLD:
        # The scale is applied where exp2 takes its argument: one multiply-add for each score.
        larger = tl.maximum(top, tl.max(s, 1) * factor)
    else:
        larger = tl.maximum(top, tl.max(s, 1))
    if WINDOW or BIAS != "":
        at = tl.where(larger == float("-inf"), 0.0, larger)  # a row that has seen nothing yet
    else:
        at = larger
    if FOLD:
        p = tl.exp2(s * factor - at[:, None])
    else:
        p = tl.exp2(s - at[:, None])
    shrink = tl.exp2(top - at)
    total = total * shrink + tl.sum(p, 1)
    acc = acc * shrink[:, None]
    values = rows_of_head(v, v_base, batch, head, n, width, v_row, BN, D, DP, MASKED, TMA)
    acc = tl.dot(p.to(values.dtype), values, acc, input_precision=PRECISION)
    return acc, total, larger


@triton.jit
def walk(
    acc, total, top, tile, k, v, bias, k_base, v_base, batch, head, rows, lo, hi, height, width, window, factor, cap,
    k_row, v_row, bias_row, bias_col, D: tl.constexpr, DP: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr, ONE_ROW: tl.constexpr, FOLD: tl.constexpr,
    TMA: tl.constexpr, PRECISION: tl.constexpr, MASKED: tl.constexpr, AHEAD: tl.constexpr = False,
):  # fmt: skip
    """acc, total and top after the keys from lo to hi: results [BM, DP] and sums [BM] relative to exp2(top [BM]).

    AHEAD: the products of the next block are asked for before the exponentials of this one, so that the matrix units
    have work during these (as FlashAttention 3 does within a group of warps). lo and hi are then multiples of BN.
    """
    if AHEAD:
        if lo < hi:
            keys = rows_of_head(k, k_base, batch, head, lo, width, k_row, BN, D, DP, MASKED, TMA)
            s = tl.dot(tile, keys.T, input_precision=PRECISION)
            for n in range(lo, hi - BN, BN):
                n = tl.multiple_of(n, BN)
                keys = rows_of_head(k, k_base, batch, head, n + BN, width, k_row, BN, D, DP, MASKED, TMA)
                following = tl.dot(tile, keys.T, input_precision=PRECISION)
                acc, total, top = take_block(
                    acc, total, top, s, tile, v, bias, v_base, batch, head, rows, n, height, width, window, factor, cap,
                    v_row, bias_row, bias_col, D, DP, BN, CAUSAL, WINDOW, CAP, BIAS, ONE_ROW, FOLD, TMA, PRECISION,
                    MASKED,
                )  # fmt: skip
                s = following
            acc, total, top = take_block(
                acc, total, top, s, tile, v, bias, v_base, batch, head, rows, hi - BN, height, width, window, factor,
                cap, v_row, bias_row, bias_col, D, DP, BN, CAUSAL, WINDOW, CAP, BIAS, ONE_ROW, FOLD, TMA, PRECISION,
                MASKED,
            )  # fmt: skip
    else:
        for n in range(lo, hi, BN):
            n = tl.multiple_of(n, BN)
            keys = rows_of_head(k, k_base, batch, head, n, width, k_row, BN, D, DP, MASKED, TMA)
            s = tl.dot(tile, keys.T, input_precision=PRECISION)
            acc, total, top = take_block(
                acc, total, top, s, tile, v, bias, v_base, batch, head, rows, n, height, width, window, factor, cap,
                v_row, bias_row, bias_col, D, DP, BN, CAUSAL, WINDOW, CAP, BIAS, ONE_ROW, FOLD, TMA, PRECISION, MASKED,
            )  # fmt: skip
    return acc, total, top


@triton.jit
def flash_attention_kernel(
    q, k, v, bias, o, lse, heads, all_heads, sharing, together, height, width, window, factor, cap, q_batch, q_head,
    q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row, bias_batch, bias_head, bias_row,
    bias_col, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, CAP: tl.constexpr, BIAS: tl.constexpr, ONE_ROW: tl.constexpr, FOLD: tl.constexpr,
    LSE: tl.constexpr, WHOLE: tl.constexpr, TMA: tl.constexpr, PRECISION: tl.constexpr, AHEAD: tl.constexpr = False,
):  # fmt: skip
    """BM queries of one head. TMA: q, k, v are descriptors of [batch, heads, rows, D]. WHOLE: BN divides the keys.

    AHEAD: see `walk`; of the blocks that the mask leaves whole.

    factor: the scale times log2(e), by which cap is too; where capped the scale over the cap instead.
    """
    block, z = block_and_head(tl.program_id(0), tl.cdiv(height, BM), all_heads, together)
    batch, head = z // heads, z % heads
    far, near, key_head = batch.to(tl.int64), head.to(tl.int64), head // sharing
    first = block * BM
    rows = first + tl.arange(0, BM)
    tile = rows_of_head(
        q, far * q_batch + near * q_head, batch, head, first, height, q_row, BM, D, DP, True, TMA
    )  # fmt: skip
    k_base = far * k_batch + key_head.to(tl.int64) * k_head
    v_base = far * v_batch + key_head.to(tl.int64) * v_head
    if BIAS != "":
        bias += far * bias_batch + near * bias_head
    acc = tl.zeros((BM, DP), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    top = tl.full((BM,), float("-inf"), tl.float32)

    # Keys from lo to hi are seen by any of these rows; from `left` to `right` by all of them.
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
        acc, total, top = walk(
            acc, total, top, tile, k, v, bias, k_base, v_base, batch, key_head, rows, lo, tl.minimum(left, hi), height,
            width, window, factor, cap, k_row, v_row, bias_row, bias_col, D, DP, BN, CAUSAL, WINDOW, CAP, BIAS,
            ONE_ROW, FOLD, TMA, PRECISION, True,
        )  # fmt: skip
    acc, total, top = walk(
        acc, total, top, tile, k, v, bias, k_base, v_base, batch, key_head, rows, left, right, height, width, window,
        factor, cap, k_row, v_row, bias_row, bias_col, D, DP, BN, CAUSAL, WINDOW, CAP, BIAS, ONE_ROW, FOLD, TMA,
        PRECISION, False, AHEAD,
    )  # fmt: skip
    if CAUSAL or not WHOLE:
        acc, total, top = walk(
            acc, total, top, tile, k, v, bias, k_base, v_base, batch, key_head, rows, tl.maximum(left, right), hi,
            height, width, window, factor, cap, k_row, v_row, bias_row, bias_col, D, DP, BN, CAUSAL, WINDOW, CAP, BIAS,
            ONE_ROW, FOLD, TMA, PRECISION, True,
        )  # fmt: skip

    inside = rows < height
    if LSE:
        tl.store(lse + z.to(tl.int64) * height + rows, (top + tl.log2(total)) * 0.6931471805599453, mask=inside)
    if WINDOW or BIAS != "":
        total = tl.where(total == 0.0, 1.0, total)
    inverse = 1.0 / total
    d = tl.arange(0, DP)
    to = o + far * o_batch + near * o_head + rows.to(tl.int64)[:, None] * o_row + d[None, :]
    tl.store(to, (acc * inverse[:, None]).to(o.dtype.element_ty), mask=inside[:, None] & (d < D)[None, :])


SHAPES = {
    64: (
        ((128, 64, 4, 3), (64, 128, 4, 2), (64, 64, 4, 3), (128, 128, 8, 3), (128, 64, 8, 3), (128, 64, 4, 2)),
        ((64, 64, 4, 3), (64, 128, 4, 2), (128, 64, 4, 3), (128, 128, 8, 2)),
    ),
    128: (
        ((128, 128, 8, 3), (64, 64, 4, 3), (128, 64, 4, 2), (128, 128, 8, 2), (128, 64, 8, 3), (64, 64, 4, 2)),
        ((64, 64, 4, 3), (128, 128, 8, 2), (128, 64, 8, 3), (64, 32, 4, 2)),
    ),
    256: (
        ((128, 64, 8, 2), (128, 32, 8, 3), (64, 32, 4, 2), (64, 64, 4, 2)),
        ((64, 32, 4, 2), (128, 64, 8, 2), (64, 64, 8, 2)),
    ),
}
"""By padded head dimension: BM, BN, warps and stages of 16-bit variants, with TMA and with pointers.

Two programs on a multiprocessor, or two groups of four warps in one, let the exponentials of one run during the
products of the other. With two stages the next block is asked for when this one is done; with three one block earlier.
"""

AHEAD_SHAPES = {
    64: ((128, 64, 4, 3), (128, 128, 8, 2), (128, 64, 8, 3)),
    128: ((128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 2)),
    256: ((128, 32, 8, 2), (64, 32, 4, 2)),
}
"""The same, by TMA, where a second tile of scores is in registers: of the next block, whose products run meanwhile."""


def space(
    q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor | None, causal: bool, window: int | None, cap: float | None,
    scale: float, logsumexp: bool, tma: bool, precision: str = "ieee",
) -> list[Variant]:  # fmt: skip
    """Variants worth timing for these operands, the likeliest first; tma: whether TMA takes q, k and v."""
    (d, rows), columns, size = (q.shape[3], q.shape[2]), k.shape[2], q.element_size()
    dp = max(16, triton.next_power_of_2(d))
    one_row = bias is not None and bias.shape[2] == 1
    fold = cap is None and scale > 0 and bias_kind(bias) != "add"

    def tile(bm: int, bn: int, warps: int, stages: int, described: bool = False, ahead: bool = False) -> Variant:
        bm, bn = min(bm, max(16, triton.next_power_of_2(rows))), min(bn, max(16, triton.next_power_of_2(columns)))
        constants: tuple[tuple[str, Any], ...] = (
            ("D", d), ("DP", dp), ("BM", bm), ("BN", bn), ("CAUSAL", causal), ("WINDOW", window is not None),
            ("CAP", cap is not None), ("BIAS", bias_kind(bias)), ("ONE_ROW", one_row), ("FOLD", fold),
            ("LSE", logsumexp), ("WHOLE", columns % bn == 0), ("TMA", described), ("PRECISION", precision),
        )  # fmt: skip
        tuned = ("BM", "BN", "TMA")
        if ahead:
            constants, tuned = (*constants, ("AHEAD", True)), (*tuned, "AHEAD")
        # Queries stay; keys and values are copied ahead. Results, scores and their exponentials are in registers.
        shared = (bm + 2 * stages * bn) * dp * size
        registers = (bm * dp + bm * bn * (2 if ahead else 1) + bm * bn * size // 4) // (32 * warps) + 30
        return Variant(flash_attention_kernel, constants, warps, stages, tuned, shared, registers)

    described, pointed = SHAPES[min(max(dp, 64), 256)]
    if size == 4:
        shapes = [(64, 32, 8, 2), (32, 32, 4, 2), (16, 32, 4, 2)] if dp <= 64 else [(16, 32, 4, 2), (32, 32, 8, 2)]
        variants = [tile(*s) for s in shapes]
    elif rows <= 32:
        variants = [tile(16, 64, 4, 3), tile(32, 128, 4, 2), tile(16, 128, 4, 2), tile(64, 64, 4, 2, tma)]
    elif tma:
        variants = [*(tile(*s, True) for s in described), *(tile(*s) for s in pointed[:2])]
        variants += [tile(*s, True, True) for s in AHEAD_SHAPES[min(max(dp, 64), 256)]]
        plain = bias is None and cap is None and window is None
        if hopper_variants.offered(q, d, tma, fold, plain):
            variants = [*hopper_variants.space(d, columns, causal, logsumexp), *variants]
    else:
        variants = [tile(*s) for s in pointed]
    return list(dict.fromkeys(variants))  # blocks cut to few queries or keys can be the same


def launch(
    variant: Variant, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None, o: torch.Tensor,
    lse: torch.Tensor, window: int | None, cap: float | None, scale: float,
) -> None:  # fmt: skip
    """Run one variant on [batch, heads, rows, D] with contiguous rows, and a bias of four axes, into o and lse."""
    batch, heads, rows, d = q.shape
    columns, sharing, log2e = k.shape[2], heads // k.shape[1], math.log2(math.e)
    balanced = not variant["CAUSAL"] or window is not None
    together = heads_together(columns, d, q.element_size(), sharing, batch * heads, balanced)
    if variant.kernel is flash_attention_hopper_kernel:
        table = hopper_variants.tiles_for(variant, q, k, together)
        if table is not None:
            hopper_variants.launch(variant, q, k, v, o, lse, scale * log2e, table)
            return
        of_triton = space(q, k, None, variant["CAUSAL"], None, None, scale, variant["LSE"], True)
        variant = next(v for v in of_triton if v.kernel is flash_attention_kernel)
    bm, bn, dp = variant["BM"], variant["BN"], variant["DP"]
    x, y, z = q, k, v
    if variant["TMA"]:
        x, y, z = (
            TensorDescriptor(t, list(t.shape), list(t.stride()), [1, 1, b, dp]) for t, b in ((q, bm), (k, bn), (v, bn))
        )
    flash_attention_kernel[(triton.cdiv(rows, bm) * batch * heads,)](
        x, y, z, q if bias is None else bias, o, lse, heads, batch * heads, sharing, together, rows, columns,
        min(window or 0, 2**30), scale * log2e if cap is None else scale / cap, (cap or 0.0) * log2e,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        *((0, 0, 0, 0) if bias is None else (s * (n > 1) for n, s in zip(bias.shape, bias.stride(), strict=True))),
        **variant.meta,
    )  # fmt: skip


# ---- arguments
# What attention takes: which tensors and settings it refuses, and how the others are laid out for its kernel.
WIDEST = 256
"""Largest head dimension: with more, a block of results does not fit in registers."""


def bias_kind(bias: torch.Tensor | None) -> str:
    """How a bias acts: "add", "mask", or "" where there is none."""
    return "" if bias is None else "mask" if bias.dtype in (torch.bool, torch.uint8) else "add"


def readable(x: torch.Tensor) -> torch.Tensor:
    """x with contiguous rows of its own, less than 2^24 elements apart: offsets within a block are 32 bits."""
    return x if x.stride(-1) == 1 and 0 not in x.stride() and x.stride(2) < 1 << 24 else x.contiguous()


def narrow(bias: torch.Tensor) -> torch.Tensor:
    """A bias with four axes, of size 1 where it is the same all along; a bool's as bytes."""
    full = bias.view(torch.uint8) if bias.dtype == torch.bool else bias
    full = full[(None,) * (4 - full.dim())]
    for axis in range(4):
        if full.stride(axis) == 0:
            full = full.narrow(axis, 0, 1)
    return full


def tma_takes_heads(x: torch.Tensor) -> bool:
    """Whether a descriptor of [batch, heads, rows, D] can be made of it: 16 bytes divide base and strides."""
    return all(s > 0 and s % 8 == 0 for s in x.stride()[:-1]) and x.stride(-1) == 1 and tma_takes(x[0, 0])


def refuse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None, window: int | None,
    cap: float | None, precision: str,
) -> None:  # fmt: skip
    """Raises TypeError or ValueError for what flash_attention does not take."""
    if q.dtype not in DTYPES or q.dtype != k.dtype or q.dtype != v.dtype:
        raise TypeError(f"flash_attention takes f32, f16 or bf16 alike, not {q.dtype}, {k.dtype} and {v.dtype}")
    shapes = f"{[*q.shape]}, {[*k.shape]} and {[*v.shape]}"
    if q.dim() != 4 or k.shape != v.shape or k.dim() != 4 or (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        raise ValueError(f"flash_attention takes [B, H, S, D] and twice [B, KV, T, D], not {shapes}")
    if not 1 <= q.shape[3] <= WIDEST:
        raise ValueError(f"flash_attention takes head dimensions from 1 to {WIDEST}, not {q.shape[3]}")
    if (k.shape[1] == 0) != (q.shape[1] == 0) or (k.shape[1] and q.shape[1] % k.shape[1]):
        raise ValueError(f"{q.shape[1]} query heads cannot share {k.shape[1]} key heads evenly")
    if bias is not None:
        if bias.dtype not in (q.dtype, torch.float32, torch.bool):
            raise TypeError(f"the bias is {q.dtype}, torch.float32 or torch.bool, not {bias.dtype}")
        full = (*q.shape[:3], k.shape[2])
        near = tuple(bias.shape)[::-1]
        if bias.dim() > 4 or any(n not in (1, m) for n, m in zip(near, full[::-1], strict=False)):
            raise ValueError(f"a bias of {[*bias.shape]} does not broadcast to {[*full]}")
    if window is not None and window < 0:
        raise ValueError(f"the window is 0 keys or more, not {window}")
    if cap is not None and not 0 < cap < math.inf:
        raise ValueError(f"the cap is above 0, not {cap}")
    if precision not in PRECISIONS:
        raise ValueError(f"precision is one of {', '.join(PRECISIONS)}, not {precision!r}")
    if len({x.device for x in (q, k, v, bias) if x is not None}) > 1:
        raise ValueError("flash_attention takes tensors of one device")


def flash_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None = None, causal: bool = False,
    window: int | None = None, cap: float | None = None, scale: float | None = None, logsumexp: bool = False,
    precision: str = "ieee",
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Attention of Q [B, H, S, D] to K and V [B, KV, T, D], f32, f16 or bf16; H a multiple of KV, D from 1 to 256.

    bias: whatever broadcasts to [B, H, S, T]; added (Q's dtype or f32), or False where a key is hidden (bool).
    causal: query i sees keys up to i. window: and none before i - window. cap: scores become cap * tanh(score / cap),
    before the bias. scale: D^-0.5 where None. precision: of products of f32, "ieee", "tf32" or "tf32x3".
    Returns [B, H, S, D], in Q's order of strides; with `logsumexp` also that of each row's scores, f32 [B, H, S].
    Strided inputs are taken as they are where their last axis is contiguous, else copied. D is padded to a power of
    two: 80 costs what 128 does. Raises TypeError for other dtypes, ValueError for shapes and settings.
    """
    refuse(q, k, v, bias, window, cap, precision)
    q, k, v = readable(q), readable(k), readable(v)
    batch, heads, rows, d = q.shape
    scale = d**-0.5 if scale is None else scale
    o = torch.empty_like(q)
    lse = torch.full((batch, heads, rows), -math.inf, device=q.device) if logsumexp else o
    if k.shape[2] == 0:
        o.zero_()
    elif o.numel():
        if bias is not None:
            bias = narrow(bias)
        tma = all(tma_takes_heads(x) for x in (q, k, v))
        settings = (causal, window, cap is None, bias_kind(bias), scale > 0, logsumexp, precision, tma)
        layout = () if bias is None else (bias.shape[2], bias.stride(3))
        key = (batch * heads, rows, k.shape[2], d, q.dtype, *settings, *layout)
        variant = tuner.pick(
            key, lambda: space(q, k, bias, causal, window, cap, scale, logsumexp, tma, precision), launch,
            q, k, v, bias, o, lse, window, cap, scale,
        )  # fmt: skip
        launch(variant, q, k, v, bias, o, lse, window, cap, scale)
    return (o, lse) if logsumexp else o


def _meta(shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


LONG, SHORT, MASK = _meta((4, 32, 4096, 128)), _meta((16, 16, 1024, 64)), _meta((4, 1, 1, 4096), torch.bool)


# ---- cases
# What attention is tried on, what it costs at least, and how its variants are compiled offline.
def pairs_seen(rows: int, columns: int, causal: bool, window: int | None) -> int:
    """How many (query, key) pairs the mask leaves: query i sees keys max(0, i - window) to i, or to the last one."""
    if not causal and window is None:
        return rows * columns
    total = 0
    for i in range(rows):
        last = min(i, columns - 1) if causal else columns - 1
        total += max(0, last - (0 if window is None else max(0, i - window)) + 1)
    return total


def inputs(c: Case, make: Maker) -> tuple[Any, ...]:
    """Arguments to try it on. h: query heads to a key head. bias: its shape by letters of bhqk, "mask hqk" a bool's."""
    b, kv, s, t, d = c["b"], c["kv"], c["s"], c.get("t", c["s"]), c["d"]
    h, kind, size = kv * c.get("h", 1), c.get("bias", ""), c.get("size", 1.0)

    def heads(n: int, rows: int, scale: float = 1.0) -> torch.Tensor:
        if c.get("rows_first", False):
            return make.normal((b, rows, n, d), c.torch_dtype, scale).transpose(1, 2)
        return make.normal((b, n, rows, d), c.torch_dtype, scale)

    if make.form == "special" and c.get("logsumexp"):
        make = Maker(make.device, make.seed)  # of a row with an infinite score it is NaN here, infinite in torch
    q, bias = heads(h, s, size), None
    if make.form == "special" and (kind or c.get("causal") or c.get("window")):
        # A key that is masked for all rows of a tile is not read: whether its NaN, times 0, shows is no promise.
        make = Maker(make.device, make.seed + 1)
    k, v = heads(kv, t, size), heads(kv, t)
    if kind:
        axes = zip("bhqk", (b, h, s, t), strict=True)
        shape = [n if letter in kind.removeprefix("mask ") else 1 for letter, n in axes]
        if kind.startswith("mask"):
            bias = make.mask(0.7, shape, torch.float32) > 0
        else:
            bias = make.normal(shape, torch.float32 if c.get("wide_bias", False) else c.torch_dtype)
    return (
        q, k, v, bias, c.get("causal", False), c.get("window"), c.get("cap"), c.get("scale"), c.get("logsumexp", False),
    )  # fmt: skip


def cost(c: Case) -> Cost:
    """Every tensor once; two products over the pairs that see each other."""
    b, kv, s, t, d, kind = c["b"], c["kv"], c["s"], c.get("t", c["s"]), c["d"], c.get("bias", "")
    h = kv * c.get("h", 1)
    moved = (2 * b * h * s * d + 2 * b * kv * t * d) * c.itemsize + (4 * b * h * s if c.get("logsumexp", False) else 0)
    if kind:
        axes = zip("bhqk", (b, h, s, t), strict=True)
        wide_bias = 1 if kind.startswith("mask") else 4 if c.get("wide_bias", False) else c.itemsize
        moved += math.prod(n for letter, n in axes if letter in kind.removeprefix("mask ")) * wide_bias
    return Cost(moved, 4 * b * h * d * pairs_seen(s, t, c.get("causal", False), c.get("window")))


STRIDES = (
    *(f"{x}_{axis}" for x in "qkvo" for axis in ("batch", "head", "row")),
    *(f"bias_{axis}" for axis in ("batch", "head", "row", "col")),
)
SIZES = ("heads", "all_heads", "sharing", "together", "height", "width", "window")


def build_of(v: Variant, dtype: str = "bf16") -> Build:
    """A variant as it is compiled offline."""
    bm, bn, dp = v["BM"], v["BN"], v["DP"]
    tiles = {"q": bm, "k": bn, "v": bn}
    signature = {
        n: f"tensordesc<{dtype}[1,1,{b},{dp}]>" if v["TMA"] else f"*{dtype}" for n, b in tiles.items()
    } | {"bias": "*u8" if v["BIAS"] == "mask" else f"*{dtype}", "o": f"*{dtype}", "lse": "*fp32"}  # fmt: skip
    signature |= dict.fromkeys(SIZES, "i32") | {"factor": "fp32", "cap": "fp32"} | dict.fromkeys(STRIDES, "i32")
    refused = {}
    for target, room in SHARED_KIB.items():
        # AMD's compiler keeps one stage in registers.
        held = v.shared_bytes - (2 * bn * dp * 2 if target == "gfx942" else 0)
        if v["TMA"] and target in ("sm_80", "gfx942"):
            refused[target] = "has no TMA"
        elif held > room * 1024:
            refused[target] = f"its tiles are larger than {room} KiB of shared memory"
    return Build(v, signature, ("height", "width", *STRIDES[:-1]), refused)


CAUSAL = space(LONG, LONG, None, True, None, None, 1.0, False, True)
OPERATIONS = (
    Operation(
        name="flash_attention", run=flash_attention, reference=reference, inputs=inputs, cost=cost,
        loses={
            "bf16 b=16 kv=16 s=1024 d=64":
                "cuDNN takes 163 us, this 170: at D = 64 a multiprocessor's exponentials take as long as its matrix "
                "units' products, and of 15.5 tiles a multiprocessor on average some take 16. Tried: groups that take "
                "turns (173), two buffers each of keys and of values (180), three groups of 64 queries (183).",
        },
        beyond=case("bf16", b=2100, kv=8, s=1024, d=128, causal=True),
        checks=(
            *(case(d, b=1, kv=1, s=s, t=t, d=64) for d in ("f32", "f16") for s, t in ((1, 1), (0, 3), (3, 0), (5, 70))),
            case("f32", b=2, kv=1, h=3, s=33, d=16, causal=True, logsumexp=True),
            case("f16", b=1, kv=2, h=2, s=140, t=90, d=80, causal=True),
            case("f16", b=1, kv=1, s=90, t=150, d=96, causal=True, logsumexp=True),
            case("f16", b=1, kv=2, s=150, d=32, causal=True, window=40, logsumexp=True),
            case("f32", b=1, kv=1, s=90, t=40, d=20, window=3, logsumexp=True),
            case("f16", b=2, kv=1, h=2, s=40, t=130, d=64, bias="hqk", cap=5.0, size=3.0),
            case("f32", b=1, kv=2, s=40, t=70, d=32, causal=True, bias="bhqk", cap=20.0),
            case("f16", b=2, kv=1, s=36, t=100, d=128, bias="mask bk", rows_first=True, logsumexp=True),
            case("f32", b=1, kv=1, h=2, s=20, t=40, d=8, bias="q", scale=-0.3, window=9),
            case("f16", b=1, kv=1, s=70, d=256, causal=True, bias="k", wide_bias=True),
            case("f32", b=2, kv=1, s=1, t=200, d=64, bias="mask bhqk"),
            case("bf16", b=1, kv=2, h=2, s=200, d=64, causal=True, cap=30.0, logsumexp=True),
            case("bf16", b=2, kv=2, s=130, t=260, d=128, rows_first=True),
            case("f16", b=1, kv=2, h=2, s=70, t=72, d=64, causal=True, logsumexp=True),
        ),
        cases=(
            case("bf16", peer="attn_causal_fwd", b=4, kv=32, s=4096, d=128, causal=True),
            case("bf16", region="manual_causal_attention", b=2, kv=32, s=4096, d=128, causal=True),
            case("bf16", region="manual_attention_short", b=16, kv=16, s=1024, d=64),
            case("bf16", b=2, kv=8, h=4, s=4096, d=128, causal=True, window=512),
            case("bf16", b=4, kv=16, s=2048, d=128, bias="hqk", cap=50.0),
        ),
        builds=(
            *(build_of(v) for v in (*CAUSAL[:2], CAUSAL[6])),
            *(build_of(v) for v in space(SHORT, SHORT, None, False, None, None, 1.0, False, True)[:1]),
            hopper_variants.build_of(hopper_variants.variant(128, *hopper_variants.SHAPES[128][0], True, True, False)),
            hopper_variants.build_of(hopper_variants.variant(64, *hopper_variants.SHAPES[64][0], False, True, True)),
            *(build_of(v) for v in space(LONG, LONG, MASK, True, 1024, 50.0, 1.0, True, False)[-1:]),
        ),
        forms=("plain", "strided", "misaligned", "special"), wrong_interpreted=("bf16",), fixed=("d",),
    ),
)  # fmt: skip
