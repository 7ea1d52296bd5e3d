"""Long lists on a page: the heaviest rows are drawn, and how many are not is told.

A text of 5 KB can be 2,900 operations and 1,900 kernels. Drawn whole, its page was 4 MB, and making it held the web
process's interpreter for 2 s. The API's object has every row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MOST_ROWS = 150
"""Of a table. The longest region of the tests' traces has fewer operations."""

MOST_SAVINGS = 12
"""Each of five lines on a page."""

MOST_PARTS = 40
"""Of a bar: thinner ones are not told apart by eye."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What is drawn of a list, in its own order, and how many are not."""

    shown: list[Any]
    left: int


def heaviest(rows: Sequence[Any], weight: Callable[[Any], float], most: int = MOST_ROWS) -> Rows:
    """The `most` rows of the largest weight, in the order in which they came; of equals the first."""
    if len(rows) <= most:
        return Rows(list(rows), 0)
    kept = sorted(sorted(range(len(rows)), key=lambda at: -weight(rows[at]))[:most])
    return Rows([rows[at] for at in kept], len(rows) - most)


def folded(parts: Sequence[tuple[str, int]], most: int = MOST_PARTS) -> list[tuple[str, int]]:
    """A bar's parts (label, size), at most so many: the smallest become one, at the end, so that the sum stays."""
    kept = heaviest(parts, lambda part: part[1], most if len(parts) <= most else most - 1)
    if not kept.left:
        return kept.shown
    rest = sum(size for _, size in parts) - sum(size for _, size in kept.shown)
    return [*kept.shown, (f"{kept.left} smaller ones", rest)]
