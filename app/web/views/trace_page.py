"""What the page of a trace shows of the API's object: its step, ranking, notes, distinct names, the view asked for.

Pure functions of API JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypedDict, Unpack

from app.objects.common import Note, Range
from app.objects.obstacle import Obstacle
from app.objects.record import ArchiveRecord
from app.objects.region import Region, RegionBody
from app.objects.trace import GainTotal, GainUnknown, Graph, Pace, Rank, Rest, Trace, TraceBody, TraceSummary
from app.thresholds import DEFAULTS, Thresholds
from app.trace_report.actions.of_region import own_action
from app.trace_report.launches_left import list_names
from app.trace_report.ranks import spread_json
from app.trace_report.rests_on import rests_on_words
from app.units import duration
from app.web.charts import plotly
from app.web.charts.figure import Chart
from app.web.charts.flame import FlameSection, flame_section
from app.web.charts.names import distinct_names, id_of
from app.web.charts.timeline import TimelineSection, Window, timeline_section
from app.web.views.breakdown import BreakdownSection, breakdown_section
from app.web.views.oracle_line import OracleLine, describe_oracle, is_asking
from app.web.views.reading import ReadingProgress, describe_trace_progress, has_parts, status_of
from app.web.views.region.verdict import by_measurement
from app.web.views.region_list import (
    EVIDENCE,
    SORTS,
    TOOLS,
    Filter,
    ListedRegion,
    View,
    ViewChanges,
    describe_filters,
    evidence_level,
    select,
    write_query,
)
from app.web.views.source import SourceSection, source_section
from app.web.views.trace_actions import ActionSection, action_section, expected_rows
from app.web.views.trace_tabs import Tab, trace_tabs
from profiler.trace.analyze.idle_breakdown import PAUSE_US
from profiler.trace.analyze.ranks import rank_numbers

AnyRegion = Region | RegionBody
AnyTrace = Trace | TraceBody

COMPANION_WORDS = {"beside": "the trace", "execution_trace": "the execution trace"}

ROUNDING_US = 1e-3
"""Sums of the same kernels' times in another order differ by less."""

SMALL_SHARE = 0.005
ADVICE_HEIGHT = 234
"""px of the part "What to do" next to its chart: the room that is kept for it while advice comes."""
FEW = 5
"""Regions that have and save under half a per cent of the step are folded away, where there are at least so many."""


class BlockerRow(Obstacle):
    """What stands in torch.compile's way, with one remedy. ops, where: the first of them; calls: in words."""

    ops: list[str]
    more_ops: int
    where: list[str]
    total: float
    calls: str


class ToolTime(TypedDict):
    """The time of one tool's regions in a step; share: of it, None for one without a length."""

    tool: str
    time_us: float
    share: float | None


class Companion(TypedDict):
    """A file that was read with the trace. what: it is, in words."""

    what: str
    name: str


class FilterLink(Filter):
    """A filter that is on, and the address without it."""

    href: str


class ListSummary(TypedDict):
    """What the list of regions holds. shown, of: regions; share: of the step. all: the address without any filter;
    query: of the view without its timeline; sorts: order -> the address of this list in it. other_rank: the name of
    the trace that is listed, where it is another's.
    """

    shown: int
    of: int
    time_us: float
    share: float | None
    filters: list[FilterLink]
    all: str
    address: str
    query: str
    sorts: dict[str, str]
    other_rank: str


class RankChoice(TypedDict):
    """A rank that may be chosen. own: the one whose page this is."""

    rank: int
    own: bool


class Choices(TypedDict):
    """What may be chosen in the filter. tools: (tool, regions); evidence: (value, words, whether any region has it)."""

    tools: list[tuple[str, int]]
    evidence: list[tuple[str, str, bool]]
    streams: list[int]
    ranks: list[RankChoice]
    sorts: tuple[tuple[str, str], ...]


class RegionsSection(TypedDict):
    """Context of the regions' filter and list. small: those that are folded away. asking: answers of Inductor's are
    still to come."""

    view: View
    reading: bool
    asking: bool
    oracle_line: OracleLine | None
    regions: list[ListedRegion]
    small: list[ListedRegion]
    listed: ListSummary
    choices: Choices


PartField = Literal[
    "kernels_us",
    "communication_us",
    "copies_us",
    "idle_launch_us",
    "idle_host_us",
    "idle_communication_us",
    "idle_device_us",
]


