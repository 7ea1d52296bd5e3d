"""Charts: the API's dictionaries in, Plotly figures as dictionaries out. Pure functions; the browser only draws.

Each function gives None where there is nothing to draw. The rows behind a chart are what its table shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from app.units import amount, duration, factor, share
from app.web.charts.figure import COLOURS, SEGMENTS, Chart, Json, chart, escape
from app.web.charts.hatching import BY_COLOUR, bar, hatch, symbol
from app.web.views.labels import TOOL_LABELS
from app.web.views.long_lists import Rows, fold_smallest, heaviest
from app.web.views.names import shorten_uniquely
from kernels.measure import outcome

TOOLS = ("skip", "library", "compile", "triton", "cuda", "none", "rest")
"""The order in which advice is listed: least effort first, then what is without it, and what is no region."""

MAX_BARS = 14
"""Regions drawn one by one; the others are one named bar."""


def _names(labels: Sequence[str]) -> dict[str, Any]:
    """A category axis read from top to bottom."""
    # The names stand clear of the bars; a line along each row would strike through the labels beside the marks.
    apart = {"automargin": True, "ticklabelstandoff": 8, "showgrid": False}
    return {"type": "category", "autorange": "reversed", **apart, "tickvals": [*labels]}


# ---------------------------------------------------------------------------------------------------- step by region


def step_rows(trace: Json) -> list[dict[str, Any]]:
    """Regions by time, the trace's named rests, other busy time and idle time: name, tool, time_us, share, id.

    A trace whose GPU is never busy or whose step has no length gives only the rows it can.
    """
    regions = sorted(trace.get("regions", ()), key=lambda r: -(r.get("time_us_per_step") or 0.0))
    step_us = trace.get("step_time_us") or 0.0
    rows = [
        {
            "name": region.get("shown_name") or region["name"],
            "id": region.get("id"),
            "tool": (region.get("advice") or {}).get("tool", "none"),
            "time_us": region.get("busy_us_per_step") or region.get("time_us_per_step") or 0.0,
        }
        for region in regions
        if region.get("time_us_per_step")
    ]
    if len(rows) > MAX_BARS:
        others = rows[MAX_BARS - 1 :]
        rows = rows[: MAX_BARS - 1]
        total = sum(row["time_us"] for row in others)
        rows.append({"name": f"{len(others)} smaller regions", "id": None, "tool": "rest", "time_us": total})
    rests = trace.get("rests") or ()
    rows += [
        {"name": rest["name"], "id": None, "tool": "rest", "time_us": rest["time_us"]}
        for rest in rests
        if rest["time_us"]
    ]
    busy = trace.get("gpu_busy_share")
    known = sum(row["time_us"] for row in rows)
    if busy is not None and step_us:
        outside = step_us * busy - known
        if outside > step_us * 1e-3:
            rows.append({"name": "kernels outside regions", "id": None, "tool": "rest", "time_us": outside})
        idle = step_us - max(step_us * busy, known)
        if idle > step_us * 1e-3:
            rows.append({"name": "GPU idle", "id": None, "tool": "rest", "time_us": idle})
    for row in rows:
        row["share"] = row["time_us"] / step_us if step_us else None
    return rows


def step_by_region(trace: Json) -> Chart | None:
    """Horizontal bars: where the step goes, coloured by what to do about it."""
    rows = step_rows(trace)
    if not rows:
        return None
    labels = shorten_uniquely((row["name"] for row in rows), 42)
    traces: list[dict[str, Any]] = []
    for tool in TOOLS:
        chosen = [(label, row) for label, row in zip(labels, rows, strict=True) if row["tool"] == tool]
        if not chosen:
            continue
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": TOOL_LABELS.get(tool, "no advice"),
                "y": [label for label, _ in chosen],
                "x": [row["time_us"] / 1e3 for _, row in chosen],
                "text": [f" {duration(row['time_us'])} · {share(row['share'])}" for _, row in chosen],
                "textposition": "outside",
                "cliponaxis": False,
                "hovertemplate": "%{y}<br>%{text}<extra></extra>",
                "marker": bar(tool),
            }
        )
    widest = max(row["time_us"] for row in rows) / 1e3
    layout = {
        "barmode": "overlay",
        "yaxis": _names(labels) | {"categoryorder": "array", "categoryarray": labels},
        "xaxis": {"title": {"text": "time in one step, ms"}, "range": [0, widest * 1.32], "rangemode": "tozero"},
        "showlegend": True,
    }
    return chart(traces, layout, step_height(rows))


def step_height(rows: Sequence[Json]) -> int:
    """px of the chart of so many rows; 0 for none."""
    return 96 + 28 * len(rows) if rows else 0


# --------------------------------------------------------------------------------------------------------------- bytes


def total_bytes(count: Json) -> int:
    """Bytes read and written; where Inductor counted them, both together only."""
    return int(count["bytes_moved"] if "bytes_moved" in count else count["bytes_read"] + count["bytes_written"])


def _working(cost: Json) -> list[Json]:
    """The operations that launch or move anything."""
    return [o for o in cost["operations"] if total_bytes(o) or o.get("launches")]


def operation_rows(cost: Json) -> Rows:
    """The operations that launch or move anything, as the tables draw them."""
    return heaviest(_working(cost), total_bytes)


def bytes_rows(cost: Json) -> list[dict[str, Any]]:
    """Three rows (unfused, as torch.compile fuses, ideal), each with its parts, bytes and launches."""
    return [
        {
            "name": "unfused (eager)",
            "parts": fold_smallest([(o["label"], total_bytes(o)) for o in _working(cost)]),
            "bytes": total_bytes(cost["unfused"]),
            "launches": cost["unfused"]["launches"],
        },
        {
            "name": "fused (torch.compile)",
            "parts": fold_smallest([(k["label"], total_bytes(k)) for k in cost["kernels"]]),
            "bytes": total_bytes(cost["fused"]),
            "launches": cost["fused"]["launches"],
        },
        {
            "name": "ideal (each input and output once)",
            "parts": [("everything", total_bytes(cost["ideal"]))],
            "bytes": total_bytes(cost["ideal"]),
            "launches": cost["ideal"]["launches"],
        },
    ]


def bytes_moved(cost: Json) -> Chart | None:
    """Stacked bars: bytes of each operation unfused, of each kernel fused, and of the ideal; launches beside them."""
    rows = bytes_rows(cost)
    if not any(row["bytes"] for row in rows):
        return None
    names = [escape(row["name"]) for row in rows]
    traces: list[dict[str, Any]] = []
    colour: dict[str, str] = {}
    for name, row in zip(names, rows, strict=True):
        for label, size in row["parts"]:
            if not size:
                continue
            shown = escape(label, 28)
            colour.setdefault(shown, SEGMENTS[len(colour) % len(SEGMENTS)])
            wide = size > 0.09 * max(r["bytes"] for r in rows)
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "y": [name],
                    "x": [size / 1e6],
                    "name": shown,
                    "showlegend": False,
                    "text": [shown if wide else ""],
                    "textposition": "inside",
                    "insidetextanchor": "middle",
                    "textangle": 0,
                    "hovertemplate": f"{shown}: {amount(size)}<extra></extra>",
                    "marker": {
                        "color": colour[shown],
                        "line": {"width": 1, "color": "#ffffff"},
                        **hatch(BY_COLOUR[colour[shown]]),
                    },
                }
            )
    traces.append(
        {
            "type": "bar",
            "orientation": "h",
            "y": names,
            "x": [row["launches"] for row in rows],
            "text": [f" {row['launches']}" for row in rows],
            "textposition": "outside",
            "cliponaxis": False,
            "marker": {"color": COLOURS["skip"]},
            "xaxis": "x2",
            "yaxis": "y2",
            "showlegend": False,
            "hovertemplate": "%{x} launches<extra></extra>",
        }
    )
    notes = [
        {"x": row["bytes"] / 1e6, "y": name, "text": f" {amount(row['bytes'])}", "showarrow": False, "xanchor": "left"}
        for name, row in zip(names, rows, strict=True)
    ]
    most = max(row["bytes"] for row in rows) / 1e6
    launches = max(row["launches"] for row in rows)
    layout = {
        "barmode": "stack",
        "yaxis": _names(names),
        "yaxis2": {"anchor": "x2", "autorange": "reversed", "showticklabels": False, "type": "category"},
        "xaxis": {"domain": [0, 0.78], "title": {"text": "bytes moved, MB"}, "range": [0, most * 1.2]},
        "xaxis2": {"domain": [0.83, 1], "title": {"text": "launches"}, "range": [0, launches * 1.35], "nticks": 4},
        "annotations": notes,
    }
    return chart(traces, layout, 210)


# ---------------------------------------------------------------------------------------------------------- candidates


def _dots(rows: Sequence[Json], low: str, mid: str, high: str, span: str) -> tuple[list[dict[str, Any]], list[str]]:
    """One dot with its interval per row, coloured and shaped by tool, labelled at the right."""
    labels = shorten_uniquely(row["name"] for row in rows)
    traces = []
    for label, row in zip(labels, rows, strict=True):
        time = row[span]
        colour = COLOURS.get(row["tool"], COLOURS["rest"])
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [time[mid]],
                "y": [label],
                "cliponaxis": False,
                "marker": {"color": colour, "size": 12, "symbol": symbol(row["tool"], hollow=row.get("hollow", False))},
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [time[high] - time[mid]],
                    "arrayminus": [time[mid] - time[low]],
                    "color": colour,
                    "thickness": 3,
                    "width": 5,
                },
                "hovertemplate": f"{label}<br>{duration(time[low])} to {duration(time[high])}<extra></extra>",
                "showlegend": False,
            }
        )
        traces.append(
            {
                "type": "scatter",
                "mode": "text",
                "x": [time[high]],
                "y": [label],
                "text": [f"   {row['label']}"],
                "textposition": "middle right",
                "cliponaxis": False,
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    return traces, labels


def intervals(
    rows: Sequence[Json], low: str, mid: str, high: str, floor_us: float | None, title: str, key: str = "time_us"
) -> Chart | None:
    """Dots with intervals over a time axis from zero (logarithmic over a factor of 20), with the floor as a line."""
    if not rows:
        return None
    traces, labels = _dots(rows, low, mid, high, key)
    slowest = max(row[key][high] for row in rows)
    fastest = min([row[key][low] for row in rows] + ([floor_us] if floor_us else []))
    logarithmic = slowest > 20 * fastest > 0
    axis: dict[str, Any] = {"title": {"text": title}, "type": "linear", "range": [0, slowest * 1.4]}
    if logarithmic:
        low_end, high_end = math.log10(fastest / 1.5), math.log10(slowest)
        axis |= {"type": "log", "range": [low_end, high_end + 0.4 * (high_end - low_end)], "dtick": "D2"}
    shapes, notes = [], []
    if floor_us:
        line = {"color": COLOURS["floor"], "width": 2, "dash": "dash"}
        shapes.append({"type": "line", "x0": floor_us, "x1": floor_us, "y0": 0, "y1": 1, "yref": "paper", "line": line})
        place = math.log10(floor_us) if logarithmic else floor_us
        text = f"floor {duration(floor_us)}"
        notes.append(
            {
                "x": place,
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "text": text,
                "showarrow": False,
                "xanchor": "left",
            }
        )
    names = _names(labels) | {"categoryorder": "array", "categoryarray": labels, "range": [len(labels) - 0.4, -0.6]}
    del names["autorange"]  # the range is given, reversed already
    layout = {
        "yaxis": names,
        "xaxis": axis,
        "shapes": shapes,
        "annotations": notes,
        "margin": {"l": 8, "r": 16, "t": 26, "b": 44},
    }
    return chart(traces, layout, 92 + 34 * len(rows))


def by_wall(validation: Json) -> bool:
    """Whether wall time decides: the region is launch-bound."""
    return outcome.by_wall(str((validation.get("conditions") or {}).get("decided_by", "")))


def decided_us(candidate: Json, validation: Json) -> Mapping[str, float] | None:
    """low, median, high of the time that decides: the device's, or where wall time does the host's of one call; None
    where that was not taken. The interval of a wall time is its ratio's to eager, in eager's wall time.
    """
    time: Mapping[str, float] = candidate["time_us"]
    if not by_wall(validation):
        return time
    wall, against = candidate.get("wall_us"), candidate.get("ratio_to_eager")
    if wall is None:
        return None
    middle = against["median"] if against else 1.0
    return {"median": wall, **{end: wall * (against[end] / middle if against else 1.0) for end in ("low", "high")}}


def candidate_rows(validation: Json) -> list[dict[str, Any]]:
    """Candidates that were timed, fastest first by what decides: name, tool, time_us, decided_us, speed-up over eager,
    label.
    """
    rows = []
    for candidate in validation.get("candidates", ()):
        if candidate.get("status") != "ok" or not candidate.get("time_us"):
            continue
        decided = decided_us(candidate, validation)
        if decided is None:
            continue
        against = candidate.get("ratio_to_eager")
        speedup = 1 / against["median"] if against and against["median"] else None
        label = duration(decided["median"])
        if speedup is not None and candidate["name"] != "eager":
            label += f" · {factor(speedup)}"
        rows.append({**candidate, "decided_us": decided, "speedup": speedup, "label": label})
    return sorted(rows, key=lambda row: row["decided_us"]["median"])


def candidates(validation: Json) -> Chart | None:
    """Measured time of each candidate with its interval, eager among them; of device times with the floor, which says
    nothing where the host sets the pace.
    """
    wall = by_wall(validation)
    title = f"{'wall' if wall else 'device'} time of one call, µs"
    floor_us = None if wall else validation.get("floor_us")
    return intervals(candidate_rows(validation), "low", "median", "high", floor_us, title, "decided_us")


def alternatives(advice: Json) -> Chart | None:
    """Predicted time range of each alternative that has one, and the floor. Hollow: the rule does not admit it."""
    rows = []
    for option in advice.get("alternatives", ()):
        if not option.get("time_us"):
            continue
        lines = option.get("effort_lines") or 0
        effort = f"{lines:,} {'line' if lines == 1 else 'lines'}" if lines else "no code"
        rows.append(
            {
                "name": option.get("candidate") or option["tool"],
                "tool": option["tool"],
                "time_us": option["time_us"],
                "hollow": not option.get("admitted", True),
                "label": f"{duration(option['time_us']['mid'])} · {effort}",
            }
        )
    if len(rows) < 2:
        return None  # eager alone: nothing to compare it with
    rows.sort(key=lambda row: row["time_us"]["mid"])
    return intervals(rows, "low", "mid", "high", advice.get("floor_us"), "predicted time of one call, µs")


def comparison(left: Json, right: Json) -> Chart | None:
    """Two validations' candidates on one axis: filled is the first, hollow the second."""
    sides = (("A", False, left), ("B", True, right))
    rows = [
        {**row, "name": f"{row['name']} · {side}", "hollow": hollow}
        for side, hollow, validation in sides
        for row in candidate_rows(validation)
    ]
    rows.sort(key=lambda row: (row["name"].rsplit(" · ", 1)[0], row["name"]))
    return intervals(rows, "low", "median", "high", None, "device time of one call, µs")
