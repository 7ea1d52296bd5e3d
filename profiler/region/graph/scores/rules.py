"""What canonical operations are as code of one score: each rule says one of them, or that it can not be said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import torch

from profiler.region.graph.canonical.values import Value, as_product, as_total, order_of
from profiler.region.graph.scores.places import ZERO, Name, Place, of, plus, reshaped
from profiler.region.graph.scores.text import (
    AND,
    ATOM,
    COMPARED,
    OR,
    PRODUCT,
    SUM,
    UNARY,
    Rule,
    Said,
    UnsayableError,
    Writer,
    kind_of,
    literal,
    number,
    spread,
    whole,
)

BINARY: Mapping[str, tuple[str, int]] = {
    "eq": ("==", COMPARED), "ne": ("!=", COMPARED), "lt": ("<", COMPARED), "le": ("<=", COMPARED),
    "gt": (">", COMPARED), "ge": (">=", COMPARED), "bitwise_and": ("&", AND), "logical_and": ("&", AND),
    "bitwise_or": ("|", OR), "logical_or": ("|", OR), "floor_divide": ("//", PRODUCT), "remainder": ("%", PRODUCT),
    "bitwise_xor": ("^", OR), "logical_xor": ("^", OR), "add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT),
}  # fmt: skip
CALLED = frozenset("exp log erf tanh sigmoid sin cos relu abs sign floor ceil round log1p log2 sqrt exp2".split())
LOGICAL = frozenset({"logical_and", "logical_or", "logical_xor"})


def _number(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    given = value.attrs[0]
    assert isinstance(given, float)
    return literal(given)


def _position(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    axis = value.attrs[0]
    assert isinstance(axis, int)
    return _index(places[axis])


def _index(place: Place) -> Said:
    if not place.terms:
        return literal(place.constant)
    return Said(place.code, ATOM if place.simple else SUM, "int", place.names)


def _range(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    given = dict(_attributes(value))
    start, step = given.get("start") or 0, given.get("step") or 1
    if not isinstance(start, int) or not isinstance(step, int):
        raise UnsayableError("a range of fractions")
    return _index(plus((Place(start), 1), (places[0], step)))


def _total(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    parts = as_total(value, w.values.table)
    return w.terms(parts.coefficients, parts.constant, places)


def _product(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    parts = as_product(value)
    bases = list(parts.exponents.items())
    if len(bases) == 1 and bases[0][1] == 1:
        base = bases[0][0]
        if base.op == "total":
            return _total(w, value, places)
        return w.term(base, parts.coefficient, places)
    above: list[str] = []
    below: list[str] = []
    names: frozenset[str] = frozenset()
    whole_numbers = whole(parts.coefficient) == "int"
    for base, exponent in bases:
        made = w.term(base, 1.0, places)
        names |= made.names
        whole_numbers &= made.kind == "int" and exponent > 0 and whole(exponent) == "int"
        (above if exponent > 0 else below).append(_raised(made, abs(exponent)))
    if parts.coefficient != 1 or not above:
        above.append(number(parts.coefficient))
    code = " * ".join(above) + "".join(f" / {b}" for b in below)
    return Said(code, PRODUCT, "int" if whole_numbers else "float", names)


def _raised(made: Said, exponent: float) -> str:
    if exponent == 1:
        return made.at(UNARY)
    if exponent == 0.5:
        return f"torch.sqrt({made.code})"
    return f"{made.at(ATOM)} ** {number(exponent)}"


def _power(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    exponent = value.attrs[0]
    assert isinstance(exponent, float)
    made = w.operand(value.args[0], places)
    return Said(f"{made.at(ATOM)} ** {number(exponent)}", UNARY, "float", made.names)


def _called(name: str) -> Rule:
    def rule(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
        (made,) = (w.operand(a, places) for a in value.args)
        if made.literal:
            raise UnsayableError("a function of a number")
        kind = made.kind if name in ("abs", "sign") else "float"
        return Said(f"torch.{name}({made.code})", ATOM, kind, made.names)

    return rule


def _nonnegative(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    """A comparison of whole numbers: what is added against what is taken away."""
    parts = as_total(value.args[0], w.values.table)
    at = spread(places, value.args[0].shape)
    terms = [(w.term(t, abs(c), at), c) for t, c in parts.coefficients.items()]
    if any(made.kind != "int" for made, _ in terms) or whole(parts.constant) != "int":
        raise UnsayableError("a comparison of fractions")
    left, right = [m for m, c in terms if c > 0], [m for m, c in terms if c < 0]
    if not left:
        more, less = w.sum(right, 0.0), literal(parts.constant)
        return Said(f"{more.at(OR)} <= {less.at(OR)}", COMPARED, "bool", more.names)
    strict = parts.constant == -1
    more, less = w.sum(left, 0.0), w.sum(right, 0.0 if strict else -parts.constant)
    return Said(f"{more.at(OR)} {'>' if strict else '>='} {less.at(OR)}", COMPARED, "bool", more.names | less.names)


def _all_of(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    return both([w.operand(a, places) for a in value.args])


def both(parts: Sequence[Said]) -> Said:
    """All of these are true."""
    if len(parts) == 1:
        return parts[0]
    names = frozenset[str]().union(*(p.names for p in parts))
    return Said(" & ".join(p.at(AND + 1) for p in parts), AND, "bool", names)


def _not(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    made = w.operand(value.args[0], places)
    if made.kind != "bool" or made.literal:
        raise UnsayableError("not of numbers")
    return Said(f"~{made.at(UNARY)}", UNARY, "bool", made.names)


def _hidden(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    scores, keep = (w.operand(a, places) for a in value.args)
    return hide(scores, keep, w.low)


def hide(scores: Said, keep: Said, fill: float = -inf) -> Said:
    """Scores that are as low as the fill where they are not kept."""
    names, low = scores.names | keep.names, number(fill)
    if keep.code.startswith("~") and keep.binds == UNARY:
        return Said(f"torch.where({keep.code[1:]}, {low}, {scores.code})", ATOM, "float", names)
    return Said(f"torch.where({keep.code}, {scores.code}, {low})", ATOM, "float", names)


def _added_mask(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    keep = w.operand(value.args[0], places)
    return hide(literal(0.0), keep, w.low)


def _cast(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    made, dtype = w.operand(value.args[0], places), getattr(torch, str(value.attrs[0]))
    kind = kind_of(dtype)
    if made.literal:
        raise UnsayableError("a number in another type")
    if kind == "bool":
        return Said(f"{made.at(OR)} != 0", COMPARED, "bool", made.names)
    name = "float32" if kind == "float" else "int64" if dtype.itemsize > 4 else str(value.attrs[0])
    return Said(f"{made.at(ATOM)}.to(torch.{name})", ATOM, kind, made.names)


def _reshape(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    inner = value.args[0]
    return w.said(inner, reshaped(places, value.shape, inner.shape))


def _expand(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    return w.operand(value.args[0], places)


def _permute(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    inner: list[Place] = [ZERO] * len(places)
    for i, axis in enumerate(order_of(value)):
        inner[axis] = places[i]
    return w.said(value.args[0], inner)


def _slice(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    dim, start, _, step = value.attrs
    assert isinstance(dim, int) and isinstance(start, float) and isinstance(step, int)
    inner = list(places)
    inner[dim] = plus((Place(round(start * value.args[0].shape[dim])), 1), (inner[dim], step))
    return w.said(value.args[0], inner)


# ------------------------------------------------------------------------------------------- calls that are themselves


def _attributes(value: Value) -> list[tuple[str, object]]:
    return [a for a in value.attrs if isinstance(a, tuple) and len(a) == 2 and isinstance(a[0], str)]


def _arguments(w: Writer, value: Value, places: tuple[Place, ...]) -> dict[str, Said]:
    """Tensors and numbers of an elementwise call, by name."""
    operands, told = list(value.args), dict[str, Said]()
    for name, given in _attributes(value):
        if given == "tensor":
            told[name] = w.operand(operands.pop(0), places)
        elif isinstance(given, (int, float)):
            told[name] = literal(float(given))
    return told


def _binary(name: str) -> Rule:
    sign, binds = BINARY[name]

    def rule(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
        told = _arguments(w, value, places)
        first, second = told["self"], told["other"]
        alpha = told.get("alpha")
        if (alpha is not None and alpha.code != "1") or (first.literal and second.literal):
            raise UnsayableError(name)
        kinds = {first.kind, second.kind}
        if (name in LOGICAL or binds == SUM or name == "mul") and kinds != {"bool"}:
            raise UnsayableError(f"{name} of numbers")
        kind = "bool" if binds == COMPARED or kinds == {"bool"} else "int" if kinds == {"int"} else "float"
        sign_ = {"+": "|", "*": "&"}.get(sign, sign)
        at = {"|": OR, "&": AND}.get(sign_, binds)
        code = f"{first.at(at + (at == COMPARED))} {sign_} {second.at(at + 1)}"
        return Said(code, at, kind, first.names | second.names)

    return rule


def _extreme(name: str) -> Rule:
    def rule(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
        told = list(_arguments(w, value, places).values())[:2]
        first, second = sorted(told, key=lambda t: t.literal)
        kind = "int" if first.kind == second.kind == "int" else "float"
        if second.literal:
            limit = "max" if name == "minimum" else "min"
            return Said(f"torch.clamp({first.code}, {limit}={second.code})", ATOM, kind, first.names)
        return Said(f"torch.{name}({first.code}, {second.code})", ATOM, kind, first.names | second.names)

    return rule


def _clamp(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    told = _arguments(w, value, places)
    limits = "".join(f", {n}={told[n].code}" for n in ("min", "max") if n in told)
    return Said(f"torch.clamp({told['self'].code}{limits})", ATOM, told["self"].kind, told["self"].names)


def _where(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    """With numbers that are finite: scores that are hidden are another value."""
    told = _arguments(w, value, places)
    condition = told.get("condition") or told["mask"]
    chosen = (told["self"], told["other"]) if "condition" in told else (told["value"], told["self"])
    kind = "int" if {c.kind for c in chosen} == {"int"} else "bool" if {c.kind for c in chosen} == {"bool"} else "float"
    names = condition.names.union(*(c.names for c in chosen))
    return Said(f"torch.where({condition.code}, {chosen[0].code}, {chosen[1].code})", ATOM, kind, names)


def _divided(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    told, rounding = _arguments(w, value, places), dict(_attributes(value)).get("rounding_mode")
    names = told["self"].names | told["other"].names
    if rounding == "floor":
        kind = "int" if told["self"].kind == told["other"].kind == "int" else "float"
        return Said(f"{told['self'].at(PRODUCT)} // {told['other'].at(UNARY)}", PRODUCT, kind, names)
    raise UnsayableError("a quotient that is cut")


def _looked_up(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    """table[rows, columns]: leading axes of the table by whole numbers, each computed or read."""
    table, *indices = value.args
    given = dict(_attributes(value)).get("indices")
    if not isinstance(given, tuple) or set(given) != {"tensor"}:
        raise UnsayableError("an index with gaps")
    return _at_rows(w, table, indices, places)


def _embedded(w: Writer, value: Value, places: tuple[Place, ...]) -> Said:
    table, index = value.args[:2]
    return _at_rows(w, table, [index], places)


def _at_rows(w: Writer, table: Value, indices: Sequence[Value], places: tuple[Place, ...]) -> Said:
    rest = len(table.shape) - len(indices)
    lead, behind = places[: len(places) - rest], places[len(places) - rest :]
    rows = []
    for index, size in zip(indices, table.shape, strict=False):
        made = w.operand(index, lead)
        if made.kind != "int" or made.literal:
            raise UnsayableError("an index that is no whole number")
        rows.append(of(Name(made.code, size, None, made.names)) if size > 1 else ZERO)
    return w.said(table, (*rows, *behind))


RULES: Mapping[str, Rule] = {
    "number": _number, "full": _number, "iota": _position, "arange": _range, "total": _total, "product": _product,
    "power": _power, "nonnegative": _nonnegative, "all_of": _all_of, "not": _not, "hidden": _hidden,
    "added_mask": _added_mask, "cast": _cast, "reshape": _reshape, "expand": _expand, "permute": _permute,
    "slice": _slice, "clamp": _clamp, "clamp_min": _clamp, "clamp_max": _clamp, "where": _where,
    "masked_fill": _where, "div": _divided, "index": _looked_up, "embedding": _embedded,
    "bitwise_not": _not, "logical_not": _not, "minimum": _extreme("minimum"), "maximum": _extreme("maximum"),
    **{name: _called(name) for name in CALLED}, **{name: _binary(name) for name in BINARY},
}  # fmt: skip
"""By the operation's canonical name, or the name of the call that it is."""
