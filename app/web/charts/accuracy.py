"""Charts of the benchmark of the advice: its figures in, Plotly figures out. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypedDict

from app.accuracy import count_reasons, page, table
from app.accuracy.drawing import REGRETS, TICKS, marks, tool_of
from app.accuracy.score import SHARE
from app.accuracy.totals import BAND, within
from app.objects.accuracy import AccuracyFigures, ScoreFigures
from app.units import percent, ratio
from app.web.charts.figure import COLOURS, SEGMENTS, Chart, Figure, bar, chart, escape, symbol
from app.web.charts.names import shorten_uniquely
from app.web.labels import TOOL_LABELS

FARTHEST = 4.0
"""Where the axis of the distribution ends: beyond it only how bad the worst policies are could be read."""
OTHERS = tuple(colour for colour in SEGMENTS if colour != COLOURS["cuda"])
"""The policies' lines; the advice's own has the colour left."""
TOOLS = ("eager", "library", "compile", "triton", "cuda")


class Point(TypedDict):
    """A candidate with a prediction: speed-ups over eager. within: BAND of the measured one."""

    region: str
    record: str
    name: str
    tool: str
    advised: bool
    predicted: float
    measured: float
    within: bool


class Quantiles(TypedDict):
    """A policy's distribution. at: the regret that so many of its regions do not exceed, in QUANTILES' order."""

    name: str
    regions: int
    at: list[float]


class AccuracyPage(TypedDict):
    """Context of accuracy.html: tables as `app.accuracy.table` makes them, and the charts."""

    benchmark: AccuracyFigures
    points: list[Point]
    wrong: Sequence[ScoreFigures]
    targets: list[table.Row]
    advice_rows: list[table.Row]
    left_over_rows: list[table.Row]
    policy_rows: list[table.Row]
    region_rows: list[table.Row]
    claim_rows: list[table.Row]
    count_rows: list[table.Row]
    quantile_rows: list[Quantiles]
    quantile_names: list[str]
    calibration_chart: Chart | None
    regret_chart: Chart | None
    distribution_chart: Chart | None


def list_points(figures: AccuracyFigures) -> list[Point]:
    """Every candidate with a prediction, the advised ones first."""
    points: list[Point] = [
        {
            "region": s["name"],
            "record": s["record"],
            "name": name,
            "tool": tool_of(name),
            "advised": name == s["counted"],
            "predicted": predicted,
            "measured": measured,
            "within": within(predicted, measured),
        }
        for s in figures["scores"]
        for name, predicted, measured in s["calibration"]
    ]
    return sorted(points, key=lambda p: (not p["advised"], p["region"], p["record"], p["name"]))


def _axis(title: str, ticks: Sequence[float], low: float, high: float) -> Figure:
    values = marks(ticks, low, high)
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": values,
        "ticktext": [f"{t:g}" for t in values],
        "title": {"text": title},
        "automargin": True,
    }


def calibration_chart(figures: AccuracyFigures) -> Chart | None:
    """Predicted against measured speed-up over eager, both logarithmic, with the band of 20 % round the measured one.

    Filled: what the advice comes to. Hollow: the other candidates.
    """
    points = list_points(figures)
    if not points:
        return None
    values = [v for p in points for v in (p["predicted"], p["measured"])]
    low, high = min(values) / 1.3, max(values) * 1.3
    traces: list[Figure] = [
        {
            "type": "scatter", "mode": "lines", "x": [low * scale, high * scale], "y": [low, high], "name": name,
            "line": {"color": COLOURS["rest"], "dash": "solid" if scale == 1 else "dot"},
            "hoverinfo": "skip", "showlegend": in_legend,
        }
        for scale, name, in_legend in ((1.0, "as predicted", True), (1 + BAND, "20 % off", True), (1 - BAND, "", False))
    ]  # fmt: skip
    for tool in TOOLS:
        for advised in (True, False):
            chosen = [p for p in points if p["tool"] == tool and p["advised"] is advised]
            if not chosen:
                continue
            name = TOOL_LABELS[tool] + (", advised" if advised else "")
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": [p["predicted"] for p in chosen],
                    "y": [p["measured"] for p in chosen],
                    "name": name,
                    "text": [f"{escape(p['region'], 40)}<br>{escape(p['name'], 50)}" for p in chosen],
                    "hovertemplate": "%{text}<br>predicted %{x:.2f}×, measured %{y:.2f}×<extra></extra>",
                    "marker": {
                        "color": COLOURS[tool],
                        "size": 11 if advised else 8,
                        "symbol": symbol(tool, hollow=not advised),
                        "line": {"width": 1.5, "color": COLOURS[tool]},
                    },
                }
            )
    layout = {
        "xaxis": _axis("predicted speed-up over eager", TICKS, low, high),
        "yaxis": _axis("measured speed-up over eager", TICKS, low, high),
        "margin": {"l": 56, "r": 16, "t": 8, "b": 48},
    }
    return chart(traces, layout, 480)


def regret_chart(figures: AccuracyFigures) -> Chart | None:
    """A bar for each record that counts, the worst first: what was advised over the best measured."""
    rows = sorted((s for s in figures["scores"] if s["column"] != SHARE), key=lambda s: -s["regret"])
    if not rows:
        return None
    labels = _name_records(rows)
    traces = []
    for tool in TOOLS:
        chosen = [(label, s) for label, s in zip(labels, rows, strict=True) if s["counted_tool"] == tool]
        if chosen:
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": TOOL_LABELS[tool],
                    "y": [label for label, _ in chosen],
                    "x": [s["regret"] - 1 for _, s in chosen],
                    "base": 1,
                    "text": [f" {ratio(s['regret'])}{'' if s['right'] else ' · not right'}" for _, s in chosen],
                    "textposition": "outside",
                    "cliponaxis": False,
                    "hovertemplate": "%{y}<br>%{text}<extra></extra>",
                    "marker": bar(tool),
                }
            )
    high = max(1.5, rows[0]["regret"])
    names = {"type": "category", "autorange": "reversed", "automargin": True, "ticklabelstandoff": 8,
             "tickvals": labels, "categoryorder": "array", "categoryarray": labels}  # fmt: skip
    axis = _axis("what was advised over the best measured (1 is perfect)", REGRETS, 1, high**1.35)
    return chart(traces, {"barmode": "overlay", "yaxis": names, "xaxis": axis}, 96 + 22 * len(rows))


def _name_records(scores: Sequence[ScoreFigures]) -> list[str]:
    """Regions by name; where one was recorded more than once, with the beginning of its record's id."""
    names = [s["name"] for s in scores]
    ids = [s["record"].rsplit("-", 1)[-1][:4] for s in scores]
    pairs = zip(names, ids, strict=True)
    return shorten_uniquely((name if names.count(name) == 1 else f"{name} · {record}" for name, record in pairs), 40)


