"""Pace: in which stretches of a step the GPU sets the time, and in which the host does.

A stretch is a run of GPU work that no host-made gap interrupts. A gap is host-made where the work that ends it was
launched after the gap began. What shrinking a stretch's kernels does to the step depends on what follows it:

- The host was waiting for it in a synchronising call, or the step ends with it: the GPU sets the pace, and the step
  gets shorter with its kernels, until the host is the later one. By how much the host was ahead is its lead.
- A launch that came too late: the host sets the pace. The next kernel starts when the host launches it, whatever the
  kernels before it take, so that faster ones only make the gap longer. Only fewer launches help.

Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiler.trace.analyze.gpu_utilization import even_split, gaps, gpu_window, merge_intervals, work_intervals
from profiler.trace.analyze.steps import OPTIMIZER
from profiler.trace.model import Floats, Step, Trace


@dataclass(frozen=True, slots=True)
class Pace:
    """Mean over the steps, in microseconds of one step.

    gpu_us: wall time of the stretches in which the GPU sets the pace. lead_us: by how much the host is ahead in them,
    summed: so much the GPU can save there before the host sets the pace. groups_us: what each group of kernels keeps
    the GPU busy in them, overlaps split evenly.
    """

    gpu_us: float
    lead_us: float
    groups_us: tuple[float, ...]


def pace(trace: Trace, steps: Sequence[Step], kernel_groups: Sequence[Sequence[int]] = ()) -> Pace:
    """Who sets the pace of the steps. kernel_groups: indices into Trace.kernels, each in one group at most."""
    count = len(kernel_groups)
    owner = np.full(len(trace.kernels.start_us) + len(trace.memory.start_us), count, np.int64)
    for number, kernels in enumerate(kernel_groups):
        owner[list(kernels)] = number
    start, end = work_intervals(trace)
    gpu_us = lead_us = 0.0
    parts = np.zeros(count + 1)
    for step in steps:
        for a, b, lead in stretches(trace, step):
            gpu_us += b - a
            lead_us += lead
            inside = np.flatnonzero((end > a) & (start < b))
            parts += even_split(start[inside], end[inside], owner[inside], count + 1, (a, b))
    n = max(1, len(steps))
    return Pace(gpu_us / n, lead_us / n, tuple((parts[:count] / n).tolist()))


def stretches(trace: Trace, step: Step) -> list[tuple[float, float, float]]:
    """(start, end, lead) of the stretches of one step in which the GPU sets the pace, in order."""
    window = gpu_window(trace, step)
    start, end = work_intervals(trace)
    inside = np.flatnonzero((end > window[0]) & (start < window[1]) & (end > start))
    if not len(inside):
        return []
    order = inside[np.argsort(start[inside], kind="stable")]
    start, end, launch = start[order], end[order], _launches(trace)[order]
    waits = _waits(trace)
    gpu_bound = []
    begin: float | None = float(max(start[0], window[0]))
    for a, b in zip(*gaps(start, end, window), strict=True):
        after = int(np.searchsorted(start, b))
        if a == window[0]:
            begin = float(b)
            continue
        if after < len(start) and not launch[after] > a:  # the GPU had it already (NaN: launched before the window)
            continue
        waiting_since_us = _waiting(waits, float(a))
        if waiting_since_us is not None and begin is not None:
            gpu_bound.append((begin, float(a), float(a) - max(waiting_since_us, begin)))
        begin = float(b) if after < len(start) else None
    if begin is not None and begin < window[1]:
        last = int(np.argmax(end))
        done = max(float(np.nan_to_num(launch[last], nan=begin)) + float(end[last] - start[last]), step.end_us)
        if (waiting_since_us := _waiting(waits, float(end[last]))) is not None:  # and what the host did after that
            done = waiting_since_us + max(0.0, step.end_us - float(end[last]))
        gpu_bound.append((begin, window[1], max(0.0, window[1] - max(done, begin))))
    return gpu_bound


RETURN_US = 10.0
"""From a copy's end to that of the call that waits for it."""
BLOCKING_COPY = ("DtoH", "Pageable")
"""In names of copies for which the call waits, also where it is cudaMemcpyAsync: to memory that is not pinned."""


def _waits(trace: Trace) -> tuple[Floats, Floats]:
    """When the host waits for the GPU: synchronising calls, and copies to memory that is not pinned."""
    memory = trace.memory
    rows = np.zeros(len(memory.start_us), np.bool_)
    if memory.launch_us is not None:
        blocking = [all(mark in trace.names[n] for mark in BLOCKING_COPY) for n in memory.name.tolist()]
        rows = np.array(blocking, np.bool_) & ~np.isnan(memory.launch_us)
    begin = memory.launch_us[rows] if memory.launch_us is not None else np.empty(0)
    ended = memory.start_us[rows] + memory.duration_us[rows] + RETURN_US
    if trace.syncs is not None:
        begin, ended = np.concatenate((trace.syncs.start_us, begin)), np.concatenate((trace.syncs.end_us, ended))
    order = np.argsort(begin, kind="stable")
    return merge_intervals(begin[order], ended[order])


def optimizer_us(trace: Trace, steps: Sequence[Step]) -> float | None:
    """What the host takes for the optimizer in one step, in µs, without what it waits for the GPU meanwhile; None where
    nothing is annotated as an optimizer's."""
    notes = trace.annotations
    named = np.array([name.startswith(OPTIMIZER) for name in trace.names], np.bool_)
    rows = np.flatnonzero(named[notes.name]) if len(notes.name) else np.empty(0, np.int64)
    if not len(rows) or not steps:
        return None
    rows = rows[np.argsort(notes.start_us[rows], kind="stable")]
    start, end = merge_intervals(notes.start_us[rows], notes.end_us[rows])
    waits = _waits(trace)
    taken = 0.0
    for step in steps:
        begun, done = np.maximum(start, step.start_us), np.minimum(end, step.end_us)
        for a, b in zip(begun.tolist(), done.tolist(), strict=True):
            waited = np.minimum(waits[1], b) - np.maximum(waits[0], a)
            taken += max(0.0, b - a - float(waited[waited > 0.0].sum()))
    return taken / len(steps)


def _launches(trace: Trace) -> Floats:
    memory = trace.memory
    copies = memory.launch_us if memory.launch_us is not None else np.full(len(memory.start_us), np.nan)
    return np.concatenate((trace.kernels.launch_us, copies))


def _waiting(waits: tuple[Floats, Floats], at: float) -> float | None:
    """Since when the host is inside a synchronising call at that time; None where it is in none."""
    place = int(np.searchsorted(waits[0], at, side="right")) - 1
    if place < 0 or waits[1][place] <= at:
        return None
    return float(waits[0][place])
