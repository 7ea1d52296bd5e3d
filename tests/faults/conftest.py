"""Queues and servers that end with their test, whatever it did to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.jobs.local_runner import Limits
from app.jobs.queue import Queue
from app.storage.store import Store
from tests.app.storage.validations import add_validation
from tests.faults.servers import Server, command, notes
from tests.processes import wait_for

Json = dict[str, Any]


@dataclasses.dataclass
class Bench:
    """A store, and queues on it whose children are of children.py."""

    folder: Path
    store: Store
    queues: list[Queue] = dataclasses.field(default_factory=list)
    limits: Limits = dataclasses.field(default_factory=lambda: Limits(30, 0.3))

    def queue(self, child: str = "hang", *, lease_s: float = 10.0, start: bool = True, **more: Any) -> Queue:
        """A queue, started."""
        queue = Queue(
            self.store,
            command=command(child),
            limits=dict.fromkeys(("read", "validate", "landscape", "check"), self.limits),
            checks=dict.fromkeys(("read", "validate", "landscape", "check"), lambda _: ""),
            logs=self.folder,
            lease_s=lease_s,
            **more,
        )
        self.queues.append(queue)
        if start:
            queue.start()
        return queue

    def add(self, **request: Any) -> str:
        job_id = add_validation(self.store, name="r", region="x", region_id=None, request=request, cap=1000)[0]
        for queue in self.queues:
            queue.wake("validate")
        return job_id

    def until(self, job_id: str, *states: str, seconds: float = 120) -> Json:
        def there() -> Json | None:
            job = self.store.job(job_id)
            return job if job and job["state"] in states else None

        answer: Json = wait_for(there, seconds, lambda: self.store.job(job_id))
        return answer

    def pid(self, number: int = 1) -> int:
        """Of the child that hangs, the last of so many."""
        wait_for(lambda: len(notes(self.folder, "pids")) >= number)
        return int(notes(self.folder, "pids")[number - 1])

    def go(self) -> None:
        """Those that hang go on."""
        (self.folder / "go").touch()

    def said(self, job_id: str) -> list[str]:
        """What happened to a job: the messages of its progress, and how it ended."""
        events = self.store.events(job_id)
        return [e["data"].get("message") or e["data"].get("phase") or e["data"].get("state") for e in events]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("FAULTS_FOLDER", str(tmp_path))
    bench = Bench(tmp_path, Store(f"sqlite:///{tmp_path / 'test.db'}"))
    yield bench
    for queue in bench.queues:
        queue.stop()
    bench.store.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start real servers on the test's folder."""
    servers: list[Server] = []

    def start(child: str = "hang", **more: Any) -> Server:
        servers.append(Server(tmp_path, child, **more))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()
