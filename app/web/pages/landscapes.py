"""The autotune landscape of a validation's Triton candidate: asked for, followed, shown."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import RedirectResponse, Response

from app.errors import not_found
from app.objects.job import Job
from app.objects.landscape import Landscape
from app.requests import landscapes as submit_landscape
from app.requests.state import state_of
from app.storage import landscapes
from app.web.api import codes as api_codes
from app.web.api.request_schemas import LandscapeRequest
from app.web.api.responses import JSON_ONLY, answer, errors
from app.web.charts import landscape as landscape_chart
from app.web.pages.common import host_facts, missing
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render

api = APIRouter(prefix="/api/v1", tags=["validations"])
pages = APIRouter(include_in_schema=False)

Json = dict[str, Any]

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
        api_codes.STORED,
        api_codes.ADVICE,
        api_codes.QUEUE,
        {409: ("needs-gpu", "not-ready"), 422: ("candidate-unknown",)},
    ),
    queues="landscape",
)
def ask(request: Request, validation_id: str, body: LandscapeRequest) -> Response:
    """Queue the time of a Triton candidate's kernel over its tiles, warps and stages. Needs a GPU."""
    job = submit_landscape.submit_landscape(state_of(request), validation_id, **body.model_dump())
    return answer(job, 202, Location=f"/api/v1/jobs/{job['id']}")


@api.get("/validations/{validation_id}/landscape", responses={200: {"model": Landscape}, **errors(404)})
@declare(Access.READ)
def landscape(request: Request, validation_id: str, candidate: Candidate = None) -> Response:
    """The newest landscape of a validation, `outcome` null until it is done."""
    found = landscapes.newest(state_of(request).store.database, validation_id, candidate)
    if found is None:
        raise not_found("landscape")
    return answer(found)


# --------------------------------------------------------------------------------------------------------------- pages


def part(request: Request, validation: Json, candidate: str | None = None) -> Json:
    """Context of partials/landscape.html: what there is, and what may be asked for."""
    state = state_of(request)
    stored = validation.get("state") == "done" and not validation.get("archived")
    found = landscapes.newest(state.store.database, validation["id"], candidate) if stored else None
    host = host_facts(request) if stored else {}
    return {
        "landscape": found,
        "landscape_candidates": submit_landscape.triton_candidates(validation) if stored else [],
        "landscape_shapes": submit_landscape.shapes_of(state, validation) if stored else [],
        "landscape_gpu": bool(host.get("gpu") or host.get("pending")),
        **(_page_context(found) if found is not None else {}),
    }


def _page_context(found: Json) -> Json:
    return {
        "landscape_chart": landscape_chart.heat_map(found),
        "landscape_rows": landscape_chart.rows(found),
        "landscape_words": [
            words
            for words in (
                landscape_chart.headline(found), landscape_chart.chosen_words(found), landscape_chart.order_words(found)
            )
            if words
        ],
    }  # fmt: skip


def _validation(request: Request, validation_id: str) -> Json:
    found: Json | None = state_of(request).store.validation(validation_id)
    if found is None:
        raise missing("validation")
    return found


def _context(request: Request, validation_id: str, candidate: str | None = None) -> Json:
    validation = _validation(request, validation_id)
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
    submit_landscape.submit_landscape(state_of(request), validation_id, candidate=candidate, shape=shape)
    if not is_fragment(request):
        return RedirectResponse(f"/validations/{validation_id}/landscape", 303)
    return render("partials/landscape.html", _context(request, validation_id), request=request, status=202)


@page_and_json(pages, "/validations/{validation_id}/landscape", Access.READ)
def landscape_page(request: Request, validation_id: str, candidate: Candidate = None) -> Response:
    """The whole landscape: the heat map, every point in a table, what was not run and why; 404 as data where there is
    none, while the page offers to make one."""
    if wants_json(request):
        found = landscapes.newest(state_of(request).store.database, validation_id, candidate)
        if found is None:
            raise missing("landscape")
        return JSONAnswer(found)
    return render("landscape.html", _context(request, validation_id, candidate), request=request)


@pages.get("/validations/{validation_id}/landscape/panel")
@declare(Access.READ)
def landscape_panel(request: Request, validation_id: str) -> Response:
    """Its progress while it runs, the heat map once it stands."""
    return render("partials/landscape.html", _context(request, validation_id), request=request)


@pages.get("/validations/{validation_id}/landscape/progress")
@declare(Access.READ)
def landscape_progress(request: Request, validation_id: str) -> Response:
    """Only the bar and its line."""
    found = landscapes.newest(state_of(request).store.database, validation_id)
    if found is None:
        raise missing("landscape")
    return render("partials/progress.html", {"validation": found}, request=request)


@pages.post("/validations/{validation_id}/landscape/cancel")
@declare(Access.CHANGE)
def cancel_landscape(request: Request, validation_id: str) -> Response:
    """Stop the newest landscape of a validation."""
    found = landscapes.newest(state_of(request).store.database, validation_id)
    if found is None or state_of(request).queue.cancel(found["id"]) is None:
        raise missing("landscape")
    if not is_fragment(request):
        return RedirectResponse(f"/validations/{validation_id}/landscape", 303)
    return render("partials/landscape.html", _context(request, validation_id), request=request)
