"""The contract of a runner, held by both: whatever a child, its host or the server does, each job ends once.

Ray's side is a real cluster of three hosts on this machine; the children are real processes on both sides.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import app
from app.jobs.exit_reason import Ended, ExitReason
from app.jobs.local_runner import Limits, LocalRunner
from app.jobs.protocol import Runner
from app.jobs.queue import Queue
from app.storage.store import Store
from tests.app.jobs.ray.cluster import H200, MI300X, Fleet, command
from tests.app.storage.validations import add_validation
from tests.processes import alive, wait_for

JOBS = "../children.py"
Run = Callable[..., Ended]


@pytest.fixture(params=["local", "ray"])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    if request.param == "ray":
        yield request.getfixturevalue("ray_runner")
        return
    local = LocalRunner()
    yield local
    local.close()


@pytest.fixture
def run(runner: Runner, tmp_path: Path) -> Run:
    """One job, as the queue starts it: on an H200, where the runner knows what that is."""

    def start(child: str, request: dict[str, Any] | None = None, **more: Any) -> Ended:
        limits = more.pop("limits", Limits(timeout_s=20, grace_s=0.3))
        asked = {"on": H200, **(request or {})}
        return runner.run(command(child, JOBS), asked, limits=limits, log=tmp_path / "log", **more)

    return start


# --- one child


def test_answer_progress_and_log_come_back(run: Run, tmp_path: Path) -> None:
    seen: list[str] = []
    ended = run("ok", {"n": 1}, on_progress=lambda said: seen.append(said["phase"]))
    assert (ended.reason, ended.value["echo"]["n"]) == (ExitReason.OK, 1)
    assert [phase for phase in seen if phase != "waiting"] == ["half"]
    assert (tmp_path / "log").read_text() == "this goes to the log\n"


@pytest.mark.parametrize(
    ("child", "reason"),
    [
        ("abort", ExitReason.FAULT),
        ("status", ExitReason.FAULT),
        ("silent", ExitReason.BAD_OUTPUT),
        ("garbage", ExitReason.BAD_OUTPUT),
        ("twice", ExitReason.BAD_OUTPUT),
        ("error", ExitReason.ERROR),
    ],
)
def test_crashes_and_lies_are_told_as_what_they_are(run: Run, child: str, reason: ExitReason) -> None:
    ended = run(child)
    assert ended.reason is reason
    assert ended.error is not None
    assert ended.error["message"]


def test_a_child_that_ignores_its_end_is_out_of_time_and_gone(run: Run, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    started = time.monotonic()
    ended = run("stubborn", {"pid_file": str(pid_file)}, limits=Limits(timeout_s=1.0, grace_s=0.5))
    assert ended.reason is ExitReason.TIMEOUT
    assert time.monotonic() - started < 40  # it would sleep a minute
    assert not alive(int(pid_file.read_text()))


@pytest.mark.parametrize(("child", "verdict"), [("polite", "cancel"), ("stubborn", "cancel"), ("stubborn", "drop")])
def test_what_is_cancelled_or_dropped_is_gone_behind_run(run: Run, tmp_path: Path, child: str, verdict: str) -> None:
    pid_file = tmp_path / "pid"
    ended = run(
        child,
        {"pid_file": str(pid_file)},
        limits=Limits(20, 10),
        tick=lambda: verdict if pid_file.exists() and pid_file.read_text() else "go",
    )
    assert ended.reason is ExitReason.CANCELLED
    wait_for(lambda: not alive(int(pid_file.read_text())), 5)  # the kernel ends it, in its own time on a busy host


def test_what_a_child_leaves_behind_is_killed(run: Run, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    assert run("orphan", {"pid_file": str(pid_file)}).reason is ExitReason.OK
    wait_for(lambda: not alive(int(pid_file.read_text())), 5)


def test_a_large_request_and_a_large_answer_pass(run: Run) -> None:
    assert run("deaf", {"text": "x" * 2_000_000}).value == 2_000_000
    assert len(run("big").value) == 3_000_000


def test_address_space_is_limited_where_the_child_runs(run: Run) -> None:
    limited = run("greedy", limits=Limits(timeout_s=20, memory_bytes=512 << 20))
    assert limited.reason is ExitReason.OUT_OF_MEMORY
    # The same child without the limit ends well, so it was the limit.
    assert run("greedy").reason is ExitReason.BAD_OUTPUT


# --- a queue of them


class Bench:
    """A store and queues of one runner, whose children hold their GPU for as long as a job says."""

    def __init__(self, folder: Path, runner: Runner) -> None:
        self.folder = folder
        self.runner = runner
        self.store = Store(f"sqlite:///{folder / 'test.db'}")
        self.queues: list[Queue] = []

    def start(self) -> Queue:
        limits = Limits(60, 0.5)
        queue = Queue(
            self.store,
            command=lambda _: command("where"),
            limits={"read": limits, "validate": limits},
            checks={"read": lambda _: "", "validate": lambda _: ""},
            logs=self.folder,
            lease_s=20.0,  # no busy machine keeps a server from renewing it for that long
            runner=self.runner,
        )
        queue.start()
        self.queues.append(queue)
        return queue

    def add(self, on: str | None = H200, hold_s: float = 0.0) -> str:
        request = {"on": on, "hold_s": hold_s, "pid_file": str(self.folder / f"{len(list(self.folder.iterdir()))}.pid")}
        job_id = add_validation(self.store, name="r", region="x", region_id=None, request=request, cap=99)[0]
        for queue in self.queues:
            queue.wake("validate")
        return job_id

    def pids(self, job_id: str) -> dict[str, int]:
        """The processes of a job's child, once it runs."""
        file = Path((self.store.job_request(job_id) or {})["pid_file"])
        wait_for(lambda: file.exists() and bool(file.read_text()))
        found: dict[str, int] = json.loads(file.read_text())
        return found

    def until(self, job_id: str, *states: str, seconds: float = 40) -> dict[str, Any]:
        wait_for(lambda: self.store.job_state(job_id) in states, seconds)
        job = self.store.job(job_id)
        assert job is not None
        return job

    def done(self, job_id: str, attempt: int = 1) -> dict[str, Any]:
        """What a job found, after it ended once."""
        job = self.until(job_id, "done", "failed", "cancelled")
        assert (job["state"], job["attempt"]) == ("done", attempt), job
        assert [e["event"] for e in self.store.events(job_id)].count("done") == 1
        answer: dict[str, Any] = job["result"]["conditions"]
        return answer


