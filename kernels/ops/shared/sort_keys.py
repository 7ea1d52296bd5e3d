"""Device functions that make one integer of a float and its column: integers that sort as top-k wants.

A larger number has the larger integer, every NaN lies above infinity as in torch.topk, and of equal numbers the first
column is the larger. So no two are alike, and a maximum of integers is a maximum with its place. The bits of the number
can be read back, NaNs included.

16-bit floats: 32 bits, the number's above and 65535 - column below. f32: 64 bits, 2^32 - 1 - column below.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOWEST = tl.constexpr(-(1 << 31))
# What -inf would be; subtracted, so that NaNs with a sign, below it, wrap around to the top.
LOW_F32 = tl.constexpr(0x007FFFFF)
LOW_F16 = tl.constexpr(0x03FF0000)
LOW_BF16 = tl.constexpr(0x007F0000)


@triton.jit
def rank_of(x, DTYPE: tl.constexpr):
    """uint32 in the order of x; of 16-bit floats only the upper half is used. 0 is minus infinity."""
    if DTYPE == tl.float32:  # noqa: SIM300 - DTYPE is the variable
        bits = x.to(tl.int32, bitcast=True)
        order = (bits ^ ((bits >> 31) | LOWEST)) - LOW_F32
    else:
        low: tl.constexpr = LOW_BF16 if DTYPE == tl.bfloat16 else LOW_F16  # noqa: SIM300
        bits = x.to(tl.int16, bitcast=True).to(tl.int32) << 16
        order = (bits ^ (((bits >> 31) & 0x7FFF0000) | LOWEST)) - low
    return order.to(tl.uint32, bitcast=True)


@triton.jit
def key_of(x, column, DTYPE: tl.constexpr):
    """The integer of x at this column (int32): uint32 for 16-bit floats, uint64 for f32."""
    rank = rank_of(x, DTYPE)
    if DTYPE == tl.float32:  # noqa: SIM300
        key = (rank.to(tl.uint64) << 32) | (~column).to(tl.uint32, bitcast=True).to(tl.uint64)
    else:
        key = rank | (0xFFFF - column).to(tl.uint32, bitcast=True)
    return key


@triton.jit
def column_of(key, DTYPE: tl.constexpr):
    """The column, int32, that a key was made with."""
    if DTYPE == tl.float32:  # noqa: SIM300
        column = ~(key & 0xFFFFFFFF).to(tl.uint32).to(tl.int32, bitcast=True)
    else:
        column = 0xFFFF - (key & 0xFFFF).to(tl.int32, bitcast=True)
    return column


@triton.jit
def number_of(key, DTYPE: tl.constexpr):
    """The float, of DTYPE, that a key was made of."""
    if DTYPE == tl.float32:  # noqa: SIM300
        order = (key >> 32).to(tl.uint32).to(tl.int32, bitcast=True) + LOW_F32
        number = (order ^ (~(order >> 31) | LOWEST)).to(tl.float32, bitcast=True)
    else:
        low: tl.constexpr = LOW_BF16 if DTYPE == tl.bfloat16 else LOW_F16  # noqa: SIM300
        order = key.to(tl.int32, bitcast=True) + low
        bits = order ^ (~(order >> 31) | LOWEST)
        number = (bits >> 16).to(tl.int16).to(DTYPE, bitcast=True)
    return number


@triton.jit
def best_of(key, slot, K: tl.constexpr):
    """The K largest of every row of unequal keys [R, N], largest first, in the first K of slot's [1, S] places.

    Wrapping around, `key - top` is largest for the first key below top: two instructions an element and round.
    """
    top = tl.max(key, axis=1, keep_dims=True)
    best = tl.where(slot == 0, top, tl.zeros_like(top))
    for i in tl.static_range(1, K):
        top += tl.max(key - top, axis=1, keep_dims=True)
        best = tl.where(slot == i, top, best)
    return best
