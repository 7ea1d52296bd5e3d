"""/api/v1/checks: assertions for CI, their verdict, and its reports."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app import checks, submit_check
from app.check.formats import BY_SUFFIX
from app.uploads import UNCOUNTED
from app.web.answers import After, Json, Limit, answer, errors, need_json
from app.web.check_models import Check, CheckList, CheckRequest
from app.web.models import Job
from app.web.problems import Problem, not_found
from app.web.security import BODY_BYTES

BINARY = {"type": "string", "format": "binary"}
BODY = {
    "requestBody": {
        "description": "Files in a form, or ids and texts in JSON. docs/ci.md has the assertions.",
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {
                            "type": "array",
                            "items": BINARY,
                            "description": "Traces (.json, .json.gz) and regions' texts.",
                        },
                        "baseline": {**BINARY, "description": "A trace of the same step before the change."},
                        "config": {
                            "type": "string",
                            "description": "tritonworthy.toml, as a file or as text. Without it everything that the "
                            "advice would do about 1 % of the step or more is a warning.",
                        },
                    },
                }
            },
            "application/json": {"schema": CheckRequest.model_json_schema()},
        },
    }
}
Wait = Annotated[float, Query(ge=0, allow_inf_nan=False, description="Seconds to wait for the verdict.")]

router = APIRouter(prefix="/api/v1/checks", tags=["checks"])


@router.post(
    "",
    status_code=202,
    responses={202: {"model": Job}, **errors(400, 404, 408, 409, 413, 415, 422, 429, 503, 507)},
    openapi_extra=BODY,
    max_body_size=UNCOUNTED,
)
async def check(request: Request, wait: Wait = 0.0) -> Response:
    """Queue a check; the job's id is the check's id. `result.exit_code` is 0, 1, or 2 for could not measure."""
    state = request.app.state
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "multipart/form-data":
        job = await submit_check.submit_form(request, state)
    else:
        body = await _read(request)
        job = await run_in_threadpool(submit_check.submit_json, state, **body)
    if wait:
        await state.queue.wait(job["id"], min(wait, state.settings.max_wait_s))
        job = await run_in_threadpool(state.store.job, job["id"]) or job
    return answer(job, 202, Location=f"/api/v1/checks/{job['id']}")


async def _read(request: Request) -> dict[str, Any]:
    """A JSON body of at most BODY_BYTES as the arguments of submit_json."""
    need_json(request)
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_BYTES:
            raise Problem(413, "body-too-large", "", f"This may have at most {BODY_BYTES} bytes.")
    try:
        body = CheckRequest.model_validate_json(bytes(data))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        raise RequestValidationError([{**e, "loc": ("body", *e["loc"])} for e in found]) from None
    config = {key: value for key in ("check", "assertions") if (value := getattr(body, key)) is not None}
    return {**body.model_dump(exclude={"check", "assertions"}), "config": config}


@router.get("", responses={200: {"model": CheckList}, **errors(422)})
def check_list(request: Request, limit: Limit = 50, after: After = None) -> Response:
    """Checks, newest first, without their findings."""
    return answer(checks.page(request.app.state.store, limit, after))


@router.get(
    "/{check_id}.{suffix}",
    responses={
        200: {"content": {f.media_type.partition(";")[0]: {} for f in BY_SUFFIX.values()}},
        304: {"description": "Not modified: the report is as it was."},
        **errors(404, 409),
    },
    response_class=Response,
)
def report(request: Request, check_id: str, suffix: str) -> Response:
    """The report of a check that is done, as json, md, sarif, xml (JUnit), csv or html. It never changes: ETag."""
    known = BY_SUFFIX.get(suffix)
    found = _found(request, check_id)
    if known is None:
        raise not_found("report")
    if found["outcome"] is None or "schema" not in found:
        raise Problem(409, "check-not-done", "", "There is no report yet, or never: look at the job.")
    text = known.render({key: value for key, value in found.items() if key not in ("state", "progress", "error")})
    data = text.encode("utf-8", "backslashreplace")
    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    disposition = "attachment" if suffix == "html" else "inline"
    headers = {"ETag": tag, "Cache-Control": "private, no-cache",
               "Content-Disposition": f'{disposition}; filename="check-{found["id"]}.{suffix}"'}  # fmt: skip
    if tag in [t.strip() for t in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=known.media_type, headers=headers)


@router.get("/{check_id}", responses={200: {"model": Check}, **errors(404, 422)})
async def one(request: Request, check_id: str, wait: Wait = 0.0) -> Response:
    """One check: its verdict once it is done. A check that failed or was cancelled could not be measured."""
    state = request.app.state
    found = await run_in_threadpool(_found, request, check_id)
    if wait and found["outcome"] is None:
        await state.queue.wait(check_id, min(wait, state.settings.max_wait_s))
        found = await run_in_threadpool(_found, request, check_id)
    return answer(found)


def _found(request: Request, check_id: str) -> Json:
    found = checks.by_id(request.app.state.store, check_id)
    if found is None:
        raise not_found("check")
    return found
