"""Where an element stands, in the indices of a score: views of a tensor undone one by one, as sums of index names.

A place is a constant and names with factors. `view` joins axes and takes them from each other again: what was joined
from two indices becomes these two again, what was one index becomes `h // 4` and `h % 4`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Name:
    """One index as code: `h`, `h // 4`, `table[q_idx]`. size: it is below that. part_of: the name that it is a part of,
    with the size of the lower part, and whether it is that. reads: what its code names.
    """

    code: str
    size: int
    part_of: tuple[Name, int, bool] | None = None
    reads: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """What its code names: itself, where it is a plain index."""
        return self.reads or frozenset({self.code})


@dataclass(frozen=True, slots=True)
class Place:
    """constant + factor * name + ..."""

    constant: int = 0
    terms: Mapping[Name, int] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and (self.constant, dict(self.terms)) == (other.constant, dict(other.terms))

    def __hash__(self) -> int:
        return hash((self.constant, frozenset(self.terms.items())))

    @property
    def least(self) -> int:
        return self.constant + sum(f * (n.size - 1) for n, f in self.terms.items() if f < 0)

    @property
    def most(self) -> int:
        return self.constant + sum(f * (n.size - 1) for n, f in self.terms.items() if f > 0)

    @property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(n.names for n in self.terms))

    @property
    def code(self) -> str:
        """As Python, in no brackets."""
        parts: list[str] = []
        for name, factor in sorted(self.terms.items(), key=lambda t: (t[1] < 0, -abs(t[1]))):
            simple = name.code.isidentifier() or name.code.endswith("]")
            inner = name.code if simple and factor in (1, -1) else f"({name.code})" if not simple else name.code
            said = inner if abs(factor) == 1 else f"{inner} * {abs(factor)}"
            parts += [("- " if factor < 0 else "+ ") + said]
        if self.constant or not parts:
            parts += [("- " if self.constant < 0 else "+ ") + str(abs(self.constant))]
        first, *rest = parts
        first = f"-{first[2:]}" if first.startswith("- ") else first[2:]
        alone = not rest and first.startswith("(") and list(self.terms.values()) == [1]
        return next(iter(self.terms)).code if alone else " ".join([first, *rest])

    @property
    def simple(self) -> bool:
        """Its code needs no brackets in front of an operator."""
        one = list(self.terms.items())
        plain = len(one) == 1 and one[0][1] == 1 and (one[0][0].code.isidentifier() or one[0][0].code.endswith("]"))
        return (plain and not self.constant) or (not one and self.constant >= 0)


ZERO = Place()


def of(name: Name) -> Place:
    """The index itself; 0 where there is but one."""
    return Place(0, {name: 1}) if name.size > 1 else ZERO


def plus(*parts: tuple[Place, int]) -> Place:
    """The sum of places with factors; both parts of one index are that index again."""
    constant, terms = 0, dict[Name, int]()
    for place, factor in parts:
        constant += factor * place.constant
        for name, f in place.terms.items():
            terms[name] = terms.get(name, 0) + factor * f
    terms = {n: f for n, f in terms.items() if f}
    for low in [n for n in terms if n.part_of is not None and n.part_of[2]]:
        assert low.part_of is not None
        whole, size, _ = low.part_of
        high = next((n for n in terms if n.part_of == (whole, size, False)), None)
        if high is not None and terms[high] == size * terms[low]:
            factor = terms.pop(low)
            del terms[high]
            return plus((Place(constant, terms), 1), (of(whole), factor))
    return Place(constant, terms)


def divided(place: Place, size: int) -> tuple[Place, Place]:
    """(place // size, place % size); place is not below 0."""
    if size == 1:
        return place, ZERO
    over = {n: f // size for n, f in place.terms.items() if f % size == 0}
    rest = Place(place.constant % size, {n: f for n, f in place.terms.items() if f % size})
    high = Place(place.constant // size, over)
    if rest.least >= 0 and rest.most < size:
        return high, rest
    if len(rest.terms) == 1 and not rest.constant:
        ((name, factor),) = rest.terms.items()
        if factor > 0 and size % factor == 0 and name.size % (size // factor) == 0:
            lower = size // factor
            inner = name.code if name.code.isidentifier() or name.code.endswith("]") else f"({name.code})"
            top = Name(f"{inner} // {lower}", name.size // lower, (name, lower, False), name.names)
            low = Name(f"{inner} % {lower}", lower, (name, lower, True), name.names)
            return plus((high, 1), (of(top), 1)), plus((of(low), factor))
    code = f"({rest.code})"
    top = Name(f"{code} // {size}", rest.most // size + 1, None, rest.names)
    return plus((high, 1), (of(top), 1)), of(Name(f"{code} % {size}", size, None, rest.names))


def element_number(places: Sequence[Place], shape: Sequence[int]) -> Place:
    """Of an element of a contiguous tensor: its number."""
    number, step = ZERO, 1
    for place, size in zip(reversed(places), reversed(shape), strict=True):
        number = plus((number, 1), (place, step))
        step *= size
    return number


def unravelled(number: Place, shape: Sequence[int]) -> tuple[Place, ...]:
    """An element's indices of its number."""
    places: list[Place] = []
    for size in reversed(shape[1:]):
        number, low = divided(number, size)
        places.append(low)
    return tuple([number, *reversed(places)][: len(shape)]) if shape else ()


def reshaped(places: Sequence[Place], shape: Sequence[int], inner: Sequence[int]) -> tuple[Place, ...]:
    """Indices of a tensor, of those in a view of it with another shape. Axes that both have are not joined first."""
    places, shape, inner = list(places), list(shape), list(inner)
    tail: list[Place] = []
    while shape and inner and shape[-1] == inner[-1]:
        tail.insert(0, places.pop())
        shape.pop()
        inner.pop()
    return (*unravelled(element_number(places, shape), inner), *tail)
