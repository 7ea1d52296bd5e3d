"""One step's GPU work and its gaps along time, as few spans as a picture needs. Times are µs from its start.

Spans are runs of one region's kernels on one stream. A step of many thousand kernels has more than can be drawn or is
worth sending: neighbours shorter than a tolerance become one span then, named by the region that has most of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from app.objects.trace import Timeline, TimelineGaps, TimelineStream
from profiler.trace.analyze.gpu_utilization import gpu_window, work_intervals
from profiler.trace.analyze.idle_breakdown import idle_gaps
from profiler.trace.analyze.kernel_kinds import kernel_label
from profiler.trace.analyze.steps import measured_steps, step_time_us
from profiler.trace.model import Longs, Step, Trace

if TYPE_CHECKING:
    from profiler.region.mining.mine import Mining

MAX_SPANS, MAX_GAPS, MAX_STREAMS, MAX_NAMES, MAX_NAME = 1000, 300, 12, 100, 120
"""Most spans of all streams and gaps that are kept, streams told apart, kernels named, and the longest of those."""

COPIES, NO_REGION, ELSEWHERE = -1, -2, -3
"""Owners of spans that are no region: copies and sets; kernels in none; work of other steps."""


@dataclass(slots=True)
class Span:
    """Work of one owner on one lane. busy_us: without the gaps inside. count: kernels; name: the longest of them."""

    start_us: float
    end_us: float
    owner: int
    busy_us: float
    count: int
    name: int
    longest_us: float
    times: dict[int, float]

    @property
    def length_us(self) -> float:
        return self.end_us - self.start_us

    def absorb(self, other: Span) -> None:
        """Take in a later span of the same lane; the owner is who has most of it."""
        for owner, time in other.times.items():
            self.times[owner] = self.times.get(owner, 0.0) + time
        self.owner = max(self.times, key=lambda o: self.times[o])
        self.end_us = max(self.end_us, other.end_us)
        self.busy_us += other.busy_us
        self.count += other.count
        if other.longest_us > self.longest_us:
            self.name, self.longest_us = other.name, other.longest_us


def merge(spans: Iterable[Span], tolerance_us: float) -> list[Span]:
    """Neighbours no farther apart than the tolerance as one, where their owner is the same or both are shorter.

    spans: of one lane, by start; changed in place. So what is left is at least every other one longer than the
    tolerance or stands apart by more.
    """
    merged: list[Span] = []
    for span in spans:
        last = merged[-1] if merged else None
        if (
            last is not None
            and span.start_us - last.end_us <= tolerance_us
            and (last.owner == span.owner or max(last.length_us, span.length_us) < tolerance_us)
        ):
            last.absorb(span)
        else:
            merged.append(span)
    return merged


def fit_lanes(lanes: Sequence[Sequence[Span]], most: int, wall_us: float, least_us: float = 0.1) -> list[list[Span]]:
    """The lanes with the smallest tolerance, beginning at least_us and doubled, that leaves at most so many spans.

    The spans that are given stay as they are.
    """
    tolerance = least_us
    fitted = [merge((replace(s, times=dict(s.times)) for s in lane), tolerance) for lane in lanes]
    while sum(map(len, fitted)) > most and tolerance < wall_us:
        tolerance *= 2
        fitted = [merge(lane, tolerance) for lane in fitted]
    return fitted


def shown_step(mining: Mining, trace: Trace) -> Step | None:
    """Of the mined steps the one whose time is nearest to the median of the measured ones."""
    if not mining.mined:
        return None
    middle = median([step_time_us(trace, step) for step in measured_steps(trace) or mining.mined])
    return min(mining.mined, key=lambda step: abs(step_time_us(trace, step) - middle))


def timeline_json(trace: Trace, mining: Mining, owner: Longs) -> Timeline | None:
    """A step along time; None for no step.

    owner: the region of each kernel as its place in the report, NONE for none (`breakdown.owners`). A span's `region`
    is that place, or one of COPIES, NO_REGION, ELSEWHERE.
    """
    step = shown_step(mining, trace)
    if step is None:
        return None
    window = gpu_window(trace, step)
    wall_us = window[1] - window[0]
    if wall_us <= 0.0:
        return None
    keys, lanes = _lanes(trace, step, window, owner)
    lanes = fit_lanes(lanes, MAX_SPANS, wall_us)
    names: dict[int, int] = {}
    streams: list[TimelineStream] = [
        {"stream": stream, "device": device, **_columns(lane, trace, names)}
        for (device, stream), lane in zip(keys, lanes, strict=True)
    ]
    return {
        "step": step.name[:MAX_NAME],
        "wall_us": round(wall_us, 3),
        "streams": streams,
        "gaps": _gaps(trace, step, window),
        "names": [kernel_label(trace.names[name]) for name in names],
    }


def _lanes(
    trace: Trace, step: Step, window: tuple[float, float], owner: Longs
) -> tuple[list[tuple[int, int | None]], list[list[Span]]]:
    """((device, stream), spans) of every lane, the busiest streams by number; the others are one, stream None."""
    kernels, memory = trace.kernels, trace.memory
    start, end = work_intervals(trace)
    of_step = np.zeros(len(start), np.bool_)
    of_step[step.kernels] = True
    of_step[len(kernels.start_us) + step.memory] = True
    region = np.concatenate((np.where(owner < 0, NO_REGION, owner), np.full(len(memory.start_us), COPIES)))
    region = np.where(of_step, region, ELSEWHERE)
    stream = np.concatenate((kernels.stream, memory.stream))
    device = np.concatenate((kernels.device, np.full(len(memory.start_us), -1)))
    device = np.where(device < 0, kernels.device[0] if len(kernels.device) else 0, device)
    name = np.concatenate((kernels.name, memory.name))
    inside = np.flatnonzero((end > window[0]) & (start < window[1]) & (end > start))
    inside = inside[np.argsort(start[inside], kind="stable")]
    lanes: dict[tuple[int, int | None], list[Span]] = {}
    columns = (
        np.maximum(start[inside], window[0]) - window[0], np.minimum(end[inside], window[1]) - window[0],
        region[inside], name[inside], device[inside], stream[inside],
    )  # fmt: skip
    for a, b, of, called, gpu, lane in zip(*(c.tolist() for c in columns), strict=True):
        lanes.setdefault((gpu, lane), []).append(Span(a, b, of, b - a, 1, called, b - a, {of: b - a}))
    busiest = sorted(lanes, key=lambda k: -sum(s.busy_us for s in lanes[k]))
    kept = sorted(busiest[:MAX_STREAMS], key=lambda k: (k[0], k[1] or 0))
    told_apart = [lanes[k] for k in kept]
    others = sorted((s for k in busiest[MAX_STREAMS:] for s in lanes[k]), key=lambda s: s.start_us)
    if others:
        return [*kept, (-1, None)], [*told_apart, others]
    return kept, told_apart


class Columns(TypedDict):
    """A lane's spans; as TimelineStream has them."""

    start_us: list[float]
    length_us: list[float]
    busy_us: list[float]
    region: list[int]
    kernels: list[int]
    name: list[int]


