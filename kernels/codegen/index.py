"""Where a kernel reads and writes: indices that are linear in the dimensions a kernel walks over.

A kernel walks over a `Domain`. Every value is asked for at an index, one `Linear` per dimension of its shape, and
views (reshape, permute, slice, expand) only change the index. A reshape that cuts through a dimension asks for
that dimension to be split (`Split`); the caller then starts again with the finer domain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


class Unsupported(Exception):  # noqa: N818 - a reason, not a fault: shown to the user as it stands
    """Why no kernel can be generated for this. The message is shown to the user."""


class Split(Exception):  # noqa: N818 - control flow: start again with a finer domain
    """Dimension `dim` of the domain must become two, the inner one of size `inner`."""

    def __init__(self, dim: int, inner: int) -> None:
        super().__init__(f"split dimension {dim} at {inner}")
        self.dim = dim
        self.inner = inner


@dataclass(frozen=True, slots=True)
class Domain:
    """Sizes of the dimensions walked over, outermost first; the last `columns` of them are reduced over."""

    sizes: tuple[int, ...]
    columns: int = 0

    @property
    def rows(self) -> int:
        """Number of rows: the product of the dimensions that are not columns."""
        return math.prod(self.sizes[: len(self.sizes) - self.columns])

    @property
    def width(self) -> int:
        """Number of columns: the product of the column dimensions."""
        return math.prod(self.sizes[len(self.sizes) - self.columns :])

    @property
    def first_column(self) -> int:
        return len(self.sizes) - self.columns

    def split(self, dim: int, inner: int) -> Domain:
        size = self.sizes[dim]
        if inner <= 1 or size % inner:
            raise Unsupported(f"a reshape that cuts a dimension of {size} into pieces of {inner}")
        sizes = (*self.sizes[:dim], size // inner, inner, *self.sizes[dim + 1 :])
        return Domain(sizes, self.columns + (1 if dim >= self.first_column else 0))


@dataclass(frozen=True, slots=True)
class Linear:
    """offset + sum of coefficient * dimension of the domain."""

    offset: int = 0
    terms: tuple[tuple[int, int], ...] = ()  # (dimension, coefficient), by dimension, no zeros

    def __add__(self, other: Linear) -> Linear:
        total = dict(self.terms)
        for dim, coefficient in other.terms:
            total[dim] = total.get(dim, 0) + coefficient
        return Linear(self.offset + other.offset, tuple(sorted((d, c) for d, c in total.items() if c)))

    def scaled(self, factor: int) -> Linear:
        if not factor:
            return Linear()
        return Linear(self.offset * factor, tuple((d, c * factor) for d, c in self.terms))

    def coefficient(self, dim: int) -> int:
        return dict(self.terms).get(dim, 0)

    def largest(self, domain: Domain) -> int:
        """The largest value it takes."""
        return self.offset + sum(c * (domain.sizes[d] - 1) for d, c in self.terms if c > 0)

    def furthest(self, domain: Domain) -> int:
        """A bound on the magnitude of every partial sum of it."""
        return abs(self.offset) + sum(abs(c) * (domain.sizes[d] - 1) for d, c in self.terms)


ZERO = Linear()
Index = tuple[Linear, ...]


def from_the_end(part: Linear, size: int) -> Linear:
    """The same place of a dimension, counted from its other end."""
    return Linear(size - 1) + part.scaled(-1)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a row-major tensor, in elements."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def address(index: Index, strides: Sequence[int], offset: int = 0) -> Linear:
    """The element offset of an index in a tensor of these strides."""
    total = Linear(offset)
    for part, stride in zip(index, strides, strict=True):
        total = total + part.scaled(stride)
    return total


def spread(linear: Linear, shape: Sequence[int], domain: Domain) -> Index:
    """The index into a row-major `shape` that a linear position means.

    Raises Split where a domain dimension runs across a boundary of the shape, Unsupported where splitting
    cannot help (a step that does not fit, a slice that wraps).
    """
    if 0 in shape:
        raise Unsupported("a tensor without elements")
    strides = contiguous_strides(shape)
    kept = [k for k, size in enumerate(shape) if size > 1]
    parts = dict.fromkeys(range(len(shape)), ZERO)
    offset = linear.offset
    for k in kept:
        parts[k] = Linear(offset // strides[k] % shape[k])
    for dim, coefficient in sorted(linear.terms, key=lambda t: t[1]):
        size = domain.sizes[dim]
        if size == 1:
            continue
        home = next((k for k in kept if strides[k] <= coefficient), None)
        if coefficient < 0 or home is None or coefficient % strides[home]:
            raise Unsupported("a reshape of a strided or flipped view")
        step = coefficient // strides[home]
        room = shape[home] * strides[home]
        part = parts[home] + Linear(0, ((dim, step),))
        if coefficient * (size - 1) >= room:
            if room % coefficient:
                raise Unsupported("a reshape whose sizes do not divide")
            raise Split(dim, room // coefficient)
        if part.largest(domain) >= shape[home]:
            raise Unsupported("a reshape of a slice that wraps")
        parts[home] = part
    return tuple(parts[k] for k in range(len(shape)))


def reshape(index: Index, new: Sequence[int], old: Sequence[int], domain: Domain) -> Index:
    """From an index into `new` to the index into `old`, two shapes of one contiguous element order."""
    if tuple(new) == tuple(old):
        return index
    kept = [part for part, size in zip(index, new, strict=True) if size != 1]
    if [n for n in new if n != 1] == [n for n in old if n != 1]:  # dimensions of one element come and go
        return tuple(ZERO if size == 1 else kept.pop(0) for size in old)
    return spread(address(index, contiguous_strides(new)), old, domain)


def broadcast(index: Index, new: Sequence[int], old: Sequence[int]) -> Index:
    """From an index into a broadcast shape `new` to the index into the operand's shape `old`."""
    lead = len(new) - len(old)
    return tuple(
        ZERO if size == 1 else index[lead + k] for k, size in enumerate(old)
    )  # a size-1 dimension always reads its only element


def whole(domain: Domain) -> Linear:
    """The linear position in the domain: rows major, columns minor."""
    return Linear(0, tuple((d, s) for d, s in enumerate(contiguous_strides(domain.sizes)) if domain.sizes[d] > 1))


def row(domain: Domain) -> Linear:
    """The linear number of the row."""
    sizes = domain.sizes[: domain.first_column]
    return Linear(0, tuple((d, s) for d, s in enumerate(contiguous_strides(sizes)) if sizes[d] > 1))


def column(domain: Domain) -> Linear:
    """The linear number of the column."""
    first = domain.first_column
    sizes = domain.sizes[first:]
    return Linear(0, tuple((first + d, s) for d, s in enumerate(contiguous_strides(sizes)) if sizes[d] > 1))
