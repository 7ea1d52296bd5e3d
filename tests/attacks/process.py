"""The real server as a process of its own, with its memory, its log and its limits in view."""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.conftest import ROOT


@dataclass
class Process:
    """A server that runs. folder: its data; log: what it printed."""

    process: subprocess.Popen[bytes]
    url: str
    client: httpx.Client
    folder: Path
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def forget_peak(self) -> None:
        """Let `peak_bytes` begin anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        """The most memory that it had at once since `forget_peak`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) * 1024

    def uploads(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "uploads").iterdir())

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)


def command(*more: str) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of a server without settings of ours."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRITONWORTHY_")}
    return [sys.executable, "-m", "app.cli", "serve", *more], clean


@contextmanager
def running(folder: Path, file_bytes: int | None = None, **settings: object) -> Iterator[Process]:
    """Serve on a free port until the block ends. file_bytes: RLIMIT_FSIZE; settings: of app.settings."""
    line, clean = command("--port", "0", "--data-dir", str(folder / "data"))
    given = {"oracle": "off", "kill_grace_s": 0.3, **settings}
    log = folder / "serve.log"
    before: Callable[[], None] | None = None
    if file_bytes is not None:
        most = file_bytes

        def before() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    with log.open("wb") as out:
        process = subprocess.Popen(
            line, cwd=ROOT, stdout=out, stderr=out, preexec_fn=before,
            env=clean | {f"TRITONWORTHY_{k.upper()}": str(v) for k, v in given.items()},
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while not (match := re.search(r"running on (http://[\d.]+:\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        with httpx.Client(base_url=match[1], timeout=60, trust_env=False) as client:
            yield Process(process, match[1], client, folder / "data", log)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
