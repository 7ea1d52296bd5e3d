"""The figures of app.web.charts.plotly as SVG, for a page that opens without a script. Pure functions.

Of Plotly's figures only what these charts use: horizontal bars (grouped, over or after each other) with their hatching,
markers with intervals, lines, texts, annotations, lines across; linear, logarithmic and category axes, side by side by
`domain`. Colours of text, grid and background are the page's own, by class.

Not Plotly itself, inlined: its script is 1.5 MB in each report, and does not run where reports are opened: in a mail,
and among a CI server's artifacts, whose Content-Security-Policy forbids scripts.
"""

from __future__ import annotations

import html
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from app.web.charts.figure import Chart, Figure

WIDTH = 880.0
LETTER = 6.4
"""Width of an average letter at 12 px."""
LONGEST = 330.0
"""Of the width, what names on the left may take."""


CORNERS: dict[str, tuple[tuple[float, float], ...]] = {
    "diamond": ((-1, 0), (0, -1), (1, 0), (0, 1)),
    "square": ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
    "triangle-up": ((0, -1), (1, 0.8), (-1, 0.8)),
    "triangle-down": ((0, 1), (1, -0.8), (-1, -0.8)),
    "cross": ((-0.35, -1), (0.35, -1), (0.35, -0.35), (1, -0.35), (1, 0.35), (0.35, 0.35),
              (0.35, 1), (-0.35, 1), (-0.35, 0.35), (-1, 0.35), (-1, -0.35), (-0.35, -0.35)),
    "star": ((0, -1), (0.25, -0.3), (1, -0.3), (0.4, 0.15), (0.6, 0.9), (0, 0.45),
             (-0.6, 0.9), (-0.4, 0.15), (-1, -0.3), (-0.25, -0.3)),
}  # fmt: skip
"""Shapes of points that are no circles, in half their size."""

STROKES: dict[str, str] = {
    "/": "M0 8 8 0", "\\": "M0 0 8 8", "x": "M0 0 8 8M0 8 8 0", "-": "M0 4 8 4", "|": "M4 0 4 8",
    "+": "M0 4 8 4M4 0 4 8", ".": "M3 4 5 4",
}  # fmt: skip
"""Plotly's names of its patterns -> the strokes of one tile of 8 by 8."""


def _define_hatching(marker: Figure, at: int, title: str) -> tuple[str, Markup]:
    """(fill of a trace's bar, definition of its hatching; "" for a plain one). title: of the drawing, for the name."""
    colour, shape = ((v if isinstance(v, str) else v[at]) for v in (marker["color"], _shapes(marker)))
    if shape not in STROKES:
        return colour, Markup("")
    name = f"h{zlib.crc32(f'{title} {colour} {shape}'.encode()):08x}"
    tile = (
        '<pattern id="{}" width="8" height="8" patternUnits="userSpaceOnUse"><path d="M0 0h8v8H0z" fill="{}"/>'
        '<path d="{}" stroke="#fff" stroke-opacity="0.5" stroke-width="1.2" fill="none"/></pattern>'
    )
    return f"url(#{name})", Markup(tile).format(name, colour, STROKES[shape])


def _shapes(marker: Figure) -> str | list[str]:
    shapes: str | list[str] = (marker.get("pattern") or {}).get("shape") or ""
    return shapes


@dataclass(frozen=True, slots=True)
class Scale:
    """Values of one axis -> pixels. kind: linear, log (range in exponents) or category (by place in names)."""

    kind: str
    low: float
    high: float
    start: float
    end: float
    names: tuple[str, ...] = ()

    def __call__(self, value: str | float, *, exponent: bool = False) -> float:
        if self.kind == "category":
            number = float(self.names.index(str(value))) if value in self.names else 0.0
        elif self.kind == "log" and not exponent:
            number = math.log10(float(value)) if float(value) > 0 else self.low
        else:
            number = float(value)
        return self.start + (number - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)


