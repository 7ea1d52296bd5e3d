"""Autotune landscapes: the time of one kernel over its tiles, warps and stages."""

from __future__ import annotations

from typing import Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from app.objects.common import Binding, Error, Interval, Progress, State, Versions
from app.objects.evidence import Conditions

LandscapeOutcome = Literal["measured", "compiled", "unmeasured"]
PointStatus = Literal["ok", "compiled", "wrong", "pruned", "refused", "fault", "timeout", "not_run"]
Constant: TypeAlias = str | int | float | bool | None
"""A kernel's constant."""


class Point(TypedDict):
    """One way to launch the kernel. own: of the kernel's own tuning space. registers, spill_bytes: of a thread.

    stages: of the software pipeline, null where there is none. occupancy: share of a multiprocessor's threads.
    """

    key: str
    kernel: str
    tile: str
    constants: NotRequired[dict[str, Constant]]
    warps: int
    stages: int | None
    own: bool
    status: PointStatus
    reason: str
    time_us: Interval | None
    ratio_to_best: NotRequired[float | None]
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int | None
    occupancy: float | None


class Axes(TypedDict):
    """What the points lie on, each from small to large."""

    tiles: list[str]
    warps: list[int]
    stages: list[int | None]


class Order(TypedDict):
    """The chosen tile with its programs in plain order and in groups of rows; under 1 the groups are faster."""

    group: int
    grouped_us: Interval
    plain_us: Interval
    grouped_to_plain: Interval


class LandscapeFigures(TypedDict):
    """All points of one kernel of a candidate. chosen: the point that tuning took; best: the fastest of the points.

    worst_to_best: time / time over the points that were timed; chosen_to_best: of those two, timed again in turns.
    beside: other kernels of the candidate that are tuned too, and stayed as they were chosen.
    """

    outcome: LandscapeOutcome | None
    candidate: str
    binding: Binding
    reason: str
    kernel: str
    beside: list[str]
    points: list[Point]
    axes: Axes
    chosen: str | None
    best: str | None
    worst_to_best: float | None
    chosen_to_best: Interval | None
    order: Order | None
    device: str | None
    software: Versions
    conditions: Conditions
    budget_s: float | None
    seconds: float | None
    date: str


class LandscapeBody(LandscapeFigures):
    """A landscape as it was measured. region: its text."""

    region: str


class Landscape(LandscapeFigures):
    """The time of one kernel over its tiles, warps and stages; outcome is null until it is done."""

    id: str
    validation_id: str
    state: State
    progress: Progress | None
    error: Error | None
    created_at: str
    region: NotRequired[str]


class Survey(TypedDict):
    """A recorded landscape. what: it was made of; bytes: that one call moves.

    kind: "survey" over a grid of tiles, or "tuner", the few points that the kernel's own tuner tried. number: its place
    in the file.
    """

    number: int
    kind: Literal["survey", "tuner"]
    candidate: str
    kernel: str
    what: str
    dtype: str
    bytes: int
    points: list[Point]
    axes: Axes
    chosen: str
    best: str
    worst_to_best: float
    chosen_to_best: Interval | None
    order: Order | None
    reason: str
    device: str
    torch: str
    triton: str
    date: str
