"""What a value can be read as: the calls that would give it, whatever the region has written.

A graph's canonical values (`profiler.region.graph.canonical`) say what is computed and not how. A term asks for calls
of certain names; here the calls that a value can be written as are named with their operands: a product as any of its
splits into two factors, a sum as any of its splits into two terms, a root as the root of what stands below it, a norm
that is written out as the call of a norm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import chain
from math import isfinite
from typing import Any

import torch
from torch.fx import GraphModule, Node

from profiler.region.graph.canonical.graph_values import GraphValues, graph_values
from profiler.region.graph.canonical.identities import bounds_of
from profiler.region.graph.canonical.pattern import Binding, matches_of, readings
from profiler.region.graph.canonical.values import Product, Total, Value, as_product, as_total, raised
from profiler.region.graph.forms import FORMS
from profiler.region.graph.nodes import is_call, name_of

MOST_FACTORS = 5
"""A sum or product of more is not split: the splits are too many, and no term says so much at once."""
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
SPREADS = ("expand", "expand_as", "broadcast_to", "repeat")


@dataclass(frozen=True, slots=True)
class Part:
    """A value that no call needs to give. reader: a call that it goes into."""

    value: Value
    reader: Node


@dataclass(frozen=True, slots=True)
class Reading:
    """A call that would give the value: operands and options by the schema's names, in its order."""

    name: str
    arguments: Mapping[str, Any]


