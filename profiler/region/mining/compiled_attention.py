"""Attention that torch.compile left as its author wrote it: two products of the library with a softmax of Inductor's
between them. What would be one call is three kernels, and the scores are written out."""

from __future__ import annotations

from collections.abc import Sequence

from profiler.region.mining.output_shapes import outputs
from profiler.region.mining.unit_letters import COMPILED_PREFIX
from profiler.region.mining.units import Unit

NEAR = 3
"""Units with kernels, at most, from a product to the softmax, or from that to the other: copies stand between."""


def is_softmax(unit: Unit) -> bool:
    """A kernel of torch.compile that computes a softmax, by its name."""
    name = unit.name
    others = ("backward", "log_softmax")
    return bool(COMPILED_PREFIX.match(name)) and "_softmax" in name and not any(other in name for other in others)


def find_compiled_attention(busy: Sequence[Unit], letters: Sequence[str], taken: Sequence[bool]) -> list[list[int]]:
    """Places of (product, softmax, product) of each, none in two: the first makes as many scores as the softmax reads,
    the second reads as many."""
    used = list(taken)
    regions = []
    for softmax, unit in enumerate(busy):
        sizes = [s.elements for a in unit.args for s in a.sigs if a.kind == "tensor"]
        if used[softmax] or not is_softmax(unit) or not sizes:
            continue
        scores = max(sizes)
        made = [i for i in range(softmax - 1, softmax - 1 - NEAR, -1) if i >= 0 and _makes(busy[i], scores)]
        read = [i for i in range(softmax + 1, min(softmax + 1 + NEAR, len(busy))) if _reads(busy[i], scores)]
        first = next((i for i in made if letters[i] == "M" and not used[i]), None)
        last = next((i for i in read if letters[i] == "M" and not used[i]), None)
        if first is not None and last is not None:
            for place in (first, softmax, last):
                used[place] = True
            regions.append([first, softmax, last])
    return regions


def _makes(unit: Unit, elements: int) -> bool:
    return any(s.elements == elements for s in outputs(unit))


def _reads(unit: Unit, elements: int) -> bool:
    return bool(unit.args) and any(s.elements == elements for s in unit.args[0].sigs)
