"""Calibration programs by family and number: the same text in every process, on every host."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from kernels.calibrate import fused_programs, matrix_programs, memory_programs
from kernels.calibrate.memory_programs import Family

EAGER: Mapping[str, tuple[Family, int]] = {**memory_programs.FAMILIES, **matrix_programs.FAMILIES}
"""Families of one operation each, which eager launches; each with its share of the points."""

FUSED: Mapping[str, tuple[Family, int]] = fused_programs.FAMILIES
"""Families of several operations, which torch.compile makes kernels of."""

ALL: Mapping[str, tuple[Family, int]] = {**EAGER, **FUSED}


def draw(family: str, number: int) -> str:
    """A region's text. KeyError for an unknown family."""
    make, _ = ALL[family]
    return make(Random(f"{family} {number}"))