class StepPart(TypedDict):
    """A part of a step's wall time. field: of step_parts; kind: the class of its colour; when: time counts as it."""

    field: PartField
    name: str
    kind: str
    time_us: float
    share: float
    when: str


class StepSection(TypedDict, total=False):
    """Context of the step's part of partials/trace/body.html; {} for traces stored before there was one.

    resource, because: the bottleneck and how it is known; times: the median step and its spread, in a line.
    """

    part_rows: list[StepPart]
    resource: str | None
    because: str
    times: str
    step_source: str
    graphs: list[Graph]
    pause: str


class SpeedupRow(TypedDict):
    """The step after following some advice. listed: the advice, in words."""

    name: str
    step_time_us: Range
    speedup: Range
    saved_us: Range
    idle_us: float
    advice: list[str]
    listed: str


class SpeedupSection(TypedDict, total=False):
    """Context of partials/trace/where/speedup.html: a row for all advice and one for the best three; {} where nothing
    is known."""

    rows: list[SpeedupRow]
    unknown: list[GainUnknown]
    pace: Pace | None
    wall_us: float


class RankRow(Rank):
    """One rank of a group. id, name: of its trace."""

    id: str
    name: str
    slowest: bool


class RankSpread(TypedDict):
    """How far the ranks are apart. spread: of their own times, of a step; waiting_share: of a step."""

    ranks: list[Rank]
    slowest: int
    spread: float
    waiting_share: float


class RankSection(TypedDict, total=False):
    """The ranks of a group; {} for fewer than two that are ready."""

    ranks: list[RankRow]
    spread: RankSpread


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
    expected_rows: int
    rests_on_words: str
    companions: list[Companion]


def saves_us(region: AnyRegion, step_us: float | None) -> float:
    """µs of one step that following the advice is predicted to save: 0 where it says to leave the region.

    By the step's speed-up, which counts waiting for launches as well; without a step time by the region's own.
    """
    advice = region.get("advice")
    if not advice or advice.get("tool") in (None, "skip"):
        return 0.0
    of_step, of_region = advice.get("step_speedup"), advice.get("region_speedup")
    if of_step and of_step.get("mid") and step_us:
        return float(step_us) * (1 - 1 / float(of_step["mid"]))
    time_us = region.get("time_us_per_step")
    return float(time_us) * (1 - 1 / float(of_region["mid"])) if of_region and of_region.get("mid") and time_us else 0.0


def rank_by_saving(regions: Iterable[ListedRegion], trace: AnyTrace) -> list[ListedRegion]:
    """Regions with `saves_us` and `step_speedup`, the largest saving first, then by time: those of the region's own
    action, alone. A region without one saves nothing by itself.

    While there are no actions yet: as if each region's advice were the only one.
    """
    rows = [_with_saving(region, trace) for region in regions]
    return sorted(rows, key=lambda r: (-r.get("saves_us", 0.0), -(r.get("time_us_per_step") or 0.0)))


def _with_saving(region: ListedRegion, trace: AnyTrace) -> ListedRegion:
    own = own_action(trace, region.get("key"), region.get("advice"))
    if own is not None:
        return {**region, "saves_us": own.saves_us, "step_speedup": own.speedup}
    saved_us = 0.0 if trace.get("actions") else saves_us(region, trace.get("step_time_us"))
    advice = region.get("advice")
    return {**region, "saves_us": saved_us, "step_speedup": advice.get("step_speedup") if advice else None}


def page_notes(trace: AnyTrace) -> list[Note]:
    """The trace's notes for its page: what went wrong, what comes before any kernel; no recipe printed twice."""
    notes = sorted(trace.get("notes") or (), key=lambda n: (n["level"] != "error", n["code"] != "gpu-idle"))
    nameless = any(n["code"] == "no-device" for n in notes)
    rows: list[Note] = []
    recipes: set[str] = set()
    for note in notes:
        if nameless and note["code"] == "remark":  # says for which GPU instead, as no-device does here
            continue
        words, code = _split_remedy(note.get("remedy") or "")
        if code in recipes:
            words, code = _refer_above(words), ""
        elif code:
            recipes.add(code)
        rows.append({**note, "remedy": f"{words}\n{code}" if words and code else words or code})
        if note["code"] == "no-device" and trace.get("estimates_for"):
            rows[-1]["message"] = (
                f"The trace does not name its GPU: floors and predictions are for {trace.get('estimates_for')}. If it "
                "was another, open a region and choose the GPU there."
            )
    return rows


