"""Attention that no sequence of operations names, found along its data: products, a softmax of what they make, and a
product that reads it.

Masks, biases, casts, dropout, copies of the keys' heads, and keys and values that a cache is put together of, may stand
between: what lies on the way of the scores is the attention's, and so is what only makes a mask for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from profiler.region.mining.output_shapes import outputs, reads
from profiler.region.mining.unit_letters import CHAINS
from profiler.region.mining.units import Sig, Unit
from profiler.trace.model import NONE

LOOKBACK, LOOKAHEAD = 32, 24
"""Units with kernels that are searched before the softmax and behind it."""
ON_THE_WAY = CHAINS - set("BNWZS")
"""Letters that scores and probabilities pass through."""
FOR_THE_MASK = frozenset("FtsxwaPXTnyf.")
"""Letters of what makes a mask, a bias or a copy of the values' heads, between the two products."""
BEFORE_THE_PRODUCT = frozenset("tXV")
"""Letters of what scales or casts its operands."""
RESIZES = frozenset("Ic")
"""Letters that change how many scores there are: relative positions gathered, a sink put at their end."""
HEADS_MIXED = 4096
"""Numbers in a weight that mixes heads, at most; a larger one is a layer's."""


@dataclass(frozen=True, slots=True)
class Thread:
    """Units of one thread. every: with those that launched nothing; at: an operation's place among them. taken: those
    of the busy that another region has, or an attention that was found before.
    """

    every: Sequence[Unit]
    busy: Sequence[Unit]
    letters: Sequence[str]
    taken: list[bool]
    at: Mapping[int, int]


def find_attention(thread: Thread) -> list[list[int]]:
    """Places of the busy units of each attention, none in two."""
    index = {u.op: i for i, u in enumerate(thread.busy)}
    regions: list[list[int]] = []
    for softmax, symbol in enumerate(thread.letters):
        if symbol != "S" or thread.taken[softmax]:
            continue
        behind = _to_product(thread, index, softmax)
        before = _from_products(thread, index, softmax) if behind else set()
        if not behind or not before:
            continue
        members = before | behind | {softmax}
        members |= _for_masks(thread, members)
        members |= _scaled_before(thread, min(i for i in members if thread.letters[i] == "M"))
        last = max(members)
        if last + 1 < len(thread.busy) and _casts(thread, last):
            members.add(last + 1)
        for place in members:
            thread.taken[place] = True
        regions.append(sorted(members))
    return regions


def _from_products(thread: Thread, index: Mapping[int, int], softmax: int) -> set[int]:
    """The products whose results reach the softmax, with what lies on the way."""
    read = next((a.sigs[0] for a in thread.busy[softmax].args if a.kind == "tensor"), None)
    members: set[int] = set()
    for start in range(softmax - 1, max(-1, softmax - LOOKBACK), -1):
        if thread.letters[start] != "M" or thread.taken[start] or read is None:
            continue
        made = outputs(thread.busy[start])
        reached = _way(thread, index, start, (softmax,))
        if reached is None or not made:
            continue
        if made[0].elements == read.elements or any(thread.letters[i] in RESIZES for i in reached.way):
            members |= {start, *reached.way}
    return members


@dataclass(frozen=True, slots=True)
class _Reached:
    """A unit that another one's result reaches, and what lies on the way."""

    end: int
    way: list[int]


def _way(thread: Thread, index: Mapping[int, int], start: int, ends: Sequence[int]) -> _Reached | None:
    """The first of the ends, which pass nothing on, that the start's result reaches; None where it reaches none."""
    if not ends:
        return None
    values = Values(outputs(thread.busy[start]))
    way: list[int] = []
    for unit in (*_between(thread, start, ends[-1]), thread.busy[ends[-1]]):
        if not values.read_by(unit):
            continue
        place = index[unit.op] if unit.kernels else NONE
        if place in ends:
            return _Reached(place, _read_later(thread, way, place))
        if place == NONE or _passes(thread, place, values):
            values.add(outputs(unit))
            way += [place] if unit.kernels else []
    return None


def _between(thread: Thread, start: int, end: int) -> Sequence[Unit]:
    """The units behind a busy one, with the views, before another one."""
    first = thread.at[thread.busy[start].op] + 1
    return thread.every[first : thread.at[thread.busy[end].op]]


def _read_later(thread: Thread, way: Sequence[int], end: int) -> list[int]:
    """Of the way what something behind it on the way reads, directly or through views; not what goes elsewhere."""
    kept: list[int] = []
    for place in reversed(way):
        values = _with_views(thread, place, end)
        if any(values.read_by(thread.busy[later]) for later in (*kept, end)):
            kept.append(place)
    return sorted(kept)


