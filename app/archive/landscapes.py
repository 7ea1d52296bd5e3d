"""Landscapes recorded on named hardware, and which of them is nearest to a region: evidence where nobody made one here.

A landscape is of one kernel, so only those of a kernel that the region can run count. Of two the nearer in size is
shown: |log2(bytes / bytes)|, a different dtype counting as a factor of two, and a tuner's few points as another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

Json = dict[str, Any]

SHIPPED = Path(__file__).with_name("landscapes.json")
"""Written by `python -m tools.records.record_landscapes`."""


@cache
def surveys() -> tuple[Json, ...]:
    """Every recorded landscape as the API's object has it, with its `number`, `what` it was made of and its `kind`.

    kind: "survey" over a grid of tiles, or "tuner", the few points that the kernel's own tuner tried. Points have a
    median without an interval.
    """
    found = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return tuple({"number": number, **_read(entry)} for number, entry in enumerate(found))


def _read(entry: Json) -> Json:
    points = [_point(place, p) for place, p in enumerate(entry["points"])]
    timed = [p["time_us"]["median"] for p in points if p["time_us"]]
    best = min(timed)
    for point in points:
        point["ratio_to_best"] = point["time_us"]["median"] / best if point["time_us"] else None
    return {
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


def _point(place: int, point: Mapping[str, Any]) -> Json:
    time = point.get("time_us")
    empty = {"registers": None, "spill_bytes": None, "shared_bytes": None, "occupancy": None}
    return {
        **empty,
        **point,
        "key": f"point {place}",
        "time_us": None if time is None else {"median": time, "low": time, "high": time},
    }


def nearest(candidates: Sequence[str], dtype: str, bytes_moved: int) -> Json | None:
    """The recorded landscape of the first of these candidates that has any, nearest in size; None where none has."""
    for candidate in candidates:
        found = [s for s in surveys() if s["candidate"] == candidate]
        if found:
            return min(found, key=lambda s: (_distance(s, dtype, bytes_moved), s["what"]))
    return None


def _distance(survey: Mapping[str, Any], dtype: str, bytes_moved: int) -> float:
    apart = abs(math.log2(max(1, bytes_moved) / max(1, survey["bytes"])))
    return float(apart + (survey["dtype"] != dtype) + (survey["kind"] == "tuner"))
