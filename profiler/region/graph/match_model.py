"""A pattern in a region's graph: what a matcher gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from profiler.region.graph.lowering import Graph

Role = str | float | int | bool | tuple[int, ...] | None


@dataclass(frozen=True)
class Match:
    """One pattern in a graph.

    operations: names of the operations it covers; output: the operation whose result a library call would give.
    roles: role -> name of the operation or region input that plays it, or a constant.
    by_hand: written out of smaller operations, where one call exists.
    """

    kind: str
    title: str
    by_hand: bool
    operations: frozenset[str]
    output: str
    roles: dict[str, Role]


Matcher = Callable[[Graph], Iterable[Match]]
