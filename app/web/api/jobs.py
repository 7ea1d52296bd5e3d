"""/api/v1/validations and /api/v1/jobs: measure, follow, cancel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent

from app.errors import not_found
from app.objects.job import Job
from app.objects.record import Regression, Validation, ValidationList
from app.requests import regions
from app.requests.regression import compare_with_previous
from app.requests.state import state_of
from app.web.api.events import job_events
from app.web.api.request_schemas import ValidationRequest
from app.web.api.responses import (
    JSON_ONLY,
    After,
    Limit,
    Responses,
    Wait,
    answer,
    answer_page,
    errors,
    status_of,
    wait_for_job,
)
from app.web.server import codes as api_codes
from app.web.server.access import Access, declare

router = APIRouter(prefix="/api/v1", tags=["validations"])

RETRY_MS = 2000

REGRESSION: Responses = {200: {"model": Regression}, **errors(404, 409, 422)}


@router.post(
    "/validations",
    status_code=202,
    dependencies=JSON_ONLY,
    responses={200: {"model": Job}, 202: {"model": Job}, **errors(404, 413, 415, 422, 429, 503)},
)
@declare(
    Access.WORK,
    codes=(
        api_codes.TEXT,
        api_codes.ADVICE,
        api_codes.QUEUE,
        {422: ("candidate-unknown", "one-device", "device-not-here", "region-without-text")},
    ),
    queues="validate",
)
async def validate(request: Request, body: ValidationRequest, wait: Wait = 0.0) -> Response:
    """Queue the measurement of a region's candidates. The job's id is the validation's id.

    With `reuse` what was asked before is not measured again: 200 with the job that waits, runs or has measured it.
    """
    state = state_of(request)
    job, new = await run_in_threadpool(lambda: regions.submit_validation(state, **body.model_dump()))
    if wait:
        asked = job
        job = await wait_for_job(request, job["id"], wait, lambda: _job(request, asked["id"]))
        if "validations" in asked:
            job["validations"] = asked["validations"]
    return answer(job, 202 if new else status_of(request, job), Location=f"/api/v1/jobs/{job['id']}")


@router.get("/validations", responses={200: {"model": ValidationList}, **errors(422)})
@declare(Access.READ)
def validations(
    request: Request,
    limit: Limit = 50,
    after: After = None,
    region_id: Annotated[str | None, Query(max_length=64, description="Only of this region.")] = None,
) -> Response:
    """Validations, newest first."""
    return answer_page(request, state_of(request).store.validations(limit, after, region_id))


@router.get(
    "/validations/{validation_id}",
    responses={200: {"model": Validation}, 202: {"model": Validation}, **errors(404, 422)},
)
@declare(Access.COMPUTE)
async def validation(request: Request, validation_id: str, wait: Wait = 0.0) -> Response:
    """One validation, also of the archive. Where nothing could be measured, `archive` has the nearest record."""
    body = await wait_for_job(request, validation_id, wait, lambda: _validation(request, validation_id))
    return answer(body, status_of(request, body))


def _validation(request: Request, validation_id: str) -> Validation:
    state = state_of(request)
    stored = state.store.validation(validation_id)
    if stored is None:
        recorded = regions.archive_record(state, validation_id)
        if recorded is None:
            raise not_found("validation")
        return cast("Validation", {"region_id": None, "error": None, **recorded})
    unmeasured = stored["state"] == "done" and stored["outcome"] == "unmeasured"
    nearest = regions.nearest_record(state, stored["region"], validation_id) if unmeasured else None
    return {**stored, "archive": nearest}


@router.get("/validations/{validation_id}/regression", responses=REGRESSION)
@router.get("/validations/{validation_id}/since", responses=REGRESSION, deprecated=True)  # its old path
@declare(Access.COMPUTE, codes=({409: ("validation-not-done",)},))
def regression(request: Request, validation_id: str) -> Response:
    """Whether the advice flipped since the same region was measured before, on the same kind of GPU."""
    return answer(compare_with_previous(state_of(request), validation_id))


def _job(request: Request, job_id: str) -> Job:
    stored = state_of(request).store.job(job_id)
    if stored is None:
        raise not_found("job")
    return stored


@router.get("/jobs/{job_id}", responses={200: {"model": Job}, 202: {"model": Job}, **errors(404, 422)})
@declare(Access.READ)
async def job(request: Request, job_id: str, wait: Wait = 0.0) -> Response:
    """One job, with its result once it is done."""
    body = await wait_for_job(request, job_id, wait, lambda: _job(request, job_id))
    return answer(body, status_of(request, body))


@router.post("/jobs/{job_id}/cancel", responses={200: {"model": Job}, **errors(404)})
@declare(Access.CHANGE)
def cancel(request: Request, job_id: str) -> Response:
    """Cancel a waiting job, or ask a running one to stop; a job that has ended stays as it is."""
    cancelled = state_of(request).queue.cancel(job_id)
    if cancelled is None:
        raise not_found("job")
    return answer(cancelled)


@router.get("/jobs/{job_id}/events", response_class=EventSourceResponse, responses=errors(404))
@declare(Access.READ)
async def events(
    request: Request,
    known: Annotated[Job, Depends(_job)],
    last_event_id: Annotated[str | None, Header()] = None,
) -> AsyncIterator[ServerSentEvent]:
    """The job's progress as server-sent events: `progress`, then `done`. Last-Event-ID resumes."""
    async for event in job_events(state_of(request), known["id"], last_event_id):
        yield ServerSentEvent(data=event.data, event=event.kind, id=str(event.seq), retry=RETRY_MS)
