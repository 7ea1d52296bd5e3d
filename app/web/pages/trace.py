"""The page of a trace: whole, its parts for htmx, what comes while it is read, and its twin.

What is filtered and shown stands in the address.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from app.requests.archived_evidence import recorded_devices
from app.requests.state import state_of
from app.web.pages.common import missing
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from app.web.views import reading, trace_step
from app.web.views import trace as trace_page
from app.web.views.region_list import View, level, query_of, view_of

router = APIRouter(include_in_schema=False)

Json = dict[str, Any]

PARTS = {"region-list": "partials/region_list.html", "timeline": "partials/trace_timeline.html"}
"""What htmx may replace -> its template."""


def _data(request: Request, found: Json, view: View) -> Json:
    """The API's trace; with the page's parameters only the regions that the page lists, in its order, and `view`."""
    if not request.query_params or found["status"] != "ready":
        return found
    other = _other_rank(request, found, view)
    part = _regions_part(request, _name_regions(found), view, other)
    by_id = {r["id"]: r for r in (other or found)["regions"]}
    listed = [by_id[r["id"]] for r in (*part["regions"], *part["small"])]
    told = {"shown": len(listed), "of": len(by_id), "query": query_of(view)}
    return {**found, "regions": listed, "view": told}


@page_and_json(router, "/traces/{trace_id}", Access.COMPUTE, json_access=Access.READ)
def trace(request: Request, trace_id: str) -> Response:
    """One trace; while it is being read, what is known of it."""
    found = _trace(request, trace_id)
    view = view_of(request.query_params.multi_items())
    if wants_json(request):
        return JSONAnswer(_data(request, found, view))
    template = PARTS.get(request.headers.get("hx-target", "")) if _is_swap(request) else None
    if template and reading.has_parts(found):
        named = _name_regions(found)
        context = {
            "trace": found,
            "swapped": True,
            "reading": found["status"] == "reading",
            **trace_page.timeline_part(named, view),
        }
        if template == PARTS["region-list"]:
            context |= _regions_part(request, named, view, _other_rank(request, found, view))
        headers = {"HX-Replace-Url": trace_page.page_address(trace_id, view)}
        return render(template, context, request=request, headers=headers)
    context = _page(request, found, view)
    if found["status"] == "reading" and not context["parts"]:
        context["progress"] = reading.progress(state_of(request).store.reading(trace_id) or NOTHING_YET)
    return render("trace.html", context, request=request)


def _page(request: Request, trace: Json, view: View) -> Json:
    return trace_page.trace_page(
        trace,
        _group(request, trace),
        view=view,
        recorded=recorded_devices(state_of(request), _texts(trace)),
        of_rank=_other_rank(request, trace, view),
    )


@router.get("/traces/{trace_id}/reading")
@declare(Access.COMPUTE)
def read_on(
    request: Request, trace_id: str, shown: str = "", waiting: Annotated[list[str] | None, Query()] = None
) -> Response:
    """What has come since the page of a trace that is being read was last told: 204 where nothing has.

    shown: how far the page is (`reading.progress`); waiting: positions of the regions that it lists without advice.
    """
    now: Json | None = state_of(request).store.reading(trace_id)
    if not is_fragment(request):
        if now is None:
            raise missing("trace")
        return RedirectResponse(f"/traces/{trace_id}", 303)
    if now is None:  # deleted meanwhile, as the page itself will say
        return Response(status_code=204, headers={"HX-Refresh": "true"})
    progress = reading.progress(now)
    if now["status"] == "reading" and progress["state"] == shown:
        return Response(status_code=204)
    view = view_of(request.query_params.multi_items())
    if now["status"] != "reading":
        context = _page(request, _trace(request, trace_id), view) | {"whole": True}
        failed = context["trace"]["status"] == "failed"
        # Of a page that has shown none of it yet, the whole comes at once.
        late = not shown.startswith(ADVISING)
        template = "trace_failed" if failed else "trace_late" if late else "trace_settled"
        return render(f"partials/{template}.html", context, request=request)
    context = {"trace": {"id": trace_id}, "progress": progress, "said": not shown.startswith(ADVISING)}
    if not now["parts"]:
        pass
    elif not shown.startswith(ADVISING):
        context |= _page(request, _trace(request, trace_id), view) | {"whole": True}
    elif view.tool or view.evidence:
        # Advice decides what is listed.
        found = _trace(request, trace_id)
        context |= {"trace": found, "listed_again": True, **_regions_part(request, _name_regions(found), view, None)}
    else:
        context["cells"] = _advise_regions(request, trace_id, reading.come(waiting or (), now), now["step_time_us"])
    return render("partials/trace_moved.html", context, request=request)


NOTHING_YET: Json = {"status": "reading", "ahead": None, "parts": False, "regions": 0, "advised": []}
ADVISING = "advising-"


def _advise_regions(request: Request, trace_id: str, places: list[int], step_us: float | None) -> list[Json]:
    """Regions of a trace by their positions, as the cells of their rows need them."""
    state = state_of(request)
    found: list[Json] = state.store.regions(trace_id, places)
    known = recorded_devices(state, _texts({"regions": found}))
    rows = []
    if len(found) != len(places):  # it was deleted meanwhile
        return []
    for place, region in zip(places, found, strict=True):
        row = {**region, "place": place, "recorded": known.get(region.get("text") or "")}
        rows.append(row | {"saves_us": trace_page.saves_us(row, step_us), "level": level(row)})
    return rows


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


def _trace(request: Request, trace_id: str) -> Json:
    trace: Json | None = state_of(request).store.trace(trace_id)
    if trace is None:
        raise missing("trace")
    return trace


def _group(request: Request, trace: Json) -> list[Json]:
    found: list[Json] = state_of(request).store.trace_group(trace.get("group"))
    return found


def _texts(trace: Json) -> list[str]:
    return [r["text"] for r in trace.get("regions") or () if r.get("text")]


def _other_rank(request: Request, trace: Json, view: View) -> Json | None:
    """The trace of the rank that the view asks for; None for the trace's own, or where there is no such rank."""
    if view.rank is None:
        return None
    ranks = trace_step.rank_section(_group(request, trace)).get("ranks") or ()
    wanted = next((r["id"] for r in ranks if r["rank"] == view.rank), None)
    return _trace(request, wanted) if wanted and wanted != trace["id"] else None


def _name_regions(trace: Json) -> Json:
    """The trace with names of its regions that a reader tells apart."""
    return {**trace, "regions": trace_page.add_shown_names(trace["regions"])}


def _regions_part(request: Request, trace: Json, view: View, other: Json | None) -> Json:
    """Context of partials/region_list.html. trace: `_named`; other: the trace of the rank that the view asks for."""
    ranks = trace_step.rank_section(_group(request, trace)).get("ranks") or () if trace.get("group") else ()
    known = recorded_devices(state_of(request), _texts(other or trace))
    return trace_page.regions_part(trace, view, known, other, ranks)
