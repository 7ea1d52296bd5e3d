"""Patterns as plain functions of tensors, and where a graph computes them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.fx import Node

from profiler.region.graph.canonical import identities
from profiler.region.graph.canonical.graph_values import GraphValues, Recorder, graph_values
from profiler.region.graph.canonical.unify import Bound, Unifier
from profiler.region.graph.canonical.values import FLOATS, Table, Value, as_product
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, Role, covered_operations, role
from profiler.region.graph.nodes import is_call, name_of, value

NUMBERS = (0.01234567, 0.02345671, 0.03456712, 0.04567123)
"""What stands for the constants of a pattern: no number that anyone writes."""
PLAIN = frozenset({"input", "product", "total", "number", "permute", "reshape"})
"""Operations of a pattern that a graph's value may lack."""


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor that a pattern is written for: its sizes stand for any, axes count from the end."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32


class Number:
    """A constant that a pattern is written for."""


Roles = Mapping[str, "Value | Node | Role"]
Settled = Callable[["Binding"], "Roles | None"]


@dataclass(frozen=True, slots=True)
class Binding:
    """What plays each role, before it is told in the graph's names. root: the value that is the pattern's result."""

    bound: Bound
    values: GraphValues
    root: Value

    def value(self, name: str) -> Value:
        binding = self.bound[name]
        assert isinstance(binding, Value)
        return binding

    def number(self, name: str) -> float:
        binding = self.bound[name]
        assert isinstance(binding, float)
        return binding


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """One computation.

    spellings: functions of the given tensors and numbers, each a way to write it that canonical form does not make the
    same as another. settled: roles of what is bound, None where it only looks alike. calls: names of aten operations
    that are this by themselves; with one of them the match is no form by hand, and has `called` as title.
    through_views: views behind the result belong to it. any_axis: see `Unifier`.
    """

    kind: str
    title: str
    spellings: tuple[Callable[..., object], ...]
    given: Mapping[str, Given | Number]
    settled: Settled
    calls: frozenset[str] = frozenset()
    called: str = ""
    through_views: bool = False
    any_axis: bool = False


@dataclass(frozen=True, slots=True)
class _Read:
    """One spelling as a canonical value. needs: operations that a graph must have; factors: of a product, those that
    the graph's product must have.
    """

    pattern: Pattern
    value: Value
    numbers: Mapping[float, str]
    needs: frozenset[str]
    factors: frozenset[tuple[str, float]] = field(default_factory=frozenset)


def read(pattern: Pattern) -> tuple[_Read, ...]:
    """Its spellings in canonical form, each once."""
    reads = {}
    for spelling in pattern.spellings:
        table = Table(identities)
        names = [n for n, g in pattern.given.items() if isinstance(g, Number)]
        numbers = dict(zip(NUMBERS, names, strict=False))
        by_role = {n: number for number, n in numbers.items()}
        arguments: dict[str, torch.Tensor | float] = {}
        with torch.no_grad(), Recorder(table) as recorder:
            for name, given in pattern.given.items():
                if isinstance(given, Number):
                    arguments[name] = by_role[name]
                else:
                    tensor = torch.empty(given.shape, dtype=given.dtype, device="meta")
                    recorder.bind(tensor, table.make("input", (), (name,), given.shape))
                    arguments[name] = tensor
            wanted = spelling.__code__.co_varnames[: spelling.__code__.co_argcount]
            result = spelling(*(arguments[n] for n in wanted))
            assert isinstance(result, torch.Tensor)
        root = recorder.value(result)
        factors = frozenset[tuple[str, float]]()
        if root.op == "product":
            bases = as_product(root).exponents
            factors = frozenset((b.op, e) for b, e in bases.items() if b.op not in ("input", "permute"))
        reads[_spelt(root)] = _Read(pattern, root, numbers, _operations(root) - PLAIN, factors)
    return tuple(reads.values())


def _spelt(value: Value) -> str:
    return f"{value.op}{value.attrs}({','.join(map(_spelt, value.args))})"


def _operations(value: Value) -> frozenset[str]:
    return frozenset({value.op}).union(*map(_operations, value.args))


def matches(graph: Graph, reads: Sequence[_Read]) -> Iterator[Match]:
    """Every place in the graph that computes one of the patterns."""
    values = graph_values(graph.module)
    present = values.table.operations
    by_operation: dict[str, list[tuple[Value, frozenset[tuple[str, float]]]]] = {}
    for one in values.results:
        factors = frozenset[tuple[str, float]]()
        if one.op == "product":
            factors = frozenset((b.op, e) for b, e in as_product(one).exponents.items())
        by_operation.setdefault(one.op, []).append((one, factors))
        if len(one.args) == 1 and one.args[0].op == "total" and one.op == "product":  # a sum with a factor is a sum
            by_operation.setdefault("total", []).append((one, factors))
    for spelling in reads:
        if not spelling.needs <= present:
            continue
        unifier = Unifier(values.table, spelling.numbers, spelling.pattern.any_axis)
        for root, factors in by_operation.get(spelling.value.op, ()):
            if spelling.factors <= factors:
                yield from _at(graph, values, spelling, unifier, root)


