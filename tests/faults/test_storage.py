"""A database or a disk that fails: a clear answer, nothing lost or half done, and work again when it is mended."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import sqlalchemy as sa

from app.jobs.local_runner import LocalRunner
from app.web.server import health
from tests.app.web.conftest import Serving, serving
from tests.conftest import ROOT
from tests.faults.conftest import Bench
from tests.faults.servers import Server, notes, submit, until
from tests.processes import wait_for

Serve = Callable[..., Server]


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Somebody else writes, for long."""
    with closing(sqlite3.connect(database, isolation_level=None, timeout=20)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that wait for the database for 0.3 s only."""
    monkeypatch.setattr("app.storage.database.BUSY_TIMEOUT_MS", 300)
    monkeypatch.setattr(health, "BUSY_TIMEOUT_MS", 300)
    monkeypatch.setattr(health, "LOCK_MS", 100)


@pytest.mark.usefixtures("impatient")
def test_a_database_locked_for_longer_than_a_lease_costs_no_running_job_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    bench: Bench = request.getfixturevalue("bench")  # after the patience is set
    first = bench.queue("hang", lease_s=1.5)
    second = bench.queue("hang", lease_s=1.5)
    job_id = bench.add()
    pid = bench.pid()
    with locked(tmp_path / "test.db"):
        time.sleep(4)  # longer than a lease and two looks at it: the other server sees that nobody renewed it
        assert psutil.pid_exists(pid)
        bench.go()  # the result is there while nobody can write
        wait_for(lambda: len(notes(tmp_path, "answers")) == 1, 60)
        trouble = {"", "the database cannot be written: database is locked"}
        wait_for(lambda: {first.trouble, second.trouble} == trouble, 60)
    job = bench.until(job_id, "done")
    assert job["attempt"] == 1
    assert len(notes(tmp_path, "pids")) == 1
    wait_for(lambda: {first.trouble, second.trouble} == {""}, 60)


@pytest.fixture
def web(tmp_path: Path, impatient: None) -> Iterator[Serving]:
    with serving(tmp_path, "trace") as server:
        yield server


def upload(web: Serving, number: int = 1) -> Any:
    return web.client.post("/api/v1/traces", content=f"trace {number}".encode())


def not_ready(web: Serving) -> str:
    time.sleep(health.KEPT_S + 0.1)
    answer = web.client.get("/readyz")
    assert answer.status_code == 503, answer.text
    return str(answer.json()["detail"])


def test_a_locked_database_is_answered_with_503_and_everything_works_after(web: Serving) -> None:
    with locked(web.folder / "tritonworthy.db"):
        answer = upload(web)
        assert (answer.status_code, answer.json()["code"]) == (503, "storage-failed")
        assert answer.headers["retry-after"] == "5"
        assert "is locked" in answer.json()["detail"]
        assert web.files() == [], "nothing of it stays"
        assert web.client.get("/api/v1/traces").status_code == 200, "reading goes on"
        assert web.client.get("/healthz").status_code == 200
        assert not_ready(web) == "the database is locked"
    assert upload(web).status_code == 201
    time.sleep(health.KEPT_S + 0.1)
    assert web.client.get("/readyz").status_code == 200


def test_a_database_that_became_read_only_is_answered_with_503_and_is_not_ready(web: Serving) -> None:
    engine = web.state.store.database.engine

    def forbid(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute("PRAGMA query_only=1")

    sa.event.listen(engine, "checkout", forbid)
    try:
        answer = upload(web)
        assert (answer.status_code, answer.json()["code"]) == (503, "storage-failed")
        assert "read-only" in answer.json()["detail"]
        page = web.client.get("/", headers={"accept": "text/html"})
        assert page.status_code == 200
    finally:
        sa.event.remove(engine, "checkout", forbid)
        engine.dispose()
    assert upload(web).status_code == 201


def test_a_full_database_waits_with_the_result_and_stores_it_once(bench: Bench) -> None:
    """SQLite's own limit stands for the disk's: the same error, on every machine."""
    room = threading.Event()
    engine = bench.store.database.engine

    def limit(connection: sqlite3.Connection, *_: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={1 << 30 if room.is_set() else pages}")

    sa.event.listen(engine, "checkout", limit)
    queue = bench.queue("filler")
    (bench.folder / "full").touch()
    job_id = bench.add()
    wait_for(lambda: queue.trouble)
    assert queue.trouble == "the database cannot be written: database or disk is full"
    assert bench.store.job_state(job_id) == "running"
    room.set()
    job = bench.until(job_id, "done")
    assert job["attempt"] == 1
    assert len(job["result"]["reason"]) == 500_000
    assert len(notes(bench.folder, "answers")) == 1
    assert queue.trouble == ""


def test_a_result_that_no_database_takes_fails_its_job_and_not_the_lane(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> bool:
        raise sa.exc.DataError("INSERT", {}, sqlite3.DataError("string or blob too big"))

    bench.go()
    bench.queue("hang")
    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "finish_validation", refuse)
        job = bench.until(bench.add(), "failed")
    assert job["error"]["code"] == "bad-output"
    assert "cannot be stored" in job["error"]["message"]
    bench.until(bench.add(), "done")


def test_a_log_that_cannot_be_written_costs_no_job(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.go()
    queue = bench.queue("hang", start=False)
    queue.logs = bench.folder / "gone"  # no such folder: as where there is no room for one more file
    queue.start()
    assert bench.until(bench.add(), "done")["attempt"] == 1


def test_no_process_to_be_had_gives_the_job_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run = LocalRunner.run
    refused: list[int] = []

    def refuse(self: LocalRunner, *given: Any, **more: Any) -> Any:
        if not refused:
            refused.append(1)
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return run(self, *given, **more)

    monkeypatch.setattr(LocalRunner, "run", refuse)
    monkeypatch.setattr("app.jobs.queue.START_PAUSE_S", 0.1)
    bench.go()
    bench.queue("hang")
    assert bench.until(bench.add(), "done")["attempt"] == 2


# ------------------------------------------------------------------------------------------- folders, disks, namespaces


def in_namespace() -> list[str] | None:
    """A command line that may mount, for itself alone; None where this machine does not allow it."""
    for words in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        tried = [*words, "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
        if shutil.which("unshare") and subprocess.run(tried, capture_output=True, check=False).returncode == 0:
            return words
    return None


def start(folder: Path, mount: str = "true") -> subprocess.CompletedProcess[str]:
    """`tritonworthy serve` where it cannot start: after this command, which may mount something."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRITONWORTHY_")}
    inside = [] if mount == "true" else in_namespace()
    assert inside is not None
    serve = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--data-dir", str(folder)]
    return subprocess.run(
        [*inside, "sh", "-c", f'{mount} && exec "$@"', "sh", *serve],
        cwd=ROOT,
        env=clean | {"TRITONWORTHY_ORACLE": "off"},
        capture_output=True,
        text=True,
        timeout=60,
    )


