"""Terms that an aten graph is held against: a call with its operands, written down as data. Casts do not count.

A call is looked for as it is written, and as what its value can be read as: see `readings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from kernels.libraries.patterns.readings import (
    FLOATS,
    Part,
    Reading,
    first_of,
    has_no_root,
    may_be,
    memory_of,
    read,
    same_value,
)
from profiler.region.graph.nodes import argument, is_call, name_of, number, same, shape, value

Bound = Mapping[str, Any]
"""Role -> the node that plays it, or a constant."""

WIDER = frozenset({(torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.int32, torch.int64)})
SAME_SHAPE = ("detach", "alias", "lift_fresh_copy", "clone")
EITHER_WAY = frozenset({"add", "mul"})
DEFAULTS: Mapping[str, Any] = {"keepdim": False, "approximate": "none", "half_to_float": False}
"""Of options of calls that a value is read as: what is not listed here is None by default."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor that is given: behind casts that lose nothing. Where its role is bound already, the same one."""

    role: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, list or dtype in an argument; [n] is n. role: "" for any that nobody asks for."""

    role: str = ""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A list of whole numbers in an argument, as a tuple."""

    role: str


@dataclass(frozen=True, slots=True)
class Fixed:
    """One of these values."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of these aten operations (base names).

    operands: of the first arguments; both orders are tried for add and mul. options: other arguments by the schema's
    names: a term, or the value that they must have. Those that are not listed must have their defaults.
    role: names the call's own node.
    """

    names: tuple[str, ...]
    operands: tuple[Term, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    role: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of tensors: of cat, of an index."""

    items: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """The first of these that fits; the others are tried where what follows does not."""

    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class With:
    """A term, and constants that it stands for."""

    term: Term
    constants: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Viewed:
    """A term behind views of these names, none or several. role: names the node in front of them."""

    term: Term
    views: tuple[str, ...] = ("view", "_unsafe_view", "reshape")
    role: str = ""


Term = Leaf | Constant | Sizes | Fixed | Call | Listed | Either | With | Viewed


def call(name: str, *operands: Term, role: str = "", **options: Any) -> Call:
    """Call of `name`, or of one of the names between bars: "view|reshape"."""
    return Call(tuple(name.split("|")), operands, options, role)


def either(*terms: Term) -> Either:
    """One of these."""
    return Either(terms)


def part(term: Term, index: int) -> Call:
    """One result of a call that gives several."""
    return call("getitem", term, index=index)


def flag(role: str) -> Either:
    """Whether an argument is set."""
    return either(*(With(Fixed((is_set,)), {role: is_set}) for is_set in (True, False)))


def heads(term: Term) -> frozenset[str]:
    """Names of the calls that a term may be."""
    if isinstance(term, Call):
        return frozenset(term.names)
    if isinstance(term, Either):
        return frozenset().union(*map(heads, term.terms))
    if isinstance(term, (With, Viewed)):
        more = frozenset(term.views) if isinstance(term, Viewed) else frozenset()
        return heads(term.term) | more
    return frozenset()


def fits(term: Term, node: Any, bound: Bound, exact: bool = False) -> Iterator[Bound]:
    """Every way in which the node is the term, with what is bound then.

    exact: calls too are looked for only behind casts that lose nothing, since a rounded number sorts otherwise.
    """
    memory = memory_of(node) if isinstance(node, (Node, Part)) and not isinstance(term, (Leaf, Constant)) else None
    if memory is None:
        yield from _fits(term, node, bound, exact)
        return
    key = id(term), node, exact
    if key not in memory.ways:
        memory.ways[key] = term, _distinct(_fits(term, node, {}, exact))
    for way in memory.ways[key][1]:
        joined = _joined(bound, way)
        if joined is not None:
            yield joined


def _distinct(ways: Iterator[Bound]) -> tuple[Bound, ...]:
    """Each once, in order: a value is read as a call in many ways, which bind the same."""
    return tuple({tuple(sorted((r, id(v) if isinstance(v, Node) else repr(v)) for r, v in w.items())): w
                  for w in ways}.values())  # fmt: skip


def _joined(bound: Bound, way: Bound) -> Bound | None:
    """What was bound with what is bound; None where a role is played by two."""
    for role, new in way.items():
        old = bound.get(role, new)
        if old is new:
            continue
        if not isinstance(old, Node) or not isinstance(new, Node):
            if old != new:
                return None
        elif not same(old, new) and not same_value(old, new):
            return None
    return {**way, **bound} if bound else way


def _fits(term: Term, node: Any, bound: Bound, exact: bool) -> Iterator[Bound]:
    if isinstance(term, Leaf):
        yield from _leaf(term, node, bound)
    elif isinstance(term, Constant):
        yield from _constant(term, node, bound)
    elif isinstance(term, Sizes):
        if isinstance(node, (list, tuple)) and all(isinstance(n, int) for n in node):
            yield {**bound, term.role: tuple(node)}
    elif isinstance(term, Fixed):
        if any(_equal(node, v) for v in term.values):
            yield bound
    elif isinstance(term, Call):
        yield from _call(term, node, bound, exact)
    elif isinstance(term, Listed):
        if isinstance(node, (list, tuple)) and len(node) == len(term.items):
            yield from _all(list(zip(term.items, node, strict=True)), bound, exact)
    elif isinstance(term, Either):
        for one in term.terms:
            if not _hopeless(one, node):
                yield from fits(one, node, bound, exact)
    elif isinstance(term, With):
        for extended in fits(term.term, node, bound, exact):
            if all(extended.get(k, v) == v for k, v in term.constants.items()):
                yield {**extended, **term.constants}
    else:
        inner = first_of(behind(node, exact))
        if term.role and not isinstance(inner, Node):
            return
        bound = {**bound, term.role: inner} if term.role else bound
        while is_call(inner, *term.views):
            inner = behind(inner.args[0], exact)
        yield from fits(term.term, inner, bound, exact)


def behind(node: Any, exact: bool) -> Any:
    """The node behind casts between floating dtypes of up to 32 bits; only behind the widening ones where exact."""
    while isinstance(node, Node):
        if not is_call(node, *SAME_SHAPE, "_to_copy", "to"):
            return node
        source = node.args[0]
        if not isinstance(source, Node):
            return node
        pair = (value(source).dtype, value(node).dtype)
        harmless = pair[0] == pair[1] or pair in WIDER or (pair[0] == torch.bool and pair[1] in FLOATS)
        if not harmless and (exact or not (pair[0] in FLOATS and pair[1] in FLOATS)):
            return node
        node = source
    return node


def arguments(node: Node) -> dict[str, tuple[Any, Any]]:
    """Schema's name -> (argument, its default), in the schema's order; None as default where there is none."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {name: (a, None) for name, a in zip(("self", "index"), node.args, strict=False)}
    return {
        a.name: (argument(node, i, a.name, a.default_value), a.default_value) for i, a in enumerate(schema.arguments)
    }


def _leaf(term: Leaf, node: Any, bound: Bound) -> Iterator[Bound]:
    node = behind(first_of(behind(node, exact=True)), exact=True)
    if not isinstance(node, Node) or not isinstance(node.meta.get("val"), torch.Tensor):
        return
    if term.role not in bound:
        yield {**bound, term.role: node}
    elif same(bound[term.role], node) or same_value(bound[term.role], node):
        yield bound


def _constant(term: Constant, node: Any, bound: Bound) -> Iterator[Bound]:
    if isinstance(node, (list, tuple)) and len(node) == 1:
        node = node[0]
    if isinstance(node, (Node, Part)) or (isinstance(node, (list, tuple)) and any(isinstance(n, Node) for n in node)):
        return
    if not term.role:
        yield bound
    elif number(node) is not None and bound.get(term.role, node) == node:
        yield {**bound, term.role: node}


def _call(term: Call, node: Any, bound: Bound, exact: bool) -> Iterator[Bound]:
    node = behind(node, exact)
    if term.role:
        if not isinstance(node, Node):
            return  # nothing that plays the role
        bound = {**bound, term.role: node}
    if name_of(node) in term.names:
        yield from _arguments(term, name_of(node), arguments(node), bound, exact)
    if isinstance(node, Reading) and node.name in term.names:
        yield from _arguments(term, node.name, {n: (v, None) for n, v in node.arguments.items()}, bound, exact)
    if isinstance(node, (Node, Part)):
        for reading in read(node, term.names, exact):
            named = {n: (v, DEFAULTS.get(n)) for n, v in reading.arguments.items()}
            yield from _arguments(term, reading.name, named, bound, exact)


def _arguments(
    term: Call, name: str, named: Mapping[str, tuple[Any, Any]], bound: Bound, exact: bool
) -> Iterator[Bound]:
    """The call's arguments, with their defaults, against the term's."""
    given = [v for v, _ in list(named.values())[: len(term.operands)]]
    if len(given) < len(term.operands):
        return
    more: list[tuple[Term, Any]] = []
    for option, (node_argument, default) in list(named.items())[len(term.operands) :]:
        wanted = term.options.get(option, default)
        if isinstance(wanted, Term):
            more.append((wanted, node_argument))
        elif isinstance(node_argument, Node) or not _equal(node_argument, wanted):
            return
    if set(term.options) - set(named):
        return
    orders = [given]
    if len(given) == 2 and name in EITHER_WAY:
        orders.append(given[::-1])
    for order in orders:
        if not any(_hopeless(t, n) for t, n in zip(term.operands, order, strict=True)):
            yield from _all([*zip(term.operands, order, strict=True), *more], bound, exact)


def _hopeless(term: Term, node: Any) -> bool:
    """At one look it does not fit: a tensor that is given is some call's or an input, a number is none."""
    if isinstance(term, Leaf):
        return not isinstance(node, Node)
    if isinstance(term, (Constant, Fixed)):
        return isinstance(node, (Node, Part))
    if isinstance(node, (Node, Part)) and _has_root(term) and has_no_root(node):
        return True
    if isinstance(term, Either):
        return all(_hopeless(one, node) for one in term.terms)
    if isinstance(term, With):
        return _hopeless(term.term, node)
    if isinstance(term, Call) and isinstance(node, (Node, Part)):
        name = name_of(node)
        there = name in term.names or name in SAME_SHAPE or name in ("_to_copy", "to")
        return not there and not may_be(node, term.names)
    return isinstance(term, Call) and not isinstance(node, Reading)


_ROOTS: dict[int, tuple[object, bool]] = {}
"""By a term's identity: the term itself, so that no other gets its identity, and what `_has_root` says of it."""


def _has_root(term: Term) -> bool:
    """It is a product with a root in it."""
    known = _ROOTS.get(id(term))
    if known is None:
        known = _ROOTS[id(term)] = term, _find_root(term)
    return known[1]


def _find_root(term: Term) -> bool:
    if isinstance(term, Either):
        return all(map(_has_root, term.terms))
    if isinstance(term, With):
        return _has_root(term.term)
    if not isinstance(term, Call):
        return False
    if {"sqrt", "rsqrt"} >= set(term.names) or (term.names == ("pow",) and term.options.get("exponent") == -0.5):
        return True
    return {"mul", "div", "reciprocal"} >= set(term.names) and any(map(_has_root, term.operands))


def _equal(value: Any, wanted: Any) -> bool:
    if isinstance(value, (list, tuple)) and isinstance(wanted, (list, tuple)):
        return list(value) == list(wanted)
    return type(value) is type(wanted) and bool(value == wanted)


def _all(pairs: list[tuple[Term, Any]], bound: Bound, exact: bool) -> Iterator[Bound]:
    if not pairs:
        yield bound
        return
    (term, node), rest = pairs[0], pairs[1:]
    for extended in fits(term, node, bound, exact):
        yield from _all(rest, extended, exact)


def promoted(a: torch.dtype, b: torch.dtype) -> torch.dtype | None:
    """torch.promote_types, and for 8-bit floats, which it refuses: the longer float; None where there is none."""
    short = [dtype for dtype in (a, b) if dtype.is_floating_point and dtype.itemsize == 1]
    if a == b or not short:
        return torch.promote_types(a, b)
    other = b if short[0] == a else a
    return other if len(short) == 1 and other.is_floating_point else None


def last(axis: Any, node: Node) -> bool:
    """The axis is the node's last one; a scalar has none."""
    return 0 <= positive(axis, node) == len(shape(node)) - 1


def positive(axis: Any, node: Node) -> int:
    """The axis counted from the front; -1 for several of them and for one that is not there."""
    rank = len(shape(node))
    return axis % rank if isinstance(axis, int) and -rank <= axis < rank else -1
