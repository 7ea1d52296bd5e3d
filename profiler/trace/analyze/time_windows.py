"""Spans of time that are asked often whether an instant lies in one of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate


class Windows:
    """Half-open spans [start, end), in microseconds; they may nest and overlap."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self.spans = sorted(spans)
        self._starts = [start for start, _ in self.spans]
        self._reach = list(accumulate((end for _, end in self.spans), max))

    def __bool__(self) -> bool:
        return bool(self.spans)

    def __contains__(self, at_us: float) -> bool:
        place = bisect_right(self._starts, at_us) - 1
        return place >= 0 and at_us < self._reach[place]

    def innermost(self, at_us: float) -> tuple[float, float] | None:
        """The span round an instant that starts last; None where there is none."""
        place = bisect_right(self._starts, at_us) - 1
        while place >= 0 and at_us < self._reach[place]:
            if at_us < self.spans[place][1]:
                return self.spans[place]
            place -= 1
        return None

    def starting_in(self, start_us: float, end_us: float) -> Windows:
        """Those that start in [start, end)."""
        return Windows(self.spans[bisect_left(self._starts, start_us) : bisect_left(self._starts, end_us)])
