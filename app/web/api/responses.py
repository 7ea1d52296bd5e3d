"""What the API's handlers share: JSON answers, the documentation of errors, reading a JSON body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import TypeAdapter

from app.errors import Problem
from app.objects import common as objects
from app.objects.check import Check
from app.objects.common import Page
from app.objects.job import Job
from app.objects.record import Validation
from app.objects.trace import Trace
from app.requests.state import state_of
from app.web.server.json_response import JSONAnswer

T = TypeVar("T")

Responses: TypeAlias = dict[int | str, dict[str, Any]]
"""`responses=` of a route, as FastAPI takes them."""

Limit = Annotated[int, Query(ge=1, le=200, description="Most items of one page.")]
CURSOR = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z~[a-z0-9]{26}$"
"""What `next` looks like: the place of a row, so that what is added or removed meanwhile moves no page."""

After = Annotated[
    str | None, Query(max_length=64, pattern=CURSOR, description="`next` of the page before: a place in the list.")
]
Wait = Annotated[
    float, Query(ge=0, allow_inf_nan=False, description="Seconds to wait for the end of the job; the server caps it.")
]


def errors(*statuses: int) -> Responses:
    """`responses=` of a route: the problems that it may answer."""
    body = {"application/problem+json": {"schema": problem_schema()}}
    return {status: {"description": "Problem", "content": body} for status in statuses}


def problem_schema() -> dict[str, Any]:
    """Of the body of every error."""
    return TypeAdapter(objects.Problem).json_schema()


def need_json(request: Request) -> None:
    """415 for a body that does not say it is JSON: forms of other sites can send everything else."""
    if not is_json(request.headers.get("content-type", "")):
        raise Problem(415, "unsupported-media-type", "", "Send JSON with Content-Type: application/json.")


def is_json(content_type: str) -> bool:
    """Whether a Content-Type says that the body is JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


JSON_ONLY = [Depends(need_json)]


def answer(body: object, status: int = 200, **headers: str) -> JSONAnswer:
    """One of `app.objects` as it is: checked when it was written."""
    return JSONAnswer(body, status_code=status, headers={k.replace("_", "-"): v for k, v in headers.items()})


def answer_page(request: Request, page: Page[T]) -> JSONAnswer:
    """A page of a list, its next one also as `Link: <...>; rel="next"` (RFC 8288)."""
    if page["next"] is None:
        return answer(page)
    following = request.url.include_query_params(after=page["next"])
    return answer(page, Link=f'<{following.path}?{following.query}>; rel="next"')


def status_of(request: Request, body: Trace | Validation | Check | Job, status: int = 200) -> int:
    """The status of an answer about a job or what it makes: 202 where the server stops while it is not done yet."""
    under_way = body.get("state") in ("queued", "running") or body.get("status") == "reading"
    return 202 if under_way and state_of(request).closing.is_set() else status


async def wait_for_job(request: Request, job_id: str, wait: float, find: Callable[[], T]) -> T:
    """What `find` finds once the job has ended or the wait is over; at once where there is no such job."""
    if wait:
        state = state_of(request)
        await state.queue.wait(job_id, min(wait, state.settings.max_wait_s))
    return await run_in_threadpool(find)
