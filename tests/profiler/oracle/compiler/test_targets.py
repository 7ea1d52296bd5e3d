"""How many blocks a processor holds: against figures of NVIDIA's occupancy calculator and hand counts."""

from __future__ import annotations

import pytest

from profiler.hardware import DEVICES
from profiler.oracle.compiler.targets import KIB, TARGETS, residence


@pytest.mark.parametrize(
    ("target", "registers", "warps", "shared", "blocks", "limited_by"),
    [
        ("sm_90", 32, 8, 0, 8, "threads"),  # 64 warps of a processor
        ("sm_90", 64, 8, 0, 4, "registers"),  # 65,536 / (64 x 256)
        ("sm_90", 65, 8, 0, 3, "registers"),  # 65 x 32 = 2,080, given as 2,304: 28 warps
        ("sm_90", 255, 8, 0, 1, "registers"),  # 8 warps of 8,192
        ("sm_90", 40, 1, 0, 32, "blocks"),
        ("sm_90", 96, 1, 0, 20, "registers"),  # 21 warps, rounded down to the four parts of a processor
        ("sm_90", 32, 4, 100 * KIB, 2, "shared memory"),  # 101 of 228 KiB
        ("sm_90", 32, 4, 113 * KIB, 2, "shared memory"),  # 114 twice is all of it
        ("sm_90", 32, 4, 114 * KIB, 1, "shared memory"),
        ("sm_90", 32, 4, 228 * KIB, 0, "shared memory"),
        ("sm_80", 32, 4, 96 * KIB, 1, "shared memory"),
        ("sm_89", 32, 8, 0, 6, "threads"),
        ("sm_89", 32, 1, 0, 24, "blocks"),
        ("gfx942", 130, 4, 0, 3, "registers"),  # 136 of 512: three waves on each of four SIMDs
        ("gfx942", 130, 8, 0, 1, "registers"),  # twelve waves hold one block of eight
    ],
)
def test_blocks_on_a_processor(
    target: str, registers: int, warps: int, shared: int, blocks: int, limited_by: str
) -> None:
    found = residence(TARGETS[target], registers, warps, shared)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)
    assert found.share == blocks * warps * TARGETS[target].warp_size / TARGETS[target].threads


def test_every_gpu_of_the_table_that_triton_supports_has_a_target() -> None:
    assert {d.arch for d in DEVICES} - set(TARGETS) == {"sm_70", "sm_75"}
