"""A server as a process of its own, for tools that ask it from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent
START_S = 180.0


@dataclass(frozen=True, slots=True)
class Served:
    """pid: of the server, which is the parent of all that it starts. log: its lines."""

    url: str
    pid: int
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])


@contextmanager
def serving(data: Path, settings: Mapping[str, str]) -> Iterator[Served]:
    """A server over a data folder until the block ends, with advice warm. settings: by name, without the prefix."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRITONWORTHY_")}
    log = data.parent / "serve.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--data-dir", str(data)],
            cwd=ROOT, stdout=file, stderr=file, env=clean | {f"TRITONWORTHY_{k}": v for k, v in settings.items()},
        )  # fmt: skip
    try:
        yield Served(_address(process, log), process.pid, log)
    finally:
        process.terminate()
        process.wait(60)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        address = re.search(r"running on (http://[\d.]+:\d+)", log.read_text())
        if address and httpx.get(f"{address[1]}/readyz", timeout=60).json().get("advice_warm"):
            return address[1]
        time.sleep(0.2)
    raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}")
