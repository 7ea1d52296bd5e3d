"""Candidates on several kinds of GPU as one chart: how much faster than eager each is, there. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.archive.by_device import candidates
from app.units import duration, factor
from app.web.charts.figure import SEGMENTS, Chart, Json, chart, escape
from app.web.charts.hatching import BY_COLOUR, hatch
from kernels.measure.outcome import by_wall

BAR_PX = 15
EAGER = "eager"


def rows(items: Sequence[Json]) -> list[dict[str, Any]]:
    """One row a candidate: name, and `on`: for each item its entry, None where that device did not time it."""
    found: list[dict[str, Any]] = []
    for name in candidates(items):
        on = [next((c for c in item["candidates"] if c["name"] == name), None) for item in items]
        found.append({"name": name, "on": [c if c and c["time_us"] else None for c in on]})
    return found


def chart_of(items: Sequence[Json]) -> Chart | None:
    """Speed-up over eager on the same device, a bar for each device; None where no device has anything but eager."""
    names = [row["name"] for row in rows(items) if row["name"] != EAGER]
    traces = [_bars(place, item, names) for place, item in enumerate(items)]
    most = max((x for trace in traces for x in trace.x if x is not None), default=None)
    if most is None:
        return None
    layout = {
        "barmode": "group",
        "xaxis": {"title": {"text": "times as fast as eager there"}, "range": [0, 1.12 * max(most, 1.0)]},
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": True, "ticklabelstandoff": 8,
                  "showgrid": False, "tickvals": names, "ticktext": [escape(n) for n in names]},
        "shapes": [{"type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1, "yref": "paper",
                    "line": {"dash": "dash", "width": 1, "color": "#8a8f94"}}],
        "showlegend": True,
    }  # fmt: skip
    return chart(traces, layout, 110 + BAR_PX * len(names) * (len(items) + 1))


def time_told(item: Json, candidate: Json) -> str:
    """The time that decided there: the device's, or the wall time of a launch-bound region."""
    if by_wall(item["decided_by"]):
        return f"{duration(candidate['wall_us'])} wall time"
    return duration(candidate["time_us"]["median"])


def _bars(place: int, item: Json, names: Sequence[str]) -> Any:
    import plotly.graph_objects as go

    colour = SEGMENTS[place % len(SEGMENTS)]
    found = {c["name"]: c for c in item["candidates"] if c["time_us"] and c["ratio_to_eager"]}
    faster = [1 / found[n]["ratio_to_eager"]["median"] if n in found else None for n in names]
    told = [
        f"{escape(n)} on {escape(item['device'])}: {factor(x)}, {time_told(item, found[n])}" if x is not None else ""
        for n, x in zip(names, faster, strict=True)
    ]
    return go.Bar(
        orientation="h", name=escape(item["device"]), x=faster, y=list(names), hovertext=told, hoverinfo="text",
        text=["" if x is None else factor(x) for x in faster], textposition="outside", cliponaxis=False,
        marker={"color": colour, **hatch(BY_COLOUR[colour])},
    )  # fmt: skip
