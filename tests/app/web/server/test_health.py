"""/readyz tells the truth, and cheaply; /healthz asks nobody."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.web.server import health
from app.web.server.health import Check, Health
from tests.app.web.conftest import Serving, serving
from tests.processes import wait_for


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("health"), "trace") as server:
        yield server


def wrong(web: Serving, **more: Any) -> tuple[str, ...]:
    """What a Health without memory finds, with parts of the state replaced."""
    names = ("store", "settings", "queue", "service", "closing")
    return Health(SimpleNamespace(**{name: getattr(web.state, name) for name in names} | more))().wrong


def test_a_healthy_server_is_ready(web: Serving) -> None:
    assert wrong(web) == ()
    answer = web.client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() | {"advice_warm": True} == {"status": "ok", "warnings": [], "advice_warm": True}


def test_a_dead_lane_is_not_ready(web: Serving) -> None:
    thread = SimpleNamespace(is_alive=lambda: False)
    threads = web.state.queue.threads
    threads.append(thread)
    try:
        assert wrong(web) == ("the queue does not run",)
    finally:
        threads.remove(thread)


def test_a_disk_below_the_minimum_is_not_ready(web: Serving) -> None:
    settings = web.state.settings.model_copy(update={"min_free_disk_bytes": 1 << 60})
    assert wrong(web, settings=settings) == ("There is no room left for uploads on this server.",)


def test_a_data_folder_that_is_gone_is_not_ready(web: Serving, tmp_path: Path) -> None:
    settings = web.state.settings.model_copy(update={"data_dir": tmp_path / "gone", "shared_dir": web.folder})
    assert wrong(web, settings=settings) == ("the data folder cannot be written: No such file or directory",)


def test_a_result_that_waits_for_the_disk_is_not_ready(web: Serving) -> None:
    web.state.queue.trouble = "the database cannot be written: database or disk is full"
    try:
        assert wrong(web) == ("a result waits to be stored",)
    finally:
        web.state.queue.trouble = ""


def test_workers_that_are_stuck_are_told_of_and_a_server_with_no_other_is_not_ready(web: Serving) -> None:
    pool = web.state.service.pool
    wait_for(lambda: len(pool.idle) == pool.size == 2, 120)
    with pool.changed:  # as one is that was killed and does not end
        taken, pool.idle = pool.idle, []
        for number, member in enumerate(taken, 1):
            member.deadline = time.monotonic() - 60
            pool.busy.append(member)
            found = Health(web.state)()
            if number < pool.size:
                assert (found.wrong, found.warnings) == ((), ("1 of 2 processes that advise are stuck",))
        assert found.wrong == ("every process that advises on regions is stuck",)
        for member in taken:
            member.deadline = None
        pool.idle, pool.busy = taken, []
    web.state.queue.stuck["read"] = 4711
    try:
        assert Health(web.state)().warnings == ("process 4711 does not end: no read jobs until it does",)
    finally:
        web.state.queue.stuck.clear()
    assert Health(web.state)() == health.Readiness()


def test_a_process_of_the_oracle_that_does_not_end_is_told_of(web: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web.state.service, "oracle", SimpleNamespace(stuck=lambda: [4711, 4712]))
    found = Health(web.state)()
    assert (found.wrong, len(found.warnings)) == ((), 1) and "4711, 4712 do not end" in found.warnings[0]


def test_a_server_that_stops_is_not_ready(web: Serving) -> None:
    assert wrong(web, closing=SimpleNamespace(is_set=lambda: True)) == ("the server is stopping",)


def test_an_answer_is_asked_for_once_a_second(web: Serving) -> None:
    looked: list[float] = []
    now = [0.0]

    def counted() -> str:
        looked.append(now[0])
        return ""

    found = Health(web.state, clock=lambda: now[0])
    found.add(Check("counted", counted))
    for now[0] in (0.0, 0.2, 0.9, 1.0, 1.5, 2.1):
        assert found().wrong == ()
    assert looked == [0.0, 1.0, 2.1]


def test_parts_of_the_server_add_checks_of_their_own(web: Serving) -> None:
    found = Health(web.state)
    found.add(Check("workers", lambda: "2 of 4 workers are stuck"))
    found.add(Check("age", lambda: "this is an old server", fatal=False))
    found.add(Check("well", lambda: ""))
    assert found() == health.Readiness(("2 of 4 workers are stuck",), ("this is an old server",))


def test_a_check_that_fails_itself_is_told_and_hides_no_other(web: Serving, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str:
        raise RuntimeError("secret detail")

    found = Health(web.state)
    found.add(Check("workers", broken))
    found.add(Check("more", lambda: "more is wrong"))
    assert found().wrong == ("the check of workers failed: the log says why", "more is wrong")
    assert "secret detail" in caplog.text


def test_healthz_is_cheap_and_answers_while_the_database_hangs(web: Serving) -> None:
    with web.state.store.database.write():
        began = time.monotonic()
        for _ in range(50):
            assert web.client.get("/healthz").json() == {"status": "ok"}
        assert time.monotonic() - began < 15
