"""Whom the server answers to, who may ask, and what every response carries."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Mount

from app.web.server.security import CSP
from tests.app.web.conftest import Serving, serving

TOKEN = "correct-horse-battery-staple"

Headers = dict[str, str]


def raw(web: Serving, request: bytes) -> bytes:
    """Bytes as a hostile client sends them."""
    host, port = web.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        return connection.recv(65536)


def paths(web: Serving) -> list[str]:
    """A path for every route and mount of the application."""
    collected = []
    for route in _routes(web.app.routes):
        path = "/static/missing" if isinstance(route, Mount) else route.path
        collected.append(path.replace("{", "").replace("}", ""))
    return sorted(set(collected))


def _routes(routes: Any) -> Iterator[Any]:
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from _routes(inner.routes)
        else:
            yield route


def check_headers(response: httpx.Response) -> None:
    assert response.headers["content-security-policy"] == CSP
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "same-origin"
    assert response.headers["cross-origin-opener-policy"] == "same-origin"
    assert "cache-control" in response.headers
    assert "access-control-allow-origin" not in response.headers
    assert "server" not in response.headers


def test_csp_allows_no_inline_script_and_no_other_host() -> None:
    rules = dict(part.strip().split(" ", 1) for part in CSP.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    assert not any("http" in value or "*" in value or "unsafe-eval" in value for value in rules.values())


def test_headers_on_every_route_and_error(web: Serving) -> None:
    known = paths(web)
    assert {"/api/v1/traces", "/healthz", "/metrics", "/openapi.json", "/static/missing", "/"} <= set(known)
    for path in known:
        for method in ("GET", "POST", "DELETE", "PUT"):
            response = web.client.request(method, path)
            check_headers(response)
            assert response.status_code < 500 or response.status_code == 503, (method, path, response.text)
    check_headers(web.client.get("/nowhere"))


def test_headers_on_a_fault_and_no_traceback(web: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(web.state.store, "job", broken)
    response = web.client.get("/api/v1/jobs/" + "a" * 26)
    assert response.status_code == 500
    assert response.json()["code"] == "internal"
    assert "secret" not in response.text
    check_headers(response)


@pytest.mark.parametrize("path", ["/", "/healthz", "/api/v1/traces", "/static/app.css", "/openapi.json"])
@pytest.mark.parametrize(
    "host", ["evil.test", "127.0.0.1.evil.test", "localhost@evil.test", "[::1", "", "127.0.0.1/?x=", "0.0.0.0"]
)
def test_foreign_hosts_are_turned_away_everywhere(web: Serving, path: str, host: str) -> None:
    answer = raw(web, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400"), answer[:200]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:1234", "[::1]:80", "[::1]"])
def test_own_hosts_are_answered(web: Serving, host: str) -> None:
    assert web.client.get("/healthz", headers={"Host": host}).status_code == 200


def test_two_hosts_and_none_are_turned_away(web: Serving) -> None:
    for hosts in (b"Host: localhost\r\nHost: evil.test\r\n", b""):
        assert raw(web, b"GET /healthz HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_forwarded_host_is_ignored(web: Serving) -> None:
    response = web.client.get("/healthz", headers={"Host": "evil.test", "X-Forwarded-Host": "localhost"})
    assert response.status_code == 400


ORIGINS: list[tuple[Headers, bool]] = [
    ({}, True),
    ({"Origin": "SELF"}, True),
    ({"Origin": "null"}, False),
    ({"Origin": "http://evil.test"}, False),
    ({"Origin": "http://127.0.0.1:1"}, False),
    ({"Origin": "http://127.0.0.1"}, False),
    ({"Origin": ""}, False),
    ({"Sec-Fetch-Site": "same-origin", "Origin": "SELF"}, True),
    ({"Sec-Fetch-Site": "none"}, True),
    ({"Sec-Fetch-Site": "cross-site"}, False),
    ({"Sec-Fetch-Site": "same-site", "Origin": "SELF"}, False),
    ({"Sec-Fetch-Site": "cross-site", "Origin": "SELF"}, False),
]


@pytest.mark.parametrize(("headers", "allowed"), ORIGINS)
@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT", "PATCH"])
def test_only_our_own_pages_may_change_things(web: Serving, method: str, headers: Headers, allowed: bool) -> None:
    sent = {k: web.url if v == "SELF" else v for k, v in headers.items()}
    response = web.client.request(method, "/api/v1/jobs/none/cancel", headers=sent)
    assert (response.status_code != 403) == allowed
    if not allowed:
        assert response.json()["code"] == "cross-origin"


@pytest.mark.parametrize(("headers", "_allowed"), ORIGINS)
def test_reading_needs_no_origin(web: Serving, headers: Headers, _allowed: bool) -> None:
    assert web.client.get("/healthz", headers=headers).status_code == 200


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("locked"), "trace", token=TOKEN) as server:
        yield server


OPEN = {"/healthz", "/readyz", "/sign-in", "/static/missing"}


def test_with_a_token_every_route_but_the_open_ones_asks_for_it(locked: Serving) -> None:
    for path in paths(locked):
        for method in ("GET", "POST", "DELETE"):
            refused = locked.client.request(method, path).status_code == 401
            assert refused == (path not in OPEN), (method, path)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        ("Bearer", 401),
        (f"bearer {TOKEN}", 200),
        ("", 401),
        (TOKEN, 401),
        (f"Basic {TOKEN}", 401),
    ],
)
def test_bearer(locked: Serving, header: str, status: int) -> None:
    response = locked.client.get("/api/v1/traces", headers={"Authorization": header})
    assert response.status_code == status
    if status == 401:
        assert response.json()["code"] == "token-missing"
        assert response.headers["www-authenticate"] == "Bearer"


def test_a_bearer_needs_no_origin_but_a_cookie_does(locked: Serving) -> None:
    evil = {"Origin": "http://evil.test"}
    path = "/api/v1/jobs/none/cancel"
    assert locked.client.post(path, headers=evil | {"Authorization": f"Bearer {TOKEN}"}).status_code == 404
    cookie = {"Cookie": f"tritonworthy_token={TOKEN}"}
    assert locked.client.post(path, headers=evil | cookie).status_code == 403
    assert locked.client.post(path, headers={"Origin": locked.url} | cookie).status_code == 404


def test_signing_in_by_the_form(locked: Serving) -> None:
    page = locked.client.get("/traces/x?y=1", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (303, "/sign-in?next=%2Ftraces%2Fx%3Fy%3D1")
    wrong = locked.client.post("/sign-in", data={"token": "wrong"})
    assert wrong.headers["location"].startswith("/sign-in")
    assert "set-cookie" not in wrong.headers
    right = locked.client.post("/sign-in", data={"token": TOKEN, "next": "/history"})
    assert right.headers["location"] == "/history"
    cookie = right.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    locked.client.cookies.clear()


@pytest.mark.parametrize("target", ["//evil.test", "/\\evil.test", "http://evil.test", "/a\nb", "", "javascript:1"])
def test_signing_in_never_leads_away(locked: Serving, target: str) -> None:
    response = locked.client.post("/sign-in", data={"token": TOKEN, "next": target})
    locked.client.cookies.clear()
    assert response.headers["location"] == "/"


def test_no_path_of_ours_reaches_a_file_outside_static(web: Serving, tmp_path: Path) -> None:
    for path in (b"/static/../pyproject.toml", b"/static/%2e%2e/pyproject.toml", b"/static/..%2fpyproject.toml"):
        answer = raw(web, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 404"), answer[:100]


def test_static_files_are_cached_by_hash(web: Serving) -> None:
    from app.web.server.assets import asset

    by_hash = web.client.get(asset("favicon.svg"))
    assert by_hash.status_code == 200
    assert "immutable" in by_hash.headers["cache-control"]
    plain = web.client.get("/static/favicon.svg")
    assert plain.headers["cache-control"] == "no-cache"
    again = web.client.get("/static/favicon.svg", headers={"If-None-Match": plain.headers["etag"]})
    assert again.status_code == 304
