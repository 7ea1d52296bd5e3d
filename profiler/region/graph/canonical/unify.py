"""A pattern's value held against a graph's: every way in which they are the same, with what plays each role then."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite

from profiler.region.graph.canonical.values import (
    Product,
    Table,
    Total,
    Value,
    as_product,
    as_total,
    near,
    raised,
)

Bound = Mapping[str, "Value | float"]
"""Role -> the value that plays it, or a constant."""
CONSTANT_TOLERANCE = 1e-4
"""Of constants that a pattern names: 0.7978845608 is written with four digits as well."""
UNIQUE = frozenset({"dropout"})
"""Operations whose last attribute tells two calls apart."""


@dataclass(frozen=True, slots=True)
class Unifier:
    """table: of the graph. numbers: the numbers that stand for roles in the pattern -> the roles. any_axis: reductions
    may run over another axis than the pattern's; the role `dim` is which.
    """

    table: Table
    numbers: Mapping[float, str]
    any_axis: bool = False

    def ways(self, pattern: Value, value: Value, bound: Bound) -> Iterator[Bound]:
        """What is bound in each way in which the value is the pattern."""
        if pattern.op == "input":
            yield from self._leaf(str(pattern.attrs[0]), value, bound)
        elif pattern.op == "number":
            yield from self._number(pattern.attrs[0], value.attrs[0] if value.op == "number" else None, bound)
        elif pattern.op == "product":
            yield from self._product(pattern, value, bound)
        elif pattern.op == "total":
            yield from self._total(pattern, value, bound)
        elif pattern.op == "permute":
            yield from self._permuted(pattern, value, bound)
        elif pattern.op == "slice" and (whole := self._whole_of(pattern, bound)) is not None:
            if self._same_part(pattern, whole) is value:
                yield bound
        elif pattern.op == value.op and len(pattern.args) == len(value.args):
            for extended in self._attributes(pattern, value, bound):
                yield from self._all(pattern.args, value.args, extended)

    def _leaf(self, role: str, value: Value, bound: Bound) -> Iterator[Bound]:
        if role not in bound:
            yield {**bound, role: value}
        elif bound[role] is value:
            yield bound

    def _number(self, wanted: Hashable, number: Hashable, bound: Bound) -> Iterator[Bound]:
        """One constant: the pattern's own, or of a role."""
        if not isinstance(wanted, (int, float)) or isinstance(wanted, bool) or not isinstance(number, (int, float)):
            if wanted == number:
                yield bound
            return
        role = self.numbers.get(abs(wanted))
        if role is None:
            if near(float(wanted), float(number), CONSTANT_TOLERANCE) or wanted == number:
                yield bound
            return
        number = float(number) if wanted > 0 else -float(number)
        earlier = bound.get(role)
        if earlier is None or (isinstance(earlier, float) and near(earlier, number)):
            yield {**bound, role: number}

    def _all(self, patterns: tuple[Value, ...], values: tuple[Value, ...], bound: Bound) -> Iterator[Bound]:
        """All of them, those that say most first."""
        if not patterns:
            yield bound
            return
        at = max(range(len(patterns)), key=lambda i: size(patterns[i]))
        rest = (patterns[:at] + patterns[at + 1 :], values[:at] + values[at + 1 :])
        for extended in self.ways(patterns[at], values[at], bound):
            yield from self._all(*rest, extended)

    def _attributes(self, pattern: Value, value: Value, bound: Bound) -> Iterator[Bound]:
        wanted, given = pattern.attrs, value.attrs
        if pattern.op in UNIQUE:
            wanted, given = wanted[:-1], given[:-1]
        elif pattern.op == "matmul" and not wanted:
            each = float(given[0]) if given and isinstance(given[0], int) else 1.0
            if bound.get("each", each) == each:
                yield {**bound, "each": each}
            return
        elif pattern.op in ("pick", "mean_of_kept"):
            if len(wanted) == len(given):  # one that ignores no class is no other's
                ignored = float(given[0]) if given and isinstance(given[0], int) else -100.0
                if bound.get("ignore_index", ignored) == ignored:
                    yield {**bound, "ignore_index": ignored}
            return
        elif self.any_axis and len(wanted) == len(given) == 1 and isinstance(given[0], int):
            axis = float(given[0])
            if bound.get("dim", axis) == axis:
                yield {**bound, "dim": axis}
            return
        if len(wanted) == len(given):
            yield from self._numbers(tuple(zip(wanted, given, strict=True)), bound)

    def _numbers(self, pairs: tuple[tuple[Hashable, Hashable], ...], bound: Bound) -> Iterator[Bound]:
        if not pairs:
            yield bound
            return
        for extended in self._number(*pairs[0], bound):
            yield from self._numbers(pairs[1:], extended)

    # ----------------------------------------------------------------------------------------------------------- views

    def _permuted(self, pattern: Value, value: Value, bound: Bound) -> Iterator[Bound]:
        """What the pattern turns is the value turned back."""
        rank, moved = len(value.shape), len(pattern.attrs)
        if rank < moved:
            return
        order = [*range(rank - moved), *(int(str(d)) + rank for d in pattern.attrs)]
        back = sorted(range(rank), key=lambda i: order[i])
        yield from self.ways(pattern.args[0], self.table.permute(value, back), bound)

    def _whole_of(self, pattern: Value, bound: Bound) -> Value | None:
        inner = pattern.args[0]
        known = bound.get(str(inner.attrs[0])) if inner.op == "input" else None
        return known if isinstance(known, Value) else None

    def _same_part(self, pattern: Value, whole: Value) -> Value | None:
        dim, start, end, step = pattern.attrs
        assert isinstance(dim, int) and isinstance(start, float) and isinstance(end, float) and isinstance(step, int)
        if len(whole.shape) < -dim:
            return None
        length = whole.shape[dim]
        return self.table.slice(whole, dim, round(start * length), round(end * length), step)

    # ----------------------------------------------------------------------------------------------- sums and products

    def _product(self, pattern: Value, value: Value, bound: Bound) -> Iterator[Bound]:
        wanted, given = as_product(pattern), as_product(value)
        composite = [(b, e) for b, e in wanted.exponents.items() if b.op != "input"]
        composite.sort(key=lambda p: -size(p[0]))
        leaves = [(str(b.attrs[0]), e) for b, e in wanted.exponents.items() if b.op == "input"]

        def more(left: list[tuple[Value, float]], rest: Product, now: Bound) -> Iterator[Bound]:
            if not left:
                yield from self._product_leaves(leaves, wanted.coefficient, rest, now)
                return
            (base, exponent), others = left[0], left[1:]
            for factor, power in rest.exponents.items():
                if power == exponent:
                    remaining = Product(rest.coefficient, {b: e for b, e in rest.exponents.items() if b is not factor})
                    for extended in self.ways(base, factor, now):
                        yield from more(others, remaining, extended)

        yield from more(composite, given, bound)

    def _product_leaves(
        self, leaves: list[tuple[str, float]], coefficient: float, rest: Product, bound: Bound
    ) -> Iterator[Bound]:
        """The leaves of a product against what is left of the value: known ones taken out, a new one is the rest."""
        exponents, factor = dict(rest.exponents), rest.coefficient
        new = [(r, e) for r, e in leaves if r not in bound]
        for role, exponent in leaves:
            known = bound.get(role)
            if not isinstance(known, Value):
                continue
            parts = as_product(known)
            for base, power in parts.exponents.items():
                left = exponents.get(base, 0.0) - power * exponent
                if abs(left) > abs(exponents.get(base, 0.0)):
                    return
                exponents[base] = left
            if not parts.coefficient or (parts.coefficient < 0 and exponent != int(exponent)):
                return
            scale = raised(parts.coefficient, exponent)
            if not scale or not isfinite(scale):
                return
            factor /= scale
        exponents = {b: e for b, e in exponents.items() if e}
        role_of_factor = self.numbers.get(abs(coefficient))
        if not new:
            if not exponents:
                yield from self._number(coefficient, factor, bound)
            return
        if len(new) > 1:
            yield from self._single_factors(new, coefficient, Product(factor, exponents), bound)
            return
        ((role, exponent),) = new
        if not exponents:
            return
        own = 1.0
        if role_of_factor is None:
            ratio = factor / coefficient
            if ratio <= 0 and exponent != 1:
                return
            own = ratio if exponent == 1 else raised(ratio, 1 / exponent)
        made = self.table.product(Product(own, {b: e / exponent for b, e in exponents.items()}))
        if role_of_factor is None:
            yield {**bound, role: made}
        else:
            yield from self._number(coefficient, factor, {**bound, role: made})

    def _single_factors(
        self, new: list[tuple[str, float]], coefficient: float, rest: Product, bound: Bound
    ) -> Iterator[Bound]:
        """Several new leaves: one factor each."""
        if len(new) != len(rest.exponents):
            return
        (role, exponent), others = new[0], new[1:]
        for base, power in rest.exponents.items():
            if power == exponent:
                remaining = Product(rest.coefficient, {b: e for b, e in rest.exponents.items() if b is not base})
                yield from self._product_leaves(others, coefficient, remaining, {**bound, role: base})

    def _total(self, pattern: Value, value: Value, bound: Bound) -> Iterator[Bound]:
        wanted, given = as_total(pattern, self.table), as_total(value, self.table)
        composite = [(t, c) for t, c in wanted.coefficients.items() if t.op != "input"]
        composite.sort(key=lambda p: -size(p[0]))
        leaves = [(str(t.attrs[0]), c) for t, c in wanted.coefficients.items() if t.op == "input"]
        if len(composite) > len(given.coefficients):
            return

        def more(left: list[tuple[Value, float]], rest: Total, now: Bound) -> Iterator[Bound]:
            if not left:
                yield from self._total_leaves(leaves, wanted.constant, rest, now)
                return
            (term, factor), others = left[0], left[1:]
            for one, c in rest.coefficients.items():
                if one.op != term.op and term.op not in ("product", "permute"):
                    continue
                remaining = Total(rest.constant, {t: k for t, k in rest.coefficients.items() if t is not one})
                for numbered in self._number(factor, c, now):
                    for extended in self.ways(term, one, numbered):
                        yield from more(others, remaining, extended)

        yield from more(composite, given, bound)

    def _total_leaves(
        self, leaves: list[tuple[str, float]], constant: float, rest: Total, bound: Bound
    ) -> Iterator[Bound]:
        terms, left_over = dict(rest.coefficients), rest.constant
        new = [(r, c) for r, c in leaves if r not in bound]
        for role, factor in leaves:
            known = bound.get(role)
            if not isinstance(known, Value):
                continue
            parts = as_total(known, self.table)
            for term, c in parts.coefficients.items():
                if not near(terms.get(term, 0.0), c * factor):
                    return
                del terms[term]
            left_over -= parts.constant * factor
        role_of_constant = self.numbers.get(abs(constant))
        if not new:
            if not terms:
                yield from self._number(constant, left_over, bound)
            return
        if len(new) > 1 or not terms:
            return
        ((role, factor),) = new
        own = 0.0 if role_of_constant is not None else (left_over - constant) / factor
        made = self.table.total(Total(own, {t: c / factor for t, c in terms.items()}))
        if role_of_constant is None:
            yield {**bound, role: made}
        else:
            yield from self._number(constant, left_over, {**bound, role: made})


def size(pattern: Value) -> int:
    """How much a pattern says: its operations."""
    return 0 if pattern.op == "input" else 1 + sum(map(size, pattern.args))
