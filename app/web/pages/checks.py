"""The pages of checks: a list with a form, and one check's verdict with its reports. Each is also JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response

from app.errors import Problem
from app.objects.check import Check
from app.requests.check_history import read_history
from app.requests.checks import submit_stored
from app.requests.state import state_of
from app.storage import check_history, checks
from app.web.api.responses import After
from app.web.pages.common import missing, redirect
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from app.web.views.check_page import check_page, check_rows, make_form, older_address, summarize

router = APIRouter(include_in_schema=False)

ROWS = 50
CHOICES = 100
WAIT_S = 5.0
"""A check by the form waits so long for its verdict, then its page shows how it is doing."""

FORM_CODES = frozenset({"config-invalid", "invalid-request", "trace-not-ready", "not-found"})
"""What is wrong with the form's own fields: said next to it."""


@page_and_json(router, "/checks", Access.READ)
def check_list(
    request: Request,
    after: After = None,
    *,
    trace: Annotated[str, Query(max_length=64, description="The trace that stands chosen in the form.")] = "",
) -> Response:
    """Checks, newest first, and the form that makes one; the API's list."""
    if wants_json(request):
        return JSONAnswer(checks.page(state_of(request).store.database, ROWS, after))
    return _list(request, {"trace": trace}, after=after)


def _list(
    request: Request,
    fields: dict[str, str],
    *,
    after: str | None = None,
    wrong: Mapping[str, object] | None = None,
    status: int = 200,
) -> Response:
    store = state_of(request).store
    page = checks.page(store.database, ROWS, after)
    context = {
        "rows": check_rows(page["items"]),
        "older": older_address(page["next"]),
        "form": make_form(store.traces(limit=CHOICES)["items"], fields),
        "wrong": wrong,
    }
    return render("checks.html", context, request=request, status=status)


@router.post("/checks")
@declare(Access.WORK)
async def make(
    request: Request,
    trace: Annotated[str, Form(max_length=64)] = "",
    baseline: Annotated[str, Form(max_length=64)] = "",
    config: Annotated[str, Form()] = "",
    commit: Annotated[str, Form()] = "",
    branch: Annotated[str, Form()] = "",
) -> Response:
    """A check of a stored trace under a pasted configuration; what is wrong with it stands under its field.

    With a commit it is kept in the history.
    """
    state = state_of(request)
    try:
        history = read_history(wanted=bool(commit.strip()), commit=commit, branch=branch if commit.strip() else "")
        job, _ = await run_in_threadpool(
            submit_stored, state, trace=trace, baseline=baseline or None, config=config, history=history
        )
    except Problem as problem:
        if problem.code not in FORM_CODES:
            raise
        wrong = {**problem.body(), "status": problem.status, "line_text": _config_line(config, problem)}
        if is_fragment(request):
            return render("partials/check/wrong.html", {"wrong": wrong}, request=request, status=422)
        fields = {"trace": trace, "baseline": baseline, "config": config, "commit": commit, "branch": branch}
        return await run_in_threadpool(_list, request, fields, wrong=wrong, status=problem.status)
    await state.queue.wait(job["id"], WAIT_S)
    return redirect(request, f"/checks/{job['id']}")


def _config_line(config: str, problem: Problem) -> str:
    """The line of the configuration that the error is about; "" where it names none."""
    lines, number = config.splitlines(), problem.extra.get("line") or 0
    return lines[number - 1].strip()[:200] if 0 < number <= len(lines) else ""


@page_and_json(router, "/checks/{check_id}", Access.READ)
def check(request: Request, check_id: str, *, body: int = 0) -> Response:
    """One check; with `?body=1` only the part that changes while it is being done."""
    stored = _find_check(request, check_id)
    if wants_json(request):
        return JSONAnswer(stored)
    series = check_history.series_of_check(state_of(request).store.database, check_id)
    context = {**check_page(stored), "glances": summarize(stored), "history": series}
    return render("partials/check/body.html" if body else "check.html", context, request=request)


@router.get("/checks/{check_id}/progress")
@declare(Access.READ)
def progress(request: Request, check_id: str) -> Response:
    """Only the bar and its line."""
    return render("partials/validation/progress.html", {"validation": _find_check(request, check_id)}, request=request)


@router.post("/checks/{check_id}/cancel")
@declare(Access.CHANGE)
def cancel(request: Request, check_id: str) -> Response:
    """Stop a check; one that has ended stays as it is."""
    _find_check(request, check_id)
    state_of(request).queue.cancel(check_id)
    if not is_fragment(request):
        return RedirectResponse(f"/checks/{check_id}", 303)
    return check(request, check_id, body=1)


def _find_check(request: Request, check_id: str) -> Check:
    stored = checks.by_id(state_of(request).store.database, check_id)
    if stored is None:
        raise missing("check")
    return stored
