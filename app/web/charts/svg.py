"""The figures of app.web.charts.plotly as SVG: they stand in a page as it comes, without a script. Pure functions.

Of Plotly's figures what most charts use (`can_draw`): horizontal bars (over or after each other) with their hatching,
markers with intervals, lines, areas, texts, annotations, lines across; linear, logarithmic and category axes, side by
side by `domain`. Colours of text, grid and background are the page's own, by class. What Plotly tells of a mark that is
pointed at is the mark's <title>.

Not Plotly itself: its script is 1.5 MB, 0.5 MB compressed, and takes half a second before it has drawn one chart. It
does not run where reports are opened: in a mail, and among a CI server's artifacts, whose policy forbids scripts.
"""

from __future__ import annotations

import html
import itertools
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from app.units import percent
from app.web.charts.figure import Chart, Figure

WIDE, NARROW = 880.0, 380.0
"""px across, on a page and on a phone: static/app.css shows the one that fits."""
LETTER = 7.0
"""Width of an average letter at 12 px, in the widest of the fonts that a system may have for it."""
LONGEST = 0.375
"""Of the width, what names on the left may take."""
LABELS, ENDS = 0.45, 1.3
"""Of an axis, what is added at least on a phone, where the labels after bars and marks need a larger part; and how far
an axis reaches beyond its longest bar."""
ROW = 22.0
"""px of a legend's line."""


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

DASHES = {"dash": "7 5", "dot": "2 3", "dashdot": "7 4 2 4"}
"""Plotly's names of lines that are not whole -> stroke-dasharray."""


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


def can_draw(chart: Chart) -> bool:
    """Whether `drawing` has all that the figure uses."""
    return chart["figure"]["layout"].get("barmode") != "group" and all(
        t["type"] == "scatter" or (t["type"] == "bar" and t.get("orientation") == "h") for t in chart["figure"]["data"]
    )


def drawings(chart: Chart, title: str) -> Markup:
    """One figure twice, as <svg> for a page and for a phone, of which one is shown."""
    return Markup("\n").join([drawing(chart, title, WIDE), drawing(chart, title, NARROW)])


def drawing(chart: Chart, title: str, width: float = WIDE) -> Markup:
    """One figure as an <svg> with its title."""
    narrow = width < WIDE
    figure, height = chart["figure"], float(chart["height"])
    data, layout = figure["data"], _with_room(figure, width)
    name = f"{title} {width:.0f}"
    legend, rows = _legend(data, layout, name, width)
    above = any(a.get("yref") == "paper" for a in layout.get("annotations", ()))
    top = 8.0 + max(ROW * rows, ROW if above else 0.0)
    box = (_left(data, layout, width), width - 16.0, top, height - 48.0)
    scales = {axis: _scale(axis, data, layout, box) for axis in _axes(data)}
    parts = [*_grids(scales, layout, box), *_lines(layout, scales, box)]
    reached: dict[tuple[str, str], float] = {}
    for trace in data:
        across, up = scales[trace.get("xaxis", "x")], scales[trace.get("yaxis", "y")]
        if trace["type"] == "bar":
            marks = _bars(trace, across, up, reached if layout.get("barmode") == "stack" else {}, name)
            parts.append(Markup('<g class="bars">{}</g>').format(Markup("").join(marks)))
        else:
            parts += _points(trace, across, up)
    parts += [_annotation(a, scales, box) for a in layout.get("annotations", ())]
    start = Markup('<svg class="drawn {}" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">').format(
        "narrow" if narrow else "wide", width, height, f"{title}. The numbers are in the table below."
    )
    of_bars = [(t["marker"], at) for t in data if t["type"] == "bar" for at in range(len(t["y"]))]
    definitions = dict.fromkeys(_define_hatching(marker, at, name)[1] for marker, at in of_bars)
    hatchings = Markup("<defs>{}</defs>").format(Markup("").join(definitions))
    return Markup("\n").join([start, hatchings, *legend, *parts, Markup("</svg>")])


def _with_room(figure: Figure, width: float) -> Figure:
    """A layout whose named rows leave the labels next to their marks the room that they need."""
    data: list[Figure] = figure["data"]
    layout: Figure = figure["layout"]
    across = layout.get("xaxis") or {}
    if (layout.get("yaxis") or {}).get("type") != "category" or "range" not in across:
        return layout
    texts = [t for trace in data if trace.get("textposition") != "inside" for t in trace.get("text") or ()]
    needed = LETTER * max((len(html.unescape(t).strip()) for t in texts), default=0)
    left = _left(data, layout, width)
    room = width - left - 16.0
    narrow = width < WIDE
    added = max(LABELS if narrow else 0.0, room / (ENDS * max(0.3 * room, width - left - needed)) - 1.0)
    low, high = across["range"]
    few = {"nticks": 4} if narrow else {}
    return {**layout, "xaxis": {**across, "range": [low, high + added * (high - low)], **few}}


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


