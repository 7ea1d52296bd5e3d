"""Irregularity of a workload, 0 to 1: how far it is from one fixed, well aligned shape. Each part is shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.units import percent
from profiler.region.model import ITEMSIZE, Region, Workload

DATA_DEPENDENT = ("repeat_interleave", "nonzero", "masked_select", "segment_reduce", "index_add", "scatter", "unique",
                  "bincount", "histc", "searchsorted")  # fmt: skip
"""Calls whose work depends on values or whose rows are of different lengths."""

TENSOR_ALIGNMENT = 16
"""Bytes of the widest load: rows that do not start on such an address are read element by element."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the score. score: 0 to 1; weight: its share of the sum."""

    name: str
    title: str
    score: float
    weight: float
    because: str


@dataclass(frozen=True, slots=True)
class Irregularity:
    """score: 0 one fixed aligned shape, 1 many ragged ones."""

    score: float
    parts: tuple[Part, ...]


WEIGHTS = {"shapes": 0.30, "spread": 0.20, "alignment": 0.15, "ragged": 0.35}


def irregularity(region: Region, workload: Workload) -> Irregularity:
    """The score of a region in this use, from distinct shapes, their spread, alignment, and raggedness."""
    bindings = [dict(b.sizes) for b in workload.bindings if b.sizes] or list(region.bindings)
    calls = [b.calls_per_step for b in workload.bindings if b.sizes] or [1.0] * len(bindings)
    parts = (_shapes(bindings), _spread(bindings, calls), _alignment(region, bindings), _raggedness(region))
    score = sum(p.score * p.weight for p in parts)
    # Ragged data alone is as irregular as many shapes: the largest part counts for half of what it says.
    return Irregularity(min(1.0, max(score, 0.5 * max(p.score for p in parts))), parts)


def _part(name: str, title: str, score: float, because: str) -> Part:
    return Part(name, title, max(0.0, min(1.0, score)), WEIGHTS[name], because)


def _shapes(bindings: Sequence[dict[str, int]]) -> Part:
    """0 for one shape, 1 from eight on: torch.compile's recompile limit."""
    distinct = len({tuple(sorted(b.items())) for b in bindings}) or 1
    return _part(
        "shapes", "distinct shapes", math.log2(distinct) / 3, f"{distinct} distinct shape{'s' if distinct > 1 else ''}"
    )


def _spread(bindings: Sequence[dict[str, int]], calls: Sequence[float]) -> Part:
    """Largest over smallest volume of the sizes that vary; 0 where they are equal, 1 from a factor of 64 on."""
    volumes = [math.prod(b.values()) for b, c in zip(bindings, calls, strict=True) if b and c > 0]
    if len(volumes) < 2 or min(volumes) <= 0:
        return _part("spread", "spread of sizes", 0.0, "the sizes do not vary")
    factor = max(volumes) / min(volumes)
    return _part("spread", "spread of sizes", math.log2(factor) / 6, f"the largest is {factor:.3g} times the smallest")


def _alignment(region: Region, bindings: Sequence[dict[str, int]]) -> Part:
    """Share of rows that miss 16 bytes, and of matrix sizes that are no multiples of 8 and of 64."""
    rows = list(_last_sizes(region, bindings))
    if not rows:
        return _part("alignment", "alignment", 0.0, "no rows")
    sixteen = sum((size * itemsize) % TENSOR_ALIGNMENT != 0 for size, itemsize in rows) / len(rows)
    eight = sum(size % 8 != 0 for size, _ in rows) / len(rows)
    tile = sum(size % 64 != 0 for size, _ in rows) / len(rows)
    because = (
        f"of {len(rows)} row lengths, {percent(sixteen)} miss 16 bytes, {percent(eight)} are no multiple of 8, "
        f"{percent(tile)} no multiple of 64"
    )
    return _part("alignment", "alignment", 0.6 * sixteen + 0.25 * eight + 0.15 * tile, because)


def _last_sizes(region: Region, bindings: Sequence[dict[str, int]]) -> Iterable[tuple[int, int]]:
    for item in region.inputs:
        if len(item.shape) < 1:
            continue
        last = item.shape[-1]
        sizes = [last] if isinstance(last, int) else [b[last] for b in bindings if last in b]
        # A column of ones is a broadcast, not a row.
        yield from ((s, ITEMSIZE[item.dtype]) for s in sizes if s > 1)


def _raggedness(region: Region) -> Part:
    """1 for offsets of a jagged tensor, 0.7 for calls whose work depends on values."""
    if any(i.offsets is not None for i in region.inputs):
        return _part("ragged", "ragged or data-dependent", 1.0, "rows of different lengths, given by offsets")
    text = "\n".join(region.statements + region.outputs)
    by_value = [name for name in DATA_DEPENDENT if f"{name}" in text]
    if by_value:
        return _part("ragged", "ragged or data-dependent", 0.7, f"{by_value[0]} works by the values it gets")
    return _part("ragged", "ragged or data-dependent", 0.0, "the work does not depend on values")
