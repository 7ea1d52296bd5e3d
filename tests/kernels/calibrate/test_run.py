"""A calibration's processes: what was finished stays, whatever ends them, and the same command goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kernels.calibrate import run, trained_programs
from kernels.calibrate.points import Point, finished, read_folder
from kernels.calibrate.programs import families
from kernels.calibrate.run import Listener, Plan, Progress, measure, plans, workers_of_each_kind
from kernels.calibrate.run_state import CalibrationError, RunState, open_state
from kernels.calibrate.shares import Share
from kernels.host import Host
from kernels.measure import conditions
from kernels.measure.conditions import Reading
from profiler.child.limits import GIB
from tests.conftest import ROOT
from tests.kernels.calibrate import stand_in

HOST = Host(gpu="NVIDIA H200", versions={"torch": "2.11.0", "triton": "3.6.0"})
PLANS = [Plan("a", (Share("pointwise", 1.0),)), Plan("b", (Share("reduce", 1.0), Share("chain", 1.0)))]
ENOUGH_S = 240.0
"""Importing torch twice takes half a minute on a busy machine."""


class Heard:
    """Keeps what a listener is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.progress: list[Progress] = []
        self.listener = Listener(self.progress.append, self.said.append)


@pytest.fixture(autouse=True)
def _no_lock_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.measure.gpu_lock.tempfile.gettempdir", lambda: str(tmp_path))


def until(told: Callable[[], bool]) -> None:
    end = time.monotonic() + ENOUGH_S
    while not told():
        assert time.monotonic() < end
        time.sleep(0.1)


def points_in(folder: Path) -> list[Point]:
    return finished(read_folder(folder))


def families_in(folder: Path) -> set[str]:
    return {p["family"] for p in points_in(folder)}


