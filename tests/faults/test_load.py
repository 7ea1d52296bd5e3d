"""More than a server can take at once: it says so, goes on answering, and loses nothing of what it took."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.faults.servers import Server, until
from tests.processes import wait_for

SUBMISSIONS = 1000
CAP = 32
UPLOAD_BYTES = 24 << 20
PARALLEL = 8


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    app_server = Server(tmp_path_factory.mktemp("load"), "hang", QUEUE_CAP=CAP)
    yield app_server
    app_server.kill()


class Watch:
    """Asks /healthz all the time, and remembers the longest wait.

    longest_s: what a wait may last. A server that is held up answers when the load has ended: on a machine that is busy
    with other things the load takes longer, and so may a wait.
    """

    def __init__(self, server: Server) -> None:
        self.server, self.worst_s, self.longest_s, self.done = server, 0.0, 2.0, threading.Event()
        self.thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        connection = http.client.HTTPConnection(urlsplit(self.server.url).netloc, timeout=30)
        with closing(connection):
            while not self.done.wait(0.02):
                began = time.monotonic()
                connection.request("GET", "/healthz")
                assert connection.getresponse().read() == b'{"status":"ok"}'
                self.worst_s = max(self.worst_s, time.monotonic() - began)

    def __enter__(self) -> Watch:
        self.began = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.longest_s = max(2.0, (time.monotonic() - self.began) / 5)
        self.done.set()
        self.thread.join()


def post(connection: http.client.HTTPConnection, body: Any, **headers: str) -> tuple[int, dict[str, Any], str | None]:
    connection.request("POST", "/api/v1/traces", body, headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read()), answer.getheader("Retry-After")


def test_a_flood_of_1000_submissions_is_held_at_the_cap_and_every_taken_one_ends(server: Server) -> None:
    address = urlsplit(server.url).netloc
    uploads = server.data / "uploads"

    def submit(worker: int) -> list[tuple[int, dict[str, Any], str | None]]:
        with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
            return [post(connection, f"trace {n}".encode()) for n in range(worker, SUBMISSIONS, 10)]

    with Watch(server) as watch, ThreadPoolExecutor(10) as pool:
        answers = [a for found in pool.map(submit, range(10)) for a in found]
    statuses = Counter(status for status, _, _ in answers)
    taken = [body["id"] for status, body, _ in answers if status == 201]
    # One runs, and as many wait as may.
    assert statuses == {201: CAP + 1, 429: SUBMISSIONS - CAP - 1}
    assert {retry for status, _, retry in answers if status == 429} == {"60"}
    assert {body["code"] for status, body, _ in answers if status == 429} == {"queue-full"}
    assert watch.worst_s < watch.longest_s
    assert len([p for p in uploads.iterdir() if p.is_file()]) == len(taken), "nothing of the refused stays"
    (server.folder / "go").touch()
    with server.client() as client:
        jobs = [until(client, job_id, "done", "failed") for job_id in taken]
    assert Counter(j["state"] for j in jobs) == {"done": CAP + 1}
    assert {j["attempt"] for j in jobs} == {1}


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_8_parallel_uploads_of_a_large_trace_arrive_whole_and_cost_little_memory(server: Server) -> None:
    """What benchmarks/server/uploads.py does with the 215 MB trace."""
    (server.folder / "go").touch()
    address = urlsplit(server.url).netloc
    block = os.urandom(1 << 20)
    before = rss_bytes(server.process.pid)
    peak = [before]

    def send(number: int) -> tuple[int, dict[str, Any], str]:
        digest = hashlib.sha256()

        def body() -> Iterator[bytes]:
            for part in range(UPLOAD_BYTES // len(block)):
                data = bytes([number, part]) + block[2:]
                digest.update(data)
                yield data

        with closing(http.client.HTTPConnection(address, timeout=120)) as connection:
            status, trace, _ = post(connection, body(), **{"Content-Length": str(UPLOAD_BYTES)})
        peak.append(rss_bytes(server.process.pid))
        return status, trace, digest.hexdigest()

    with Watch(server) as watch, ThreadPoolExecutor(PARALLEL) as pool:
        found = list(pool.map(send, range(PARALLEL)))
    assert [status for status, _, _ in found] == [201] * PARALLEL
    assert all(trace["sha256"] == digest for _, trace, digest in found)
    assert all(trace["bytes"] == UPLOAD_BYTES for _, trace, _ in found)
    assert len({trace["id"] for _, trace, _ in found}) == PARALLEL
    assert max(peak) - before < 64 << 20, "a body goes to disk as it comes"
    assert watch.worst_s < watch.longest_s
    with server.client() as client:
        assert {until(client, trace["job"], "done")["attempt"] for _, trace, _ in found} == {1}
        text = client.get("/metrics").text
    read = re.search(r"^tritonworthy_read_bytes_total (\S+)$", text, re.M)
    assert read
    assert float(read[1]) >= PARALLEL * UPLOAD_BYTES


def test_descriptors_are_flat_after_all_of_it(server: Server) -> None:
    def descriptors() -> int:
        return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))

    with server.client() as client:
        assert client.get("/readyz").status_code == 200
    wait_for(lambda: descriptors() < 60, 10, descriptors)
