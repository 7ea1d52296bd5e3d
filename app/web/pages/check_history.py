"""The pages of the history of checks: its series, and one with its chart. Each is also JSON.

This module's name sorts before `checks`: its addresses are matched before `/checks/{check_id}`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from app.errors import Problem
from app.objects.history import HistoryDetail
from app.requests import check_history
from app.requests.state import state_of
from app.storage.check_history import Narrowed, names
from app.storage.database import is_id
from app.web.api.responses import After
from app.web.pages.common import missing, redirect
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.csv_response import csv_response
from app.web.server.json_response import JSONAnswer
from app.web.templating import render
from app.web.views.check_history import CSV_HEADER, csv_rows, series_page, series_rows, write_query

router = APIRouter(include_in_schema=False)

ROWS = 20
Name = Annotated[str, Query(max_length=500)]

VERDICTS = {"bad": "failed", "good": "passed"}
"""Class of a change's colour -> of the card that tells it."""


@page_and_json(router, "/checks/history", Access.COMPUTE)
def series_list(
    request: Request, check: Name = "", branch: Name = "", device: Name = "", after: After = None
) -> Response:
    """Every series, the one whose run came last first."""
    state, wanted = state_of(request), Narrowed(check, branch, device)
    page = check_history.list_series(state, ROWS, after, wanted)
    if wants_json(request):
        return JSONAnswer(page)
    context = {
        "rows": series_rows(page["items"]),
        "wanted": wanted,
        "narrowed": wanted != Narrowed() or after is not None,
        "names": names(state.store.database),
        "older": "/checks/history" + write_query(wanted, page["next"]) if page["next"] else "",
        "first": "/checks/history" + write_query(wanted) if after else "",
        "device_query": write_query(Narrowed(device=device)),
        "json_address": "/checks/history.json" + write_query(wanted, after or ""),
    }
    return render("check_history/list.html", context, request=request)


@router.get("/checks/history/{series_id}.csv")
@declare(Access.COMPUTE)
def series_csv(request: Request, series_id: str, device: Name = "") -> Response:
    """Every run that is read, as a spreadsheet's rows."""
    return csv_response("tritonworthy-series", CSV_HEADER, csv_rows(_find_series(request, series_id, device)))


@page_and_json(router, "/checks/history/{series_id}", Access.COMPUTE)
def series(request: Request, series_id: str, device: Name = "", *, on: Name = "") -> Response:
    """One series: did it get slower, when, since which commit, and why. on: the series of another branch instead."""
    if is_id(on) and on != series_id:
        return RedirectResponse(f"/checks/history/{on}{write_query(Narrowed(device=device))}", 303)
    detail = _find_series(request, series_id, device)
    if wants_json(request):
        return JSONAnswer(detail)
    page = series_page(detail, device)
    context = {
        **page,
        "verdict_class": VERDICTS.get(page["level"], ""),
        "device_query": write_query(Narrowed(device=device)),
    }
    return render("check_history/series.html", context, request=request)


@router.post("/checks/history/{series_id}/delete")
@declare(Access.CHANGE)
def delete(request: Request, series_id: str) -> Response:
    """Forget a series."""
    try:
        check_history.delete_series(state_of(request), series_id)
    except Problem as problem:
        if problem.code != "not-found":
            raise
        raise missing("series") from None
    return redirect(request, "/checks/history")


def _find_series(request: Request, series_id: str, device: str) -> HistoryDetail:
    try:
        return check_history.find_series(state_of(request), series_id, device=device)
    except Problem as problem:
        if problem.code != "not-found":
            raise
        raise missing("series") from None