def drawing(chart: Chart, title: str) -> Markup:
    """One figure as an <svg> with its title."""
    figure, height = chart["figure"], float(chart["height"])
    data, layout = figure["data"], figure["layout"]
    legend = _legend(data, layout, title)
    top = 8.0 + (22.0 if legend or any(a.get("yref") == "paper" for a in layout.get("annotations", ())) else 0.0)
    box = (_left(data, layout), WIDTH - 16.0, top, height - 48.0)
    scales = {name: _scale(name, data, layout, box) for name in _axes(data)}
    parts = [*_grids(scales, layout, box), *_lines(layout, scales, box)]
    reached: dict[tuple[str, str], float] = {}
    for trace in data:
        across, up = scales[trace.get("xaxis", "x")], scales[trace.get("yaxis", "y")]
        if trace["type"] == "bar":
            parts += _bars(trace, across, up, reached if layout.get("barmode") == "stack" else {}, title)
        else:
            parts += _points(trace, across, up)
    parts += [_annotation(a, scales, box) for a in layout.get("annotations", ())]
    start = Markup('<svg class="drawn" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">').format(
        WIDTH, height, f"{title}. The numbers are in the table below."
    )
    of_bars = [(t["marker"], at) for t in data if t["type"] == "bar" for at in range(len(t["y"]))]
    definitions = dict.fromkeys(_define_hatching(marker, at, title)[1] for marker, at in of_bars)
    hatchings = Markup("<defs>{}</defs>").format(Markup("").join(definitions))
    return Markup("\n").join([start, hatchings, *legend, *parts, Markup("</svg>")])


def _axes(data: Sequence[Figure]) -> list[str]:
    return sorted({t.get("xaxis", "x") for t in data} | {t.get("yaxis", "y") for t in data})


def _axis(layout: Figure, name: str) -> Figure:
    axis: Figure = layout.get(f"{name[0]}axis{name[1:]}") or {}
    return axis


def _names(data: Sequence[Figure], layout: Figure, name: str) -> tuple[str, ...]:
    """The categories of an axis, in its order; () where it counts."""
    axis = _axis(layout, name)
    if axis.get("type") != "category":
        return ()
    mine = [t for t in data if t.get(f"{name[0]}axis", name[0]) == name]
    names = [*(axis.get("categoryarray") or axis.get("tickvals") or ()), *(v for t in mine for v in t[name[0]])]
    return tuple(dict.fromkeys(names))


def _left(data: Sequence[Figure], layout: Figure) -> float:
    names = _names(data, layout, "y")
    if not names:
        return 64.0
    return min(LONGEST, 16.0 + LETTER * max(len(html.unescape(n)) for n in names))


def _scale(name: str, data: Sequence[Figure], layout: Figure, box: tuple[float, float, float, float]) -> Scale:
    left, right, top, bottom = box
    axis, names = _axis(layout, name), _names(data, layout, name)
    low, high = axis.get("domain") or (0.0, 1.0)
    start, end = (left + low * (right - left), left + high * (right - left)) if name[0] == "x" else (bottom, top)
    if names:
        ends = axis.get("range") or (len(names) - 0.5, -0.5)
        return Scale("category", ends[0], ends[1], start, end, names)
    span = axis.get("range")
    if span is None:
        values = [v for t in data if t.get(f"{name[0]}axis", name[0]) == name for v in t[name[0]]]
        span = (min([0.0, *values]), max([*values, 1e-9]) * 1.1)
    return Scale(axis.get("type") or "linear", span[0], span[1], start, end)


