"""The queue: one job at a time per kind, every end recorded once, nothing lost when a server or a child dies."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.jobs import worker_identity
from app.jobs.local_runner import Limits
from app.jobs.queue import Queue
from app.storage import job_table
from app.storage.database import Database
from app.storage.store import Store
from tests.app.storage.validations import add_validation
from tests.processes import alive, wait_for

CHILDREN = Path(__file__).with_name("children.py")
ANSWER = {
    "outcome": "unmeasured",
    "reason": "no GPU",
    "region": "x: f32[4]\nreturn x\n",
    "candidates": [],
}


class Bench:
    """A store and a queue whose children are chosen by the test."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.store = Store(url)
        self.child = "answer"
        self.timeout_s = 20.0
        self.queues: list[Queue] = []

    def queue(self, *, lease_s: float = 10.0) -> Queue:
        limits = Limits(self.timeout_s, 0.3)
        queue = Queue(
            self.store,
            command=lambda _: [sys.executable, str(CHILDREN), self.child, "{fd}"],
            limits={"read": limits, "validate": limits},
            checks={"read": lambda _: "", "validate": lambda answer: "" if "outcome" in answer else "no outcome"},
            logs=self.folder,
            lease_s=lease_s,
        )
        self.queues.append(queue)
        return queue

    def add(self, cap: int = 8, **request: Any) -> str:
        job_id = add_validation(self.store, name="r", region="x", region_id=None, request=request, cap=cap)[0]
        for queue in self.queues:
            queue.wake("validate")
        return job_id

    def until(self, job_id: str, *states: str, seconds: float = 120) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while (job := self.store.job(job_id)) is None or job["state"] not in states:
            assert time.monotonic() < deadline, f"still {job}"
            time.sleep(0.02)
        return job


@pytest.fixture
def bench(tmp_path: Path, database_url: str) -> Iterator[Bench]:
    bench = Bench(tmp_path, database_url)
    yield bench
    for queue in bench.queues:
        queue.stop()
    bench.store.close()


def test_done_with_its_result_and_the_stream_of_events(bench: Bench) -> None:
    queue = bench.queue()
    queue.start()
    job_id = bench.add(answer=ANSWER)
    queue.wake("validate")
    job = bench.until(job_id, "done")
    assert job["result"]["outcome"] == "unmeasured"
    assert job["result"]["id"] == job_id
    assert job["attempt"] == 1
    events = bench.store.events(job_id)
    assert [e["event"] for e in events] == ["progress", "progress", "done"]
    assert [e["seq"] for e in events] == [1, 2, 3]
    assert bench.store.events(job_id, after=2) == events[2:]


@pytest.mark.parametrize(("child", "code"), [("abort", "fault"), ("garbage", "bad-output"), ("ok", "bad-output")])
def test_a_crash_a_lie_and_a_senseless_answer_fail_the_job_and_not_the_lane(
    bench: Bench, child: str, code: str
) -> None:
    bench.child = child
    queue = bench.queue()
    queue.start()
    first = bench.add()
    job = bench.until(first, "failed")
    assert job["error"]["code"] == code
    assert job["result"] is None
    assert bench.store.validation(first)["outcome"] is None  # type: ignore[index]
    bench.child = "answer"
    second = bench.add(answer=ANSWER)
    assert bench.until(second, "done")


def test_a_hanging_child_times_out(bench: Bench) -> None:
    bench.child, bench.timeout_s = "sleep", 0.8
    queue = bench.queue()
    queue.start()
    job = bench.until(bench.add(pid_file=str(bench.folder / "pid")), "failed")
    assert job["error"]["code"] == "timeout"


