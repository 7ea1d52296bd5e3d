"""Errors as RFC 9457 problem+json with a stable `code`; the same objects are rendered as pages by app.web.pages."""

from __future__ import annotations

from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.web.json_answer import JSONAnswer

TITLES = {
    400: "The request cannot be read",
    401: "Sign in first",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "The request stalled",
    409: "Not possible now",
    413: "Too large",
    415: "Unsupported media type",
    422: "The request cannot be answered",
    429: "Too many jobs are waiting",
    500: "The server failed",
    503: "Not available now",
    507: "The disk is full",
}

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


class Problem(Exception):  # noqa: N818 - the name of the thing in RFC 9457
    """An error that the client is told of. extra: more fields of the body; `headers` of the response."""

    def __init__(self, status: int, code: str, title: str = "", detail: str = "", **extra: Any) -> None:
        super().__init__(detail or code)
        self.status = status
        self.code = code
        self.title = title or TITLES.get(status, "Error")
        self.detail = detail
        self.headers: dict[str, str] = extra.pop("headers", {})
        self.extra = extra

    def body(self) -> dict[str, Any]:
        return {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            **self.extra,
        }

    def response(self) -> JSONAnswer:
        return JSONAnswer(
            self.body(), status_code=self.status, headers=self.headers, media_type="application/problem+json"
        )


def not_found(what: str) -> Problem:
    """404 for an id that is unknown or not even an id."""
    return Problem(404, "not-found", f"There is no such {what}")


def without_text() -> Problem:
    """422 for a region of a trace that has no text to work on."""
    return Problem(422, "region-without-text", "", "The trace does not say enough to write this region down.")


def queue_full(detail: str = "", **extra: Any) -> Problem:
    """429 when no more jobs of a kind may wait."""
    words = f"{detail} Too many jobs are waiting. Try again in a minute.".strip()
    return Problem(429, "queue-full", "", words, headers={"Retry-After": "60"}, **extra)


def from_trace_error(error: dict[str, Any]) -> Problem:
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
