"""Real servers in processes of their own, whose jobs are done by a child of children.py."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import ROOT
from tests.processes import wait_for

CHILDREN = Path(__file__).with_name("children.py")

Json = dict[str, Any]


def command(child: str) -> Callable[[str], list[str]]:
    """The command line of every kind of child; the GPU is asked by the child `health`."""
    return lambda kind: [sys.executable, str(CHILDREN), "health" if kind == "health" else child, "{fd}"]


def notes(folder: Path, name: str) -> list[str]:
    """The lines that children left."""
    path = folder / name
    return path.read_text().split() if path.exists() else []


class Server:
    """`tritonworthy serve` on a data folder; children leave their notes in `folder`."""

    def __init__(self, folder: Path, child: str, *, data: Path | None = None, **settings: object) -> None:
        self.folder = folder
        self.data = data or folder / "data"
        self.log = folder / f"serve-{secrets.token_hex(4)}.log"
        given = {"PORT": 0, "ORACLE": "off", "KILL_GRACE_S": 0.3, "SPARE": "false", "DATA_DIR": self.data, **settings}
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TRITONWORTHY_")}
        environment = clean | {f"TRITONWORTHY_{k}": str(v) for k, v in given.items()} | {"FAULTS_FOLDER": str(folder)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command(child), cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def command(self, child: str) -> list[str]:
        return [sys.executable, "-m", "tests.faults.servers", child]

    @property
    def url(self) -> str:
        def found() -> re.Match[str] | None:
            assert self.process.poll() is None, self.log.read_text()
            return re.search(r"running on (http://[\d.]+:\d+)", self.log.read_text())

        match: re.Match[str] = wait_for(found, 60)
        return match[1]

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(10)

    def pids(self, number: int = 1) -> list[int]:
        """Of the children that hang, once there are so many."""
        wait_for(lambda: len(notes(self.folder, "pids")) >= number, 30, self.log.read_text)
        return [int(pid) for pid in notes(self.folder, "pids")]


def submit(client: httpx.Client, number: int = 1) -> str:
    """Upload something that children.py takes for a trace; the id of the job that reads it."""
    answer = client.post(f"/api/v1/traces?name=t{number}", content=f"trace {number}".encode())
    assert answer.status_code in (201, 202), answer.text
    job: str = answer.json()["job"]
    return job


def until(client: httpx.Client, job_id: str, *states: str, seconds: float = 120) -> Json:
    """The job, once it is in one of these states."""

    def there() -> Json | None:
        job: Json = client.get(f"/api/v1/jobs/{job_id}").json()
        return job if job["state"] in states else None

    answer: Json = wait_for(there, seconds, lambda: client.get(f"/api/v1/jobs/{job_id}").text)
    return answer


def main() -> int:
    """`tritonworthy serve`, with the children of children.py in the place of app.jobs.tasks."""
    import app.main
    from app.cli import main as tritonworthy
    from app.requests.executor import Executor

    made = app.main.make_queue

    def make_queue(*given: Any, **more: Any) -> Any:
        queue = made(*given, **more)
        queue.command = command(sys.argv[1])
        queue.context = dict
        return queue

    app.main.make_queue = make_queue
    app.main._checks_here = lambda *_: False
    Executor.start = lambda self: None  # type: ignore[method-assign]  # nobody asks for advice here: no torch
    return tritonworthy(["serve"])


if __name__ == "__main__":
    raise SystemExit(main())