def _refer_above(words: str) -> str:
    """A remedy's sentence whose code stands in an earlier note."""
    if words.endswith(":"):
        return f"{words[:-1]}, recorded as above."
    return f"{words} Record it as above." if words else ""


def _split_remedy(remedy: str) -> tuple[str, str]:
    """A remedy's sentence and its code; either may be ""."""
    if remedy.startswith(("from ", "import ")):
        return "", remedy.strip()
    words, _, code = remedy.partition("\n")
    return words, code.strip()


def blocker_rows(blockers: Iterable[Obstacle]) -> list[BlockerRow]:
    """What stands in torch.compile's way, one row a remedy: its operations, calls and places together."""
    rows: dict[tuple[str, str], BlockerRow] = {}
    for blocker in blockers:
        key = blocker["kind"], "" if blocker["kind"] == "custom-op" else blocker["remedy"]
        empty: BlockerRow = {**blocker, "ops": [], "more_ops": 0, "where": [], "total": 0.0, "calls": ""}
        row = rows.setdefault(key, empty)
        row["ops"].append(blocker["op"])
        row["total"] += blocker["calls_per_step"]
        row["where"] += [w for w in (blocker["sources"] or blocker["modules"]) if w not in row["where"]]
    for row in rows.values():
        row["title"] = row["title"][:1].upper() + row["title"][1:]
        row["operands"] = row["operands"][:2] if len(row["ops"]) == 1 else []
        row["more_ops"] = max(0, len(row["ops"]) - FEW)
        row["ops"], row["where"] = row["ops"][:FEW], row["where"][:FEW]
        row["calls"] = f"{row['total']:.3g}"
    return list(rows.values())


def _pair_passes(regions: Sequence[ListedRegion]) -> list[ListedRegion]:
    """Regions with `forward`, the region whose gradient each computes, and `passes`, its time in both in words."""
    by_key = {key: r for r in reversed(regions) if (key := r.get("key"))}
    return [{**r, "forward": by_key.get(r.get("forward_of") or ""), "passes": _describe_passes(r)} for r in regions]


def _describe_passes(region: ListedRegion) -> str:
    forward = region.get("forward_time_us_per_step") or 0.0
    backward = region.get("backward_time_us_per_step") or 0.0
    if not backward:
        return ""
    return f"forward {duration(forward)}, backward {duration(backward)}" if forward > ROUNDING_US else "backward"


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
        return "not known: reading ended before"
    return "not known: no times can be predicted" if timeless else "no saving predicted"


def _title_rests(rests: Iterable[Rest]) -> str:
    """The heading of what is in no region: kernels that no advice can be given on may be among it."""
    return "Time outside regions" if any(r.get("kind") == "kernels" for r in rests) else "Time outside kernels"


def region_names(trace: AnyTrace) -> list[str]:
    """Names of a trace's regions that a reader can distinguish, in the report's order."""
    return distinct_names(trace.get("regions") or ())


def list_regions(trace: AnyTrace, *, anchors: bool = False) -> list[ListedRegion]:
    """A trace's regions with `distinct_name` and `place`. anchors: with that of its part of a report."""
    rows = []
    for place, (region, name) in enumerate(zip(trace.get("regions") or (), region_names(trace), strict=True)):
        row = list_region(region, place, name)
        if anchors:
            row["anchor"] = f"region-{place + 1}"
        rows.append(row)
    return rows


def list_region(region: AnyRegion, place: int, name: str) -> ListedRegion:
    """One of them. A region of a report has no id, which its row does not show."""
    row: ListedRegion = {**region, "distinct_name": name, "place": place}  # type: ignore[typeddict-item]
    return row


def region_links(trace: AnyTrace, *, anchors: bool = False) -> list[str]:
    """Where each region is read about: its page, in a report its part."""
    regions = trace.get("regions") or ()
    if anchors:
        return [f"#region-{number}" for number in range(1, len(regions) + 1)]
    return [f"/regions/{region_id}" if (region_id := id_of(r)) else "" for r in regions]


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


def page_address(trace_id: str, view: View, **changes: Unpack[ViewChanges]) -> str:
    """The address of a trace's page in this view."""
    query = write_query(view, **changes)
    return f"/traces/{trace_id}{'?' if query else ''}{query}"


