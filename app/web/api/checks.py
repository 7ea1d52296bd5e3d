"""/api/v1/checks: assertions for CI, their verdict, and its reports."""

from __future__ import annotations

from typing import Any, cast

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.check.formats import BY_SUFFIX
from app.errors import Problem, not_found
from app.objects.check import Check, CheckList, Report
from app.objects.job import Job
from app.requests import checks as submit_check
from app.requests.check_history import NAME_CHARS, read_history
from app.requests.state import state_of
from app.requests.uploads import UNCOUNTED, chunks
from app.storage import checks
from app.web.api.request_schemas import CheckRequest
from app.web.api.responses import (
    After,
    Limit,
    Wait,
    answer,
    answer_page,
    errors,
    need_json,
    status_of,
    wait_for_job,
)
from app.web.server import codes as api_codes
from app.web.server.access import Access, declare
from app.web.server.security import BODY_BYTES

BINARY = {"type": "string", "format": "binary"}
NAME = {"type": "string", "minLength": 1, "maxLength": NAME_CHARS}
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
                            "description": "Traces, as /traces takes them, and regions' texts.",
                        },
                        "baseline": {**BINARY, "description": "A trace of the same step before the change."},
                        "config": {
                            "type": "string",
                            "description": "tritonworthy.toml, as a file or as text. Without it everything that the "
                            "advice would do about 1 % of the step or more is a warning.",
                        },
                        "history": {
                            "type": "string",
                            "enum": ["true", "false"],
                            "description": "`true` keeps what is measured in the history; needs `commit`.",
                        },
                        "commit": {**NAME, "description": "The commit that was measured."},
                        "branch": {**NAME, "description": "Its branch; `main` without."},
                        "software": {
                            "type": "string",
                            "description": "Versions that it was recorded with: torch=2.14.0, triton=3.7.1.",
                        },
                        "method": {**NAME, "description": "How it was recorded: what changes times apart from code."},
                    },
                }
            },
            "application/json": {"schema": CheckRequest.model_json_schema()},
        },
    }
}
router = APIRouter(prefix="/api/v1/checks", tags=["checks"])


@router.post(
    "",
    status_code=202,
    responses={
        200: {"model": Job, "description": "The same check is here already, waiting, running or done: its job."},
        202: {"model": Job},
        **errors(400, 404, 408, 409, 413, 415, 422, 429, 503, 507),
    },
    openapi_extra=BODY,
    max_body_size=UNCOUNTED,
)
@declare(
    Access.UPLOAD,
    codes=(api_codes.UPLOAD, api_codes.TEXT, api_codes.ADVICE, {409: ("trace-not-ready",), 422: ("config-invalid",)}),
    queues="check",
)
async def check(request: Request, wait: Wait = 0.0) -> Response:
    """Queue a check; the job's id is the check's id. `result.exit_code` is 0, 1, or 2 for could not measure.

    The same files, texts, ids and configuration once more are the check that is here already: its job with 200. One
    that failed is done again, and so is one with `validate`, for that measures, as soon as it has ended.
    """
    state = state_of(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "multipart/form-data":
        job, new = await submit_check.submit_form(request, state)
    else:
        body = await _read(request)
        job, new = await run_in_threadpool(submit_check.submit_json, state, **body)
    if wait:
        await state.queue.wait(job["id"], min(wait, state.settings.max_wait_s))
        ended = await run_in_threadpool(state.store.job, job["id"])
        job = ended or job
    return answer(job, 202 if new else status_of(request, job), Location=f"/api/v1/checks/{job['id']}")


async def _read(request: Request) -> dict[str, Any]:
    """A JSON body of at most BODY_BYTES as the arguments of submit_json."""
    need_json(request)
    data = bytearray()
    async for chunk in chunks(request, state_of(request).settings):
        data += chunk
        if len(data) > BODY_BYTES:
            raise Problem(413, "body-too-large", "", f"This may have at most {BODY_BYTES} bytes.")
    try:
        body = CheckRequest.model_validate_json(bytes(data))
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        raise RequestValidationError([{**e, "loc": ("body", *e["loc"])} for e in faults]) from None
    config = {key: value for key in ("check", "assertions") if (value := getattr(body, key)) is not None}
    history = read_history(
        wanted=body.history, commit=body.commit or "", branch=body.branch or "", software=body.software,
        method=body.method or "",
    )  # fmt: skip
    other = {"check", "assertions", *submit_check.HISTORY}
    return {**body.model_dump(exclude=other), "config": config, "history": history}


@router.get("", responses={200: {"model": CheckList}, **errors(422)})
@declare(Access.READ)
def check_list(request: Request, limit: Limit = 50, after: After = None) -> Response:
    """Checks, newest first, without their findings."""
    return answer_page(request, checks.page(state_of(request).store.database, limit, after))


@router.get(
    "/{check_id}.{suffix}",
    responses={
        200: {"content": {f.media_type.partition(";")[0]: {} for f in BY_SUFFIX.values()}},
        **errors(404, 409),
    },
    response_class=Response,
)
@declare(Access.COMPUTE, codes=({409: ("check-not-done",)},))
def report(request: Request, check_id: str, suffix: str) -> Response:
    """The report of a check that is done, as json, md, sarif, xml (JUnit), csv or html. It never changes."""
    known = BY_SUFFIX.get(suffix)
    check = _find_check(request, check_id)
    if known is None:
        raise not_found("report")
    if check["outcome"] is None or "schema" not in check:
        raise Problem(409, "check-not-done", "", "There is no report yet, or never: look at the job.")
    text = known.render(report_of(check))
    disposition = "attachment" if suffix == "html" else "inline"
    headers = {"Content-Disposition": f'{disposition}; filename="check-{check["id"]}.{suffix}"'}
    return Response(text.encode("utf-8", "backslashreplace"), media_type=known.media_type, headers=headers)


@router.get("/{check_id}", responses={200: {"model": Check}, 202: {"model": Check}, **errors(404, 422)})
@declare(Access.READ)
async def one(request: Request, check_id: str, wait: Wait = 0.0) -> Response:
    """One check: its verdict once it is done. A check that failed or was cancelled could not be measured."""
    body = await wait_for_job(request, check_id, wait, lambda: _find_check(request, check_id))
    return answer(body, status_of(request, body))


def report_of(check: Check) -> Report:
    """The report of a check that is done: without its job."""
    return cast("Report", {key: value for key, value in check.items() if key not in ("state", "progress", "error")})


def _find_check(request: Request, check_id: str) -> Check:
    check = checks.by_id(state_of(request).store.database, check_id)
    if check is None:
        raise not_found("check")
    return check