def test_cancel_queued_and_running(bench: Bench) -> None:
    bench.child = "sleep"
    queue = bench.queue()
    queue.start()
    pid_file = bench.folder / "pid"
    running = bench.add(pid_file=str(pid_file))
    waiting = bench.add(pid_file=str(pid_file))
    wait_for(pid_file.exists, 10)
    assert queue.cancel(waiting)["state"] == "cancelled"  # type: ignore[index]
    # What runs ends by itself, mostly after the answer.
    assert queue.cancel(running)["state"] in ("running", "cancelled")  # type: ignore[index]
    job = bench.until(running, "cancelled")
    assert job["error"] is None
    assert job["attempt"] == 1
    assert job["progress"]["phase"] == "cancelled"
    assert not Path(f"/proc/{pid_file.read_text()}").exists()
    assert [e["event"] for e in bench.store.events(waiting)] == ["progress", "done"]
    # What has ended stays as it is.
    assert queue.cancel(running)["state"] == "cancelled"  # type: ignore[index]
    assert queue.cancel("a" * 26) is None


def test_a_child_that_answers_after_the_cancel_or_ignores_it_is_cancelled_soon(bench: Bench) -> None:
    queue = bench.queue()
    queue.limits["validate"] = Limits(20, 30)  # however long the grace of a child that is out of time
    queue.start()
    for child in ("polite", "stubborn"):
        bench.child = child
        pid_file = bench.folder / child
        job_id = bench.add(pid_file=str(pid_file))
        wait_for(pid_file.exists, 10)
        queue.cancel(job_id)
        asked = time.monotonic()
        job = bench.until(job_id, "cancelled")
        assert time.monotonic() - asked < 15  # its limit is 20 s, its grace 30
        assert (job["progress"]["phase"], job["result"]) == ("cancelled", None)


def test_the_cap_holds_and_leaves_nothing_behind(bench: Bench) -> None:
    for _ in range(3):
        bench.add(cap=3)
    with pytest.raises(job_table.QueueFullError):
        bench.add(cap=3)
    assert len(bench.store.validations()["items"]) == 3


def test_an_upload_does_not_wait_for_a_validation(bench: Bench) -> None:
    bench.child = "sleep"
    queue = bench.queue()
    queue.start()
    pid_file = bench.folder / "pid"
    validation = bench.add(pid_file=str(pid_file))
    wait_for(pid_file.exists, 10)
    bench.child = "answer"
    trace_id = "t" * 26
    bench.store.add_trace(
        trace_id=trace_id, name="t", sha256="", size=1, file="f", request={"answer": {"regions": []}}, cap=8
    )
    queue.wake("read")
    bench.until(trace_id, "done")
    assert bench.store.job_state(validation) == "running"


def test_stopping_gives_the_job_back_and_the_next_server_does_it(bench: Bench) -> None:
    bench.child = "sleep"
    first = bench.queue()
    first.start()
    pid_file = bench.folder / "pid"
    job_id = bench.add(pid_file=str(pid_file), answer=ANSWER)
    wait_for(pid_file.exists, 10)
    first.stop()
    assert bench.store.job_state(job_id) == "queued"
    assert not Path(f"/proc/{pid_file.read_text()}").exists()
    bench.child = "answer"
    bench.queue().start()
    # Stopping was not the job's fault: it is still the first attempt.
    assert bench.until(job_id, "done")["attempt"] == 1


def claim(store: Store, owner: str, lease_s: float = 60) -> dict[str, Any] | None:
    with store.database.write() as connection:
        return job_table.claim(connection, kind="validate", owner=owner, lease_s=lease_s)


def test_a_server_of_this_host_that_is_gone_is_noticed_at_once(bench: Bench) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    dead = worker_identity.owner(child.pid)
    assert not worker_identity.is_dead(dead)
    child.communicate()
    job_id = bench.add(answer=ANSWER)
    assert claim(bench.store, dead)
    bench.queue().start()
    assert bench.until(job_id, "done")["attempt"] == 2


