"""Rows that a cluster of programs holds between them: Hopper's programs write into each other's shared memory.

A program of Triton that is launched with num_ctas=C is a cluster of C blocks on neighbouring multiprocessors, and a
tile [C, W, 128] lies with one index of its first axis in each block and one of its second in each warp: reductions
along the last axis take neither barriers nor shared memory. What each of the C * W warps then knows of a row it sends
to all blocks by one instruction (st.async), whose arrival a barrier in the receiver's shared memory counts: neither
threads nor earlier stores are waited for, as they would be at a barrier of the cluster. Triton 3.6 has no such exchange
of its own.

A cluster takes one row, and reads and writes it plainly. On an H200 (2026-11-27, Triton 3.6.0, bf16, 4096 rows of
65,536, L2 cold) softmax took 258 us so, 270 where its loads leave L2 first, 271 where its stores do too; its gradient,
by twice as many bytes in, 371 and 395. Clusters of 2 blocks took 305 us, rows through shared memory 273 to 275, those
that were exponentiated twice to be held in half the registers 273. Walks over many rows, the next row's copies under
way meanwhile, were slower: Triton puts these copies at the end of a loop's body.

NVIDIA's sm_90 and sm_100. In the interpreter a tile is whole, and what is exchanged is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language import target_info
from triton.runtime.errors import PTXASError

from kernels.ops.shared.pairs import INTERPRETED
from kernels.tuning import Variant

WARPS = 32
"""Warps of a cluster, so that each lane of a warp reads what one of them sent."""
STATIC_BYTES = 272
"""Shared memory of the exchange in a block, which Triton does not know of: 32 words and a barrier."""
NO_CLUSTERS = dict.fromkeys(("sm_80", "sm_120", "gfx942", "gfx950"), "clusters of programs: sm_90 and sm_100 alone")
"""For a Build's `without`."""

# Nothing is sent before every block has set up its barrier, nor to one that has ended: none ends before it has received
# all that is sent to it.
_MEET = tl.constexpr("""
.shared .align 16 .b64 cluster_words[34];
{
    .reg .b32 at;
    .reg .pred first;
    mov.u32 at, %tid.x;
    setp.eq.u32 first, at, 0;
    mov.u32 at, cluster_words;
    @first mbarrier.init.shared::cta.b64 [at + 256], 1;
    @first fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.relaxed.aligned;
    add.u32 $0, at, $1;
}""")
_EXCHANGE = tl.constexpr("""{
    .reg .b32 own, lane, warps, rank, there;
    .reg .pred first, here;
    barrier.cluster.wait.acquire.aligned;
    mov.u32 own, %tid.x;
    setp.eq.u32 first, own, 0;
    @first mbarrier.arrive.expect_tx.shared::cta.b64 _, [$2 + 256], 256;
    mov.u32 warps, %ntid.x;
    shr.u32 warps, warps, 5;
    mov.u32 rank, %cluster_ctarank;
    shr.u32 own, own, 5;
    mad.lo.u32 own, rank, warps, own;
    shl.b32 own, own, 3;
    add.u32 own, own, $2;
    mov.u32 lane, %laneid;
    mov.u32 warps, %cluster_nctarank;
    setp.lt.u32 here, lane, warps;
    @here mapa.shared::cluster.u32 there, own, lane;
    @here mapa.shared::cluster.u32 rank, $2, lane;
    @here st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [there], {$3, $4}, [rank + 256];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 here, [$2 + 256], 0;
    @!here bra WAIT;
    shl.b32 lane, lane, 3;
    add.u32 lane, lane, $2;
    ld.shared.v2.b32 {$0, $1}, [lane];
}""")


def _over_lanes(operation: str) -> tl.constexpr:
    steps = "".join(f"shfl.sync.bfly.b32 other, $0, {d}, 31, -1; {operation} $0, $0, other; " for d in (16, 8, 4, 2, 1))
    return tl.constexpr(f"{{ .reg .f32 other; mov.f32 $0, $1; {steps}}}")


_ANYHOW = tl.constexpr("")
"""No eviction policy; wrapped, because Triton 3.6 takes no plain string as a default."""
_LARGEST, _SUM = _over_lanes("max.f32"), _over_lanes("add.f32")


@triton.jit
def share_of(CTAS: tl.constexpr, WARPS: tl.constexpr, HELD: tl.constexpr):
    """Where the first of HELD pieces of a row lies, [CTAS, WARPS, 128] in words; the next is WARPS * 128 further on."""
    block = tl.arange(0, CTAS)[:, None, None] * (HELD * WARPS * 128)
    return block + tl.arange(0, WARPS)[None, :, None] * 128 + tl.arange(0, 128)[None, None, :]


@triton.jit
def meet():
    """Where a cluster's warps exchange, an address; to be called once, before the exchange."""
    place = 0
    if target_info.is_cuda() and not INTERPRETED:
        place = tl.inline_asm_elementwise(_MEET, "=r,r", [place], dtype=tl.int32, is_pure=False, pack=1)
    return place