def regions_part(
    trace: AnyTrace,
    view: View,
    recorded: Mapping[str, ArchiveRecord] | None,
    of_rank: Trace | None,
    ranks: Iterable[RankRow],
    *,
    anchors: bool = False,
    settings: Thresholds = DEFAULTS,
) -> RegionsSection:
    """The regions' filter and list.

    Without a filter the regions that save next to nothing are folded away where they are many and small. While advice
    comes the regions are in order of time, so that none moves.
    """
    view = replace(view, tab="regions")
    listed_trace = of_rank or trace
    trace_id = id_of(trace) or ""
    paired = _pair_passes(list_regions(listed_trace, anchors=anchors))
    rows = rank_by_saving((with_record(row, recorded or {}, settings) for row in paired), listed_trace)
    reading = status_of(trace) == "reading"
    selected = select(rows, replace(view, sort="time") if reading and view.sort == "saving" else view)
    fold = not view.filters and view.sort == "saving"
    step_us = listed_trace.get("step_time_us")
    small = [r for r in selected if fold and _is_small(r, step_us)]
    if len(small) < FEW or len(small) == len(selected):
        small = []
    busy = [(r.get("busy_us_per_step"), r.get("time_us_per_step")) for r in selected]
    time_us = sum((own if own is not None else time) or 0.0 for own, time in busy)
    levels = {r.get("level") for r in rows}
    return {
        "view": view,
        "reading": reading,
        "asking": is_asking(trace.get("oracle")),
        "oracle_line": describe_oracle(trace.get("oracle")),
        "regions": [r for r in selected if r not in small] if small else selected,
        "small": small,
        "listed": {
            "shown": len(selected),
            "of": len(rows),
            "time_us": time_us,
            "share": time_us / step_us if step_us else None,
            "filters": [{**f, "href": page_address(trace_id, view, **f["without"])} for f in describe_filters(view)],
            "all": page_address(trace_id, View(start_us=view.start_us, end_us=view.end_us, rank=view.rank)),
            "address": page_address(trace_id, view),
            "query": write_query(view, start_us=None, end_us=None),
            "sorts": {sort: page_address(trace_id, view, sort=sort) for sort, _ in SORTS},
            "other_rank": of_rank["name"] if of_rank else "",
        },
        "choices": {
            "tools": [(t, sum(_tool(r) == t for r in rows)) for t in TOOLS],
            "evidence": [(value, words, value in levels) for value, words in EVIDENCE],
            "streams": sorted({s for r in rows for s in r.get("streams") or ()}),
            "ranks": [{"rank": r["rank"], "own": r["id"] == trace_id} for r in ranks],
            "sorts": SORTS,
        },
    }


def with_record(row: ListedRegion, recorded: Mapping[str, ArchiveRecord], settings: Thresholds) -> ListedRegion:
    """The row with the archive's record of its region: one of the same device and text is its advice, as on its page.

    What its action saves of the step stays as the trace has it.
    """
    record, advice = recorded.get(row.get("text") or ""), row.get("advice")
    if record is not None and advice:
        issued, _ = by_measurement(row, advice, record, settings)
        row = {**row, "advice": issued}
    device = str(record["device"]) if record is not None else None
    return {**row, "recorded": device, "level": evidence_level(row, device)}


def _is_small(region: ListedRegion, step_us: float | None) -> bool:
    """It has next to nothing of the step and of what is saved."""
    saves_us, of_step = region.get("saves_us") or 0.0, region.get("share_of_step") or 0.0
    return of_step < SMALL_SHARE and saves_us <= SMALL_SHARE * (step_us or 0.0)


def _tool(region: ListedRegion) -> str | None:
    advice = region.get("advice")
    return advice.get("tool") if advice else None


# ------------------------------------------------------------------------------------------------------------ the step

PARTS: tuple[tuple[PartField, str, str, str], ...] = (
    ("kernels_us", "Compute kernels", "compute", "the union of their intervals"),
    ("communication_us", "Communication, not hidden", "communication", "it runs and no compute kernel does"),
    ("copies_us", "Exposed memcpy and memset", "copies", "nothing else runs"),
    ("idle_launch_us", "Idle: waiting for launches", "launch", "the host issues kernels more slowly than the GPU runs"),
    (
        "idle_host_us",
        "Idle: waiting for the host",
        "host",
        f"a synchronising call, or more than {PAUSE_US:.0f} µs without an operation or a launch; or no work follows",
    ),
    (
        "idle_communication_us",
        "Idle: waiting for communication",
        "wait",
        "between queued work and a collective, or the host stands in one",
    ),
    ("idle_device_us", "Idle: queued, not started", "queue", "launched before, the GPU was not ready"),
)
"""Field of step_parts, its name, its colour's class, when time counts as it."""

