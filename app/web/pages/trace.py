"""The page of a trace: whole, its parts for htmx, what comes while it is read, and its JSON.

What is filtered and shown stands in the address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response

from app.objects.record import ArchiveRecord
from app.objects.region import Region, RegionBody
from app.objects.trace import Trace, TraceProgress, TraceSummary
from app.requests.archived_evidence import recorded_regions
from app.requests.state import state_of
from app.requests.trace_oracle import progress_of, with_progress
from app.trace_report.by_record import advised_devices
from app.web.pages.common import missing
from app.web.pages.news import HOLD_S, until_parts
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.csv_response import csv_response
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from app.web.views.oracle_line import describe_oracle, newly_asked
from app.web.views.reading import (
    ADVISING,
    describe_progress,
    describe_trace_progress,
    has_parts,
    newly_advised,
)
from app.web.views.region_csv import COLUMNS, region_rows
from app.web.views.region_list import ListedRegion, View, parse_view, write_query
from app.web.views.trace.ranks import RankRow, rank_section
from app.web.views.trace.regions import (
    RegionsSection,
    list_region,
    page_address,
    regions_part,
    saves_us,
    with_record,
)
from app.web.views.trace_page import TracePage, UnreadPage, timeline_part, trace_page

router = APIRouter(include_in_schema=False)

PARTS = {"region-list": "partials/regions/list.html", "timeline": "partials/trace/timeline.html"}
"""What htmx may replace -> its template."""


def _data(request: Request, stored: Trace, view: View) -> Mapping[str, object]:
    """The API's trace; with the page's parameters only the regions that the page lists, in its order, and `view`."""
    if not request.query_params or stored["status"] != "ready":
        return stored
    other = _other_rank(request, stored, view)
    part = _regions_part(request, stored, view, other)
    by_id = {r["id"]: r for r in (other or stored)["regions"]}
    listed = [by_id[r["id"]] for r in (*part["regions"], *part["small"])]
    summary = {"shown": len(listed), "of": len(by_id), "query": write_query(view)}
    return {**stored, "regions": listed, "view": summary}


@page_and_json(router, "/traces/{trace_id}", Access.COMPUTE, json_access=Access.READ)
def trace(request: Request, trace_id: str) -> Response:
    """One trace; while it is being read, what is known of it."""
    stored = _find_trace(request, trace_id)
    view = parse_view(request.query_params.multi_items())
    if wants_json(request):
        return JSONAnswer(_data(request, stored, view))
    reading = stored["status"] == "reading"
    template = PARTS.get(request.headers.get("hx-target", "")) if _is_swap(request) else None
    context: dict[str, object]
    if template and has_parts(stored):
        context = {"trace": stored, "swapped": True, "reading": reading, **timeline_part(stored, view)}
        if template == PARTS["region-list"]:
            context |= _regions_part(request, stored, view, _other_rank(request, stored, view))
        headers = {"HX-Replace-Url": page_address(trace_id, view)}
        return render(template, context, request=request, headers=headers)
    page = _page(request, stored, view)
    context = {**page}
    if reading:
        now = state_of(request).store.reading(trace_id) or NOTHING_YET
        # Of what it shows: rows that have come since are news.
        context["progress"] = (
            describe_trace_progress(stored, now["fraction"]) if page["parts"] else describe_progress(now)
        )
    return render("trace.html", context, request=request)


def _page(request: Request, trace: Trace, view: View) -> TracePage | UnreadPage:
    return trace_page(
        trace,
        _group(request, trace),
        view=view,
        recorded=_recorded(request, trace["regions"]),
        of_rank=_other_rank(request, trace, view),
        settings=state_of(request).settings.rule,
    )


@router.get("/traces/{trace_id}/regions.csv")
@declare(Access.READ)
def regions_table(request: Request, trace_id: str) -> Response:
    """The regions that the page lists with the same parameters, in its order, as CSV."""
    stored = _find_trace(request, trace_id)
    view = parse_view(request.query_params.multi_items())
    part = _regions_part(request, stored, view, _other_rank(request, stored, view))
    name = re.sub(r"[^A-Za-z0-9]+", "-", stored["name"]).strip("-")[:60] or "trace"
    return csv_response(f"{name}-regions", COLUMNS, region_rows([*part["regions"], *part["small"]]))


@router.get("/traces/{trace_id}/reading")
@declare(Access.COMPUTE)
async def read_on(
    request: Request,
    trace_id: str,
    shown: str = "",
    waiting: Annotated[list[str] | None, Query()] = None,
    hold: Annotated[float, Query(ge=0.0, le=HOLD_S)] = 0.0,
) -> Response:
    """What has come for the page of a trace that is being read, after its last answer: 204 where nothing has.

    shown: how far the page is (`ReadingProgress.state`); waiting: positions of the regions listed without advice;
    hold: seconds that the answer to a page without the parts may wait for them.
    """
    if is_fragment(request) and hold:
        await until_parts(state_of(request), trace_id, shown, hold)
    return await run_in_threadpool(_read_on, request, trace_id, shown, waiting or ())


def _read_on(request: Request, trace_id: str, shown: str, waiting: Sequence[str]) -> Response:
    now = state_of(request).store.reading(trace_id)
    if not is_fragment(request):
        if now is None:
            raise missing("trace")
        return RedirectResponse(f"/traces/{trace_id}", 303)
    if now is None:  # deleted meanwhile, as the page itself will say
        return Response(status_code=204, headers={"HX-Refresh": "true"})
    progress = describe_progress(now)
    if now["status"] == "reading" and progress["state"] == shown:
        return Response(status_code=204)
    view = parse_view(request.query_params.multi_items())
    if now["status"] != "reading":
        stored = _find_trace(request, trace_id)
        failed = stored["status"] == "failed"
        # Of a page that has shown none of it yet, the whole comes at once.
        late = not shown.startswith(ADVISING)
        template = "failed" if failed else "late" if late else "settled"
        return render(
            f"partials/trace/{template}.html", {**_page(request, stored, view), "whole": True}, request=request
        )
    context: dict[str, object] = {
        "trace": {"id": trace_id},
        "progress": progress,
        "said": progress["state"].partition("-")[0] != shown.partition("-")[0],
    }
    if not now["parts"]:
        pass
    elif not shown.startswith(ADVISING):
        stored = _find_trace(request, trace_id)
        told = {"progress": describe_trace_progress(stored, now["fraction"]), "whole": True}
        context |= {**_page(request, stored, view), **told}
    elif view.tool or view.evidence:
        # Advice decides what is listed.
        stored = _find_trace(request, trace_id)
        context |= {"trace": stored, "listed_again": True, **_regions_part(request, stored, view, None)}
    else:
        context["cells"] = _advise_regions(request, trace_id, newly_advised(waiting, now), now["step_time_us"])
    return render("partials/trace/news.html", context, request=request)


NOTHING_YET: TraceProgress = {
    "status": "reading", "ahead": None, "stage": "", "fraction": None, "parts": False, "step_time_us": None,
    "regions": 0, "advised": [],
}  # fmt: skip


def _advise_regions(request: Request, trace_id: str, places: list[int], step_us: float | None) -> list[ListedRegion]:
    """Regions of a trace by their positions, as the cells of their rows need them."""
    state = state_of(request)
    advised = state.store.regions(trace_id, places)
    if len(advised) != len(places):  # it was deleted meanwhile
        return []
    recorded = _recorded(request, advised)
    rows: list[ListedRegion] = []
    for place, region in zip(places, advised, strict=True):
        row = with_record(list_region(region, place, region["name"]), recorded, state.settings.rule)
        row["saves_us"] = saves_us(row, step_us)
        rows.append(row)
    return rows


@router.get("/traces/{trace_id}/oracle")
@declare(Access.COMPUTE)
def ask_on(
    request: Request, trace_id: str, asked: str = "", awaited: Annotated[list[str] | None, Query()] = None
) -> Response:
    """What Inductor has said of a trace's regions after the page's last answer: 204 where it has said nothing.

    asked: how far the page is (`OracleLine.state`); awaited: places of the regions listed without an answer.
    """
    state = state_of(request)
    head = state.store.trace_head(trace_id)
    if not is_fragment(request):
        if head is None:
            raise missing("trace")
        return RedirectResponse(f"/traces/{trace_id}", 303)
    known = state.store.regions_asked(trace_id)
    progress = progress_of(state, trace_id, known) if head else None
    line = describe_oracle(progress)
    if head is None or progress is None or line is None:  # it is deleted, or nobody is asked any more
        return Response(status_code=204, headers={"HX-Refresh": "true"})
    view = parse_view(request.query_params.multi_items())
    if progress["done"]:
        page = _page(request, _find_trace(request, trace_id), view)
        return render("partials/oracle/done.html", {**page}, request=request)
    if line["state"] == asked:
        return Response(status_code=204)
    context: dict[str, object] = {"trace": {"id": trace_id}, "oracle_line": line, "asking": True}
    if view.tool or view.evidence:  # advice decides what is listed
        stored = _find_trace(request, trace_id)
        other = _other_rank(request, stored, view)
        context |= {"trace": stored, "listed_again": True, **_regions_part(request, stored, view, other)}
    else:
        places = newly_asked(awaited or (), known)
        context["cells"] = _advise_regions(request, trace_id, places, head["step_time_us"])
    return render("partials/oracle/news.html", context, request=request)


@router.post("/traces/{trace_id}/cancel")
@declare(Access.CHANGE)
def cancel(request: Request, trace_id: str) -> Response:
    """Stop reading a trace. Its page says so, and offers to forget it."""
    if state_of(request).queue.cancel(trace_id) is None:
        raise missing("trace")
    return RedirectResponse(f"/traces/{trace_id}", 303)


def _is_swap(request: Request) -> bool:
    """A part of the page is asked for; going back in the history asks for the whole."""
    return is_fragment(request) and request.headers.get("hx-history-restore-request") != "true"


def _find_trace(request: Request, trace_id: str) -> Trace:
    stored = state_of(request).store.trace(trace_id)
    if stored is None:
        raise missing("trace")
    return with_progress(state_of(request), stored)


def _group(request: Request, trace: Trace) -> list[TraceSummary]:
    return state_of(request).store.trace_group(trace.get("group"))


def _recorded(request: Request, regions: Iterable[Region | RegionBody]) -> Mapping[str, ArchiveRecord]:
    """The archive's records of these regions, by their texts."""
    return recorded_regions(state_of(request), advised_devices(regions))


def _ranks(request: Request, trace: Trace) -> Sequence[RankRow]:
    """The ranks of the trace's group; none without a group."""
    return rank_section(_group(request, trace)).get("ranks") or () if trace.get("group") else ()


def _other_rank(request: Request, trace: Trace, view: View) -> Trace | None:
    """The trace of the rank that the view asks for; None for the trace's own, or where there is no such rank."""
    if view.rank is None:
        return None
    rank_id = next((r["id"] for r in _ranks(request, trace) if r["rank"] == view.rank), None)
    return _find_trace(request, rank_id) if rank_id and rank_id != trace["id"] else None


def _regions_part(request: Request, trace: Trace, view: View, other: Trace | None) -> RegionsSection:
    """Context of partials/regions/list.html. other: the trace of the rank that the view asks for."""
    recorded = _recorded(request, (other or trace)["regions"])
    settings = state_of(request).settings.rule
    return regions_part(trace, view, recorded, other, _ranks(request, trace), settings=settings)
