"""The heat map of an autotune landscape, its table and its sentences: API JSON in, pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from app.units import amount, count, digits, duration, share
from app.web.charts import hatching
from app.web.charts.figure import COLOURS, Chart, chart, escape
from app.web.views.names import shorten_uniquely

Json = Mapping[str, Any]

STATUS_WORDS = {
    "ok": "timed",
    "compiled": "compiled, unmeasured",
    "wrong": "wrong result, never timed",
    "pruned": "pruned, never compiled",
    "refused": "refused by the compiler or the GPU",
    "fault": "its process died",
    "timeout": "hung",
    "not_run": "not run",
}
CELL_PX, WIDE_PX = 28, 34
NUMBERED = 24
"""Most columns whose cells show their number."""


def add_row_names(landscape: Json) -> list[dict[str, Any]]:
    """The points with `row`, the name of their tile: with the kernel's where there are several kernels."""
    points = landscape.get("points") or ()
    several = len({p["kernel"] for p in points}) > 1
    return [{**p, "row": f"{p['kernel']} {p['tile']}" if several else p["tile"]} for p in points]


def column(point: Json) -> str:
    """A point's warps and stages in words."""
    stages = "" if point["stages"] is None else f" × {count(point['stages'], 'stage')}"
    return f"{count(point['warps'], 'warp')}{stages}"


def heat_map(landscape: Json) -> Chart | None:
    """Time by colour over tiles (rows) and warps × stages (columns); what was chosen, what is fastest, what fell out.

    Points that the budget did not reach are left out: the table has them.
    """
    points = add_row_names(landscape)
    timed = [p for p in points if p["time_us"]]
    if not timed:
        return None
    shown = [p for p in points if p["status"] != "not_run"]
    order = {tile: n for n, tile in enumerate(landscape["axes"]["tiles"])}
    rows = [r for r, _ in sorted({(p["row"], (p["kernel"], order.get(p["tile"], 0))) for p in shown}, key=_second)]
    columns = [c for c, _ in sorted({(column(p), (p["warps"], p["stages"] or 0)) for p in shown}, key=_second)]
    cell = {(p["row"], column(p)): p for p in shown}
    at = [[cell.get((row, name)) for name in columns] for row in rows]
    labels = [escape(row, 70) for row in rows]
    times = [p["time_us"]["median"] for p in timed]
    traces: list[dict[str, Any]] = [
        {
            "type": "heatmap",
            "x": columns,
            "y": labels,
            "z": [[math.log10(p["time_us"]["median"]) if p and p["time_us"] else None for p in line] for line in at],
            "customdata": [[_hover(p) for p in line] for line in at],
            "text": [[digits(p["time_us"]["median"], 3) if p and p["time_us"] else "" for p in line] for line in at],
            "texttemplate": "%{text}" if len(columns) <= NUMBERED else "",
            "hovertemplate": "%{y}<br>%{x}<br>%{customdata}<extra></extra>",
            "hoverongaps": False,
            "colorscale": "Cividis",
            "reversescale": True,
            "xgap": 1,
            "ygap": 1,
            "colorbar": {
                **_ticks(min(times), max(times)),
                "title": {"text": "time"},
                "thickness": 12,
                "outlinewidth": 0,
            },
        }
    ]
    traces += [
        _marks(points, "chosen", landscape["chosen"], "square-open", COLOURS["cuda"], 26),
        _marks(points, "fastest", landscape["best"], "circle-open", COLOURS["compile"], 24),
        _left_out(shown),
    ]
    layout = {
        "yaxis": {"type": "category", "categoryorder": "array", "categoryarray": labels, "automargin": True},
        "xaxis": {
            "type": "category", "categoryorder": "array", "categoryarray": columns, "automargin": True,
            "tickangle": -60 if len(columns) > 6 else 0,
        },
        "showlegend": True,
        "margin": {"l": 8, "r": 8, "t": 30, "b": 90},
    }  # fmt: skip
    drawn = chart([t for t in traces if t.get("x")], layout, 180 + CELL_PX * len(rows))
    return drawn | {"width": 330 + WIDE_PX * len(columns)}


BEST, WORST = 12, 4
"""Tiles that a short map shows: enough to see what is near the fastest, and how bad the worst are."""


def short(landscape: Json) -> dict[str, Any]:
    """The landscape with its fastest and its slowest tiles alone, the fastest last, and no column without a time."""
    fastest: dict[str, float] = {}
    for point in landscape.get("points") or ():
        if point["time_us"]:
            time = point["time_us"]["median"]
            fastest[point["tile"]] = min(time, fastest.get(point["tile"], time))
    order = sorted(fastest, key=fastest.__getitem__)
    kept = order if len(order) <= BEST + WORST else [*order[:BEST], *order[-WORST:]]
    shown = [p for p in landscape["points"] if p["tile"] in kept]
    timed = {column(p) for p in shown if p["time_us"]}
    return {
        **landscape,
        "points": [p for p in shown if column(p) in timed],
        "axes": {**landscape["axes"], "tiles": kept[::-1]},
        "tiles_left_out": len(order) - len(kept),
    }


