"""Calibration programs by family and number: the same text in every process, on every host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Literal

from kernels.calibrate import (
    fused_programs,
    matrix_programs,
    memory_programs,
    model_programs,
    own_programs,
    trained_programs,
    weak_programs,
)
from kernels.calibrate.memory_programs import Family

Kind = Literal["eager", "compile", "generated", "own", "max-autotune"]
"""How a family's programs are run: by eager; by torch.compile in its default mode; by this project's generated kernels;
by each of its own kernels that takes them whole; by torch.compile in mode max-autotune and the default one."""

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

ALL: Mapping[str, tuple[Family, int]] = {**EAGER, **FUSED, **own_programs.FAMILIES}

EAGER_SHARES: Mapping[str, int] = {n: share for n, (_, share) in EAGER.items()} | {
    "model_operation": model_programs.SHARES["model_operation"]
}
COMPILED_SHARES: Mapping[str, int] = {n: share for n, (_, share) in FUSED.items()} | {
    "model_program": model_programs.SHARES["model_program"]
}
"""Every family with its share, those of the models as well."""

GENERATED_SHARES: Mapping[str, int] = {
    "generated_chain": 16, "generated_lookup": 4, "generated_cross_entropy": 3, "generated_linear": 5,
    "generated_few_row_norm": 5, "generated_long_reduction": 5, "generated_reduce": 5, "generated_softmax": 3,
    "generated_norm": 4, "generated_scan": 2, "generated_scatter": 3, "generated_gather": 2, "generated_loss": 2,
    "generated_pointwise": 3, "generated_broadcast": 3, "generated_pool": 2, "generated_trained_norm": 3,
    "generated_model_program": 20,
}  # fmt: skip
OWN_SHARES: Mapping[str, int] = {n: share for n, (_, share) in own_programs.FAMILIES.items()} | {"own_model_program": 4}
AUTOTUNED_SHARES: Mapping[str, int] = {
    "autotuned_linear": 6, "autotuned_product": 5, "autotuned_chain": 8, "autotuned_few_row_norm": 3,
    "autotuned_long_reduction": 3, "autotuned_cross_entropy": 2, "autotuned_convolution": 2, "autotuned_image": 2,
    "autotuned_model_program": 14,
}  # fmt: skip
"""Families that run another one's programs in their own way: PREFIX_FAMILY."""

KINDS: Mapping[Kind, Mapping[str, int]] = {
    "eager": EAGER_SHARES, "compile": COMPILED_SHARES, "generated": GENERATED_SHARES, "own": OWN_SHARES,
    "max-autotune": AUTOTUNED_SHARES,
}  # fmt: skip
PREFIXES = ("generated_", "autotuned_")
GROUPS: Mapping[str, tuple[str, ...]] = {
    **{kind: tuple(shares) for kind, shares in KINDS.items()},
    "weak": tuple(weak_programs.FAMILIES), "trained": tuple(trained_programs.FAMILIES),
    "models": tuple(model_programs.FAMILIES),
}  # fmt: skip
"""Names for several families at once."""


def kind_of(family: str) -> Kind:
    """KeyError for an unknown family."""
    for kind, shares in KINDS.items():
        if family in shares:
            return kind
    raise KeyError(family)


def families(names: Iterable[str]) -> tuple[str, ...]:
    """Those of these names, of families or groups. ValueError for a name that is neither, with those that are."""
    wanted: dict[str, None] = {}
    known = {family for shares in KINDS.values() for family in shares}
    for name in names:
        if name not in GROUPS and name not in known:
            raise ValueError(f"{name!r} is no family and no group of them; groups are {', '.join(GROUPS)}")
        wanted.update(dict.fromkeys(GROUPS.get(name, (name,))))
    return tuple(wanted)


def drawn_by(family: str) -> str:
    """The family whose programs it runs: its own, or another's in another way. own_model_program has the models'."""
    for prefix in PREFIXES:
        if family.startswith(prefix):
            return family.removeprefix(prefix)
    return "model_program" if family == "own_model_program" else family


def draw(family: str, number: int) -> str:
    """A region's text. KeyError for an unknown family, IndexError behind the last of one that ends."""
    family = drawn_by(family)
    if (kind := model_programs.FAMILIES.get(family)) is not None:
        return model_programs.draw(kind, number)
    make, _ = ALL[family]
    return make(Random(f"{family} {number}"))


def count(family: str) -> int | None:
    """How many programs a family has; None where it goes on for ever."""
    kind = model_programs.FAMILIES.get(drawn_by(family))
    return None if kind is None else len(model_programs.texts(kind))
