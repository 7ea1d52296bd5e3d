"""Effort against speed-up of one region: lines that each tool leaves to maintain, what it gains, predicted, measured.

Lines are those that somebody maintains afterwards: the call or the decorator; of a kernel that is there already, the
file that is downloaded; of one that is not, about what it takes to write.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

from app.objects.advice import Advice
from app.objects.common import Interval, Range
from app.objects.evidence import Figures
from app.units import count, factor
from app.web.charts.figure import COLOURS, Chart, Figure, chart, escape, symbol
from app.web.charts.timed import candidate_rows, timed_options
from app.web.labels import TOOL_LABELS

NO_CODE = 0.3
"""Where no line of code stands on an axis that counts in factors of ten."""
WORDS = {"eager": "as it is", "compile": "compile"}
PLACES = {"eager": "bottom center", "library": "middle left"}
ASIDE = {"library": 0.8, "compile": 1.25}
"""Both are one line: they stand side by side."""
FINE = (0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 7, 10)
COARSE = (0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
FAR = 150
"""From so many lines on a label stands left of its mark: to the right there is no room."""
WIDE = 6.0
"""From so wide a range on the axis has coarse ticks."""
TICKS = ((NO_CODE, "none"), (1, "1"), (10, "10"), (100, "100"), (1000, "1,000"), (10000, "10,000"))


class Row(TypedDict):
    """One tool. lines: to maintain; kept: what they are. predicted, measured: speed-ups over eager, measured None where
    nothing was. The candidate that was measured fastest may be another than the one that is predicted fastest.
    """

    name: str
    tool: str
    lines: int
    kept: str
    admitted: bool
    predicted: Range
    measured: Interval | None
    measured_name: str
    measured_lines: int


def describe_lines(candidate: str, lines: int) -> str:
    """What a candidate's lines are: a call, a decorator, generated, a ready-made kernel, or to be written."""
    if not lines:
        return ""
    if candidate == "triton:generated":
        return "generated"
    if candidate.startswith("triton:") and not candidate.endswith(":custom"):
        return "ready-made kernel"
    if candidate.startswith("compile"):
        return "decorator"
    return "call" if candidate.startswith("library:") else "to write, about"


def effort_rows(advice: Advice | None, validation: Figures | None = None) -> list[Row]:
    """One row a tool, by lines; [] where eager's time is not predicted.

    Of a tool's candidates the one that is predicted fastest, and the one that was measured fastest with its own lines.
    """
    options = timed_options(advice)
    base_us = next((o.mid_us for o in options if o.candidate == "eager"), None)
    if base_us is None:
        return []
    measured = _measured_speedups(validation)
    lines = {o.candidate: o.lines for o in options}
    rows: dict[str, Row] = {}
    for option in sorted(options, key=lambda o: (not o.admitted, o.mid_us)):
        tool = option.look
        if tool in rows:
            continue
        time = option.time_us
        spread: Range = {"low": base_us / time["high"], "mid": base_us / time["mid"], "high": base_us / time["low"]}
        name, speedup = measured.get(tool, ("", None))
        rows[tool] = {
            "name": option.candidate or tool,
            "tool": tool,
            "lines": option.lines,
            "kept": describe_lines(option.candidate, option.lines),
            "admitted": option.admitted,
            "predicted": {"low": 1.0, "mid": 1.0, "high": 1.0} if tool == "eager" else spread,
            "measured": speedup,
            "measured_name": name,
            "measured_lines": lines.get(name, option.lines),
        }
    return sorted(rows.values(), key=lambda row: (row["lines"], row["predicted"]["mid"]))


def _measured_speedups(validation: Figures | None) -> dict[str, tuple[str, Interval]]:
    """Tool -> its fastest measured candidate and that one's speed-up over eager."""
    fastest: dict[str, tuple[str, Interval]] = {}
    for row in candidate_rows(validation):
        ratio = row.get("ratio_to_eager")
        if row["name"] != "eager" and ratio and row["tool"] not in fastest:  # the fastest first
            spread: Interval = {"low": 1 / ratio["high"], "median": 1 / ratio["median"], "high": 1 / ratio["low"]}
            fastest[row["tool"]] = (row["name"], spread)
    return fastest


