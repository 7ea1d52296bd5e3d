"""Workers that are ready before they have a candidate: taken once, and never in the way of a measurement."""

from __future__ import annotations

import fcntl
import os
import signal
import time

import pytest

from kernels.measure import gpu_lock
from kernels.measure.messages import Prepare, Prepared, Shape
from kernels.measure.processes import warm_workers
from kernels.measure.processes.poll import pump
from kernels.measure.processes.warm_workers import WarmWorkers
from tests.kernels.measure.limits import ANSWER_S
from tests.processes import alive, wait_for

WORKER = "kernels.measure.candidate.worker"
REGION = "x: f32[4, 8]\nreturn torch.softmax(x, -1)\n"


@pytest.fixture
def waiting(fork_server, monkeypatch):
    monkeypatch.setattr(warm_workers, "PACKAGES", {"wave": "wave", "absent": "absent"})
    made = WarmWorkers(fork_server, WORKER)
    made.import_packages()
    yield made
    made.close()


def prepared(child, candidate, tmp_path):
    request = Prepare(
        candidate=candidate, tasks=[Shape(REGION, {})], device="cpu", seed=0, turn=str(tmp_path / "turn"),
        memory_bytes=1e9, l2_bytes=0.0, compile_workers=1, registry="kernels.candidates",
        env={"TRITON_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    child.ask(request, ANSWER_S)
    pump([child], time.monotonic() + ANSWER_S)
    return child


def test_a_package_that_is_installed_has_one_child_that_only_its_candidate_takes(waiting, tmp_path):
    assert waiting.take("library:absent.softmax") is None
    assert waiting.take("eager") is None
    child = waiting.take("library:wave.softmax")
    assert child.name == "library:wave.softmax"
    assert waiting.take("library:wave.softmax") is None
    found = prepared(child, "eager", tmp_path)
    assert found.failure is None, found.failure
    assert found.result(Prepared).tasks[0].cases
    child.release()


def test_what_a_package_replaces_when_it_is_imported_is_found_at_its_candidate(fork_server, monkeypatch, tmp_path):
    monkeypatch.setattr(warm_workers, "PACKAGES", {"tests": "tests.kernels.measure.processes.replacing"})
    made = WarmWorkers(fork_server, WORKER)
    made.import_packages()
    child = prepared(made.take("library:tests.any"), "eager", tmp_path)
    assert child.failure is not None
    assert "allclose" in child.failure[1]
    child.release()
    other = fork_server.fork("eager", WORKER)
    assert prepared(other, "eager", tmp_path).failure is None
    other.release()


def test_one_that_died_meanwhile_is_passed_over(fork_server, monkeypatch):
    monkeypatch.setattr(warm_workers, "PACKAGES", {"wave": "wave"})
    made = WarmWorkers(fork_server, WORKER)
    made.import_packages()
    (child,) = made._waiting["wave"]
    os.kill(child.pid, signal.SIGKILL)
    fork_server.collect(child, ANSWER_S)
    assert child.exited
    assert made.take("library:wave.any") is None


def test_a_hint_that_fails_leaves_a_worker_that_can_be_asked(fork_server, monkeypatch, tmp_path):
    monkeypatch.setattr(warm_workers, "PACKAGES", {"wave": "wave.of_no_such_module"})
    made = WarmWorkers(fork_server, WORKER)
    made.import_packages()
    child = prepared(made.take("library:wave.any"), "eager", tmp_path)
    assert child.failure is None, child.failure
    child.release()


def test_contexts_are_given_up_and_imports_kept_where_another_measures(fork_server, monkeypatch):
    monkeypatch.setattr(warm_workers, "PACKAGES", {"wave": "wave"})
    made = WarmWorkers(fork_server, WORKER)
    made.import_packages()
    made.open_contexts("cpu", 0)
    held = [c for kind in warm_workers.EARLY for c in made._waiting[kind]]
    made.close_contexts()
    wait_for(lambda: not any(alive(c.pid) for c in held), what="contexts are still held")
    assert made.take("eager") is None
    made.take("library:wave.any").release()


def test_no_context_is_made_while_somebody_measures(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_lock.tempfile, "gettempdir", lambda: str(tmp_path))
    assert not gpu_lock.somebody_measures()
    with gpu_lock.open_lock("GPU-1") as file:
        assert not gpu_lock.somebody_measures()
        fcntl.flock(file, fcntl.LOCK_EX)
        assert gpu_lock.somebody_measures()
    assert not gpu_lock.somebody_measures()
