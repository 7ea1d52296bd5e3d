"""Long lists on a page: the heaviest rows are drawn, and the page says how many are not.

A text of 5 KB can be 2,900 operations and 1,900 kernels. Drawn whole, its page was 4 MB, and making it held the web
process's interpreter for 1.8 s. The API's object has every row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

MOST_ROWS = 150
"""Of a table."""

MOST_SAVINGS = 12
"""Each of five lines on a page."""

MOST_PARTS = 40
"""Of a bar: thinner ones cannot be distinguished by eye."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Rows(Generic[Row]):
    """What is drawn of a list and what is not, both in its own order."""

    shown: list[Row]
    rest: list[Row]

    @property
    def left(self) -> int:
        """How many are not drawn."""
        return len(self.rest)


def heaviest(rows: Sequence[Row], weight: Callable[[Row], float], most: int = MOST_ROWS) -> Rows[Row]:
    """The `most` rows of the largest weight; of equals the first."""
    if len(rows) <= most:
        return Rows(list(rows), [])
    kept = set(sorted(range(len(rows)), key=lambda at: -weight(rows[at]))[:most])
    return Rows([r for at, r in enumerate(rows) if at in kept], [r for at, r in enumerate(rows) if at not in kept])


def fold_smallest(parts: Sequence[tuple[str, int]], most: int = MOST_PARTS) -> list[tuple[str, int]]:
    """A bar's parts (label, size), at most so many: the smallest become one, at the end, so that the sum stays."""
    if len(parts) <= most:
        return list(parts)
    kept = heaviest(parts, lambda part: part[1], most - 1)
    return [*kept.shown, (f"{kept.left} smaller ones", sum(size for _, size in kept.rest))]
