"""The autotune landscape of a validation's Triton candidate: asked for, followed, shown."""

from __future__ import annotations

from typing import Annotated, TypedDict

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import RedirectResponse, Response

from app.errors import not_found
from app.objects.job import Job
from app.objects.landscape import Landscape
from app.requests.landscapes import shapes_of, submit_landscape, triton_candidates
from app.requests.state import state_of
from app.storage import landscapes
from app.web.api.request_schemas import LandscapeRequest
from app.web.api.responses import JSON_ONLY, answer, errors
from app.web.charts.figure import Chart
from app.web.charts.landscape import (
    PointRow,
    describe_choice,
    describe_order,
    describe_spread,
    heat_map,
    point_rows,
)
from app.web.pages.common import host_facts, missing
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.codes import ADVICE, QUEUE, STORED
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from app.web.views.validation_page import AnyValidation

api = APIRouter(prefix="/api/v1", tags=["validations"])
pages = APIRouter(include_in_schema=False)

Candidate = Annotated[
    str | None, Query(max_length=64, description="Of this candidate; by default the newest of any of them.")
]


@api.post(
    "/validations/{validation_id}/landscape",
    status_code=202,
    dependencies=JSON_ONLY,
    responses={202: {"model": Job}, **errors(404, 409, 415, 422, 429, 503)},
)
@declare(
    Access.WORK,
    codes=(
        STORED,
        ADVICE,
        QUEUE,
        {409: ("needs-gpu", "not-ready"), 422: ("candidate-unknown",)},
    ),
    queues="landscape",
)
def ask(request: Request, validation_id: str, body: LandscapeRequest) -> Response:
    """Queue the time of a Triton candidate's kernel over its tiles, warps and stages. Needs a GPU."""
    job = submit_landscape(state_of(request), validation_id, **body.model_dump())
    return answer(job, 202, Location=f"/api/v1/jobs/{job['id']}")


@api.get("/validations/{validation_id}/landscape", responses={200: {"model": Landscape}, **errors(404)})
@declare(Access.READ)
def landscape(request: Request, validation_id: str, candidate: Candidate = None) -> Response:
    """The newest landscape of a validation, `outcome` null until it is done."""
    newest = landscapes.newest(state_of(request).store.database, validation_id, candidate)
    if newest is None:
        raise not_found("landscape")
    return answer(newest)


# --------------------------------------------------------------------------------------------------------------- pages


class LandscapePart(TypedDict):
    """Context of partials/validation/landscape.html: what there is, and what may be asked for.

    landscape_words: what it says.
    """

    landscape: Landscape | None
    landscape_candidates: list[str]
    landscape_shapes: list[dict[str, int]]
    landscape_gpu: bool
    landscape_chart: Chart | None
    landscape_rows: list[PointRow]
    landscape_words: list[str]


def part(request: Request, validation: AnyValidation, candidate: str | None = None) -> LandscapePart:
    """The newest landscape of a validation, drawn."""
    state = state_of(request)
    stored = validation.get("state") == "done" and not validation.get("archived")
    newest = landscapes.newest(state.store.database, validation["id"], candidate) if stored else None
    host = host_facts(request) if stored else None
    words = [describe(newest) for describe in (describe_spread, describe_choice, describe_order)] if newest else []
    return {
        "landscape": newest,
        "landscape_candidates": triton_candidates(validation) if stored else [],
        "landscape_shapes": shapes_of(state, validation) if stored else [],
        "landscape_gpu": bool(host and (host["gpu"] or host.get("pending"))),
        "landscape_chart": heat_map(newest) if newest else None,
        "landscape_rows": point_rows(newest) if newest else [],
        "landscape_words": [text for text in words if text],
    }


class LandscapePage(LandscapePart):
    """Context of landscape.html."""

    validation: AnyValidation


def _context(request: Request, validation_id: str, candidate: str | None = None) -> LandscapePage:
    validation = state_of(request).store.validation(validation_id)
    if validation is None:
        raise missing("validation")
    return {"validation": validation, **part(request, validation, candidate)}


@pages.post("/validations/{validation_id}/landscape")
@declare(Access.WORK)
def ask_by_form(
    request: Request,
    validation_id: str,
    candidate: Annotated[str, Form()] = "",
    shape: Annotated[int, Form()] = 0,
) -> Response:
    """Queue it; for htmx the part of the page that follows it."""
    submit_landscape(state_of(request), validation_id, candidate=candidate, shape=shape)
    if not is_fragment(request):
        return RedirectResponse(f"/validations/{validation_id}/landscape", 303)
    return render("partials/validation/landscape.html", _context(request, validation_id), request=request, status=202)


@page_and_json(pages, "/validations/{validation_id}/landscape", Access.READ)
def landscape_page(request: Request, validation_id: str, candidate: Candidate = None) -> Response:
    """The whole landscape: the heat map, every point in a table, what was not run and why; 404 as data where there is
    none, while the page offers to make one."""
    if wants_json(request):
        newest = landscapes.newest(state_of(request).store.database, validation_id, candidate)
        if newest is None:
            raise missing("landscape")
        return JSONAnswer(newest)
    return render("landscape.html", _context(request, validation_id, candidate), request=request)


@pages.get("/validations/{validation_id}/landscape/panel")
@declare(Access.READ)
def landscape_panel(request: Request, validation_id: str) -> Response:
    """Its progress while it runs, the heat map once it stands."""
    return render("partials/validation/landscape.html", _context(request, validation_id), request=request)


@pages.get("/validations/{validation_id}/landscape/progress")
@declare(Access.READ)
def landscape_progress(request: Request, validation_id: str) -> Response:
    """Only the bar and its line."""
    newest = landscapes.newest(state_of(request).store.database, validation_id)
    if newest is None:
        raise missing("landscape")
    return render("partials/validation/progress.html", {"validation": newest}, request=request)


@pages.post("/validations/{validation_id}/landscape/cancel")
@declare(Access.CHANGE)
def cancel_landscape(request: Request, validation_id: str) -> Response:
    """Stop the newest landscape of a validation."""
    newest = landscapes.newest(state_of(request).store.database, validation_id)
    if newest is None or state_of(request).queue.cancel(newest["id"]) is None:
        raise missing("landscape")
    if not is_fragment(request):
        return RedirectResponse(f"/validations/{validation_id}/landscape", 303)
    return render("partials/validation/landscape.html", _context(request, validation_id), request=request)
