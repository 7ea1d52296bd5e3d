"""Who keeps the GPU busy: unions of intervals, and each group's part of a window where groups overlap.

At an instant at which the kernels of n groups run, each of the n has 1/n of it. So the parts of all groups add up to
the time in which anything ran, and with the idle time to the window.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from profiler.trace.model import Floats, Longs, Step, Trace


def union_us(start_us: Floats, end_us: Floats) -> float:
    """Time covered by intervals that may overlap (several streams), in microseconds."""
    starts, ends = merge_intervals(start_us, end_us)
    return float((ends - starts).sum())


def merge_intervals(start_us: Floats, end_us: Floats) -> tuple[Floats, Floats]:
    """The same time as disjoint intervals in order. Empty and inverted ones are left out."""
    real = end_us > start_us
    start_us, end_us = start_us[real], end_us[real]
    if not len(start_us):
        return np.empty(0), np.empty(0)
    order = np.argsort(start_us, kind="stable")
    start, reach = start_us[order], np.maximum.accumulate(end_us[order])
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    last = np.concatenate((first[1:] - 1, [len(start) - 1]))
    return start[first], reach[last]


def gaps(start_us: Floats, end_us: Floats, window: tuple[float, float]) -> tuple[Floats, Floats]:
    """What the intervals leave free of a window, in order."""
    starts, ends = merge_intervals(np.maximum(start_us, window[0]), np.minimum(end_us, window[1]))
    free_from, free_to = np.concatenate(([window[0]], ends)), np.concatenate((starts, [window[1]]))
    real = free_to > free_from
    return free_from[real], free_to[real]


def even_split(start_us: Floats, end_us: Floats, group: Longs, groups: int, window: tuple[float, float]) -> Floats:
    """float64 [groups]: the time of a window that each group has, overlaps between groups split evenly.

    The integral of 1 / (groups running) over the union of the group's intervals, cut to the window. group: int [n], the
    group of each interval. The sum is `union_us` of all intervals in the window.
    """
    start, end = np.maximum(start_us, window[0]), np.minimum(end_us, window[1])
    order = np.argsort(group, kind="stable")
    cuts = np.searchsorted(group[order], np.arange(groups + 1))
    merged = [merge_intervals(start[order[a:b]], end[order[a:b]]) for a, b in pairwise(cuts)]
    starts, ends = (np.concatenate([w[side] for w in merged]) if merged else np.empty(0) for side in (0, 1))
    owner = np.repeat(np.arange(groups), [len(w[0]) for w in merged])
    if not len(starts):
        return np.zeros(groups)
    edges, place = np.unique(np.concatenate((starts, ends)), return_inverse=True)
    change = np.zeros(len(edges))
    np.add.at(change, place[: len(starts)], 1)
    np.add.at(change, place[len(starts) :], -1)
    running = np.cumsum(change)[:-1]
    # Per unit of time each running group gets this much; its integral up to every edge.
    rate = np.divide(1.0, running, out=np.zeros(len(running)), where=running > 0.5)
    reached = np.concatenate(([0.0], np.cumsum(rate * np.diff(edges))))
    shared = reached[place[len(starts) :]] - reached[place[: len(starts)]]
    parts: Floats = np.bincount(owner, weights=shared, minlength=groups).astype(np.float64)
    return parts


def gpu_window(trace: Trace, step: Step) -> tuple[float, float]:
    """(start, end) of a step as its GPU work sees it, in microseconds: what its wall time is measured between.

    It ends with the host's window or with the step's last GPU work, whichever is later. It begins with the host's
    window; where the work of earlier steps still runs then (the host runs ahead), when that is done, or when the step's
    own work begins if that is before and more than MOSTLY_AHEAD of it runs beside theirs. So steps of a host that runs
    ahead lie side by side, none counted twice, and but for that share all of a step's own work lies inside. The whole
    recording as one step begins with its first event. In the first step the work of earlier ones is not recorded, or
    without its launches: where its own first work was launched QUEUED_US and more before it started and nothing ran,
    the GPU was busy with that, and the step begins with its own.
    """
    start, end = work_intervals(trace, step)
    if not len(start):
        return step.start_us, step.end_us
    begin = step.start_us
    earlier = [e for e in _previous_ends(trace, step) if e > begin]
    if earlier:
        begin = max(earlier)
        ahead = float(np.clip(begin - start, 0.0, end - start).sum())
        if ahead <= MOSTLY_AHEAD * float((end - start).sum()):
            return begin, max(step.end_us, float(end.max()))
    elif (own := _behind_unrecorded(trace, step, start, end)) is not None:
        return own, max(step.end_us, float(end.max()))
    return min(begin, float(start.min())), max(step.end_us, float(end.max()))


MOSTLY_AHEAD = 0.25
"""Of a step's work, what may run beside the last of the step before: its inputs' copy, on a stream of its own."""
QUEUED_US = 1_000.0
"""Between launch and start of work on an idle GPU: some µs. 7.3, 9.5 and 493 ms were seen where serving ran ahead."""
FEW = 0.01
"""Of a step's work, what may have run before: the copy or the kernel that prepared it, between two others' work."""


def _behind_unrecorded(trace: Trace, step: Step, start: Floats, end: Floats) -> float | None:
    """When the trace's first step began, where its work stood in the GPU's queue behind something of before, although
    nothing that was recorded ran; None where it did not.

    start, end: of the step's work, kernels first.
    """
    if bisect_left(trace.steps, step.start_us, key=lambda s: s.start_us):
        return None
    copies = trace.memory.launch_us
    of_copies = np.full(len(step.memory), np.nan) if copies is None else copies[step.memory]
    calls = trace.kernels.launch_us if trace.kernels.launch_end_us is None else trace.kernels.launch_end_us
    launched = np.concatenate((calls[step.kernels], of_copies))
    order = np.argsort(start, kind="stable")
    start, end, launched = start[order], end[order], launched[order]
    free_from = np.concatenate(([-np.inf], np.maximum.accumulate(end)[:-1]))
    before = np.concatenate(([0.0], np.cumsum(end - start)[:-1]))
    waited = start - np.fmax(free_from, launched)
    queued = (waited >= QUEUED_US) & (launched >= step.start_us) & (before <= FEW * float((end - start).sum()))
    return float(start[queued].max()) if queued.any() else None


def _previous_ends(trace: Trace, step: Step) -> list[float]:
    """When the GPU work of the step before was done, for the first what belongs to no step and has no launch; []
    where there is none. Two steps back it is done before that."""
    place = bisect_left(trace.steps, step.start_us, key=lambda s: s.start_us)
    if not place:
        kernels = trace.kernels
        before = np.isnan(kernels.launch_us) & (kernels.start_us < step.end_us)
        before[step.kernels] = False
        ends = (kernels.start_us + np.maximum(kernels.duration_us, 0.0))[before]
        return [float(ends.max())] if len(ends) else []
    _, end = work_intervals(trace, trace.steps[place - 1])
    return [float(end.max())] if len(end) else []


def work_intervals(trace: Trace, step: Step | None = None) -> tuple[Floats, Floats]:
    """(starts, ends) of kernels, copies and sets: kernels first; of a step or of the whole trace."""
    kernels = slice(None) if step is None else step.kernels
    memory = slice(None) if step is None else step.memory
    start = np.concatenate((trace.kernels.start_us[kernels], trace.memory.start_us[memory]))
    duration = np.concatenate((trace.kernels.duration_us[kernels], trace.memory.duration_us[memory]))
    return start, start + np.maximum(duration, 0.0)


@dataclass(frozen=True, slots=True)
class Shares:
    """Who has the wall time of the steps looked at, in microseconds, summed over them. All parts add up to wall_us.

    groups_us: of each group of kernels; other_us: kernels of no group, and work of other steps inside these steps.
    """

    groups_us: tuple[float, ...]
    copies_us: float
    other_us: float
    idle_us: float
    wall_us: float

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the groups, then copies, other, idle: as shares of the wall time. Zeros where that is 0."""
        parts = (*self.groups_us, self.copies_us, self.other_us, self.idle_us)
        return tuple(part / self.wall_us if self.wall_us > 0.0 else 0.0 for part in parts)


