"""Rows "gzip bomb", "body flood", "many parts", "slow body" and "JSON nesting": what a body may cost."""

from __future__ import annotations

import gzip
import io
import socket
import tarfile
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.requests import uploads
from app.web.server.connection_limits import RESERVED
from tests.app.web.conftest import serving
from tests.attacks.process import Process, running
from tests.processes import received, wait_for
from tests.profiler.trace.read.formats.test_unzstd import zstd
from tests.profiler.trace.read.test_members import zipped

MIB = 1024 * 1024
UPLOAD = 10 * MIB
SPACES = 100 * MIB
PATIENCE_S = 1.5

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A real server that takes uploads of 10 MiB, and has little patience."""
    settings = {"max_upload_bytes": UPLOAD, "upload_idle_timeout_s": PATIENCE_S, "request_timeout_s": PATIENCE_S}
    with running(tmp_path_factory.mktemp("bodies"), **settings) as process:
        deadline = time.monotonic() + 120
        while not process.client.get("/readyz").json().get("advice_warm"):  # its memory grows until then
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.client.post("/api/v1/traces", content=b"x" * MIB)
        yield process


def spaces(count: int) -> bytes:
    """Spaces as one gzip member, made without having them all."""
    packer = zlib.compressobj(9, wbits=31)
    return b"".join([packer.compress(b" " * MIB) for _ in range(count // MIB)]) + packer.flush()


def bombs() -> dict[str, bytes]:
    """100 MiB of spaces in about 100 KiB, packed in each way that is read."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as archive:
        head = tarfile.TarInfo("trace.json")
        head.size = SPACES
        archive.addfile(head, io.BytesIO(bytes(SPACES)))
    begun = b'{"traceEvents": [' + bytes(SPACES)
    return {
        "gzip": spaces(SPACES),
        "members": spaces(MIB) * 100,
        "tar": tar.getvalue(),
        "zstd": zstd.compress(begun),
        "zip": zipped({"trace.json": begun}),
        "database": gzip.compress(b"SQLite format 3\0" + bytes(SPACES)),
    }


@pytest.mark.parametrize(("kind", "bomb"), bombs().items(), ids=lambda v: v if isinstance(v, str) else "")
def test_gzip_bomb_is_413_in_50_mib_and_leaves_no_file(server: Process, kind: str, bomb: bytes) -> None:
    assert len(bomb) < 250_000
    before = server.uploads()
    server.forget_peak()
    started = server.peak_bytes()
    for body in ({"content": bomb}, {"files": {"file": ("trace.json.gz", bomb)}}):
        response = server.client.post("/api/v1/traces", **body)  # type: ignore[arg-type]
        assert (response.status_code, response.json()["code"]) == (413, "trace-too-large"), kind
    assert server.peak_bytes() - started < 50 * MIB
    assert server.uploads() == before


def test_gzip_bomb_that_is_too_large_to_look_into_is_413_by_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "LOOK_BYTES", 0)
    with serving(tmp_path, None) as web:
        begun = gzip.compress(b'{"traceEvents": [')
        response = web.client.post("/api/v1/traces?wait=60", content=begun + spaces(SPACES))
        assert (response.status_code, response.json()["code"]) == (413, "trace-too-large")
        assert web.files() == []
        assert web.client.get(f"/api/v1/traces/{response.json()['trace']}").json()["status"] == "failed"


def test_gzip_that_is_dense_and_small_is_no_bomb(server: Process) -> None:
    """Ten thousand equal events compress 200:1 and more: the ratio alone condemns nobody."""
    event = b'{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":1},'
    body = gzip.compress(b'{"traceEvents":[' + event * 200_000 + b"{}]}", 9)
    assert len(body) * 150 < len(event) * 200_000
    assert server.client.post("/api/v1/traces", content=body).status_code == 201


def test_body_flood_over_the_limit_is_413(server: Process) -> None:
    """Announced, chunked without a length, and as a form; on a route for uploads and on one for JSON."""
    before = server.uploads()
    content = b" " * (UPLOAD + MIB)

    def chunks() -> Iterator[bytes]:
        for at in range(0, len(content), 64 * 1024):
            yield content[at : at + 64 * 1024]

    server.forget_peak()
    started = server.peak_bytes()
    for body in ({"content": content}, {"content": chunks()}, {"files": {"file": ("x", content)}}):
        response = server.client.post("/api/v1/traces", **body)  # type: ignore[arg-type]
        assert response.status_code == 413, response.text
    for path in ("/api/v1/advice", "/api/v1/validations", "/api/v1/checks", "/regions", "/sign-in"):
        kind = "application/json" if path.startswith("/api") else "application/x-www-form-urlencoded"
        for data in (content, chunks()):
            response = server.client.post(path, content=data, headers={"Content-Type": kind})
            assert response.status_code == 413, (path, response.text)
    assert server.peak_bytes() - started < 50 * MIB
    assert server.uploads() == before


