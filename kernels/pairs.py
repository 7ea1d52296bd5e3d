"""Rows of 16-bit floats as 32-bit pairs: loads and stores that know where a row ends, and how many pairs are held."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.device import INTERPRETED

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
    return triton.cdiv(pairs, warps * 32 * WORDS)


def registers(held: int) -> int:
    """Registers a thread for this many held loads: its pairs, and those that every variant compiled for sm_90 needs."""
    return WORDS * held + 32
