"""What one process made of one segment, and the columns that all of them make together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields

import numpy as np

from profiler.trace.errors import Damage
from profiler.trace.model import NONE, Ints
from profiler.trace.read.column import Column
from profiler.trace.read.columns import Columns, Tables, Thread
from profiler.trace.read.events import Header
from profiler.trace.read.limits import Limits, check_events
from profiler.trace.read.segment import MisfitError, Segments
from profiler.trace.read.stream import EventStream

GROUPS = ("ops", "kernels", "memory", "launches", "annotations", "frames", "syncs")
"""Of Columns."""

Sizes = tuple[int, int, int]
"""Names, threads and details known."""


@dataclass(frozen=True, slots=True)
class Part:
    """One segment's columns; `known` is how many texts its process knew at the segment's end."""

    number: int
    columns: tuple[tuple[np.ndarray, ...], ...]  # by GROUPS, each in the order of its fields
    known: Sizes
    events: int
    timeless: int
    has_stacks: bool
    is_trace: bool
    header: Header
    is_last: bool
    truncated: bool
    unclosed: bool  # the file ends with the list
    bare: bool  # the file is a list
    damage: int  # value of the file's Damage, where this is its last segment


@dataclass(frozen=True, slots=True)
class Share:
    """What one process read: texts that its numbers stand for, numbers of its segments, and how to get their parts."""

    names: list[str]
    threads: list[Thread]
    details: list[bytes]
    triton_files: dict[str, str]
    segments: list[int]
    part: Callable[[int], Part]  # of the place in `segments`


def parts_of(segments: Segments, numbers: Iterable[int], tables: Tables, limits: Limits) -> Iterator[Part]:
    """Reads the segments of these numbers until the file ends. Raises MisfitError, and what EventStream raises."""
    events = 0
    for number in numbers:
        segment = segments.segment(number)
        if segment is None:
            return
        columns = Columns(tables)
        stream = EventStream(segment, limits, head=number == 0)
        for batch in stream:
            columns.add(batch)
            check_events(events + columns.events, limits)
        events += columns.events
        if stream.dropped:
            raise MisfitError  # a wrong cut loses events: what is lost without one is for a single reader to say
        yield Part(
            number=number,
            columns=tuple(
                tuple(getattr(group, f.name).whole() for f in fields(group))
                for group in (getattr(columns, name) for name in GROUPS)
            ),
            known=(len(tables.names), len(tables.threads), len(tables.details) - 1),
            events=columns.events,
            timeless=columns.timeless,
            has_stacks=columns.has_stacks,
            is_trace=columns.is_trace,
            header=stream.header,
            is_last=segment.is_last,
            truncated=stream.truncated,
            unclosed=stream.unclosed,
            bare=stream.bare,
            damage=segment.damage.value,
        )
        if segment.is_last:
            return


class _Numbers:
    """From one process's numbers of texts to those of all, in the order in which texts first stand in the file."""

    def __init__(self, share: Share) -> None:
        self._texts = (share.names, share.threads, share.details)
        # One more at the end, where NONE points.
        self.of = tuple(np.full(len(texts) + 1, NONE, np.int32) for texts in self._texts)
        self._known = [0, 0, 0]

    def learn(self, known: Sizes, tables: Tables) -> None:
        for i, table in enumerate((tables.names, tables.threads, tables.details)):
            texts = self._texts[i][self._known[i] : known[i]]
            self.of[i][self._known[i] : known[i]] = [table[text] for text in texts]  # type: ignore[index]
            self._known[i] = known[i]


def merge(shares: list[Share]) -> tuple[Columns, Header, bool, Damage]:
    """(columns, header, truncated, damage). Raises MisfitError unless the parts make up one file.

    Holds one part at a time.
    """
    columns = Columns()
    queue: list[tuple[int, int, Share, _Numbers]] = []
    for share in shares:
        columns.tables.triton_files.update(share.triton_files)
        numbers = _Numbers(share)
        queue += [(segment, place, share, numbers) for place, segment in enumerate(share.segments)]
    queue.sort(key=lambda item: item[0])
    if not queue or [segment for segment, *_ in queue] != list(range(len(queue))):
        raise MisfitError
    first = last = None
    for _, place, share, numbers in queue:
        last = share.part(place)
        first = first or last
        numbers.learn(last.known, columns.tables)
        _append(columns, last, numbers.of)
        columns.events += last.events
        columns.timeless += last.timeless
        columns.has_stacks |= last.has_stacks
        columns.is_trace |= last.is_trace
    assert first is not None and last is not None
    if not last.is_last:
        raise MisfitError
    truncated = last.truncated or (last.unclosed and not first.bare)
    return columns, first.header.or_else(last.header), truncated, Damage(last.damage)


def _append(columns: Columns, part: Part, numbers: tuple[Ints, ...]) -> None:
    of = dict(zip(("name", "thread", "detail"), numbers, strict=True))
    for name, values in zip(GROUPS, part.columns, strict=True):
        group = getattr(columns, name)
        for each, value in zip(fields(group), values, strict=True):
            column: Column = getattr(group, each.name)
            if len(value):
                column.append(of[each.name][value] if each.name in of else value)
