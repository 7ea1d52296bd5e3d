"""The web processes of benchmarks/fleet/fleet_jobs.py and what is asked of them: real servers, HTTP and store."""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import sqlalchemy as sa

from app.objects.region import RegionBody
from app.storage.job_table import FINAL
from app.storage.store import Store
from app.storage.tables import jobs
from tests.postgres import end_with_parent

ROOT = Path(__file__).resolve().parent.parent.parent
SERVER = Path(__file__).with_name("fleet_server.py")
LEASE_S = 3.0


class Server:
    """One web process; started again on its port after it was killed."""

    def __init__(self, folder: Path, url: str, name: str, mark: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"{name}.log"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("TRITONWORTHY_")} | {
            "TRITONWORTHY_DATABASE_URL": url,
            "TRITONWORTHY_DATA_DIR": str(folder / name),
            "TRITONWORTHY_SHARED_DIR": str(folder / "shared"),
            "TRITONWORTHY_PORT": str(self.port),
            "TRITONWORTHY_ORACLE": "off",
            "TRITONWORTHY_LEASE_S": str(LEASE_S),
            "TRITONWORTHY_QUEUE_CAP": "100000",
            "FLEET_DIARY": str(folder / "diary"),
            "FLEET_MARK": mark,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(SERVER)], cwd=ROOT, env=self.environment, stdout=log, stderr=log,
                preexec_fn=end_with_parent,
            )  # fmt: skip

    def wait(self, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process is not None and self.process.poll() is None, self.log.read_text()[-3000:]
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/healthz", timeout=5, trust_env=False).status_code == 200:
                    return
            time.sleep(0.1)
        raise AssertionError(self.log.read_text()[-3000:])

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()


@dataclass
class Fleet:
    """The servers, their store as an onlooker sees it, and what was asked of them."""

    folder: Path
    store: Store
    servers: list[Server]
    mark: str
    accepted: dict[str, int] = field(default_factory=dict)  # id -> number
    unanswered: list[int] = field(default_factory=list)
    next_number: int = 1
    lock: threading.Lock = field(default_factory=threading.Lock)

    def submit(self, server: Server, duration_ms: int) -> str | None:
        """Ask for one job; None where no answer came: it may have been taken or not, and is never asked for again."""
        with self.lock:
            number = self.next_number
            self.next_number += 1
        # By its id, as a trace's region is asked for: advice on thousands of new texts would be most of the work.
        text = f"x: f32[{number}]\ny: f32[{duration_ms}]\nreturn x, y\n"
        region: RegionBody = {
            "name": str(number), "kind": "", "by_hand": False, "text": text, "source": None, "calls_per_step": 1.0,
            "time_us_per_step": None, "share_of_step": None, "shapes": [], "irregularity": None, "cost": None,
            "oracle": [], "recompiles": None, "prediction": "rules", "advice": None,
        }  # fmt: skip
        region_id = self.store.add_region(region)
        body = {"region_id": region_id, "device": ["cpu"]}
        try:
            answer = httpx.post(f"{server.url}/api/v1/validations", json=body, timeout=60, trust_env=False)
        except httpx.HTTPError:
            self.unanswered.append(number)
            return None
        assert answer.status_code == 202, answer.text
        job_id: str = answer.json()["id"]
        self.accepted[job_id] = number
        return job_id

    def count_unfinished(self) -> int:
        """Jobs that have not ended."""
        with self.store.database.read() as connection:
            query = sa.select(sa.func.count()).select_from(jobs).where(jobs.c.state.not_in(FINAL))
            return connection.scalar(query) or 0

    def owner(self, job_id: str) -> Server | None:
        """The server that runs the job."""
        with self.store.database.read() as connection:
            name = connection.scalar(sa.select(jobs.c.owner).where(jobs.c.id == job_id)) or ""
        pid = re.search(r"/(\d+)\.", name)
        return next((s for s in self.servers if pid and s.pid == int(pid[1])), None)

    def processes(self, what: str) -> list[int]:
        """Living processes of this fleet whose command line has that word."""
        pids = []
        for process in psutil.process_iter(["environ", "cmdline"]):  # None of what is somebody else's, or has ended
            environment, words = process.info["environ"] or {}, process.info["cmdline"] or []
            if environment.get("FLEET_MARK") == self.mark and any(what in word for word in words):
                pids.append(process.pid)
        return pids


@contextmanager
def running(folder: Path, url: str, servers: int = 2) -> Iterator[Fleet]:
    """Servers of one store until the block ends; nothing of them is left then."""
    mark = secrets.token_hex(8)
    (folder / "diary").mkdir()
    fleet = Fleet(folder, Store(url), [Server(folder, url, f"web{n}", mark) for n in range(servers)], mark)
    try:
        for server in fleet.servers:
            server.start()
        for server in fleet.servers:
            server.wait()
        yield fleet
    finally:
        for server in fleet.servers:
            server.stop()
        fleet.store.close()
