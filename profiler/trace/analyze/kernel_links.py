"""Which op launched a kernel: correlation and time -> runtime event -> innermost op around it on the same thread.

Correlation, not "External id": on a corpus of 40 files the first links 99 to 100 % of the kernels launched in the
window, the second 0 to 100 %, and in three files every link it gives is wrong (kineto#843, #846). Launch names are not
looked at: they differ by vendor and version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from profiler.trace.mmap_columns import LONG_ROWS, PIECE_ROWS, empty, pieces, take
from profiler.trace.model import NONE, Floats, Ints, Longs

_FEW_THREADS = 16

_ROUNDS = 1000
"""Jumps or steps up before the vectorised search gives way to a sweep; real traces take some tens."""


@dataclass(frozen=True, slots=True)
class Launches:
    """Runtime and driver events with a correlation, in the order of the file."""

    start_us: Floats
    end_us: Floats
    thread: Ints
    correlation: Longs
    external_id: Longs
    graph: npt.NDArray[np.bool_]


def nesting(thread: Ints, start_us: Floats, end_us: Floats) -> tuple[Longs, Ints]:
    """(order, parent) of spans on threads.

    order: int64 [n], sorts them by (thread, start, -end), equal ones in the given order. parent: int32 [n] for the
    sorted spans, the index of the latest earlier one that encloses it on its thread, or NONE. Spans need not nest.
    """
    order = _order(thread, start_us, end_us)
    return order, enclosing(cast("Ints", take(thread, order)), cast("Floats", take(end_us, order)))


def enclosing(thread: Ints, end_us: Floats) -> Ints:
    """The parents that `nesting` gives, of spans that are sorted already.

    Piece by piece: what can still enclose a later span are the last one before it and the ones that enclose that.
    """
    if len(thread) <= PIECE_ROWS:
        return _enclosing(thread, end_us)
    parents = cast("Ints", empty(len(thread), np.int32))
    still_open: list[int] = []
    for at in pieces(len(thread), thread, end_us, parents):
        rows = np.concatenate((np.array(still_open, np.int64), np.arange(at.start, at.stop)))
        parent = _enclosing(thread[rows], end_us[rows])
        parents[at] = np.where(parent != NONE, rows[parent], NONE)[len(still_open) :]
        still_open.clear()
        row = len(rows) - 1
        while row != NONE:
            still_open.append(int(rows[row]))
            row = int(parent[row])
        still_open.reverse()
    return parents


def _order(thread: Ints, start_us: Floats, end_us: Floats) -> Longs:
    """As np.lexsort of (thread, start, -end). Most of a file is in order thread by thread, which is quick to see."""
    order = _by_thread(thread)
    last = np.empty(0, np.int64)
    for at in pieces(len(order), order, thread, start_us, end_us):
        rows = np.concatenate((last, order[at]))
        last = rows[-1:]
        of, start, end = thread[rows], start_us[rows], end_us[rows]
        in_order = (end[1:] <= end[:-1]) & (start[1:] == start[:-1]) | (start[1:] > start[:-1]) | (of[1:] > of[:-1])
        if not in_order.all():
            return np.lexsort((-end_us, start_us, thread))
    return order


def _by_thread(thread: Ints) -> Longs:
    """As np.argsort(thread, kind="stable"). A long trace of few threads is walked once for each, piece by piece."""
    if len(thread) <= LONG_ROWS or int(thread.max()) >= _FEW_THREADS or int(thread.min()) < 0:
        return np.argsort(thread, kind="stable")
    order = cast("Longs", empty(len(thread), np.int64))
    filled = 0
    for number in range(int(thread.max()) + 1):
        for at in pieces(len(thread), thread, order):
            rows = np.flatnonzero(thread[at] == number)
            order[filled : filled + len(rows)] = rows + at.start
            filled += len(rows)
    return order


def _enclosing(thread: Ints, end_us: Floats) -> Ints:
    """Parents of sorted spans: for each the latest earlier one of its thread with an end at or after its own.

    All spans jump at once over what cannot enclose them: where the candidate ends too early, its own candidate is next,
    because everything between the two ends earlier still. Distances double, so a few rounds do; a hostile nesting that
    would need many is left to the one-by-one sweep.
    """
    parent = np.arange(-1, len(thread) - 1, dtype=np.int32)
    parent[1:][thread[1:] != thread[:-1]] = NONE
    unsure = np.flatnonzero(parent != NONE)
    for _ in range(_ROUNDS):
        unsure = unsure[end_us[parent[unsure]] < end_us[unsure]]
        if not len(unsure):
            return parent
        parent[unsure] = parent[parent[unsure]]
        unsure = unsure[parent[unsure] != NONE]
    return _sweep(thread, end_us, np.ones(len(thread), np.bool_))


def _sweep(thread: Ints, end_us: Floats, encloses: npt.NDArray[np.bool_]) -> Ints:
    """As `_enclosing`, in linear time whatever the nesting; only spans marked in `encloses` can be parents."""
    parents: list[int] = []
    stack: list[int] = []
    ends = end_us.tolist()
    current = NONE
    for i, (of, end, stays) in enumerate(zip(thread.tolist(), ends, encloses.tolist(), strict=True)):
        if of != current:
            current = of
            stack.clear()
        # What ends before this span encloses neither it nor any later one that this one does not enclose better.
        # An instant (stays = False) is no span: only what has ended by then goes.
        while stack and ends[stack[-1]] < end:
            stack.pop()
        parents.append(stack[-1] if stack else NONE)
        if stays:
            stack.append(i)
    return np.array(parents, dtype=np.int32)


def innermost(
    at_thread: Ints, at_us: Floats, thread: Ints, start_us: Floats, end_us: Floats, parent: Ints
) -> npt.NDArray[np.int32]:
    """For each instant: index of the latest-starting span of its thread with start <= instant <= end, or NONE.

    The spans are sorted, with parents, as `nesting` gives them.
    """
    spans = cast("Ints", empty(len(at_us), np.int32))
    # Fewer instants at once: they lie far apart among the spans.
    for at in pieces(len(at_us), spans, at_thread, at_us, thread, start_us, end_us, parent, rows=PIECE_ROWS // 8):
        part = _innermost(at_thread[at], at_us[at], thread, start_us, end_us, parent)
        if part is None:
            return _innermost_by_sweep(at_thread, at_us, thread, start_us, end_us)
        spans[at] = part
    return spans


def _innermost(
    at_thread: Ints, at_us: Floats, thread: Ints, start_us: Floats, end_us: Floats, parent: Ints
) -> npt.NDArray[np.int32] | None:
    """As `innermost`, of some instants; None where the nesting is too deep for this way.

    Going up from the last span that started is exact also
    where spans overlap without nesting: any span still open that started earlier encloses the ones passed on the way.
    """
    spans = np.full(len(at_us), NONE, np.int32)
    if not len(at_us) or not len(start_us):
        return spans
    by_thread = np.argsort(at_thread, kind="stable")
    changes = np.flatnonzero(np.diff(at_thread[by_thread])) + 1
    for rows in np.split(by_thread, changes):
        of = at_thread[rows[0]]
        lo, hi = np.searchsorted(thread, (of, of + 1))
        candidates = lo + np.searchsorted(start_us[lo:hi], at_us[rows], side="right") - 1
        spans[rows] = np.where(candidates >= lo, candidates, NONE)
    unsure = np.flatnonzero(spans != NONE)
    for _ in range(_ROUNDS):
        unsure = unsure[end_us[spans[unsure]] < at_us[unsure]]
        if not len(unsure):
            return spans
        spans[unsure] = parent[spans[unsure]]
        unsure = unsure[spans[unsure] != NONE]
    return None


def _innermost_by_sweep(
    at_thread: Ints, at_us: Floats, thread: Ints, start_us: Floats, end_us: Floats
) -> npt.NDArray[np.int32]:
    """As `innermost`, in linear time whatever the nesting: instants are sorted in between the spans as empty ones."""
    both = np.concatenate((thread, at_thread))
    end = np.concatenate((end_us, at_us))
    order = np.lexsort((-end, np.concatenate((start_us, at_us)), both))
    parent = _sweep(both[order], end[order], order < len(thread))
    spans = np.full(len(both), NONE, np.int32)
    spans[order] = np.where(parent != NONE, order[parent], NONE)
    return spans[len(thread) :]


def launch_of(correlation: Longs, start_us: Floats, launches: Launches) -> Longs:
    """int64 [n]: index of the launch with each correlation, or NONE. Correlations NONE and 0 match nothing.

    start_us: of the GPU work. Where several launches have its correlation (traces of several processes in one file,
    numbers that begin again) the last one before it started counts; the first in the file where none is before it.
    """
    order = np.argsort(launches.correlation, kind="stable")
    ordered = take(launches.correlation, order)
    if not len(ordered):
        return np.full(len(correlation), NONE, np.int64)
    launch = cast("Longs", empty(len(correlation), np.int64))
    for at in pieces(len(correlation), correlation, launch):
        ids = correlation[at]
        near = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
        hit = (ordered[near] == ids) & (ids != NONE) & (ids != 0)
        launch[at] = np.where(hit, order[near], NONE)
    again = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if len(again):
        rows = np.flatnonzero((launch != NONE) & np.isin(correlation, again))
        launch[rows] = _last_before(correlation[rows], start_us[rows], launches, launch[rows])
    return launch


def _last_before(correlation: Longs, at_us: Floats, launches: Launches, otherwise: Longs) -> Longs:
    """int64 [n]: the last launch of each correlation, which there is, that starts at or before an instant."""
    order = np.lexsort((launches.start_us, launches.correlation))
    times = np.sort(launches.start_us)
    numbers, group = np.unique(launches.correlation[order], return_inverse=True)
    # One ascending key for (correlation, start): searched once for all.
    key = group * (len(times) + 1) + np.searchsorted(times, launches.start_us[order], side="left")
    rows = np.searchsorted(numbers, correlation)
    place = np.searchsorted(key, rows * (len(times) + 1) + np.searchsorted(times, at_us, side="right"), side="left") - 1
    hit = (place >= 0) & (group[place] == rows)
    return np.where(hit, order[place], otherwise)


def external_disagreement(op: Ints, external_id: Longs, op_external_id: Longs) -> tuple[int, int]:
    """(linked kernels whose "External id" names another op than their link does, those of which it names any).

    op: int32 [kernels], the link. external_id: int64 [kernels], the id on the kernel, else on its launch.
    """
    if not len(op_external_id) or not len(external_id):
        return 0, 0
    # The ids of the kernels are sorted, not those of the operators: there are fewer.
    ids, place = np.unique(external_id, return_inverse=True)
    is_op_id = np.zeros(len(ids), np.bool_)
    for at in pieces(len(op_external_id), op_external_id):
        op_ids = op_external_id[at]
        near = np.minimum(np.searchsorted(ids, op_ids), len(ids) - 1)
        is_op_id[near[ids[near] == op_ids]] = True
    has_op = is_op_id[place]
    comparable = (op != NONE) & (external_id != NONE) & has_op
    if not comparable.any():
        return 0, 0
    differ = take(op_external_id, op[comparable]) != external_id[comparable]
    return int(differ.sum()), len(differ)