def benched(folder: Path, runner: Runner) -> Iterator[Bench]:
    bench = Bench(folder, runner)
    # The driver of the cluster is shared: stopping one queue must not end it for the next.
    close, bench.runner.close = runner.close, lambda: None  # type: ignore[method-assign]
    yield bench
    for queue in bench.queues:
        queue.stop()
    bench.runner.close = close  # type: ignore[method-assign]
    bench.store.close()


@pytest.fixture
def bench(tmp_path: Path, runner: Runner) -> Iterator[Bench]:
    yield from benched(tmp_path, runner)


@pytest.fixture
def ray_bench(tmp_path: Path, ray_runner: Runner) -> Iterator[Bench]:
    yield from benched(tmp_path, ray_runner)


def test_done_once_with_its_progress(bench: Bench) -> None:
    bench.start()
    job_id = bench.add()
    bench.done(job_id)
    phases = [e["data"].get("phase") for e in bench.store.events(job_id)]
    assert [phase for phase in phases if phase != "waiting"] == ["queued", "measuring", None]
    assert (bench.store.job(job_id) or {})["result"]["software"]["secrets"] == "[]"


def test_cancelled_in_the_queue_and_under_way(bench: Bench) -> None:
    queue = bench.start()
    running = bench.add(hold_s=60)
    pid = bench.pids(running)["pid"]
    waiting = bench.add(hold_s=60)
    assert queue.cancel(waiting)["state"] in ("cancelled", "running")  # type: ignore[index]
    queue.cancel(running)
    assert bench.until(running, "cancelled", seconds=10)["result"] is None
    assert bench.until(waiting, "cancelled", seconds=10)["result"] is None
    assert not alive(pid)


