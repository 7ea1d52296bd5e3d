"""/api/v1/traces: upload, list, one, gone."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from app import submit
from app.uploads import UNCOUNTED
from app.web.answers import After, Limit, answer, errors
from app.web.models import Ranks, Trace, TraceList
from app.web.problems import from_trace_error
from app.web.trace_views import rank_section

UPLOAD_BODY = {
    "requestBody": {
        "description": "A Chrome trace of torch.profiler, .json or .json.gz: raw, or as the part `file` of a form.",
        "required": True,
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            },
        },
    }
}

router = APIRouter(prefix="/api/v1/traces", tags=["traces"])


@router.post(
    "",
    status_code=201,
    responses={201: {"model": Trace}, **errors(400, 404, 408, 413, 415, 422, 429, 503, 507)},
    openapi_extra=UPLOAD_BODY,
    max_body_size=UNCOUNTED,
)
async def upload(
    request: Request,
    name: Annotated[str | None, Query(max_length=500, description="Display name.")] = None,
    group: Annotated[str | None, Query(max_length=100, description="Name shared by the ranks of one job.")] = None,
    beside: Annotated[
        str | None,
        Query(description="Id of a trace of the same model without CUDA graphs: it lends its operations and shapes."),
    ] = None,
    wait: Annotated[float, Query(ge=0, allow_inf_nan=False, description="Seconds to wait for `ready`.")] = 0.0,
) -> Response:
    """Upload a trace. Without `wait` it answers at once, with status `reading`."""
    state = request.app.state
    trace = await submit.submit_upload(request, state, name=name, group=group, beside=beside)
    if wait:
        await state.queue.wait(trace["id"], min(wait, state.settings.max_wait_s))
        trace = await run_in_threadpool(submit.find_trace, state, trace["id"])
    if trace["status"] == "failed":
        problem = from_trace_error(trace["error"])
        problem.extra["trace"] = trace["id"]
        raise problem
    return answer(trace, 201, Location=f"/api/v1/traces/{trace['id']}")


@router.get("", responses={200: {"model": TraceList}, **errors(422)})
def traces(request: Request, limit: Limit = 50, after: After = None) -> Response:
    """Traces, newest first, without their regions."""
    return answer(request.app.state.store.traces(limit, after))


@router.get("/{trace_id}/ranks", responses={200: {"model": Ranks}, **errors(404)})
def ranks(request: Request, trace_id: str) -> Response:
    """The traces of the same group, rank by rank: the slowest, and how long each waits in communication."""
    trace = submit.find_trace(request.app.state, trace_id)
    found = rank_section(request.app.state.store.trace_group(trace.get("group")))
    spread = found.get("spread") or {"slowest": None, "spread": None, "waiting_share": None}
    return answer({**spread, "ranks": found.get("ranks", [])})


@router.get("/{trace_id}", responses={200: {"model": Trace}, **errors(404)})
def trace(request: Request, trace_id: str) -> Response:
    """One trace with its regions and their advice."""
    return answer(submit.find_trace(request.app.state, trace_id))


@router.delete("/{trace_id}", status_code=204, responses=errors(404))
def delete(request: Request, trace_id: str) -> Response:
    """Forget a trace, its file and its regions. Validations are kept."""
    submit.delete_trace(request.app.state, trace_id)
    return Response(status_code=204)