def shares(trace: Trace, steps: Sequence[Step], kernel_groups: Sequence[Sequence[int]]) -> Shares:
    """The time that each group's kernels keep the GPU busy, overlaps split evenly, and what is left of the steps.

    kernel_groups: indices into Trace.kernels, each in one group at most. The wall time is the sum of `gpu_window` over
    the steps.
    """
    count = len(kernel_groups)
    owner = np.full(len(trace.kernels.start_us), count + 1, np.int64)
    for number, kernels in enumerate(kernel_groups):
        owner[list(kernels)] = number
    total, wall = np.zeros(count + 2), 0.0
    start, end = work_intervals(trace)
    copies = np.full(len(trace.memory.start_us), count + 1, np.int64)
    for step in steps:
        window = gpu_window(trace, step)
        own_kernels = np.zeros(len(owner), np.bool_)
        own_kernels[step.kernels] = True
        of_memory = copies.copy()
        of_memory[step.memory] = count
        group = np.concatenate((np.where(own_kernels, owner, count + 1), of_memory))
        inside = np.flatnonzero((end > window[0]) & (start < window[1]))
        total += even_split(start[inside], end[inside], group[inside], count + 2, window)
        wall += window[1] - window[0]
    parts = total.tolist()
    return Shares(tuple(parts[:count]), parts[count], parts[count + 1], max(0.0, wall - float(total.sum())), wall)
