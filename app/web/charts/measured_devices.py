"""Candidates on several kinds of GPU as one chart: how much faster than eager each is, there. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from app.archive.by_device import candidates
from app.objects.record import MeasuredCandidate, MeasuredDevice
from app.units import duration, factor
from app.web.charts.figure import BY_COLOUR, SEGMENTS, Chart, chart, escape, hatch
from kernels.measure.outcome import by_wall

if TYPE_CHECKING:
    import plotly.graph_objects as go

BAR_PX = 15
EAGER = "eager"


class Row(TypedDict):
    """One candidate. on: for each device its entry, None where that device did not time it."""

    name: str
    on: list[MeasuredCandidate | None]


def candidate_rows(items: Sequence[MeasuredDevice]) -> list[Row]:
    """One row a candidate. items: one for each device."""
    rows: list[Row] = []
    for name in candidates(items):
        on = [next((c for c in item["candidates"] if c["name"] == name), None) for item in items]
        rows.append({"name": name, "on": [c if c and c["time_us"] else None for c in on]})
    return rows


def speedup_chart(items: Sequence[MeasuredDevice]) -> Chart | None:
    """Speed-up over eager on the same device, a bar for each device; None where no device has anything but eager."""
    names = [row["name"] for row in candidate_rows(items) if row["name"] != EAGER]
    traces = [_device_bars(place, item, names) for place, item in enumerate(items)]
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


def describe_time(item: MeasuredDevice, candidate: MeasuredCandidate) -> str:
    """The time that decided there: the device's, or the wall time of a launch-bound region."""
    if by_wall(item["decided_by"]):
        return f"{duration(candidate['wall_us'])} wall time"
    time_us = candidate["time_us"]
    return duration(time_us["median"] if time_us else None)


def _device_bars(place: int, item: MeasuredDevice, names: Sequence[str]) -> go.Bar:
    import plotly.graph_objects as go

    colour = SEGMENTS[place % len(SEGMENTS)]
    timed = {c["name"]: c for c in item["candidates"] if c["time_us"] and c["ratio_to_eager"]}
    speedups = {n: 1 / ratio["median"] for n, c in timed.items() if (ratio := c["ratio_to_eager"])}
    faster = [speedups.get(n) for n in names]
    labels = [
        f"{escape(n)} on {escape(item['device'])}: {factor(x)}, {describe_time(item, timed[n])}"
        if x is not None
        else ""
        for n, x in zip(names, faster, strict=True)
    ]
    return go.Bar(
        orientation="h", name=escape(item["device"]), x=faster, y=list(names), hovertext=labels, hoverinfo="text",
        text=["" if x is None else factor(x) for x in faster], textposition="outside", cliponaxis=False,
        marker={"color": colour, **hatch(BY_COLOUR[colour])},
    )  # fmt: skip
