"""Which points of a kernel's landscape there are, in the order in which they tell the most, and which are pruned.

First what tuning chose and its own space, then one thing changed at a time (tile, warps, stages), then several.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.measure.landscape.model import Constant, Point
from kernels.measure.landscape.tiles import FAMILIES, remade
from kernels.tuning import Limits, Variant, misfit

WARPS = (1, 2, 4, 8, 16)
STAGES = (1, 2, 3, 4, 5)
WAITING = frozenset({"sync_ptr", "ticket_ptr"})
"""Arguments of kernels whose programs wait for each other: they hang unless all are on the GPU at once.

Clusters, which have num_ctas among their options, hang where their warps are not as many as their constants say.
"""
MOST_POINTS = 240
WHOLE = "whole row"

Place = tuple[str, str, int, int | None]
"""Where a point lies: kernel, tile, warps, stages."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One point before it is run. reason: why it is not, "" where it may be."""

    variant: Variant
    own: bool
    reason: str = ""

    @property
    def point(self) -> Point:
        v = self.variant
        return Point(
            key=key_of(v), kernel=v.kernel.__name__, tile=tile_of(v), constants=constants_of(v), warps=v.warps,
            stages=stages_of(v), own=self.own, status="pruned" if self.reason else "not_run", reason=self.reason,
        )  # fmt: skip


def key_of(variant: Variant) -> str:
    """Names a variant, all of it."""
    options = "".join(f", {name}={value}" for name, value in variant.options)
    return f"{variant}{options}"


def constants_of(variant: Variant) -> dict[str, Constant]:
    """The constants that are a choice, without the stages, and the compile options."""
    names = variant.tuned or tuple(name for name, _ in variant.constants)
    chosen = [(name, value) for name, value in variant.constants if name in names and name != "STAGES"]
    return {k: v if isinstance(v, int | str) else str(v) for k, v in (*chosen, *variant.options)}


def tile_of(variant: Variant) -> str:
    """The same in words; a switch is named where it is on."""
    parts = [k if v is True else f"{k}={v}" for k, v in constants_of(variant).items() if v is not False]
    return " ".join(parts) or WHOLE


def stages_of(variant: Variant) -> int | None:
    """Of the launch, or of the kernel's own pipeline; None where neither is a choice."""
    if variant.stages is None and "STAGES" in (variant.tuned or ("STAGES",)):
        own = dict(variant.constants).get("STAGES")
        return own if isinstance(own, int) else None
    return variant.stages


def cells(
    variants: Sequence[Variant],
    chosen: Variant,
    arguments: Sequence[Any],
    limits: Limits,
    more: Sequence[Variant] = (),
    most: int = MOST_POINTS,
) -> list[Cell]:
    """What to run, the most telling first; at most `most`, the own space always whole. more: further tiles."""
    own = {key_of(v): v for v in (chosen, *variants)}
    listed = [Cell(v, True, pruned(v, limits)) for v in own.values()]
    # What was chosen runs, whatever a model says: where nothing fits the tuner takes them all.
    listed[0] = Cell(chosen, True)
    wide: dict[Place, Variant] = {}
    taken = {_place(v) for v in own.values()}
    for variant in _wider([*own.values(), *more], arguments):
        if _place(variant) not in taken:
            wide.setdefault(_place(variant), variant)
    smallest = min((_size(v) for v in wide.values() if v.kernel is chosen.kernel), default=0)
    order = sorted(wide.values(), key=lambda v: (*_apart(v, chosen, smallest), key_of(v)))
    listed += [Cell(v, False, pruned(v, limits)) for v in order[: max(0, most - len(listed))]]
    return listed


def pruned(variant: Variant, limits: Limits) -> str:
    """Why it is not compiled, "" where it is."""
    reason = misfit(variant, limits)
    return f"the kernel's model: {reason}" if reason else ""


def _wider(own: Sequence[Variant], arguments: Sequence[Any]) -> Iterator[Variant]:
    """Other tiles, warps and stages of every variant of the own space."""
    for variant in own:
        if WAITING.intersection(variant.kernel.arg_names) or "num_ctas" in dict(variant.options):
            continue
        if _is_gluon(variant):
            continue  # Gluon's kernels say themselves which warps do what: another number of them is another kernel
        family = FAMILIES.get(variant.kernel.__name__)
        tiles = [{}, *(family.tiles(dict(variant.constants), arguments) if family else ())]
        ahead = dict(variant.constants).get("AHEAD")
        stages = STAGES if stages_of(variant) is not None and not ahead else (None,)
        for tile in tiles:
            for warps in sorted({*WARPS, variant.warps}):
                for count in stages:
                    yield remade(variant, tile, arguments, warps, count)


def _is_gluon(variant: Variant) -> bool:
    return bool(getattr(variant.kernel, "is_gluon", bool)())  # the interpreter's functions are never Gluon's


def _place(variant: Variant) -> Place:
    """Where a point lies; constants that are no choice do not show there."""
    return variant.kernel.__name__, tile_of(variant), variant.warps, stages_of(variant)


def _size(variant: Variant) -> int:
    numbers = [v for v in constants_of(variant).values() if isinstance(v, int) and not isinstance(v, bool)]
    return math.prod(max(1, n) for n in numbers)


def _apart(variant: Variant, chosen: Variant, smallest: int) -> tuple[int, int, float]:
    """How many things differ, then how much; the smallest tile before the others that differ as much.

    A tile's sizes are one thing, each of its switches another, and the order of tiles too.
    """
    kernel = variant.kernel is not chosen.kernel
    ours, theirs = constants_of(variant), constants_of(chosen)
    changed = {k for k in ours if ours[k] != theirs.get(k)} if not kernel else set()
    switches = sum(isinstance(ours[k], bool | str) or k == "GROUP_M" for k in changed)
    warps = math.log2(variant.warps) - math.log2(chosen.warps)
    stages = (stages_of(variant) or 0) - (stages_of(chosen) or 0)
    things = 2 * kernel + (len(changed) > switches) + switches + bool(warps) + bool(stages)
    far = abs(math.log2(_size(variant)) - math.log2(_size(chosen))) + abs(warps) + abs(stages)
    return things, 0 if _size(variant) == smallest and not kernel else 1, far
