"""Addresses in a generated kernel as sums over its iteration axes: how many there are, how far apart neighbours lie.

Inductor writes an address as a sum of multiples of the axes' indices, of quotients and of remainders of them:
`x0 + 4097*x1` with `x0 = xindex % 4096` and `x1 = xindex // 4096`. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Sizes = Mapping[str, int]
"""Axis -> its size."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The index along an iteration axis, "x"."""

    name: str


@dataclass(frozen=True, slots=True)
class Digit:
    """of // divisor % modulus; modulus None: without the remainder."""

    of: Linear
    divisor: int
    modulus: int | None


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value of which no more is known: it comes from memory, from outside, or from a computation that is no sum.

    number: tells two of them apart. moving: axes along which a step of one changes it. values: how many different ones
    there can be, None where unknown.
    """

    number: int
    moving: frozenset[str]
    values: int | None


Atom = Axis | Digit | Opaque


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum: const, and a multiple of each atom. Multiples are not 0."""

    terms: frozenset[tuple[Atom, int]] = frozenset()
    const: int = 0

    @property
    def only_atom(self) -> Atom | None:
        """The atom where the sum is that and nothing else."""
        if self.const or len(self.terms) != 1:
            return None
        ((atom, multiple),) = self.terms
        return atom if multiple == 1 else None


@dataclass(frozen=True, slots=True)
class Bounds:
    """low <= of < high holds where an access is not masked."""

    of: Linear
    low: int | None
    high: int | None


def constant(value: int) -> Linear:
    """A number."""
    return Linear(const=value)


def single(atom: Atom) -> Linear:
    """One atom."""
    return Linear(frozenset({(atom, 1)}))


def add(a: Linear, b: Linear, sign: int = 1) -> Linear:
    """a + sign * b."""
    terms = dict(a.terms)
    for atom, multiple in b.terms:
        terms[atom] = terms.get(atom, 0) + sign * multiple
    return Linear(frozenset((t, m) for t, m in terms.items() if m), a.const + sign * b.const)


def multiply(a: Linear, b: Linear) -> Linear | None:
    """a * b where one of them is a number, else None."""
    if a.terms and b.terms:
        return None
    if a.terms:
        a, b = b, a
    if not a.const:
        return constant(0)
    return Linear(frozenset((t, m * a.const) for t, m in b.terms), b.const * a.const)


