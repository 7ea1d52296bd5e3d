"""The server's process works on nothing that a user sent: it imports no torch, and what it forked ends with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.child.process import descendants
from tests.conftest import ROOT
from tests.faults.servers import Server, until
from tests.processes import alive, wait_for

EXAMPLES = ROOT / "app" / "examples"
EXAMPLE = (EXAMPLES / "gemm_gelu_mask.txt").read_text(encoding="utf-8")
SMALL = "x: f32[8, 16]\ny = gelu(x) * 2\nreturn y\n"
PAGE = {"Accept": "text/html"}


class Whole(Server):
    """With its own children, and the oracle."""

    def command(self, child: str) -> list[str]:
        return [sys.executable, "-m", "app.cli", "serve"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Whole]:
    made = Whole(tmp_path, "", ORACLE="auto")
    yield made
    made.kill()


def mapped(pid: int) -> set[str]:
    """Names of the libraries that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {Path(line.split(maxsplit=5)[5]).name for line in lines if ".so" in line}


def sockets(pid: int) -> set[str]:
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(os.readlink(fd))
        except OSError:  # closed by now
            continue
    return {name for name in found if name.startswith("socket:")}


def test_the_server_imports_no_torch_whatever_it_is_asked_and_all_ends_with_it(server: Whole) -> None:
    with server.client() as client:
        client.timeout = 300
        for asked in ({"region": EXAMPLE}, {"region": SMALL, "oracle": "off"}):
            answer = client.post("/api/v1/advice", json=asked)
            assert answer.status_code == 200, answer.text
        widget = {"share_of_step": 0.2, "uniqueness": "standard", "irregularity": "none"}
        assert client.post("/api/v1/advice", json={"widget": widget}).status_code in (200, 422)
        trace = client.post(
            "/api/v1/traces?wait=120", content=(EXAMPLES / "handrolled_blocks.json.gz").read_bytes()
        ).json()
        assert trace["status"] == "ready"
        region = next(r["id"] for r in trace["regions"] if r["text"])
        for path in ("/", f"/traces/{trace['id']}", f"/regions/{region}", "/device", "/jobs"):
            assert client.get(path, headers=PAGE).status_code in (200, 404), path
        assert client.get(f"/api/v1/regions/{region}?device=NVIDIA+L4").status_code == 200
        assert client.post(f"/api/v1/regions/{region}/oracle").status_code == 200
        asked = {"region": SMALL, "device": ["cpu"], "candidates": ["eager"]}
        job = client.post("/api/v1/validations", json=asked).json()["id"]
        until(client, job, "done", seconds=240)

        pid = server.process.pid
        torch = {name for name in mapped(pid) if name.startswith(("libtorch", "libc10", "_C."))}
        assert torch == set()
        below = descendants(pid)
        assert any("libtorch_cpu.so" in mapped(one) for one in below), "they do"
        listening = sockets(pid)
        assert listening
        assert all(not sockets(one) & listening for one in below), "none holds a socket of the server's"
    server.kill()
    wait_for(lambda: not any(alive(one) for one in below), 10)
