"""The oracle's process: limits, deaths and the cache, with real children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from profiler.child.limits import MIB
from profiler.hardware import Device
from profiler.oracle import process
from profiler.oracle.cache import Cache
from profiler.oracle.process import Oracle
from profiler.oracle.serialization import PredictQuestion
from tests.processes import wait_for
from tests.profiler.oracle.asking import EXAMPLE, device, text

LONG = text("linear_recurrence_loop")  # 128 steps, unrolled: seconds


def question(text: str, device: Device, mode: str, binding: dict[str, int] | None) -> dict[str, object]:
    """As the cache is asked for an answer."""
    fields: dict[str, object] = msgspec.to_builtins(PredictQuestion(text, device, mode, binding))
    return fields


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    made = Oracle(Cache(tmp_path_factory.mktemp("oracle")), timeout_s=120.0)
    yield made
    made.stop()


def test_an_answer_comes_from_a_process_that_sees_no_gpu(oracle: Oracle) -> None:
    answer = oracle.predict(EXAMPLE, device())
    assert answer.signature == ((("pointwise", 1),), (("mm", 1),))
    assert oracle._child is not None
    environment = Path(f"/proc/{oracle._child.process.pid}/environ").read_bytes().split(b"\0")
    assert b"CUDA_VISIBLE_DEVICES=" in environment
    assert oracle._child.process.pid != os.getpid()


def test_an_answer_is_kept_and_not_asked_again(oracle: Oracle) -> None:
    first = oracle.predict(EXAMPLE, device())
    assert oracle.cached(EXAMPLE, device()) == first
    assert Oracle(oracle.cache).predict(EXAMPLE, device(), timeout_s=0.001) == first, "no process is needed"


def test_a_late_answer_is_kept_for_who_asks_next(oracle: Oracle) -> None:
    oracle.predict(EXAMPLE, device(), "max-autotune")
    late = oracle.predict(LONG, device(), timeout_s=0.5)
    assert late.unavailable == "no answer within 0.5 s"
    assert oracle._child is not None
    process = oracle._child.process.pid
    assert not oracle.predict(text("samples/swiglu"), device()).unavailable
    assert oracle._child is not None and oracle._child.process.pid == process, "nobody had to be killed"
    kept = oracle.cached(LONG, device())
    assert kept is not None and kept.launches == 3


def test_a_question_that_hangs_costs_one_answer(oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle.predict(EXAMPLE, device(), "max-autotune")
    monkeypatch.setattr(oracle, "timeout_s", 0.3)
    late = oracle.predict(LONG, device("NVIDIA L4"))
    assert late.unavailable == "no answer within 0.3 s" and oracle._child is None
    monkeypatch.setattr(oracle, "timeout_s", 120.0)
    assert not oracle.predict(text("samples/log_softmax_wide"), device()).unavailable


def test_an_answer_that_lies_ready_is_never_late(oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle.predict(EXAMPLE, device(), "max-autotune")
    monkeypatch.setattr(oracle, "timeout_s", 4.0)
    slow = text("lm_head_ce_memory_bound")
    assert oracle.predict(slow, device("NVIDIA H100"), timeout_s=0.05).unavailable
    assert oracle._child is not None
    process = oracle._child.process.pid
    time.sleep(5.0)  # past the time that the question may take; its answer has come long since
    assert not oracle.predict(text("samples/swiglu"), device("NVIDIA H100")).unavailable
    assert oracle._child is not None and oracle._child.process.pid == process
    assert oracle.cached(slow, device("NVIDIA H100")) is not None


def test_who_asks_after_a_question_that_hangs_gets_an_answer(oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle.predict(EXAMPLE, device(), "max-autotune")
    assert oracle._child is not None
    process = oracle._child.process.pid
    monkeypatch.setattr(oracle, "timeout_s", 1.0)
    os.kill(process, signal.SIGSTOP)
    assert oracle.predict(text("samples/rope"), device("NVIDIA H100"), timeout_s=0.2).unavailable
    time.sleep(1.0)
    assert not oracle.predict(text("samples/adam"), device("NVIDIA H100"), timeout_s=60.0).unavailable
    assert oracle._child is not None and oracle._child.process.pid != process


def test_no_process_outlives_who_started_it() -> None:
    script = (
        "import sys, time\nfrom profiler.oracle.process import Oracle\noracle = Oracle()\noracle.start()\n"
        "print(oracle._child.process.pid, flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=process.ROOT)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(1.0)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60.0
    while Path(f"/proc/{child}/stat").exists() and Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline, "still there"
        time.sleep(0.2)


def test_a_process_that_dies_costs_one_answer(oracle: Oracle) -> None:
    oracle.predict(text("samples/rope"), device())
    assert oracle._child is not None
    victim = oracle._child.process.pid
    timer = threading.Timer(0.5, os.kill, (victim, signal.SIGSEGV))
    timer.start()
    died = oracle.predict(LONG, device("NVIDIA A100"))
    timer.join()
    assert died.unavailable == "the oracle's process ended (SIGSEGV)"
    assert not oracle.predict(text("samples/adam"), device()).unavailable


def test_a_question_whose_process_was_killed_is_asked_again_where_that_is_wanted() -> None:
    """Behind everybody else nobody sees the answer that is missing, and the trace's page would keep it."""
    oracle = Oracle(timeout_s=120.0, retries=1, niceness=7)
    try:
        assert oracle.wait_ready()
        assert oracle._child is not None and oracle._child.ready
        assert not oracle.predict(EXAMPLE, device(), timeout_s=10.0).unavailable
        victim = oracle._child.process.pid
        assert os.getpriority(os.PRIO_PROCESS, victim) == os.getpriority(os.PRIO_PROCESS, 0) + 7
        timer = threading.Timer(0.3, os.kill, (victim, signal.SIGKILL))
        timer.start()
        answer = oracle.predict(LONG, device())
        timer.join()
        assert answer.unavailable == "" and answer.launches == 3
        assert oracle._child is not None and oracle._child.process.pid != victim
    finally:
        oracle.stop()


