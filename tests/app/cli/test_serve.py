"""`tritonworthy serve` as a process: it starts, and a signal ends it and everything that it started."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.conftest import ROOT

REGION = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"


class Served:
    """The process, its address, and a mark in the environment of all that it starts."""

    def __init__(self, folder: Path) -> None:
        self.mark = f"TEST_MARK={secrets.token_hex(8)}"
        name, _, value = self.mark.partition("=")
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TRITONWORTHY_")}
        self.log = folder / "serve.log"
        self.suspended: list[int] = []
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--data-dir", str(folder / "data")],
                cwd=ROOT,
                env=clean | {name: value},
                stdout=log,
                stderr=log,
            )

    def url(self) -> str:
        deadline = time.monotonic() + 120
        while not (match := re.search(r"running on (http://[\d.]+:\d+)", self.log.read_text())):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return match[1]

    def alive(self) -> list[str]:
        """Command lines of living processes that carry the mark."""
        return list(self._marked().values())

    def suspend_forks(self) -> list[int]:
        """Stop what was forked from the template of jobs, and not the template, which ends them; which."""
        templates = {pid for pid, line in self._marked().items() if "app.jobs.forked" in line}
        found = [pid for pid in templates if parent(pid) in templates]
        for pid in found:
            send(pid, signal.SIGSTOP)
        self.suspended.extend(found)
        return found

    def resume(self) -> None:
        while self.suspended:
            send(self.suspended.pop(), signal.SIGCONT)

    def _marked(self) -> dict[int, str]:
        collected = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (folder / "environ").read_bytes():
                    collected[int(folder.name)] = (folder / "cmdline").read_text()
            except OSError:
                continue
        return collected


def parent(pid: int) -> int:
    try:
        return psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return 0


def send(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    if served.process.poll() is None:
        served.process.kill()
        served.process.wait()


def begin_validation(served: Served) -> str:
    """Start a validation and stop its child in the middle, so that only the server can end it; its stream's address.

    Left alone it ends within two seconds on a CPU: on a busy host that was before the test's signal came.
    """
    url = served.url()
    body = {"region": REGION, "device": ["cpu"]}
    for _ in range(20):
        job = httpx.post(f"{url}/api/v1/validations", json=body, timeout=60, trust_env=False).json()
        address = f"{url}/api/v1/jobs/{job['id']}"
        if until_running(address) and served.suspend_forks() and state_of(address) == "running":
            return f"{address}/events"
        served.resume()
    raise AssertionError("each of 20 validations had ended before its child could be stopped")


def until_running(address: str) -> bool:
    deadline = time.monotonic() + 120
    while (state := state_of(address)) == "queued":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return state == "running"


def state_of(address: str) -> str:
    state = httpx.get(address, trust_env=False).json()["state"]
    assert isinstance(state, str)
    return state


def until_gone(served: Served, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while served.alive():
        assert time.monotonic() < deadline, served.alive()
        time.sleep(0.05)


def test_sigterm_ends_open_streams_running_jobs_and_the_server(served: Served) -> None:
    events = begin_validation(served)
    with httpx.stream("GET", events, timeout=30, trust_env=False) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: progress"
        served.process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        assert "event: bye" in list(lines)
    assert served.process.wait(60) in (0, -signal.SIGTERM)
    assert time.monotonic() - started < 40
    until_gone(served, 2)
    log = served.log.read_text()
    assert "Traceback" not in log, log


def test_kill_9_leaves_nothing_running(served: Served) -> None:
    begin_validation(served)
    served.process.kill()
    served.process.wait(5)
    until_gone(served, 10)


def test_a_server_takes_as_many_descriptors_as_it_may() -> None:
    script = (
        "from resource import *; from app.cli.serve import raise_descriptors\n"
        "raise_descriptors(); print(*getrlimit(RLIMIT_NOFILE))"
    )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(hard, 4096) if hard != resource.RLIM_INFINITY else 4096
    limited = ["prlimit", f"--nofile=256:{most}", sys.executable, "-c", script]
    told = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert told == [str(most), str(most)]
