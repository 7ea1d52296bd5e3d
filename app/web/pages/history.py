"""The history: everything that is kept, searched and sorted; rename, delete, and take a deletion back."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Request
from fastapi.responses import Response

from app.errors import Problem
from app.objects.common import Page
from app.objects.job import HistoryEntry
from app.requests import traces
from app.requests.state import state_of
from app.storage import history as entries
from app.storage import trash
from app.web.labels import format_time
from app.web.pages.common import missing, redirect
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.csv_response import csv_response
from app.web.server.json_response import JSONAnswer
from app.web.server.retention import UNDO_S
from app.web.templating import render
from app.web.views.history import CSV_HEADER, csv_rows, history_rows, parse_wanted, write_query

router = APIRouter(include_in_schema=False)

ROWS = 50
CSV_ROWS = 1000
"""Rows of the CSV: the newest of what the page would list."""

NAME_CHARS = 200

SORT_NAMES = (("newest", "Newest"), ("oldest", "Oldest"), ("name", "Name"))
KIND_NAMES = (("", "All"), ("trace", "Traces"), ("region", "Regions"), ("validation", "Validations"))


@page_and_json(router, "/history", Access.READ)
def history(
    request: Request, kind: str = "", q: str = "", sort: str = "", after: str = "", *, deleted: str = ""
) -> Response:
    """Everything that is kept. deleted: the trace that was deleted a moment ago."""
    store = state_of(request).store
    wanted = parse_wanted(kind, q, sort)
    page: Page[HistoryEntry] = entries.find_entries(store, wanted, ROWS, after or None)
    if wants_json(request):
        return JSONAnswer(page)
    gone = [{**row, "when": format_time(row["deleted_at"])} for row in trash.deleted(store.database)]
    context = {
        "recent": history_rows(page["items"]),
        "wanted": wanted,
        "kinds": KIND_NAMES,
        "sorts": SORT_NAMES,
        "older": "/history" + write_query(wanted, page["next"]) if page["next"] else "",
        "first": "/history" + write_query(wanted) if after else "",
        "just_deleted": next((row for row in gone if row["id"] == deleted), None),
        "deleted": [row for row in gone if row["id"] != deleted],
        "kept_minutes": UNDO_S / 60,
        "charts": False,
        "json_address": "/history.json" + write_query(wanted, after),
        "csv_address": "/history.csv" + write_query(wanted),
    }
    return render("history.html", context, request=request)


@router.get("/history.csv")
@declare(Access.READ)
def history_csv(request: Request, kind: str = "", q: str = "", sort: str = "") -> Response:
    """What the page lists, as a spreadsheet's rows."""
    store, wanted = state_of(request).store, parse_wanted(kind, q, sort)
    page = entries.find_entries(store, wanted, CSV_ROWS)
    return csv_response("tritonworthy-history", CSV_HEADER, csv_rows(page["items"]))


@router.post("/traces/{trace_id}/delete")
@declare(Access.CHANGE)
def delete_trace(request: Request, trace_id: str) -> Response:
    """Delete a trace and its regions; the history offers to take it back."""
    traces.delete_for_now(state_of(request), trace_id)
    return redirect(request, f"/history?deleted={trace_id}")


@router.post("/traces/{trace_id}/undelete")
@declare(Access.CHANGE)
def undelete_trace(request: Request, trace_id: str) -> Response:
    """Bring a deleted trace back, to its page."""
    traces.undelete(state_of(request), trace_id)
    return redirect(request, f"/traces/{trace_id}")


@router.post("/traces/{trace_id}/rename")
@declare(Access.CHANGE)
def rename_trace(request: Request, trace_id: str, name: Annotated[str, Form()] = "") -> Response:
    """Give a trace another name."""
    return _rename(request, "trace", trace_id, name)


@router.post("/regions/{region_id}/rename")
@declare(Access.CHANGE)
def rename_region(request: Request, region_id: str, name: Annotated[str, Form()] = "") -> Response:
    """Give a region another name."""
    return _rename(request, "region", region_id, name)


def _rename(request: Request, kind: Literal["trace", "region"], row_id: str, name: str) -> Response:
    name = name.strip()
    if not 1 <= len(name) <= NAME_CHARS:
        detail = f"Give one of 1 to {NAME_CHARS} characters; this has {len(name)}."
        raise Problem(422, "invalid-request", "That is no name", detail)
    if not entries.rename(state_of(request).store.database, kind, row_id, name):
        raise missing(kind)
    return redirect(request, f"/history#{row_id}")
