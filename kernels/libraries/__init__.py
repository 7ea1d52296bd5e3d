"""What libraries cover: entries, conditions, adapters. Importing this imports no torch; asking does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernels.libraries.model import Cover

if TYPE_CHECKING:
    from kernels.host import Host
    from profiler.region.graph.lowering import Graph
    from profiler.region.graph.match_model import Match


def coverage(graph: Graph, matches: Sequence[Match], host: Host) -> tuple[Cover, ...]:
    """Every library call known for the region's patterns: those that hold first, each candidate once."""
    from kernels.libraries.covers import coverage as found

    return found(graph, matches, host)


__all__ = ["Cover", "coverage"]
