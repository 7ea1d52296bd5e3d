"""Which of many spans is the shortest around a time, told for all times at once."""

from __future__ import annotations

import heapq

import numpy as np

from profiler.trace.model import NONE, Floats, Longs


class ShortestAround:
    """Spans [start, end) that are swept over once, so that each question is one binary search. Of spans of one length
    the first of the lowest rank counts.

    from_us: where another span becomes the shortest; chosen: the span from there on, NONE for none.
    """

    def __init__(self, start_us: Floats, end_us: Floats, rank: Longs) -> None:
        order = np.lexsort((rank, end_us - start_us))  # the shortest first
        order = order[end_us[order] > start_us[order]]
        by_start = np.argsort(start_us[order], kind="stable")
        starts, ends = start_us[order][by_start].tolist(), end_us[order].tolist()
        places = by_start.tolist()
        open_now: list[int] = []  # places in order, a heap
        at = 0
        self.from_us: Floats = np.unique(np.concatenate((start_us[order], end_us[order])))
        chosen: list[int] = []
        for point in self.from_us.tolist():
            while at < len(places) and starts[at] <= point:
                heapq.heappush(open_now, places[at])
                at += 1
            while open_now and ends[open_now[0]] <= point:
                heapq.heappop(open_now)
            chosen.append(open_now[0] if open_now else NONE)
        rows = np.array(chosen, np.int64)
        self.chosen: Longs = np.where(rows == NONE, NONE, order[rows]) if len(order) else rows

    def at(self, at_us: float) -> int:
        """The span's place among those given; NONE where none is around."""
        place = int(np.searchsorted(self.from_us, at_us, "right")) - 1
        return int(self.chosen[place]) if place >= 0 else NONE
