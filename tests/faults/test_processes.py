"""Workers and servers killed, hung or told to stop in mid job: it is run again once, recorded once, no orphan stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.jobs.local_runner import Limits
from app.storage.store import Store
from tests.faults.conftest import Bench
from tests.faults.servers import Server, notes, submit, until
from tests.processes import alive, wait_for

Serve = Callable[..., Server]


def test_kill_9_of_the_worker_in_mid_job_runs_it_again_once(bench: Bench) -> None:
    bench.queue()
    job_id = bench.add()
    os.kill(bench.pid(), signal.SIGKILL)
    second = bench.pid(2)
    assert bench.store.job(job_id)["attempt"] == 2  # type: ignore[index]
    bench.go()
    job = bench.until(job_id, "done")
    assert job["attempt"] == 2
    assert job["result"]["outcome"] == "unmeasured"
    assert notes(bench.folder, "answers") == [str(second)]
    assert "its process was killed" in bench.said(job_id)
    assert bench.said(job_id).count("done") == 1


def test_a_worker_killed_twice_is_given_up_with_a_clear_error(bench: Bench) -> None:
    queue = bench.queue()
    job_id = bench.add()
    for number in (1, 2):
        os.kill(bench.pid(number), signal.SIGKILL)
    job = bench.until(job_id, "failed")
    assert job["attempt"] == 2
    assert job["error"]["code"] == "out-of-memory"
    assert "killed by the system" in job["error"]["message"]
    assert "tried 2 times" in job["error"]["message"]
    # The lane serves the next one, and the figures have both.
    bench.go()
    bench.until(bench.add(), "done")
    figures = queue.stats.figures()
    assert figures.again == {"validate": 1}
    assert figures.ended == {("validate", "out-of-memory"): 1, ("validate", "ok"): 1}


def test_a_worker_ended_by_sigterm_from_outside_gives_no_half_answer(bench: Bench) -> None:
    """As a host does that shuts down: the signal reaches the worker before it reaches the server."""
    bench.queue("stopped")
    job_id = bench.add()
    os.kill(bench.pid(), signal.SIGTERM)
    bench.go()
    job = bench.until(job_id, "done")
    assert (job["attempt"], job["result"]["reason"]) == (2, "no GPU")


def test_a_hung_worker_that_ignores_sigterm_ends_in_time_with_all_it_started(bench: Bench) -> None:
    bench.limits = Limits(1.0, 0.5)
    bench.queue("deaf")
    job_id = bench.add()
    pid = bench.pid()
    began = time.monotonic()
    job = bench.until(job_id, "failed")
    assert job["error"]["code"] == "timeout"
    assert time.monotonic() - began < 30  # it would sleep a minute
    assert not alive(pid)
    assert job["attempt"] == 1, "it had its time"
    bench.go()
    bench.until(bench.add(), "done")


def test_kill_9_of_the_server_in_mid_job_loses_no_job_and_leaves_no_orphan(serve: Serve) -> None:
    first = serve()
    with first.client() as client:
        job_id = submit(client)
        waiting = submit(client, 2)
        (pid,) = first.pids()
        assert client.get(f"/api/v1/jobs/{job_id}").json()["state"] == "running"
    first.kill()
    wait_for(lambda: not alive(pid), 5)
    (first.folder / "go").touch()
    second = serve()
    with second.client() as client:
        job, other = until(client, job_id, "done"), until(client, waiting, "done")
    assert (job["attempt"], other["attempt"]) == (2, 1)
    assert len(notes(first.folder, "answers")) == 2
    assert "Traceback" not in second.log.read_text()


HOLDER = """
import sys, threading
from pathlib import Path
from app.jobs.queue import Queue
from app.jobs.local_runner import Limits
from app.storage.store import Store
from tests.faults.servers import command
folder, child = Path(sys.argv[1]), sys.argv[2]
kinds = ("read", "validate", "landscape", "check")
queue = Queue(Store(f"sqlite:///{folder / 'test.db'}"), command=command(child), limits=dict.fromkeys(kinds, Limits(60)),
              checks=dict.fromkeys(kinds, lambda _: ""), logs=folder, lease_s=60)
