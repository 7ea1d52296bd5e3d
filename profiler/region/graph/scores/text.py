"""Canonical values as code of one score: what a graph computes of scores and positions, said in (b, h, q_idx, kv_idx).

Positions are said by their indices, and what is made of them is computed again for each score. A tensor is read at its
place; one that was computed by its rows or heads alone is read as it was computed, and not computed for each score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import copysign, inf, isfinite, prod

import torch

from profiler.region import op_kinds
from profiler.region.graph.canonical.graph_values import GraphValues
from profiler.region.graph.canonical.values import Value, as_product, near
from profiler.region.graph.nodes import value as fake_of
from profiler.region.graph.scores.places import ZERO, Place

MOST_CODE = 4000
"""Characters of one function: longer ones are nobody's to read, and compile for minutes."""
MOST_OF_A_TENSOR = 100
"""Characters of what is computed for each score of a tensor that has a number for each of them."""
MOST_DEEP = 80
"""Operations inside each other, in one function."""
SCORE, ROW, COLUMN = "score", "q_idx", "kv_idx"
FLOAT32 = torch.finfo(torch.float32).max
LARGE, TOO_LARGE = 4.0, 1000.0
"""Beside such numbers a score loses digits: from the first they are added up before, the second is not added alone."""
VIEWS = frozenset({"reshape", "expand", "permute", "slice"})
COMPARED, OR, AND, SUM, PRODUCT, UNARY, ATOM = range(7)


class UnsayableError(Exception):
    """What a value is can not be said for one score alone."""


@dataclass(frozen=True, slots=True)
class Said:
    """Code with how loosely it binds. kind: "int", "float" or "bool"; names: indices, tensors and the score in it."""

    code: str
    binds: int
    kind: str
    names: frozenset[str] = frozenset()

    def at(self, binds: int) -> str:
        """In brackets, where it binds less than that."""
        return self.code if self.binds >= binds else f"({self.code})"

    @property
    def literal(self) -> bool:
        return not self.names


Rule = Callable[["Writer", Value, tuple[Place, ...]], Said]