def stop_when(folder: Path, enough: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C to this process once there is enough, from a thread that looks on."""
    main = threading.main_thread().ident
    assert main is not None

    def watch() -> None:
        until(enough)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()


def test_interrupted_it_keeps_what_was_finished_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_when(tmp_path, lambda: families_in(tmp_path) >= {"pointwise", "reduce", "chain"}, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path, HOST, 60, PLANS, Heard().listener, stand_in.COMMAND)
    assert not [p for p in psutil.Process().children() if "stand_in" in " ".join(p.cmdline())], "a worker was left"
    before = points_in(tmp_path)
    begun = {(p["family"], p["number"]) for p in read_folder(tmp_path)}
    assert len(begun) - len(before) <= len(PLANS), "more than the programs that were under way are lost"
    spent_s = open_state(tmp_path, HOST).seconds
    assert spent_s > 0

    heard = Heard()
    told, after = measure(tmp_path, HOST, (spent_s + 20) / 60, PLANS, heard.listener, stand_in.COMMAND)
    assert heard.said[0].startswith("going on where it was stopped")
    assert len(after) > len(before) and all(p in after for p in before)
    assert told["minutes"] == pytest.approx((spent_s + 20) / 60, abs=0.06)
    assert (told["device"], told["torch"]) == ("NVIDIA H200", "2.11.0")

    again = time.monotonic()
    _, same = measure(tmp_path, HOST, 0.1, PLANS, Heard().listener, ("none",))
    assert same == after and time.monotonic() - again < 5, "its minutes were over: nothing is left to measure"


def test_a_worker_that_is_killed_is_started_again_behind_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_FAULT", "pool2d")
    # Of this family some programs have the fault in their text; the other worker is not disturbed.
    wanted = [Plan("a", (Share("pool", 1.0),)), Plan("b", (Share("pointwise", 1.0),))]
    heard = Heard()
    stop_when(tmp_path, lambda: "pool" in families_in(tmp_path) and bool(heard.said), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path, HOST, 60, wanted, heard.listener, stand_in.COMMAND)
    assert "a ended with -9 and goes on behind the program that ended it" in heard.said
    assert not [text for text in heard.said if text.startswith("b ")]
    assert not [p["text"] for p in points_in(tmp_path) if "pool2d" in p["text"]]
    assert "pointwise" in families_in(tmp_path)


def test_a_worker_that_ends_at_every_program_is_given_up_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MOST_FAULTS", 2)
    heard = Heard()
    command = (sys.executable, "-c", "raise SystemExit('no driver for it')")
    with pytest.raises(CalibrationError, match=r"nothing was measured.*no driver for it"):
        measure(tmp_path, HOST, 60, PLANS, heard.listener, command)
    assert open_state(tmp_path, HOST).seconds == 0, "the next try has all its minutes"
    given_up = [text for text in heard.said if "given up" in text]
    assert sorted(given_up) == ["a ended 2 times (1) and is given up: pointwise",
                                "b ended 2 times (1) and is given up: reduce, chain"]  # fmt: skip


def test_a_gpu_that_hangs_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "STUCK_S", 0.5)
    monkeypatch.setattr(run, "MOST_FAULTS", 2)
    heard = Heard()
    with pytest.raises(CalibrationError, match="nothing was measured"):
        measure(tmp_path, HOST, 60, PLANS[:1], heard.listener, (sys.executable, "-c", "import time; time.sleep(600)"))
    assert any("no worker has finished anything" in text for text in heard.said)


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    code = f"""
    from pathlib import Path
    from kernels.calibrate.run import measure
    from tests.kernels.calibrate import stand_in
    from tests.kernels.calibrate.test_run import HOST, PLANS, Heard
    measure(Path({str(tmp_path)!r}), HOST, 60, PLANS, Heard().listener, stand_in.COMMAND)
    """
    starter = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT)
    try:
        until(lambda: len(points_in(tmp_path)) > 3)
        workers = psutil.Process(starter.pid).children()
        assert len(workers) == 2
    finally:
        starter.kill()
        starter.wait()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive


def test_points_of_another_device_or_torch_are_not_added_to(tmp_path: Path) -> None:
    RunState("NVIDIA H100 80GB HBM3", "2.11.0", "3.6.0", seconds=9.0).save(tmp_path)
    with pytest.raises(CalibrationError, match=r"points of NVIDIA H100 80GB HBM3 .* this is NVIDIA H200"):
        measure(tmp_path, HOST, 1, PLANS, Heard().listener, ("none",))
    (tmp_path / "calibration.json").write_text('{"device": 3')
    with pytest.raises(CalibrationError, match="is damaged"):
        measure(tmp_path, HOST, 1, PLANS, Heard().listener, ("none",))


def test_two_calibrations_do_not_share_a_folder(tmp_path: Path) -> None:
    with run.alone_in(tmp_path), pytest.raises(CalibrationError, match="another calibration"):
        measure(tmp_path, HOST, 1, PLANS, Heard().listener, ("none",))


def test_a_shared_gpu_is_said_and_kept_and_clocks_are_those_under_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML's answers are given: two processes of others from the start, a third for a while."""
    told: list[int] = []

    def read(index: int = 0, ours: tuple[int, ...] = ()) -> Reading:
        told.append(len(ours))
        here = {7, 8} | ({9} if len(told) == 3 else set()) | set(ours)
        clock = 300.0 if not ours else 1700.0 + len(told)
        return {
            "other_processes": conditions.others(here, ours), "sm_clock_mhz": clock, "memory_clock_mhz": 3200.0,
        }  # fmt: skip

    monkeypatch.setattr(conditions, "read", read)
    monkeypatch.setattr(run, "LOOK_EVERY_S", 0.3)
    heard = Heard()
    stop_when(tmp_path, lambda: len(told) > 6 and bool(points_in(tmp_path)), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path, HOST, 60, PLANS, heard.listener, stand_in.COMMAND)
    assert [text.split(" on this GPU")[0] for text in heard.said] == [
        "2 other processes are", "3 other processes are",
    ]  # fmt: skip
    kept = open_state(tmp_path, HOST).conditions()
    assert kept["others"] == 3
    assert 1700 < kept["sm_clock_mhz"] < 1800 and kept["memory_clock_mhz"] == 3200.0


def test_where_nothing_is_told_of_clocks_and_others_nothing_is_kept(tmp_path: Path) -> None:
    kept = RunState("NVIDIA H200", "2.11.0", "3.6.0", seconds=60.0).conditions()
    assert set(kept) == {"device", "torch", "triton", "date", "minutes"}


def test_another_measurement_of_this_host_is_waited_for(tmp_path: Path) -> None:
    from kernels.measure.gpu_lock import locked, open_lock

    said: list[str] = []
    with open_lock(conditions.card_of() or "0") as file:
        assert locked(file)
        waiting = threading.Thread(target=lambda: _take(said), daemon=True)
        waiting.start()
        until(lambda: bool(said))
        assert said == ["waiting for a validation that has the GPU"]
    waiting.join(30)
    assert said[-1] == "has it"


def _take(said: list[str]) -> None:
    with run.gpu_alone(said.append):
        said.append("has it")


def test_a_small_host_gets_fewer_workers() -> None:
    assert workers_of_each_kind(16, 128 * GIB, 80e9) == 8
    assert workers_of_each_kind(2, 128 * GIB, 80e9) == 1
    assert workers_of_each_kind(32, 8 * GIB, 80e9) == 2
    assert workers_of_each_kind(32, 128 * GIB, 12e9) < 4
    assert workers_of_each_kind(1, GIB, 4e9) == 1


def test_workers_are_of_the_families_that_are_asked_for() -> None:
    assert [p.name for p in plans({"eager": 1, "compile": 1})] == ["eager-0", "fused-0"]
    asked = plans({"eager": 2, "generated": 2, "own": 1}, families(["generated", "trained", "own_softmax"]))
    assert [p.name for p in asked] == ["eager-0", "eager-1", "generated-0", "generated-1", "own-0"]
    assert {s.family for p in asked if p.name.startswith("eager") for s in p.shares} == set(trained_programs.FAMILIES)
    assert [s.family for s in asked[-1].shares] == ["own_softmax"]
    with pytest.raises(ValueError, match="'chains' is no family and no group"):
        families(["chain", "chains"])
