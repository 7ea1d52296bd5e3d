"""Asking for a row before it is loaded, so that the memory stays busy while a program computes.

A program that fills a multiprocessor with one row neither loads nor stores while it reduces. What it asks for here
comes into the L2 cache meanwhile and takes neither registers nor shared memory. NVIDIA only: elsewhere nothing is asked
for.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import target_info

from kernels.ops.shared.pairs import INTERPRETED


@triton.jit
def ask_in_bulk(ptr, BYTES: tl.constexpr, THREADS: tl.constexpr):
    """One instruction a warp, for its share in whole 16 bytes: sm_90 and later."""
    SHARE: tl.constexpr = (BYTES * 32 // THREADS + 15) // 16 * 16
    thread = tl.arange(0, THREADS)
    start = thread // 32 * SHARE
    size = tl.where(thread % 32 == 0, tl.minimum(BYTES // 16 * 16 - start, SHARE), 0)
    # From the 16 bytes that the row begins in; its last ones may be left out.
    at = (ptr.to(tl.int64) & -16) + start
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.gt.s32 p, $2, 0; @p cp.async.bulk.prefetch.L2.global [$1], $2; mov.b32 $0, 0; }",
        "=r,l,r", [at, size], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def ask_by_sectors(ptr, BYTES: tl.constexpr, THREADS: tl.constexpr):
    """One instruction a thread and 32 bytes, which is what the L2 cache fetches at least."""
    first = tl.arange(0, THREADS) * 32
    for i in tl.static_range((BYTES + THREADS * 32 - 1) // (THREADS * 32)):
        at = ptr.to(tl.int64) + tl.minimum(first + i * THREADS * 32, BYTES - 1)
        tl.inline_asm_elementwise(
            "{ prefetch.global.L2 [$1]; mov.b32 $0, 0; }", "=r,l", [at], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def ask_for(ptr, WORDS: tl.constexpr, QUARTERS: tl.constexpr, BULK: tl.constexpr, THREADS: tl.constexpr):
    """Ask for so many quarters of a row of 32-bit words; all threads of the program do so together."""
    if target_info.is_cuda() and not INTERPRETED:
        if BULK and target_info.cuda_capability_geq(9, 0):
            ask_in_bulk(ptr, WORDS * QUARTERS, THREADS)
        else:
            ask_by_sectors(ptr, WORDS * QUARTERS, THREADS)
