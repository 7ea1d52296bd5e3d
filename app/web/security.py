"""Guard: the outermost layer. Whom we answer to, who may ask, and the headers of every response."""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

from starlette._utils import parse_host_header
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.web.problems import Problem

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/sign-in"})
COOKIE = "tritonworthy_token"

BODY_BYTES = 1024 * 1024
"""Largest body but for uploads: a region of the longest text with the most shapes fits ten times."""

UPLOAD_PATHS = frozenset({"/api/v1/traces", "/api/v1/checks", "/traces"})
"""Where app.uploads does its own counting."""


class Guard:
    """Pure ASGI, wrapped around everything, so that error responses of inner layers carry the headers too."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], token: str | None) -> None:
        self.app = app
        self.hosts = hosts
        self.token = token.encode() if token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            # There are no WebSockets here.
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refuse(scope)
        await (refused or self.app)(scope, receive, send_with_headers)

    def _refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        host = parse_host_header(hosts[0]) if len(hosts) == 1 else None
        if host is None or host.host.lower() not in self.hosts:
            return Problem(400, "bad-host", "", "This server does not answer to that host name.").response()
        announced = headers.get("content-length", "0")
        if scope["path"] not in UPLOAD_PATHS and announced.isdigit() and int(announced) > BODY_BYTES:
            # FastAPI would refuse it too, in plain text; without an announced length its refusal reaches our handler.
            return Problem(413, "body-too-large", "", f"This may have at most {BODY_BYTES} bytes.").response()
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        bearer = scheme.lower() == "bearer" and self._is_token(secret.strip())
        # A page of another site cannot send an Authorization header without our leave, and nobody gets it (no CORS).
        if scope["method"] not in SAFE_METHODS and not bearer and not _same_origin(headers, hosts[0]):
            return Problem(
                403, "cross-origin", "", "Requests that change something must come from this site."
            ).response()
        if self.token is None or bearer or _is_open(scope["path"]) or self._is_token(_cookie(headers)):
            return None
        if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
            query = scope["query_string"].decode("latin-1")
            wanted = scope["path"] + (f"?{query}" if query else "")
            return RedirectResponse(f"/sign-in?next={quote(wanted, safe='')}", status_code=303)
        return Problem(
            401,
            "token-missing",
            "",
            "Send the server's token as `Authorization: Bearer TOKEN`.",
            headers={"WWW-Authenticate": "Bearer"},
        ).response()

    def _is_token(self, given: str) -> bool:
        return self.token is not None and hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self.token)


def _is_open(path: str) -> bool:
    """Paths that need no token: health, the sign-in page and what it is made of."""
    return path in OPEN_PATHS or path.startswith("/static/")


def _same_origin(headers: Headers, host: str) -> bool:
    """Whether a browser says that our own page sent this; a client that is no browser says nothing and may."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host.lower() and host != ""
    except ValueError:
        return False


def _cookie(headers: Headers) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""