def test_a_lease_that_runs_out_is_taken_over_and_the_late_answer_is_refused(bench: Bench) -> None:
    job_id = bench.add(answer=ANSWER)
    late = claim(bench.store, "elsewhere/1/boot", lease_s=0.05)
    assert late is not None
    bench.queue(lease_s=0.5).start()
    assert bench.until(job_id, "done")["attempt"] == 2
    stored = bench.store.finish_validation(
        job_id=job_id, owner="elsewhere/1/boot", attempt=late["attempt"], validation={**ANSWER, "outcome": "confirmed"}
    )
    assert not stored
    assert bench.store.validation(job_id)["outcome"] == "unmeasured"  # type: ignore[index]


def test_a_job_that_kills_its_server_twice_is_given_up(bench: Bench) -> None:
    job_id = bench.add(answer=ANSWER)
    for attempt in (1, 2):
        job = claim(bench.store, "elsewhere/1/boot", lease_s=-1)
        assert job is not None
        assert job["attempt"] == attempt
        with bench.store.database.write() as connection:
            again, given_up = job_table.take_back(connection, job_table.leases_unchanged(job_table.running(connection)))
        assert (again, given_up) == (([job_id], []) if attempt == 1 else ([], [job_id]))
    assert bench.store.job(job_id)["error"]["code"] == "worker-lost"  # type: ignore[index]


def test_two_claimers_never_get_the_same_job(bench: Bench) -> None:
    wanted = {bench.add(cap=99) for _ in range(20)}
    other = Store(bench.url)
    taken = []
    while (job := claim(bench.store, "a")) and (second := claim(other, "b")):
        taken += [job["id"], second["id"]]
    other.close()
    assert len(taken) == 20
    assert set(taken) == wanted


SERVER = """
import sys
from pathlib import Path
from app.jobs.queue import Queue
from app.jobs.local_runner import Limits
from app.storage.store import Store
folder, children, url = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
limits = Limits(30, 1)
store = Store(url)
queue = Queue(store, command=lambda _: [sys.executable, children, "faithful", "{fd}"],
              limits={"read": limits, "validate": limits}, checks={"read": str, "validate": str},
              logs=folder, lease_s=9)
queue.start()
print("up", flush=True)
sys.stdin.read()
"""


def test_kill_9_of_the_server_leaves_no_child_and_loses_no_job(bench: Bench) -> None:
    pid_file = bench.folder / "pid"
    job_id = bench.add(pid_file=str(pid_file), answer=ANSWER)
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(bench.folder), str(CHILDREN), bench.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        wait_for(pid_file.exists, 20)
    finally:
        server.send_signal(signal.SIGKILL)
        server.communicate()
    pid = int(pid_file.read_text())
    wait_for(lambda: not alive(pid), 5)
    assert bench.store.job_state(job_id) == "running"
    bench.queue().start()
    assert bench.until(job_id, "done")["attempt"] == 2


def test_wait_returns_when_the_job_has_ended(bench: Bench) -> None:
    queue = bench.queue()
    queue.start()
    job_id = bench.add(answer=ANSWER)
    queue.wake("validate")
    started = time.monotonic()
    asyncio.run(queue.wait(job_id, 20))
    assert bench.store.job_state(job_id) == "done"
    asyncio.run(queue.wait("a" * 26, 20))
    assert time.monotonic() - started < 10


def test_a_locked_database_delays_and_loses_nothing(bench: Bench) -> None:
    job_id = bench.add(answer=ANSWER)
    with closing(Database(bench.url)) as other, other.write() as connection:
        if other.engine.dialect.name == "postgresql":  # SQLite's has been locked as a whole by now
            connection.exec_driver_sql("LOCK TABLE jobs IN EXCLUSIVE MODE")
        bench.queue().start()
        time.sleep(0.5)
        assert bench.store.job_state(job_id) == "queued"
    assert bench.until(job_id, "done")["attempt"] == 1


def test_requests_are_kept_as_they_were(bench: Bench) -> None:
    request = {"answer": ANSWER, "text": "é\u0000\u2028"}
    bench.add(**request)
    job = claim(bench.store, "a")
    assert job is not None
    assert json.loads(json.dumps(job["request"])) == request
