"""Charts: the API's objects in, Plotly figures as dictionaries out. Pure functions; the browser only draws.

Each function gives None where there is nothing to draw. The rows behind a chart are what its table shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from app.objects.cost import Cost, CostOperation, Traffic
from app.objects.evidence import Figures
from app.objects.region import RegionBody
from app.objects.trace import Trace, TraceBody
from app.units import amount, duration, share
from app.web.charts.figure import BY_COLOUR, COLOURS, SEGMENTS, Chart, Figure, bar, chart, escape, hatch, symbol
from app.web.charts.names import id_of, shorten_uniquely
from app.web.charts.timed import candidate_rows, decided_by_wall
from app.web.labels import TOOL_LABELS
from app.web.long_lists import Rows, fold_smallest, heaviest

TOOLS = ("skip", "library", "compile", "triton", "cuda", "none", "rest")
"""The order in which advice is listed: least effort first, then what is without it, and what is no region."""

MAX_BARS = 14
"""Regions drawn one by one; the others are one named bar."""


def _name_axis(labels: Sequence[str]) -> Figure:
    """A category axis read from top to bottom."""
    # The names stand clear of the bars; a line along each row would strike through the labels of the marks.
    apart = {"automargin": True, "ticklabelstandoff": 8, "showgrid": False}
    return {"type": "category", "autorange": "reversed", **apart, "tickvals": [*labels]}


# ---------------------------------------------------------------------------------------------------- step by region


class StepRow(TypedDict):
    """A part of a step. id: of its region, None for what is none; share: of the step, None for one without a length."""

    name: str
    id: str | None
    tool: str
    time_us: float
    share: NotRequired[float | None]


def step_rows(trace: Trace | TraceBody, names: Sequence[str] | None = None) -> list[StepRow]:
    """Regions by time, the trace's named rests, other busy time and idle time. names: of its regions, in their order.

    A trace whose GPU is never busy or whose step has no length gives only the rows it can.
    """
    regions = trace.get("regions") or ()
    named = zip(regions, names or [r["name"] for r in regions], strict=True)
    by_time = sorted(named, key=lambda r: -(r[0].get("time_us_per_step") or 0.0))
    step_us = trace.get("step_time_us") or 0.0
    rows = [_region_row(region, name) for region, name in by_time if region.get("time_us_per_step")]
    if len(rows) > MAX_BARS:
        rows, others = rows[: MAX_BARS - 1], rows[MAX_BARS - 1 :]
        by_tool = {tool: [row for row in others if row["tool"] == tool] for tool in TOOLS}
        alone = sum(map(bool, by_tool.values())) == 1
        rows += [_together(alike, "" if alone else TOOL_LABELS[tool]) for tool, alike in by_tool.items() if alike]
    rows += [_rest_row(rest["name"], rest["time_us"]) for rest in trace.get("rests") or () if rest["time_us"]]
    busy = trace.get("gpu_busy_share")
    known_us = sum(row["time_us"] for row in rows)
    if busy is not None and step_us:
        outside_us = step_us * busy - known_us
        if outside_us > step_us * 1e-3:
            rows.append(_rest_row("kernels outside regions", outside_us))
        idle_us = step_us - max(step_us * busy, known_us)
        if idle_us > step_us * 1e-3:
            rows.append(_rest_row("GPU idle", idle_us))
    for row in rows:
        row["share"] = row["time_us"] / step_us if step_us else None
    return rows


def _region_row(region: RegionBody, name: str) -> StepRow:
    advice = region.get("advice")
    return {
        "name": name,
        "id": id_of(region),
        "tool": advice.get("tool", "none") if advice else "none",
        "time_us": region.get("busy_us_per_step") or region.get("time_us_per_step") or 0.0,
    }


def _together(regions: Sequence[StepRow], words: str) -> StepRow:
    """Small regions of one advice as one row: they are regions still. words: the advice, "" where all have it."""
    if len(regions) == 1:
        return regions[0]
    name = f"{len(regions)} smaller regions{f': {words}' if words else ''}"
    return {"name": name, "id": None, "tool": regions[0]["tool"], "time_us": sum(row["time_us"] for row in regions)}


def _rest_row(name: str, time_us: float) -> StepRow:
    return {"name": name, "id": None, "tool": "rest", "time_us": time_us}


def step_by_region(rows: Sequence[StepRow]) -> Chart | None:
    """Horizontal bars: where the step goes, coloured by what to do about it. rows: of `step_rows`."""
    if not rows:
        return None
    labels = shorten_uniquely((row["name"] for row in rows), 42)
    traces: list[Figure] = []
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
                "text": [f" {duration(row['time_us'])} · {share(row.get('share'))}" for _, row in chosen],
                "textposition": "outside",
                "cliponaxis": False,
                "hovertemplate": "%{y}<br>%{text}<extra></extra>",
                "marker": bar(tool),
            }
        )
    widest = max(row["time_us"] for row in rows) / 1e3
    layout = {
        "barmode": "overlay",
        "yaxis": _name_axis(labels) | {"categoryorder": "array", "categoryarray": labels},
        "xaxis": {"title": {"text": "time in one step, ms"}, "range": [0, widest * 1.32], "rangemode": "tozero"},
        "showlegend": True,
    }
    return chart(traces, layout, step_height(rows))


def step_height(rows: Sequence[StepRow]) -> int:
    """px of the chart of so many rows; 0 for none."""
    return 96 + 28 * len(rows) if rows else 0


# --------------------------------------------------------------------------------------------------------------- bytes


def total_bytes(traffic: Traffic) -> int:
    """Bytes read and written; where Inductor counted them, both together only."""
    stored: Mapping[str, object] = traffic
    if "bytes_moved" in stored:
        return int(traffic["bytes_moved"])
    return int((traffic["bytes_read"] or 0) + (traffic["bytes_written"] or 0))  # as older servers stored it


def _working_operations(cost: Cost) -> list[CostOperation]:
    """The operations that launch or move anything."""
    return [o for o in cost["operations"] if total_bytes(o) or o.get("launches")]


def operation_rows(cost: Cost) -> Rows[CostOperation]:
    """The operations that launch or move anything, as the tables draw them."""
    return heaviest(_working_operations(cost), total_bytes)


class BytesRow(TypedDict):
    """One way to run a region. parts: (label, bytes)."""

    name: str
    parts: list[tuple[str, int]]
    bytes: int
    launches: int


def bytes_rows(cost: Cost) -> list[BytesRow]:
    """Three rows (unfused, as torch.compile fuses, ideal), each with its parts, bytes and launches."""
    return [
        {
            "name": "unfused (eager)",
            "parts": fold_smallest([(o["label"], total_bytes(o)) for o in _working_operations(cost)]),
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


def bytes_moved(cost: Cost) -> Chart | None:
    """Stacked bars: bytes of each operation unfused, of each kernel fused, and of the ideal, with their launches."""
    rows = bytes_rows(cost)
    if not any(row["bytes"] for row in rows):
        return None
    names = [escape(row["name"]) for row in rows]
    traces: list[Figure] = []
    colour: dict[str, str] = {}
    for name, row in zip(names, rows, strict=True):
        for label, size in row["parts"]:
            if not size:
                continue
            short = escape(label, 28)
            colour.setdefault(short, SEGMENTS[len(colour) % len(SEGMENTS)])
            wide = size > 0.09 * max(r["bytes"] for r in rows)
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "y": [name],
                    "x": [size / 1e6],
                    "name": short,
                    "showlegend": False,
                    "text": [short if wide else ""],
                    "textposition": "inside",
                    "insidetextanchor": "middle",
                    "textangle": 0,
                    "hovertemplate": f"{short}: {amount(size)}<extra></extra>",
                    "marker": {
                        "color": colour[short],
                        "line": {"width": 1, "color": "#ffffff"},
                        **hatch(BY_COLOUR[colour[short]]),
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
        "yaxis": _name_axis(names),
        "yaxis2": {"anchor": "x2", "autorange": "reversed", "showticklabels": False, "type": "category"},
        "xaxis": {"domain": [0, 0.78], "title": {"text": "bytes moved, MB"}, "range": [0, most * 1.2]},
        "xaxis2": {"domain": [0.83, 1], "title": {"text": "launches"}, "range": [0, launches * 1.35], "nticks": 4},
        "annotations": notes,
    }
    return chart(traces, layout, 210)


# ---------------------------------------------------------------------------------------------------------- candidates


@dataclass(frozen=True, slots=True)
class Dot:
    """A time with its interval in µs, at its middle. label: stands at its right; hollow: not measured, or not here."""

    name: str
    tool: str
    low: float
    middle: float
    high: float
    label: str
    hollow: bool = False


def _draw_dots(dots: Sequence[Dot]) -> tuple[list[Figure], list[str]]:
    """One dot with its interval per row, coloured and shaped by tool, labelled at the right."""
    labels = shorten_uniquely(dot.name for dot in dots)
    traces: list[Figure] = []
    for label, dot in zip(labels, dots, strict=True):
        colour = COLOURS.get(dot.tool, COLOURS["rest"])
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [dot.middle],
                "y": [label],
                "cliponaxis": False,
                "marker": {"color": colour, "size": 12, "symbol": symbol(dot.tool, hollow=dot.hollow)},
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [dot.high - dot.middle],
                    "arrayminus": [dot.middle - dot.low],
                    "color": colour,
                    "thickness": 3,
                    "width": 5,
                },
                "hovertemplate": f"{label}<br>{duration(dot.low)} to {duration(dot.high)}<extra></extra>",
                "showlegend": False,
            }
        )
        traces.append(
            {
                "type": "scatter",
                "mode": "text",
                "x": [dot.high],
                "y": [label],
                "text": [f"   {dot.label}"],
                "textposition": "middle right",
                "cliponaxis": False,
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    return traces, labels


def intervals(dots: Sequence[Dot], floor_us: float | None, title: str) -> Chart | None:
    """Dots with intervals over a time axis from zero (logarithmic over a factor of 20), with the floor as a line."""
    if not dots:
        return None
    traces, labels = _draw_dots(dots)
    slowest = max(dot.high for dot in dots)
    fastest = min([dot.low for dot in dots] + ([floor_us] if floor_us else []))
    logarithmic = slowest > 20 * fastest > 0
    axis: Figure = {"title": {"text": title}, "type": "linear", "range": [0, slowest * 1.4]}
    if logarithmic:
        low_end, high_end = math.log10(fastest / 1.5), math.log10(slowest)
        axis |= {"type": "log", "range": [low_end, high_end + 0.4 * (high_end - low_end)], "dtick": "D2"}
    shapes: list[Figure] = []
    notes: list[Figure] = []
    if floor_us:
        line = {"color": COLOURS["floor"], "width": 2, "dash": "dash"}
        shapes.append({"type": "line", "x0": floor_us, "x1": floor_us, "y0": 0, "y1": 1, "yref": "paper", "line": line})
        notes.append(
            {
                "x": math.log10(floor_us) if logarithmic else floor_us,
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "text": f"floor {duration(floor_us)}",
                "showarrow": False,
                "xanchor": "left",
            }
        )
    names = _name_axis(labels) | {"categoryorder": "array", "categoryarray": labels, "range": [len(labels) - 0.4, -0.6]}
    del names["autorange"]  # the range is given, reversed already
    layout = {
        "yaxis": names,
        "xaxis": axis,
        "shapes": shapes,
        "annotations": notes,
        "margin": {"l": 8, "r": 16, "t": 26, "b": 44},
    }
    return chart(traces, layout, 92 + 34 * len(dots))


def candidates(validation: Figures) -> Chart | None:
    """Measured time of each candidate with its interval, eager among them; of device times with the floor, which says
    nothing where the host sets the pace.
    """
    wall = decided_by_wall(validation)
    dots = [
        Dot(r["name"], r["tool"], time["low"], time["median"], time["high"], r["label"])
        for r in candidate_rows(validation)
        for time in [r["decided_us"]]
    ]
    floor_us = None if wall else validation.get("floor_us")
    return intervals(dots, floor_us, f"{'wall' if wall else 'device'} time of one call, µs")


def comparison(left: Figures, right: Figures) -> Chart | None:
    """Two validations' candidates on one axis: filled is the first, hollow the second."""
    dots = [
        Dot(f"{r['name']} · {side}", r["tool"], time["low"], time["median"], time["high"], r["label"], hollow)
        for side, hollow, validation in (("A", False, left), ("B", True, right))
        for r in candidate_rows(validation)
        for time in [r["time_us"]]
        if time is not None
    ]
    dots.sort(key=lambda dot: (dot.name.rsplit(" · ", 1)[0], dot.name))
    return intervals(dots, None, "device time of one call, µs")
