"""One step along time: a lane for each stream and one for the gaps, with what the cursor says of each span.

Pure functions of API JSON. Times are µs from the step's start. The pictures are paths, one for each colour, so that a
thousand spans stay light; what a span is stands once in the numbers that static/timeline.js reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypedDict

from app.objects.trace import StepTimes, Timeline, TimelineGaps, TimelineStream, Trace, TraceBody
from app.trace_report.timeline import COPIES, ELSEWHERE, NO_REGION, Span, fit_lanes
from app.units import count, duration
from app.web.charts.figure import show_hidden
from app.web.charts.svg import Scale, ticks
from app.web.labels import TOOL_LABELS

MOST_SPANS, MOST_GAPS, MOST_ROWS = 380, 160, 10
"""Drawn in one view, and rows of its tables; a closer view shows the others."""
CLOSEST_SHARE = 1 / 512
"""Of the step; a view is at least so long."""
MOST_STRETCH = 1.1
"""Idle time of a gap that is many, over what is free between the spans of work, to which it is still told in parts."""
SAME_SHARE = 0.0005
"""Of the median: a step no farther from it is the median step. What is told of a time has three digits."""
LANE, ACROSS, LEAST, LOWEST = 40.0, 1000.0, 0.7, 0.08
"""Height and width of a lane's picture, the least width of a span in it, and its least part of the height."""

OTHERS = {COPIES: "copies and sets", NO_REGION: "no region", ELSEWHERE: "work of other steps"}
CAUSES = {
    "launch": ("waiting for launches", "launch"),
    "host": ("waiting for the host", "host"),
    "communication": ("waiting for communication", "wait"),
    "device": ("queued, not started", "queue"),
}
"""Cause of a gap: its words, and its colour's class as in the parts of the step."""


Window = tuple[float, float]
"""A part of the step: from when to when, in µs from its start."""

WindowLink = Callable[[Window | None], str]
"""The page's address that shows this part of the step; None for the whole."""


class Lane(TypedDict):
    """One stream. paths: (class of the colour, SVG path) of its spans."""

    name: str
    paths: list[tuple[str, str]]
    busy_us: float


class SpanRow(TypedDict):
    """A long span in the table. name: of its region; kernel: label of its longest one."""

    at_us: float
    length_us: float
    name: str
    href: str
    tool: str
    kernels: int
    kernel: str
    stream: str


class GapRow(TypedDict):
    """A long gap in the table. gaps: that it stands for; before: what comes after it."""

    at_us: float
    length_us: float
    idle_us: float
    gaps: int
    cause: str
    look: str
    before: str
    href: str


class CursorData(TypedDict):
    """What static/timeline.js reads.

    lanes: of [start, length, owner, kernels, name, busy] in µs; gaps: of [start, length, cause, gaps, idle]. owners:
    name, advice and address by number; names: labels of kernels by number.
    """

    window: list[float]
    streams: list[str]
    lanes: list[list[list[float]]]
    gaps: list[list[float]]
    owners: dict[int, list[str]]
    names: dict[int, str]
    causes: list[str]


class Control(TypedDict):
    """A link to another view; href: "" for one that there is not."""

    name: str
    href: str


class TimelineView(TypedDict):
    """A part of one step. title, which: what step it is. closest_us: a view is at least so long. gaps: (class of the
    colour, SVG path); ticks: (per cent from the left, time); causes: (words, class) of those that are in the view;
    idle_share, idle_mostly: of the view, and its largest cause in words, None and "" where it is little; read: what
    else to see in it, in words.
    """

    title: str
    which: str
    start_us: float
    end_us: float
    wall_us: float
    closest_us: float
    whole: bool
    lanes: list[Lane]
    gaps: list[tuple[str, str]]
    ticks: list[tuple[float, str]]
    data: CursorData
    rows: list[SpanRow]
    gap_rows: list[GapRow]
    looks: list[str]
    causes: list[tuple[str, str]]
    idle_share: float | None
    idle_mostly: str
    read: str
    controls: list[Control]


