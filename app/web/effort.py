"""Effort against speed-up of one region: what each tool costs to write, what it is predicted and measured to gain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from app.web.charts import candidate_rows
from app.web.figure import COLOURS, Chart, Json, chart, escape
from app.web.labels import TOOL_LABELS
from app.web.units import count, factor

NO_CODE = 0.3
"""Where no line of code stands on an axis that counts in factors of ten."""
WORDS = {"eager": "as it is", "compile": "compile"}
PLACES = {"eager": "bottom center", "library": "middle left"}
ASIDE = {"library": 0.8, "compile": 1.25}
"""Both are one line: they stand side by side."""
FINE = (0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 7, 10)
COARSE = (0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
WIDE = 6.0
"""From so wide a range on the axis has coarse ticks."""
TICKS = ((NO_CODE, "none"), (1, "1"), (10, "10"), (100, "100"), (1000, "1,000"), (10000, "10,000"))


def rows(advice: Json | None, validation: Json | None = None) -> list[dict[str, Any]]:
    """One row a tool: name, tool, lines, predicted {low, mid, high}, measured {low, median, high} over eager or None.

    Of a tool's candidates the one that is predicted fastest, and the one that was measured fastest.
    """
    options = [o for o in (advice or {}).get("alternatives") or () if o.get("time_us")]
    base = next((o["time_us"]["mid"] for o in options if o.get("candidate") == "eager"), None)
    if base is None:
        return []
    measured = _measured(validation or {})
    found: dict[str, dict[str, Any]] = {}
    for option in sorted(options, key=lambda o: (not o.get("admitted", True), o["time_us"]["mid"])):
        tool = "eager" if option.get("candidate") == "eager" else option["tool"]
        if tool in found:
            continue
        time = option["time_us"]
        spread = {"low": base / time["high"], "mid": base / time["mid"], "high": base / time["low"]}
        found[tool] = {
            "name": option.get("candidate") or tool,
            "tool": tool,
            "lines": option.get("effort_lines") or 0,
            "admitted": bool(option.get("admitted", True)),
            "predicted": {"low": 1.0, "mid": 1.0, "high": 1.0} if tool == "eager" else spread,
            "measured": measured.get(tool, (None, None))[1],
            "measured_name": measured.get(tool, ("", None))[0],
        }
    return sorted(found.values(), key=lambda row: (row["lines"], row["predicted"]["mid"]))


def _measured(validation: Json) -> dict[str, tuple[str, dict[str, float]]]:
    """Tool -> its fastest measured candidate and that one's speed-up over eager."""
    best: dict[str, tuple[str, dict[str, float]]] = {}
    for row in candidate_rows(validation):
        ratio = row.get("ratio_to_eager")
        if row["name"] != "eager" and ratio and row["tool"] not in best:  # the fastest first
            spread = {"low": 1 / ratio["high"], "median": 1 / ratio["median"], "high": 1 / ratio["low"]}
            best[row["tool"]] = (row["name"], spread)
    return best


def effort(found: Sequence[Json]) -> Chart | None:
    """Lines to write across, times as fast as eager up. Hollow with its range: predicted; filled: measured."""
    if len(found) < 2:
        return None
    traces: list[dict[str, Any]] = []
    for row in found:
        colour = COLOURS.get(row["tool"], COLOURS["eager"])
        x = max(NO_CODE, row["lines"]) * ASIDE.get(row["tool"], 1.0)
        word = WORDS.get(row["tool"], TOOL_LABELS[row["tool"]])
        where = PLACES.get(row["tool"], "middle right")
        label = word if where == "bottom center" else f"  {word}  "
        predicted, measured = row["predicted"], row["measured"]
        told = f"{escape(row['name'])}: {count(row['lines'], 'line')}, predicted {factor(predicted['mid'])}"
        traces.append(
            {
                "type": "scatter", "mode": "markers" if measured else "markers+text", "x": [x],
                "y": [predicted["mid"]], "text": [label], "textposition": where, "showlegend": False,
                "error_y": {
                    "type": "data", "symmetric": False, "array": [predicted["high"] - predicted["mid"]],
                    "arrayminus": [predicted["mid"] - predicted["low"]], "color": colour, "thickness": 3, "width": 0,
                },
                "marker": {"symbol": "circle-open", "size": 13, "color": colour, "line": {"width": 2.5}},
                "hovertemplate": f"{told}<extra></extra>",
            }
        )  # fmt: skip
        if measured:
            said = f"{escape(row['measured_name'])}: measured {factor(measured['median'])}"
            traces.append(
                {
                    "type": "scatter", "mode": "markers+text", "x": [x], "y": [measured["median"]],
                    "text": [label], "textposition": where, "showlegend": False,
                    "marker": {"symbol": "circle", "size": 13, "color": colour},
                    "hovertemplate": f"{said}<extra></extra>",
                }
            )  # fmt: skip
    values = [v for r in found for v in (r["predicted"]["low"], r["predicted"]["high"])]
    values += [r["measured"]["median"] for r in found if r["measured"]]
    low, high = min([0.8, *values]), max([2.0, *values])
    right = max([100, *(r["lines"] for r in found)])
    layout = {
        "xaxis": {
            "type": "log", "title": {"text": "lines to write"}, "tickvals": [t for t, _ in TICKS],
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
