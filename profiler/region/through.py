"""What would pass through one call in the place of several operations."""

from __future__ import annotations

from profiler.region import kinds
from profiler.region.fusion import through_views
from profiler.region.graph import Graph


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
            elif behind not in operations and graph.operation(behind).kind != kinds.CONSTANT:
                read[behind] = sum(t.bytes for t in graph.operation(behind).writes)
        if operation.kind != kinds.VIEW and _leaves(graph, name, operations):
            written += sum(t.bytes for t in operation.writes)
    return sum(read.values()) + written


def _leaves(graph: Graph, name: str, operations: frozenset[str]) -> bool:
    """An output, or read by an operation outside, if only through views."""
    waiting = [name]
    while waiting:
        found = waiting.pop()
        if found in graph.outputs:
            return True
        for user in graph.users.get(found, ()):
            if graph.operation(user).kind == kinds.VIEW:
                waiting.append(user)
            elif user not in operations:
                return True
    return False
