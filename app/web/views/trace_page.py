"""What the page of a trace shows of the API's object: its parts together, and the tabs they stand in.

Pure functions of API JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypedDict

from app.objects.common import Note
from app.objects.record import ArchiveRecord
from app.objects.trace import Rest, Trace, TraceSummary
from app.thresholds import DEFAULTS, Thresholds
from app.trace_report.actions.listed import before_us
from app.trace_report.rests_on import rests_on_words
from app.web.charts import plotly
from app.web.charts.figure import Chart
from app.web.charts.flame import FlameSection, flame_section
from app.web.charts.names import id_of
from app.web.charts.timeline import TimelineSection, Window, timeline_section
from app.web.views.breakdown import BreakdownSection, breakdown_section
from app.web.views.reading import ReadingProgress, describe_trace_progress, has_parts, status_of
from app.web.views.region_list import View
from app.web.views.source import SourceSection, source_section
from app.web.views.trace.notes import BlockerRow, blocker_rows, page_notes
from app.web.views.trace.ranks import RankSection, rank_section
from app.web.views.trace.regions import AnyTrace, RegionsSection, page_address, region_links, region_names, regions_part
from app.web.views.trace.step import SpeedupSection, StepSection, speedup_section, step_section
from app.web.views.trace_actions import ActionSection, action_section, expected_rows
from app.web.views.trace_tabs import Tab, trace_tabs

COMPANION_WORDS = {"beside": "the trace", "execution_trace": "the execution trace"}
ADVICE_HEIGHT = 234
"""px of the part "What to do" next to its chart: the room that is kept for it while advice comes."""


class ToolTime(TypedDict):
    """The time of one tool's regions in a step; share: of it, None for one without a length."""

    tool: str
    time_us: float
    share: float | None


class Companion(TypedDict):
    """A file that was read with the trace. what: it is, in words."""

    what: str
    name: str


class UnreadPage(TypedDict):
    """Context of the page of a trace of which no part is known yet."""

    trace: AnyTrace
    reading: bool
    parts: Literal[False]


class TracePage(
    TimelineSection, BreakdownSection, FlameSection, SourceSection, StepSection, RankSection, RegionsSection
):
    """Context of partials/trace/body.html.

    parts: what is there of the trace can be shown, without the advice on all regions while it is read. rests_on_words:
    what its predictions rest on, in sentences; expected_rows: of the list of what to do, while it is read.
    """

    trace: AnyTrace
    parts: Literal[True]
    tabs: list[Tab]
    progress: ReadingProgress
    notes: list[Note]
    obstacles: list[BlockerRow]
    no_saving: str
    rests_title: str
    step_rows: list[plotly.StepRow]
    strip: list[plotly.StepRow]
    tools_used: list[ToolTime]
    step_chart: Chart | None
    advice_height: int
    speedup: SpeedupSection
    to_do: ActionSection
    before_us: float | None
    expected_rows: int
    rests_on_words: str
    companions: list[Companion]


def trace_page(
    trace: AnyTrace,
    group: Iterable[TraceSummary] = (),
    *,
    view: View | None = None,
    recorded: Mapping[str, ArchiveRecord] | None = None,
    of_rank: Trace | None = None,
    anchors: bool = False,
    settings: Thresholds = DEFAULTS,
) -> TracePage | UnreadPage:
    """What the page of a trace shows. group: the traces of the same job, this one among them.

    view: what the page's address asks for. recorded: texts of regions that the archive has, with the record.
    of_rank: the trace of the rank whose regions are listed, where it is another. anchors: regions are read about in
    this page, which is a report.
    """
    reading = status_of(trace) == "reading"
    if not has_parts(trace):
        return {"trace": trace, "reading": reading, "parts": False}
    view = view or View()
    names = region_names(trace)
    links = region_links(trace, anchors=anchors)
    rows = plotly.step_rows(trace, names)
    by_tool: dict[str, float] = {}
    for row in rows:
        by_tool[row["tool"]] = by_tool.get(row["tool"], 0.0) + row["time_us"]
    step_us = trace.get("step_time_us")
    used: list[ToolTime] = [
        {"tool": tool, "time_us": by_tool[tool], "share": by_tool[tool] / step_us if step_us else None}
        for tool in plotly.TOOLS
        if tool in by_tool
    ]
    order = {tool: place for place, tool in enumerate(plotly.TOOLS)}
    advices = [advice for r in trace.get("regions") or () if (advice := r.get("advice"))]
    helping = [advice for advice in advices if advice.get("tool") not in (None, "skip")]
    timeless = bool(helping) and not any(a.get("region_speedup") for a in helping)
    ranks = rank_section(group)
    companions = trace.get("companions") or {}
    page: TracePage = {
        **timeline_part(trace, view, anchors=anchors),
        **breakdown_section(trace, names, links),
        **flame_section(trace, names, links),
        **source_section(trace, names, links),
        **step_section(trace),
        **ranks,
        **regions_part(trace, view, recorded, of_rank, ranks.get("ranks") or (), anchors=anchors, settings=settings),
        "tabs": [],
        "trace": trace,
        "reading": reading,
        "parts": True,
        "progress": describe_trace_progress(trace),
        "notes": page_notes(trace),
        "obstacles": blocker_rows(trace.get("compile_obstacles") or ()),
        "no_saving": _explain_no_saving(trace, timeless),
        "rests_title": _title_rests(trace.get("rests") or ()),
        "step_rows": rows,
        "strip": sorted(rows, key=lambda row: (order[row["tool"]], -row["time_us"])),
        "tools_used": used,
        "step_chart": None if reading else plotly.step_by_region(rows),
        "advice_height": ADVICE_HEIGHT + plotly.step_height(rows),
        "speedup": speedup_section(trace),
        "to_do": action_section(trace, _by_key(trace, links), _by_key(trace, names)),
        "before_us": before_us(trace),
        "expected_rows": expected_rows(trace) if reading else 0,
        "rests_on_words": rests_on_words(trace.get("regions") or ()),
        "companions": [
            {"what": words, "name": companions[field]}
            for field, words in COMPANION_WORDS.items()
            if field in companions
        ],
    }
    counts = {"regions": str(len(trace.get("regions") or ())), "notes": str(len(page["notes"]) or "")}
    page["tabs"] = trace_tabs(view, page, counts, lambda tab: page_address(id_of(trace) or "", view, tab=tab))
    return page


def _explain_no_saving(trace: AnyTrace, timeless: bool) -> str:
    """Why there is no estimate of the step after all changes."""
    if status_of(trace) == "failed":
        return "after the changes: not known, reading ended before"
    return "after the changes: not known, no times can be predicted" if timeless else "no saving predicted"


def _title_rests(rests: Iterable[Rest]) -> str:
    """The heading of what is in no region: kernels that no advice can be given on may be among it."""
    return "Time outside regions" if any(r.get("kind") == "kernels" for r in rests) else "Time outside kernels"


def _by_key(trace: AnyTrace, told: Sequence[str]) -> dict[str, str]:
    """Key of a region -> what is told of it. told: of each region, in the report's order."""
    regions = trace.get("regions") or ()
    return {key: text for region, text in zip(regions, told, strict=True) if (key := region.get("key"))}


def timeline_part(trace: AnyTrace, view: View, *, anchors: bool = False) -> TimelineSection:
    """Context of partials/trace/timeline.html."""

    def link(window: Window | None) -> str:
        start_us, end_us = window or (None, None)
        return page_address(id_of(trace) or "", view, start_us=start_us, end_us=end_us, tab="timeline")

    return timeline_section(trace, region_names(trace), region_links(trace, anchors=anchors), view.window, link)