class TimelineSection(TypedDict, total=False):
    """Context of partials/trace/timeline.html; {} for a trace that was stored before there was one."""

    timeline: TimelineView


def timeline_section(
    trace: Trace | TraceBody,
    names: Sequence[str],
    links: Sequence[str],
    window: Window | None,
    link: WindowLink,
) -> TimelineSection:
    """The view of a trace's step that the page's address asks for.

    names, links: of the trace's regions, in the report's order. window: what is looked at, the whole step for None.
    """
    timeline = trace.get("timeline")
    if not timeline or not timeline["streams"]:
        return {}
    wall = timeline["wall_us"]
    start, end = _clip(window, wall)
    tools = [advice["tool"] if (advice := r.get("advice")) else "none" for r in trace["regions"]]
    pixel = (end - start) / (2 * ACROSS)
    lanes = fit_lanes([_spans(s, start, end) for s in timeline["streams"]], MOST_SPANS, end - start, pixel)
    stored = _gap_spans(timeline["gaps"], start, end)
    idle_share, idle_mostly = _idle(stored, end - start)
    gaps = fit_lanes([_split_gaps(stored, timeline["streams"], start, end)], MOST_GAPS, end - start, pixel)[0]
    drawn = [
        _draw_lane(_lane_name(stream, timeline["streams"]), spans, tools, (start, end))
        for stream, spans in zip(timeline["streams"], lanes, strict=True)
    ]
    used = {look for lane in drawn for look, _ in lane["paths"]}
    return {
        "timeline": {
            "title": _title(timeline, trace.get("step_times")),
            "which": _which(timeline, trace.get("step_times")),
            "start_us": start,
            "end_us": end,
            "wall_us": wall,
            "closest_us": wall * CLOSEST_SHARE,
            "whole": end - start >= wall * 0.999,
            "lanes": drawn,
            "gaps": _draw_gaps(gaps, (start, end)),
            "ticks": _ticks(start, end),
            "data": _cursor_data(lanes, gaps, timeline, names, links, tools, (start, end)),
            "rows": _span_rows(lanes, timeline, names, links, tools),
            "gap_rows": _gap_rows(gaps, lanes, names, links),
            "looks": [t for t in TOOL_LABELS if t in used],
            "causes": [CAUSES[c] for c in CAUSES if any(g.owner == _CAUSE[c] for g in gaps)],
            "idle_share": idle_share,
            "idle_mostly": idle_mostly,
            "read": _describe_view(gaps, lanes, names, idle_share is not None, end - start),
            "controls": _controls(start, end, wall, link),
        }
    }


def _is_median(timeline: Timeline, times: StepTimes | None) -> bool:
    return times is not None and abs(timeline["wall_us"] - times["median_us"]) <= SAME_SHARE * times["median_us"]


def _title(timeline: Timeline, times: StepTimes | None) -> str:
    """ "The median step" only where the shown one takes as long as the median that the page tells."""
    if times is None or times["count"] < 2:
        return "Timeline of the step"
    return "Timeline of the median step" if _is_median(timeline, times) else "Timeline of one step"


def _which(timeline: Timeline, times: StepTimes | None) -> str:
    """The shown step and its time, and what it is to the others."""
    text = f"{timeline['step']}: {duration(timeline['wall_us'])}"
    if times is None or times["count"] < 2 or _is_median(timeline, times):
        return text
    middle = duration(times["median_us"])
    told = f", {middle}" if middle != duration(timeline["wall_us"]) else ""
    return f"{text}, near the median of {times['count']} steps{told}"


_CAUSE = {cause: place for place, cause in enumerate(CAUSES)}
_WORDS = tuple(CAUSES.values())