def _left(data: Sequence[Figure], layout: Figure, width: float) -> float:
    names = _names(data, layout, "y")
    if not names:
        return 64.0
    return min(LONGEST * width, 16.0 + LETTER * max(len(html.unescape(n)) for n in names))


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
    left, right, top, bottom = box
    parts = []
    for name, scale in scales.items():
        axis = _axis(layout, name)
        if axis.get("showticklabels") is False:
            continue
        title = (axis.get("title") or {}).get("text", "")
        if scale.kind == "category":
            longest = int((left - 16.0) / LETTER)
            names = [_text(left - 8, scale(n) + 4, _cut(n, longest), "end", "name") for n in scale.names]
            parts.append(Markup('<g class="ytick">{}</g>').format(Markup("").join(names)))
        elif name[0] == "x":
            free = -math.inf
            for at, text in ticks(scale, axis):
                parts.append(_line(at, top, at, bottom, "grid"))
                half = LETTER * len(text) / 2
                if at - half >= free:  # two that would touch cannot be read
                    parts.append(_text(at, bottom + 16, text, "middle", "tick"))
                    free = at + half + LETTER
            half = LETTER * len(title) / 2
            middle = max(half, min((scale.start + scale.end) / 2, right + 16.0 - half))
            parts.append(_text(middle, bottom + 36, title, "middle", "axis"))
        else:
            across = next(s for n, s in scales.items() if n[0] == "x")
            last = math.inf
            for at, text in ticks(scale, axis):
                label = percent(float(text)) if axis.get("tickformat") == ".0%" else text
                parts.append(_line(left, at, across.end, at, "grid"))
                if last - at >= 12:
                    parts.append(_text(left - 8, at + 4, label, "end", "tick"))
                    last = at
            turn = Markup(' transform="rotate(-90 14 {0:.1f})"').format((top + bottom) / 2)
            parts.append(_text(14, (top + bottom) / 2, title, "middle", "axis", turn))
    return parts


def _bars(trace: Figure, across: Scale, up: Scale, reached: dict[tuple[str, str], float], title: str) -> list[Markup]:
    parts = []
    texts = trace.get("text") or [""] * len(trace["y"])
    inside = trace.get("textposition") == "inside"
    thick = 0.65 * abs(up.end - up.start) / max(1, len(up.names))
    base = float(trace.get("base") or 0.0)
    for at, (value, name, text) in enumerate(zip(trace["x"], trace["y"], texts, strict=True)):
        key = (trace.get("xaxis", "x"), name)
        before = reached.get(key, base)
        reached[key] = before + value
        start, end = across(before), across(before + value)
        y = up(name)
        bar = '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}">{}</rect>'
        fill = _define_hatching(trace["marker"], at, title)[0]
        place = (min(start, end), y - thick / 2, abs(end - start), thick)
        parts.append(Markup(bar).format(*place, fill, _told(trace, at)))
        if text and inside:
            room = int((end - start - 6) / LETTER)
            parts.append(_text((start + end) / 2, y + 4, _cut(text, room) if room > 3 else "", "middle", "on"))
        elif text:
            # Behind the bar's end; where names stand in the way of one that goes left, at the end that it begins at.
            left = end < start and end - 4 - LETTER * len(html.unescape(text).strip()) >= across.start
            edge = end if left else max(start, end)
            parts.append(_text(edge - 4 if left else edge + 4, y + 4, text, "end" if left else "start", "name"))
    return parts


def _points(trace: Figure, across: Scale, up: Scale) -> list[Markup]:
    parts = []
    spots = list(zip(trace["x"], trace["y"], strict=True))
    if trace.get("fill") == "toself":
        corners = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in spots)
        area = '<polygon class="area" points="{}" fill="{}"/>'
        return [Markup(area).format(corners, trace["fillcolor"])]
    if "lines" in trace["mode"]:
        steps = spots if trace["line"].get("shape") != "hv" else _as_steps(spots)
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in steps)
        parts.append(_path(path, trace["line"]))
    for place, (x, y) in enumerate(spots):
        parts += _intervals(trace, place, x, y, across, up)
        if "markers" in trace["mode"]:
            parts.append(_marker(trace["marker"], across(x), up(y), _told(trace, place)))
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
        x1, y1, x2, y2 = ends
        where = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        parts.append(Markup(f'<line {where} stroke="{escape(error["color"])}" stroke-width="3"/>'))
    return parts


