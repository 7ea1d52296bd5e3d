"""What tells the parts of a chart apart without colour: a hatching for each bar, a shape for each point. Data.

A tool has one colour (app.web.charts.figure), one hatching and one shape on every page; static/app.css has the same
hatchings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.web.charts.figure import COLOURS, SEGMENTS

HATCHES: Mapping[str, str] = {
    "skip": "", "eager": "", "library": "/", "compile": "-", "triton": "x", "cuda": "+", "rest": ".", "floor": "|",
}  # fmt: skip
"""Tool -> Plotly's name of a pattern; "" is plain."""

SYMBOLS: Mapping[str, str] = {
    "skip": "circle", "eager": "circle", "library": "square", "compile": "diamond", "triton": "triangle-up",
    "cuda": "cross", "floor": "star",
}  # fmt: skip
"""Tool -> Plotly's name of a point's shape."""

ORDER = ("", "/", "x", "-", "\\", "|", "+", ".")
"""Hatchings of parts that are told apart by their place in a row: SEGMENTS[i] goes with ORDER[i]."""

BY_COLOUR: Mapping[str, str] = dict(zip(SEGMENTS, ORDER, strict=True))


def hatch(shape: str) -> dict[str, Any]:
    """The part of a bar's `marker` that hatches it, thin enough for a label to be read on it."""
    return {"pattern": {"shape": shape, "size": 8, "solidity": 0.14, "fillmode": "overlay", "fgopacity": 0.4}}


def bar(tool: str) -> dict[str, Any]:
    """The `marker` of a tool's bar."""
    return {"color": COLOURS.get(tool, COLOURS["rest"]), **hatch(HATCHES.get(tool, ""))}


def bars(tools: Iterable[str]) -> dict[str, Any]:
    """The `marker` of one trace whose bars are of several tools."""
    found = list(tools)
    # Of several colours Plotly takes each bar's own for the pattern's ground, and warns of the list without one given.
    ground = {"bgcolor": COLOURS["rest"]}
    return {
        "color": [COLOURS.get(t, COLOURS["rest"]) for t in found],
        "pattern": {**hatch("")["pattern"], **ground, "shape": [HATCHES.get(t, "") for t in found]},
    }


def symbol(tool: str, *, hollow: bool = False) -> str:
    """The shape of a tool's point; hollow for what is predicted, or is no candidate."""
    return SYMBOLS.get(tool, "circle") + ("-open" if hollow else "")