def test_a_question_over_its_processor_time_is_stopped_and_says_so_and_the_next_is_answered(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle.predict(EXAMPLE, device(), "max-autotune")
    monkeypatch.setattr(oracle, "cpu_s", 1.0)
    stopped = oracle.predict(LONG, device("NVIDIA H100"))
    assert stopped.unavailable == "the oracle was stopped: this takes more than 1 s of processor time"
    monkeypatch.undo()
    assert not oracle.predict(text("samples/adam"), device("NVIDIA L4")).unavailable


def test_a_question_over_its_memory_is_told_so_by_a_process_that_is_then_replaced(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle.predict(EXAMPLE, device(), "max-autotune")
    monkeypatch.setattr(oracle, "memory_bytes", 2 * MIB)
    stopped = oracle.predict(LONG, device("NVIDIA L40S"))
    assert stopped.unavailable == "this takes more memory than the oracle may use"
    assert oracle._child is None
    monkeypatch.undo()
    assert not oracle.predict(text("samples/rope"), device("NVIDIA L4")).unavailable


def test_who_waits_behind_another_question_is_told(oracle: Oracle) -> None:
    with oracle._lock:
        waited = oracle.predict(text("samples/gelu_tanh"), device(), timeout_s=0.05)
    assert waited.unavailable == "the oracle was busy for 0.05 s"


def test_a_region_that_does_not_fit_is_said_and_the_process_lives(oracle: Oracle) -> None:
    answer = oracle.predict("x: f32[4, 5]\nreturn x @ x\n", device())
    assert "5" in answer.unavailable
    assert not oracle.predict(text("samples/cat_relu"), device()).unavailable


def test_a_fresh_process_takes_over_once_it_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = Oracle(timeout_s=120.0)
    asked = text("samples/cumsum_rows")

    def answering() -> int:
        assert not oracle.predict(asked, device()).unavailable
        assert oracle._child is not None
        return oracle._child.process.pid

    try:
        first = answering()
        monkeypatch.setattr(process, "QUESTIONS_PER_PROCESS", 2)
        assert [answering(), answering()] == [first, first], "the old one answers meanwhile"
        fresh = oracle._next
        assert fresh is not None
        deadline = time.monotonic() + 60
        while not process._has_message(fresh) and time.monotonic() < deadline:
            time.sleep(0.05)
        second = answering()
        assert second == fresh.process.pid and oracle._next is None
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)

        assert [answering(), answering()] == [second, second]
        dead = oracle._next
        assert dead is not None
        os.kill(dead.process.pid, signal.SIGKILL)
        assert dead.process.wait(20) == -signal.SIGKILL
        assert answering() not in (second, dead.process.pid), "one that did not start costs no answer"

        monkeypatch.setattr(process, "QUESTIONS_PER_PROCESS", 1)
        last, after = answering(), oracle._next
        assert after is not None
    finally:
        oracle.stop()
    for pid in (last, after.process.pid):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_key_of_an_answer_is_all_that_it_depends_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    asked = question(EXAMPLE, device(), "default", {"N": 3})
    cache.put(asked, {"kernels": 1})
    assert cache.get(asked) == {"kernels": 1}
    others = [
        question(EXAMPLE + "\n", device(), "default", {"N": 3}), question(EXAMPLE, device(), "default", {"N": 4}),
        question(EXAMPLE, device("NVIDIA L4"), "default", {"N": 3}),
        question(EXAMPLE, device(), "max-autotune", {"N": 3}),
    ]  # fmt: skip
    assert [cache.get(o) for o in others] == [None] * 4
    monkeypatch.setattr("profiler.oracle.cache.versions", lambda: {"torch": "9", "triton": "9"})
    assert cache.get(asked) is None, "another torch answers for itself"


def test_a_damaged_answer_is_no_answer(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    asked = question(EXAMPLE, device(), "default", None)
    cache.put(asked, {"kernels": 1})
    next(tmp_path.glob("*.json")).write_text("{")
    assert cache.get(asked) is None


def test_the_oldest_answers_go_when_they_take_too_much_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler.oracle.cache.MAX_BYTES", 10_000)
    cache = Cache(tmp_path)
    asked = [question(EXAMPLE, device(), "default", {"N": number}) for number in range(12)]
    for number, one in enumerate(asked):
        cache.put(one, {"text": "x" * 1000})
        if cache._path(one).exists():
            os.utime(cache._path(one), (number, number))
    cache.prune()
    assert sum(p.stat().st_size for p in tmp_path.glob("*.json")) <= 9_000
    assert cache.get(asked[0]) is None
    assert cache.get(asked[11]) == {"text": "x" * 1000}


def test_a_process_that_is_stopped_while_it_starts_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    starts = threading.Event()
    made = process.LineChild

    def counted(*arguments: Any, **more: Any) -> Any:
        begun.append(made(*arguments, **more))
        starts.set()
        return begun[-1]

    monkeypatch.setattr(process, "LineChild", counted)
    oracle = Oracle(timeout_s=120.0)
    told: list[str] = []
    asker = threading.Thread(target=lambda: told.append(oracle.predict(EXAMPLE, device()).unavailable))
    asker.start()
    assert starts.wait(60.0)
    oracle.stop()  # its imports take seconds more
    asker.join(60.0)
    assert told == ["the oracle stops"]
    assert len(begun) == 1 and oracle._child is None


def test_a_process_that_does_not_end_is_told_of_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Oracle(timeout_s=60.0)
    made.start()
    child = made._child
    assert child is not None and made.stuck() == []
    with monkeypatch.context() as unkillable:  # as one that hangs in a driver
        unkillable.setattr("profiler.child.lines.kill_tree", lambda process: None)
        unkillable.setattr("profiler.child.lines.UNKILLABLE_S", 0.1)
        with made._lock:
            made._end()
    assert made.stuck() == [child.process.pid]
    os.kill(child.process.pid, signal.SIGKILL)
    wait_for(lambda: made.stuck() == [])
    made.stop()


def test_the_key_of_answers_that_are_on_disk_already_stays() -> None:
    asked = {"ask": "predict", "text": EXAMPLE, "device": asdict(device()), "mode": "default", "binding": {"N": 3}}
    now = question(EXAMPLE, device(), "default", {"N": 3})
    assert json.dumps(now, sort_keys=True) == json.dumps(asked, sort_keys=True)
