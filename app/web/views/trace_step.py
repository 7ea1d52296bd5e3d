"""The step on a trace's page: what its wall time is made of, its spread, its ranks. Pure functions of API JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.trace_report.ranks import spread_json
from app.trace_report.speedup import list_names
from app.units import duration
from profiler.trace.analyze.idle_breakdown import PAUSE_US
from profiler.trace.analyze.ranks import rank_numbers

Json = Mapping[str, Any]

PARTS = (
    ("kernels_us", "Compute kernels", "compute", "the union of their intervals"),
    ("communication_us", "Communication, not hidden", "communication", "it runs and no compute kernel does"),
    ("copies_us", "Exposed memcpy and memset", "copies", "nothing else runs"),
    ("idle_launch_us", "Idle: waiting for launches", "launch", "the host issues kernels more slowly than the GPU runs"),
    (
        "idle_host_us",
        "Idle: waiting for the host",
        "host",
        f"a synchronising call, or more than {PAUSE_US:.0f} µs without an operation or a launch; or no work follows",
    ),
    (
        "idle_communication_us",
        "Idle: waiting for communication",
        "wait",
        "between queued work and a collective, or the host stands in one",
    ),
    ("idle_device_us", "Idle: queued, not started", "queue", "launched before, the GPU was not ready"),
)
"""Field of step_parts, its name, its colour's class, when time counts as it."""

RESOURCES = {
    "gpu": "GPU kernels",
    "launches": "kernel launches",
    "host": "the host",
    "communication": "communication",
    "copies": "copies and sets",
    "queue": "the GPU's queue",
}

SOURCES = {
    "profiler": "marked by the profiler",
    "annotation": "an annotation that repeats",
    "repetition": "found by the repetition of kernels",
    "window": "the whole recording as one step",
}


def step_section(trace: Json) -> dict[str, Any]:
    """Context for the step's part of partials/trace_body.html; empty for traces stored before there was one."""
    parts = trace.get("step_parts")
    if not parts or not parts["wall_us"]:
        return {}
    wall = parts["wall_us"]
    rows = [
        {"name": name, "kind": kind, "time_us": parts[field], "share": parts[field] / wall, "when": when}
        for field, name, kind, when in PARTS
        if parts[field] > 0.0
    ]
    critical = trace.get("critical")
    return {
        "part_rows": rows,
        "resource": RESOURCES.get(critical["resource"], critical["resource"]) if critical else None,
        "because": critical["because"] if critical else "",
        "times": _times(trace),
        "step_source": SOURCES.get(trace.get("step_source") or "", ""),
        "graphs": trace.get("graphs") or [],
        "pause": f"{PAUSE_US:.0f} µs",
    }


def gain_section(trace: Json) -> dict[str, Any]:
    """Context of partials/trace_gain.html: a row for all advice and one for the best three; {} where nothing is known.

    One row where they are the same advice.
    """
    gain = trace.get("gain")
    if not gain or not trace.get("step_parts"):
        return {}
    best, whole = gain["top"], gain["all"]
    rows = [{"name": "All advice", **whole, "listed": list_names(whole["advice"])}] if whole else []
    if whole and len(best["advice"]) < len(whole["advice"]):
        name = f"Only the {len(best['advice'])} regions that save most"
        rows.append({"name": name, **best, "listed": list_names(best["advice"])})
    return {"rows": rows, "unknown": gain["unknown"], "pace": trace["pace"], "wall_us": trace["step_parts"]["wall_us"]}


def _times(trace: Json) -> str:
    """The median step with its spread and how many steps it is of, in one line."""
    times = trace.get("step_times")
    if not times:
        return ""
    if times["count"] == 1:
        text = f"{duration(times['median_us'])}, one step measured"
    else:
        spread = "quartiles" if times["count"] >= 4 else "shortest and longest"
        text = (
            f"{duration(times['median_us'])}, the median of {times['count']} steps "
            f"({spread} {duration(times['low_us'])} and {duration(times['high_us'])})"
        )
    left = times["left_out"]
    return f"{text}; {left} left out (warm-up, or without kernels)" if left else text


def rank_section(traces: Iterable[Json]) -> dict[str, Any]:
    """The ranks of a group side by side, the slowest marked; empty for fewer than two that are ready.

    A rank is the one that its trace names, else the one in its file's name, else its place among the traces. traces:
    oldest first; of a file that was read again the last reading counts.
    """
    newest = {t.get("sha256") or t["id"]: t for t in traces if t.get("status") == "ready" and t.get("step_parts")}
    ready = list(newest.values())
    numbers = rank_numbers([t["name"] for t in ready], [t.get("rank") for t in ready])
    known = [{**t, "rank": rank} for t, rank in zip(ready, numbers, strict=True)]
    spread = spread_json(known)
    if spread is None:
        return {}
    by_rank = {t["rank"]: t for t in known}
    rows = [
        {
            **r,
            "id": by_rank[r["rank"]]["id"],
            "name": by_rank[r["rank"]]["name"],
            "slowest": r["rank"] == spread["slowest"],
        }
        for r in spread["ranks"]
    ]
    return {"ranks": rows, "spread": spread}