def divide(a: Linear, by: int, sizes: Sizes) -> Linear | None:
    """a // by. None where it cannot be said."""
    if by <= 0:
        return None
    whole = frozenset((t, m // by) for t, m in a.terms if m % by == 0)
    rest = Linear(frozenset((t, m) for t, m in a.terms if m % by), a.const % by)
    taken = Linear(whole, a.const // by)
    if not rest.terms:
        return taken
    size = extent(rest, sizes)
    if size is not None and size <= by and _never_negative(rest):
        return taken
    return add(taken, single(_digit(rest, by, None)))


def remainder(a: Linear, by: int, sizes: Sizes) -> Linear | None:
    """a % by. None where it cannot be said."""
    if by <= 0:
        return None
    rest = Linear(frozenset((t, m) for t, m in a.terms if m % by), a.const % by)
    if not rest.terms:
        return constant(rest.const)
    size = extent(rest, sizes)
    if size is not None and size <= by and _never_negative(rest):
        return rest
    return single(_digit(rest, 1, by))


def _digit(of: Linear, divisor: int, modulus: int | None) -> Digit:
    """The digit, of the innermost sum that it is a digit of."""
    inner = of.only_atom
    if isinstance(inner, Digit):
        if inner.modulus is None:
            return Digit(inner.of, inner.divisor * divisor, modulus)
        if modulus is None and inner.modulus % divisor == 0:
            return Digit(inner.of, inner.divisor * divisor, inner.modulus // divisor)
        if modulus is not None and divisor == 1 and inner.modulus % modulus == 0:
            return Digit(inner.of, inner.divisor, modulus)
    return Digit(of, divisor, modulus)


def _never_negative(a: Linear) -> bool:
    return a.const >= 0 and all(m > 0 for _, m in a.terms)


def size_of(atom: Atom, sizes: Sizes) -> int | None:
    """How many values an atom takes; None where a size is not known."""
    match atom:
        case Axis(name):
            return sizes.get(name)
        case Opaque(values=values):
            return values
        case Digit(of, divisor, modulus):
            whole = extent(of, sizes)
            if whole is None:
                inner = of.only_atom
                values = inner.values if isinstance(inner, Opaque) else None
                return min((v for v in (values, modulus) if v is not None), default=None)
            quotients = -(-whole // divisor)
            return quotients if modulus is None else min(quotients, modulus)


def extent(a: Linear, sizes: Sizes) -> int | None:
    """The distance from the smallest to the largest value of the sum, and 1; with its constant where it starts at 0."""
    total = max(0, a.const) + 1
    for atom, multiple in a.terms:
        if isinstance(atom, Opaque):
            return None
        size = size_of(atom, sizes)
        if size is None:
            return None
        total += abs(multiple) * (size - 1)
    return total


def step(a: Linear, axis: str) -> int | None:
    """By how much a step of one along the axis moves the sum, within the axis' lowest digit. None: not known."""
    total = 0
    for atom, multiple in a.terms:
        moved = _step_of(atom, axis)
        if moved is None:
            return None
        total += multiple * moved
    return total


def _step_of(atom: Atom, axis: str) -> int | None:
    match atom:
        case Axis(name):
            return int(name == axis)
        case Opaque(moving=moving):
            return None if axis in moving else 0
        case Digit(of, divisor, modulus):
            inner = step(of, axis)
            if not inner:
                return inner
            if inner % divisor:
                return 0 if abs(inner) < divisor else None
            return inner // divisor if modulus is None else inner // divisor % modulus


def reach(a: Linear, sizes: Sizes, bounds: Iterable[Bounds] = ()) -> tuple[int, int] | None:
    """The smallest value of the sum and the largest where the bounds hold; None where a size is not known."""
    conditions = tuple(bounds)
    low = high = a.const
    for atom, multiple in a.terms:
        size = size_of(atom, sizes)
        if size is None or (isinstance(atom, Opaque) and size != 1):
            return None
        first, last = _limits(single(atom), size, conditions)
        ends = multiple * first, multiple * max(first, last - 1)
        low, high = low + min(ends), high + max(ends)
    return low, high


def run_length(a: Linear, sizes: Sizes, bounds: Iterable[Bounds] = ()) -> int | None:
    """How many elements lie one after another before an address jumps: 1 where neighbours are apart."""
    by_multiple = {abs(m): t for t, m in a.terms}
    conditions = tuple(bounds)
    run = 1
    while (atom := by_multiple.pop(run, None)) is not None:
        size = None if isinstance(atom, Opaque) else _within(atom, sizes, conditions)
        if size is None:
            return run if isinstance(atom, Opaque) else None
        run *= max(1, size)
    return run


def count(a: Linear, sizes: Sizes, bounds: Iterable[Bounds] = ()) -> int | None:
    """How many different values the sum takes where the bounds hold, as far as its digits say; None: not known.

    Two parts that depend on one axis count as independent of each other.
    """
    conditions = tuple(bounds)
    by_base: dict[Linear, list[Atom]] = {}
    for atom, _ in a.terms:
        by_base.setdefault(atom.of if isinstance(atom, Digit) else single(atom), []).append(atom)
    total = 1
    for base, atoms in by_base.items():
        parts = [_within(atom, sizes, conditions) for atom in atoms]
        if any(p is None for p in parts):
            return None
        number = math.prod(p for p in parts if p is not None)
        if not any(isinstance(atom, Opaque) for atom in atoms):
            whole = _bounded(base, extent(Linear(base.terms), sizes), conditions)
            number = number if whole is None else min(number, whole)
        total *= number
    ends = reach(a, sizes, conditions)
    return total if ends is None else min(total, ends[1] - ends[0] + 1)


def _within(atom: Atom, sizes: Sizes, bounds: Iterable[Bounds]) -> int | None:
    """How many values an atom takes where the bounds hold."""
    return _bounded(single(atom), size_of(atom, sizes), bounds)


def _bounded(a: Linear, size: int | None, bounds: Iterable[Bounds]) -> int | None:
    """The number of values of a sum that starts at 0 and takes `size` of them, within its bounds."""
    if size is None:
        return None
    first, end = _limits(a, size, bounds)
    return max(0, end - first)


def _limits(a: Linear, size: int, bounds: Iterable[Bounds]) -> tuple[int, int]:
    """The first value of a sum that starts at 0 and takes `size` of them, within its bounds, and the first beyond."""
    low, high = 0, size
    for bound in bounds:
        if bound.of.terms == a.terms:
            if bound.low is not None:
                low = max(low, bound.low - bound.of.const)
            if bound.high is not None:
                high = min(high, bound.high - bound.of.const)
    return low, high


def restricts(bound: Bounds, sizes: Sizes) -> bool:
    """Whether a bound leaves anything out."""
    size = extent(Linear(bound.of.terms), sizes)
    return size is not None and _bounded(Linear(bound.of.terms), size, (bound,)) != size