def _clip(window: Window | None, wall: float) -> tuple[float, float]:
    if window is None:
        return 0.0, wall
    least = wall * CLOSEST_SHARE
    start = min(max(window[0], 0.0), wall - least)
    return start, min(max(window[1], start + least), wall)


def _spans(lane: TimelineStream, start: float, end: float) -> list[Span]:
    """The spans of a lane that reach into the view."""
    first = bisect_left(lane["start_us"], start)
    while first > 0 and lane["start_us"][first - 1] + lane["length_us"][first - 1] > start:
        first -= 1
    last = bisect_left(lane["start_us"], end)
    columns = zip(
        lane["start_us"], lane["length_us"], lane["region"], lane["busy_us"], lane["kernels"], lane["name"], strict=True
    )
    return [
        Span(a, a + length, region, busy, kernels, name, busy / max(1, kernels), {region: busy})
        for a, length, region, busy, kernels, name in islice(columns, first, last)
    ]


def _gap_spans(gaps: TimelineGaps, start: float, end: float) -> list[Span]:
    """The stored gaps, cut to the view: of one that is many, the idle time in proportion."""
    columns = (gaps["start_us"], gaps["length_us"], gaps["idle_us"], gaps["cause"], gaps["gaps"])
    spans = []
    for at, length, idle, cause, number in zip(*columns, strict=True):
        low, high = max(at, start), min(at + length, end)
        if high > low:
            part = idle * (high - low) / length
            spans.append(Span(low, high, _CAUSE[cause], part, number, 0, part, {_CAUSE[cause]: part}))
    return spans


def _split_gaps(gaps: Sequence[Span], streams: Sequence[TimelineStream], start: float, end: float) -> list[Span]:
    """Gaps that are many in one, told one by one as far as the spans of work between them are stored.

    Their idle time stays what it is: what is free between those spans has it in proportion. Where too much of it is
    inside the spans, which are merged themselves, the gap stays one.
    """
    work = sorted((s.start_us, s.end_us) for lane in streams for s in _spans(lane, start, end))
    pieces, at = [], 0
    for gap in gaps:
        if gap.count == 1:
            pieces.append(gap)
            continue
        while at < len(work) and work[at][1] <= gap.start_us:
            at += 1
        free, place = gap.start_us, at
        edges = []
        while place < len(work) and work[place][0] < gap.end_us:
            if work[place][0] > free:
                edges.append((free, work[place][0]))
            free, place = max(free, work[place][1]), place + 1
        if free < gap.end_us:
            edges.append((free, gap.end_us))
        free_us = sum(b - a for a, b in edges)
        if not free_us or gap.busy_us > MOST_STRETCH * free_us:
            pieces.append(gap)
            continue
        part = gap.busy_us / free_us
        for a, b in edges:
            idle_us = (b - a) * part
            pieces.append(Span(a, a + max(b - a, idle_us), gap.owner, idle_us, 1, 0, idle_us, {gap.owner: idle_us}))
    return pieces


def _idle(gaps: Sequence[Span], length: float) -> tuple[float | None, str]:
    """The share of a view in which the GPU is idle, and its largest cause in words; None and "" where it is little."""
    by_cause: dict[int, float] = {}
    for gap in gaps:
        by_cause[gap.owner] = by_cause.get(gap.owner, 0.0) + gap.busy_us
    total = sum(by_cause.values())
    if total <= 0.01 * length:
        return None, ""
    return min(1.0, total / length), _WORDS[max(by_cause, key=lambda c: by_cause[c])][0]


def _look(owner: int, tools: Sequence[str]) -> str:
    return tools[owner] if 0 <= owner < len(tools) else "rest"


