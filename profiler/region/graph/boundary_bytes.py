"""What would pass through one call in the place of several operations."""

from __future__ import annotations

from profiler.region import op_kinds
from profiler.region.graph.cost import needed_outside
from profiler.region.graph.fusion import through_views
from profiler.region.graph.lowering import Graph


def bytes_through(graph: Graph, operations: frozenset[str]) -> int:
    """Bytes read from outside the operations and written for outside, each tensor once; constants are free."""
    inputs = dict(graph.inputs)
    read: dict[str, int] = {}
    written = 0
    for name in operations:
        operation = graph.operation(name)
        for source in operation.inputs:
            behind = through_views(graph, source)
            if behind in inputs:
                read[behind] = inputs[behind].bytes
            elif behind not in operations and graph.operation(behind).kind != op_kinds.CONSTANT:
                read[behind] = sum(t.bytes for t in graph.operation(behind).writes)
        if operation.kind != op_kinds.VIEW and needed_outside(graph, name, operations):
            written += sum(t.bytes for t in operation.writes)
    return sum(read.values()) + written
