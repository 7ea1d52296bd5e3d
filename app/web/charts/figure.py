"""The one place where a Plotly figure is validated and given its config; colours, hatchings, shapes, safe labels.

Colours of text, grid and background come from the page (static/app.js), so that one figure serves light and dark. What
distinguishes the parts of a chart without colour is a hatching for each bar and a shape for each point: a tool has one
colour, one hatching and one shape on every page; static/app.css has the same hatchings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NotRequired, TypedDict

Figure = dict[str, Any]
"""One of Plotly's own dictionaries: a trace, an axis, a layout, a whole figure. Its schema is Plotly's, and `chart`
has Plotly check it."""


class Chart(TypedDict):
    """What static/app.js hands to Plotly. height, width: pixels.

    width: the least that the chart can be read at; a narrower page scrolls it.
    """

    figure: Figure
    config: Figure
    height: int
    width: NotRequired[int]


# Okabe and Ito's palette, distinct with every common colour blindness; each mark is labelled in words as well.
COLOURS = {
    "skip": "#8a8f94",
    "library": "#0072b2",
    "compile": "#009e73",
    "triton": "#e69f00",
    "cuda": "#d55e00",
    "eager": "#8a8f94",
    "rest": "#b9bec4",
    "none": "#8fa3b8",
    "floor": "#cc79a7",
}
SEGMENTS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#d55e00", "#8a8f94", "#b5a642")

# plotly.js 4 offers to upload a chart to its maker's cloud by default; names and shapes of a model are confidential.
CONFIG: Figure = {
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "displaylogo": False,
    "responsive": True,
    "displayModeBar": False,
}


HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff]"
)
"""Control characters but line ends and tabs, marks that turn the direction of text, what has no width, surrogates."""


def show_hidden(text: str) -> str:
    """The text with every hidden character as its number."""
    return HIDDEN.sub(lambda character: f"\\u{{{ord(character[0]):x}}}", text)


def escape(label: object, limit: int = 60) -> str:
    """A label that Plotly shows as it is: it reads `<a href=...>` and entities in labels as markup. Cut at limit."""
    text = show_hidden(" ".join(str(label)[: 4 * limit].split()))
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def chart(traces: Iterable[object], layout: Figure, height: int, width: int | None = None) -> Chart:
    """The one place where a figure is validated and given its config. traces: dictionaries, or Plotly's own objects.

    Raises ValueError for what is not in Plotly's schema.
    """
    import plotly.graph_objects as go  # 0.2 s to import: not before the first chart

    base = {
        "template": "none",
        "margin": {"l": 8, "r": 16, "t": 8, "b": 44},
        "height": height,
        "hoverlabel": {"namelength": -1},
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        "bargap": 0.35,
    }
    figure: Figure = go.Figure(data=list(traces), layout={**base, **layout}).to_plotly_json()
    figure["layout"].pop("template", None)  # the page's own, from its CSS variables
    drawn: Chart = {"figure": figure, "config": dict(CONFIG), "height": height}
    if width is not None:
        drawn["width"] = width
    return drawn


# ---------------------------------------------------------------------------------------------------- hatchings, shapes

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
"""Hatchings of parts that are distinguished by their place in a row: SEGMENTS[i] goes with ORDER[i]."""

BY_COLOUR: Mapping[str, str] = dict(zip(SEGMENTS, ORDER, strict=True))


def hatch(shape: str) -> Figure:
    """The part of a bar's `marker` that hatches it, thin enough for a label to be read on it."""
    return {"pattern": {"shape": shape, "size": 8, "solidity": 0.14, "fillmode": "overlay", "fgopacity": 0.4}}


def bar(tool: str) -> Figure:
    """The `marker` of a tool's bar."""
    return {"color": COLOURS.get(tool, COLOURS["rest"]), **hatch(HATCHES.get(tool, ""))}


def bars(tools: Iterable[str]) -> Figure:
    """The `marker` of one trace whose bars are of several tools."""
    of_bars = list(tools)
    # Of several colours Plotly takes each bar's own for the pattern's ground, and warns of the list without one given.
    ground = {"bgcolor": COLOURS["rest"]}
    return {
        "color": [COLOURS.get(t, COLOURS["rest"]) for t in of_bars],
        "pattern": {**hatch("")["pattern"], **ground, "shape": [HATCHES.get(t, "") for t in of_bars]},
    }


def symbol(tool: str, *, hollow: bool = False) -> str:
    """The shape of a tool's point; hollow for what is predicted, or is no candidate."""
    return SYMBOLS.get(tool, "circle") + ("-open" if hollow else "")
