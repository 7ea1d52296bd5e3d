"""Pages of a region's validations: queue, progress, result, again, cancel."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from app.requests import regions, revalidate
from app.requests.regression import compare_with_previous
from app.requests.state import state_of
from app.web.pages import landscapes
from app.web.pages.common import (
    missing,
    redirect,
)
from app.web.pages.page_and_json import page_and_json, wants_json
from app.web.pages.region.evidence import collect_measured, find_unedited
from app.web.pages.region.stored import ANSWERED_BEFORE_S
from app.web.server.access import Access, declare
from app.web.server.json_response import JSONAnswer
from app.web.templating import is_fragment, render
from app.web.views.validation_page import (
    AnyValidation,
    summarize_validation,
)

router = APIRouter(include_in_schema=False)


@router.post("/validations")
@declare(Access.WORK)
def validate(
    request: Request,
    text: Annotated[str, Form()] = "",
    region_id: Annotated[str, Form()] = "",
    on: Annotated[list[str] | None, Form()] = None,
) -> Response:
    """Queue a validation: of the stored region where the text is still its own, else of the text as edited."""
    stored = find_unedited(request, region_id, text)
    job, _ = regions.submit_validation(
        state_of(request), region=None if stored else text, region_id=stored["id"] if stored else None, device=on,
        oracle_timeout_s=ANSWERED_BEFORE_S,
    )  # fmt: skip
    if not is_fragment(request):
        return RedirectResponse(f"/validations/{job['id']}", 303)
    return render(
        "partials/validation/job.html",
        {**_validation_context(request, job["id"]), "swapped": True},
        request=request,
        status=202,
    )


def _validation_of(request: Request, validation_id: str) -> AnyValidation:
    """The validation of that id, made here or recorded; 404 where there is none."""
    state = state_of(request)
    validation = state.store.validation(validation_id) or regions.archive_record(state, validation_id)
    if validation is None:
        raise missing("validation")
    return validation


def _validation_context(request: Request, validation_id: str) -> dict[str, object]:
    """Context of a validation with its region's evidence from elsewhere."""
    made_here = state_of(request).store.validation(validation_id)
    if made_here is not None and made_here["state"] == "done" and not made_here.get("archived"):
        return {**summarize_validation(made_here), **collect_measured(request, made_here["region"], made_here)}
    return {**summarize_validation(_validation_of(request, validation_id))}


@page_and_json(router, "/validations/{validation_id}", Access.COMPUTE)
def validation(request: Request, validation_id: str) -> Response:
    """One validation: while it runs, its progress; then everything that was measured."""
    stored = _validation_of(request, validation_id)
    if wants_json(request):
        return JSONAnswer(stored)
    timed = stored["state"] == "done" and stored["device"] and not stored.get("archived")
    context = {
        **_validation_context(request, validation_id),
        **landscapes.part(request, stored),
        "name": stored.get("name") or "Validation",
        "regression": compare_with_previous(state_of(request), validation_id) if timed else None,
    }
    return render("validation.html", context, request=request)


@router.get("/validations/{validation_id}/panel")
@declare(Access.COMPUTE)
def validation_panel(request: Request, validation_id: str) -> Response:
    """Progress while it runs, the result once it stands: what the region page shows of a validation."""
    return render("partials/validation/job.html", _validation_context(request, validation_id), request=request)


@router.get("/validations/{validation_id}/progress")
@declare(Access.READ)
def validation_progress(request: Request, validation_id: str) -> Response:
    """Only the bar and its line."""
    validation = state_of(request).store.validation(validation_id)
    if validation is None:
        raise missing("validation")
    template = (
        "partials/validation/progress_answer.html" if is_fragment(request) else "partials/validation/progress.html"
    )
    return render(template, {"validation": validation}, request=request)


@router.post("/validations/{validation_id}/again")
@declare(Access.WORK)
def validate_again(request: Request, validation_id: str) -> Response:
    """Queue the same once more, under an address of its own; a region's page follows it in place."""
    job = revalidate.validate_again(state_of(request), validation_id)
    if not is_fragment(request) or "/validations/" in request.headers.get("hx-current-url", ""):
        return redirect(request, f"/validations/{job['id']}")
    return render(
        "partials/validation/job.html",
        {**_validation_context(request, job["id"]), "swapped": True},
        request=request,
        status=202,
    )


@router.post("/validations/{validation_id}/cancel")
@declare(Access.CHANGE)
def cancel_validation(request: Request, validation_id: str) -> Response:
    """Stop a queued or running validation."""
    if state_of(request).queue.cancel(validation_id) is None:
        raise missing("validation")
    if not is_fragment(request):
        return RedirectResponse(f"/validations/{validation_id}", 303)
    return render("partials/validation/job.html", _validation_context(request, validation_id), request=request)