Exponents = frozenset[tuple[Value, float]]
Read = Callable[["Reader", Value], Iterator[Reading]]


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads values that go into one call of a graph. coefficients: of the products that calls give, by their bases."""

    values: GraphValues
    node: Node
    coefficients: Mapping[Exponents, Collection[float]]

    def part(self, value: Value) -> Node | Part | float:
        """As an operand: a number as such, the node that has the value, where there is one."""
        if value.op == "number":
            number = value.attrs[0]
            assert isinstance(number, float)
            return number
        return self._node(value) or Part(value, self.node)

    def _node(self, value: Value) -> Node | None:
        """The node from which the call has the value; the last one in front of it where it has it from none."""
        before = [n for n in value.nodes if n is not self.node and n < self.node]
        if not before or len({n.meta["val"].dtype for n in before}) == 1:
            return before[0] if before else None
        truths = [n for n in before if n.meta["val"].dtype == torch.bool]
        if truths:
            return truths[0]  # 1 and 0 in any type
        waiting, seen, there = [self.node], set[Node](), set(before)
        while waiting:
            node = waiting.pop()
            if node in there:
                return node
            if node not in seen:
                seen.add(node)
                waiting += node.all_input_nodes
        return before[-1]


@dataclass(slots=True)
class Memory:
    """What is known of one graph: its values, and the coefficients of those that are products; whether some call makes
    floats shorter; by value, call that it goes into and name, what was read; by a term's identity, what it was held
    against and how exactly, the term itself, so that no other gets its identity, and what is bound in each way.
    """

    values: GraphValues
    coefficients: Mapping[Exponents, Collection[float]]
    rounds: bool
    read: dict[tuple[Value, Node, str], tuple[Reading, ...]] = field(default_factory=dict)
    ways: dict[tuple[int, Node | Part, bool], tuple[object, tuple[Mapping[str, Any], ...]]] = field(
        default_factory=dict
    )


@lru_cache(maxsize=4)
def _memory(module: GraphModule) -> Memory:
    values = graph_values(module)
    coefficients: dict[Exponents, set[float]] = {}
    for value in values.results:
        parts = as_product(value)
        if parts.coefficient != 1:
            coefficients.setdefault(frozenset(parts.exponents.items()), set()).add(parts.coefficient)
    return Memory(values, coefficients, _rounds(module))


def memory_of(given: Node | Part) -> Memory | None:
    """Of the graph that it is in; None for a node of no module."""
    module = (given.reader if isinstance(given, Part) else given).graph.owning_module
    return _memory(module) if module is not None else None


def read(given: Node | Part, names: Collection[str], exact: bool) -> Iterator[Reading]:
    """The calls of these names that would give it. exact: no rounding in the graph may be looked through."""
    memory = memory_of(given)
    if memory is None or (exact and memory.rounds):
        return
    node, value = given.reader if isinstance(given, Part) else given, _value_of(given)
    if value is None:
        return
    for name in names:
        reads = READS.get(name)
        if reads is None or not reads.may(value):
            continue
        key = value, node, name
        if key not in memory.read:
            memory.read[key] = tuple(reads.read(Reader(memory.values, node, memory.coefficients), value))
        yield from memory.read[key]


def _own_value(given: Node | Part) -> Value | None:
    if isinstance(given, Part):
        return given.value
    memory = memory_of(given)
    return memory.values.of(given) if memory is not None else None


def _value_of(given: Node | Part) -> Value | None:
    """Its value, or what an operand of it is spread from; of a call that does no more than spread, the whole."""
    value = _own_value(given)
    if value is None or value.op != "expand" or is_call(given, *SPREADS):
        return value
    return value.args[0]


def calls_of(given: object, *names: str) -> Iterator[tuple[str, list[Any]]]:
    """(name, arguments) of the call that it is, and of those that it can be read as, of these names."""
    if is_call(given, *names):
        yield name_of(given), list(given.args)
    if isinstance(given, (Node, Part)):
        yield from ((r.name, list(r.arguments.values())) for r in read(given, names, exact=False))


def may_be(given: Node | Part, names: Collection[str]) -> bool:
    """At one look: it may be read as a call of one of these names."""
    value = _value_of(given)
    return value is not None and any(n in READS and READS[n].may(value) for n in names)


def has_no_root(given: Node | Part) -> bool:
    """It is a sum, or a product of whole powers."""
    value = _own_value(given)
    if value is None or value.op not in ("total", "product"):
        return False
    return value.op == "total" or not any(isinstance(e, float) and e % 1 for e in value.attrs[1:])


def readable(given: Node) -> frozenset[str]:
    """Names of the calls that its value may be read as."""
    value = _value_of(given)
    possible = NAMES.get(value.op, frozenset()) if value is not None else frozenset[str]()
    return frozenset(n for n in possible if value is not None and READS[n].may(value))


def readable_anywhere(module: GraphModule) -> frozenset[str]:
    """Names of the calls that some value of the graph may be read as."""
    operations = _memory(module).values.table.operations
    return frozenset[str]().union(*(NAMES.get(op, frozenset()) for op in operations))


def first_of(node: Any) -> Any:
    """The first call or input that has what a calculation gives back, as --x does; others are themselves."""
    if not is_call(node, "neg", "mul", "div", "reciprocal", "add", "sub"):
        return node
    value = _own_value(node)
    fakes = [n.meta["val"] for n in value.nodes] if value is not None else []
    alike = all((f.dtype, f.shape) == (fakes[0].dtype, fakes[0].shape) for f in fakes)
    return value.nodes[0] if value is not None and fakes and alike else node


def same_value(a: object, b: object) -> bool:
    """Both nodes have the same value, up to casts."""
    memory = memory_of(a) if isinstance(a, Node) else None
    value = memory.values.of(a) if memory is not None else None
    return memory is not None and value is not None and value is memory.values.of(b)


def _rounds(module: GraphModule) -> bool:
    """Some call makes floats shorter."""
    for node in module.graph.nodes:
        if is_call(node, "_to_copy", "to") and isinstance(node.args[0], Node):
            before, after = (n.meta["val"].dtype for n in (node.args[0], node))
            if before in FLOATS and after in FLOATS and after.itemsize < before.itemsize:
                return True
    return False


# --------------------------------------------------------------------------------------------------- sums and products


def _splits(count: int) -> Iterator[tuple[list[int], list[int]]]:
    """Both sides of every way to share so many among two, both not empty, one side in either place."""
    if count > MOST_FACTORS:
        return
    for mask in range(1, (1 << count) - 1):
        yield [i for i in range(count) if mask >> i & 1], [i for i in range(count) if not mask >> i & 1]


def _factors(reader: Reader, value: Value, below: bool = False) -> Iterator[tuple[Value, Value]]:
    """Every (a, b) of a * b, the coefficient with either, shared as some call has it, or by itself as b. below: b has a
    negative power, or is a number. Nothing where the coefficient is 0 or no number.
    """
    table, parts = reader.values.table, as_product(value)
    bases, whole = list(parts.exponents.items()), parts.coefficient
    if not whole or not isfinite(whole):
        return

    def product(chosen: list[int], coefficient: float) -> Value:
        if coefficient == 1 and len(chosen) == 1 and bases[chosen[0]][1] == 1:
            return bases[chosen[0]][0]
        return table.product(Product(coefficient, dict(bases[i] for i in chosen)))

    def shares(chosen: list[int]) -> Collection[float]:
        told = (1.0, whole, *reader.coefficients.get(frozenset(bases[i] for i in chosen), ()))
        return [s for s in dict.fromkeys(told) if s and isfinite(s) and isfinite(whole / s)]

    for first, second in _splits(len(bases)):
        if below and not any(bases[i][1] < 0 for i in second):
            continue
        for share in shares(first):
            yield product(first, share), product(second, whole / share)
    for share in shares(list(range(len(bases)))) if bases else ():
        if share != whole:
            yield product(list(range(len(bases))), share), table.number(whole / share)


def _multiplied(reader: Reader, value: Value) -> Iterator[Reading]:
    for a, b in _factors(reader, value):
        yield Reading("mul", {"self": reader.part(a), "other": reader.part(b)})


def _divided(reader: Reader, value: Value) -> Iterator[Reading]:
    for a, b in _factors(reader, value, below=True):
        yield Reading("div", {"self": reader.part(a), "other": reader.part(reader.values.table.power(b, -1.0))})


def _terms(reader: Reader, value: Value) -> Iterator[tuple[Value, Value]]:
    """Every (a, b) of a + b, the constant with either, or by itself as b."""
    table, parts = reader.values.table, as_total(value, reader.values.table)
    terms = list(parts.coefficients.items())

    def total(chosen: list[int], constant: float) -> Value:
        return table.total(Total(constant, dict(terms[i] for i in chosen)))

    for first, second in _splits(len(terms)):
        yield total(first, 0.0), total(second, parts.constant)
        if parts.constant:
            yield total(first, parts.constant), total(second, 0.0)
    if parts.constant:
        yield total(list(range(len(terms))), 0.0), table.number(parts.constant)


def _added(reader: Reader, value: Value) -> Iterator[Reading]:
    for a, b in _terms(reader, value):
        yield Reading("add", {"self": reader.part(a), "other": reader.part(b)})


def _difference(reader: Reader, value: Value) -> Iterator[Reading]:
    for a, b in _terms(reader, value):
        yield Reading("sub", {"self": reader.part(a), "other": reader.part(reader.values.table.scaled(b, -1.0))})


def _negative(reader: Reader, value: Value) -> Iterator[Reading]:
    yield Reading("neg", {"self": reader.part(reader.values.table.scaled(value, -1.0))})


def _root(name: str, exponent: float) -> Read:
    def read(reader: Reader, value: Value) -> Iterator[Reading]:
        base = _base(reader, value, exponent)
        if base is not None:
            yield Reading(name, {"self": reader.part(base)})

    return read


def _base(reader: Reader, value: Value, exponent: float) -> Value | None:
    """What to the exponent is the value."""
    parts = as_product(value)
    powers = set(parts.exponents.values())
    if not powers or parts.coefficient <= 0 or any((e > 0) != (exponent > 0) for e in powers):
        return None
    if exponent != int(exponent) and (len(parts.exponents) > 1 or powers != {exponent}):
        return None  # the root of a product is no product of roots
    if exponent == int(exponent) != -1 and any(e % exponent for e in powers):
        return None
    bases = {b: e / exponent for b, e in parts.exponents.items()}
    coefficient = raised(parts.coefficient, 1 / exponent)
    if coefficient <= 0 or not isfinite(coefficient):
        return None
    return reader.values.table.product(Product(coefficient, bases))


def _power(reader: Reader, value: Value) -> Iterator[Reading]:
    for exponent in dict.fromkeys((2.0, *as_product(value).exponents.values())):
        base = _base(reader, value, exponent) if exponent != 1 else None
        if base is not None:
            whole = int(exponent) if exponent == int(exponent) else exponent
            yield Reading("pow", {"self": reader.part(base), "exponent": whole})


# ---------------------------------------------------------------------------------------------- functions, reductions


def _function(name: str) -> Read:
    def read(reader: Reader, value: Value) -> Iterator[Reading]:
        more = {"approximate": value.attrs[0]} if name == "gelu" else {}
        yield Reading(name, {"self": reader.part(value.args[0]), **more})

    return read


def _limited(reader: Reader, value: Value) -> Iterator[Reading]:
    least, most = bounds_of(value)
    yield Reading("clamp", {"self": reader.part(value.args[0]), "min": least, "max": most})


def _limited_below(reader: Reader, value: Value) -> Iterator[Reading]:
    least, most = bounds_of(value)
    if most is None:
        yield Reading("clamp_min", {"self": reader.part(value.args[0]), "min": least})


def _reduced(name: str, **more: Any) -> Read:
    """Axes kept, counted from the front and from the end."""

    def read(reader: Reader, value: Value) -> Iterator[Reading]:
        x = reader.part(value.args[0])
        if value.attrs == ("all",):
            yield Reading(name, {"self": x, **{k: v for k, v in more.items() if k == "dtype"}})
            return
        rank = len(value.args[0].shape)
        axes = [a for a in value.attrs if isinstance(a, int)]
        for dim in (axes, [a + rank for a in axes]):
            yield Reading(name, {"self": x, "dim": dim, "keepdim": True, **more})

    return read


def _along(name: str) -> Read:
    def read(reader: Reader, value: Value) -> Iterator[Reading]:
        x, axis = reader.part(value.args[0]), value.attrs[0]
        assert isinstance(axis, int)
        for dim in (axis, axis + len(value.shape)):
            yield Reading(name, {"self": x, "dim": dim, "half_to_float": False})

    return read


# ---------------------------------------------------------------------------------------------------------------- norms


def _norm(reader: Reader, value: Value, kind: str) -> Iterator[dict[str, Any]]:
    """x, weight, bias, eps and width of a norm of rows that is written out."""
    for pattern, bound in matches_of(reader.values, _spellings(kind), value):
        roles = pattern.settled(Binding(bound, reader.values, value))
        if roles is not None:
            yield {n: reader.part(_vector(v)) if isinstance(v, Value) else v for n, v in roles.items()}


@cache
def _spellings(kind: str) -> tuple[Any, ...]:
    return readings(tuple(p for p in FORMS if p.kind == kind))


def _vector(value: Value) -> Value:
    """In front of the views that spread it."""
    inner = value.args[0] if value.op in ("reshape", "expand") else value
    return inner if inner.shape == value.shape[-1:] else value


def _rms_norm(reader: Reader, value: Value) -> Iterator[Reading]:
    for r in _norm(reader, value, "rms_norm"):
        yield Reading("rms_norm", {"x": r["x"], "shape": [r["width"]], "weight": r["weight"], "eps": r["eps"]})


def _layer_norm(reader: Reader, value: Value) -> Iterator[Reading]:
    for r in _norm(reader, value, "layer_norm"):
        given = {"input": r["x"], "normalized_shape": [r["width"]], "weight": r["weight"], "bias": r["bias"]}
        yield Reading("getitem", {"self": Reading("native_layer_norm", {**given, "eps": r["eps"]}), "index": 0})


@dataclass(frozen=True, slots=True)
class _Reads:
    """of: canonical operations that can be such a call. fits: whether a product with this coefficient and these
    exponents can, at one look. of_sums: only a product of a number and a sum.
    """

    read: Read
    of: frozenset[str]
    fits: Callable[[float, tuple[float, ...]], bool] = lambda coefficient, exponents: True

    of_sums: bool = False

    def may(self, value: Value) -> bool:
        """The value may be such a call."""
        if value.op != "product":
            return value.op in self.of
        coefficient, *exponents = (a for a in value.attrs if isinstance(a, float))
        if "product" not in self.of or (self.of_sums and value.args[0].op != "total"):
            return False
        return self.fits(coefficient, tuple(exponents))


def _table() -> Mapping[str, _Reads]:
    products, sums = frozenset({"product"}), frozenset({"total", "product"})
    algebra = {
        "mul": _Reads(_multiplied, products, lambda c, es: len(es) > 1 or c != 1),
        "div": _Reads(_divided, products, lambda c, es: c != 1 or min(es) < 0),
        "add": _Reads(_added, sums, lambda c, es: es == (1.0,), True),
        "sub": _Reads(_difference, sums, lambda c, es: es == (1.0,), True),
        "neg": _Reads(_negative, products, lambda c, es: c < 0), "pow": _Reads(_power, products),
        "rms_norm": _Reads(_rms_norm, products, lambda c, es: -0.5 in es),
        "getitem": _Reads(_layer_norm, sums, lambda c, es: -0.5 in es),
        "clamp": _Reads(_limited, frozenset({"clamp"})), "clamp_min": _Reads(_limited_below, frozenset({"clamp"})),
        "sqrt": _Reads(_root("sqrt", 0.5), products, lambda c, es: es == (0.5,)),
        "rsqrt": _Reads(_root("rsqrt", -0.5), products, lambda c, es: es == (-0.5,)),
        "reciprocal": _Reads(_root("reciprocal", -1.0), products, lambda c, es: max(es) < 0),
        "square": _Reads(_root("square", 2.0), products, lambda c, es: not any(e % 2 for e in es)),
    }  # fmt: skip
    reduced = {
        "mean": _reduced("mean", dtype=None), "sum": _reduced("sum", dtype=None), "amax": _reduced("amax"),
        "amin": _reduced("amin"), "logsumexp": _reduced("logsumexp"), "var": _reduced("var", correction=0),
    }  # fmt: skip
    functions = {
        n: _function(n) for n in ("exp", "log", "erf", "tanh", "sigmoid", "silu", "relu", "gelu", "abs", "round")
    }
    along = {f"_{n}": _along(f"_{n}") for n in ("softmax", "log_softmax")}
    named = chain(reduced.items(), functions.items(), along.items())
    return algebra | {n: _Reads(r, frozenset({n.lstrip("_")})) for n, r in named}


READS: Mapping[str, _Reads] = _table()
"""The calls that a value can be read as, by the names that terms have for them."""
NAMES: Mapping[str, frozenset[str]] = {
    op: frozenset(n for n, r in READS.items() if op in r.of)
    for op in frozenset().union(*(r.of for r in READS.values()))
}
"""The same by the canonical operation."""
