"""A training region's graph in two: forward, and backward from what forward leaves.

Forward leaves the results of its reductions and of its calls to libraries where backward needs them; pointwise steps
and random masks between are computed again from the inputs, which costs no memory and fewer bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch.fx

from kernels.codegen.expressions import ops
from kernels.codegen.expressions.pools import PLACED
from kernels.codegen.graph.updates import is_update, refuse_former, updates
from kernels.codegen.nodes import base, is_fill, root
from kernels.codegen.plan import is_view
from profiler.region.graph.lazy_code import graph_module
from profiler.region.graph.lowering import Graph, graph_of


@dataclass(frozen=True, slots=True)
class Halves:
    """forward: inputs -> outputs, then what is left; backward: inputs, what is left, upstream -> gradients."""

    forward: Graph
    backward: Graph
    outputs: int
    written: tuple[bool, ...]  # inputs that forward writes over


def halves(graph: Graph) -> Halves:
    """Raises Unsupported where the backward reads an input that the forward writes over."""
    module, region = graph.module, graph.region
    written = updates(module.graph)
    given = [n for n in module.graph.nodes if n.op == "placeholder"]
    inputs, upstream = given[: len(region.inputs)], given[len(region.inputs) :]
    results = list(next(n for n in module.graph.nodes if n.op == "output").args[0])
    count = len(graph.program.outputs)
    outputs, gradients = results[:count], results[count:]
    after: set[torch.fx.Node] = set(upstream)
    for node in module.graph.nodes:
        if any(s in after for s in node.all_input_nodes):
            after.add(node)
    there = {root(o) for o in outputs}
    kept = {o.name for o in graph.operations if o.extern}
    left: dict[torch.fx.Node, None] = {}
    seen: set[torch.fx.Node] = set()
    pending = list(gradients)
    while pending:
        node = pending.pop()
        if node in seen or node in inputs or node in left:
            continue
        if node not in after and not is_view(node) and (node in there or _costly(node, kept)):
            left[node] = None
            continue
        seen.add(node)
        pending.extend(node.all_input_nodes)
    order = {n: i for i, n in enumerate(module.graph.nodes)}
    saved = sorted(left, key=order.__getitem__)
    behind = [*inputs, *saved, *upstream]
    refuse_former(_needed(graph, behind, gradients), written)
    return Halves(
        _half(graph, inputs, [*outputs, *saved], [n for n in module.graph.nodes if is_update(n)]),
        _half(graph, behind, gradients),
        count,
        tuple(n in written for n in inputs),
    )


def _costly(node: torch.fx.Node, kept: set[str]) -> bool:
    """Not to be computed again: a walk over a row, a call to a library."""
    if node.op != "call_function" or is_fill(node):
        return False
    operation = node
    if node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, torch.fx.Node)
        operation = source
    return operation.name in kept or base(operation) in ops.ROWWISE or base(operation) in PLACED


def _half(
    graph: Graph, inputs: Sequence[torch.fx.Node], results: Sequence[torch.fx.Node], also: Sequence[torch.fx.Node] = ()
) -> Graph:
    """also: what is run and not returned."""
    new = torch.fx.Graph()
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    names = dict(zip((n for n in graph.module.graph.nodes if n.op == "placeholder"), graph.inputs, strict=True))
    for node in inputs:
        made[node] = new.placeholder(node.name)
        made[node].meta.update(node.meta)
    for node in _needed(graph, inputs, [*results, *also]):
        made[node] = new.node_copy(node, made.__getitem__)
    new.output(tuple(made[r] for r in results))
    new.lint()
    module = graph_module(graph.module, new)
    called = [names[n][0] if n in names else n.name for n in inputs]
    return graph_of(graph.region, graph.binding, graph.program, module, called)


def _needed(graph: Graph, inputs: Sequence[torch.fx.Node], results: Iterable[torch.fx.Node]) -> list[torch.fx.Node]:
    wanted: set[torch.fx.Node] = set()
    pending = list(results)
    while pending:
        node = pending.pop()
        if node not in wanted and node not in inputs:
            wanted.add(node)
            pending.extend(node.all_input_nodes)
    return [n for n in graph.module.graph.nodes if n in wanted]