def _columns(lane: Sequence[Span], trace: Trace, names: dict[int, int]) -> Columns:
    """A lane as columns. names: index of every name so far, added to; -1 where there are MAX_NAMES."""
    for span in lane:
        if span.name not in names and len(names) < MAX_NAMES:
            names[span.name] = len(names)
    return {
        "start_us": [round(s.start_us, 1) for s in lane],
        "length_us": [round(s.length_us, 1) for s in lane],
        "busy_us": [round(s.busy_us, 1) for s in lane],
        "region": [s.owner for s in lane],
        "kernels": [s.count for s in lane],
        "name": [names.get(s.name, -1) for s in lane],
    }


def _gaps(trace: Trace, step: Step, window: tuple[float, float]) -> TimelineGaps:
    """The gaps as columns; those that are close together with one cause are one, its idle time in `idle_us`."""
    causes: dict[str, int] = {}
    spans = []
    for gap in idle_gaps(trace, step):
        cause = causes.setdefault(gap.cause, len(causes))
        start = gap.start_us - window[0]
        length = gap.length_us
        spans.append(Span(start, start + length, cause, length, 1, cause, length, {cause: length}))
    gaps = fit_lanes([spans], MAX_GAPS, window[1] - window[0])[0]
    words = list(causes)
    return {
        "start_us": [round(s.start_us, 1) for s in gaps],
        "length_us": [round(s.length_us, 1) for s in gaps],
        "idle_us": [round(s.busy_us, 1) for s in gaps],
        "cause": [words[s.owner] for s in gaps],
        "gaps": [s.count for s in gaps],
    }
