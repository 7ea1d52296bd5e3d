"""Guard: the outermost layer. Whom we answer to, who may ask, and the headers of every response."""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

from starlette._utils import parse_host_header
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import Problem
from app.rate_limit import CLIENT, Allowance, Client, Rates, client_name
from app.web.server.contract import Contract
from app.web.server.problems import as_json, from_http

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

OPENER, OPENS_WINDOWS = "Cross-Origin-Opener-Policy", "same-origin-allow-popups"
"""The header by which a page's windows forget who opened them, and the value of a page that speaks with one."""

HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    OPENER: "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
COOKIE = "tritonworthy_token"

RESERVED_PLACE = "reserved_place"
"""In a request's `state`: its connection is one beyond those that there may be (app.web.server.http_protocol)."""

WITHOUT_PLACE = re.compile(r"/healthz|/readyz|/api/v1/jobs/[^/]+(/cancel)?")
"""What such a connection may ask without the token: is the server well, what became of a job, and to end one. Nothing
that it could wait for: a place is for the next one."""

BODY_BYTES = 1024 * 1024
"""Largest body but for uploads: a region of the longest text with the most shapes fits ten times."""


class Guard:
    """Pure ASGI, wrapped around everything, so that error responses of inner layers carry the headers too.

    contract: what the routes declare. requests_per_minute, most_waiting: of one client (app.rate_limit), 0 for no
    limit of
    requests. body_s: time for a body that is no upload to come. stopping: whether the server ends; bodies that are
    still on their way are refused.
    """

    def __init__(
        self,
        app: ASGIApp,
        contract: Contract,
        *,
        hosts: frozenset[str],
        token: str | None,
        requests_per_minute: int = 0,
        most_waiting: int = 0,
        body_s: float = 20.0,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.app = app
        self.contract = contract
        self.hosts = hosts
        self.token = token.encode() if token else None
        self.rates = Rates(requests_per_minute) if requests_per_minute else None
        self.most_waiting = most_waiting
        self.body_s = body_s
        self.stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            # There are no WebSockets here.
            await send({"type": "websocket.close", "code": 1008})
            return

        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                opens_windows = headers.get(OPENER) == OPENS_WINDOWS
                for name, value in HEADERS.items():
                    headers[name] = value
                if opens_windows:
                    headers[OPENER] = OPENS_WINDOWS
                for name, value in limits.items():
                    headers.append(name, value)  # an inner layer tells of other limits
                headers.setdefault("Cache-Control", "no-store")
                if message["status"] == 500 or beyond:
                    # uvicorn closes after a fault: a client that does not know sends its next request into nothing.
                    headers["Connection"] = "close"
            await send(message)

        client = client_name(scope)
        CLIENT.set(Client(client, self.most_waiting) if client else None)
        beyond = bool(scope.get("state", {}).get(RESERVED_PLACE))
        allowance = self.rates.take(client) if self.rates and client else None
        limits = allowance.headers() if allowance else {}
        refused = self._refuse(scope, allowance)
        if _has_body(scope):
            receive = _impatient(
                receive, None if self.contract.takes_files(scope["path"]) else self.body_s, self.stopping
            )
        try:
            await (refused or self.app)(scope, receive, send_with_headers)
        except CutOffError as cut:
            # Whoever reads a body outside of FastAPI's handlers need not know that it may not come.
            if not started:
                await as_json(from_http(cut))(scope, receive, send_with_headers)
        except asyncio.CancelledError:
            # uvicorn's patience with open requests ends when it stops, and its own answer is 500.
            if started or not self.stopping():
                raise
            late = _stopping("The server stopped before this was answered. Look when it is back whether it was done.")
            await as_json(late)(scope, receive, send_with_headers)

    def _refuse(self, scope: Scope, allowance: Allowance | None) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        host = parse_host_header(hosts[0]) if len(hosts) == 1 else None
        if host is None or host.host.lower() not in self.hosts:
            return as_json(Problem(400, "bad-host", "", "This server does not answer to that host name."))
        if allowance is not None and not allowance.allowed:
            detail = f"One address may send {allowance.quota} requests in a minute."
            return as_json(Problem(429, "too-many-requests", "Too many requests", detail))
        announced = headers.get("content-length", "0")
        if not self.contract.takes_files(scope["path"]) and announced.isdigit() and int(announced) > BODY_BYTES:
            # FastAPI would refuse it too, in plain text; without an announced length its refusal reaches our handler.
            return as_json(Problem(413, "body-too-large", "", f"This may have at most {BODY_BYTES} bytes."))
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        bearer = scheme.lower() == "bearer" and self._is_token(secret.strip())
        # A page of another site cannot send an Authorization header without our leave, and nobody gets it (no CORS).
        if scope["method"] not in SAFE_METHODS and not bearer and not _same_origin(headers, hosts[0]):
            return as_json(Problem(403, "cross-origin", "", "Requests that change something must come from this site."))
        works = scope["method"] in SAFE_METHODS and self.contract.computes(scope["path"])
        if works and not bearer and _is_embedded(headers, hosts[0]):
            detail = "A page of another site may link to this, and neither embed nor fetch it."
            return as_json(Problem(403, "cross-origin", "", detail))
        known = bearer or self._is_token(_cookie(headers))
        beyond = scope.get("state", {}).get(RESERVED_PLACE)
        brief = WITHOUT_PLACE.fullmatch(scope["path"]) and not scope["query_string"]  # `wait` has many spellings
        if beyond and not known and not brief:
            return as_json(Problem(503, "too-many-connections", "", "Too many connections are open. Try again later."))
        if self.token is None or known or self.contract.is_open(scope["path"]):
            return None
        if scope["method"] in ("GET", "HEAD") and "text/html" in headers.get("accept", ""):
            query = scope["query_string"].decode("latin-1")
            wanted = scope["path"] + (f"?{query}" if query else "")
            return RedirectResponse(f"/sign-in?next={quote(wanted, safe='')}", status_code=303)
        return as_json(
            Problem(
                401,
                "token-missing",
                "",
                "Send the server's token as `Authorization: Bearer TOKEN`.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        )

    def _is_token(self, given: str) -> bool:
        return self.token is not None and hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self.token)


def _has_body(scope: Scope) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


class CutOffError(HTTPException):
    """A body that is not waited for any longer. An HTTPException, because FastAPI takes any other for bad JSON.

    code: the problem's, where it is not the status's own.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.status, problem.detail, problem.headers)
        self.code = problem.code


def _stopping(detail: str) -> Problem:
    return Problem(503, "stopping", "", detail, headers={"Retry-After": "5"})


def _impatient(receive: Receive, seconds: float | None, stopping: Callable[[], bool]) -> Receive:
    """The same, for a body that has to be there after so many seconds however slowly it trickles, and before the
    server stops."""
    deadline = None if seconds is None else time.monotonic() + seconds
    complete = False

    async def receive_in_time() -> Message:
        nonlocal complete
        if complete:  # what comes now is that the client is gone
            return await receive()
        try:
            async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
                message = await receive()
        except TimeoutError:
            raise CutOffError(Problem(408, "request-stalled", "", "The request did not come in time.")) from None
        complete = message["type"] != "http.request" or not message.get("more_body", False)
        if not complete and stopping():
            raise CutOffError(_stopping("The server stops, nothing of this was kept. Send it again when it is back."))
        return message

    return receive_in_time


def _same_origin(headers: Headers, host: str) -> bool:
    """Whether a browser says that our own page sent this; a client that is no browser says nothing and may."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or _is_of(origin, host)


ELEMENTS = ("image/", "text/css", "audio/", "video/", "font/", "application/font")
"""How the Accept of an <img>, a stylesheet, a player or a font begins; of a <script> or fetch() it is */*."""


def _is_embedded(headers: Headers, host: str) -> bool:
    """Whether a browser says that a page of another site asks for this without a person who goes there: an image, a
    frame, a script's fetch, a prefetch. Other clients are not meant.

    Browsers send Sec-Fetch-Site to HTTPS and to this machine only (Fetch Metadata, 2: potentially trustworthy URLs).
    Over plain HTTP from elsewhere the kind of content asked for and the page that asks are all there is, and that a
    script cannot say Upgrade-Insecure-Requests, which a browser does where a person goes. A frame, or a script that
    hides its page, looks like a person or a program there.
    """
    site = headers.get("sec-fetch-site")
    if site is None:
        accept = headers.get("accept", "")
        pages = [page for name in ("origin", "referer") if (page := headers.get(name)) is not None]
        if not pages:
            return accept.startswith(ELEMENTS)
        goes_there = "text/html" in accept and headers.get("upgrade-insecure-requests") == "1"
        return not goes_there and not all(_is_of(page, host) for page in pages)
    if site in ("same-origin", "none"):
        return False
    goes_there = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    ahead = "prefetch" in headers.get("sec-purpose", "") or "prefetch" in headers.get("purpose", "")
    return ahead or not goes_there


PORTS = {"http": ":80", "https": ":443"}


def _is_of(address: str, host: str) -> bool:
    """Whether that is an address of this host. A proxy may name the port that a browser leaves out."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    port = PORTS.get(parts.scheme, "")
    return host != "" and parts.netloc.lower().removesuffix(port) == host.lower().removesuffix(port)


def _cookie(headers: Headers) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""
