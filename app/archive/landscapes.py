"""Landscapes recorded on named hardware, and which of them is nearest to a region: evidence where nobody made one here.

A landscape is of one kernel, so only those of a kernel that the region can run count. Of two the nearer in size is
shown: |log2(bytes / bytes)|, a different dtype counting as a factor of two, and a tuner's few points as another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.objects.common import Interval
from app.objects.landscape import Order, Point, PointStatus, Survey

SHIPPED = Path(__file__).with_name("landscapes.json")
"""Written by `python -m tools.records.record_landscapes`."""


class RecordedPoint(TypedDict):
    """As the file has it. time_us: the median."""

    kernel: str
    tile: str
    warps: int
    stages: int | None
    own: bool
    status: PointStatus
    reason: str
    registers: NotRequired[int | None]
    spill_bytes: NotRequired[int | None]
    shared_bytes: NotRequired[int | None]
    time_us: float | None


class RecordedSurvey(TypedDict):
    """As the file has it. chosen, best: places among the points."""

    kind: Literal["survey", "tuner"]
    candidate: str
    kernel: str
    what: str
    dtype: str
    bytes: int
    points: list[RecordedPoint]
    chosen: int
    best: int
    chosen_to_best: Interval | None
    order: Order | None
    reason: str
    device: str
    torch: str
    triton: str
    date: str


@cache
def surveys() -> tuple[Survey, ...]:
    """Every recorded landscape. Points have a median without an interval."""
    entries: list[RecordedSurvey] = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return tuple(_read(number, entry) for number, entry in enumerate(entries))


def _read(number: int, entry: RecordedSurvey) -> Survey:
    points = [_point(place, p) for place, p in enumerate(entry["points"])]
    timed = [p["time_us"]["median"] for p in points if p["time_us"]]
    best = min(timed)
    for point in points:
        point["ratio_to_best"] = point["time_us"]["median"] / best if point["time_us"] else None
    return {
        "number": number,
        "kind": entry["kind"],
        "candidate": entry["candidate"],
        "kernel": entry["kernel"],
        "what": entry["what"],
        "dtype": entry["dtype"],
        "bytes": entry["bytes"],
        "points": points,
        "chosen": points[entry["chosen"]]["key"],
        "best": points[entry["best"]]["key"],
        "chosen_to_best": entry["chosen_to_best"],
        "order": entry["order"],
        "reason": entry["reason"],
        "device": entry["device"],
        "torch": entry["torch"],
        "triton": entry["triton"],
        "date": entry["date"],
        "axes": {
            "tiles": list(dict.fromkeys(p["tile"] for p in points)),
            "warps": sorted({p["warps"] for p in points}),
            "stages": [*sorted({p["stages"] or 0 for p in points})],
        },
        "worst_to_best": max(timed) / best,
    }


def _point(place: int, entry: RecordedPoint) -> Point:
    time_us = entry["time_us"]
    return {
        "registers": entry.get("registers"),
        "spill_bytes": entry.get("spill_bytes"),
        "shared_bytes": entry.get("shared_bytes"),
        "occupancy": None,
        "kernel": entry["kernel"],
        "tile": entry["tile"],
        "warps": entry["warps"],
        "stages": entry["stages"],
        "own": entry["own"],
        "status": entry["status"],
        "reason": entry["reason"],
        "time_us": None if time_us is None else {"median": time_us, "low": time_us, "high": time_us},
        "key": f"point {place}",
    }


def nearest(candidates: Sequence[str], dtype: str, bytes_moved: int) -> Survey | None:
    """The recorded landscape of the first of these candidates that has any, nearest in size; None where none has."""
    for candidate in candidates:
        recorded = [s for s in surveys() if s["candidate"] == candidate]
        if recorded:
            return min(recorded, key=lambda s: (_distance(s, dtype, bytes_moved), s["what"]))
    return None


def _distance(survey: Survey, dtype: str, bytes_moved: int) -> float:
    apart = abs(math.log2(max(1, bytes_moved) / max(1, survey["bytes"])))
    return float(apart + (survey["dtype"] != dtype) + (survey["kind"] == "tuner"))
