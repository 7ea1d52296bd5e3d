"""What is in front of a scatter or a product computed in its own kernel: pointwise steps, casts, views, lookups.

Each anchor gets copies of its own of the steps that it computes; the originals go where nothing else needs them.
"""

from __future__ import annotations

import operator
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.fx

from kernels.codegen.graph.prepare import known
from kernels.codegen.nodes import base, bind, fake, is_fill, is_number
from kernels.codegen.plan import is_view
from profiler.region import op_kinds
from profiler.region.graph.lazy_code import graph_module
from profiler.region.graph.lowering import Graph, graph_of
from profiler.region.operations import kind_of

MOST = 32
"""Steps in front of one anchor."""
STEPS = frozenset({op_kinds.POINTWISE, op_kinds.COPY, op_kinds.GATHER, op_kinds.CONSTANT, op_kinds.VIEW})
TABLES = frozenset({"embedding", "index_select", "gather", "index"})
"""Lookups: what they look into is memory, and no step."""

Anchor = str
Asked = Callable[[torch.fx.Node], Sequence[torch.fx.Node]]
"""An anchor's arguments whose steps it may compute; none where the node is no anchor."""


@dataclass(frozen=True, slots=True)
class Absorbed:
    """The graph with copies, and for each anchor, by name, the copies that are its own."""

    graph: Graph
    steps: Mapping[Anchor, tuple[torch.fx.Node, ...]]


def absorbed(graph: Graph, asked: Asked) -> Absorbed:
    """Every anchor with its steps; the graph itself where there is no anchor."""
    anchors = {n: asked(n) for n in graph.module.graph.nodes if n.op == "call_function"}
    anchors = {n: wanted for n, wanted in anchors.items() if wanted}
    if not anchors:
        return Absorbed(graph, {})
    new = torch.fx.Graph()
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    copies: dict[torch.fx.Node, tuple[torch.fx.Node, ...]] = {}
    for node in graph.module.graph.nodes:
        if node not in anchors:
            made[node] = new.node_copy(node, made.__getitem__)
            continue
        inside = steps_of(node, anchors[node])
        own = ChainMap[torch.fx.Node, torch.fx.Node]({}, made)
        for step in graph.module.graph.nodes:
            if step in inside:
                own[step] = new.node_copy(step, own.__getitem__)
        made[node] = new.node_copy(node, own.__getitem__)
        for place, argument in enumerate(node.args):  # what is needed from memory stays what it is
            if isinstance(argument, torch.fx.Node) and argument not in anchors[node]:
                made[node].update_arg(place, made[argument])
        copies[made[node]] = tuple(own.maps[0].values())
    new.eliminate_dead_code()
    new.lint()
    module = graph_module(graph.module, new)
    after = graph_of(graph.region, graph.binding, graph.program, module, [name for name, _ in graph.inputs])
    return Absorbed(after, {node.name: steps for node, steps in copies.items()})


def steps_of(anchor: torch.fx.Node, wanted: Sequence[torch.fx.Node]) -> set[torch.fx.Node]:
    """The steps above `wanted` that the anchor's kernel computes: those that nobody else needs, or that read no more
    than reading their result would.
    """
    order = {n: i for i, n in enumerate(anchor.graph.nodes)}
    inside: set[torch.fx.Node] = set()
    alone: set[torch.fx.Node] = {anchor}  # nobody else needs them
    tables: set[torch.fx.Node] = set()
    pending = set(wanted)
    while pending and len(inside) < MOST:
        node = max(pending, key=order.__getitem__)  # after all that reads it
        pending.discard(node)
        if node in tables or not _is_step(node):
            continue
        if all(user in alone for user in node.users):
            alone.add(node)
        elif not (is_view(node) or is_fill(node) or _reads(node) <= _bytes(node)):
            continue
        inside.add(node)
        sources = set(node.all_input_nodes)
        if base(node) in TABLES:
            table = bind(node)["weight" if base(node) == "embedding" else "self"]
            tables.add(table)
            sources.discard(table)
        pending |= sources - inside
    inside -= _above(tables, inside)
    return {n for n in inside if _leads(n, anchor, inside)}


def _is_step(node: torch.fx.Node) -> bool:
    if node.op != "call_function" or node.target is operator.getitem or not isinstance(node.meta["val"], torch.Tensor):
        return False
    return kind_of(str(node.target)) in STEPS and known(node)


def _above(tables: set[torch.fx.Node], inside: set[torch.fx.Node]) -> set[torch.fx.Node]:
    """The tables themselves and the views that they are of: a lookup reads memory."""
    seen, pending = set[torch.fx.Node](), list(tables)
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if is_view(node):
            pending += node.all_input_nodes
    return seen & inside


def _leads(node: torch.fx.Node, anchor: torch.fx.Node, inside: set[torch.fx.Node]) -> bool:
    """Some path from it to the anchor is inside."""
    return any(user is anchor or (user in inside and _leads(user, anchor, inside)) for user in node.users)


def _bytes(node: torch.fx.Node) -> int:
    value = fake(node)
    return value.numel() * value.element_size()


def _reads(node: torch.fx.Node) -> int:
    return sum(_bytes(s) for s in node.all_input_nodes if not is_fill(s) and not is_number(s))
