"""HEAD is GET without its body: the same status and headers on every route, and the connection goes on."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from tests.app.check.hostile_trace import EXAMPLE
from tests.app.web.conftest import Serving, serving
from tests.app.web.routes import ACCESS

VARIES = {"date", "ratelimit"}


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, dict[str, str]]]:
    """A server with a trace that was read, and what stands for the parameters of routes."""
    with serving(tmp_path_factory.mktemp("head")) as web:
        trace = web.client.post("/api/v1/traces?wait=120", content=EXAMPLE.read_bytes(), timeout=150).json()
        region = next(region["id"] for region in trace["regions"] if region.get("text"))
        yield web, {"trace_id": trace["id"], "region_id": region, "job_id": trace["id"]}


SLOW = re.compile(r"/learn.*|.*/machine.*|.*/triton.*|.*kit.*")
"""Compiling takes seconds; these are routed and answered as all others are."""


def addresses(ids: dict[str, str]) -> list[str]:
    gets = [path for method, path in ACCESS if method == "GET" and not SLOW.fullmatch(path)]
    found = [re.sub(r"\{(\w+)\}", lambda m: ids.get(m[1], "a" * 26), path) for path in gets]
    return sorted([*found, "/static/app.css", "/static/nothing", "/region?text=x%3A+f32%5B8%5D%0Areturn+exp%28x%29"])


def test_every_get_has_its_head(ids: tuple[Serving, dict[str, str]]) -> None:
    web, known = ids
    checked = addresses(known)
    assert len(checked) > 60
    statuses = set()
    for path in checked:
        if path.endswith("/events"):
            continue
        get, head = web.client.get(path), web.client.head(path)
        statuses.add(get.status_code)
        assert (head.status_code, head.content) == (get.status_code, b""), path
        told, wanted = ({k: v for k, v in r.headers.items() if k not in VARIES} for r in (head, get))
        if path in ("/metrics", "/device", "/readyz", "/device/state", "/device/state.json"):  # another one each time
            told, wanted = ({k: v for k, v in h.items() if k not in ("content-length", "etag")} for h in (told, wanted))
        assert told == wanted, path
    assert {200, 303, 404} <= statuses


def test_of_a_stream_there_are_headers_at_once_though_its_job_goes_on(web: Serving) -> None:
    web.child("hang")
    try:
        job = web.client.post("/api/v1/traces", content=b"another").json()["job"]
        with web.client.stream("GET", f"/api/v1/jobs/{job}/events") as stream:
            wanted = stream.headers["content-type"]
        host, port = web.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            for _ in range(2):  # the second shows that the connection goes on, and that no body came
                connection.sendall(f"HEAD /api/v1/jobs/{job}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                told = b""
                while not told.endswith(b"\r\n\r\n"):
                    told += connection.recv(65536)
                assert told.startswith(b"HTTP/1.1 200"), told
                assert f"content-type: {wanted}".encode() in told.lower()
        assert web.client.post(f"/api/v1/jobs/{job}/cancel").status_code == 200
        # Ended, not only told to end: the list of traces changes with it, under whichever test comes next.
        assert web.client.get(f"/api/v1/jobs/{job}?wait=30").json()["state"] == "cancelled"
    finally:
        web.child("trace")


def test_tags_hold_for_head_and_what_has_no_get_has_no_head(web: Serving) -> None:
    tag = web.client.head("/api/v1/traces").headers["etag"]
    assert web.client.head("/api/v1/traces", headers={"If-None-Match": tag}).status_code == 304
    assert web.client.get("/api/v1/traces", headers={"If-None-Match": tag}).status_code == 304
    for path in ("/api/v1/advice", "/validations", "/nowhere"):
        answer = web.client.head(path)
        assert (answer.status_code, answer.content) == (web.client.get(path).status_code, b"")
    assert web.client.put("/api/v1/traces").headers["allow"] == "GET, HEAD, POST"
    assert web.client.get("/api/v1/advice").headers["allow"] == "POST"
