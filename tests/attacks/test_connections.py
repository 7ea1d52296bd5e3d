"""Row "Holding connections": whoever opens many and asks nothing keeps nobody out."""

from __future__ import annotations

import fcntl
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.app.web.conftest import serving
from tests.attacks.process import Process, running
from tests.processes import wait_for

TOKEN = "correct-horse-battery-staple"
MOST = 12

ASK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
BEGUN = {"idle": ASK, "silent": b"", "half a head": b"GET /healthz HTTP/1.1\r\nHost: lo"}
BUSY = b"POST /api/v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
"""A request that is under way for as long as its body does not come."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with running(tmp_path_factory.mktemp("connections"), max_connections=MOST, request_timeout_s=300) as process:
        yield process


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """The status and the body of one answer that says how long it is; 0 where the connection was closed without."""
    told = b""
    while b"\r\n\r\n" not in told:
        more = connection.recv(65536)
        if not more:
            return 0, told
        told += more
    head, _, body = told.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < int(lengths[0].split()[1]):
        body += connection.recv(65536)
    return int(head.split()[1]), body


def closed(connection: socket.socket) -> bool:
    """Whether the server has closed it, without waiting."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:  # with bytes of ours that it had not read
        return True
    finally:
        connection.settimeout(30)


@pytest.mark.parametrize("kind", BEGUN)
def test_a_new_connection_gets_the_place_of_the_one_that_is_idle_for_longest(server: Process, kind: str) -> None:
    with ExitStack() as held:
        idle = []
        for _ in range(MOST):
            connection = held.enter_context(server.connect())
            connection.sendall(BEGUN[kind])
            if kind == "idle":
                assert answer(connection)[0] == 200
            idle.append(connection)
        wait_for(lambda: not closed(idle[-1]))
        for _ in range(3):  # each of them is turned away before
            new = held.enter_context(server.connect())
            new.sendall(ASK)
            assert answer(new)[0] == 200
            idle.append(new)
        wait_for(lambda: [closed(c) for c in idle[:3]] == [True] * 3)
        assert not any(closed(c) for c in idle[3:])


def test_512_that_ask_nothing_keep_nobody_out(tmp_path: Path) -> None:
    """As it is by default."""
    with running(tmp_path) as server, ExitStack() as held:
        for number in range(530):
            connection = held.enter_context(server.connect())
            connection.sendall([*BEGUN.values()][number % len(BEGUN)])
        for path in ("/healthz", "/api/v1/traces"):
            assert httpx.get(f"{server.url}{path}", trust_env=False, timeout=60).status_code == 200


def test_a_jobs_event_stream_is_not_idle(tmp_path: Path) -> None:
    with serving(tmp_path, "hang", max_connections=3) as web, ExitStack() as held:
        job = web.client.post("/api/v1/traces", content=b"x").json()["job"]
        host, port = web.url.removeprefix("http://").split(":")

        def connect(request: bytes) -> socket.socket:
            connection = held.enter_context(socket.create_connection((host, int(port)), timeout=30))
            connection.sendall(request)
            return connection

        stream = connect(f"GET /api/v1/jobs/{job}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        told = stream.recv(65536)
        while b"event: progress" not in told:
            told += stream.recv(65536)
        for _ in range(20):
            assert answer(connect(ASK))[0] == 200
        assert httpx.post(f"{web.url}/api/v1/jobs/{job}/cancel", trust_env=False, timeout=30).status_code == 200
        while b"event: done" not in told:
            more = stream.recv(65536)
            assert more, told
            told += more


def test_where_all_have_requests_health_and_jobs_are_answered_and_others_told_so(server: Process) -> None:
    with ExitStack() as held:
        for _ in range(MOST):
            held.enter_context(server.connect()).sendall(BUSY)
        wait_for(lambda: len(server.uploads()) == MOST)
        for path, status in (
            ("/healthz", 200), ("/readyz", 200), (f"/api/v1/jobs/{'a' * 26}", 404), ("/api/v1/traces", 503),
            ("/", 503), (f"/api/v1/jobs/{'a' * 26}/events", 503),
        ):  # fmt: skip
            told = httpx.get(f"{server.url}{path}", trust_env=False, timeout=30)
            assert told.status_code == status, path
            assert told.headers["connection"] == "close"
            assert status != 503 or told.json()["code"] == "too-many-connections"
    wait_for(lambda: server.uploads() == [])
    assert httpx.get(f"{server.url}/api/v1/traces", trust_env=False, timeout=30).status_code == 200


def own_address() -> str | None:
    """An address of this machine that is not loopback; None where it has none."""
    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            try:
                told = fcntl.ioctl(asked.fileno(), 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
            except OSError:
                continue
        address = socket.inet_ntoa(told[20:24])
        if not address.startswith("127."):
            return address
    return None


ADDRESS = own_address()


@pytest.mark.skipif(ADDRESS is None, reason="this machine has no address but loopback")
def test_one_address_keeps_neither_others_nor_the_owner_out(tmp_path: Path) -> None:
    """Strangers without the token, and then with every place of everybody taken by requests."""
    assert ADDRESS is not None
    settings = {
        "host": "0.0.0.0", "token": TOKEN, "allowed_hosts": ADDRESS, "max_connections": MOST,
        "max_client_connections": 4, "request_timeout_s": 300,
    }  # fmt: skip
    with running(tmp_path, **settings) as web, ExitStack() as held:

        def connect(address: str, request: bytes = b"") -> socket.socket:
            connection = held.enter_context(socket.create_connection((address, web.port), timeout=30))
            connection.sendall(request.replace(b"localhost", address.encode()))
            return connection

        bearer = f"Authorization: Bearer {TOKEN}\r\n".encode()
        busy = BUSY.replace(b"\r\nContent", b"\r\n" + bearer + b"Content")
        first = connect("127.0.0.1", ASK)
        assert answer(first)[0] == 200
        theirs = [connect(ADDRESS) for _ in range(10)]
        wait_for(lambda: [closed(c) for c in theirs] == [True] * 6 + [False] * 4)
        assert not closed(first), "of somebody else"
        uploads = tmp_path / "data" / "uploads"
        for connection in theirs[6:]:
            connection.sendall(busy)
        wait_for(lambda: len(list(uploads.iterdir())) == 4)
        status, body = answer(connect(ADDRESS))
        assert (status, json.loads(body)["code"]) == (503, "too-many-connections")
        assert answer(connect("127.0.0.1", ASK))[0] == 200
        # Now all places have requests: strangers are told so, the token gets in.
        for _ in range(MOST - 4):
            connect("127.0.0.1", busy)
        wait_for(lambda: len(list(uploads.iterdir())) == MOST)
        listed = ASK.replace(b"/healthz", b"/api/v1/traces")
        assert answer(connect("127.0.0.1", listed))[0] == 503
        assert answer(connect("127.0.0.1", ASK))[0] == 200
        assert answer(connect("127.0.0.1", listed.replace(b"\r\n\r\n", b"\r\n" + bearer + b"\r\n")))[0] == 200
