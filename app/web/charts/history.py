"""The chart of a series of a check's history: its runs, the band of noise, and what changed where."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.objects.history import HistoryCause, HistoryChange, HistoryPoint
from app.web.charts.figure import Chart, Figure, chart, escape

HEIGHT = 360
TICKS = 5
TICKS_END = 0.92
"""Of the width, where the last date stands: at the edge it would be cut."""
LABEL_ROOM = 40.0
"""Letters that fit across a phone's chart."""

RUN_COLOUR, LEVEL_COLOUR, LINE_COLOUR = "#0072b2", "#8a8f94", "#cc79a7"
BAND_COLOUR = "rgba(138, 143, 148, 0.22)"


@dataclass(frozen=True, slots=True)
class Look:
    """How the first run of a new level is marked."""

    name: str
    symbol: str
    colour: str


LOOKS: dict[HistoryCause, Look] = {
    "regression": Look("worse: the commit", "triangle-up", "#d55e00"),
    "improvement": Look("better: the commit", "triangle-down", "#009e73"),
    "hardware": Look("changed with the hardware", "square", "#e69f00"),
    "software": Look("changed with the software", "diamond", "#e69f00"),
    "method": Look("changed with the method", "cross", "#e69f00"),
}
"""By cause; what is noise is not marked."""


@dataclass(frozen=True, slots=True)
class Axis:
    """What the values are drawn in: they are divided by `scale`."""

    title: str
    scale: float


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a new environment begins. place: the index of its first point, at: its time; letter: A, B, ...; words: what
    changed."""

    place: int
    at: str
    letter: str
    words: str


def series_chart(
    points: Sequence[HistoryPoint],
    changes: Sequence[HistoryChange],
    boundaries: Sequence[Boundary],
    labels: Sequence[str],
    axis: Axis,
) -> Chart | None:
    """Runs from left to right. labels: what a point says when it is pointed at, in the points' order."""
    if not points:
        return None
    values = [point["value"] / axis.scale for point in points]
    causes = {change["after"]["id"]: change["cause"] for change in changes if change["cause"] in LOOKS}
    marked = [causes.get(point["run"]["id"]) for point in points]
    traces = [*_bands(points, axis.scale), *_levels(points, axis.scale)]
    plain = [at for at, point in enumerate(points) if not point["outlier"] and marked[at] is None]
    alone = [at for at, point in enumerate(points) if point["outlier"] and marked[at] is None]
    traces += _marks(plain, values, labels, Look("run", "circle", RUN_COLOUR), 7)
    traces += _marks(alone, values, labels, Look("run that stands alone", "circle-open", RUN_COLOUR), 9)
    for cause, look in LOOKS.items():
        traces += _marks([at for at, own in enumerate(marked) if own == cause], values, labels, look, 14)
    seen = [*values, *(end / axis.scale for p in points for end in (p["low"], p["high"]) if end is not None)]
    low, high = min(seen), max(seen)
    room = 0.12 * (high - low) or 0.05 * high
    places = sorted({round(n * TICKS_END * (len(points) - 1) / (TICKS - 1)) for n in range(TICKS)})
    layout = {
        "xaxis": {
            "range": [-0.8, len(points) - 0.2], "title": {"text": "run, in the order of commits"},
            "tickvals": places, "ticktext": [points[at]["run"]["at"][:10] for at in places], "showgrid": False,
        },
        "yaxis": {"range": [max(0.0, low - room), high + room], "title": {"text": axis.title}},
        "shapes": [_line_at(boundary.place - 0.5) for boundary in boundaries],
        "annotations": list(_boundary_labels(boundaries, len(points))),
        "margin": {"l": 64, "r": 16, "t": 24, "b": 48},
    }  # fmt: skip
    return chart(traces, layout, HEIGHT)


def _marks(
    places: Sequence[int], values: Sequence[float], labels: Sequence[str], look: Look, size: int
) -> list[Figure]:
    if not places:
        return []
    return [
        {
            "type": "scatter", "mode": "markers", "name": look.name, "x": list(places),
            "y": [values[at] for at in places], "text": [escape(labels[at], 160) for at in places],
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"symbol": look.symbol, "size": size, "color": look.colour},
        }
    ]  # fmt: skip


def _groups(points: Sequence[HistoryPoint]) -> Iterator[list[tuple[int, HistoryPoint]]]:
    """Neighbours of one level, with their places."""
    numbered = list(enumerate(points))
    for (_, level), group in itertools.groupby(numbered, lambda item: (item[1]["segment"], item[1]["level"])):
        if level is not None:
            yield list(group)


def _ends(group: Sequence[tuple[int, HistoryPoint]]) -> tuple[float, float]:
    """A level reaches half a run beyond its first and last one."""
    return group[0][0] - 0.5, group[-1][0] + 0.5


def _bands(points: Sequence[HistoryPoint], scale: float) -> list[Figure]:
    traces: list[Figure] = []
    for group in _groups(points):
        ends = [(p["low"], p["high"]) for _, p in group if p["low"] is not None and p["high"] is not None]
        if len(ends) != len(group):
            continue
        first, last = _ends(group)
        across = [first, *(float(at) for at, _ in group[1:-1]), last]
        bounds = ends if len(ends) > 1 else ends * 2
        lower, upper = ([bound[side] / scale for bound in bounds] for side in (0, 1))
        traces.append(
            {
                "type": "scatter", "mode": "lines", "name": "noise between runs", "showlegend": not traces,
                "x": [*across, *reversed(across)], "y": [*upper, *reversed(lower)], "fill": "toself",
                "fillcolor": BAND_COLOUR, "line": {"width": 0, "color": BAND_COLOUR}, "hoverinfo": "skip",
            }
        )  # fmt: skip
    return traces


def _levels(points: Sequence[HistoryPoint], scale: float) -> list[Figure]:
    traces: list[Figure] = []
    for group in _groups(points):
        level = group[0][1]["level"]
        assert level is not None
        traces.append(
            {
                "type": "scatter", "mode": "lines", "name": "level", "showlegend": not traces, "x": [*_ends(group)],
                "y": [level / scale] * 2, "line": {"width": 2, "color": LEVEL_COLOUR, "dash": "dash"},
                "hoverinfo": "skip",
            }
        )  # fmt: skip
    return traces


def _line_at(x: float) -> Figure:
    line = {"color": LINE_COLOUR, "width": 2, "dash": "dash"}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def _boundary_labels(boundaries: Sequence[Boundary], runs: int) -> Iterator[Figure]:
    """A letter over each line, and what changed where the next line is far enough."""
    starts = [*(boundary.place for boundary in boundaries), runs]
    for boundary, following in zip(boundaries, starts[1:], strict=True):
        whole = f"{boundary.letter}: {boundary.words}"
        fits = len(whole) <= LABEL_ROOM * (following - boundary.place) / runs
        yield {
            "x": boundary.place - 0.5, "y": 1.0, "yref": "paper", "xanchor": "left", "yanchor": "bottom",
            "showarrow": False, "text": escape(whole if fits else boundary.letter, 60),
        }  # fmt: skip
