"""GPUs that Triton's compiler can compile for, and what one processor (SM, CU) of each holds. Torch- and Triton-free.

Sources: NVIDIA CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and the occupancy rules
of NVIDIA's cuda_occupancy.h; AMD's CDNA2, CDNA3 and CDNA4 ISA guides and LLVM's AMDGPU usage (512 vector registers a
lane and SIMD, 8 waves a SIMD, 4 SIMDs and 64 KiB of LDS a CU, 160 KiB on gfx950).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """One architecture and the limits of one of its processors.

    registers: 32-bit registers of a processor; register_unit: they are given to a warp in multiples of this many.
    warp_unit: warps share a processor's parts evenly, so what registers leave room for is rounded down to this.
    shared_reserved_bytes: what the system takes of shared memory for each block.
    """

    arch: str  # "sm_90", "gfx942", as profiler.hardware says it
    backend: str  # "cuda" or "hip"
    capability: int | str  # as Triton's GPUTarget takes it
    warp_size: int
    threads: int  # resident on a processor
    blocks: int  # resident on a processor
    registers: int
    shared_bytes: int  # of a processor
    shared_block_bytes: int  # the most that one block may have
    shared_reserved_bytes: int = KIB
    shared_unit: int = 128
    register_unit: int = 256
    warp_unit: int = 4


def _cuda(capability: int, threads: int, blocks: int, shared_kib: int) -> Target:
    shared = shared_kib * KIB
    return Target(f"sm_{capability}", "cuda", capability, 32, threads, blocks, 65536, shared, shared - KIB)


TARGETS: Mapping[str, Target] = {
    t.arch: t
    for t in (
        _cuda(80, 2048, 32, 164),
        _cuda(86, 1536, 16, 100),
        _cuda(89, 1536, 24, 100),
        _cuda(90, 2048, 32, 228),
        _cuda(100, 2048, 32, 228),
        _cuda(103, 2048, 32, 228),
        _cuda(120, 1536, 24, 100),
        _cuda(121, 1536, 24, 100),
        *(
            Target(arch, "hip", arch, 64, 2048, 32, 4 * 512 * 64, 64 * KIB, 64 * KIB, 0, 512, 8 * 64)
            for arch in ("gfx90a", "gfx942")
        ),
        Target("gfx950", "hip", "gfx950", 64, 2048, 32, 4 * 512 * 64, 160 * KIB, 160 * KIB, 0, 1280, 8 * 64),
    )
}
"""Targets by the name that `profiler.hardware` uses. Triton supports none before sm_80."""


@dataclass(frozen=True, slots=True)
class Residence:
    """How many blocks a processor holds at once. share: of its threads, 0 to 1. limited_by: what runs out first."""

    blocks: int
    share: float
    limited_by: str


def residence(target: Target, registers: int | None, warps: int, shared_bytes: int) -> Residence:
    """Blocks of `warps` warps that fit on a processor, by registers (None: not counted), shared memory and threads."""
    room = {"threads": target.threads // (target.warp_size * warps), "blocks": target.blocks}
    if registers:
        of_a_warp = _up(registers * target.warp_size, target.register_unit)
        room["registers"] = target.registers // of_a_warp // target.warp_unit * target.warp_unit // warps
    if shared_bytes > target.shared_block_bytes:
        room["shared memory"] = 0
    elif shared_bytes:
        of_a_block = _up(shared_bytes + target.shared_reserved_bytes, target.shared_unit)
        room["shared memory"] = target.shared_bytes // of_a_block
    limited_by = min(room, key=lambda name: room[name])
    blocks = room[limited_by]
    return Residence(blocks, blocks * warps * target.warp_size / target.threads, limited_by)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
