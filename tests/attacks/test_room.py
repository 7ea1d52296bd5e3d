"""Row "disk full", and the promises that go with it: quota, least free disk, retention, what one client may take."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.main import create_app
from app.rate_limit import Rates, client_name
from app.settings import Settings
from app.storage import links
from app.web.server import retention
from tests.app.storage.validations import add_validation
from tests.app.web.conftest import serving
from tests.attacks.process import running
from tests.processes import wait_for

MIB = 1024 * 1024

_number = itertools.count(1)


def good() -> bytes:
    """A body that is a trace to JSON, and another one each time: the same bytes are not stored twice."""
    return b'{"traceEvents": []}' + b" " * next(_number)


REGION = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"


def healthy(client: httpx.Client, folder: Path) -> None:
    """The next upload works, the database is whole, and every file belongs to a trace."""
    answer = client.post("/api/v1/traces", content=good())
    assert answer.status_code == 201, answer.text
    with sqlite3.connect(folder / "tritonworthy.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        traces = {row[0] for row in connection.execute("SELECT file FROM traces")}
    connection.close()
    assert {path.name for path in (folder / "uploads").iterdir()} <= traces


def test_disk_full_by_the_size_of_a_file_is_507_and_the_next_upload_works(tmp_path: Path) -> None:
    """RLIMIT_FSIZE: the write itself fails, whatever was checked before it."""
    with running(tmp_path, file_bytes=3 * MIB) as server:
        for body in ({"content": bytes(8 * MIB)}, {"files": {"file": ("x", bytes(8 * MIB))}}):
            response = server.client.post("/api/v1/traces", **body)  # type: ignore[arg-type]
            assert (response.status_code, response.json()["code"]) == (507, "disk-full"), response.text
            healthy(server.client, server.folder)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of that size; skips where none may be mounted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def test_disk_full_on_a_small_disk_is_507_and_the_next_upload_works(tmp_path: Path) -> None:
    """No room is kept free here, so that the disk is filled to its last byte; the database is on it too."""
    with small_disk(tmp_path / "disk", 6 * MIB) as disk, serving(disk, "trace", min_free_disk_bytes=0) as server:
        said = server.client.post("/api/v1/traces", content=bytes(16 * MIB))
        assert (said.status_code, said.json()["code"]) == (507, "disk-full")
        healthy(server.client, disk)
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file:  # now nothing is left, not even for a row
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        # SQLite's own pages may take some rows yet.
        answers = [server.client.post("/api/v1/traces", content=bytes(3000) + good()) for _ in range(50)]
        refused = [a for a in answers if a.status_code != 201]
        assert refused
        assert {(a.status_code, a.json()["code"]) for a in refused} == {(507, "disk-full")}
        assert server.client.get("/healthz").status_code == 200
        filler.unlink()
        healthy(server.client, disk)


def test_least_free_disk_is_kept_free(tmp_path: Path) -> None:
    more = shutil.disk_usage(tmp_path).free + 1000 * MIB
    with serving(tmp_path, "trace", min_free_disk_bytes=more) as server:
        for body in ({"content": good()}, {"files": {"file": ("x", good())}}):
            response = server.client.post("/api/v1/traces", **body)  # type: ignore[arg-type]
            assert (response.status_code, response.json()["code"]) == (507, "disk-full")
        assert server.client.get("/readyz").status_code == 503
        assert server.files() == []


def test_quota_of_all_uploads_holds_and_deleting_makes_room(tmp_path: Path) -> None:
    with serving(tmp_path, "trace", max_stored_bytes=3 * MIB) as web:
        made = [web.client.post("/api/v1/traces?wait=20", content=bytes(MIB) + good()) for _ in range(3)]
        assert [r.status_code for r in made] == [201, 201, 507]
        assert made[2].json()["code"] == "quota-full"
        chunked = web.client.post("/api/v1/traces", content=iter([bytes(MIB)] * 40))
        assert chunked.status_code == 507
        assert len(web.files()) == 2
        assert web.client.delete(f"/api/v1/traces/{made[0].json()['id']}").status_code == 204
        assert web.client.post("/api/v1/traces", content=bytes(MIB) + good()).status_code == 201


DAY_S = 24 * 3600.0


@pytest.fixture(autouse=True)
def own_temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention is told of days ahead here: what other tests work in is not to be taken for old."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))


def test_temporary_folders_of_killed_validations_go_and_nothing_else(tmp_path: Path) -> None:
    left, working, others = (tmp_path / f"tritonworthy-{name}" for name in ("turn-a", "turn-b", "0"))
    for folder in (left, working, others):
        folder.mkdir()
        (folder / "turn").write_bytes(b"")
    linked = tmp_path / "tritonworthy-turn-c"
    linked.symlink_to(others)
    for folder in (left, others):
        os.utime(folder, (1e9, 1e9))
    assert retention.remove_left_folders(tmp_path, time.time() - DAY_S) == 1
    assert sorted(tmp_path.iterdir()) == sorted([working, others, linked])
    assert (others / "turn").exists()


def test_retention_removes_what_is_old_and_nothing_else(tmp_path: Path) -> None:
    with serving(tmp_path, "trace", keep_days=10, keep_logs_days=3) as web:
        trace = web.client.post("/api/v1/traces?wait=20", content=good()).json()
        region = web.state.store.add_region({"name": "written", "text": REGION, "advice": {}})
        link = links.put(
            web.state.store.database,
            {"region": REGION, "share_of_step": None, "calls_per_step": 1.0, "device": None},
        )
        validation = add_validation(
            web.state.store, name="ours", region=REGION, region_id=None, request={"region": REGION}, cap=8
        )[0]
        web.state.queue.wake("validate")
        deadline = time.monotonic() + 120
        while web.client.get(f"/api/v1/jobs/{validation}").json()["state"] != "done":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (tmp_path / "uploads" / ("o" * 26)).write_bytes(b"nobody's")
        now = time.time()
        assert retention.sweep(web.state, now) == retention.Swept()
        assert retention.sweep(web.state, now + 2 * DAY_S) == retention.Swept(orphans=1)
        said = [e["event"] for e in web.state.store.events(validation)]
        assert said.count("progress") > 1 and said[-1] == "done"
        swept = retention.sweep(web.state, now + 4 * DAY_S)
        assert swept.logs >= 2 and swept.progress >= said.count("progress")
        assert [e["event"] for e in web.state.store.events(validation)] == ["done"]
        stream = web.client.get(f"/api/v1/jobs/{validation}/events").text
        assert "event: done" in stream and "event: progress" not in stream
        assert trace["id"] in web.files()
        found = retention.sweep(web.state, now + 11 * DAY_S)
        assert (found.traces, found.regions, found.links) == (1, 1, 1)
        assert web.client.get(f"/api/v1/links/{link}").status_code == 404
        assert web.files() == []
        assert web.client.get(f"/api/v1/traces/{trace['id']}").status_code == 404
        assert web.client.get(f"/api/v1/regions/{region}").status_code == 404
        assert web.client.get(f"/api/v1/validations/{validation}").json()["outcome"] == "unmeasured"


def test_retention_keeps_everything_by_default_and_after_a_jump_of_the_clock(tmp_path: Path) -> None:
    wall = [time.time()]
    with serving(tmp_path, "trace") as web:
        web.client.post("/api/v1/traces?wait=20", content=good())
        assert retention.sweep(web.state, wall[0] + 1e5 * DAY_S).traces == 0
        assert len(web.files()) == 1
        watch = retention.Retention(web.state, lambda: wall[0])
        assert watch.clock_is_steady()
        wall[0] += 400 * DAY_S
        assert not watch.clock_is_steady()
        assert watch.clock_is_steady()
        assert web.state.retention.thread.is_alive()


def test_a_folder_that_is_gone_ends_a_sweep_with_a_line_and_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path, "trace") as web:
        shutil.rmtree(tmp_path / "uploads")
        watch = retention.Retention(web.state)
        watch.start()
        wait_for(lambda: "the sweep ended early" in caplog.text, 20)
        watch.stop()
    assert "Traceback" not in caplog.text


def test_retention_leaves_what_a_waiting_job_needs(tmp_path: Path) -> None:
    with serving(tmp_path, "hang", keep_days=1) as web:
        web.client.post("/api/v1/traces", content=good())
        form = {"file": ("a.json", good())}
        web.client.post("/api/v1/checks", files=form)
        before = web.files()
        assert len(before) == 2
        assert retention.sweep(web.state, time.time() + 30 * DAY_S).traces == 0
        assert web.files() == before


def test_retention_leaves_an_old_file_that_has_just_been_given_a_second_name(tmp_path: Path) -> None:
    """A trace that is read again shares its file, whose bytes may be a year old, while its companions still come."""
    with serving(tmp_path, "trace") as web:
        old, new = (tmp_path / "uploads" / (letter * 26) for letter in "on")
        old.write_bytes(good())
        os.utime(old, (0, 0))
        os.link(old, new)
        assert retention.sweep(web.state, time.time()).orphans == 0
        assert new.exists()
        assert retention.sweep(web.state, time.time() + 2 * DAY_S).orphans == 2


# --------------------------------------------------------------------------------------------- what one client may take


@pytest.fixture
def exposed(tmp_path: Path) -> Iterator[Any]:
    """Clients by their address, of a server that is reached from elsewhere."""
    settings = Settings(
        data_dir=tmp_path, oracle="off", allowed_hosts="testserver", client_queue_cap=3, requests_per_minute=20,
        queue_cap=8,
    )  # fmt: skip
    application = create_app(settings)  # not started: nothing is taken from the queue

    def ask(address: str, method: str, path: str, content: bytes = b"") -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(application, client=(address, 1234))
            async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
                return await client.request(method, path, content=content)

        return asyncio.run(asked())

    yield ask
    application.state.store.close()


def test_one_clients_share_of_the_queue_leaves_room_for_others(exposed: Any) -> None:
    def upload(address: str) -> int:
        response = exposed(address, "POST", "/api/v1/traces", good())
        assert response.status_code == 201 or (response.json()["code"], response.headers["retry-after"]) == (
            "queue-full", "60",
        )  # fmt: skip
        return int(response.status_code)

    assert [upload("203.0.113.7") for _ in range(5)] == [201, 201, 201, 429, 429]
    assert upload("203.0.113.8") == 201
    assert [upload("127.0.0.1") for _ in range(5)] == [201] * 4 + [429], "loopback has the whole queue, and no more"


def test_one_clients_rate_is_limited_and_told_in_headers(exposed: Any) -> None:
    answers = [exposed("203.0.113.9", "GET", "/healthz") for _ in range(22)]
    assert [a.status_code for a in answers[:20]] == [200] * 20
    assert answers[0].headers["ratelimit-policy"] == '"client";q=20;w=60'
    assert answers[0].headers["ratelimit"] == '"client";r=19;t=0'
    last = answers[-1]
    assert (last.status_code, last.json()["code"]) == (429, "too-many-requests")
    assert 1 <= int(last.headers["retry-after"]) <= 4
    assert last.headers["content-security-policy"]
    assert exposed("203.0.113.10", "GET", "/healthz").status_code == 200
    assert {exposed("127.0.0.1", "GET", "/healthz").status_code for _ in range(40)} == {200}


def test_rates_refill_evenly_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from app import rate_limit

    clock = [0.0]
    rates = Rates(60, lambda: clock[0])
    assert [rates.take("a").allowed for _ in range(61)] == [True] * 60 + [False]
    clock[0] += 2.0
    assert [rates.take("a").allowed for _ in range(3)] == [True, True, False]
    clock[0] += 1e6
    assert rates.take("a").left == 59
    monkeypatch.setattr(rate_limit, "MOST_CLIENTS", 10)
    for number in range(100):
        rates.take(str(number))
    assert len(rates.buckets) == 10


@pytest.mark.parametrize(
    ("address", "same", "as_one"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:203.0.113.7", "203.0.113.7", True),
        ("203.0.113.7", "203.0.113.8", False),
    ],
)
def test_a_client_is_an_address_or_a_subscribers_network(address: str, same: str, as_one: bool) -> None:
    names = [client_name({"client": (a, 1)}) for a in (address, same)]
    assert all(names)
    assert (names[0] == names[1]) == as_one
    assert address not in str(names)


@pytest.mark.parametrize(
    "peer", [None, ("127.0.0.1", 1), ("127.8.8.8", 1), ("::1", 1), ("::ffff:127.0.0.1", 1), ("x", 1)]
)
def test_loopback_is_no_client(peer: Any) -> None:
    assert client_name({"client": peer}) is None


def test_the_data_folder_is_its_owners_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        create_app(Settings(data_dir=tmp_path / "data", oracle="off")).state.store.close()
    finally:
        os.umask(old)
    for folder in (tmp_path / "data", tmp_path / "data" / "uploads", tmp_path / "data" / "logs"):
        assert folder.stat().st_mode & 0o077 == 0, folder
