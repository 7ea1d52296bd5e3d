"""Rows "CSRF on localhost", "DNS rebinding" and "no auth when exposed": who may ask, and under which name.

tests/app/web/server/test_security.py has the details of each; here every route of the application is held to the row.
"""

from __future__ import annotations

import ast
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from app.main import create_app
from app.settings import Settings
from app.web.server import security
from app.web.server.access import Access, declare
from app.web.server.contract import AccessError, audit
from tests.app.web.conftest import Serving, serving
from tests.app.web.routes import ACCESS, CONTRACT
from tests.attacks.process import command
from tests.conftest import ROOT
from tests.processes import received

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("open"), "trace") as server:
        yield server


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("locked"), "trace", token=TOKEN) as server:
        yield server


def addresses(*kinds: Access) -> list[tuple[str, str]]:
    """(method, address) of every route of these kinds; static files by one that is there."""
    found = [(m, p) for (m, p), kind in ACCESS.items() if kind in kinds]
    return sorted(
        ("GET", "/static/app.css") if m == "MOUNT" else (m, re.sub(r"\{\w+\}", "a" * 26, p)) for m, p in found
    )


def answer(web: Serving, request: str) -> bytes:
    """The response to bytes as they are."""
    host, port = web.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request.encode())
        return received(connection)


# --------------------------------------------------------------------------------------------------------------- CSRF

ORIGINS = {
    "absent": None,
    "same": "SELF",
    "other": "http://evil.test",
    "null": "null",
    "other port": "http://127.0.0.1:1",
}
UNSAFE = ("POST", "DELETE", "PUT", "PATCH", "TRACE", "CONNECT", "SECRET")


@pytest.mark.parametrize("method", UNSAFE)
@pytest.mark.parametrize("origin", ORIGINS)
def test_csrf_matrix_of_origin_and_method(web: Serving, origin: str, method: str) -> None:
    """A page of another site changes nothing here, by whatever method; programs and our own pages may."""
    sent = {"Origin": web.url if ORIGINS[origin] == "SELF" else str(ORIGINS[origin])} if ORIGINS[origin] else {}
    lines = "".join(f"{k}: {v}\r\n" for k, v in sent.items())
    host = web.url.removeprefix("http://")
    for path in ("/api/v1/jobs/none/cancel", "/traces", "/static/app.css", "/nowhere"):
        told = answer(
            web, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{lines}Content-Length: 0\r\nConnection: close\r\n\r\n"
        )
        assert (b" 403 " in told[:20]) == (origin not in ("absent", "same")), (origin, method, path, told[:200])


