"""A server of any checkout of the project, which may be killed and started again on the same port and data folder.

`tools.server` serves this checkout for one block; a comparison with an older commit needs two, a test of kills one that
dies and comes back.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx

from benchmarks.server.processes import below, table

START_S = 180.0
STOP_S = 30.0
"""A server that has not ended so long after SIGTERM is killed."""

POLL_S = 0.02


class ServerError(RuntimeError):
    """It does not start, or has ended by itself; with the end of its log."""


def commit(checkout: Path) -> dict[str, Any]:
    """The commit of a checkout, and whether its files differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True
        ).stdout

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!tests", ":!docs", ":!benchmarks")
    return {"commit": git("rev-parse", "HEAD").strip(), "changed": bool(changed.strip())}


class Server:
    """One data folder, one port, one life at a time. Ends with the block.

    settings: by name, without the prefix. folder: takes the data (`data`), the log of all lives and the temporary files
    (`tmp`). as_init: it is process 1 of a PID namespace of its own, as in a container without an init (needs root).
    address_space_bytes: RLIMIT_AS of the server and, unless they set their own, of all that it starts.
    """

    def __init__(
        self,
        checkout: Path,
        folder: Path,
        settings: Mapping[str, str],
        *,
        as_init: bool = False,
        address_space_bytes: int | None = None,
    ) -> None:
        self.checkout, self.folder, self.as_init = checkout.resolve(), folder, as_init
        self.data, self.log, self.temporary = folder / "data", folder / "serve.log", folder / "tmp"
        self.temporary.mkdir(parents=True, exist_ok=True)
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.pid = 0  # of who is signalled
        self.serving = 0  # of who answers: another one where process 1 passes signals on to it
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TRITONWORTHY_")}
        own = {"PYTHONPATH": str(self.checkout), "TMPDIR": str(self.temporary)}
        self.environment = clean | own | {f"TRITONWORTHY_{k}": v for k, v in settings.items()}
        limited = ["prlimit", f"--as={address_space_bytes}"] if address_space_bytes else []
        enclosed = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"] if as_init else []
        serve = [sys.executable, "-m", "app.cli", "serve", "--port", str(self.port), "--data-dir", str(self.data)]
        self.command = [*limited, *enclosed, *serve]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> float:
        """Begin a life; the seconds until it answers."""
        began = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.checkout, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
            )
        self.pid = self.process.pid
        while not self._answers("/healthz"):
            self._still_starting(began)
        if self.as_init:
            by_depth = {depth: pid for pid, depth in below(self.process.pid, table()).items() if depth <= 2}
            self.pid, self.serving = by_depth[1], by_depth[2]  # app.cli.init: one child, the server
        else:
            self.serving = self.pid
        return time.monotonic() - began

    def warm(self) -> float:
        """Wait until it is ready, with what advice needs imported; the seconds that took."""
        began = time.monotonic()
        while not ((ready := self._answers("/readyz")) and ready.get("advice_warm", True)):
            self._still_starting(began)
        return time.monotonic() - began

    def _answers(self, path: str) -> dict[str, Any] | None:
        with suppress(httpx.TransportError):
            answer = httpx.get(self.url + path, timeout=START_S)
            if answer.status_code == 200:
                body: dict[str, Any] = answer.json()
                return body
        return None

    def _still_starting(self, began: float) -> None:
        if self.ended or time.monotonic() - began > START_S:
            raise ServerError(f"the server did not start: {self.log.read_text(errors='replace')[-2000:]}")
        time.sleep(POLL_S)

    @property
    def ended(self) -> bool:
        """Whether there is no living server."""
        return self.process is None or self.process.poll() is not None

    def end(self, number: signal.Signals) -> float:
        """Send the server itself a signal; the seconds until it had ended, killed after STOP_S at the latest."""
        if self.process is None:
            return 0.0
        began = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.process.wait(STOP_S)
        return time.monotonic() - began

    def kill_tree(self) -> None:
        """SIGKILL to the server and to all below it."""
        if self.process is None:
            return
        for pid in [self.pid, *below(self.process.pid, table())]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> float:
        """End this life as an operator does; the seconds it took."""
        if self.ended:
            return 0.0
        took = self.end(signal.SIGTERM)
        self.process = None
        return took


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
