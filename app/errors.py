"""Errors that a client is told of, as RFC 9457 has them: a status, a stable `code`, and words. Rendered by the web."""

from __future__ import annotations

from typing import Any

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
