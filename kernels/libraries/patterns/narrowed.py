"""Norms that a text takes of numbers it has widened, and rounds again: one call on the narrow numbers.

Every kernel of a norm adds up in f32 whatever it reads: `F.rms_norm(x.float(), (n,), w.float()).to(x.dtype)` is
`F.rms_norm(x, (n,), w)`, without two copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch.fx import Node

from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, node_of, role
from profiler.region.graph.nodes import is_call, value

NORMS = {"rms_norm": ("rms_norm", ("x", "", "weight", "eps")),
         "layer_norm": ("native_layer_norm", ("x", "", "weight", "bias", "eps"))}  # fmt: skip
"""Kind -> torch's call, what its arguments are; "" for the sizes that it normalises."""


def narrowed(graph: Graph, matches: Sequence[Match]) -> tuple[Match, ...]:
    """The matches, with norms between casts taken whole."""
    return tuple(_narrowed(graph, m) for m in matches)


def _narrowed(graph: Graph, match: Match) -> Match:
    call, names = NORMS.get(match.kind, ("", ()))
    node = node_of(graph, match.output)
    if match.by_hand or node is None or not is_call(node, call) or node.kwargs or len(node.args) != len(names):
        return match
    result = _only(node, "getitem", 0) if call == "native_layer_norm" else node
    rounded = _only(result, "_to_copy") if result is not None else None
    arguments = {name: a for name, a in zip(names, node.args, strict=True) if name}
    x = arguments["x"]
    if rounded is None or not _widens(x) or value(x.args[0]).dtype != value(rounded).dtype:  # type: ignore[union-attr]
        return match
    inside = {node, rounded}
    roles = {}
    for name, given in arguments.items():
        source = given.args[0] if _widens(given) else given  # type: ignore[union-attr]
        if source is not given and all(u is node for u in given.users):  # type: ignore[union-attr]
            inside.add(given)  # type: ignore[arg-type]
        roles[name] = role(graph, source)
    sizes = node.args[1]
    assert isinstance(sizes, list | tuple)
    roles["width"] = sizes[-1]  # type: ignore[assignment]
    operations = match.operations | {n.name for n in inside}
    return replace(match, by_hand=True, operations=operations, output=rounded.name, roles=roles)


def _only(node: Node, name: str, part: int | None = None) -> Node | None:
    """The one node that reads it, where that is such a call."""
    users = list(node.users)
    if len(users) != 1 or not is_call(users[0], name) or (part is not None and users[0].args[1] != part):
        return None
    return users[0]


def _widens(node: object) -> bool:
    if not is_call(node, "_to_copy") or not isinstance(node, Node) or not isinstance(node.args[0], Node):
        return False
    return value(node).dtype.itemsize > value(node.args[0]).dtype.itemsize and value(node).dtype.is_floating_point