def iterate_curves(figures: AccuracyFigures) -> Iterator[tuple[str, list[float]]]:
    """(name, regrets from the least) of the advice and of each policy."""
    yield "Tritonworthy's advice", sorted(s["regret"] for s in figures["scores"] if s["column"] != SHARE)
    for name, policy in figures["policies"].items():
        yield name, list(policy["regrets"])


def distribution_chart(figures: AccuracyFigures) -> Chart | None:
    """Cumulative regret: the share of the regions at or below each value, a step for each, the advice thick."""
    curves = list(iterate_curves(figures))
    # A policy that says something of few regions is not to be held against the others by eye.
    drawn = [(name, regrets) for name, regrets in curves if regrets and 2 * len(regrets) >= len(curves[0][1])]
    if not drawn:
        return None
    high = min(FARTHEST, max(regrets[-1] for _, regrets in drawn) * 1.1)
    traces = []
    for place, (name, values) in enumerate(drawn):
        shares = [n / len(values) for n in range(len(values) + 1)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "line": {
                    "shape": "hv",
                    "width": 4 if place == 0 else 2,
                    "color": OTHERS[(place - 1) % len(OTHERS)] if place else COLOURS["cuda"],
                    "dash": "solid" if place == 0 else ("dash", "dot", "dashdot")[place % 3],
                },
                "x": [1, *values, max(high, values[-1])],
                "y": [*shares, 1],
                "name": f"{escape(name)} ({len(values)})",
                "hovertemplate": "%{y:.0%} at most %{x:.3f}<extra></extra>",
            }
        )
    layout = {
        "xaxis": _axis("regret", REGRETS, 1, high),
        "yaxis": {
            "title": {"text": "share of the regions"},
            "range": [0, 1.02],
            "tickformat": ".0%",
            "automargin": True,
        },
        "margin": {"l": 56, "r": 16, "t": 8, "b": 48},
    }
    return chart(traces, layout, 440)


QUANTILES = (0.5, 0.8, 0.9, 0.95, 1.0)


def quantile_rows(figures: AccuracyFigures) -> list[Quantiles]:
    """The distribution as a table."""
    return [
        {
            "name": name,
            "regions": len(regrets),
            "at": [regrets[math.ceil(q * len(regrets)) - 1] for q in QUANTILES],
        }
        for name, regrets in iterate_curves(figures)
        if regrets
    ]


def accuracy_page(figures: AccuracyFigures) -> AccuracyPage:
    """What the page needs of the committed figures."""
    return {
        "benchmark": figures,
        "points": list_points(figures),
        "wrong": table.wrong(figures),
        "targets": page.targets(figures),
        "advice_rows": table.advice(figures),
        "left_over_rows": table.left_over(figures["fit"]),
        "policy_rows": table.policies(figures),
        "region_rows": table.regions(figures),
        "claim_rows": table.claims(figures),
        "count_rows": count_reasons.rows(figures),
        "quantile_rows": quantile_rows(figures),
        "quantile_names": [percent(q) for q in QUANTILES],
        "calibration_chart": calibration_chart(figures),
        "regret_chart": regret_chart(figures),
        "distribution_chart": distribution_chart(figures),
    }
