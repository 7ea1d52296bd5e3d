"""Calibration programs by family and number: the same text in every process, on every host."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from kernels.calibrate import (
    fused_programs,
    matrix_programs,
    memory_programs,
    model_programs,
    trained_programs,
    weak_programs,
)
from kernels.calibrate.memory_programs import Family

EAGER: Mapping[str, tuple[Family, int]] = {
    **memory_programs.FAMILIES,
    **matrix_programs.FAMILIES,
    **weak_programs.FAMILIES,
    **trained_programs.FAMILIES,
}
"""Families of one operation each, with its gradients or without, which eager launches; each with its share of the
points."""

FUSED: Mapping[str, tuple[Family, int]] = fused_programs.FAMILIES
"""Families of several operations, which torch.compile makes kernels of."""

ALL: Mapping[str, tuple[Family, int]] = {**EAGER, **FUSED}

EAGER_SHARES: Mapping[str, int] = {n: share for n, (_, share) in EAGER.items()} | {
    "model_operation": model_programs.SHARES["model_operation"]
}
COMPILED_SHARES: Mapping[str, int] = {n: share for n, (_, share) in FUSED.items()} | {
    "model_program": model_programs.SHARES["model_program"]
}
"""Every family with its share, those of the models as well."""


def draw(family: str, number: int) -> str:
    """A region's text. KeyError for an unknown family, IndexError behind the last of one that ends."""
    if (kind := model_programs.FAMILIES.get(family)) is not None:
        return model_programs.draw(kind, number)
    make, _ = ALL[family]
    return make(Random(f"{family} {number}"))


def count(family: str) -> int | None:
    """How many programs a family has; None where it goes on for ever."""
    kind = model_programs.FAMILIES.get(family)
    return None if kind is None else len(model_programs.texts(kind))