def _with_views(thread: Thread, place: int, end: int) -> Values:
    """A unit's results and the views of them that are made before the end."""
    values = Values(outputs(thread.busy[place]))
    for unit in _between(thread, place, end):
        if not unit.kernels and values.read_by(unit):
            values.add(outputs(unit))
    return values


def _passes(thread: Thread, place: int, values: Values) -> bool:
    """Scores go on behind it: pointwise and the like, or a small product that mixes heads."""
    if thread.taken[place]:
        return False
    unit, symbol = thread.busy[place], thread.letters[place]
    if symbol == "L":
        operands = [s for a in unit.args if a.kind == "tensor" for s in a.sigs]
        weights = [s for s in operands if not values.has_sizes(s.dims)]
        return bool(weights) and max(w.elements for w in weights) <= HEADS_MIXED
    return symbol in ON_THE_WAY


def _to_product(thread: Thread, index: Mapping[int, int], softmax: int) -> set[int]:
    """The product that reads the softmax's result, with what lies on the way; empty where there is none."""
    after = range(softmax + 1, min(softmax + LOOKAHEAD, len(thread.busy)))
    products = [i for i in after if thread.letters[i] == "M" and not thread.taken[i]]
    reached = _way(thread, index, softmax, products)
    return set() if reached is None else {reached.end, *reached.way}


def _for_masks(thread: Thread, members: set[int]) -> set[int]:
    """What between the first and the last of them makes something that only they read."""
    added: set[int] = set()
    first, last = min(members), max(members)
    for place in range(last - 1, first, -1):
        if place in members or thread.taken[place] or thread.letters[place] not in FOR_THE_MASK:
            continue
        values = _with_views(thread, place, last)
        readers = [i for i in range(place + 1, last + 1) if values.read_by(thread.busy[i])]
        if readers and all(i in members | added for i in readers):
            added.add(place)
    return added


def _scaled_before(thread: Thread, product: int) -> set[int]:
    """What directly before the product scales or casts what it reads."""
    added: set[int] = set()
    for place in range(product - 1, max(-1, product - LOOKBACK), -1):
        if thread.taken[place] or thread.letters[place] not in BEFORE_THE_PRODUCT:
            break
        values = _with_views(thread, place, product)
        if not any(values.read_by(thread.busy[i]) for i in (*added, product)):
            break
        added.add(place)
    return added


def _casts(thread: Thread, product: int) -> bool:
    """The result is cast directly behind it."""
    after = product + 1
    if thread.taken[after] or thread.letters[after] != "t":
        return False
    return reads(thread.busy[after], outputs(thread.busy[product]))


# -- tensors that the search looks for, by what a trace says of them: sizes, type and layout

Layout = tuple[int, ...] | None
"""Strides of the dimensions that have more than one element; None where they are not known."""
Places = dict[Layout, list[int]]


class Values:
    """Looked up as `output_shapes.alike` compares, so that thousands of views cost a question no more than one does."""

    def __init__(self, sigs: Iterable[Sig] = ()) -> None:
        self._known: dict[tuple[int, ...], dict[str, Places]] = {}
        self._added = 0
        self.add(sigs)

    def add(self, sigs: Iterable[Sig]) -> None:
        """Puts tensors behind those that are there; a scalar looks like none."""
        for sig in sigs:
            if sig.dims:
                of_type = self._known.setdefault(sig.dims, {}).setdefault(sig.dtype, {})
                of_type.setdefault(_layout(sig), []).append(self._added)
                self._added += 1

    def read_by(self, unit: Unit) -> bool:
        """One of the unit's tensors looks like one of them."""
        return any(True for sig in _operands(unit) for _ in self._alike(sig))

    def has_sizes(self, dims: tuple[int, ...]) -> bool:
        """One of them has these sizes."""
        return any(places for of_type in self._known.get(dims, {}).values() for places in of_type.values())

    def take(self, unit: Unit) -> None:
        """Takes one away for every operand that looks like it: the latest."""
        for sig in _operands(unit):
            latest = max(self._alike(sig), key=lambda places: places[-1], default=None)
            if latest is not None:
                latest.pop()

    def _alike(self, operand: Sig) -> Iterator[list[int]]:
        """When those that look like the operand were added, by type (a list of tensors has none) and layout."""
        known = self._known.get(operand.dims, {})
        layout = _layout(operand)
        for of_type in known.values() if not operand.dtype else filter(None, (known.get(operand.dtype),)):
            layouts = of_type if layout is None else (layout, None)
            yield from (places for one in layouts if (places := of_type.get(one)))


def _layout(sig: Sig) -> Layout:
    return None if sig.strides is None else tuple(s for d, s in zip(sig.dims, sig.strides, strict=True) if d > 1)


def _operands(unit: Unit) -> list[Sig]:
    return [sig for a in unit.args if a.kind != "lost" for sig in a.sigs]
