"""Predicted against measured: each candidate of one region, and the candidates of every record. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypedDict

from app.objects.advice import Advice
from app.objects.common import Interval, Range
from app.objects.record import ArchiveRecord, Validation
from app.units import duration
from app.web.charts.figure import COLOURS, Chart, Figure, chart, escape, symbol
from app.web.charts.names import shorten_uniquely
from app.web.charts.timed import candidate_rows, timed_options
from app.web.labels import TOOL_LABELS
from profiler.hardware import find_device

BAND = 0.2
"""A prediction counts as right within 20 % of the measured speed-up (the design's target)."""

Record = Validation | ArchiveRecord


class Row(TypedDict):
    """A candidate that was predicted and measured. Times in µs; ratio: predicted over measured; inside: within BAND of
    it; covered: the measured median lies in the predicted range."""

    name: str
    tool: str
    predicted: Range
    measured: Interval
    ratio: float
    inside: bool
    covered: bool


def prediction_rows(validation: Record | None, advice: Advice | None = None) -> list[Row]:
    """One row for each candidate that was predicted and measured on one kind of GPU, fastest measured first.

    advice: where the validation has none of its own from before; of another device it says nothing here.
    """
    if not validation:
        return []
    of_validation = validation.get("advice_before")
    before = of_validation if of_validation and of_validation.get("alternatives") else advice
    device = find_device(validation.get("device"))
    if before is None or device is None or find_device(before.get("device")) != device:
        return []
    options = {o.candidate: o.time_us for o in timed_options(before)}
    rows: list[Row] = []
    for row in candidate_rows(validation):
        predicted, measured = options.get(row["name"]), row["time_us"]
        if predicted is None or measured is None:
            continue
        ratio = predicted["mid"] / measured["median"]
        rows.append(
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
    return rows


def prediction_chart(rows: Sequence[Row]) -> Chart | None:
    """One row a candidate: the predicted range as a bar with a hollow mark, what was measured as a full one on it."""
    if not rows:
        return None
    labels = shorten_uniquely(row["name"] for row in rows)
    traces: list[Figure] = []
    for label, row in zip(labels, rows, strict=True):
        predicted, measured, tool = row["predicted"], row["measured"], row["tool"]
        colour = COLOURS.get(tool, COLOURS["rest"])
        hollow, full = symbol(tool, hollow=True), symbol(tool)
        low, high = predicted["low"], predicted["high"]
        traces.append(_mark(label, predicted["mid"], low, high, colour, hollow, 15, 3, "predicted"))
        low, high = measured["low"], measured["high"]
        traces.append(_mark(label, measured["median"], low, high, colour, full, 10, 6, "measured"))
        traces.append(
            {
                "type": "scatter", "mode": "text", "x": [max(predicted["high"], measured["high"])], "y": [label],
                "text": [f"   {duration(measured['median'])}, predicted {duration(predicted['mid'])}"],
                "textposition": "middle right", "cliponaxis": False, "hoverinfo": "skip", "showlegend": False,
            }
        )  # fmt: skip
    spans = [span for row in rows for span in (row["predicted"], row["measured"])]
    least, most = min(s["low"] for s in spans), max(s["high"] for s in spans)
    axis: Figure = {
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
    return chart(traces, layout, 92 + 38 * len(rows))


def _mark(
    label: str, at: float, low: float, high: float, colour: str, shape: str, size: int, thick: int, word: str
) -> Figure:
    """One time with its range; the range of what was measured is the thicker bar, inside the predicted one."""
    return {
        "type": "scatter", "mode": "markers", "x": [at], "y": [label], "cliponaxis": False, "showlegend": False,
        "marker": {"color": colour, "size": size, "symbol": shape, "line": {"width": 2, "color": colour}},
        "error_x": {
            "type": "data", "symmetric": False, "array": [high - at], "arrayminus": [at - low],
            "color": colour, "thickness": thick, "width": 5 if thick == 3 else 0,
        },
        "hovertemplate": f"{label}<br>{word} {duration(at)}, {duration(low)} to {duration(high)}"
        "<extra></extra>",
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- of records


class RecordRow(TypedDict):
    """A candidate of a record that was predicted and measured: speed-ups over eager, above 1 is faster."""

    region: str
    name: str
    tool: str
    device: str
    date: str
    archived: bool
    predicted: float
    measured: float


class Summary(TypedDict):
    """within: share of rows inside BAND; followed: geometric mean of the regret, worst: the largest one."""

    regions: int
    devices: list[str]
    within: float | None
    followed: float | None
    worst: float | None


def record_rows(validations: Iterable[Record]) -> list[RecordRow]:
    """One row per candidate that was predicted and measured, eager left out: it is what speed-ups are against."""
    rows: list[RecordRow] = []
    for validation in validations:
        predicted = {o.candidate: o.mid_us for o in timed_options(validation.get("advice_before")) if o.candidate}
        base_us = predicted.get("eager")
        if not base_us:
            continue
        for candidate in validation.get("candidates") or ():
            time_us, against = predicted.get(candidate["name"]), candidate.get("ratio_to_eager")
            if candidate["name"] == "eager" or candidate["status"] != "ok" or not time_us or not against:
                continue
            rows.append(
                {
                    "region": validation.get("name") or "region",
                    "name": candidate["name"],
                    "tool": candidate["tool"],
                    "device": validation.get("device") or "",
                    "date": validation.get("date") or "",
                    "archived": bool(validation.get("archived")),
                    "predicted": base_us / time_us,
                    "measured": 1 / against["median"],
                }
            )
    return rows


def advised_candidate(validation: Record) -> str | None:
    """The candidate that following the advice before measuring would have run; eager where it said to leave it."""
    advice = validation.get("advice_before")
    if not advice or not advice.get("tool"):
        return None
    if advice["tool"] == "skip":
        return "eager"
    alternatives = advice.get("alternatives") or ()
    options = [o for o in alternatives if o["tool"] == advice["tool"] and o.get("admitted", True)]
    same_mode = [o for o in options if o.get("mode") == advice.get("mode")]
    timed = [(time["mid"], o["candidate"]) for o in same_mode or options if (time := o.get("time_us"))]
    return min(timed, key=lambda pair: pair[0])[1] if timed else None


def regret(validation: Record) -> float | None:
    """Measured time of the advised candidate over the best measured one; 1 is a perfect choice, None unknown."""
    times = {c["name"]: t["median"] for c in validation.get("candidates") or () if (t := c.get("time_us"))}
    choice = advised_candidate(validation)
    if choice is None or choice not in times:
        return None
    return times[choice] / min(times.values())


def summarize_records(validations: Sequence[Record]) -> Summary:
    """How good predictions and advice were over all of them."""
    compared = record_rows(validations)
    inside = [row for row in compared if abs(row["predicted"] / row["measured"] - 1) <= BAND]
    regrets = [r for r in (regret(v) for v in validations) if r is not None]
    return {
        "regions": len({v.get("region") for v in validations if v.get("device")}),
        "devices": sorted({row["device"] for row in compared}),
        "within": len(inside) / len(compared) if compared else None,
        "followed": math.exp(sum(map(math.log, regrets)) / len(regrets)) if regrets else None,
        "worst": max(regrets) if regrets else None,
    }


TICKS = [0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100]
"""Speed-ups marked on the logarithmic axes, dense where most of them lie."""


def record_chart(compared: Sequence[RecordRow]) -> Chart | None:
    """Predicted against measured speed-up of each candidate over eager, with the band of 20 % either side."""
    if not compared:
        return None
    values = [v for row in compared for v in (row["predicted"], row["measured"])]
    low, high = min(values) / 1.3, max(values) * 1.3
    traces: list[Figure] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [low, high],
            "y": [low * scale, high * scale],
            "line": {
                "color": COLOURS["rest"],
                "width": 2 if scale == 1 else 1,
                "dash": "solid" if scale == 1 else "dot",
            },
            "name": name,
            "hoverinfo": "skip",
        }
        for scale, name in ((1.0, "as predicted"), (1.2, "20 % faster"), (1 / 1.2, "20 % slower"))
    ]
    for tool in ("library", "compile", "triton", "cuda"):
        of_tool = [row for row in compared if row["tool"] == tool]
        if of_tool:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": [row["predicted"] for row in of_tool],
                    "y": [row["measured"] for row in of_tool],
                    "name": TOOL_LABELS[tool],
                    "text": [escape(f"{row['region']}: {row['name']}", 80) for row in of_tool],
                    "hovertemplate": "%{text}<br>predicted %{x:.2f}×, measured %{y:.2f}×<extra></extra>",
                    "marker": {"color": COLOURS[tool], "size": 10, "symbol": symbol(tool)},
                }
            )
    axis: Figure = {"type": "log", "range": [math.log10(low), math.log10(high)], "tickvals": TICKS}
    layout = {
        "xaxis": axis | {"title": {"text": "predicted speed-up over eager"}},
        "yaxis": axis | {"title": {"text": "measured speed-up over eager"}, "automargin": True},
        "margin": {"l": 56, "r": 16, "t": 8, "b": 48},
    }
    return chart(traces, layout, 420)