def test_a_killed_worker_costs_an_attempt_and_no_job(bench: Bench) -> None:
    bench.start()
    job_id = bench.add(hold_s=2)
    pids = bench.pids(job_id)
    # Ray's worker where there is one, else the child itself.
    os.kill(pids["worker"] if pids["worker"] != os.getpid() else pids["pid"], signal.SIGKILL)
    bench.done(job_id, attempt=2)
    assert not alive(pids["pid"])


SERVER = """
import sys
from pathlib import Path
from app.jobs.queue import Queue
from app.jobs.local_runner import Limits, LocalRunner
from app.storage.store import Store
from tests.app.jobs.ray.cluster import command, look
folder, address, token = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
if address:
    from app.jobs.ray.runner import RayRunner
    runner = RayRunner(address, token_file=token, lanes=2, look=look)
else:
    runner = LocalRunner()
limits = Limits(60, 1)
store = Store(f"sqlite:///{folder / 'test.db'}")
queue = Queue(store, command=lambda _: command("where"), limits={"read": limits, "validate": limits},
              checks={"read": str, "validate": str}, logs=folder, lease_s=2, runner=runner)
queue.start()
sys.stdin.read()
"""


def test_a_killed_server_leaves_no_child_and_another_server_does_the_job(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    on_ray = not isinstance(bench.runner, LocalRunner)
    fleet = request.getfixturevalue("fleet") if on_ray else None
    where = [fleet.cluster.address, str(fleet.token_file)] if fleet else ["", "."]
    job_id = bench.add(hold_s=2)
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(bench.folder), *where], stdin=subprocess.PIPE)
    try:
        pid = bench.pids(job_id)["pid"]
    finally:
        server.send_signal(signal.SIGKILL)
        server.communicate()
    wait_for(lambda: not alive(pid), 10)
    assert bench.store.job_state(job_id) == "running"
    bench.start()
    bench.done(job_id, attempt=2)


# --- what only a fleet has


def overlap(spans: list[dict[str, Any]]) -> bool:
    ordered = sorted(spans, key=lambda span: span["began"])
    return any(a["ended"] > b["began"] for a, b in itertools.pairwise(ordered))


def test_jobs_go_to_their_kind_one_at_a_time_and_the_other_kind_does_not_wait(ray_bench: Bench, fleet: Fleet) -> None:
    ray_bench.start()
    h200 = [ray_bench.add(H200, hold_s=0.4) for _ in range(6)]  # more than there are lanes
    mi300x = ray_bench.add(MI300X, hold_s=0.4)
    reading = ray_bench.add(None, hold_s=0.4)
    other = ray_bench.done(mi300x)
    spans = [ray_bench.done(i) for i in h200]
    assert other["began"] < max(span["began"] for span in spans), "it stood behind all of them, for another kind"
    assert {span["raylet"] for span in spans} == {fleet.raylet(H200)}
    assert other["raylet"] == fleet.raylet(MI300X)
    assert not overlap(spans)  # two GPUs, and one slot: neighbours would share power and memory traffic
    assert overlap([*spans, other])  # another host is no neighbour
    assert ray_bench.done(reading)["raylet"] not in (fleet.raylet(H200), fleet.raylet(MI300X))


def test_a_kind_that_no_host_has_is_refused_at_once_with_those_there_are(ray_bench: Bench) -> None:
    ray_bench.start()
    job_id = ray_bench.add("NVIDIA B200")
    error = ray_bench.until(job_id, "failed", seconds=5)["error"]
    assert error["code"] == "no-device"
    assert "NVIDIA B200" in error["message"]
    assert f"{MI300X}, {H200}" in error["message"]