@dataclass(slots=True)
class Writer:
    """The code of one attention's scores.

    rules: what operations are as code, by their names. product: of queries and keys; places: of its axes, as indices of
    a score.

    scale: what FlexAttention multiplies the product with before. low: what hidden scores are. captured: tensors that
    are read, by the name that the code has for them; pairs: those that are read at a row and a column at once. factors:
    numbers that the product was met with; caps: numbers that its hyperbolic tangent was.
    """

    rules: Mapping[str, Rule]
    values: GraphValues
    product: Value
    places: tuple[Place, ...]
    scale: float = 1.0
    low: float = -inf
    captured: dict[Value, str] = field(default_factory=dict)
    pairs: set[str] = field(default_factory=set)
    factors: set[float] = field(default_factory=set)
    caps: set[float] = field(default_factory=set)
    _scored: dict[Value, bool] = field(default_factory=dict)
    _given: dict[Value, bool] = field(default_factory=dict)
    _deep: int = 0

    # ---------------------------------------------------------------------------------------------------- what it is of

    def of_scores(self, value: Value) -> bool:
        """It depends on the product."""
        return _reaches(value, lambda one: one is self.product, self._scored, self.product.order)

    def of_tensors(self, value: Value) -> bool:
        """It depends on something that is given."""
        return _reaches(value, lambda one: one.op == "input", self._given)

    # ------------------------------------------------------------------------------------------------------------- code

    def said(self, value: Value, places: Sequence[Place]) -> Said:
        """The value's element at the places of its axes."""
        if self._deep == MOST_DEEP:
            raise UnsayableError("too much to compute for one score")
        self._deep += 1
        try:
            made = self._said(value, tuple(places))
        finally:
            self._deep -= 1
        if len(made.code) > MOST_CODE:
            raise UnsayableError("too much to compute for one score")
        return made

    def operand(self, value: Value, places: Sequence[Place]) -> Said:
        """An operand's element where the result's is at these places: axes of one element are spread."""
        return self.said(value, spread(places, value.shape))

    def _said(self, value: Value, places: tuple[Place, ...]) -> Said:
        if value is self.product:
            return self._score(1.0, places)
        scored = self.of_scores(value)
        if not scored and value.nodes and value.op != "input" and self._read_whole(value):
            return self._read(value, places)
        rule = self.rules.get(value.op) or self.rules.get(op_kinds.base_name(value.op))
        before = dict(self.captured)
        if rule is not None:
            try:
                made = rule(self, value, places)
                if scored or not value.nodes or not self._stored(value, made):
                    return made
            except UnsayableError:
                if scored or not value.nodes:
                    raise
        if scored or not value.nodes:
            raise UnsayableError(f"{value.op} of scores")
        self.captured = before
        return self._read(value, places)

    def _stored(self, value: Value, made: Said) -> bool:
        """Much is computed of a tensor that is as large as the result: to read the result moves no more."""
        size = prod(value.shape)
        return len(made.code) > MOST_OF_A_TENSOR and any(
            name in made.names and prod(tensor.shape) >= size > 1 for tensor, name in self.captured.items()
        )

    def _read_whole(self, value: Value) -> bool:
        """Computed numbers that do not go by row and column both: once a row is less than once a score."""
        long = [i for i in (-1, -2) if len(value.shape) >= -i and value.shape[i] > 1]
        computed = value.op not in VIEWS and fake_of(value.nodes[0]).dtype.is_floating_point
        return computed and len(long) < 2 and self.of_tensors(value)

    def _score(self, factor: float, places: tuple[Place, ...]) -> Said:
        if places != self.places:
            raise UnsayableError("a score reads another score")
        self.factors.add(factor)
        ratio = factor / self.scale
        if near(ratio, 1.0, 1e-9):
            return Said(SCORE, ATOM, "float", frozenset({SCORE}))
        return Said(f"{SCORE} {_factor(ratio)}", PRODUCT, "float", frozenset({SCORE}))

    def _read(self, value: Value, places: tuple[Place, ...]) -> Said:
        """A tensor at a place; axes of one element are not among its indices."""
        name = self.captured.setdefault(value, f"tensor{len(self.captured)}")
        at = [p for p, size in zip(places, value.shape, strict=True) if size > 1]
        if any(not p.terms for p in at):
            raise UnsayableError("a tensor at one fixed place")
        names = frozenset[str]().union(*(p.names for p in at))
        if {ROW, COLUMN} <= names:
            self.pairs.add(name)
        code = f"{name}[{', '.join(p.code for p in at)}]" if at else name
        return Said(code, ATOM, kind_of(fake_of(value.nodes[0]).dtype), names | {name})

    def term(self, value: Value, factor: float, places: Sequence[Place]) -> Said:
        """factor * value."""
        at = spread(places, value.shape)
        if value is self.product:
            return self._score(factor, at)
        made = self.said(value, at)
        if value.op == "tanh" and SCORE in made.names:
            if list(as_product(value.args[0]).exponents) == [self.product]:
                self.caps.add(factor)
            return Said(f"{number(factor)} * {made.code}", PRODUCT, "float", made.names)
        if made.kind == "bool":
            return Said(f"torch.where({made.code}, {number(factor)}, 0)", ATOM, whole(factor), made.names)
        if made.literal:
            return literal(float(made.code) * factor)
        if factor == 1:
            return made
        if factor == -1:
            return Said(f"-{made.at(UNARY)}", UNARY, made.kind, made.names)
        kind = "int" if made.kind == whole(factor) == "int" else "float"
        code = f"{made.at(PRODUCT)} {_factor(factor)}"
        return Said(code, PRODUCT, kind, made.names)

    def terms(self, coefficients: Mapping[Value, float], constant: float, places: Sequence[Place]) -> Said:
        """Their sum. What is large is added up before the score: a mask of 1 and 0 makes 0 of it where it keeps."""
        scored = any(self.of_scores(t) for t in coefficients)
        large = {t: c for t, c in coefficients.items() if abs(c) >= LARGE and not self.of_scores(t)}
        masks = scored or any(self.of_tensors(t) for t in large)
        if not masks or not large or len(large) + (abs(constant) >= LARGE) < 2:
            if scored and abs(constant) >= TOO_LARGE:
                raise UnsayableError("a constant beside which a score is nothing")
            return self.sum([self.term(t, c, places) for t, c in coefficients.items()], constant)
        size = abs(constant) or max(map(abs, large.values()))
        common = size if any(near(abs(c), size, 1e-12) for c in large.values()) else 1.0
        inner = self.sum([self.term(t, _ratio(c, common), places) for t, c in large.items()], _ratio(constant, common))
        code = inner.at(PRODUCT) if common == 1 else f"{inner.at(PRODUCT)} * {number(common)}"
        kind = "int" if inner.kind == whole(common) == "int" else "float"
        rest = [self.term(t, c, places) for t, c in coefficients.items() if t not in large]
        together = Said(code, PRODUCT, kind, inner.names)
        return self.sum([*rest, together], 0.0) if rest else together

    def sum(self, parts: Sequence[Said], constant: float) -> Said:
        """Of terms, the score in front."""
        ordered = sorted(parts, key=lambda p: (SCORE not in p.names, p.code.startswith("-")))
        names = frozenset[str]().union(*(p.names for p in ordered))
        if not ordered:
            return literal(constant)
        kind = "int" if all(p.kind == "int" for p in ordered) and whole(constant) == "int" else "float"
        code = ordered[0].code if ordered[0].binds >= SUM else f"({ordered[0].code})"
        for part in ordered[1:]:
            if (part.binds >= UNARY and part.code.startswith("-")) or (
                part.binds >= PRODUCT and part.code.startswith("-")
            ):
                code += f" - {part.code[1:]}"
            else:
                code += f" + {part.at(SUM if part.kind == 'int' else PRODUCT)}"
        if constant:
            code += f" {'-' if constant < 0 else '+'} {number(abs(constant))}"
        single = len(ordered) == 1 and not constant
        return Said(code, ordered[0].binds if single else SUM, kind, names)


