"""Times that cannot be: a duration below zero or of days, an event far from all others.

CUPTI gives a kernel whose times it could not collect start and end 0; one such event would make a step of weeks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, isnan
from operator import attrgetter

import numpy as np

from profiler.trace.model import Floats
from profiler.trace.read.column import Column
from profiler.trace.read.events import Event

LONGEST_US = 24 * 3600e6
"""No recording takes a day: it is held in memory, and the longest of the traces here takes 43 s."""

FARTHEST_US = 2.0**63
"""From any clock's zero: further than an epoch in nanoseconds that is taken for microseconds."""

_ts, _dur = attrgetter("ts"), attrgetter("dur")


def keep_timed(group: list[Event], measured: bool) -> list[Event]:
    """Those with a usable time, in order.

    measured: whether the duration counts (GPU work, annotations); else an unreadable one is taken for 0, so that an
    operator or a launch keeps its links.
    """
    total = sum(map(_dur, group))
    if isfinite(sum(map(_ts, group)) + total) and total <= LONGEST_US:
        if not measured or min(map(_dur, group), default=0.0) >= 0.0:
            return group
    usable = []
    for event in group:
        if isnan(event.dur) and not measured:
            event.dur = 0.0
        if isfinite(event.ts + event.dur) and event.dur <= LONGEST_US and (event.dur >= 0.0 or not measured):
            usable.append(event)
    return usable


def drop_far(groups: Sequence[Sequence[Column]], starts: list[Floats]) -> int:
    """Takes out of groups of columns the rows that lie more than LONGEST_US from the middle; how many.

    groups: all columns of each group but that of the start. starts: of each group; they are replaced here. The middle
    is the median of the longest group.
    A group of which half or more lies far has another clock: it stays, but for what lies beyond FARTHEST_US.
    """
    with np.errstate(over="ignore"):
        middle = float(np.median(max(starts, key=len)))
    dropped = 0
    for number, (group, start) in enumerate(zip(groups, starts, strict=True)):
        with np.errstate(over="ignore"):
            near = np.abs(start - middle) <= LONGEST_US
        if 2 * int(near.sum()) <= len(start):
            near = np.ones(len(start), np.bool_)
        near &= np.abs(start) <= FARTHEST_US
        far = len(start) - int(near.sum())
        if not far:
            continue
        starts[number] = start[near]
        for column in group:
            column.append(column.drain()[near])
        dropped += far
    return dropped
