"""Names that fit next to a chart, and names of regions that a reader can distinguish. Pure functions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from app.objects.region import RegionBody
from app.web.charts.figure import escape

LEAST = 12
"""Of a name at least so many letters are kept, whatever the limit."""


def shorten(name: str, limit: int) -> str:
    """The name, its middle left out where it is longer than the limit: candidates differ at either end."""
    text = " ".join(str(name).replace("torch.nn.functional.", "F.").split())
    limit = max(limit, LEAST)
    if len(text) <= limit:
        return text
    front = (limit - 1) * 2 // 3
    return f"{text[:front]}…{text[len(text) - (limit - 1 - front) :]}"


def shorten_uniquely(names: Iterable[str], limit: int = 44) -> list[str]:
    """Names cut to the limit and escaped for Plotly, each once: more of the name where two would read the same.

    Equal names do not differ in their letters: the later ones get a number.
    """
    whole = [" ".join(str(n).split()) for n in names]
    length, short = limit, [shorten(n, limit) for n in whole]
    while len(set(short)) < len(set(whole)) and length < max(map(len, whole), default=0):
        length += 8
        clashes = {s for s in short if short.count(s) > 1}
        short = [shorten(n, length) if s in clashes else s for n, s in zip(whole, short, strict=True)]
    return [escape(n, 2 * max(limit, length)) for n in number_equal(short)]


def number_equal(labels: Sequence[str]) -> list[str]:
    """Equal labels would fall on one row: the later ones get a number."""
    counts: Counter[str] = Counter()
    rows = []
    for label in labels:
        counts[label] += 1
        rows.append(label if counts[label] == 1 else f"{label} ({counts[label]})")
    return rows


# ---------------------------------------------------------------------------------------------------------- of regions

LONGEST_HINT = 34
_OPERAND = re.compile(r"\[([^\[\]]*)\]")


def id_of(stored: Mapping[str, object]) -> str | None:
    """The id of a region or trace; None of one that is built and not stored."""
    value = stored.get("id")
    return value if isinstance(value, str) else None


def distinct_names(regions: Sequence[RegionBody]) -> list[str]:
    """The regions' names, in order; equal ones with what those regions differ in: module, sizes, pass, else a number.

    A region without an id is none (a row for many): its name stays.
    """
    names = [str(region["name"]) for region in regions]
    repeated = {name for name, count in Counter(names).items() if count > 1}
    for name in repeated:
        places = [i for i, n in enumerate(names) if n == name]
        hints = _hints([regions[i] for i in places])
        for place, hint in zip(places, hints, strict=True):
            names[place] = f"{name} · {hint}" if hint else name
    return number_equal(names)


def _hints(regions: Sequence[RegionBody]) -> list[str]:
    """One for each region: the first kind of hint that no two share, else the one with the most different ones."""
    kinds: tuple[Callable[[RegionBody], str], ...] = (_module, _two_modules, _sizes, _pass, _module_and_sizes)
    by_kind = [[kind(region) for region in regions] for kind in kinds]
    for hints in by_kind:
        if len(set(hints)) == len(hints):
            return hints
    return max(by_kind, key=lambda hints: len(set(hints)))


def _last_modules(region: RegionBody, parts: int) -> str:
    source = region.get("source")
    module = str(source.get("module") or "") if source else ""
    return "/".join(module.split("/")[-parts:])[-LONGEST_HINT:]


def _module(region: RegionBody) -> str:
    return _last_modules(region, 1)


def _two_modules(region: RegionBody) -> str:
    return _last_modules(region, 2)


def _sizes(region: RegionBody) -> str:
    """The sizes of the first two operands that have any: "8192×768, 768×3072"."""
    shapes = region.get("shapes") or ()
    operands = (shapes[0].get("operands") or ()) if shapes else ()
    sizes = [dims[1].replace(", ", "×") for o in operands if (dims := _OPERAND.search(str(o))) and dims[1]]
    return ", ".join(dict.fromkeys(sizes[:2]))[:LONGEST_HINT]


def _pass(region: RegionBody) -> str:
    backward = region.get("backward_time_us_per_step") or 0.0
    forward = region.get("forward_time_us_per_step") or 0.0
    return "backward" if backward > forward else "forward"


def _module_and_sizes(region: RegionBody) -> str:
    return " ".join(part for part in (_module(region), _sizes(region)) if part)[: 2 * LONGEST_HINT]