@pytest.mark.parametrize("named", ["file", "other", "group"])
def test_many_parts_are_refused(server: Process, named: str) -> None:
    before = server.uploads()
    what = f'form-data; name="{named}"' + ('; filename="x"' if named == "file" else "")
    body = b"".join(f"--b\r\nContent-Disposition: {what}\r\n\r\n{n}\r\n".encode() for n in range(2000)) + b"--b--\r\n"
    for path in ("/api/v1/traces", "/api/v1/checks", "/traces", "/sign-in", "/regions"):
        response = server.client.post(path, content=body, headers={"Content-Type": "multipart/form-data; boundary=b"})
        assert response.status_code in (400, 413, 422), (path, response.status_code)
    assert server.uploads() == before


def test_headers_without_end_are_refused(server: Process) -> None:
    """Of a part, and of a request."""
    body = b"--b\r\nContent-Disposition: form-data; x=" + b"a" * (5 * MIB)
    server.forget_peak()
    started = server.peak_bytes()
    response = server.client.post(
        "/api/v1/traces", content=body, headers={"Content-Type": "multipart/form-data; boundary=b"}
    )
    assert (response.status_code, response.json()["code"]) == (400, "bad-multipart")
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        try:
            for _ in range(64):
                connection.sendall(b"a" * 65536)
        except OSError:  # it closed the door meanwhile
            pass
        else:
            assert connection.recv(100).startswith(b"HTTP/1.1 4")
    assert server.peak_bytes() - started < 50 * MIB


def drip(connection: socket.socket, stop: threading.Event) -> None:
    """A byte now and then, for ever."""
    try:
        while not stop.wait(0.1):
            connection.sendall(b"x")
    except OSError:
        return


HEADS = {
    "head": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    "json": b"POST /api/v1/advice HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n",
    "form": b"POST /regions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: 1000\r\n\r\n",
    "upload": b"POST /api/v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n",
    "check": b"POST /api/v1/checks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100000\r\n\r\n",
}


@pytest.mark.parametrize("kind", HEADS)
def test_slow_body_is_408_however_it_trickles(server: Process, kind: str) -> None:
    before = server.uploads()
    stop = threading.Event()
    with server.connect() as connection:
        connection.sendall(HEADS[kind])
        thread = threading.Thread(target=drip, args=(connection, stop))
        thread.start()
        started = time.monotonic()
        try:
            assert connection.recv(65536).startswith(b"HTTP/1.1 408")
        finally:
            stop.set()
            thread.join()
    assert PATIENCE_S * 0.8 < time.monotonic() - started < PATIENCE_S * 5
    assert server.uploads() == before


def test_slow_body_slowloris_does_not_block_healthz_and_is_let_go(server: Process) -> None:
    """200 connections that never finish a request: /healthz answers at once, and they are closed in time."""
    with ExitStack() as held:
        slow = [held.enter_context(server.connect()) for _ in range(200)]
        for number, connection in enumerate(slow):
            connection.sendall([*HEADS.values(), b"", b"GE"][number % (len(HEADS) + 2)])
        times = []
        for _ in range(10):
            started = time.monotonic()
            assert server.client.get("/healthz").status_code == 200
            times.append(time.monotonic() - started)
        assert sorted(times)[5] < 0.1, times
        deadline = time.monotonic() + 10 * PATIENCE_S
        for connection in slow:
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            told = received(connection)
            assert told == b"" or told.startswith(b"HTTP/1.1 408"), told[:100]


