"""A training region's graph in two: forward, and backward from what forward leaves.

Forward leaves the results of its reductions and of its calls to libraries where backward needs them; pointwise steps
and random masks between are computed again from the inputs, which costs no memory and fewer bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch.fx
from torch._subclasses.fake_tensor import FakeTensor

from kernels.codegen.expressions import ops
from kernels.codegen.expressions.pools import PLACED
from kernels.codegen.graph.updates import is_update, refuse_former, updates
from kernels.codegen.nodes import GRAPHS_TYPE, base, fake, is_fill, root
from kernels.codegen.plan import is_view
from profiler.region.graph.lazy_code import graph_module
from profiler.region.graph.lowering import Graph, graph_of

FEWEST_A_ROW = 16
"""Numbers that a statistic kept in f32 stands for: fewer, and reading it in f32 costs."""


@dataclass(frozen=True, slots=True)
class Halves:
    """forward: inputs -> outputs, then what is left; backward: inputs, what is left, upstream -> gradients."""

    forward: Graph
    backward: Graph
    outputs: int
    written: tuple[bool, ...]  # inputs that forward writes over
    wide: tuple[int, ...]  # of what is left, that in f32 where the graph has 16 bits


def halves(graph: Graph, wider: bool = True) -> Halves:
    """wider: statistics of rows of 16-bit numbers are left in f32, as they are summed: rounded ones are off by the same
    for all of a row, and where rows are alike (a largest number of 1.0 in each) for all of the gradient.

    Raises Unsupported where the backward reads an input that the forward writes over."""
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
    wide = frozenset(n for n in saved if wider and n not in there and _is_statistic(n, kept))
    return Halves(
        _half(graph, inputs, [*outputs, *saved], [n for n in module.graph.nodes if is_update(n)], wide),
        _half(graph, behind, gradients, wide=wide),
        count,
        tuple(n in written for n in inputs),
        tuple(i for i, n in enumerate(saved) if n in wide),
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


def _is_statistic(node: torch.fx.Node, extern: set[str]) -> bool:
    """A sum, mean or largest number of a row, of 16 bits, that a generated kernel makes."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.bfloat16, torch.float16):
        return False
    if node.name in extern or base(node) not in ops.REDUCTIONS:
        return False
    return all(value.numel() * FEWEST_A_ROW <= fake(n).numel() for n in node.all_input_nodes)


def _wide(value: torch.Tensor) -> torch.Tensor:
    """A fake tensor in f32 that lies as this one does, in a memory of its own: `to` would lay an expanded one out."""
    assert isinstance(value, FakeTensor)
    reach = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) if value.numel() else 0
    with value.fake_mode:
        memory = torch.empty(int(value.storage_offset()) + reach + 1, dtype=torch.float32, device=value.device)
        return memory.as_strided(value.shape, value.stride(), value.storage_offset())


def _half(
    graph: Graph, inputs: Sequence[torch.fx.Node], results: Sequence[torch.fx.Node],
    also: Sequence[torch.fx.Node] = (), wide: frozenset[torch.fx.Node] = frozenset(),
) -> Graph:  # fmt: skip
    """also: what is run and not returned. wide: what is f32 in it, whatever its type was."""
    new = torch.fx.Graph()
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    names = dict(zip((n for n in graph.module.graph.nodes if n.op == "placeholder"), graph.inputs, strict=True))
    for node in inputs:
        made[node] = new.placeholder(node.name)
        made[node].meta.update(node.meta)
    for node in _needed(graph, inputs, [*results, *also]):
        made[node] = new.node_copy(node, made.__getitem__)
    for node in made:
        if node in wide or (is_view(node) and root(node) in wide):
            made[node].meta[GRAPHS_TYPE] = fake(node).dtype
            made[node].meta["val"] = _wide(fake(node))
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