def ticks(scale: Scale, axis: Figure) -> list[tuple[float, str]]:
    """(pixel, text) of an axis that counts: as the figure says, else powers of ten or about six round steps."""
    if axis.get("tickvals"):
        texts = axis.get("ticktext") or [f"{v:g}" for v in axis["tickvals"]]
        marks = [(scale(v), str(t)) for v, t in zip(axis["tickvals"], texts, strict=True)]
    elif scale.kind == "log":
        inside = (1, 2, 5) if axis.get("dtick") == "D2" else (1,)
        powers = range(math.floor(scale.low), math.ceil(scale.high) + 1)
        marks = [(scale(m * 10.0**p), f"{m * 10.0**p:,.12g}") for p in powers for m in inside]
    else:
        span = scale.high - scale.low
        least = span / (axis.get("nticks") or 7)
        power = 10.0 ** math.floor(math.log10(least)) if span > 0 else 1.0
        step = next((m * power for m in (1, 2, 5) if m * power >= least), 10 * power)
        count = math.floor(scale.high / step)
        marks = [(scale(k * step), f"{k * step:,.6g}") for k in range(math.ceil(scale.low / step), count + 1)]
    low, high = sorted((scale.start, scale.end))
    return [(at, text) for at, text in marks if low - 0.5 <= at <= high + 0.5]


def _grids(scales: dict[str, Scale], layout: Figure, box: tuple[float, float, float, float]) -> list[Markup]:
    left, _, top, bottom = box
    parts = []
    for name, scale in scales.items():
        axis = _axis(layout, name)
        if axis.get("showticklabels") is False:
            continue
        title = (axis.get("title") or {}).get("text", "")
        if scale.kind == "category":
            longest = int((left - 16.0) / LETTER)
            parts += [_text(left - 8, scale(n) + 4, _cut(n, longest), "end", "name") for n in scale.names]
        elif name[0] == "x":
            for at, text in ticks(scale, axis):
                parts += [_line(at, top, at, bottom, "grid"), _text(at, bottom + 16, text, "middle", "tick")]
            parts.append(_text((scale.start + scale.end) / 2, bottom + 36, title, "middle", "axis"))
        else:
            across = next(s for n, s in scales.items() if n[0] == "x")
            for at, text in ticks(scale, axis):
                parts += [_line(left, at, across.end, at, "grid"), _text(left - 8, at + 4, text, "end", "tick")]
            turn = Markup(' transform="rotate(-90 14 {0:.1f})"').format((top + bottom) / 2)
            parts.append(_text(14, (top + bottom) / 2, title, "middle", "axis", turn))
    return parts


def _bars(trace: Figure, across: Scale, up: Scale, reached: dict[tuple[str, str], float], title: str) -> list[Markup]:
    parts = []
    texts = trace.get("text") or [""] * len(trace["y"])
    inside = trace.get("textposition") == "inside"
    thick = 0.65 * abs(up.end - up.start) / max(1, len(up.names))
    for at, (value, name, text) in enumerate(zip(trace["x"], trace["y"], texts, strict=True)):
        key = (trace.get("xaxis", "x"), name)
        before = reached.get(key, 0.0)
        reached[key] = before + value
        start, end = across(before), across(before + value)
        y = up(name)
        bar = '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>'
        fill = _define_hatching(trace["marker"], at, title)[0]
        parts.append(Markup(bar).format(start, y - thick / 2, max(0.0, end - start), thick, fill))
        if text:
            place = (start + end) / 2 if inside else end + 4
            room = int((end - start - 6) / LETTER) if inside else 200
            label = _cut(text, room) if room > 3 else ""
            parts.append(_text(place, y + 4, label, "middle" if inside else "start", "on" if inside else "name"))
    return parts


def _points(trace: Figure, across: Scale, up: Scale) -> list[Markup]:
    parts = []
    spots = list(zip(trace["x"], trace["y"], strict=True))
    if "lines" in trace["mode"]:
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in spots)
        colour = trace["line"]["color"]
        parts.append(Markup('<polyline points="{}" fill="none" stroke="{}" stroke-width="2"/>').format(path, colour))
    for place, (x, y) in enumerate(spots):
        parts += _intervals(trace, place, x, y, across, up)
        if "markers" in trace["mode"]:
            parts.append(_marker(trace["marker"], across(x), up(y)))
        texts = trace.get("text")
        if "text" in trace["mode"] and texts:
            anchor, dx, dy = _text_offset(trace.get("textposition", "middle right"))
            parts.append(_text(across(x) + dx, up(y) + dy, texts[place], anchor, "name"))
    return parts


