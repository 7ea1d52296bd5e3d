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
from typing import Any, cast

from app.objects.landscape import Point, Survey

SHIPPED = Path(__file__).with_name("landscapes.json")
"""Written by `python -m tools.records.record_landscapes`."""


@cache
def surveys() -> tuple[Survey, ...]:
    """Every recorded landscape. Points have a median without an interval."""
    entries: list[dict[str, Any]] = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return tuple(_read(number, entry) for number, entry in enumerate(entries))


def _read(number: int, entry: dict[str, Any]) -> Survey:
    points = [_point(place, p) for place, p in enumerate(entry["points"])]
    timed = [p["time_us"]["median"] for p in points if p["time_us"]]
    best = min(timed)
    for point in points:
        point["ratio_to_best"] = point["time_us"]["median"] / best if point["time_us"] else None
    survey = {
        "number": number,
        **entry,
        "points": points,
        "chosen": points[entry["chosen"]]["key"],
        "best": points[entry["best"]]["key"],
        "axes": {
            "tiles": list(dict.fromkeys(p["tile"] for p in points)),
            "warps": sorted({p["warps"] for p in points}),
            "stages": sorted({p["stages"] or 0 for p in points}),
        },
        "worst_to_best": max(timed) / best,
    }
    return cast("Survey", survey)


def _point(place: int, entry: dict[str, Any]) -> Point:
    time_us = entry.get("time_us")
    point = {
        "registers": None,
        "spill_bytes": None,
        "shared_bytes": None,
        "occupancy": None,
        **entry,
        "key": f"point {place}",
        "time_us": None if time_us is None else {"median": time_us, "low": time_us, "high": time_us},
    }
    return cast("Point", point)


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
