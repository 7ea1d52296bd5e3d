"""A GPU that vanishes, is sick or hangs: it is suspect, jobs wait, every page says so, and it comes back by itself."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.jobs import gpu_health, tasks
from app.jobs.exit_reason import Ended, ExitReason, failure
from app.jobs.local_runner import Limits, LocalRunner
from app.jobs.queue import Queue
from app.storage import job_table
from kernels.host import Host
from tests.app.storage.validations import add_validation
from tests.app.web.conftest import Serving, serving
from tests.conftest import ROOT
from tests.faults.conftest import Bench
from tests.faults.servers import command, notes
from tests.processes import wait_for

WITH_GPU = Host(gpu="NVIDIA H200", capability=(9, 0), versions={"torch": "2"}, packages=frozenset({"torch"}))


def watched(bench: Bench, child: str) -> Queue:
    """A queue on a host that has a GPU, asked again soon."""
    queue = bench.queue(child, start=False, expected_gpu=lambda: "NVIDIA H200")
    queue.gpu.again_s = 0.3
    queue.start()
    return queue


def test_a_gpu_that_vanished_makes_jobs_wait_until_it_is_back(bench: Bench) -> None:
    (bench.folder / "sick").write_text("torch finds no GPU any more")
    queue = watched(bench, "without_gpu")
    first, second = bench.add(), bench.add()
    wait_for(lambda: queue.gpu.suspicion)
    assert queue.gpu.suspicion.reason == "torch finds no GPU any more"  # type: ignore[union-attr]
    time.sleep(1.5)
    assert [bench.store.job_state(i) for i in (first, second)] == ["queued", "queued"]
    assert bench.said(first)[-1] == "the GPU is suspect: torch finds no GPU any more"
    asked = len(notes(bench.folder, "asked"))
    assert 2 <= asked <= 8, "it is asked again, and not all the time"
    (bench.folder / "sick").unlink()
    jobs = [bench.until(i, "done") for i in (first, second)]
    assert queue.gpu.suspicion is None
    # What was said while the GPU was gone is not kept.
    assert [j["result"]["reason"] for j in jobs] == ["nothing to measure"] * 2
    assert [j["attempt"] for j in jobs] == [2, 1]


def test_a_gpu_that_does_not_answer_keeps_no_lost_job_from_being_taken_back(bench: Bench) -> None:
    lost = bench.add()
    with bench.store.database.write() as connection:
        assert job_table.claim(connection, kind="validate", owner="another/1/boot", lease_s=0.1)
    queue = bench.queue("hang", start=False, lease_s=0.1, expected_gpu=lambda: "NVIDIA H200")
    asked = threading.Event()

    def silent(_request: dict[str, Any], tick: Any) -> Ended:
        asked.set()
        while tick() == "go":
            time.sleep(0.02)
        return failure(ExitReason.CANCELLED)

    queue.gpu.ask = silent
    queue.gpu.suspicion = gpu_health.Suspicion("it hangs", "now")
    queue.start()
    assert asked.wait(10)
    bench.until(lost, "queued")
    assert queue.gpu.suspicion is not None, "and it still does not answer"


def test_a_crash_with_a_healthy_gpu_is_the_jobs_own(bench: Bench) -> None:
    queue = watched(bench, "crash")
    job = bench.until(bench.add(), "failed")
    assert job["error"]["code"] == "fault"
    assert len(notes(bench.folder, "asked")) == 1
    assert queue.gpu.suspicion is None


def test_a_job_that_makes_the_gpu_sick_twice_is_given_up(bench: Bench) -> None:
    (bench.folder / "sick_when").write_text("1 3")  # after the first attempt and after the second
    queue = watched(bench, "crash")
    job = bench.until(bench.add(), "failed")
    assert (job["attempt"], job["error"]["code"]) == (2, "no-device")
    assert "an illegal memory access" in job["error"]["message"]
    wait_for(lambda: queue.gpu.suspicion is None)
    assert len(notes(bench.folder, "asked")) == 4


def test_a_gpu_that_does_not_answer_is_suspect(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_health, "LIMITS", Limits(0.5, 0.2))
    (bench.folder / "hung").touch()
    queue = watched(bench, "crash")
    job_id = bench.add()
    wait_for(lambda: queue.gpu.suspicion)
    assert "longer than it may" in queue.gpu.suspicion.reason  # type: ignore[union-attr]
    wait_for(lambda: bench.store.job_state(job_id) == "queued")
    # Reading traces goes on.
    bench.store.add_trace(trace_id="t" * 26, name="t", sha256="", size=1, file="f", request={}, cap=8)
    queue.command = command("without_gpu")
    queue.wake("read")
    bench.until("t" * 26, "done")
    (bench.folder / "hung").unlink()
    bench.until(job_id, "done")


def suspected(card: gpu_health.Gpu) -> bool:
    return card.suspicion is not None


def test_a_process_that_hangs_in_the_driver_makes_the_gpu_suspect_until_it_is_gone(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def ask(request: dict[str, Any], _tick: object) -> Ended:
        asked.append(request)
        return Ended(ExitReason.OK, {})

    card = gpu_health.Gpu(ask, lambda: "NVIDIA H200", again_s=0)
    sleeper = LocalRunner()
    assert sleeper.keep([sys.executable, "-c", "input()"], logs=tmp_path)
    (spare,) = sleeper.spares.values()
    hung = failure(ExitReason.TIMEOUT, stuck_pid=spare.process.pid)
    assert card.points_at("validate", {}, hung)
    assert str(spare.process.pid) in card.examine(hung, lambda: "go")
    card.look_again(lambda: "go")
    assert suspected(card)
    assert not asked, "nothing more is started on a GPU that something hangs on"
    sleeper.close()
    card.look_again(lambda: "go")
    assert not suspected(card)
    assert asked == [{"expected": "NVIDIA H200"}]


@pytest.mark.parametrize(
    ("kind", "request_", "ended", "points"),
    [
        ("validate", {}, failure(ExitReason.FAULT), True),
        ("landscape", {}, failure(ExitReason.TIMEOUT), True),
        ("check", {}, failure(ExitReason.FAULT), True),
        ("validate", {}, Ended(ExitReason.OK, {"outcome": "unmeasured"}), True),
        ("validate", {}, Ended(ExitReason.OK, {"outcome": "confirmed"}), False),
        ("check", {}, Ended(ExitReason.OK, {"outcome": "unmeasured"}), False),
        ("validate", {"device": "cpu"}, failure(ExitReason.FAULT), False),
        ("read", {}, failure(ExitReason.FAULT), False),
        ("validate", {}, failure(ExitReason.CANCELLED), False),
    ],
)
def test_which_ends_are_a_reason_to_ask_the_gpu(
    kind: Any, request_: dict[str, Any], ended: Ended, points: bool
) -> None:
    card = gpu_health.Gpu(lambda *_: Ended(ExitReason.OK, {}), lambda: "NVIDIA H200")
    assert card.points_at(kind, request_, ended) is points
    without = gpu_health.Gpu(lambda *_: Ended(ExitReason.OK, {}), lambda: None)
    assert not without.points_at(kind, request_, ended)


def test_a_check_does_not_touch_a_suspect_gpu(bench: Bench) -> None:
    told = {"host": {"gpu": "NVIDIA H200", "capability": [9, 0], "note": ""}}
    queue = bench.queue("crash", start=False, context=lambda: told)
    assert queue._context("check") == told
    queue.gpu.suspicion = gpu_health.Suspicion("it hangs", "now")
    assert queue._context("check")["host"] == {"gpu": None, "capability": None, "note": "the GPU is suspect: it hangs"}
    assert queue._context("validate") == told


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """A server of a host with a GPU, as far as it knows."""
    monkeypatch.setenv("FAULTS_FOLDER", str(tmp_path))
    monkeypatch.setattr("app.jobs.host.probe_host", lambda: WITH_GPU)
    with serving(tmp_path, None, spare=False) as app_server:
        app_server.state.queue.command = command("crash")
        app_server.state.queue.context = dict
        app_server.state.queue.gpu.again_s = 0.3
        yield app_server


def test_the_device_page_readyz_and_the_metrics_say_that_the_gpu_is_suspect(server: Serving, tmp_path: Path) -> None:
    def ready() -> tuple[int, str, list[str]]:
        answer = server.client.get("/readyz")
        return answer.status_code, answer.json()["status"], answer.json()["warnings"]

    assert ready() == (200, "ok", [])
    assert "suspect" not in server.client.get("/device").text
    (tmp_path / "sick").write_text("CUDA error: <unspecified> launch failure")
    add_validation(server.state.store, name="v", region="x", region_id=None, request={}, cap=9)
    server.state.queue.wake("validate")
    wait_for(lambda: server.state.queue.gpu.suspicion, 60)
    wait_for(lambda: ready()[1] == "degraded", 5)
    assert "CUDA error: <unspecified> launch failure" in ready()[2][0]
    page = server.client.get("/device").text
    assert "The GPU is suspect" in page
    assert "CUDA error: &lt;unspecified&gt; launch failure" in page
    assert re.search(r"^tritonworthy_gpu_suspect 1(\.0)?$", server.client.get("/metrics").text, re.M)
    assert server.client.post("/device/ceilings").status_code == 409
    (tmp_path / "sick").unlink()
    wait_for(lambda: ready() == (200, "ok", []), 10)
    assert "suspect" not in server.client.get("/device").text


def test_the_child_that_asks_says_that_there_is_no_gpu(tmp_path: Path) -> None:
    """The real one, on a host without a GPU or with all of them hidden."""
    ended = LocalRunner().run(
        ["env", "CUDA_VISIBLE_DEVICES=", sys.executable, "-m", "app.jobs.tasks", "health", "{fd}"],
        {"expected": "NVIDIA H200"},
        limits=gpu_health.LIMITS,
        log=tmp_path / "log",
        cwd=ROOT,
    )
    assert ended.reason is ExitReason.ERROR, (tmp_path / "log").read_text()
    assert ended.error is not None
    assert (ended.error["code"], ended.error["message"]) == (tasks.SickError.code, "torch finds no GPU any more")
