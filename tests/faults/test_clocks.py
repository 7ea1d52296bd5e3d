"""Clocks that jump: a lease is neither lost by a living server nor kept for ever by a dead one."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.jobs import worker_identity
from app.jobs.leases import Leases
from app.storage.job_table import Lease
from app.web.server.metrics import age_s
from tests.faults.conftest import Bench
from tests.processes import alive, wait_for

DAY_S = 86400.0

ELSEWHERE = """
import sys, threading, time
from pathlib import Path
folder = Path(sys.argv[1])
real = time.time
time.time = lambda: real() + float((folder / "offset").read_text())  # the clock of this host, set at any moment
from app.jobs import worker_identity
worker_identity.here = lambda: "another host~boot~1"
from app.jobs.queue import Queue
from app.jobs.local_runner import Limits
from app.storage.store import Store
from tests.faults.servers import command
kinds = ("read", "validate", "landscape", "check")
store = Store(f"sqlite:///{folder / 'test.db'}")
queue = Queue(store, command=command("hang"), limits=dict.fromkeys(kinds, Limits(60)),
              checks=dict.fromkeys(kinds, lambda _: ""), logs=folder, lease_s=3)
queue.start()
threading.Event().wait()
"""


def elsewhere(bench: Bench, offset_s: float) -> tuple[subprocess.Popen[bytes], Callable[[float], None]]:
    """A server of another host on the same database, and what sets its clock: so many seconds from the real time."""

    def set_clock(seconds: float) -> None:
        other = bench.folder / "offset.new"
        other.write_text(str(seconds))
        other.rename(bench.folder / "offset")

    set_clock(offset_s)
    return subprocess.Popen([sys.executable, "-c", ELSEWHERE, str(bench.folder)]), set_clock


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S], ids=["forward", "backward"])
def test_a_clock_that_jumps_takes_no_job_from_a_living_server_and_frees_that_of_a_dead_one(
    bench: Bench, jump_s: float
) -> None:
    job_id = bench.add()
    server, set_clock = elsewhere(bench, -jump_s)  # its clock and ours are a day apart to begin with
    try:
        bench.pid()
        bench.queue("hang", lease_s=3)
        time.sleep(1)
        set_clock(jump_s)
        time.sleep(4)
        job = bench.store.job(job_id)
        assert job is not None
        assert (job["state"], job["attempt"]) == ("running", 1), "it was taken from a server that lives"
    finally:
        server.kill()
        server.wait()
    killed = time.monotonic()
    bench.go()
    assert bench.until(job_id, "done")["attempt"] == 2
    assert time.monotonic() - killed < 10, "it was kept for a server that is dead"


def test_a_lease_is_over_when_it_stood_still_for_a_whole_lease_before_our_own_eyes() -> None:
    now = [0.0]
    leases = Leases(10, clock=lambda: now[0])
    still, renewed = Lease("a", "x", 1, 1e18), Lease("b", "x", 1, -1e18)
    assert leases.over([still, renewed]) == []
    now[0] = 9
    assert leases.over([still, renewed]) == []
    now[0] = 10.5
    assert leases.over([still, renewed._replace(until=-2e18)]) == [still], "also one that was set back is renewed"
    # Another attempt is another lease, and what ended is forgotten.
    assert leases.over([still._replace(attempt=2)]) == []
    assert leases.over([still]) == []


def test_a_clock_that_jumps_ends_no_waiting_job(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = bench.queue(start=False, queue_timeout_s=DAY_S / 2)
    job_id = bench.add()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + DAY_S)
    queue._expire()
    assert bench.store.job_state(job_id) == "queued"
    queue.clocks, queue.expire_again = (queue.clocks[0], queue.clocks[1] - DAY_S), 0.0  # it has run for a day
    queue._expire()
    assert bench.store.job_state(job_id) == "failed"


def freeze(server: subprocess.Popen[bytes], bench: Bench) -> None:
    """SIGSTOP where it is in no transaction: one that holds SQLite's lock would keep everybody out, by design."""
    deadline = time.monotonic() + 120
    while True:
        server.send_signal(signal.SIGSTOP)
        wait_for(lambda: stands_still(server.pid))  # the signal is on its way: a thread may begin one meanwhile
        try:
            with closing(sqlite3.connect(str(bench.store.database.engine.url.database), timeout=0.5)) as other:
                other.execute("BEGIN IMMEDIATE")
                other.rollback()
            return
        except sqlite3.OperationalError:
            assert time.monotonic() < deadline
            server.send_signal(signal.SIGCONT)
            time.sleep(0.02)


def stands_still(pid: int) -> bool:
    """Whether every thread of a process is stopped."""
    states = [p.read_text().rpartition(")")[2].split()[0] for p in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


def test_a_server_that_was_stopped_gives_its_job_up(bench: Bench) -> None:
    """SIGSTOP, a virtual machine that is frozen: its job runs elsewhere, and what it says later is not heard."""
    job_id = bench.add()
    server, _ = elsewhere(bench, 0)
    try:
        first = bench.pid()
        freeze(server, bench)
        bench.queue("hang", lease_s=3)
        second = bench.pid(2)
        server.send_signal(signal.SIGCONT)
        wait_for(lambda: not alive(first), 30, "it goes on next to the second")
        bench.go()
        job = bench.until(job_id, "done")
    finally:
        server.kill()
        server.wait()
    assert job["attempt"] == 2
    assert (bench.folder / "answers").read_text().split() == [str(second)]
    assert bench.said(job_id).count("done") == 1


def test_ages_are_never_negative() -> None:
    assert age_s(None) == 0
    assert age_s("2999-01-01T00:00:00.000000Z") == 0
    assert age_s("2020-01-01T00:00:00.000000Z") > DAY_S


def test_owners_of_another_host_are_never_known_to_be_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = worker_identity.owner()
    monkeypatch.setattr(worker_identity, "here", lambda: "another host~boot~1")
    assert not worker_identity.is_dead(mine.replace(".", ".9", 1))
