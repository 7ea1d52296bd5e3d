"""Cancel at every stage of a job: it ends, once, soon, and what ran for it is gone."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import Any

import pytest

from app.jobs import gpu_health
from app.jobs.queue import Queue
from app.storage import job_table
from tests.faults.conftest import Bench
from tests.processes import alive, wait_for


def ends(bench: Bench, job_id: str) -> list[Any]:
    return [e for e in bench.store.events(job_id) if e["event"] == "done"]


def assert_ended_once(bench: Bench, job_id: str, *states: str) -> dict[str, Any]:
    """The job ended in one of these states, its stream said so once and last, and it has a result only if done."""
    job = bench.until(job_id, *(states or ("cancelled",)))
    events = bench.store.events(job_id)
    assert [e["event"] for e in events].count("done") == 1
    assert events[-1]["event"] == "done"
    assert events[-1]["data"]["state"] == job["state"]
    assert (job["result"] is not None and job["result"]["outcome"] is not None) == (job["state"] == "done")
    assert job["error"] is None
    return job


def test_while_it_waits(bench: Bench) -> None:
    queue = bench.queue("hang")
    running = bench.add()
    bench.pid()
    waiting = bench.add()
    assert queue.cancel(waiting)["state"] == "cancelled"  # type: ignore[index]
    assert_ended_once(bench, waiting)
    bench.go()
    bench.until(running, "done")
    assert bench.store.job(waiting)["attempt"] == 0  # type: ignore[index]


@pytest.mark.parametrize("child", ["slow", "hang", "deaf"], ids=["starting", "running", "deaf"])
def test_while_it_runs(bench: Bench, child: str) -> None:
    queue = bench.queue(child)
    job_id = bench.add()
    pid = bench.pid()
    began = time.monotonic()
    queue.cancel(job_id)
    assert_ended_once(bench, job_id)
    assert time.monotonic() - began < 20  # it would sleep a minute
    assert not alive(pid)
    wait_for(lambda: not queue.cancels, 2)  # the lane forgets it behind the job's end, which is what was waited for


def test_before_its_process_is_there(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed, go_on = threading.Event(), threading.Event()
    do = Queue._do

    def late(queue: Queue, *given: Any) -> Any:
        claimed.set()
        assert go_on.wait(10)
        return do(queue, *given)

    monkeypatch.setattr(Queue, "_do", late)
    queue = bench.queue("hang")
    job_id = bench.add()
    assert claimed.wait(10)
    assert queue.cancel(job_id)["state"] == "running"  # type: ignore[index]
    go_on.set()
    assert_ended_once(bench, job_id)


def test_while_its_result_is_stored(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, go_on = threading.Event(), threading.Event()
    store = bench.store.finish_validation

    def late(**given: Any) -> bool:
        measured.set()
        assert go_on.wait(10)
        return store(**given)

    monkeypatch.setattr(bench.store, "finish_validation", late)
    queue = bench.queue("hang")
    bench.go()
    job_id = bench.add()
    assert measured.wait(10)
    assert queue.cancel(job_id)["state"] == "running"  # type: ignore[index]
    go_on.set()
    # It came too late: what was measured is kept.
    assert_ended_once(bench, job_id, "done")
    assert queue.cancel(job_id)["state"] == "done"  # type: ignore[index]
    assert len(ends(bench, job_id)) == 1


def test_while_it_waits_to_be_done_again(bench: Bench) -> None:
    queue = bench.queue("hang")
    job_id = bench.add()
    pid = bench.pid()
    queue.gpu.suspicion = gpu_health.Suspicion("a test holds the lane", "now")  # after this job
    queue.gpu.next_ask = float("inf")
    os.kill(pid, signal.SIGKILL)
    bench.until(job_id, "queued")
    queue.cancel(job_id)
    assert assert_ended_once(bench, job_id)["attempt"] == 1


def test_and_the_worker_is_killed_at_the_same_time(bench: Bench) -> None:
    queue = bench.queue("slow")
    job_id = bench.add()
    pid = bench.pid()
    with bench.store.database.write() as connection:
        assert job_table.cancel(connection, job_id) == "running"  # as another server does it
    os.kill(pid, signal.SIGKILL)
    assert_ended_once(bench, job_id)
    assert queue.stats.figures().again == {}


def test_from_another_server(bench: Bench) -> None:
    bench.queue("slow")
    job_id = bench.add()
    pid = bench.pid()
    other = bench.queue("slow", start=False)
    began = time.monotonic()
    assert other.cancel(job_id)["state"] == "running"  # type: ignore[index]
    assert_ended_once(bench, job_id)
    assert time.monotonic() - began < 20
    assert not alive(pid)
    assert not other.cancels


def test_and_the_server_stops(bench: Bench) -> None:
    queue = bench.queue("slow")
    job_id = bench.add()
    bench.pid()
    with bench.store.database.write() as connection:
        job_table.cancel(connection, job_id)
    queue.stop()
    assert_ended_once(bench, job_id)


def test_at_any_moment(bench: Bench) -> None:
    """Forty short jobs, each cancelled at a moment of its own."""
    random.seed(9)
    queue = bench.queue("numbered")
    ids = []
    for number in range(40):
        ids.append(bench.add(number=number))
        threading.Timer(random.uniform(0, 0.15 * (number + 1)), queue.cancel, [ids[-1]]).start()
    wait_for(lambda: all(bench.store.job_state(i) in job_table.FINAL for i in ids), 40)
    states = [assert_ended_once(bench, i, "done", "cancelled")["state"] for i in ids]
    assert set(states) == {"done", "cancelled"}
    assert not (bench.folder / "twice").exists()
    assert not queue.active
    wait_for(lambda: not queue.cancels, 5)
