"""What the API's handlers share: JSON answers, the documentation of errors, reading a JSON body."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.responses import JSONResponse

from app.web.models import ProblemBody
from app.web.problems import Problem

Json = dict[str, Any]

Limit = Annotated[int, Query(ge=1, le=200, description="Most items of one page.")]
After = Annotated[str | None, Query(max_length=64, description="`next` of the page before.")]


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """`responses=` of a route: the problems that it may answer."""
    body = {"application/problem+json": {"schema": ProblemBody.model_json_schema()}}
    return {status: {"description": "Problem", "content": body} for status in statuses}


def need_json(request: Request) -> None:
    """415 for a body that does not say it is JSON: forms of other sites can send everything else."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise Problem(415, "unsupported-media-type", "", "Send JSON with Content-Type: application/json.")


JSON_ONLY = [Depends(need_json)]


def answer(body: Any, status: int = 200, **headers: str) -> JSONResponse:
    """The store's plain JSON as it is: already checked when it was written."""
    return JSONResponse(body, status_code=status, headers={k.replace("_", "-"): v for k, v in headers.items()})
