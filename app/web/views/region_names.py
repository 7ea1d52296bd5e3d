"""Names of regions that a reader can tell apart: what two of one name differ in stands behind it. Pure functions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.web.views.names import number_equal

Json = Mapping[str, Any]

LONGEST_HINT = 34
_OPERAND = re.compile(r"\[([^\[\]]*)\]")


def region_names(regions: Sequence[Json]) -> list[str]:
    """The regions' names, in order; those of one name with what tells them apart: module, sizes, pass, else a number.

    A region without an id is none (a row for many): its name stays.
    """
    names = [str(region["name"]) for region in regions]
    alike = {name for name, count in Counter(names).items() if count > 1}
    for name in alike:
        places = [i for i, n in enumerate(names) if n == name]
        hints = _hints([regions[i] for i in places])
        for place, hint in zip(places, hints, strict=True):
            names[place] = f"{name} · {hint}" if hint else name
    return number_equal(names)


def _hints(regions: Sequence[Json]) -> list[str]:
    """One for each region: the first kind of hint that no two share, else the one with the most different ones."""
    kinds: tuple[Callable[[Json], str], ...] = (_module, _two_modules, _sizes, _pass, _module_and_sizes)
    offered = [[kind(region) for region in regions] for kind in kinds]
    for hints in offered:
        if len(set(hints)) == len(hints):
            return hints
    return max(offered, key=lambda hints: len(set(hints)))


def _tail(region: Json, parts: int) -> str:
    module = str((region.get("source") or {}).get("module") or "")
    return "/".join(module.split("/")[-parts:])[-LONGEST_HINT:]


def _module(region: Json) -> str:
    return _tail(region, 1)


def _two_modules(region: Json) -> str:
    return _tail(region, 2)


def _sizes(region: Json) -> str:
    """The sizes of the first two operands that have any: "8192×768, 768×3072"."""
    shapes = region.get("shapes") or ()
    operands = (shapes[0].get("operands") or ()) if shapes else ()
    found = [dims[1].replace(", ", "×") for o in operands if (dims := _OPERAND.search(str(o))) and dims[1]]
    return ", ".join(dict.fromkeys(found[:2]))[:LONGEST_HINT]


def _pass(region: Json) -> str:
    backward = region.get("backward_time_us_per_step") or 0.0
    forward = region.get("forward_time_us_per_step") or 0.0
    return "backward" if backward > forward else "forward"


def _module_and_sizes(region: Json) -> str:
    return " ".join(part for part in (_module(region), _sizes(region)) if part)[: 2 * LONGEST_HINT]