def test_csrf_every_route_that_changes_something_refuses_another_site(web: Serving) -> None:
    before = len(web.files())
    for method, path in addresses(Access.CHANGE, Access.WORK, Access.UPLOAD):
        for headers in ({"Origin": "http://evil.test"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
            response = web.client.request(method, path, headers=headers, content=b"{}")
            assert (response.status_code, response.json()["code"]) == (403, "cross-origin"), (method, path)
    assert len(web.files()) == before


def test_csrf_nothing_changes_by_get() -> None:
    by_get = {kind for (method, _), kind in ACCESS.items() if method == "GET"}
    assert by_get == {Access.OPEN, Access.READ, Access.COMPUTE}


# ------------------------------------------------------------------------------------------------------- DNS rebinding


@pytest.mark.parametrize("more", ["", "X-Forwarded-Host: localhost\r\n", "Forwarded: host=localhost\r\n"])
def test_dns_rebinding_every_route_turns_a_foreign_host_away(web: Serving, more: str) -> None:
    everything = addresses(*Access)
    assert ("GET", "/static/app.css") in everything
    assert any(path.endswith("/events") for _, path in everything)
    for method, path in everything:
        told = answer(
            web, f"{method} {path} HTTP/1.1\r\nHost: evil.test\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n"
        )
        assert told.startswith(b"HTTP/1.1 400"), (method, path, told[:100])
        assert b"bad-host" in told


@pytest.mark.parametrize("host", ["a/?x=", "127.0.0.1@evil.test", "evil.test:80", "localhost.evil.test", "0", "[::]"])
def test_dns_rebinding_a_host_that_is_none_is_400(web: Serving, host: str) -> None:
    assert answer(web, f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_dns_rebinding_a_whole_address_in_the_request_line_is_no_way_round(web: Serving) -> None:
    told = answer(web, "GET http://localhost/healthz HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 400")


def test_dns_rebinding_no_address_is_built_from_the_host(web: Serving) -> None:
    """Whatever name of ours is used, links and redirects are paths. A command to copy may have it, as text."""
    for path in ("/", "/history", "/api", "/openapi.json", "/checks"):
        response = web.client.get(path, headers={"Host": "localhost:4242", "Accept": "text/html"})
        assert response.status_code == 200
        assert not re.search(r"""(href|src|action|content|hx-\w+)=["'][^"']*localhost:4242""", response.text), path
        assert "localhost:4242" not in str(response.headers)
    moved = web.client.get("/widget?x=1", headers={"Host": "localhost:4242"})
    assert (moved.status_code, moved.headers["location"]) == (303, "/?x=1#widget")


# ------------------------------------------------------------------------------------------------- no auth when exposed


def test_no_auth_when_exposed_the_server_does_not_start_without_a_token(tmp_path: Path) -> None:
    """tests/app/test_settings.py has the other addresses."""
    line, clean = command("--host", "0.0.0.0", "--port", "0", "--data-dir", str(tmp_path / "data"))
    done = subprocess.run(line, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "TRITONWORTHY_TOKEN" in done.stderr
    assert not (tmp_path / "data").exists()


def test_no_auth_when_exposed_every_route_but_the_open_ones_asks_for_the_token(locked: Serving) -> None:
    for method, path in addresses(Access.READ, Access.COMPUTE, Access.CHANGE, Access.WORK, Access.UPLOAD):
        for headers in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Cookie": f"{security.COOKIE}=wrong"}):
            response = locked.client.request(method, path, headers=headers)
            assert (response.status_code, response.json()["code"]) == (401, "token-missing"), (method, path)
    for method, path in addresses(Access.OPEN):
        assert locked.client.request(method, path).status_code not in (401, 403), (method, path)


def test_no_auth_when_exposed_the_open_routes_tell_nothing_of_users(locked: Serving) -> None:
    locked.client.post("/api/v1/traces?name=secret-model", content=b"{}", headers={"Authorization": f"Bearer {TOKEN}"})
    for method, path in addresses(Access.OPEN):
        assert "secret-model" not in locked.client.request(method, path).text


def test_no_auth_when_exposed_the_start_fails_where_a_route_declares_no_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.web.server import sign_in

    router = APIRouter()

    @router.get("/secret")
    def secret() -> str:
        return "secret"

    monkeypatch.setattr(sign_in, "router", router)
    with pytest.raises(AccessError, match="GET /secret declares no access"):
        create_app(Settings(data_dir=tmp_path, oracle="off"))


def test_no_auth_when_exposed_the_audit_knows_every_route_and_no_other(web: Serving) -> None:
    there = set(audit(web.app.routes).access)
    assert there == set(web.state.contract.access) == set(ACCESS)
    assert len(there) > 100
    assert ("MOUNT", "/static") in there and ("GET", "/openapi.json") in there


@pytest.mark.parametrize(
    ("method", "path", "kind", "wrong"),
    [
        ("GET", "/x", Access.CHANGE, "cannot be change"),
        ("POST", "/x", Access.READ, "cannot be read"),
        ("GET", "/x/{y}", Access.OPEN, "have no parameters"),
    ],
)
def test_no_auth_when_exposed_the_audit_refuses(method: str, path: str, kind: Access, wrong: str) -> None:
    application = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    application.add_api_route(path, declare(kind)(lambda: None), methods=[method])
    with pytest.raises(AccessError, match=wrong):
        audit(application.routes)


def test_no_auth_when_exposed_the_audit_refuses_a_route_that_hides_another() -> None:
    application = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    for kind in (Access.OPEN, Access.COMPUTE):
        application.add_api_route("/x", declare(kind)(lambda: None), methods=["GET"])
    with pytest.raises(AccessError, match="GET /x is routed twice"):
        audit(application.routes)


def test_no_auth_when_exposed_secrets_are_compared_in_constant_time() -> None:
    """No `==` on a token anywhere: each comparison is hmac.compare_digest."""
    for name in ("security.py", "sign_in.py"):
        tree = ast.parse((ROOT / "app" / "web" / "server" / name).read_text())
        calls = [n.func.attr for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
        assert "compare_digest" in calls, name
        for compare in (n for n in ast.walk(tree) if isinstance(n, ast.Compare)):
            names = {n.id for n in ast.walk(compare) if isinstance(n, ast.Name)}
            names |= {n.attr for n in ast.walk(compare) if isinstance(n, ast.Attribute)}
            simple = all(isinstance(op, ast.Is | ast.IsNot) for op in compare.ops)
            assert simple or not names & {"token", "secret", "given", "bearer"}, f"{name}:{compare.lineno}"


# ------------------------------------------------------------------------------------------------------------- headers


def check_headers(response: httpx.Response) -> None:
    for name, value in security.HEADERS.items():
        assert response.headers.get_list(name) == [value], (response.url, name)
    assert "cache-control" in response.headers
    assert "access-control-allow-origin" not in response.headers
    assert "server" not in response.headers and "x-powered-by" not in response.headers


def test_headers_are_on_every_response_also_of_errors_static_files_and_streams(web: Serving, locked: Serving) -> None:
    for method, path in addresses(*Access):
        check_headers(locked.client.request(method, path))
    job = web.client.post("/api/v1/traces", content=b"{}").json()["id"]
    with web.client.stream("GET", f"/api/v1/jobs/{job}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        check_headers(stream)
    for status, response in {
        400: web.client.get("/", headers={"Host": "evil.test"}),
        403: web.client.post("/", headers={"Origin": "null"}),
        404: web.client.get("/nowhere"),
        405: web.client.put("/healthz"),
        413: web.client.post("/api/v1/advice", content=b" " * (security.BODY_BYTES + 1)),
        415: web.client.post("/api/v1/advice", content=b"x"),
        422: web.client.post("/api/v1/advice", json={}),
        401: locked.client.get("/"),
    }.items():
        assert response.status_code == status
        check_headers(response)


@pytest.mark.parametrize("request_line", ["GET / HTTP/99", "\x00\x01\x02", "GET", "GET / HTTP/1.1\r\nno colon"])
def test_headers_are_on_the_refusal_of_what_is_no_http(web: Serving, request_line: str) -> None:
    told = answer(web, f"{request_line}\r\n\r\n").lower()
    assert told.startswith(b"http/1.1 400")
    for name, value in security.HEADERS.items():
        assert f"{name}: {value}".lower().encode() in told
    assert b"connection: close" in told


def test_headers_of_static_files_reveal_no_place(web: Serving) -> None:
    for path in ("/static/", "/static/vendor", "/static/nothing.js", "/static/%2e%2e/pyproject.toml"):
        response = web.client.get(path)
        assert response.status_code == 404
        assert str(ROOT) not in response.text


def test_no_lock_is_needed_to_sign_in_many_at_once(locked: Serving) -> None:
    """Wrong tokens from many sides do not keep the right one out."""
    collected: list[int] = []

    def wrong() -> None:
        response = httpx.post(f"{locked.url}/sign-in", data={"token": "x" * 30}, trust_env=False, timeout=30)
        collected.append(response.status_code)

    threads = [threading.Thread(target=wrong) for _ in range(20)]
    for thread in threads:
        thread.start()
    right = locked.client.post("/sign-in", data={"token": TOKEN})
    for thread in threads:
        thread.join()
    locked.client.cookies.clear()
    assert "set-cookie" in right.headers
    assert collected == [303] * 20


def test_no_auth_when_exposed_these_paths_are_open_and_no_other() -> None:
    assert sorted(CONTRACT.open_paths) == ["/healthz", "/readyz", "/sign-in"]


# ------------------------------------------------------------------------------------------------- work by another site

REGION_QUERY = "/region?text=x%3A+f32%5B64%2C128%5D%0Areturn+exp%28x%29"
FETCHES: dict[str, tuple[dict[str, str], bool]] = {
    "no browser": ({}, True),
    "our page": ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, True),
    "typed address": ({"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, True),
    "link": ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, True),
    "link nearby": ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, True),
    "image": ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, False),
    "image nearby": ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, False),
    "script": ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, False),
    "fetch": ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, False),
    "frame": ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, False),
    "embed": ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "embed"}, False),
    "object": ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "object"}, False),
    "prerender": (
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document",
         "Sec-Purpose": "prefetch;prerender"}, False,
    ),
    "prefetch": (
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document",
         "Purpose": "prefetch"}, False,
    ),
    "only half told": ({"Sec-Fetch-Site": "cross-site"}, False),
    # Over plain HTTP from elsewhere browsers send none of these three.
    "plain image": ({"Accept": "image/avif,image/webp,*/*;q=0.8", "Referer": "http://evil.test/"}, False),
    "plain image, page hidden": ({"Accept": "image/avif,image/webp,*/*;q=0.8"}, False),
    "plain stylesheet": ({"Accept": "text/css,*/*;q=0.1"}, False),
    "plain script": ({"Accept": "*/*", "Referer": "http://evil.test/"}, False),
    "plain fetch": ({"Accept": "*/*", "Origin": "http://evil.test"}, False),
    "plain fetch that takes pages": ({"Accept": "text/html", "Referer": "http://evil.test/"}, False),
    "plain link": (
        {"Accept": "text/html,*/*;q=0.8", "Referer": "http://evil.test/", "Upgrade-Insecure-Requests": "1"}, True,
    ),
    "plain typed address": ({"Accept": "text/html,*/*;q=0.8"}, True),
    "plain, our page": ({"Accept": "*/*", "Referer": "SELF/region?text=x"}, True),
}  # fmt: skip


