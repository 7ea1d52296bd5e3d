"""Conditional: an ETag on every answer of the API, and 304 without a body for whoever has it already (RFC 9110, 13)."""

from __future__ import annotations

import hashlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KEPT_OF_304 = frozenset({"etag", "cache-control", "vary", "link", "ratelimit", "ratelimit-policy"})
"""Headers of a 304; what describes a body that is not there goes."""


class Conditional:
    """Pure ASGI around the routes. An answer of one piece gets the hash of its bytes as its tag; streams get none.

    The hash is of what is answered, not of a version number: what changes (a job, a trace that is measured) has another
    tag as soon as one byte of it is another.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or not _is_data(scope["path"]):
            await self.app(scope, receive, send)
            return
        known_tags = Headers(scope=scope).get("if-none-match", "")
        start: Message | None = None

        async def send_with_etag(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and message["status"] == 200:
                start = message  # kept until its body is seen
                return
            if start is None or message["type"] != "http.response.body":
                await send(message)
                return
            begun, start = start, None
            if message.get("more_body", False):
                await send(begun)
                await send(message)
                return
            headers = MutableHeaders(scope=begun)
            tag = headers.setdefault("ETag", tag_of(message.get("body", b"")))
            headers.setdefault("Cache-Control", "private, no-cache")
            if is_known(tag, known_tags):
                kept = [(k, v) for k, v in begun["headers"] if k.decode("latin-1").lower() in KEPT_OF_304]
                await send({"type": "http.response.start", "status": 304, "headers": kept})
                await send({"type": "http.response.body", "body": b""})
                return
            await send(begun)
            await send(message)

        await self.app(scope, receive, send_with_etag)


def _is_data(path: str) -> bool:
    """The API, and the JSON of pages. Pages themselves are kept by nobody."""
    return path.startswith("/api/") or path.endswith(".json")


def tag_of(body: bytes) -> str:
    """The same for the same bytes, and weak, because they may be sent compressed (app.web.server.compression)."""
    return f'W/"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'


def is_known(tag: str, if_none_match: str) -> bool:
    """Whether If-None-Match names the tag; compared weakly, as for GET."""
    tags = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    return tag.removeprefix("W/") in tags or "*" in tags
