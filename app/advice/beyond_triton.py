"""Ways to write a kernel that give more than Triton does: what each buys, on which architecture. Torch-free.

They are named where a region needs what Triton does not give; nothing here generates or times them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Way:
    """One of them. arches: of the GPUs that it compiles for, by prefix; buys: what it adds to Triton on them.

    needs: which of a region's needs it answers ("last per cent", "grid-wide", "nvlink"). source: where that is said.
    """

    name: str
    arches: tuple[str, ...]
    buys: str
    needs: frozenset[str]
    source: str


LAST, GRID, NVLINK = "last per cent", "grid-wide", "nvlink"

WAYS: tuple[Way, ...] = (
    Way("Gluon", ("sm_8", "sm_9", "sm_10", "gfx94", "gfx95"),
        "layouts, shared memory and warp specialisation by hand in Triton's own compiler: wgmma and TMA on sm_90,"
        " tcgen05 and tensor memory on sm_100, MFMA layouts on CDNA",
        frozenset({LAST}), "triton 3.7.1, triton/experimental/gluon"),
    Way("CuTe DSL", ("sm_8", "sm_9", "sm_10", "sm_12"),
        "CUTLASS's layouts, pipelines and clusters in Python: the last per cent of products and attention on sm_90 and"
        " sm_100 (quack and FlashAttention 4 are written in it), block-scaled f4 on sm_100 and sm_120",
        frozenset({LAST, GRID}), "nvidia-cutlass-dsl 4; quack-kernels 0.6.5"),
    Way("cuTile", ("sm_8", "sm_10", "sm_12"),
        "tiles as in Triton, in NVIDIA's own compiler (CUDA Tile IR, CUDA 13): tensor memory and block-scaled types"
        " of sm_100 and sm_120 without their instructions",
        frozenset({LAST}), "NVIDIA cuTile Python, quickstart: compute capability 8, 10, 11 and 12; CUDA 13.1"),
    Way("TileLang", ("sm_8", "sm_9", "sm_10", "sm_12", "gfx9"),
        "tiles with explicit pipelines and memory scopes, on NVIDIA and on AMD's CDNA: warp specialisation on sm_90,"
        " products of packed weights, block-scaled f4 on sm_120",
        frozenset({LAST}), "tile-ai/tilelang 0.1.13"),
)  # fmt: skip
"""In the order in which they are named: what is nearest to Triton first."""


def ways_for(arch: str, needs: Sequence[str]) -> tuple[Way, ...]:
    """Those that compile for this architecture and answer one of the needs."""
    return tuple(w for w in WAYS if arch.startswith(w.arches) and w.needs & set(needs))


def named(arch: str, needs: Sequence[str]) -> str:
    """In one sentence, "" where there is none: before CUDA is written by hand."""
    ways = ways_for(arch, needs)
    if not ways:
        return ""
    return f"more than Triton gives, on {arch}: " + "; ".join(f"{w.name} ({w.buys})" for w in ways)
