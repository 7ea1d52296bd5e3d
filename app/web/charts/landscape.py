"""The heat map of an autotune landscape, its table and its sentences: API JSON in, pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from app.objects.common import Interval
from app.objects.landscape import LandscapeFigures, Point, Survey
from app.units import amount, count, digits, duration, share
from app.web.charts.figure import COLOURS, Chart, Figure, bars, chart, escape
from app.web.charts.names import shorten_uniquely

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


class NamedPoint(Point):
    """A point with the name of its tile: with the kernel's where there are several kernels."""

    row: str


class PointRow(NamedPoint):
    """A point in the table. words: what became of it."""

    words: str


class ShortSurvey(Survey):
    """A recorded landscape's fastest and slowest tiles alone. tiles_left_out: how many it lacks."""

    tiles_left_out: int


def name_rows(landscape: LandscapeFigures | Survey) -> list[NamedPoint]:
    """The points, each with the name of its row."""
    points = landscape.get("points") or ()
    several = len({p["kernel"] for p in points}) > 1
    return [{**p, "row": f"{p['kernel']} {p['tile']}" if several else p["tile"]} for p in points]


def name_column(point: Point) -> str:
    """A point's warps and stages in words."""
    stages = "" if point["stages"] is None else f" × {count(point['stages'], 'stage')}"
    return f"{count(point['warps'], 'warp')}{stages}"