def _text_offset(position: str) -> tuple[str, float, float]:
    """(text-anchor, dx, dy) of Plotly's textposition."""
    upright, _, side = position.partition(" ")
    dy = {"top": -12.0, "bottom": 22.0}.get(upright, 4.0)
    return {"left": ("end", -10.0, dy), "right": ("start", 10.0, dy)}.get(side, ("middle", 0.0, dy))


def _intervals(trace: Figure, place: int, x: float, y: float | str, across: Scale, up: Scale) -> list[Markup]:
    parts = []
    for error, along in ((trace.get("error_x"), True), (trace.get("error_y"), False)):
        if not error:
            continue
        value = x if along else y
        low, high = value - error["arrayminus"][place], value + error["array"][place]
        ends = (across(low), up(y), across(high), up(y)) if along else (across(x), up(low), across(x), up(high))
        line = '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}" stroke-width="3"/>'
        parts.append(Markup(line).format(*ends, error["color"]))
    return parts


def _marker(marker: Figure, x: float, y: float) -> Markup:
    symbol, size = marker.get("symbol") or "circle", float(marker.get("size") or 10) / 2
    fill = "none" if symbol.endswith("-open") else marker["color"]
    rest = Markup('fill="{}" stroke="{}" stroke-width="2"').format(fill, marker["color"])
    corners = CORNERS.get(symbol.removesuffix("-open"))
    if corners:
        path = " ".join(f"{x + dx * size:.1f},{y + dy * size:.1f}" for dx, dy in corners)
        return Markup('<polygon points="{}" {}/>').format(path, rest)
    return Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" {}/>').format(x, y, size, rest)


def _lines(layout: Figure, scales: dict[str, Scale], box: tuple[float, float, float, float]) -> list[Markup]:
    """Lines across the whole height, such as the floor."""
    line = '<line x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}" stroke="{3}" stroke-width="2" {4}/>'
    dashes = Markup('stroke-dasharray="6 4"')
    return [
        Markup(line).format(scales["x"](s["x0"]), box[2], box[3], s["line"]["color"], dashes)
        for s in layout.get("shapes", ())
    ]


def _annotation(note: Figure, scales: dict[str, Scale], box: tuple[float, float, float, float]) -> Markup:
    across, up = scales["x"], scales["y"]
    x = across(note["x"], exponent=True) + note.get("xshift", 0)
    y = box[2] if note.get("yref") == "paper" else up(note["y"], exponent=True)
    below = {"bottom": -4.0, "top": 14.0}.get(note.get("yanchor", "middle"), 4.0)
    anchor = {"left": "start", "right": "end"}.get(note.get("xanchor", "center"), "middle")
    x += {"start": 4.0, "end": -4.0}.get(anchor, 0.0)
    return _text(x, y + below - note.get("yshift", 0), note["text"], anchor, "name")


def _legend(data: Sequence[Figure], layout: Figure, title: str) -> list[Markup]:
    if not layout.get("showlegend"):
        return []
    parts, x = [], 8.0
    for trace in data:
        name = html.unescape(trace["name"])
        swatch = '<rect x="{:.1f}" y="4" width="11" height="11" rx="2" fill="{}"/>'
        fill = _define_hatching(trace["marker"], 0, title)[0]
        parts += [Markup(swatch).format(x, fill), _text(x + 16, 14, name, "start", "name")]
        x += 36.0 + LETTER * len(name)
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    line = '<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'
    return Markup(line).format(kind, x1, y1, x2, y2)


def _text(x: float, y: float, text: str, anchor: str, kind: str, more: str = "") -> Markup:
    """A label of a figure, which is escaped for Plotly already: read back, and escaped once for here."""
    label = html.unescape(str(text)).strip()
    if not label:
        return Markup("")
    mark = '<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>'
    return Markup(mark).format(kind, x, y, anchor, more, label)


def _cut(text: str, longest: int) -> str:
    label = html.unescape(text).strip()
    return html.escape(label if len(label) <= longest else label[: max(1, longest - 1)] + "…", quote=False)
