"""Attention that no sequence of operations names, found along its data: products, a softmax of what they make, and a
product that reads it.

Masks, biases, casts, dropout, copies of the keys' heads, and keys and values that a cache is put together of, may stand
between: what lies on the way of the scores is the attention's, and so is what only makes a mask for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from profiler.region.mining.output_shapes import outputs, reads
from profiler.region.mining.unit_letters import CHAINS
from profiler.region.mining.units import Sig, Unit

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
        way = _way(thread, index, start, softmax)
        if way is None or not made:
            continue
        if made[0].elements == read.elements or any(thread.letters[i] in RESIZES for i in way):
            members |= {start, *way}
    return members


def _way(thread: Thread, index: Mapping[int, int], start: int, end: int) -> list[int] | None:
    """What lies between two units along which the first one's result reaches the second; None where it does not."""
    values = outputs(thread.busy[start])
    way: list[int] = []
    first, last = (thread.at[thread.busy[i].op] for i in (start, end))
    for unit in thread.every[first + 1 : last]:
        if reads(unit, values) and (not unit.kernels or _passes(thread, index[unit.op], values)):
            values = [*values, *outputs(unit)]
            way += [index[unit.op]] if unit.kernels else []
    if not reads(thread.busy[end], values):
        return None
    return _read_later(thread, way, end)


def _read_later(thread: Thread, way: Sequence[int], end: int) -> list[int]:
    """Of the way what something behind it on the way reads, directly or through views; not what goes elsewhere."""
    kept: list[int] = []
    for place in reversed(way):
        values = _with_views(thread, place, end)
        if any(reads(thread.busy[later], values) for later in (*kept, end)):
            kept.append(place)
    return sorted(kept)


def _with_views(thread: Thread, place: int, end: int) -> list[Sig]:
    """A unit's results and the views of them that are made before the end."""
    values = outputs(thread.busy[place])
    first, last = (thread.at[thread.busy[i].op] for i in (place, end))
    for unit in thread.every[first + 1 : last]:
        if not unit.kernels and reads(unit, values):
            values += outputs(unit)
    return values


def _passes(thread: Thread, place: int, values: Sequence[Sig]) -> bool:
    """Scores go on behind it: pointwise and the like, or a small product that mixes heads."""
    if thread.taken[place]:
        return False
    unit, symbol = thread.busy[place], thread.letters[place]
    if symbol == "L":
        operands = [s for a in unit.args if a.kind == "tensor" for s in a.sigs]
        weights = [s for s in operands if not any(s.dims == v.dims for v in values)]
        return bool(weights) and max(w.elements for w in weights) <= HEADS_MIXED
    return symbol in ON_THE_WAY


def _to_product(thread: Thread, index: Mapping[int, int], softmax: int) -> set[int]:
    """The product that reads the softmax's result, with what lies on the way; empty where there is none."""
    for end in range(softmax + 1, min(softmax + LOOKAHEAD, len(thread.busy))):
        if thread.letters[end] != "M" or thread.taken[end]:
            continue
        way = _way(thread, index, softmax, end)
        if way is not None:
            return {end, *way}
    return set()


def _for_masks(thread: Thread, members: set[int]) -> set[int]:
    """What between the first and the last of them makes something that only they read."""
    added: set[int] = set()
    first, last = min(members), max(members)
    for place in range(last - 1, first, -1):
        if place in members or thread.taken[place] or thread.letters[place] not in FOR_THE_MASK:
            continue
        values = _with_views(thread, place, last)
        readers = [i for i in range(place + 1, last + 1) if reads(thread.busy[i], values)]
        if readers and all(i in members | added for i in readers):
            added.add(place)
    return added


def _scaled_before(thread: Thread, product: int) -> set[int]:
    """What directly before the product scales or casts what it reads."""
    added: set[int] = set()
    place = product - 1
    while place >= 0 and not thread.taken[place] and thread.letters[place] in BEFORE_THE_PRODUCT:
        values = _with_views(thread, place, product)
        if not any(reads(thread.busy[i], values) for i in (*added, product)):
            break
        added.add(place)
        place -= 1
    return added


def _casts(thread: Thread, product: int) -> bool:
    """The result is cast directly behind it."""
    after = product + 1
    if thread.taken[after] or thread.letters[after] != "t":
        return False
    return reads(thread.busy[after], outputs(thread.busy[product]))
