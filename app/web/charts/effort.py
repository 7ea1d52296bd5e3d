"""Effort against speed-up of one region: lines that each tool leaves to maintain, what it gains, predicted, measured.

Lines are those that somebody maintains afterwards: the call or the decorator; of a kernel that is there already, the
file that is downloaded; of one that is not, about what it takes to write.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from app.units import count, factor
from app.web.charts.figure import COLOURS, Chart, Json, chart, escape
from app.web.charts.hatching import symbol
from app.web.charts.plotly import candidate_rows
from app.web.views.labels import TOOL_LABELS

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


def rows(advice: Json | None, validation: Json | None = None) -> list[dict[str, Any]]:
    """One row a tool: name, tool, lines, kept (what they are), and speed-ups over eager: predicted {low, mid, high},
    measured {low, median, high} or None.

    Of a tool's candidates the one that is predicted fastest, and the one that was measured fastest with its own lines.
    """
    options = [o for o in (advice or {}).get("alternatives") or () if o.get("time_us")]
    base = next((o["time_us"]["mid"] for o in options if o.get("candidate") == "eager"), None)
    if base is None:
        return []
    measured = _measured_speedups(validation or {})
    lines = {o.get("candidate"): o.get("effort_lines") or 0 for o in options}
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
            "kept": describe_lines(option.get("candidate") or "", option.get("effort_lines") or 0),
            "admitted": bool(option.get("admitted", True)),
            "predicted": {"low": 1.0, "mid": 1.0, "high": 1.0} if tool == "eager" else spread,
            "measured": measured.get(tool, (None, None))[1],
            "measured_name": (name := measured.get(tool, ("", None))[0]),
            "measured_lines": lines.get(name, option.get("effort_lines") or 0),
        }
    return sorted(found.values(), key=lambda row: (row["lines"], row["predicted"]["mid"]))


def _measured_speedups(validation: Json) -> dict[str, tuple[str, dict[str, float]]]:
    """Tool -> its fastest measured candidate and that one's speed-up over eager."""
    best: dict[str, tuple[str, dict[str, float]]] = {}
    for row in candidate_rows(validation):
        ratio = row.get("ratio_to_eager")
        if row["name"] != "eager" and ratio and row["tool"] not in best:  # the fastest first
            spread = {"low": 1 / ratio["high"], "median": 1 / ratio["median"], "high": 1 / ratio["low"]}
            best[row["tool"]] = (row["name"], spread)
    return best


def _short(candidate: str) -> str:
    return escape(candidate.partition(":")[2] or candidate, 24)


def _beside(word: str, where: str) -> str:
    """A label with room between it and its mark."""
    return word if where == "bottom center" else f"  {word}  "


def _across(lines: int, tool: str) -> float:
    """Where a number of lines stands."""
    return max(NO_CODE, lines) * ASIDE.get(tool, 1.0)


def effort(found: Sequence[Json]) -> Chart | None:
    """Lines to maintain across, times as fast as eager up. Hollow with its range: predicted; filled: measured."""
    if len(found) < 2:
        return None
    traces: list[dict[str, Any]] = []
    for row in found:
        colour = COLOURS.get(row["tool"], COLOURS["eager"])
        x = _across(row["lines"], row["tool"])
        word = WORDS.get(row["tool"], TOOL_LABELS[row["tool"]])
        where = PLACES.get(row["tool"], "middle right" if x < FAR else "middle left")
        predicted, measured = row["predicted"], row["measured"]
        differ = measured and row["measured_name"] != row["name"] and row["measured_lines"] != row["lines"]
        label, other = (_beside(_short(row[n]) if differ else word, where) for n in ("measured_name", "name"))
        said = f" {row['kept']}" if row["kept"] else ""
        told = f"{escape(row['name'])}: {count(row['lines'], 'line')}{said}, predicted {factor(predicted['mid'])}"
        traces.append(
            {
                "type": "scatter", "mode": "markers+text" if differ or not measured else "markers", "x": [x],
                "y": [predicted["mid"]], "text": [other], "textposition": where, "showlegend": False,
                "error_y": {
                    "type": "data", "symmetric": False, "array": [predicted["high"] - predicted["mid"]],
                    "arrayminus": [predicted["mid"] - predicted["low"]], "color": colour, "thickness": 3, "width": 0,
                },
                "marker": {"symbol": symbol(row["tool"], hollow=True), "size": 14, "color": colour,
                           "line": {"width": 2.5}},
                "hovertemplate": f"{told}<extra></extra>",
            }
        )  # fmt: skip
        if measured:
            was = f"{escape(row['measured_name'])}: measured {factor(measured['median'])}"
            traces.append(
                {
                    "type": "scatter", "mode": "markers+text", "x": [_across(row["measured_lines"], row["tool"])],
                    "y": [measured["median"]],
                    "text": [label], "textposition": where if not differ else "middle right", "showlegend": False,
                    "marker": {"symbol": symbol(row["tool"]), "size": 13, "color": colour},
                    "hovertemplate": f"{was}<extra></extra>",
                }
            )  # fmt: skip
    values = [v for r in found for v in (r["predicted"]["low"], r["predicted"]["high"])]
    values += [r["measured"]["median"] for r in found if r["measured"]]
    low, high = min([0.8, *values]), max([2.0, *values])
    right = max([100, *(r["lines"] for r in found)])
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
