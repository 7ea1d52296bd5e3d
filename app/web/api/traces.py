"""/api/v1/traces: upload, once more with companions, list, one, gone."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from app.errors import not_found
from app.objects.trace import Ranks, Trace, TraceList, TraceSummary
from app.requests import regions, trace_oracle
from app.requests import traces as submit_trace
from app.requests.state import state_of
from app.requests.uploads import UNCOUNTED
from app.storage import history
from app.web.api.request_schemas import RenameRequest
from app.web.api.responses import (
    JSON_ONLY,
    After,
    Limit,
    Wait,
    answer,
    answer_page,
    errors,
    status_of,
    wait_for_job,
)
from app.web.server import codes as api_codes
from app.web.server.access import Access, declare
from app.web.server.problems import from_trace_error
from app.web.views.trace.ranks import rank_section

BINARY = {"type": "string", "format": "binary"}
COMPANION_PARTS = {
    "group": {"type": "string", "description": "Name shared by the ranks of one job."},
    "companion": {
        **BINARY,
        "description": "A trace of the same model without CUDA graphs, or of their capture: it lends its operations "
        "and shapes. The file, or as text the id of a trace. Its old name `beside` is taken as well.",
    },
    "execution_trace": {**BINARY, "description": "What ExecutionTraceObserver wrote in the same run."},
}
UPLOAD_BODY = {
    "requestBody": {
        "description": "A trace of torch.profiler, an nsys export (SQLite) or rocprofv3's JSON; as it is, as .gz or "
        ".zst, or alone in a .zip or .tar: raw, or as the part `file` of a form. Several parts `file`, or an archive "
        "of several traces, are the ranks of one job: the answer is the first, /ranks has all.",
        "required": True,
        "content": {
            "application/octet-stream": {"schema": BINARY},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "array", "items": BINARY}, **COMPANION_PARTS},
                }
            },
        },
    }
}
AGAIN_BODY = {
    "requestBody": {
        "description": "A form with at least one of the parts; `file` is the trace of another rank.",
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"file": {"type": "array", "items": BINARY}, **COMPANION_PARTS},
                }
            }
        },
    }
}
DRAWN = ("where", "timeline")
"""Of a trace what a list leaves out: tens of kilobytes each."""

router = APIRouter(prefix="/api/v1/traces", tags=["traces"])


@router.post(
    "",
    status_code=201,
    responses={
        200: {"model": Trace, "description": "The same bytes are here already: the trace that they are."},
        201: {"model": Trace},
        202: {"model": Trace},
        **errors(400, 404, 408, 413, 415, 422, 429, 503, 507),
    },
    openapi_extra=UPLOAD_BODY,
    max_body_size=UNCOUNTED,
)
@declare(Access.UPLOAD, codes=(api_codes.UPLOAD,), queues="read")
async def upload(
    request: Request,
    name: Annotated[str | None, Query(max_length=500, description="Display name.")] = None,
    group: Annotated[str | None, Query(max_length=100, description="Name shared by the ranks of one job.")] = None,
    companion: Annotated[
        str | None,
        Query(description="Id of a trace of the same model without CUDA graphs: it lends its operations and shapes."),
    ] = None,
    beside: Annotated[str | None, Query(description="Old name of `companion`.", deprecated=True)] = None,
    fresh: Annotated[bool, Query(description="Read it as a new trace, also where the same bytes are here.")] = False,
    wait: Wait = 0.0,
) -> Response:
    """Upload a trace. Without `wait` it answers at once, with status `reading`.

    Asked for again, it has its step, its timeline and its regions as soon as they are known, then advice on one region
    after the other.

    The same bytes once more, with the same companions and in the same group, are the trace that is here already: its
    id with 200, and nothing is read again. One that failed is read again.

    A companion that cannot be used costs nothing: the trace is read without it, and `notes[]` says why.
    """
    state = state_of(request)
    trace, new = await submit_trace.submit_upload(
        request, state, name=name, group=group, companion=companion or beside, fresh=fresh
    )
    return await _answer_created(request, trace["id"], wait, 201 if new else 200)


@router.post(
    "/{trace_id}/again",
    status_code=201,
    responses={201: {"model": Trace}, 202: {"model": Trace}, **errors(400, 404, 408, 413, 415, 422, 429, 503, 507)},
    openapi_extra=AGAIN_BODY,
    max_body_size=UNCOUNTED,
)
@declare(Access.UPLOAD, codes=(api_codes.UPLOAD, {422: ("trace-not-ready",)}), queues="read")
async def again(request: Request, trace_id: str, wait: Wait = 0.0) -> Response:
    """Read a trace that is here once more, with companions: a new trace, nothing is sent twice."""
    trace = await submit_trace.submit_again(request, state_of(request), trace_id)
    return await _answer_created(request, trace["id"], wait)


async def _answer_created(request: Request, trace_id: str, wait: float, status: int = 201) -> Response:
    """The trace, once it is read or the wait is over; its error as a problem."""
    state = state_of(request)
    if wait:
        await state.queue.wait(trace_id, min(wait, state.settings.max_wait_s))
    trace = await run_in_threadpool(trace_oracle.find_trace, state, trace_id)
    if trace["status"] == "failed" and trace["error"] is not None:
        problem = from_trace_error(trace["error"])
        problem.extra["trace"] = trace_id
        raise problem
    return answer(trace, status_of(request, trace, status), Location=f"/api/v1/traces/{trace_id}")


@router.get("", responses={200: {"model": TraceList}, **errors(422)})
@declare(Access.READ)
def traces(request: Request, limit: Limit = 50, after: After = None) -> Response:
    """Traces, newest first, without their regions and what only their page draws."""
    page = state_of(request).store.traces(limit, after)
    return answer_page(request, {**page, "items": [_undrawn(item) for item in page["items"]]})


def _undrawn(trace: TraceSummary) -> TraceSummary:
    return cast("TraceSummary", {key: value for key, value in trace.items() if key not in DRAWN})


@router.get("/{trace_id}/ranks", responses={200: {"model": Ranks}, **errors(404)})
@declare(Access.READ)
def ranks(request: Request, trace_id: str) -> Response:
    """The traces of the same group, rank by rank: the slowest, and how long each waits in communication."""
    trace = regions.find_trace(state_of(request), trace_id)
    section = rank_section(state_of(request).store.trace_group(trace.get("group")))
    spread = section.get("spread") or {"slowest": None, "spread": None, "waiting_share": None}
    body: Ranks = {
        "slowest": spread["slowest"],
        "spread": spread["spread"],
        "waiting_share": spread["waiting_share"],
        "ranks": section.get("ranks", []),
    }
    return answer(body)


@router.get("/{trace_id}", responses={200: {"model": Trace}, 202: {"model": Trace}, **errors(404, 422)})
@declare(Access.READ)
async def trace(request: Request, trace_id: str, wait: Wait = 0.0) -> Response:
    """One trace with its regions and their advice; with `wait` once it is read, or the wait is over.

    Behind that Inductor is asked about the regions that make up most of its time: `oracle` says how far it is, and
    `prediction` of each region whether its advice goes by Inductor's kernels or by the fusion rules.
    """
    body = await wait_for_job(request, trace_id, wait, lambda: trace_oracle.find_trace(state_of(request), trace_id))
    return answer(body, status_of(request, body))


@router.patch("/{trace_id}", dependencies=JSON_ONLY, responses={200: {"model": Trace}, **errors(404, 413, 415, 422)})
@declare(Access.CHANGE)
def patch(request: Request, trace_id: str, body: RenameRequest) -> Response:
    """Rename a trace. Nothing else of it can be changed."""
    state = state_of(request)
    if not history.rename(state.store.database, "trace", trace_id, body.name):
        raise not_found("trace")
    return answer(trace_oracle.find_trace(state, trace_id))


@router.delete("/{trace_id}", status_code=204, responses=errors(404))
@declare(Access.CHANGE)
def delete(request: Request, trace_id: str) -> Response:
    """Forget a trace, its file and its regions. Validations are kept.

    It is final: only what a page's button deletes can be brought back.
    """
    submit_trace.delete_trace(state_of(request), trace_id)
    return Response(status_code=204)
