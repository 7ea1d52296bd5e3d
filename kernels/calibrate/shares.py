"""Shares: which process of a calibration measures which families, so that a fault stays among few of them. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

import msgspec

TINY = 1e-6
"""Of a weight: what two sums of the same numbers may differ by."""


class Share(msgspec.Struct, frozen=True):
    """One family within one process: its programs `first`, `first + step`, ...; weight: how often, next to others."""

    family: str
    weight: float
    first: int = 0
    step: int = 1


class Work(msgspec.Struct, frozen=True):
    """What a worker is told. until: Unix time. file: that it appends to. turn: the file of the lock on the GPU."""

    shares: tuple[Share, ...]
    until: float
    file: str
    turn: str


def divide(families: Mapping[str, float], count: int) -> list[tuple[Share, ...]]:
    """The shares of so many processes, each of the same weight.

    The families stand in a line, each as long as its weight, which is cut into equal pieces: most processes have one
    or two families, and a heavy family several processes.
    """
    piece = sum(families.values()) / count
    cut: list[list[tuple[str, float]]] = [[] for _ in range(count)]
    begin = 0.0
    for family, weight in families.items():
        end = begin + weight
        for number, members in enumerate(cut):
            common = min(end, (number + 1) * piece) - max(begin, number * piece)
            if common > TINY:
                members.append((family, common))
        begin = end
    processes = Counter(family for members in cut for family, _ in members)
    before: Counter[str] = Counter()
    divided = []
    for members in cut:
        divided.append(tuple(Share(f, weight, before[f], processes[f]) for f, weight in members))
        before.update(family for family, _ in members)
    return divided


def programs(shares: Sequence[Share], count: Callable[[str], int | None]) -> Iterator[tuple[str, int]]:
    """(family, number), each family as often as its weight says, until its programs end; the same ones each time.

    count: how many a family has, None where it goes on for ever.
    """
    drawn: Counter[str] = Counter()
    left = list(shares)
    random = Random(" ".join(f"{s.family} {s.first}" for s in shares))
    while left:
        share = random.choices(left, [s.weight for s in left])[0]
        number, most = share.first + share.step * drawn[share.family], count(share.family)
        if most is not None and number >= most:
            left.remove(share)
            continue
        yield share.family, number
        drawn[share.family] += 1
