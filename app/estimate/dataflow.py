"""Dataflow of a lowered region: what reads what, in front of views; bytes and elements by the data's path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from app.estimate.facts import CURVED, OperationFacts
from profiler.region import op_kinds

if TYPE_CHECKING:
    from profiler.region.graph.fusion import Group
    from profiler.region.graph.lowering import Graph

IDLE = frozenset({op_kinds.VIEW, op_kinds.CONSTANT})
"""Operations that move nothing."""
ADDING = ("addmm", "baddbmm", "addbmm")
"""Products whose first operand is what they add."""


def chained_sizes(graph: Graph, roots: Mapping[str, str], by_name: Mapping[str, OperationFacts]) -> tuple[int, int]:
    """Bytes of inputs that are a product's rows and are read again behind it; elements of the activations between two
    products, each in the data's path from the one to the other."""
    behind: set[str] = set()
    rows: set[str] = set()
    again: dict[str, int] = {}
    for item in graph.operations:
        sources = {roots.get(n, n) for n in item.inputs}
        if item.kind == op_kinds.GEMM:
            added = op_kinds.base_name(item.target).startswith(ADDING)
            rows.update(roots.get(n, n) for n in item.inputs[added : added + 1])
        elif item.kind not in IDLE and not behind.isdisjoint(sources):
            again |= {n: t.bytes for n, t in graph.inputs if n in rows & sources}
        if item.kind == op_kinds.GEMM or not behind.isdisjoint(item.inputs):
            behind.add(item.name)
    ahead: set[str] = set()
    for item in reversed(graph.operations):
        if item.kind == op_kinds.GEMM or item.name in ahead:
            ahead.update(item.inputs)
    inner = (by_name[n] for n in behind & ahead if n in by_name)
    return sum(again.values()), sum(o.elements for o in inner if o.kind == op_kinds.POINTWISE and o.target in CURVED)


def backward(graph: Graph) -> frozenset[str]:
    """Operations of the backward pass: those that an upstream gradient reaches. None without gradients."""
    if not graph.region.requires_grad:
        return frozenset()
    after = {name for name, _ in graph.inputs[len(graph.region.inputs) :]}
    for item in graph.operations:
        if not after.isdisjoint(item.inputs):
            after.add(item.name)
    return frozenset(after)


def roots_of(graph: Graph) -> Mapping[str, str]:
    """Name of a view -> what it is a view of."""
    roots: dict[str, str] = {}
    for item in graph.operations:
        if item.kind == op_kinds.VIEW and item.inputs:
            roots[item.name] = roots.get(item.inputs[0], item.inputs[0])
    return roots


def halves_bytes(graph: Graph, after: frozenset[str], roots: Mapping[str, str]) -> tuple[int, int]:
    """Fewest bytes of forward and of backward: each reads its inputs once and writes its results once."""
    inputs = {name: tensor.bytes for name, tensor in graph.inputs}
    reads: tuple[set[str], set[str]] = set(), set()
    for item in graph.operations:
        if item.kind not in IDLE:
            reads[item.name in after].update(roots.get(n, n) for n in item.inputs)
    # Backward computes pointwise steps again from forward's inputs, so it reads those that forward read.
    reads[1].update(n for n in reads[0] if n in inputs)
    count = len(graph.program.outputs)
    results = [t.bytes for t in graph.output_tensors]
    forward, backward = (sum(inputs[n] for n in read if n in inputs) for read in reads)
    return forward + sum(results[:count]), backward + sum(results[count:])


def read_again(graph: Graph, group: Group, after: frozenset[str], roots: Mapping[str, str]) -> int:
    """Bytes that a kernel's forward part reads, where its backward part runs later and computes from them again."""
    forward = [graph.operation(n) for n in group.operations if n not in after]
    if not group.fused or len(forward) in (0, len(group.operations)):
        return 0
    sizes = {name: tensor.bytes for name, tensor in graph.inputs}
    sizes |= {o.name: sum(t.bytes for t in o.writes) for o in graph.operations}
    inside = set(group.operations)
    return sum(sizes.get(n, 0) for n in {roots.get(n, n) for o in forward for n in o.inputs} - inside)


def groups_between(graph: Graph, groups: Sequence[Group], roots: Mapping[str, str]) -> int:
    """Bytes of operations in one fused group that another one reads; partial results of one reduction not counted."""
    written = {n: sum(t.bytes for t in graph.operation(n).writes) for g in groups if g.fused for n in g.operations}
    read = (_read_by(graph, g, roots) - set(g.operations) for g in groups if g.fused)
    return sum(written.get(name, 0) for names in read for name in names)


def _read_by(graph: Graph, group: Group, roots: Mapping[str, str]) -> set[str]:
    """What its operations read, in front of views; of a reduction that it only finishes nothing."""
    names = [n for n in group.operations if n not in group.summed]
    return {roots.get(i, i) for n in names for i in graph.operation(n).inputs}
