"""The one place where a Plotly figure is validated and given its config; colours and labels that are safe to show.

Colours of text, grid and background come from the page (static/app.js), so that one figure serves light and dark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Json = Mapping[str, Any]
Chart = dict[str, Any]
"""{"figure": {"data", "layout"}, "config", "height"}: what static/app.js hands to Plotly. A `width` beside them, in
pixels, is the least that the chart can be read at: a narrower page scrolls it."""

# Okabe and Ito's palette, told apart with every common colour blindness; each mark is labelled in words as well.
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
CONFIG: dict[str, Any] = {
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


def escape(label: object, limit: int = 60) -> str:
    """A label that Plotly shows as it is: it reads `<a href=...>` and entities in labels as markup. Cut at limit."""
    text = HIDDEN.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", " ".join(str(label)[: 4 * limit].split()))
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def chart(traces: Iterable[Any], layout: Json, height: int) -> Chart:
    """The one place where a figure is validated and given its config."""
    import plotly.graph_objects as go  # 0.2 s to import: not before the first chart

    base = {
        "template": "none",
        "margin": {"l": 8, "r": 16, "t": 8, "b": 44},
        "height": height,
        "hoverlabel": {"namelength": -1},
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        "bargap": 0.35,
    }
    figure = go.Figure(data=list(traces), layout={**base, **layout}).to_plotly_json()
    figure["layout"].pop("template", None)  # the page's own, from its CSS variables
    return {"figure": figure, "config": dict(CONFIG), "height": height}