RESOURCES = {
    "gpu": "GPU kernels",
    "launches": "kernel launches",
    "host": "the host",
    "communication": "communication",
    "copies": "copies and sets",
    "queue": "the GPU's queue",
}

SOURCES: Mapping[str, str] = {
    "profiler": "marked by the profiler",
    "annotation": "an annotation that repeats",
    "repetition": "found by the repetition of kernels",
    "window": "the whole recording as one step",
}


def step_section(trace: AnyTrace) -> StepSection:
    """What the step's wall time is made of; {} for traces stored before that was."""
    parts = trace.get("step_parts")
    if not parts or not parts["wall_us"]:
        return {}
    wall = parts["wall_us"]
    rows: list[StepPart] = [
        {
            "field": field,
            "name": name,
            "kind": kind,
            "time_us": parts[field],
            "share": parts[field] / wall,
            "when": when,
        }
        for field, name, kind, when in PARTS
        if parts[field] > 0.0
    ]
    critical = trace.get("critical")
    return {
        "part_rows": rows,
        "resource": RESOURCES.get(critical["resource"], critical["resource"]) if critical else None,
        "because": critical["because"] if critical else "",
        "times": _describe_times(trace),
        "step_source": SOURCES.get(trace.get("step_source") or "", ""),
        "graphs": trace.get("graphs") or [],
        "pause": f"{PAUSE_US:.0f} µs",
    }


def speedup_section(trace: AnyTrace) -> SpeedupSection:
    """The step after following the advice; {} where nothing is known. One row where both are the same advice."""
    gain, parts = trace.get("gain"), trace.get("step_parts")
    if not gain or not parts:
        return {}
    best, whole = gain["top"], gain["all"]
    rows = [_speedup_row("All advice", whole)] if whole else []
    if whole and best and len(best["advice"]) < len(whole["advice"]):
        rows.append(_speedup_row(f"Only the {len(best['advice'])} that save most", best))
    return {"rows": rows, "unknown": gain["unknown"], "pace": trace.get("pace"), "wall_us": parts["wall_us"]}


def _speedup_row(name: str, total: GainTotal) -> SpeedupRow:
    return {"name": name, **total, "listed": list_names(total["advice"])}


def _describe_times(trace: AnyTrace) -> str:
    """The median step with its spread and how many steps it is of, in one line."""
    times = trace.get("step_times")
    if not times:
        return ""
    if times["count"] == 1:
        text = f"{duration(times['median_us'])}, one step measured"
    else:
        spread = "quartiles" if times["count"] >= 4 else "shortest and longest"
        shown, median = duration(trace.get("step_time_us")), duration(times["median_us"])
        low, high = duration(times["low_us"]), duration(times["high_us"])
        steps, around = times["count"], f"({spread} {low} and {high})"
        text = f"{median}, the median of {steps} steps {around}"
        if shown != median:
            text = f"Shares are of {shown}. The median of all {steps} steps is {median} {around}"
    left = times["left_out"]
    return f"{text}; {left} left out (warm-up, or without kernels)" if left else text


def rank_section(traces: Iterable[TraceSummary]) -> RankSection:
    """The ranks of a group side by side, the slowest marked; {} for fewer than two that are ready.

    A rank is the one that its trace names, else the one in its file's name, else its place among the traces. traces:
    oldest first; of a file that was read again the last reading counts.
    """
    newest = {t.get("sha256") or t["id"]: t for t in traces if t.get("status") == "ready" and t.get("step_parts")}
    ready = list(newest.values())
    numbers = rank_numbers([t["name"] for t in ready], [t.get("rank") for t in ready])
    ranked: list[TraceSummary] = [{**t, "rank": rank} for t, rank in zip(ready, numbers, strict=True)]
    spread = spread_json(ranked)
    if spread is None:
        return {}
    by_rank = dict(zip(numbers, ready, strict=True))
    rows: list[RankRow] = [
        {
            **r,
            "id": by_rank[r["rank"]]["id"],
            "name": by_rank[r["rank"]]["name"],
            "slowest": r["rank"] == spread["slowest"],
        }
        for r in spread["ranks"]
    ]
    return {"ranks": rows, "spread": spread}
