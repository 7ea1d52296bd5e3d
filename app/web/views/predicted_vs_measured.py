"""Predicted against measured, for one region: each candidate's predicted time beside what was then measured."""

from __future__ import annotations

import math
from typing import Any

from app.units import duration
from app.web.charts.figure import COLOURS, Chart, Json, chart
from app.web.charts.hatching import symbol
from app.web.charts.plotly import candidate_rows
from app.web.views.accuracy import BAND
from app.web.views.names import shorten_uniquely
from profiler.hardware import find_device


def rows(validation: Json | None, advice: Json | None = None) -> list[dict[str, Any]]:
    """One row for each candidate that was predicted and measured on one kind of GPU, fastest measured first.

    Keys: name, tool, predicted {low, mid, high} and measured {low, median, high} in µs, ratio (predicted over
    measured), inside (whether within BAND of it), covered (whether the measured median lies in the predicted range).
    advice: where the validation has none of its own from before; of another device it says nothing here.
    """
    if not validation:
        return []
    before = validation.get("advice_before") or {}
    before = before if before.get("alternatives") else advice or {}
    device = find_device(validation.get("device"))
    if device is None or find_device(before.get("device")) != device:
        return []
    options = {o.get("candidate"): o["time_us"] for o in before.get("alternatives") or () if o.get("time_us")}
    found = []
    for row in candidate_rows(validation):
        predicted = options.get(row["name"])
        if predicted is None:
            continue
        measured = row["time_us"]
        ratio = predicted["mid"] / measured["median"]
        found.append(
            {
                "name": row["name"],
                "tool": row["tool"],
                "predicted": predicted,
                "measured": measured,
                "ratio": ratio,
                "inside": abs(ratio - 1) <= BAND,
                "covered": predicted["low"] <= measured["median"] <= predicted["high"],
            }
        )
    return found


def prediction_chart(found: list[dict[str, Any]]) -> Chart | None:
    """One row a candidate: the predicted range as a bar with a hollow mark, what was measured as a full one on it."""
    if not found:
        return None
    labels = shorten_uniquely(row["name"] for row in found)
    traces: list[dict[str, Any]] = []
    for label, row in zip(labels, found, strict=True):
        predicted, measured, tool = row["predicted"], row["measured"], row["tool"]
        colour = COLOURS.get(tool, COLOURS["rest"])
        traces.append(_mark(label, predicted["mid"], predicted, colour, symbol(tool, hollow=True), 15, 3, "predicted"))
        traces.append(_mark(label, measured["median"], measured, colour, symbol(tool), 10, 6, "measured"))
        traces.append(
            {
                "type": "scatter", "mode": "text", "x": [max(predicted["high"], measured["high"])], "y": [label],
                "text": [f"   {duration(measured['median'])}, predicted {duration(predicted['mid'])}"],
                "textposition": "middle right", "cliponaxis": False, "hoverinfo": "skip", "showlegend": False,
            }
        )  # fmt: skip
    times = [row[kind][end] for row in found for kind in ("predicted", "measured") for end in ("low", "high")]
    least, most = min(times), max(times)
    axis: dict[str, Any] = {
        "title": {"text": "device time of one call, µs"},
        "type": "linear",
        "range": [0, most * 1.6],
    }
    if most > 20 * least > 0:
        low, high = math.log10(least / 1.5), math.log10(most)
        axis |= {"type": "log", "range": [low, high + 0.6 * (high - low)], "dtick": "D2"}
    layout = {
        "yaxis": {"type": "category", "automargin": True, "ticklabelstandoff": 8, "showgrid": False, "tickvals": labels,
                  "categoryorder": "array", "categoryarray": labels, "range": [len(labels) - 0.4, -0.6]},
        "xaxis": axis,
    }  # fmt: skip
    return chart(traces, layout, 92 + 38 * len(found))


def _mark(
    label: str, at: float, span: Json, colour: str, shape: str, size: int, thick: int, word: str
) -> dict[str, Any]:
    """One time with its range; the range of what was measured is the thicker bar, inside the predicted one."""
    return {
        "type": "scatter", "mode": "markers", "x": [at], "y": [label], "cliponaxis": False, "showlegend": False,
        "marker": {"color": colour, "size": size, "symbol": shape, "line": {"width": 2, "color": colour}},
        "error_x": {
            "type": "data", "symmetric": False, "array": [span["high"] - at], "arrayminus": [at - span["low"]],
            "color": colour, "thickness": thick, "width": 5 if thick == 3 else 0,
        },
        "hovertemplate": f"{label}<br>{word} {duration(at)}, {duration(span['low'])} to {duration(span['high'])}"
        "<extra></extra>",
    }  # fmt: skip