queue.start()
threading.Event().wait()
"""


def hold(bench: Bench, child: str) -> subprocess.Popen[bytes]:
    """A process with a queue of its own on the same database."""
    return subprocess.Popen([sys.executable, "-c", HOLDER, str(bench.folder), child])


def test_kill_9_of_the_server_ends_a_worker_whose_threads_cannot_run(bench: Bench) -> None:
    bench.add()
    server = hold(bench, "busy")
    try:
        pid = bench.pid()
        time.sleep(0.3)  # it computes
    finally:
        server.kill()
        server.wait()
    wait_for(lambda: not alive(pid), 2)


def test_what_a_dead_server_left_running_is_ended_before_its_job_runs_again(bench: Bench) -> None:
    job_id = bench.add()
    server = hold(bench, "faithless")
    try:
        left = [bench.pid(1), bench.pid(2)]
    finally:
        server.kill()
        server.wait()
    assert all(alive(pid) for pid in left), "these take no notice of their server"
    bench.go()
    bench.queue("faithless")
    job = bench.until(job_id, "done")
    assert (job["attempt"], job["result"]["reason"]) == (2, "alone")
    assert not any(alive(pid) for pid in left)


def test_a_living_server_takes_up_at_once_what_a_killed_one_of_this_host_did(bench: Bench) -> None:
    job_id = bench.add()
    server = hold(bench, "hang")
    try:
        bench.pid()
        bench.queue(lease_s=60)
    finally:
        server.kill()
        server.wait()
    bench.go()
    killed = time.monotonic()
    assert bench.until(job_id, "done")["attempt"] == 2
    assert time.monotonic() - killed < 45, "not after a lease"


def test_sigterm_drains_within_the_grace_with_open_streams(serve: Serve) -> None:
    server = serve(SHUTDOWN_S=3)
    with server.client() as client:
        job_id = submit(client)
        (pid,) = server.pids()
        streams: list[list[str]] = [[] for _ in range(5)]

        def follow(lines: list[str]) -> None:
            with client.stream("GET", f"/api/v1/jobs/{job_id}/events") as stream:
                for line in stream.iter_lines():
                    lines.append(line)  # noqa: PERF402 (each as it comes: the test waits for the first)

        followers = [threading.Thread(target=follow, args=(lines,)) for lines in streams]
        for follower in followers:
            follower.start()
        wait_for(lambda: all(streams))  # all are open
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        for follower in followers:
            follower.join(60)
        assert server.process.wait(60) in (0, -signal.SIGTERM)
        assert time.monotonic() - began < 3 + 25
    assert [[line for line in lines if line.startswith("event")][-1] for lines in streams] == ["event: bye"] * 5
    assert not alive(pid)
    assert "Traceback" not in server.log.read_text()
    with closing(Store(f"sqlite:///{server.data / 'tritonworthy.db'}")) as store:
        job = store.job(job_id)
    assert job is not None
    assert (job["state"], job["attempt"]) == ("queued", 0), "given back, and the attempt does not count"


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="Linux only")
def test_a_pid_used_again_and_another_place_are_told_apart() -> None:
    from app.jobs import worker_identity

    mine = worker_identity.owner()
    place, life, rest = mine.split("/")
    assert not worker_identity.is_dead(mine)
    assert worker_identity.is_dead(f"{place}/{life.partition('.')[0]}.1/{rest}"), "the same pid in an earlier life"
    assert not worker_identity.is_dead(f"{place}x/{life.partition('.')[0]}.1/{rest}"), "nobody knows from here"
    assert not worker_identity.is_dead("host/1/boot"), "of an earlier version"