@contextmanager
def held(ray_runner: Any, on: str, folder: Path) -> Iterator[threading.Thread]:
    """The only slot of a kind is taken by a job, until the block ends."""
    release = threading.Event()
    more = {"limits": Limits(200, 0.3), "log": folder / "holding.log"}
    tick = {"tick": lambda: "drop" if release.is_set() else "go"}
    asked = {"on": on, "hold_s": 100, "pid_file": str(folder / "holding")}
    holding = threading.Thread(target=ray_runner.run, args=(command("where"), asked), kwargs={**more, **tick})
    holding.start()
    try:
        wait_for((folder / "holding").exists)
        yield holding
    finally:
        release.set()
        holding.join()


def test_cancelled_while_ray_has_no_gpu_for_it(ray_runner: Any, tmp_path: Path) -> None:
    second = {"on": H200, "hold_s": 0.1, "pid_file": str(tmp_path / "second")}
    with held(ray_runner, H200, tmp_path) as holding:
        assert ray_runner.full() == {H200}
        asked = time.monotonic()
        said: list[str] = []
        ended = ray_runner.run(
            command("where"), second, limits=Limits(20, 0.3), log=tmp_path / "2",
            on_progress=lambda s: said.append(s["message"]),
            tick=lambda: "cancel" if time.monotonic() - asked > 0.2 else "go",
        )  # fmt: skip
        assert ended.reason is ExitReason.CANCELLED
        assert said == [f"for {H200}"]
        assert holding.is_alive()
    assert not (tmp_path / "second").exists()


def test_waiting_for_a_gpu_is_bounded(ray_runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(ray_runner, MI300X, tmp_path):
        monkeypatch.setattr(ray_runner, "wait_s", 0.3)  # not before: on a busy machine the first waits for longer
        asked = {"on": MI300X, "pid_file": str(tmp_path / "second")}
        ended = ray_runner.run(command("where"), asked, limits=Limits(20, 0.3), log=tmp_path / "log")
        assert ended.reason is ExitReason.NO_DEVICE
    assert not (tmp_path / "second").exists()


def test_a_killed_host_costs_an_attempt_and_its_successor_does_the_job(ray_bench: Bench, fleet: Fleet) -> None:
    ray_bench.start()
    job_id = ray_bench.add(MI300X, hold_s=5)  # longer than a busy machine takes to kill its host
    pid = ray_bench.pids(job_id)["pid"]
    fleet.cluster.remove_node(fleet.hosts[MI300X], allow_graceful=False)
    wait_for(lambda: not alive(pid))
    time.sleep(2)  # no host of its kind: it waits, and is not refused
    job = ray_bench.store.job(job_id)
    assert job is not None and job["state"] in ("queued", "running"), job
    fleet.hosts[MI300X] = fleet.add(MI300X)
    assert ray_bench.done(job_id, attempt=2)["raylet"] == fleet.raylet(MI300X)


def test_a_host_of_another_version_gets_no_work_and_says_why(ray_runner: Any, fleet: Fleet, tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    from app.jobs.ray import model

    assert isinstance(fleet.cluster, Cluster)
    told = model.resources("L40S", 0, "0.0.9")
    old = fleet.cluster.add_node(num_gpus=1, num_cpus=1, resources=told, object_store_memory=80 << 20)
    try:
        wait_for(lambda: any(node.accelerator == "L40S" for node in ray_runner.nodes()))
        ended = ray_runner.run(command("where"), {"on": "NVIDIA L40S"}, limits=Limits(5), log=tmp_path / "log")
        assert ended.reason is ExitReason.NO_DEVICE
        assert ended.error is not None
        assert f"it runs 0.0.9, this server {app.__version__}" in ended.error["message"]
        kind = next(kind for kind in ray_runner.kinds() if kind.device == "NVIDIA L40S")
        assert (kind.slots, kind.free, len(kind.sick)) == (0, 0, 1)
    finally:
        fleet.cluster.remove_node(old)
        wait_for(lambda: not any(node.accelerator == "L40S" for node in ray_runner.nodes()), 60)