def few(landscape: Json) -> Chart | None:
    """The few points of a tuner as bars, the fastest on top; what it chose says so."""
    points = sorted((p for p in add_row_names(landscape) if p["time_us"]), key=lambda p: p["time_us"]["median"])
    if not points:
        return None
    labels = shorten_uniquely((f"{p['row']}, {column(p)}" for p in points), 64)
    times = [p["time_us"]["median"] for p in points]
    chosen = [p["key"] == landscape["chosen"] for p in points]
    said = [f" {duration(t)}{', chosen' if c else ''}" for t, c in zip(times, chosen, strict=True)]
    bars = {
        "type": "bar", "orientation": "h", "y": labels, "x": times, "text": said, "textposition": "outside",
        "cliponaxis": False, "hovertemplate": "%{y}<br>%{text}<extra></extra>",
        "marker": hatching.bars("triton" if c else "rest" for c in chosen), "showlegend": False,
    }  # fmt: skip
    layout = {
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": True, "ticklabelstandoff": 8,
                  "tickvals": labels, "categoryorder": "array", "categoryarray": labels},
        "xaxis": {"title": {"text": "time of one call, µs"}, "range": [0, max(times) * 1.25]},
    }  # fmt: skip
    return chart([bars], layout, 84 + CELL_PX * len(points))


def _second(pair: tuple[str, Any]) -> Any:
    return pair[1]


def _marks(
    points: list[dict[str, Any]], name: str, key: str | None, symbol: str, colour: str, size: int
) -> dict[str, Any]:
    found = [p for p in points if p["key"] == key and p["status"] != "not_run"]
    return {
        "type": "scatter", "mode": "markers", "name": name, "hoverinfo": "skip",
        "x": [column(p) for p in found], "y": [escape(p["row"], 70) for p in found],
        "marker": {"symbol": symbol, "size": size, "color": colour, "line": {"width": 2, "color": colour}},
    }  # fmt: skip


def _left_out(points: list[dict[str, Any]]) -> dict[str, Any]:
    """Pruned, refused, wrong or lost points: a cross in their cell."""
    found = [p for p in points if not p["time_us"]]
    return {
        "type": "scatter", "mode": "markers", "name": "pruned, refused or wrong",
        "x": [column(p) for p in found], "y": [escape(p["row"], 70) for p in found],
        "customdata": [f"{STATUS_WORDS[p['status']]}: {escape(p['reason'], 120)}" for p in found],
        "hovertemplate": "%{y}<br>%{x}<br>%{customdata}<extra></extra>",
        "marker": {"symbol": "x-thin", "size": 7, "line": {"width": 1.5, "color": COLOURS["skip"]}},
    }  # fmt: skip


def _hover(point: Json | None) -> str:
    if point is None or not point["time_us"]:
        return ""
    time = point["time_us"]
    parts = [f"{duration(time['median'])}{_range(time)}, {digits(point['ratio_to_best'])} times the fastest"]
    if point["registers"] is not None:
        spilled = f", {count(point['spill_bytes'], 'byte')} spilled" if point["spill_bytes"] else ", none spilled"
        parts.append(f"{count(point['registers'], 'register')} a thread{spilled}")
    if point["shared_bytes"] is not None:
        parts.append(f"{amount(point['shared_bytes'])} of shared memory")
    if point["occupancy"] is not None:
        parts.append(f"occupancy {share(point['occupancy'])}")
    return "<br>".join(parts)


def _range(time: Json) -> str:
    """Where a time was kept with its interval."""
    return f" ({duration(time['low'])} to {duration(time['high'])})" if time["low"] < time["high"] else ""


def _ticks(least: float, most: float) -> dict[str, Any]:
    """1, 2 and 5 of each decade, as durations; the ends where none lies between."""
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    found = [m * 10.0**e for e in range(low, high + 1) for m in (1, 2, 5) if least <= m * 10.0**e <= most]
    values = found if len(found) > 1 else [least, most]
    return {"tickvals": [math.log10(v) for v in values], "ticktext": [duration(v) for v in values]}


def rows(landscape: Json) -> list[dict[str, Any]]:
    """The points for the table: the timed ones first, fastest first, then by what became of them."""
    states = list(STATUS_WORDS)
    return sorted(
        ({**p, "words": STATUS_WORDS.get(p["status"], p["status"])} for p in add_row_names(landscape)),
        key=lambda p: (p["time_us"] is None, p["time_us"]["median"] if p["time_us"] else states.index(p["status"])),
    )


def headline(landscape: Json) -> str:
    """The worst-to-best ratio in words."""
    worst = landscape.get("worst_to_best")
    timed = sum(p["time_us"] is not None for p in landscape.get("points") or ())
    if not worst:
        return landscape.get("reason") or "nothing was timed"
    return f"The slowest of {timed} points takes {digits(worst)} times as long as the fastest."


def chosen_words(landscape: Json) -> str:
    """How good the choice was, timed again in turns with the fastest."""
    ratio = landscape.get("chosen_to_best")
    if landscape.get("chosen") == landscape.get("best"):
        return "What tuning chose is the fastest point."
    if not ratio:
        return ""
    if ratio["low"] <= 1.0 <= ratio["high"]:
        return "Timed again in turns, what tuning chose and the fastest point cannot be told apart."
    words = "longer" if ratio["median"] > 1 else "less"
    changed = abs(ratio["median"] - 1)
    return f"Timed again in turns, what tuning chose takes {share(changed)} {words} than what was fastest at first."


def order_words(landscape: Json) -> str:
    """What the order of programs is worth."""
    order = landscape.get("order")
    if not order:
        return ""
    ratio = order["grouped_to_plain"]
    same = ratio["low"] <= 1.0 <= ratio["high"]
    verdict = "no certain difference" if same else f"{digits(ratio['median'])} of its time"
    return (
        f"The chosen tile with its programs in groups of {order['group']} rows of tiles takes "
        f"{duration(order['grouped_us']['median'])}, in plain order {duration(order['plain_us']['median'])}: {verdict}."
    )
