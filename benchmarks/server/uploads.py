"""A trace of 215 MB sent by several clients at once: `python benchmarks/server/uploads.py [--parallel 8]
[TRACE.json.gz]`.

A real server on loopback with real children; the copies differ in length, so each is a trace of its own. Printed: the
seconds until all bytes had arrived and until all were read, the longest answer of /healthz meanwhile, the peak memory
of the server and of its largest child. 1 where one did not arrive whole or could not be read, /healthz took
longer than a second, or the server took more than 500 MB.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.server.upload import SERVER_MB, Memory, plain_trace
from tools.server import serving

HEALTH_S = 1.0
BLOCK = 1 << 20

Json = dict[str, Any]


def call(address: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Json]:
    """One request on a connection of its own."""
    with closing(http.client.HTTPConnection(address, timeout=600)) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def send(address: str, path: Path, number: int) -> tuple[int, Json, str]:
    """One copy, with so many spaces behind it: status, trace, and the hash of what was sent."""
    digest = hashlib.sha256()

    def body() -> Iterator[bytes]:
        with path.open("rb") as file:
            while data := file.read(BLOCK):
                digest.update(data)
                yield data
        digest.update(b" " * number)
        yield b" " * number

    size = path.stat().st_size + number
    status, trace = call(address, "POST", "/api/v1/traces?name=large", body(), **{"Content-Length": str(size)})
    return status, trace, digest.hexdigest()


class Health:
    """The longest answer of /healthz until `stop`, in seconds."""

    def __init__(self, address: str) -> None:
        self.address, self.worst_s, self.done = address, 0.0, threading.Event()
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def _ask(self) -> None:
        while not self.done.wait(0.05):
            began = time.monotonic()
            call(self.address, "GET", "/healthz")
            self.worst_s = max(self.worst_s, time.monotonic() - began)

    def stop(self) -> float:
        self.done.set()
        self.thread.join()
        return self.worst_s


def until_read(address: str, trace_id: str) -> Json:
    """The trace once it is read, or could not be."""
    while True:
        _, trace = call(address, "GET", f"/api/v1/traces/{trace_id}")
        if trace["status"] != "reading":
            return trace
        time.sleep(0.5)


def main() -> int:
    """Print the figures; 1 where one misses its aim."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", nargs="?", type=Path, help="default: T5 training, repeated to 215 MB")
    parser.add_argument("--parallel", type=int, default=8)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = plain_trace(asked.trace, folder)
        with serving(folder / "data", {"ORACLE": "off", "QUEUE_CAP": str(asked.parallel + 1)}) as served:
            address = served.url.removeprefix("http://")
            memory, health, began = Memory(served.pid), Health(address), time.monotonic()
            with ThreadPoolExecutor(asked.parallel) as pool:
                sent = list(pool.map(lambda n: send(address, plain, n), range(asked.parallel)))
            arrived_s, health_s = time.monotonic() - began, health.stop()
            whole = all(status == 201 and trace["sha256"] == digest for status, trace, digest in sent)
            traces = [until_read(address, trace["id"]) for _, trace, _ in sent] if whole else []
            read_s = time.monotonic() - began
            peaks = memory.stop()
        size_mb = plain.stat().st_size / 1e6
    ready = [t for t in traces if t["status"] == "ready"]
    same = len({(t["events"], t["kernels"], len(t["regions"])) for t in ready}) == 1
    server = next(peak for what, peak in peaks.items() if "serve" in what)
    child = max(peak for what, peak in peaks.items() if "serve" not in what)
    print(f"{asked.parallel} x {size_mb:.0f} MB at once on {os.cpu_count()} cores")
    print(f"all bytes there after {arrived_s:.1f} s: {asked.parallel * size_mb / arrived_s:.0f} MB/s, whole: {whole}")
    print(f"all read after {read_s:.1f} s: {len(ready)} of {asked.parallel} ready, alike: {same}")
    print(f"longest answer of /healthz while they arrived: {1000 * health_s:.0f} ms (aim {1000 * HEALTH_S:.0f} ms)")
    print(f"peak memory: server {server:.0f} MB (aim {SERVER_MB:.0f} MB), largest child {child:.0f} MB")
    good = whole and same and len(ready) == asked.parallel
    return int(not good or health_s > HEALTH_S or server > SERVER_MB)


if __name__ == "__main__":
    raise SystemExit(main())
