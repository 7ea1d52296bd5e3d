"""What scores of attention go through before softmax, block by block, and the order in which blocks of queries run.

Scores are in units of log2: exp2(score) is exp of what PyTorch's softmax would see.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import target_info

from kernels.device import INTERPRETED

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