def _reaches(value: Value, wanted: Callable[[Value], bool], known: dict[Value, bool], oldest: int = 0) -> bool:
    """Whether the value is made of one that is wanted. oldest: values before it are made of none."""
    waiting = [value]
    while waiting:
        one = waiting[-1]
        if one not in known:
            behind = [a for a in one.args if a not in known and a.order >= oldest]
            if wanted(one) or not behind:
                known[one] = wanted(one) or any(known.get(a, False) for a in one.args)
            else:
                waiting += behind
                continue
        waiting.pop()
    return known[value]


def spread(places: Sequence[Place], shape: Sequence[int]) -> tuple[Place, ...]:
    """The places of an operand's axes, where the result's are given."""
    taken = places[len(places) - len(shape) :] if shape else ()
    if len(taken) != len(shape):
        raise UnsayableError("an operand with more axes than its result")
    return tuple(ZERO if size == 1 else p for p, size in zip(taken, shape, strict=True))


def kind_of(dtype: torch.dtype) -> str:
    """Of a tensor's numbers."""
    return "bool" if dtype == torch.bool else "float" if dtype.is_floating_point else "int"


def number(given: float) -> str:
    """As Python: 12 digits, whole ones without a point."""
    if not isfinite(given):
        return 'float("-inf")' if given < 0 else 'float("inf")' if given == inf else 'float("nan")'
    rounded = float(f"{given:.12g}")
    if abs(given) <= FLOAT32 < abs(rounded):
        return repr(given)
    return str(int(rounded)) if rounded == int(rounded) and abs(rounded) < 1e15 else repr(rounded)


def whole(given: float) -> str:
    """The kind of a number."""
    return "int" if isfinite(given) and given == int(given) else "float"


def literal(given: float) -> Said:
    """A number as code; infinity is none: what hides a score is said by `hide`."""
    if not isfinite(given):
        raise UnsayableError("infinity")
    return Said(number(given), ATOM if given >= 0 else UNARY, whole(given))


def _ratio(part: float, common: float) -> float:
    """part / common, 1 where they are written as the same number."""
    return copysign(1.0, part) if near(abs(part), common, 1e-12) else part / common


def _factor(ratio: float) -> str:
    """`* 2`, or `/ 50` where that is the rounder one."""
    turned = float(f"{1 / ratio:.9g}")
    if ratio != int(ratio) and turned == int(turned):
        return f"/ {number(turned)}"
    return f"* {number(ratio)}"