def matches_of(values: GraphValues, reads: Sequence[_Read], root: Value) -> Iterator[tuple[Pattern, Bound]]:
    """Every way in which the value is one of the patterns, whether or not a call gives it."""
    parts = as_product(root).exponents if root.op == "product" else {}
    factors = frozenset((b.op, e) for b, e in parts.items())
    for spelling in reads:
        if spelling.value.op == root.op and spelling.factors <= factors and spelling.needs <= values.table.operations:
            unifier = Unifier(values.table, spelling.numbers, spelling.pattern.any_axis)
            for bound in unifier.ways(spelling.value, root, {}):
                yield spelling.pattern, bound


def _at(graph: Graph, values: GraphValues, spelling: _Read, unifier: Unifier, root: Value) -> Iterator[Match]:
    """The matches whose result is this value, one for each place that computes it."""
    pattern = spelling.pattern
    for bound in unifier.ways(spelling.value, root, {}):
        roles = pattern.settled(Binding(bound, values, root))
        if roles is None:
            continue
        matched = told(graph, values, pattern, roles, root)
        if matched:
            yield from matched
            return


def told(
    graph: Graph, values: GraphValues, pattern: Pattern, roles: Roles, root: Value, free: Container[Node] = ()
) -> list[Match]:
    """The matches of a value that was recognised, one for each place that computes it. free: nodes that may be read
    from outside as well.
    """
    given = free or values.constant
    return [m for n in _starts(values, root) if (m := _told(graph, values, pattern, roles, n, given)) is not None]


def _starts(values: GraphValues, root: Value) -> list[Node]:
    """The calls that compute a value, without the casts behind them."""
    nodes = root.nodes or root.reshaped
    return [n for n in nodes if not any(i in nodes for i in n.all_input_nodes)]


def _told(
    graph: Graph, values: GraphValues, pattern: Pattern, roles: Roles, start: Node, free: Container[Node]
) -> Match | None:
    """The match in the graph's names; None where a role has no node, or something inside is read from outside."""
    output = _last(values, start, pattern.through_views)
    wanted = [v for v in roles.values() if isinstance(v, Value)]
    edges = _edges(values, output, {id(v) for v in wanted})
    leaves: dict[str, Node] = {}
    for name, one in roles.items():
        if isinstance(one, Node):
            leaves[name] = one
        elif isinstance(one, Value):
            node = _node_of(values, one, edges, output)
            if node is None:
                return None
            leaves[name] = node
    inside = covered_operations(graph, output, leaves.values(), free)
    if inside is None:
        return None
    said: dict[str, Role] = {n: one for n, one in roles.items() if not isinstance(one, (Value, Node))}
    said |= {name: role(graph, node) for name, node in leaves.items()}
    nodes = [n for n in graph.module.graph.nodes if n.name in inside]
    called = bool(pattern.calls) and any(name_of(n) in pattern.calls for n in nodes)
    result = output.args[0] if is_call(output, "getitem") else output
    assert isinstance(result, Node)
    return Match(pattern.kind, pattern.called if called else pattern.title, not called, inside, result.name, said)


def _last(values: GraphValues, node: Node, through_views: bool) -> Node:
    """The node behind its only user, where that is a cast, or a view that belongs to it."""
    views = ("view", "_unsafe_view") if through_views else ()
    while len(node.users) == 1 and is_call(user := next(iter(node.users)), "_to_copy", *views):
        if is_call(user, "_to_copy") and value(user).dtype not in FLOATS:
            break
        node = user
    return node


def _edges(values: GraphValues, output: Node, leaves: set[int]) -> list[Node]:
    """Where a walk back from the output first meets a leaf's value."""
    met: list[Node] = []
    seen: set[Node] = set()
    waiting = [output]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if id(values.values.get(node)) in leaves and node is not output:
            met.append(node)
        elif node.op == "call_function":
            waiting += node.all_input_nodes
    return met


def _node_of(values: GraphValues, wanted: Value, edges: Iterable[Node], output: Node) -> Node | None:
    """The node that a match reads for a value, in front of casts that lose nothing; else one that has it by then."""
    there = {_exact(values, n): n for n in edges if values.values.get(n) is wanted}
    if there:
        order = {n: i for i, n in enumerate(wanted.nodes)}
        return min(there, key=lambda n: order.get(n, 0))
    return next((_exact(values, n) for n in wanted.nodes if n < output), None)


def _exact(values: GraphValues, node: Node) -> Node:
    """The first node that has the same numbers: in front of casts to types that hold them all, and of what changes
    nothing.
    """
    alike = values.values[node]
    same = alike.nodes if isinstance(alike, Value) else ()
    if all(value(n).dtype.itemsize >= value(node).dtype.itemsize for n in same):
        return next(n for n in same if value(n).dtype == value(node).dtype)
    while node.op == "call_function" and node.args and isinstance(source := node.args[0], Node):
        if values.values.get(source) is not alike:
            return node
        before, after = value(source).dtype, value(node).dtype
        if before != after and after != torch.float32:
            return node
        node = source
    return node


@functools.cache
def readings(patterns: tuple[Pattern, ...]) -> tuple[_Read, ...]:
    """Of a table of patterns, once."""
    return tuple(one for pattern in patterns for one in read(pattern))
