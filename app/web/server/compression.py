"""Compressed: text over the wire as gzip, for whoever takes it: Starlette's middleware.

Gzip and no brotli: over plain HTTP, as most people reach this server, browsers take nothing better, and whoever has TLS
has a proxy that can. Static files are compressed once instead of at each request (app.web.server.assets). Streams of
events pass as they are, so that each event arrives when it is sent; no request's body is ever unpacked here.

BREACH needs a secret in a page that repeats what a stranger had sent. No page has one: the token is in a header or a
cookie, never in a body.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LEVEL = 5
"""Of zlib's 1 to 9: a page of 100 kB takes 2 ms, at 9 it takes 4 and is a twentieth shorter."""

LEAST_BYTES = 860
"""What fits into one packet does not come sooner by being shorter."""

AS_IT_IS = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream")
"""Files that somebody handed in, mostly compressed already: sent with their length, so that a download has progress."""


def takes_gzip(accept_encoding: str) -> bool:
    """Whether a client names gzip, and not with a weight of 0."""
    for part in accept_encoding.lower().split(","):
        name, _, weight = part.replace(" ", "").partition(";q=")
        if name == "gzip":
            return weight.strip("0.") != "" or weight == ""
    return False


class Compressed:
    """Pure ASGI around the routes and their ETags, which are weak: the same for a body as it is and compressed."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.compressing = GZipMiddleware(app, LEAST_BYTES, LEVEL, exclude_content_types=AS_IT_IS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_varying(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if "accept-encoding" not in headers.get("vary", "").lower():
                    headers.add_vary_header("Accept-Encoding")
            await send(message)

        wanted = takes_gzip(Headers(scope=scope).get("accept-encoding", ""))
        await (self.compressing if wanted else self.app)(scope, receive, send_varying)
