"""Ways to write a kernel that give more than Triton does: what each buys, on which architecture. Torch-free.

They are named where a region needs what Triton does not give; nothing here generates or times them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Way:
    """One of them. buys: what it adds to Triton, by the prefix of an architecture that it compiles for.

    needs: which of a region's needs it answers ("last per cent", "grid-wide", "nvlink"). source: where that is said.
    """

    name: str
    buys: Mapping[str, str]
    needs: frozenset[str]
    source: str

    def bought_on(self, arch: str) -> str:
        """What it adds on this architecture, "" where it does not compile for it."""
        return next((text for prefix, text in self.buys.items() if arch.startswith(prefix)), "")


LAST, GRID, NVLINK = "last per cent", "grid-wide", "nvlink"

WAYS: tuple[Way, ...] = (
    Way("Gluon", {
            "sm_8": "layouts and shared memory by hand in Triton's own compiler: mma and asynchronous copies",
            "sm_9": "layouts, shared memory and warp specialisation by hand in Triton's own compiler: wgmma and TMA",
            "sm_10": "layouts, shared memory and warp specialisation by hand in Triton's own compiler: tcgen05 and"
                     " tensor memory",
            "gfx94": "MFMA layouts and shared memory by hand in Triton's own compiler",
            "gfx95": "MFMA layouts and shared memory by hand in Triton's own compiler"},
        frozenset({LAST}), "triton 3.7.1, triton/experimental/gluon"),
    Way("CuTe DSL", {
            "sm_8": "CUTLASS's layouts and pipelines in Python",
            "sm_9": "CUTLASS's layouts, pipelines and clusters in Python: the last per cent of products and attention"
                    " (quack is written in it)",
            "sm_10": "CUTLASS's layouts, pipelines and clusters in Python: the last per cent of products and attention"
                     " (quack and FlashAttention 4 are written in it), block-scaled f4",
            "sm_12": "CUTLASS's layouts and pipelines in Python: block-scaled f4"},
        frozenset({LAST, GRID}), "nvidia-cutlass-dsl 4; quack-kernels 0.6.5"),
    Way("cuTile", {
            "sm_8": "tiles as in Triton, in NVIDIA's own compiler (CUDA Tile IR, CUDA 13)",
            "sm_10": "tiles as in Triton, in NVIDIA's own compiler (CUDA Tile IR, CUDA 13): tensor memory and"
                     " block-scaled types without their instructions",
            "sm_12": "tiles as in Triton, in NVIDIA's own compiler (CUDA Tile IR, CUDA 13): block-scaled types without"
                     " their instructions"},
        frozenset({LAST}), "NVIDIA cuTile Python, quickstart: compute capability 8, 10, 11 and 12; CUDA 13.1"),
    Way("TileLang", {
            "sm_8": "tiles with explicit pipelines and memory scopes: products of packed weights",
            "sm_9": "tiles with explicit pipelines and memory scopes: warp specialisation, products of packed weights",
            "sm_10": "tiles with explicit pipelines and memory scopes: products of packed weights",
            "sm_12": "tiles with explicit pipelines and memory scopes: products of packed weights, block-scaled f4",
            "gfx9": "tiles with explicit pipelines and memory scopes, on AMD's CDNA as on NVIDIA"},
        frozenset({LAST}), "tile-ai/tilelang 0.1.13"),
)  # fmt: skip
"""In the order in which they are named: what is nearest to Triton first."""


def ways_for(arch: str, needs: Sequence[str]) -> tuple[Way, ...]:
    """Those that compile for this architecture and answer one of the needs."""
    return tuple(w for w in WAYS if w.bought_on(arch) and w.needs & set(needs))


def named(arch: str, needs: Sequence[str]) -> str:
    """In one sentence, "" where there is none: before CUDA is written by hand."""
    ways = ways_for(arch, needs)
    if not ways:
        return ""
    return f"more than Triton gives, on {arch}: " + "; ".join(f"{w.name} ({w.bought_on(arch)})" for w in ways)
