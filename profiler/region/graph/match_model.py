"""A pattern in a region's graph: what a matcher gives, how it names nodes, which operations a call would replace."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from torch.fx import Node

from profiler.region.graph.lowering import Graph
from profiler.region.graph.nodes import CASTS, is_call

VIEWS = ("view", "_unsafe_view", "expand", "reshape", "unsqueeze", "squeeze", "transpose", "permute", "t", "slice")

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


def calls(graph: Graph, *names: str) -> Iterator[Node]:
    """The graph's calls with one of these names, in order."""
    return (n for n, name in graph.named_calls if name in names)


def role(graph: Graph, node: object) -> Role:
    """How a Match names a node: a region input by its own name, an operation by the graph's, numbers as themselves."""
    if isinstance(node, tuple) and all(isinstance(n, int) for n in node):
        return node
    if not isinstance(node, Node):
        return node if isinstance(node, int | float | bool) or node is None else str(node)
    if node.op == "placeholder":
        position = [n for n in graph.module.graph.nodes if n.op == "placeholder"].index(node)
        return graph.inputs[position][0]
    return node.name


def node_of(graph: Graph, name: Role) -> Node | None:
    """The node that a role names, an input's among them."""
    holders = [n for n in graph.module.graph.nodes if n.op == "placeholder"]
    inputs = {given: n for n, (given, _) in zip(holders, graph.inputs, strict=True)}
    return inputs.get(str(name)) or next((n for n, _ in graph.named_calls if n.name == name), None)


def operation_names(graph: Graph, nodes: Iterable[Node]) -> frozenset[str]:
    """Names of the operations among these nodes; views and casts between them included by the caller."""
    names = {o.name for o in graph.operations}
    return frozenset(n.name for n in nodes if n.name in names)


def between(results: Iterable[Node], leaves: Container[Node]) -> set[Node]:
    """The calls that the results come from, as far as the leaves."""
    inside: set[Node] = set()
    waiting = list(results)
    while waiting:
        node = waiting.pop()
        if node in inside or node in leaves or node.op != "call_function":
            continue
        inside.add(node)
        waiting += node.all_input_nodes
    return inside


def covered_operations(
    graph: Graph, output: Node, leaves: Iterable[object], free: Container[Node] = ()
) -> frozenset[str] | None:
    """Operations between the leaves and the output; None where something inside that is not free is read from outside.

    A value that others read must stay computed, so a library call for the output would not save it.
    """
    inside = between([output], {n for n in leaves if isinstance(n, Node)})
    for node in inside - {output}:
        outside = [u for u in node.users if u not in inside]
        if (
            outside
            and node not in free
            and not is_call(node, *CASTS, *VIEWS, "ones", "arange", "tril", "full", "scalar_tensor", "zeros")
        ):
            return None
    return operation_names(graph, inside)
