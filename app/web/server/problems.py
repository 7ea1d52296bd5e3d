"""Problems as RFC 9457 problem+json, and what other libraries' errors are as Problems.

The same objects are rendered as pages by app.web.pages.home.
"""

from __future__ import annotations

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.errors import Problem
from app.objects.common import Error
from app.web.server.json_response import JSONAnswer

CODES = {
    400: "bad-request",
    401: "token-missing",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    408: "request-stalled",
    413: "body-too-large",
    415: "unsupported-media-type",
    500: "internal",
    503: "unavailable",
}


def as_json(problem: Problem) -> JSONAnswer:
    """The response of a problem: application/problem+json."""
    return JSONAnswer(
        problem.body(), status_code=problem.status, headers=problem.headers, media_type="application/problem+json"
    )


def from_trace_error(error: Error) -> Problem:
    """422 from the `error` of a trace that could not be read; 413 for one that is too large to be."""
    return Problem(
        413 if error["code"] == "trace-too-large" else 422,
        error["code"],
        "The trace cannot be read",
        error["message"],
        remedy=error.get("remedy", ""),
    )


def from_http(error: HTTPException) -> Problem:
    """What Starlette and FastAPI raise themselves."""
    if error.status_code == 400 and error.detail == "There was an error parsing the body":
        return Problem(422, "invalid-json", "", "The body is not JSON that can be read.")
    code = getattr(error, "code", "") or CODES.get(error.status_code, f"http-{error.status_code}")
    return Problem(error.status_code, code, "", str(error.detail), headers=dict(error.headers or {}))


def from_validation(error: RequestValidationError) -> Problem:
    """422 that names each wrong field, without repeating what was sent."""
    problems = error.errors()
    if any(problem["type"] == "json_invalid" for problem in problems):
        return Problem(422, "invalid-json", "", "The body is not JSON that can be read.")
    wrong = [
        {"field": ".".join(str(part) for part in problem["loc"][1:]), "message": str(problem["msg"])}
        for problem in problems[:20]
    ]
    detail = "; ".join(f"{w['field']}: {w['message']}" if w["field"] else w["message"] for w in wrong)
    return Problem(422, "invalid-request", "", detail, errors=wrong)