def heat_map(landscape: LandscapeFigures | Survey) -> Chart | None:
    """Time by colour over tiles (rows) and warps × stages (columns); what was chosen, what is fastest, what fell out.

    Points that the budget did not reach are left out: the table has them.
    """
    points = name_rows(landscape)
    times = [time_us["median"] for p in points if (time_us := p["time_us"])]
    if not times:
        return None
    run = [p for p in points if p["status"] != "not_run"]
    order = {tile: n for n, tile in enumerate(landscape["axes"]["tiles"])}
    row_places = {p["row"]: (p["kernel"], order.get(p["tile"], 0)) for p in run}
    column_places = {name_column(p): (p["warps"], p["stages"] or 0) for p in run}
    rows = sorted(row_places, key=row_places.__getitem__)
    columns = sorted(column_places, key=column_places.__getitem__)
    by_cell = {(p["row"], name_column(p)): p for p in run}
    cells = [[by_cell.get((row, name)) for name in columns] for row in rows]
    medians = [[_median_us(p) for p in line] for line in cells]
    labels = [escape(row, 70) for row in rows]
    traces: list[Figure] = [
        {
            "type": "heatmap",
            "x": columns,
            "y": labels,
            "z": [[math.log10(us) if us else None for us in line] for line in medians],
            "customdata": [[_describe_point(p) for p in line] for line in cells],
            "text": [[digits(us, 3) if us else "" for us in line] for line in medians],
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
        _mark(points, "chosen", landscape["chosen"], "square-open", COLOURS["cuda"], 26),
        _mark(points, "fastest", landscape["best"], "circle-open", COLOURS["compile"], 24),
        _mark_left_out(run),
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
    width = 330 + WIDE_PX * len(columns)
    return chart([t for t in traces if t.get("x")], layout, 180 + CELL_PX * len(rows), width)


def _median_us(point: Point | None) -> float | None:
    time_us = point["time_us"] if point else None
    return time_us["median"] if time_us else None


BEST, WORST = 12, 4
"""Tiles that a short map shows: enough to see what is near the fastest, and how bad the worst are."""


def shorten_survey(landscape: Survey) -> ShortSurvey:
    """The landscape with its fastest and its slowest tiles alone, the fastest last, and no column without a time."""
    fastest: dict[str, float] = {}
    for point in landscape.get("points") or ():
        time_us = _median_us(point)
        if time_us:
            fastest[point["tile"]] = min(time_us, fastest.get(point["tile"], time_us))
    order = sorted(fastest, key=fastest.__getitem__)
    kept = order if len(order) <= BEST + WORST else [*order[:BEST], *order[-WORST:]]
    of_kept = [p for p in landscape["points"] if p["tile"] in kept]
    timed = {name_column(p) for p in of_kept if p["time_us"]}
    return {
        **landscape,
        "points": [p for p in of_kept if name_column(p) in timed],
        "axes": {**landscape["axes"], "tiles": kept[::-1]},
        "tiles_left_out": len(order) - len(kept),
    }


def tuner_bars(landscape: LandscapeFigures | Survey) -> Chart | None:
    """The few points of a tuner as bars, the fastest on top; what it chose says so."""
    timed = [(p, us) for p in name_rows(landscape) if (us := _median_us(p))]
    timed.sort(key=lambda pair: pair[1])
    points, times = [p for p, _ in timed], [us for _, us in timed]
    if not points:
        return None
    labels = shorten_uniquely((f"{p['row']}, {name_column(p)}" for p in points), 64)
    chosen = [p["key"] == landscape["chosen"] for p in points]
    texts = [f" {duration(t)}{', chosen' if c else ''}" for t, c in zip(times, chosen, strict=True)]
    drawn = {
        "type": "bar", "orientation": "h", "y": labels, "x": times, "text": texts, "textposition": "outside",
        "cliponaxis": False, "hovertemplate": "%{y}<br>%{text}<extra></extra>",
        "marker": bars("triton" if c else "rest" for c in chosen), "showlegend": False,
    }  # fmt: skip
    layout = {
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": True, "ticklabelstandoff": 8,
                  "tickvals": labels, "categoryorder": "array", "categoryarray": labels},
        "xaxis": {"title": {"text": "time of one call, µs"}, "range": [0, max(times) * 1.25]},
    }  # fmt: skip
    return chart([drawn], layout, 84 + CELL_PX * len(points))


def _mark(points: Sequence[NamedPoint], name: str, key: str | None, symbol: str, colour: str, size: int) -> Figure:
    marked = [p for p in points if p["key"] == key and p["status"] != "not_run"]
    return {
        "type": "scatter", "mode": "markers", "name": name, "hoverinfo": "skip",
        "x": [name_column(p) for p in marked], "y": [escape(p["row"], 70) for p in marked],
        "marker": {"symbol": symbol, "size": size, "color": colour, "line": {"width": 2, "color": colour}},
    }  # fmt: skip


def _mark_left_out(points: Sequence[NamedPoint]) -> Figure:
    """Pruned, refused, wrong or lost points: a cross in their cell."""
    untimed = [p for p in points if not p["time_us"]]
    return {
        "type": "scatter", "mode": "markers", "name": "pruned, refused or wrong",
        "x": [name_column(p) for p in untimed], "y": [escape(p["row"], 70) for p in untimed],
        "customdata": [f"{STATUS_WORDS[p['status']]}: {escape(p['reason'], 120)}" for p in untimed],
        "hovertemplate": "%{y}<br>%{x}<br>%{customdata}<extra></extra>",
        "marker": {"symbol": "x-thin", "size": 7, "line": {"width": 1.5, "color": COLOURS["skip"]}},
    }  # fmt: skip


def _describe_point(point: Point | None) -> str:
    """A timed point's figures; "" for any other."""
    time = point["time_us"] if point else None
    if point is None or not time:
        return ""
    parts = [f"{duration(time['median'])}{_range(time)}, {digits(point.get('ratio_to_best') or 1.0)} times the fastest"]
    if point["registers"] is not None:
        spilled = f", {count(point['spill_bytes'], 'byte')} spilled" if point["spill_bytes"] else ", none spilled"
        parts.append(f"{count(point['registers'], 'register')} a thread{spilled}")
    if point["shared_bytes"] is not None:
        parts.append(f"{amount(point['shared_bytes'])} of shared memory")
    if point["occupancy"] is not None:
        parts.append(f"occupancy {share(point['occupancy'])}")
    return "<br>".join(parts)


def _range(time: Interval) -> str:
    """Where a time was kept with its interval."""
    return f" ({duration(time['low'])} to {duration(time['high'])})" if time["low"] < time["high"] else ""


def _ticks(least: float, most: float) -> Figure:
    """1, 2 and 5 of each decade, as durations; the ends where none lies between."""
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    inside = [m * 10.0**e for e in range(low, high + 1) for m in (1, 2, 5) if least <= m * 10.0**e <= most]
    values = inside if len(inside) > 1 else [least, most]
    return {"tickvals": [math.log10(v) for v in values], "ticktext": [duration(v) for v in values]}


def point_rows(landscape: LandscapeFigures | Survey) -> list[PointRow]:
    """The points for the table: the timed ones first, fastest first, then by what became of them."""
    states = list(STATUS_WORDS)
    rows: list[PointRow] = [{**p, "words": STATUS_WORDS.get(p["status"], p["status"])} for p in name_rows(landscape)]
    return sorted(rows, key=lambda p: (p["time_us"] is None, _median_us(p) or states.index(p["status"])))


def describe_spread(landscape: LandscapeFigures | Survey) -> str:
    """The worst-to-best ratio in words."""
    worst = landscape.get("worst_to_best")
    timed = sum(p["time_us"] is not None for p in landscape.get("points") or ())
    if not worst:
        return landscape.get("reason") or "nothing was timed"
    return f"The slowest of {timed} points takes {digits(worst)} times as long as the fastest."


def describe_choice(landscape: LandscapeFigures | Survey) -> str:
    """How good the choice was, timed again in turns with the fastest."""
    ratio = landscape.get("chosen_to_best")
    if landscape.get("chosen") == landscape.get("best"):
        return "What tuning chose is the fastest point."
    if not ratio:
        return ""
    if ratio["low"] <= 1.0 <= ratio["high"]:
        return "Timed again in turns, what tuning chose and the fastest point cannot be distinguished."
    words = "longer" if ratio["median"] > 1 else "less"
    changed = abs(ratio["median"] - 1)
    return f"Timed again in turns, what tuning chose takes {share(changed)} {words} than what was fastest at first."


def describe_order(landscape: LandscapeFigures | Survey) -> str:
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
