"""Validation as data: what was asked, what was measured. Plain JSON both ways; no torch.

Field names are the API's. Times are in µs, sizes in bytes, compile time in seconds.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

USERS_KERNEL = "kernel:"
"""How the name of a candidate begins that is a function of the user's own file."""

OUTCOMES = ("confirmed", "overturned", "tie", "unmeasured")

STATUSES = (
    "ok",  # correct and timed
    "correct",  # correct, not timed: no GPU
    "mismatch",  # wrong result: never timed
    "unsupported",  # this candidate cannot run this region; message says why
    "not_installed",
    "error",  # raised
    "fault",  # the process died: CUDA fault, abort, signal
    "timeout",
    "out_of_memory",
    "bad_output",  # the child broke the protocol
    "impossible",  # faster than the bytes or FLOPs allow, or its times contradict each other
    "cancelled",
    "not_run",
)


def is_users_kernel(name: str) -> bool:
    """Whether this candidate is the user's own: nobody else has it, so no advice rests on it."""
    return name.startswith(USERS_KERNEL)


@dataclass(frozen=True, slots=True)
class Interval:
    """A median with the bounds of its bootstrap interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ShapeResult:
    """One candidate at one binding of the region's symbols."""

    binding: dict[str, int]
    calls: float = 1.0
    error_vs_eager: float | None = None  # error against float64 over eager's own or its room; at most 2 passes
    time_us: Interval | None = None  # device time of one call
    wall_us: float | None = None  # host time of one of many back-to-back calls
    ratio_to_eager: Interval | None = None  # candidate's time / eager's: under 1 is faster
    ratio_to_best_other: Interval | None = None
    share_of_limit: float | None = None  # floor / time
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """What became of one candidate. The figures outside `shapes` are weighted by calls over all shapes."""

    name: str  # `eager`, `compile`, `library:PACKAGE.CALL`, `triton:generated`, `kernel:FUNCTION` of the user's, ...
    tool: str  # `eager`, `library`, `compile`, `triton`, `cuda`
    status: str
    message: str = ""
    call: str = ""  # what the user would write
    error_vs_eager: float | None = None
    time_us: Interval | None = None
    wall_us: float | None = None
    ratio_to_eager: Interval | None = None
    ratio_to_best_other: Interval | None = None
    share_of_limit: float | None = None
    peak_bytes: int | None = None
    compile_s: float | None = None  # first call: compile and autotune
    kernels: tuple[str, ...] = ()  # names of the kernels that the profiler saw in one call
    shapes: tuple[ShapeResult, ...] = ()
    source: str = ""  # the generated kernel's text, where there is one


INTERVALS = tuple(f.name for f in dataclasses.fields(ShapeResult) if f.type == "Interval | None")
"""Fields of a candidate and of its shapes: a median with its bounds."""


@dataclass(frozen=True, slots=True)
class Validation:
    """The measured candidates and the outcome. device is None where the host has no GPU."""

    outcome: str
    reason: str
    region: str  # canonical text
    candidates: tuple[CandidateResult, ...]
    device: str | None = None
    software: dict[str, str] = field(default_factory=dict)  # torch, triton, cuda, driver, python
    # measure.conditions.Conditions and the GPU's figures; records of former versions have what those wrote
    conditions: dict[str, Any] = field(default_factory=dict)
    best: str | None = None  # name of the fastest correct candidate
    floor_us: float | None = None
    date: str = ""  # ISO 8601 day of the measurement
    coverage: str = ""  # "no library covers it", or which call does
    advice_before: Mapping[str, object] | None = None  # as the API has advice
    advice_after: Mapping[str, object] | None = None


def to_json(value: Any) -> Any:
    """Dataclasses to dicts, tuples to lists, recursively."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, dict):
        return {k: to_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    names = _field_names(kind)
    return value if names is None else {name: to_json(getattr(value, name)) for name in names}


INSIDE = "inside"
"""In a field's metadata: it is no part of the JSON."""
_PLAIN = frozenset({str, float, int, bool, type(None)})


@functools.cache
def _field_names(kind: type) -> tuple[str, ...] | None:
    """Of a dataclass, without those that stay inside; None for what is none. Kept: looking them up took half of the
    time of an answer of the widget."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(f.name for f in dataclasses.fields(kind) if not f.metadata.get(INSIDE))


def interval_from_json(data: Mapping[str, float]) -> Interval:
    """Inverse of to_json for an Interval."""
    return Interval(data["median"], data["low"], data["high"])


def _intervals(data: Mapping[str, Any]) -> dict[str, Interval | None]:
    return {k: None if data.get(k) is None else interval_from_json(data[k]) for k in INTERVALS}


def shape_from_json(data: Mapping[str, Any]) -> ShapeResult:
    """Inverse of to_json for a ShapeResult; unknown keys raise TypeError."""
    return ShapeResult(**{**data, **_intervals(data)})


def candidate_from_json(data: Mapping[str, Any]) -> CandidateResult:
    """Inverse of to_json for a CandidateResult; unknown keys raise TypeError."""
    shapes = tuple(shape_from_json(s) for s in data.get("shapes", ()))
    return CandidateResult(**{**data, **_intervals(data), "kernels": tuple(data.get("kernels", ())), "shapes": shapes})


def validation_from_json(data: Mapping[str, Any]) -> Validation:
    """Inverse of to_json for a Validation; unknown keys raise TypeError."""
    return Validation(**{**data, "candidates": tuple(candidate_from_json(c) for c in data["candidates"])})
