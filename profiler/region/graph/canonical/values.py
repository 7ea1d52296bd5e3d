"""Values of a graph, each once: two spellings of one computation are the same object. Construction keeps the value.

Casts between floating types are no operation here. A sum is a constant and terms with coefficients, a product a
coefficient and bases with exponents, so that order, grouping, signs, divisions and roots do not count.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isclose, isfinite
from typing import Protocol

import torch
from torch.fx import Node

Shape = tuple[int, ...]
DIGITS = 12
"""Numbers that agree in so many are the same constant: the last digits depend on the order of operations."""
SCORES = frozenset({"matmul", "softmax", "hidden", "dropout"})
MOST_PARTS = 8
"""A sum or product of more is one part of what it stands in: expanding long chains would take quadratic time."""


@dataclass(eq=False, slots=True)
class Value:
    """One value. nodes: the graph's calls and inputs that give it, up to their rounding; reshaped: those that give it
    in another shape, elements in the same order. scores: it is what a batch of products gives, or made of its numbers
    one by one.
    """

    op: str
    args: tuple[Value, ...]
    attrs: tuple[Hashable, ...]
    shape: Shape
    order: int
    scores: bool = False
    nodes: tuple[Node, ...] = ()
    reshaped: tuple[Node, ...] = ()


def near(a: float, b: float, tolerance: float = 1e-6) -> bool:
    """Equal as constants that people write down are."""
    return isclose(a, b, rel_tol=tolerance)


@dataclass(frozen=True, slots=True)
class Product:
    """coefficient * base ** exponent * ..."""

    coefficient: float
    exponents: Mapping[Value, float]


@dataclass(frozen=True, slots=True)
class Total:
    """constant + coefficient * term + ..."""

    constant: float
    coefficients: Mapping[Value, float]


def as_product(value: Value) -> Product:
    """Any value as a product."""
    if value.op == "product":
        coefficient, *exponents = value.attrs
        return Product(_float(coefficient), dict(zip(value.args, map(_float, exponents), strict=True)))
    if value.op == "number":
        return Product(_float(value.attrs[0]), {})
    return Product(1.0, {value: 1.0})


def as_total(value: Value, table: Table) -> Total:
    """Any value as a sum."""
    if value.op == "total":
        constant, *coefficients = value.attrs
        return Total(_float(constant), dict(zip(value.args, map(_float, coefficients), strict=True)))
    if value.op == "number":
        return Total(_float(value.attrs[0]), {})
    parts = as_product(value)
    if list(parts.exponents.values()) == [1.0] and parts.coefficient != 1:
        inner = as_total(next(iter(parts.exponents)), table)
        c = parts.coefficient
        return Total(c * inner.constant, {t: c * k for t, k in inner.coefficients.items()})
    return Total(0.0, {table.product(Product(1.0, parts.exponents)): parts.coefficient})


def _float(number: object) -> float:
    assert isinstance(number, (int, float))
    return float(number)


def raised(base: float, exponent: float) -> float:
    """base ** exponent; infinity where that is no number."""
    try:
        result = base**exponent
    except (OverflowError, ZeroDivisionError):
        return inf
    return result if isinstance(result, float) else inf


def broadcast(shapes: Iterable[Shape]) -> Shape | None:
    """The common shape; None where there is none."""
    result: list[int] = []
    for shape in shapes:
        padded = [1] * (len(shape) - len(result)) + result
        for i, size in enumerate(shape, len(padded) - len(shape)):
            if padded[i] == 1:
                padded[i] = size
            elif size not in (1, padded[i]):
                return None
        result = padded
    return tuple(result)


class Identities(Protocol):
    """What compositions are by name: see `identities`, which is one. Each gives None where nothing is."""

    def of_product(self, table: Table, product: Product, /) -> Value | None: ...

    def of_power(self, table: Table, value: Value, exponent: float, /) -> Value | None: ...

    def of_total(self, table: Table, total: Total, /) -> Value | None: ...

    def of_reduction(
        self, table: Table, op: str, value: Value, axes: tuple[Hashable, ...], shape: Shape, /
    ) -> Value | None: ...


class Table:
    """The values of one graph. What makes a value gives the one that is there, where there is one."""

    def __init__(self, identities: Identities) -> None:
        self._identities = identities
        self._values: dict[tuple[Hashable, ...], Value] = {}
        self._constants: dict[str, float] = {}
        self.operations: set[str] = set()
        self.truths: set[Value] = set()
        """Those that some node has as true or false: as numbers they are 1 and 0."""

    def make(self, op: str, args: Sequence[Value] = (), attrs: Sequence[Hashable] = (), shape: Shape = ()) -> Value:
        """A value by its operation, with no algebra."""
        key = (op, tuple(args), tuple(attrs), shape)
        value = self._values.get(key)
        if value is None:
            of_scores = any(a.scores for a in args) if op in ("total", "product") else op in SCORES and len(shape) > 2
            value = self._values[key] = Value(op, tuple(args), tuple(attrs), shape, len(self._values), of_scores)
            self.operations.add(op)
        return value

    def __iter__(self) -> Iterable[Value]:
        return iter(list(self._values.values()))

    def constant(self, number: float) -> float:
        """The number as it was first met in this graph, up to its last digits."""
        return self._constants.setdefault(f"{number + 0.0:.{DIGITS}g}", number + 0.0)

    def is_truth(self, value: Value) -> bool:
        """1 or 0 everywhere."""
        return value.op in ("nonnegative", "positive", "all_of", "not") or value in self.truths

    def number(self, number: float) -> Value:
        """A constant as a value."""
        return self.make("number", (), (self.constant(number),))

    # --------------------------------------------------------------------------------------------------------- algebra

    def product(self, product: Product) -> Value:
        """The product in normal form: zeros away, and the operations that are known by name."""
        c = self.constant(product.coefficient)
        bases = {b: self.constant(e) for b, e in product.exponents.items() if e}
        if not bases or not isfinite(c):
            return self.number(c) if not bases else self.make("scaled", tuple(bases), (str(c),), ())
        named = self._identities.of_product(self, Product(c, bases))
        if named is not None:
            return named
        if c == 1 and list(bases.values()) == [1.0]:
            return next(iter(bases))
        ordered = sorted(bases, key=lambda b: b.order)
        shape = broadcast(b.shape for b in ordered)
        return self.make("product", ordered, (c, *(bases[b] for b in ordered)), shape or ())

    def times(self, *values: Value) -> Value:
        """Of values."""
        coefficient, bases = 1.0, dict[Value, float]()
        for value in values:
            parts = as_product(value)
            if len(parts.exponents) > MOST_PARTS:
                parts = Product(1.0, {value: 1.0})
            coefficient *= parts.coefficient
            for base, exponent in parts.exponents.items():
                bases[base] = bases.get(base, 0.0) + exponent
        return self.product(Product(coefficient, bases))

    def scaled(self, value: Value, factor: float) -> Value:
        parts = as_product(value)
        return self.product(Product(parts.coefficient * factor, parts.exponents))

    def power(self, value: Value, exponent: float) -> Value:
        """value ** exponent; exponents are multiplied where that holds for every real base."""
        if exponent == 1:
            return value
        named = self._identities.of_power(self, value, exponent)
        if named is not None:
            return named
        parts = as_product(value)
        c = parts.coefficient
        if not isfinite(c) or not isfinite(exponent) or not 0 < abs(raised(abs(c), exponent)) < inf:
            return self.make("power", (value,), (exponent,), value.shape)
        if exponent == int(exponent):
            return self.product(Product(raised(c, exponent), {b: e * exponent for b, e in parts.exponents.items()}))
        if c < 0:
            return self.product(Product(1.0, {value: exponent}))
        inner = list(parts.exponents.items())
        if len(inner) == 1 and (inner[0][1] == 1 or abs(inner[0][1]) == 0.5):
            return self.product(Product(raised(c, exponent), {inner[0][0]: inner[0][1] * exponent}))
        return self.product(Product(raised(c, exponent), {self.product(Product(1.0, parts.exponents)): exponent}))

    def total(self, total: Total) -> Value:
        """The sum in normal form: its largest coefficient is 1, its first term is added, and what is left is a factor
        in front of it.
        """
        terms = {t: self.constant(c) for t, c in total.coefficients.items() if c}
        constant = self.constant(total.constant)
        if not terms or not all(map(isfinite, (constant, *terms.values()))):
            return self.number(constant) if not terms else self.make("sum_of", tuple(terms), (str(constant),), ())
        named = self._identities.of_total(self, Total(constant, terms))
        if named is not None:
            return named
        if not constant and len(terms) == 1:
            ((term, coefficient),) = terms.items()
            return self.scaled(term, coefficient)
        ordered = sorted(terms, key=lambda t: t.order)
        largest = max(abs(c) for c in (constant, *terms.values()))
        largest = -largest if terms[ordered[0]] < 0 else largest
        attrs = (self.constant(constant / largest), *(self.constant(terms[t] / largest) for t in ordered))
        shape = broadcast(t.shape for t in ordered)
        made = self.make("total", ordered, attrs, shape or ())
        return made if largest == 1 else self.product(Product(largest, {made: 1.0}))

    def plus(self, *terms: tuple[Value, float]) -> Value:
        """The sum of values with coefficients."""
        constant, coefficients = 0.0, dict[Value, float]()
        for value, factor in terms:
            parts = as_total(value, self)
            if len(parts.coefficients) > MOST_PARTS:
                parts = Total(0.0, {value: 1.0})
            constant += factor * parts.constant
            for term, c in parts.coefficients.items():
                coefficients[term] = coefficients.get(term, 0.0) + factor * c
        return self.total(Total(constant, coefficients))

    # ----------------------------------------------------------------------------------------------- views, reductions

    def reshape(self, value: Value, shape: Shape) -> Value:
        value = value.args[0] if value.op == "reshape" else value
        return value if value.shape == shape or value.op == "number" else self.make("reshape", (value,), (), shape)

    def expand(self, value: Value, shape: Shape) -> Value:
        value = value.args[0] if value.op == "expand" else value
        return value if value.shape == shape else self.make("expand", (value,), (), shape)

    def permute(self, value: Value, dims: Sequence[int]) -> Value:
        """dims: counted from the front. Kept without the leading axes that stay: the same for any number of them. Axes
        of one element go where they go by a view.
        """
        rank = len(dims)
        order = [d % rank for d in dims]
        shape = tuple(value.shape[d] for d in order)
        if 1 in shape:
            long = [i for i, s in enumerate(value.shape) if s != 1]
            inner = self.reshape(value, tuple(value.shape[i] for i in long))
            moved = self.permute(inner, [long.index(d) for d in order if d in long]) if long else inner
            return self.reshape(moved, shape)
        if value.op == "permute":
            before = order_of(value)
            order, value = [before[d] for d in order], value.args[0]
        if order == list(range(rank)):
            return value
        kept = next(i for i, d in enumerate(order) if i != d)
        return self.make("permute", (value,), tuple(d - rank for d in order[kept:]), shape)

    def turned(self, value: Value) -> Value:
        """Rows as columns."""
        rank = len(value.shape)
        return self.permute(value, [*range(rank - 2), rank - 1, rank - 2])

    def reduced(self, op: str, value: Value, dims: Sequence[int], keepdim: bool) -> Value:
        """sum, mean, amax, ... over these axes; over all of them where there is none."""
        rank = len(value.shape)
        axes = sorted({d % rank - rank for d in dims}) if dims and rank else list(range(-rank, 0))
        full = len(axes) == rank
        kept = tuple(1 if i - rank in axes else s for i, s in enumerate(value.shape))
        source = value
        if full and op in ("sum", "mean"):
            while source.op == "reshape":
                source = source.args[0]
        if op in ("sum", "mean") and as_product(source).coefficient == -1:
            inner = self.scaled(source, -1.0)
            return self.scaled(self.reduced(op, inner, axes if not full else (), keepdim), -1.0)
        whole = full and (rank > 1 or not keepdim)  # of one axis that is kept: the rows of a tensor that has one
        attrs: tuple[Hashable, ...] = ("all",) if whole else tuple(axes)
        made = self.reduction(op, source, attrs, () if attrs == ("all",) else kept)
        shape = kept if keepdim else tuple(s for i, s in enumerate(value.shape) if i - rank not in axes)
        return self.reshape(made, shape)

    def reduction(self, op: str, value: Value, attrs: tuple[Hashable, ...], shape: Shape) -> Value:
        named = self._identities.of_reduction(self, op, value, attrs, shape)
        return named if named is not None else self.make(op, (value,), attrs, shape)

    def slice(self, value: Value, dim: int, start: int, end: int, step: int = 1) -> Value:
        """A part of an axis, by its place in parts of the axis: a half is a half at any size."""
        size = value.shape[dim]
        start, end = (max(0, min(size, p + size if p < 0 else p)) for p in (start, end))
        if not size or (start == 0 and end == size and step == 1):
            return value
        if value.op == "cat" and value.attrs[0] == dim and step == 1:
            part = self._part_of_cat(value, dim, start, end)
            if part is not None:
                return part
        count = max(0, -(-(end - start) // step))
        rank = len(value.shape)
        shape = tuple(count if i - rank == dim else s for i, s in enumerate(value.shape))
        return self.make("slice", (value,), (dim, self.constant(start / size), self.constant(end / size), step), shape)

    def _part_of_cat(self, value: Value, dim: int, start: int, end: int) -> Value | None:
        """The one part of a concatenation that a slice lies in."""
        at = 0
        for part in value.args:
            size = part.shape[dim]
            if at <= start and end <= at + size:
                return self.slice(part, dim, start - at, end - at)
            at += size
        return None

    def cat(self, parts: Sequence[Value], dim: int) -> Value:
        """dim: counted from the end. Parts that follow each other in one tensor are put together again; the first has
        no minus sign.
        """
        flat: list[Value] = []
        for part in parts:
            flat += part.args if part.op == "cat" and part.attrs[0] == dim else (part,)
        joined: list[Value] = []
        for part in flat:
            whole = self._adjacent(joined[-1], part, dim) if joined else None
            joined = [*joined[:-1], whole] if whole is not None else [*joined, part]
        if len(joined) == 1:
            return joined[0]
        if as_product(joined[0]).coefficient < 0:
            return self.scaled(self.cat([self.scaled(p, -1.0) for p in joined], dim), -1.0)
        rank = len(joined[0].shape)
        full = sum(p.shape[dim] for p in joined)
        shape = tuple(full if i - rank == dim else s for i, s in enumerate(joined[0].shape))
        return self.make("cat", joined, (dim,), shape)

    def _adjacent(self, first: Value, second: Value, dim: int) -> Value | None:
        """Two slices as the one that they are together."""
        if not (first.op == second.op == "slice" and first.args == second.args):
            return None
        (d0, start, middle, s0), (d1, again, end, s1) = first.attrs, second.attrs
        if not (d0 == d1 == dim and s0 == s1 == 1 and middle == again):
            return None
        size = first.args[0].shape[dim]
        return self.slice(first.args[0], dim, round(_float(start) * size), round(_float(end) * size))


def order_of(permuted: Value) -> list[int]:
    """Which axis each of a permutation's is, all counted from the front."""
    rank = len(permuted.shape)
    moved = [_int(d) + rank for d in permuted.attrs]
    return [*range(rank - len(moved)), *moved]


def _int(number: object) -> int:
    assert isinstance(number, int)
    return number


FLOATS = frozenset({torch.float32, torch.float16, torch.bfloat16})