def _path(spans: Sequence[Span], window: Window) -> str:
    """One path of boxes; height: the share of the span in which its work runs, or its gaps last."""
    scale = ACROSS / (window[1] - window[0])
    parts = []
    for span in spans:
        left, right = max(0.0, (span.start_us - window[0]) * scale), min(ACROSS, (span.end_us - window[0]) * scale)
        wide = max(LEAST, right - left)
        part = span.busy_us / span.length_us if span.length_us else 1.0
        high = LANE * min(1.0, max(LOWEST, part))
        parts.append(f"M{left:.4g} {LANE:g}h{wide:.3g}v-{high:.3g}h-{wide:.3g}z")
    return "".join(parts)


def _draw_lane(name: str, spans: Sequence[Span], tools: Sequence[str], window: Window) -> Lane:
    by_look: dict[str, list[Span]] = {}
    for span in spans:
        by_look.setdefault(_look(span.owner, tools), []).append(span)
    return {
        "name": name,
        "paths": [(look, _path(of_look, window)) for look, of_look in by_look.items()],
        "busy_us": sum(s.busy_us for s in spans),
    }


def _draw_gaps(gaps: Sequence[Span], window: Window) -> list[tuple[str, str]]:
    by_cause: dict[int, list[Span]] = {}
    for gap in gaps:
        by_cause.setdefault(gap.owner, []).append(gap)
    return [(_WORDS[cause][1], _path(of_cause, window)) for cause, of_cause in by_cause.items()]


def _lane_name(lane: TimelineStream, lanes: Sequence[TimelineStream]) -> str:
    if lane["stream"] is None:
        return "other streams"
    several = len({other["device"] for other in lanes if other["stream"] is not None}) > 1
    return f"GPU {lane['device']} stream {lane['stream']}" if several else f"stream {lane['stream']}"


def _ticks(start: float, end: float) -> list[tuple[float, str]]:
    """(per cent from the left, time in the step) of about six round times."""
    unit, scale = ("ms", 1e3) if end >= 2e3 else ("µs", 1.0)
    marks = ticks(Scale("linear", start / scale, end / scale, 0.0, 100.0), {"nticks": 6})
    return [(at, f"{text} {unit}") for at, text in marks if at <= 94.0]


# ----------------------------------------------------------------------------------------------------------- the cursor


def _cursor_data(
    lanes: Sequence[Sequence[Span]],
    gaps: Sequence[Span],
    timeline: Timeline,
    names: Sequence[str],
    links: Sequence[str],
    tools: Sequence[str],
    window: Window,
) -> CursorData:
    """The spans and gaps of the view; an owner or name that none of them has is left out."""
    used = sorted({s.owner for lane in lanes for s in lane})
    kernel_names = sorted({s.name for lane in lanes for s in lane if s.name >= 0})
    return {
        "window": [round(window[0], 2), round(window[1], 2)],
        "streams": [_lane_name(s, timeline["streams"]) for s in timeline["streams"]],
        "lanes": [
            [
                [round(s.start_us, 1), round(s.length_us, 1), s.owner, s.count, s.name, round(s.busy_us, 1)]
                for s in lane
            ]
            for lane in lanes
        ],
        "gaps": [[round(g.start_us, 1), round(g.length_us, 1), g.owner, g.count, round(g.busy_us, 1)] for g in gaps],
        "owners": {o: _describe_owner(o, names, links, tools) for o in used},
        "names": {n: show_hidden(timeline["names"][n]) for n in kernel_names},
        "causes": [words for words, _ in _WORDS],
    }  # fmt: skip


def _describe_owner(owner: int, names: Sequence[str], links: Sequence[str], tools: Sequence[str]) -> list[str]:
    """Name, advice and address. The script shows them, past the templates that make hidden characters visible."""
    if 0 <= owner < len(names):
        return [show_hidden(names[owner]), TOOL_LABELS.get(tools[owner], tools[owner]), links[owner]]
    return [OTHERS.get(owner, "no region"), "", ""]