def assert_refused(ended: subprocess.CompletedProcess[str], said: str) -> None:
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    assert said in ended.stderr
    assert "sqlalche.me" not in ended.stderr, "words of ours"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere: see the mounts")
def test_a_data_folder_of_somebody_else_is_refused_at_the_start_with_status_2(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(0o555)
    assert_refused(start(tmp_path / "data"), "cannot be used: [Errno 13]")


@pytest.mark.skipif(in_namespace() is None, reason="this machine allows no mount of our own")
@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("true", "cannot be used: [Errno 30] Read-only file system"),
        (
            "mkdir {0}/uploads {0}/logs && cp {1} {0}/tritonworthy.db",
            "cannot be used: attempt to write a readonly database",
        ),
    ],
    ids=["empty", "database"],
)
def test_a_read_only_data_folder_is_refused_at_the_start_with_status_2(made: str, said: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with closing(sqlite3.connect(tmp_path / "made.db")) as connection:
        connection.execute("CREATE TABLE t (a)")
    before = f"mount -t tmpfs tmpfs {folder} && {made.format(folder, tmp_path / 'made.db')}"
    assert_refused(start(folder, f"{before} && mount -o remount,ro {folder}"), said)


class OnSmallDisk(Server):
    """A server whose data folder is a tmpfs of 8 MB, that nobody else sees."""

    def command(self, child: str) -> list[str]:
        words = in_namespace()
        assert words is not None
        self.data.mkdir(exist_ok=True)
        mount = f'mount -t tmpfs -o size=8m tmpfs {self.data} && export FILL={self.data} && exec "$@"'
        return [*words, "sh", "-c", mount, "sh", *super().command(child)]

    @property
    def disk(self) -> Path:
        """The data folder as the server sees it."""
        return Path(f"/proc/{self.process.pid}/root{self.data}")


@pytest.mark.skipif(in_namespace() is None, reason="this machine allows no mount of our own")
def test_a_disk_that_fills_in_mid_job_costs_no_result(tmp_path: Path) -> None:
    server = OnSmallDisk(tmp_path, "filler", MIN_FREE_DISK_BYTES=0)
    try:
        with server.client() as client:
            assert client.get("/readyz").status_code == 200
            job_id = submit(client)
            wait_for(lambda: client.get("/readyz").status_code == 503, 30, server.log.read_text)
            detail = client.get("/readyz").json()["detail"]
            assert "the data folder cannot be written: No space left on device" in detail
            assert client.get(f"/api/v1/jobs/{job_id}").json()["state"] == "running", "it waits with its result"
            assert client.get("/healthz").status_code == 200
            refused = client.post("/api/v1/traces", content=b"another")
            assert refused.status_code in (503, 507), refused.text
            (server.disk / "full").write_bytes(b"")
            job = until(client, job_id, "done")
            assert job["attempt"] == 1
            wait_for(lambda: client.get("/readyz").status_code == 200, 10)
            assert client.post("/api/v1/traces", content=b"another").status_code == 201
        assert "Traceback" not in server.log.read_text()
    finally:
        server.kill()


# ------------------------------------------------------------------------------------------------ damaged, or not there


def spoil(data: Path, first: int = 4096) -> None:
    """Write garbage over the database's pages, from this byte on, as a disk does that lies."""
    file = data / "tritonworthy.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with file.open("r+b") as pages:
        size = pages.seek(0, os.SEEK_END)
        pages.seek(first)
        pages.write(random.Random(1).randbytes(size - first))


def remove_database(data: Path) -> None:
    for file in data.glob("tritonworthy.db*"):
        file.unlink()


def replace_database(data: Path) -> None:
    """By a copy of itself, as who restores a backup under the running server does."""
    shutil.copy(data / "tritonworthy.db", data / "copy")
    (data / "copy").replace(data / "tritonworthy.db")


LOSSES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "pages": (spoil, "storage-corrupt", "The database is damaged."),
    "header": (lambda data: spoil(data, 0), "storage-corrupt", "The database is damaged."),
    "folder": (shutil.rmtree, "storage-failed", "is gone: it was removed"),
    "database": (remove_database, "storage-failed", "is gone: it was removed"),
    "replaced": (replace_database, "storage-failed", "is gone: it was removed"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_database_that_is_damaged_or_gone_is_told_with_its_remedy_and_never_made_anew(
    loss: str, serve: Serve, tmp_path: Path
) -> None:
    lose, code, words = LOSSES[loss]
    (tmp_path / "go").touch()
    server = serve()
    with server.client() as client:
        for number in range(30):  # pages enough
            until(client, submit(client, number), "done")
        lose(server.data)
        there = server.data.exists() and sorted(p.name for p in server.data.iterdir())
        time.sleep(health.KEPT_S + 0.1)
        ready = wait_for(lambda: not_well(client), 20, server.log.read_text)
        assert words in ready
        assert "Stop the server" in ready and "backup" in ready
        for method, path, more in (
            ("GET", "/api/v1/traces", {}), ("GET", "/api/v1/checks", {}), ("GET", "/", {}), ("GET", "/metrics", {}),
            ("POST", "/api/v1/traces", {"content": b"new"}), ("POST", "/api/v1/traces", {"content": iter([b"new"])}),
            ("POST", "/api/v1/validations", {"json": {"region": "x: f32[8]\nreturn exp(x)"}}),
        ):  # fmt: skip
            answer = client.request(method, path, **more)
            assert (answer.status_code, answer.json()["code"]) == (503, code), (method, path, answer.text)
            assert words in answer.json()["detail"]
            assert "Stop the server" in answer.json()["remedy"]
            assert "retry-after" not in answer.headers, "a second try is of no use"
        page = client.get("/", headers={"accept": "text/html"})
        assert page.status_code == 503
        assert "Stop the server" in page.text
        assert client.get("/healthz").status_code == 200
    assert (server.data.exists() and sorted(p.name for p in server.data.iterdir())) == there, "nothing is made anew"
    assert "Traceback" not in server.log.read_text()
    server.process.terminate()
    server.process.wait(20)
    assert (server.data.exists() and {p.name for p in server.data.iterdir()} <= set(there or ())) or not there


def not_well(client: httpx.Client) -> str:
    answer = client.get("/readyz")
    return str(answer.json()["detail"]) if answer.status_code == 503 else ""


def test_a_folder_of_uploads_that_is_gone_is_told_with_its_remedy(serve: Serve) -> None:
    server = serve()
    with server.client() as client:
        shutil.rmtree(server.data / "uploads")
        for content in (b"x", iter([b"x"])):
            answer = client.post("/api/v1/traces", content=content)
            assert (answer.status_code, answer.json()["code"]) == (503, "storage-failed"), answer.text
            assert "The folder of uploads is gone" in answer.json()["detail"]
            assert "Stop the server" in answer.json()["remedy"]
        assert "The folder of uploads is gone" in wait_for(lambda: not_well(client), 20)
        assert client.get("/api/v1/traces").status_code == 200, "reading goes on"
    assert not (server.data / "uploads").exists()
    assert "Traceback" not in server.log.read_text()
