"""An autotune landscape as data: every way to launch one kernel that was tried, and what came of it. No torch.

Field names are the API's. Times are in µs, sizes in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from kernels.measure.model import Interval, interval_from_json

OUTCOMES = ("measured", "compiled", "unmeasured")
"""measured: timed here; compiled: for a GPU that is not here, nothing was run; unmeasured: neither, see `reason`."""

STATUSES = (
    "ok",  # right and timed
    "compiled",  # not run: for a GPU that is not here
    "wrong",  # another result than the reference: never timed
    "pruned",  # the kernel's model says that it does not fit: never compiled
    "refused",  # does not compile, or needs more than the GPU has
    "fault",  # its process died
    "timeout",
    "not_run",  # the budget was spent
)


Constant: TypeAlias = str | int | float | bool | None
"""Of a kernel."""


@dataclass(frozen=True, slots=True)
class Point:
    """One way to launch the kernel.

    tile: the constants that are a choice, as text; stages: of the software pipeline, None where there is none.
    own: it is of the kernel's own tuning space, not of the wider grid. registers and spill_bytes: of a thread.
    occupancy: share of a multiprocessor's threads that registers and shared memory leave room for.
    """

    key: str
    kernel: str
    tile: str
    constants: dict[str, Constant]
    warps: int
    stages: int | None = None
    own: bool = False
    status: str = "not_run"
    reason: str = ""
    time_us: Interval | None = None
    ratio_to_best: float | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """The chosen tile with its programs in plain order, row of tiles by row of tiles, and in groups of rows.

    grouped_to_plain: time / time, with its interval; under 1 the groups are faster.
    """

    group: int
    grouped_us: Interval
    plain_us: Interval
    grouped_to_plain: Interval


@dataclass(frozen=True, slots=True)
class Axes:
    """What the points lie on, each from small to large."""

    tiles: tuple[str, ...]
    warps: tuple[int, ...]
    stages: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Landscape:
    """All points of one kernel of a candidate, at one binding of the region's symbols.

    chosen: the point that tuning took; best: the fastest here. worst_to_best: time / time over the points that were
    timed. chosen_to_best: the same of those two, timed again in turns: the fastest of many is partly luck.
    beside: other kernels of the candidate that are tuned too, and stayed as they were chosen.
    """

    outcome: str
    candidate: str
    region: str
    binding: dict[str, int] = field(default_factory=dict)
    reason: str = ""
    kernel: str = ""
    beside: tuple[str, ...] = ()
    points: tuple[Point, ...] = ()
    axes: Axes = Axes((), (), ())
    chosen: str | None = None
    best: str | None = None
    worst_to_best: float | None = None
    chosen_to_best: Interval | None = None
    order: Order | None = None
    device: str | None = None
    software: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, Any] = field(default_factory=dict)  # as a Validation keeps them
    budget_s: float | None = None
    seconds: float | None = None
    date: str = ""


def axes_of(points: Iterable[Point]) -> Axes:
    """Tiles by kernel and size, warps, stages; each value once."""
    listed = list(points)
    tiles = dict.fromkeys(p.tile for p in sorted(listed, key=lambda p: (p.kernel, size_of(p), p.tile)))
    stages = sorted({p.stages for p in listed}, key=lambda s: -1 if s is None else s)
    return Axes(tuple(tiles), tuple(sorted({p.warps for p in listed})), tuple(stages))


def size_of(point: Point) -> int:
    """Elements of a point's tile, as far as its constants say."""
    numbers = [v for v in point.constants.values() if isinstance(v, int) and not isinstance(v, bool)]
    return math.prod(max(1, v) for v in numbers)


def ranked(points: Sequence[Point]) -> tuple[Point, ...]:
    """The same points with their ratio to the fastest of those that were timed."""
    times = [p.time_us.median for p in points if p.time_us is not None]
    least = min(times, default=0.0)
    return tuple(
        replace(p, ratio_to_best=p.time_us.median / least) if p.time_us is not None and least > 0 else p for p in points
    )


def best_of(points: Sequence[Point]) -> Point | None:
    """The fastest of those that are right."""
    return min((p for p in points if p.time_us is not None), key=_median, default=None)


def worst_to_best(points: Sequence[Point]) -> float | None:
    """The slowest time over the fastest; None for fewer than two."""
    times = [_median(p) for p in points if p.time_us is not None]
    return max(times) / min(times) if len(times) > 1 and min(times) > 0 else None


def _median(point: Point) -> float:
    return point.time_us.median if point.time_us is not None else math.inf


def _maybe_interval(data: Mapping[str, float] | None) -> Interval | None:
    return None if data is None else interval_from_json(data)


def point_from_json(data: Mapping[str, Any]) -> Point:
    """Inverse of to_json for a Point; unknown keys raise TypeError."""
    return Point(**{**data, "time_us": _maybe_interval(data.get("time_us"))})


def landscape_from_json(data: Mapping[str, Any]) -> Landscape:
    """Inverse of to_json for a Landscape; unknown keys raise TypeError, missing ones KeyError."""
    order, axes = data.get("order"), data["axes"]
    timed = ("grouped_us", "plain_us", "grouped_to_plain")
    made = None if order is None else Order(**{**order, **{k: interval_from_json(order[k]) for k in timed}})
    return Landscape(
        **{
            **data,
            "points": tuple(point_from_json(p) for p in data["points"]),
            "axes": Axes(tuple(axes["tiles"]), tuple(axes["warps"]), tuple(axes["stages"])),
            "beside": tuple(data.get("beside", ())),
            "chosen_to_best": _maybe_interval(data.get("chosen_to_best")),
            "order": made,
        }
    )