def _path(points: str, line: Figure) -> Markup:
    """A line through points, as Plotly's `line` says."""
    drawn = '<polyline points="{}" fill="none" stroke="{}" stroke-width="{}" stroke-dasharray="{}"/>'
    return Markup(drawn).format(points, line["color"], line.get("width", 2), DASHES.get(line.get("dash", ""), ""))


def _as_steps(spots: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Along first, then up: a corner before each point but the first."""
    corners = [(b[0], a[1]) for a, b in itertools.pairwise(spots)]
    return [spots[0], *(spot for pair in zip(corners, spots[1:], strict=True) for spot in pair)]


PLACEHOLDER = re.compile(r"%\{(\w+)(?::([^}]+))?\}")
"""What Plotly puts into a hovertemplate: %{x}, or %{x:.2f}."""


def _told(trace: Figure, at: int) -> Markup:
    """The <title> of one mark: what Plotly would say where it is pointed at; "" where that is nothing."""

    def value(match: re.Match[str]) -> str:
        given = trace.get(match[1], "")
        one = given if isinstance(given, str) else given[at]
        if match[2] == ".0%":
            return percent(float(one))
        return format(one, match[2]) if match[2] else str(one)

    template = trace.get("hovertemplate") or ""
    lines = PLACEHOLDER.sub(value, template).replace("<extra></extra>", "").split("<br>")
    said = "\n".join(html.unescape(line).strip() for line in lines).strip()
    return Markup(f"<title>{escape(said)}</title>") if said else Markup("")


def _marker(marker: Figure, x: float, y: float, told: Markup) -> Markup:
    """One mark. Put together without Markup.format, which took most of the time of a page with a thousand of them."""
    symbol, size = marker.get("symbol") or "circle", float(marker.get("size") or 10) / 2
    # An open mark is pointed at all over.
    colour = escape(marker["color"])
    opacity = 'fill-opacity="0" ' if symbol.endswith("-open") else ""
    rest = f'class="point" fill="{colour}" {opacity}stroke="{colour}" stroke-width="2"'
    corners = CORNERS.get(symbol.removesuffix("-open"))
    if corners:
        path = " ".join(f"{x + dx * size:.1f},{y + dy * size:.1f}" for dx, dy in corners)
        return Markup(f'<polygon points="{path}" {rest}>{told}</polygon>')
    return Markup(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" {rest}>{told}</circle>')


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


def _legend(data: Sequence[Figure], layout: Figure, title: str, width: float) -> tuple[list[Markup], int]:
    """The names of a figure's traces, and how many lines they take."""
    named = [t for t in data if t.get("showlegend", True) and t.get("name")]
    wanted: bool = layout.get("showlegend", len(named) > 1)
    if not wanted:
        return [], 0
    parts, x, row = [], 8.0, 0
    for trace in named:
        name = html.unescape(trace["name"])
        taken = 36.0 + LETTER * len(name)
        if x > 8.0 and x + taken > width:
            x, row = 8.0, row + 1
        y = 4.0 + ROW * row
        parts += [_sample(trace, x, y, title), _text(x + 16, y + 10, name, "start", "name")]
        x += taken
    return parts, row + 1


def _sample(trace: Figure, x: float, y: float, title: str) -> Markup:
    """What stands before a trace's name: its bar, its mark or a piece of its line."""
    if trace["type"] == "bar":
        swatch = '<rect x="{:.1f}" y="{:.1f}" width="11" height="11" rx="2" fill="{}"/>'
        return Markup(swatch).format(x, y, _define_hatching(trace["marker"], 0, title)[0])
    if trace.get("fill") == "toself":
        area = '<rect class="area" x="{:.1f}" y="{:.1f}" width="11" height="11" fill="{}"/>'
        return Markup(area).format(x, y, trace["fillcolor"])
    if "markers" in trace["mode"]:
        return _marker({**trace["marker"], "size": 9}, x + 5.5, y + 5.5, Markup(""))
    path = f"{x:.1f},{y + 5.5:.1f} {x + 12:.1f},{y + 5.5:.1f}"
    return _path(path, trace["line"])


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