@triton.jit
def exchange(place, first, second):
    """Two f32 of each warp, [CTAS, WARPS] -> those of one warp in each lane, for `largest` and `full` to join.

    Waits. All warps of the cluster call it, once.
    """
    if target_info.is_cuda() and not INTERPRETED:
        a, b = tl.inline_asm_elementwise(
            _EXCHANGE, "=r,=r,r,r,r", [place, first.to(tl.int32, bitcast=True), second.to(tl.int32, bitcast=True)],
            dtype=(tl.int32, tl.int32), is_pure=False, pack=1,
        )  # fmt: skip
        first, second = a.to(tl.float32, bitcast=True), b.to(tl.float32, bitcast=True)
    return first, second


@triton.jit
def largest(x):
    """Of what `exchange` gave; of numbers and NaN a number."""
    if target_info.is_cuda() and not INTERPRETED:
        x = tl.inline_asm_elementwise(_LARGEST, "=f,f", [x], dtype=tl.float32, is_pure=False, pack=1)
    else:
        x = tl.broadcast_to(tl.max(tl.max(x, 1, keep_dims=True), 0, keep_dims=True), x.shape)
    return x


@triton.jit
def full(x):
    """The sum of what `exchange` gave."""
    if target_info.is_cuda() and not INTERPRETED:
        x = tl.inline_asm_elementwise(_SUM, "=f,f", [x], dtype=tl.float32, is_pure=False, pack=1)
    else:
        x = tl.broadcast_to(tl.sum(tl.sum(x, 1, keep_dims=True), 0, keep_dims=True), x.shape)
    return x


@triton.jit
def read(ptr, col, other, WORDS: tl.constexpr, WHOLE: tl.constexpr, EVICT: tl.constexpr = _ANYHOW):
    """Words of a row of WORDS, `other` beyond its end. WHOLE: none of them is."""
    if WHOLE:
        word = tl.load(ptr + col, eviction_policy=EVICT)
    else:
        word = tl.load(ptr + col, mask=col < WORDS, other=other, eviction_policy=EVICT)
    return word


@triton.jit
def write(ptr, col, word, WORDS: tl.constexpr, WHOLE: tl.constexpr):
    """The counterpart of `read`."""
    if WHOLE:
        tl.store(ptr + col, word)
    else:
        tl.store(ptr + col, word, mask=col < WORDS)


def held_of(words: int) -> int:
    """128-bit loads of each thread for a row."""
    return int(triton.cdiv(words, WARPS * 128))


def holds(words: int) -> bool:
    """Rows of this many 32-bit words are worth a cluster: more than one program holds well, no more than 32 warps do.

    A thread has 20 to 32 of them.
    """
    return 16384 < words <= 32768


@cache
def clusters_on(device: torch.device) -> bool:
    """Whether programs there can be launched as clusters."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device)[0] in (9, 10)


def takes(rows: Sequence[torch.Tensor], vectors: Sequence[torch.Tensor] = ()) -> bool:
    """Whether clusters compute these rows, all as long, with these vectors of a row's length.

    Only where every row begins at whole 64 bytes: Triton then loads 128 bits at once, and only then do tiles lie in
    warps as the exchange has it.
    """
    first = rows[0]
    size = first.element_size()
    if not holds(first.shape[1] * size // 4) or not clusters_on(first.device):
        return False
    lengths = (first.shape[1], *(t.stride(0) for t in rows))
    return all(n * size % 64 == 0 for n in lengths) and all(t.data_ptr() % 16 == 0 for t in (*rows, *vectors))


_sound: set[tuple[Variant, torch.device | None]] = set()
"""What was looked at, as it is compiled for a GPU."""


def launch(variant: Variant, clusters: int, *arguments: Any) -> None:
    """Launch so many clusters of a kernel that calls `exchange` once.

    A compiler that lays a tile out in another way would have warps send twice, and the cluster wait for ever: what it
    made is looked at before the first launch. Raises PTXASError then, and where the compiler gives up, by which a tuner
    leaves the variant out. Raises ValueError for constants that do not belong together.
    """
    looked_at = (variant, next((a.device for a in arguments if isinstance(a, torch.Tensor)), None))
    if looked_at not in _sound:
        if variant["CTAS"] * variant["WARPS"] != WARPS or variant["WARPS"] != variant.warps:
            raise ValueError(f"{variant}: a cluster has {WARPS} warps, as many in each block as it is launched with")
        try:
            made = variant.kernel.warmup(*arguments, grid=(clusters,), **variant.meta)
        except RuntimeError as fault:
            raise PTXASError(f"{variant}: {fault}") from fault
        sent = made.asm["ptx"].count("st.async")
        if sent != 1:
            raise PTXASError(f"{variant}: this Triton sends {sent} words a warp where 1 is meant")
        _sound.add(looked_at)
    variant.kernel[(clusters,)](*arguments, **variant.meta)