@pytest.mark.parametrize("name", FETCHES)
def test_work_by_another_site_only_a_person_who_goes_there_may_cause(
    web: Serving, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers, allowed = FETCHES[name]
    headers = {key: value.replace("SELF", web.url) for key, value in headers.items()}
    advised: list[str] = []
    advise = web.state.service.advise_region
    monkeypatch.setattr(
        web.state.service, "advise_region", lambda text, **more: (advised.append(text), advise(text, **more))[1]
    )
    for method in ("GET", "HEAD"):
        response = web.client.request(method, REGION_QUERY, headers=headers)
        assert response.status_code == (200 if allowed else 403)
    assert bool(advised) == allowed
    if not allowed:
        assert web.client.get(REGION_QUERY, headers=headers).json()["code"] == "cross-origin"
    assert web.client.get("/api/v1/traces", headers=headers).status_code == 200, "reading costs nothing"


def test_work_by_another_site_is_refused_on_every_route_that_works(web: Serving) -> None:
    image = FETCHES["image"][0]
    for method, path in addresses(Access.COMPUTE):
        assert method == "GET"
        response = web.client.get(path, headers=image)
        assert (response.status_code, response.json()["code"]) == (403, "cross-origin"), path
    for _, path in addresses(Access.OPEN):
        assert web.client.get(path, headers=image).status_code in (200, 404), path


def test_work_by_another_site_with_the_token_is_a_programs_own(locked: Serving) -> None:
    headers = {**FETCHES["fetch"][0], "Authorization": f"Bearer {TOKEN}"}
    assert locked.client.get(REGION_QUERY, headers=headers).status_code == 200
