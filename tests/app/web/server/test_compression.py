"""What is sent compressed is what would be sent plain, to whoever takes it, and nothing is held back for it."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from app.web.server.assets import FOLDER, asset
from app.web.server.compression import LEAST_BYTES, Compressed, takes_gzip
from tests.app.web.conftest import Serving, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("compressed")) as app_server:
        yield app_server


def raw(server: Serving, path: str, accept: str, **headers: str) -> tuple[httpx.Response, bytes]:
    """An answer and the bytes of its body as they are sent."""
    request = server.client.build_request("GET", path, headers={"Accept-Encoding": accept, **headers})
    response = server.client.send(request, stream=True)
    try:
        return response, b"".join(response.iter_raw())
    finally:
        response.close()


@pytest.mark.parametrize("path", ["/learn", "/openapi.json", "/metrics"])
def test_text_is_the_same_compressed_and_plain_and_caches_know_of_both(server: Serving, path: str) -> None:
    first, packed = raw(server, path, "gzip, deflate, br")
    second, plain = raw(server, path, "identity")
    assert first.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in second.headers
    if path != "/metrics":  # which counts what it is asked
        assert gzip.decompress(packed) == plain
    assert len(packed) < len(plain) / 2
    assert int(first.headers["content-length"]) == len(packed)
    assert int(second.headers["content-length"]) == len(plain)
    for answer in (first, second):
        assert "accept-encoding" in answer.headers["vary"].lower()
    assert first.headers.get("etag") == second.headers.get("etag")


@pytest.mark.parametrize(
    ("said", "taken"),
    [("gzip", True), ("deflate, gzip;q=1.0, *;q=0.5", True), ("GZIP", True), ("gzip; q=0.2", True),
     ("gzip;q=0", False), ("br, gzip; q=0.000", False), ("identity", False), ("", False), ("x-gzipped", False)],
)  # fmt: skip
def test_who_refuses_gzip_gets_none(said: str, taken: bool) -> None:
    assert takes_gzip(said) is taken


def test_an_answer_that_has_not_changed_is_304_whichever_way_it_was_sent(server: Serving) -> None:
    for had, has in (("gzip", "identity"), ("identity", "gzip"), ("gzip", "gzip")):
        tag = raw(server, "/openapi.json", had)[0].headers["etag"]
        again, body = raw(server, "/openapi.json", has, **{"If-None-Match": tag})
        assert (again.status_code, body) == (304, b"")
        assert again.headers["etag"] == tag
        assert "content-encoding" not in again.headers
        assert "accept-encoding" in again.headers["vary"].lower()


def test_what_fits_into_a_packet_stays_as_it_is(server: Serving) -> None:
    answer, body = raw(server, "/healthz", "gzip")
    assert len(body) < LEAST_BYTES
    assert "content-encoding" not in answer.headers


# ----------------------------------------------------------------------------------------------------------- static


def test_a_static_file_is_compressed_once_and_kept_for_ever(server: Serving) -> None:
    answer, body = raw(server, asset("app.css"), "gzip")
    assert gzip.decompress(body) == (FOLDER / "app.css").read_bytes()
    assert "immutable" in answer.headers["cache-control"]
    assert "accept-encoding" in answer.headers["vary"].lower()
    assert answer.headers["content-type"].startswith("text/css")
    plain, whole = raw(server, asset("app.css"), "identity")
    assert whole == (FOLDER / "app.css").read_bytes()
    assert plain.headers["etag"] != answer.headers["etag"], "other bytes have another tag"
    for accept, tag in (("gzip", answer.headers["etag"]), ("identity", plain.headers["etag"])):
        again, rest = raw(server, "/static/app.css", accept, **{"If-None-Match": tag})
        assert (again.status_code, rest) == (304, b"")
        assert again.headers["cache-control"] == "no-cache"


def test_a_part_of_a_static_file_is_of_the_file_as_it_is(server: Serving) -> None:
    answer, body = raw(server, "/static/app.css", "gzip", Range="bytes=10-19")
    assert answer.status_code == 206
    assert "content-encoding" not in answer.headers
    assert body == (FOLDER / "app.css").read_bytes()[10:20]


# ----------------------------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize("content_type", ["text/event-stream; charset=utf-8", "application/x-ndjson"])
def test_what_a_route_has_sent_so_far_can_be_read_so_far(content_type: str) -> None:
    """Asked of the layer itself: the bytes that it has sent on after each part that the route has sent."""
    sent: list[Message] = []
    after: list[bytes] = []

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", content_type.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number in range(3):
            await send({"type": "http.response.body", "body": b"part %d\n" % number, "more_body": True})
            after.append(b"".join(m.get("body", b"") for m in sent))
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def collect(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"accept-encoding", b"gzip")]}
    asyncio.run(Compressed(route)(scope, receive, collect))
    whole = [b"part 0\n", b"part 0\npart 1\n", b"part 0\npart 1\npart 2\n"]
    if content_type.startswith("text/event-stream"):
        assert after == whole
    else:
        assert [zlib.decompressobj(31).decompress(seen) for seen in after] == whole


def test_the_body_of_a_request_is_never_unpacked(server: Serving) -> None:
    """Compressed JSON is JSON to nobody: no small request becomes a large one. Traces have a reader of their own."""
    packed = gzip.compress(b'{"region": "' + b" " * 5_000_000 + b'"}')
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = server.client.post("/api/v1/advice", content=packed, headers=headers)
    assert answer.status_code in (400, 415, 422)


def test_no_answer_holds_the_token(tmp_path: Path) -> None:
    """What BREACH guesses at is a secret in a compressed answer that also repeats what the attacker sent."""
    token = "a-token-that-nobody-guesses"
    with serving(tmp_path, token=token) as guarded:
        guarded.client.headers["Authorization"] = f"Bearer {token}"
        for path in (
            "/",
            "/history",
            "/device",
            "/compare?a=x",
            "/checks",
            "/api",
            "/sign-in?next=/x",
            "/openapi.json",
        ):
            answer = guarded.client.get(path, headers={"Accept": "text/html"})
            assert answer.status_code == 200, path
            assert token not in answer.text, path


def test_a_file_that_was_handed_in_is_sent_with_its_length_and_not_packed_twice(server: Serving) -> None:
    body = gzip.compress(b'{"traceEvents": []}' + b" " * 1000) + bytes(2 * LEAST_BYTES)
    trace_id = server.client.post("/api/v1/traces", content=body).json()["id"]
    answer, sent = raw(server, f"/traces/{trace_id}/perfetto/file", "gzip")
    assert answer.status_code == 200
    assert "content-encoding" not in answer.headers
    assert int(answer.headers["content-length"]) == len(body)
    assert sent == body