def test_slow_reader_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks for much and reads nothing holds its connection only so long."""
    from app.web.server.http_protocol import Connection

    monkeypatch.setattr(Connection, "write_s", 0.5)
    with serving(tmp_path, "trace") as web:
        host, port = web.url.removeprefix("http://").split(":")
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((host, int(port)))
            ask = b"GET /static/vendor/plotly-cartesian.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
            connection.sendall(ask * 20)
            deadline = time.monotonic() + 120
            while web.server.server_state.connections:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_too_many_connections_are_told_so(tmp_path: Path) -> None:
    """With requests, also in the places that are kept for some of them, which only the token's owner can hold;
    tests/attacks/test_connections.py has those that ask nothing."""
    with serving(tmp_path, "hang", max_connections=3, token=TOKEN) as web, ExitStack() as held:
        host, port = web.url.removeprefix("http://").split(":")
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        job = web.client.post("/api/v1/traces", content=b"x", headers=bearer).json()["job"]

        def ask(query: str, more: str = "") -> socket.socket:
            connection = held.enter_context(socket.create_connection((host, int(port)), timeout=30))
            request = f"GET /api/v1/jobs/{job}{query} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"
            connection.sendall(request.encode())
            return connection

        own = f"Authorization: Bearer {TOKEN}\r\n"
        for _ in range(3):
            upload = "POST /api/v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
            held.enter_context(socket.create_connection((host, int(port)))).sendall(f"{upload}{own}\r\n".encode())
        wait_for(lambda: len(web.files()) == 4)
        for query in ("?wait=100", "?w%61it=100", "?wai%74=1"):
            refused = received(ask(query))
            assert refused.startswith(b"HTTP/1.1 503") and b"too-many-connections" in refused, query
        assert received(ask("")).startswith(b"HTTP/1.1 401")
        admission = web.server.config.http_protocol_class.admission
        wait_for(lambda: len(admission.places) == 3)
        for _ in range(RESERVED):
            ask("?wait=100", own)
        wait_for(lambda: len(admission.places) == 3 + RESERVED and not admission.idle)
        with socket.create_connection((host, int(port)), timeout=30) as one_more:
            answer = received(one_more)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"content-security-policy" in answer.lower()
        assert b"too-many-connections" in answer


EVIL_JSON = {
    "nesting": b'{"region":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "huge int": b'{"region": "x", "share_of_step": ' + b"9" * 5000 + b"}",
    "60,000 digits": b'{"region": "x", "calls_per_step": -' + b"7" * 60_000 + b"}",
    "60,000 digits unknown": b'{"region": "x", "nothing": [' + b"7" * 60_000 + b"]}",
    "60,000 digits of a check": b'{"regions": ["x"], "check": {"budget_s": ' + b"7" * 60_000 + b"}}",
    "60,000 digits of an assertion": b'{"regions": ["x"], "assertions": {"compile": [' + b"7" * 60_000 + b"]}}",
    "60,000 digits as a text": b'{"region": "x", "step_time_us": "' + b"7" * 60_000 + b'"}',
    "60,000 digits alone": b"7" * 60_000,
    "huge exponent": b'{"region": "x", "share_of_step": 1e999999}',
    "nan": b'{"widget": {"share_of_step": NaN, "uniqueness": 0.5, "irregularity": 0.5}}',
    "infinity": b'{"region": "x: f32[4]\\nreturn x", "step_time_us": Infinity}',
    "minus infinity": b'{"region": "x: f32[4]\\nreturn x", "calls_per_step": -Infinity}',
    "not utf-8": b'{"region": "\xff\xfe"}',
    "surrogate": b'{"region": "\\ud800"}',
    "nul": b'{"region": "\\u0000"}',
    "twice": b'{"region": "x", "region": 5}',
    "no object": b"[]",
    "nothing": b"",
}


@pytest.mark.parametrize("name", EVIL_JSON)
def test_json_nesting_huge_ints_and_nan_in_a_request_are_422(server: Process, name: str) -> None:
    headers = {"Content-Type": "application/json"}
    for path in ("/api/v1/advice", "/api/v1/validations", "/api/v1/checks"):
        response = server.client.post(path, content=EVIL_JSON[name], headers=headers)
        assert response.status_code == 422, (path, response.text[:300])
        assert response.json()["code"]
        assert len(response.content) < 10_000


EVENT = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2,"args":{"device":0,"stream":7}}'
EVIL_TRACES = {
    "nesting": b'{"traceEvents":[{"ph":"X","args":' + b"[" * 200_000 + b"]" * 200_000 + b"}]}",
    "nesting before": b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    "huge int": b'{"traceEvents":[' + EVENT.replace(b'"ts":1', b'"ts":' + b"9" * 100_000) + b"]}",
    "one long event": b'{"traceEvents":[{"ph":"X","name":"' + b"x" * (9 * MIB),
}
TOLERATED = {
    "nan": b'{"traceEvents":[' + EVENT.replace(b'"dur":2', b'"dur":NaN') + b"," + EVENT + b"]}",
    "infinity": b'{"traceEvents":[' + EVENT.replace(b'"ts":1', b'"ts":-Infinity') + b"," + EVENT + b"]}",
    "huge exponent": b'{"traceEvents":[' + EVENT.replace(b'"dur":2', b'"dur":1e999999') + b"," + EVENT + b"]}",
}


@pytest.mark.parametrize("name", [*EVIL_TRACES, *TOLERATED])
def test_json_nesting_huge_ints_and_nan_in_a_trace_harm_no_server(tmp_path: Path, name: str) -> None:
    """The reader has its own tolerance (NaN is read with a note); the caps are the same, and 500 is nobody's answer."""
    from profiler.trace import Limits, TraceError, read_trace

    path = tmp_path / "trace.json"
    path.write_bytes({**EVIL_TRACES, **TOLERATED}[name])
    started = time.monotonic()
    try:
        trace = read_trace(path, Limits())
    except TraceError as error:
        assert name in EVIL_TRACES, error.message
        assert error.code.startswith("trace-")
    else:
        assert trace.kernels.name.size <= 2
    assert time.monotonic() - started < 60  # not without end


def test_json_nesting_in_a_trace_is_422_by_the_server(server: Process) -> None:
    response = server.client.post("/api/v1/traces?wait=60", content=EVIL_TRACES["nesting before"])
    assert response.status_code == 422, response.text
    assert response.json()["code"].startswith("trace-")
    assert server.client.get("/healthz").status_code == 200
