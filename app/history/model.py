"""A history: what a check measured at each run, and the changes between runs with their cause.

Every metric is one of which less is better: times, kernels, bytes over the minimum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from app.objects.common import Range

Cause = Literal["regression", "improvement", "method", "hardware", "software", "noise"]
"""Why a value changed. method: how it was measured, hardware: the device, software: a version in `Environment`. A
regression or an improvement is the commit's; noise is within what runs differ by themselves."""

ENVIRONMENT_CAUSES: tuple[Cause, ...] = ("method", "hardware", "software")
"""In the order in which one of them is named where several changed at once."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where and how a run was measured; runs of different environments are never compared as one series' noise.

    software: versions by name (torch, triton, cuda, driver, tritonworthy), those that are known. method: what changes
    times without a change of the program, such as the profiler's stacks; "" where nobody said.
    """

    device: str
    software: Mapping[str, str] = field(default_factory=dict)
    method: str = ""


@dataclass(frozen=True, slots=True)
class Measure:
    """One value of one run. subject: the trace's step, a region, a contract's name.

    samples: how many were measured within the run. spread: relative standard deviation of single samples within the
    run; None where there was one.
    """

    subject: str
    metric: str
    unit: str
    value: float
    samples: int = 1
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One run of a check. at: ISO 8601 in UTC. parents: of the commit. dirty: the working tree had other changes.

    id: the same for the same run wherever it is kept, so that a run is counted once.
    """

    check: str
    at: str
    commit: str
    branch: str
    environment: Environment
    measures: tuple[Measure, ...]
    id: str
    parents: tuple[str, ...] = ()
    dirty: bool = False


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """What one line of a chart is of."""

    check: str
    branch: str
    subject: str
    metric: str


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a series. segment: counts from 0, a new one where the environment changed.

    level, low, high: what runs of this segment are expected to give at this point, with the band of noise; None where
    there are too few.
    """

    entry: Entry
    value: float
    samples: int
    spread: float | None
    segment: int
    outlier: bool = False
    level: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A level of a series that changed between two runs. ratio: after over before, with its interval.

    before: the last run of the old level; after: the first of the new one. confidence: 0 to 1, that the two levels
    differ. also: which other parts of the environment changed with it. because: in words. how_to_separate: lines for a
    shell that tell the commit's part from the environment's, "" where one of both alone changed. commits_between: those
    after the last run that is surely of the old level, up to the first that is surely of the new one, oldest first.
    """

    key: SeriesKey
    before: Entry
    after: Entry
    ratio: Range
    cause: Cause
    confidence: float
    because: str
    commits_between: tuple[str, ...] = ()
    also: tuple[Cause, ...] = ()
    how_to_separate: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """All runs of one key, oldest first, with the changes between them."""

    key: SeriesKey
    unit: str
    points: tuple[Point, ...]
    changes: tuple[Change, ...]