def _short_name(candidate: str) -> str:
    return escape(candidate.partition(":")[2] or candidate, 24)


def _label_at(word: str, position: str) -> str:
    """A label with room between it and its mark."""
    return word if position == "bottom center" else f"  {word}  "


def _across(lines: int, tool: str) -> float:
    """Where a number of lines stands."""
    return max(NO_CODE, lines) * ASIDE.get(tool, 1.0)


def effort_chart(rows: Sequence[Row]) -> Chart | None:
    """Lines to maintain across, times as fast as eager up. Hollow with its range: predicted; filled: measured."""
    if len(rows) < 2:
        return None
    traces: list[Figure] = []
    for row in rows:
        colour = COLOURS.get(row["tool"], COLOURS["eager"])
        x = _across(row["lines"], row["tool"])
        word = WORDS.get(row["tool"], TOOL_LABELS[row["tool"]])
        position = PLACES.get(row["tool"], "middle right" if x < FAR else "middle left")
        predicted, measured = row["predicted"], row["measured"]
        differ = bool(measured) and row["measured_name"] != row["name"] and row["measured_lines"] != row["lines"]
        names = (row["measured_name"], row["name"])
        label, other = (_label_at(_short_name(name) if differ else word, position) for name in names)
        kind = f" {row['kept']}" if row["kept"] else ""
        prediction = f"{escape(row['name'])}: {count(row['lines'], 'line')}{kind}, predicted {factor(predicted['mid'])}"
        traces.append(
            {
                "type": "scatter", "mode": "markers+text" if differ or not measured else "markers", "x": [x],
                "y": [predicted["mid"]], "text": [other], "textposition": position, "showlegend": False,
                "error_y": {
                    "type": "data", "symmetric": False, "array": [predicted["high"] - predicted["mid"]],
                    "arrayminus": [predicted["mid"] - predicted["low"]], "color": colour, "thickness": 3, "width": 0,
                },
                "marker": {"symbol": symbol(row["tool"], hollow=True), "size": 14, "color": colour,
                           "line": {"width": 2.5}},
                "hovertemplate": f"{prediction}<extra></extra>",
            }
        )  # fmt: skip
        if measured:
            measurement = f"{escape(row['measured_name'])}: measured {factor(measured['median'])}"
            traces.append(
                {
                    "type": "scatter", "mode": "markers+text", "x": [_across(row["measured_lines"], row["tool"])],
                    "y": [measured["median"]],
                    "text": [label], "textposition": position if not differ else "middle right", "showlegend": False,
                    "marker": {"symbol": symbol(row["tool"]), "size": 13, "color": colour},
                    "hovertemplate": f"{measurement}<extra></extra>",
                }
            )  # fmt: skip
    values = [v for r in rows for v in (r["predicted"]["low"], r["predicted"]["high"])]
    values += [m["median"] for r in rows if (m := r["measured"])]
    low, high = min([0.8, *values]), max([2.0, *values])
    right = max([100, *(r["lines"] for r in rows)])
    layout = {
        "xaxis": {
            "type": "log", "title": {"text": "lines to maintain"}, "tickvals": [t for t, _ in TICKS],
            "ticktext": [t for _, t in TICKS], "range": [math.log10(NO_CODE / 2), math.log10(right * 12)],
        },
        "yaxis": {
            "type": "log", "title": {"text": "times as fast as eager"}, "automargin": True,
            "tickvals": COARSE if high / low > WIDE else FINE,
            "range": [math.log10(low / 1.15), math.log10(high * 1.2)],
        },
        "margin": {"l": 56, "r": 16, "t": 8, "b": 48},
    }  # fmt: skip
    return chart(traces, layout, 320)
