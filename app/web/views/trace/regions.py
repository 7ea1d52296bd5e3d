"""The regions of a trace as its page lists them: rows, order, filter, records. Pure functions of API JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

from app.objects.record import ArchiveRecord
from app.objects.region import Region, RegionBody
from app.objects.trace import Trace, TraceBody
from app.thresholds import DEFAULTS, Thresholds
from app.trace_report.actions.of_region import own_action
from app.trace_report.by_record import by_measurement
from app.units import duration
from app.web.charts.names import distinct_names, id_of
from app.web.views.oracle_line import OracleLine, describe_oracle, is_asking
from app.web.views.reading import status_of
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
from app.web.views.trace.ranks import RankRow

AnyRegion = Region | RegionBody


AnyTrace = Trace | TraceBody


ROUNDING_US = 1e-3
"""Sums of the same kernels' times in another order differ by less."""


SMALL_SHARE = 0.005


FEW = 5
"""Regions that have and save under half a per cent of the step are folded away, where there are at least so many."""


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
