"""The chart of two traces side by side: what each part of the step takes more or less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.objects.trace import Comparison
from app.trace_report.comparison.compare import FASTER, GONE, NEW, SLOWER
from app.units import duration
from app.web.charts.figure import Chart, Figure, chart, hatch
from app.web.charts.names import shorten_uniquely

MOST_BARS = 16
COLOURS: Mapping[str, str] = {FASTER: "#4a8fb8", SLOWER: "#a33b00", NEW: "#7b3294", GONE: "#8c6d46"}
OTHER = "#8a8f94"
PATTERNS: Mapping[str, str] = {FASTER: "/", SLOWER: "x", NEW: "-", GONE: "."}
"""Verdict -> colour and hatching of its bars: none of a tool's, whose colours mean advice."""


def _change_text(change_us: float) -> str:
    return f"{'+' if change_us > 0 else '−'}{duration(abs(change_us))}"


def _marker(verdicts: Sequence[str]) -> Figure:
    return {
        "color": [COLOURS.get(v, OTHER) for v in verdicts],
        "pattern": {**hatch("")["pattern"], "bgcolor": OTHER, "shape": [PATTERNS.get(v, "") for v in verdicts]},
    }


def change_chart(comparison: Comparison) -> Chart | None:
    """Bars of what each part takes more or less, the largest changes first: left is faster."""
    rows = [r for r in comparison["rows"] if abs(r["change_us"]) > 0.5][:MOST_BARS]
    if not rows:
        return None
    labels = shorten_uniquely((row["name"] for row in rows), 42)
    drawn: Figure = {
        "type": "bar", "orientation": "h", "y": labels, "x": [r["change_us"] / 1e3 for r in rows], "showlegend": False,
        "text": [f" {_change_text(r['change_us'])}, {r['verdict']} " for r in rows],
        "textposition": "outside", "cliponaxis": False,
        "marker": _marker([r["verdict"] for r in rows]),
        "hovertemplate": "%{y}<br>%{text}<extra></extra>",
    }  # fmt: skip
    reach = max(abs(r["change_us"]) for r in rows) / 1e3
    layout = {
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": True, "ticklabelstandoff": 8,
                  "tickvals": labels},
        "xaxis": {"title": {"text": "change of its time in one step, ms"}, "range": [-1.9 * reach, 1.9 * reach],
                  "zeroline": True},
    }  # fmt: skip
    return chart([drawn], layout, 90 + 28 * len(rows), width=680)