def _span_rows(
    lanes: Sequence[Sequence[Span]],
    timeline: Timeline,
    names: Sequence[str],
    links: Sequence[str],
    tools: Sequence[str],
) -> list[SpanRow]:
    """The longest spans of the view, in order of time."""
    every = [(s, place) for place, lane in enumerate(lanes) for s in lane]
    longest = sorted(every, key=lambda e: -e[0].length_us)[:MOST_ROWS]
    rows: list[SpanRow] = []
    for span, place in sorted(longest, key=lambda e: e[0].start_us):
        name, _, href = _describe_owner(span.owner, names, links, tools)
        rows.append(
            {
                "at_us": span.start_us, "length_us": span.length_us, "name": name, "href": href,
                "tool": _look(span.owner, tools), "kernels": span.count,
                "kernel": timeline["names"][span.name] if span.name >= 0 else "",
                "stream": _lane_name(timeline["streams"][place], timeline["streams"]),
            }
        )  # fmt: skip
    return rows


def _gap_rows(
    gaps: Sequence[Span], lanes: Sequence[Sequence[Span]], names: Sequence[str], links: Sequence[str]
) -> list[GapRow]:
    """The gaps with most idle time, in order of time, each with the region that comes after it."""
    every = sorted((s for lane in lanes for s in lane), key=lambda s: s.start_us)
    starts = [s.start_us for s in every]
    longest = sorted(gaps, key=lambda g: -g.busy_us)[:MOST_ROWS]
    rows: list[GapRow] = []
    for gap in sorted(longest, key=lambda g: g.start_us):
        after = bisect_left(starts, gap.end_us - 0.2)
        following = every[after].owner if after < len(every) else None
        known = following is not None and 0 <= following < len(names)
        rows.append(
            {
                "at_us": gap.start_us, "length_us": gap.length_us, "idle_us": gap.busy_us, "gaps": gap.count,
                "cause": _WORDS[gap.owner][0], "look": _WORDS[gap.owner][1],
                "before": names[following] if known and following is not None
                else "the step's end" if following is None else OTHERS.get(following, ""),
                "href": links[following] if known and following is not None else "",
            }
        )  # fmt: skip
    return rows


def _describe_view(
    gaps: Sequence[Span],
    lanes: Sequence[Sequence[Span]],
    names: Sequence[str],
    idle: bool,
    length: float,
) -> str:
    """What to see in this view besides how much of it is idle. idle: it is enough to be told."""
    parts = []
    if idle:
        gap = max((g for g in gaps if g.count == 1), key=lambda g: g.busy_us, default=None)
        if gap is not None and gap.busy_us > 0.02 * length:
            parts.append(f"the longest wait begins at {duration(gap.start_us)} and lasts {duration(gap.length_us)}")
    every = [s for lane in lanes for s in lane]
    if every:
        longest = max(every, key=lambda s: s.busy_us)
        name = names[longest.owner] if 0 <= longest.owner < len(names) else OTHERS.get(longest.owner, "")
        what = count(longest.count, "kernel")
        parts.append(f"the longest stretch of work is {name} ({what}, {duration(longest.busy_us)})")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _controls(start: float, end: float, wall: float, link: WindowLink) -> list[Control]:
    """Links to closer, wider and neighbouring views; "" for one that there is not."""
    length, whole = end - start, link(None)

    def about(middle: float, wide: float) -> str:
        if wide >= wall:
            return whole
        low = min(max(middle - wide / 2, 0.0), wall - wide)
        return link((low, low + wide))

    middle, everything = (start + end) / 2, length >= wall * 0.999
    places = {
        "Zoom in": about(middle, length / 2) if length > 2 * wall * CLOSEST_SHARE else "",
        "Zoom out": "" if everything else about(middle, length * 2),
        "Earlier": about(middle - length / 2, length) if start > 0.05 else "",
        "Later": about(middle + length / 2, length) if end < wall - 0.05 else "",
        "Whole step": "" if everything else whole,
    }
    return [{"name": name, "href": href} for name, href in places.items()]
