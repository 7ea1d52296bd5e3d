"""Rows of 16-bit floats as 32-bit pairs: loads and stores that know where a row ends, and how many pairs are held."""

from __future__ import annotations

import os

import triton
import triton.language as tl
from triton.language import target_info

# ---- a pair as two numbers
# Device functions that hand-written kernels share: 16-bit pairs held in 32-bit registers.
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def low_half(pair, DTYPE: tl.constexpr):
    """The first of two 16-bit floats in an int32, as f32."""
    if DTYPE == tl.bfloat16:  # noqa: SIM300 - DTYPE is the variable
        return (pair << 16).to(tl.float32, bitcast=True)
    return (pair & 0xFFFF).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)


@triton.jit
def high_half(pair, DTYPE: tl.constexpr):
    """The second of two 16-bit floats in an int32, as f32."""
    if DTYPE == tl.bfloat16:  # noqa: SIM300 - DTYPE is the variable
        return (pair & -65536).to(tl.float32, bitcast=True)
    return (pair >> 16).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)


@triton.jit
def bits_of(x, DTYPE: tl.constexpr):
    """An f32 rounded to a 16-bit type, its bits in the low half of an int32."""
    if INTERPRETED and DTYPE == tl.bfloat16:  # noqa: SIM300 - it cuts bits off where a GPU rounds to nearest even
        bits = x.to(tl.int32, bitcast=True)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF
    return x.to(DTYPE).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF


@triton.jit
def pair_of(low, high, DTYPE: tl.constexpr):
    """Two f32, rounded to a 16-bit type, as one int32.

    One conversion for both: two single ones of sm_90 run on the unit that exponentials need, at a sixteenth of the
    rate of additions.
    """
    if target_info.is_cuda() and not INTERPRETED:
        if DTYPE == tl.bfloat16:  # noqa: SIM300 - DTYPE is the variable
            return tl.inline_asm_elementwise(
                "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [low, high], dtype=tl.int32, is_pure=True, pack=1
            )
        return tl.inline_asm_elementwise(
            "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [low, high], dtype=tl.int32, is_pure=True, pack=1
        )
    return bits_of(low, DTYPE) | (bits_of(high, DTYPE) << 16)


@triton.jit
def exp_of(x):
    """exp(x) with results below 2^-126 as 0: exp2 is two instructions where exp, for those results, is five.

    With one conversion per pair, 4096 rows of 65536 bf16 took 297 µs instead of 340 (H200, Triton 3.6).
    """
    return tl.exp2(x * 1.4426950408889634)


@triton.jit
def kept(pair, result, zero):
    """The pair itself, in a way that the compiler cannot see through before `result` is known. zero is 0 at run time.

    Without it the compiler converts a row to f32 once and holds that across the reduction: twice the registers.
    65536 columns of bf16 on sm_90, 32 warps: 128 bytes of spills a thread without, none with it (Triton 3.7.1).
    """
    return pair ^ (result.to(tl.int32, bitcast=True) & zero)


WORDS = 4
"""Pairs in one 128-bit access."""


@triton.jit
def lowest_pair(DTYPE: tl.constexpr):
    """Two minus infinities of a 16-bit type in an int32."""
    if DTYPE == tl.bfloat16:  # noqa: SIM300 - DTYPE is the variable
        return -8323200
    return -67044352


@triton.jit
def pairs_at(ptr, start, BLOCK: tl.constexpr, END: tl.constexpr, other, INSIDE: tl.constexpr, EVICT: tl.constexpr):
    """BLOCK pairs from `start`, `other` from END on. INSIDE: none of them is beyond."""
    at = start + tl.arange(0, BLOCK)
    if INSIDE:
        return tl.load(ptr + at, eviction_policy=EVICT)
    return tl.load(ptr + at, mask=at < END, other=other, eviction_policy=EVICT)


@triton.jit
def store_pairs(ptr, start, pairs, BLOCK: tl.constexpr, END: tl.constexpr, INSIDE: tl.constexpr):
    """Write BLOCK pairs from `start`, none from END on; they leave the L2 cache before what is read again."""
    at = start + tl.arange(0, BLOCK)
    if INSIDE:
        tl.store(ptr + at, pairs, eviction_policy="evict_first")
    else:
        tl.store(ptr + at, pairs, mask=at < END, eviction_policy="evict_first")


@triton.jit
def rounded(x, ptr):
    """An f32 that is about to be stored at ptr: as it is, but rounded first where the interpreter cuts bits off."""
    if INTERPRETED and ptr.dtype.element_ty == tl.bfloat16:
        bits = x.to(tl.int32, bitcast=True)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & -65536).to(tl.float32, bitcast=True)
    return x


def chunks_of(pairs: int, warps: int) -> int:
    """Loads that a program of this many warps needs for a row, one 128-bit access a thread each."""
    return int(triton.cdiv(pairs, warps * 32 * WORDS))


def registers(held: int) -> int:
    """Registers a thread for this many held loads: its pairs, and those that every variant compiled for sm_90 needs."""
    return WORDS * held + 32
