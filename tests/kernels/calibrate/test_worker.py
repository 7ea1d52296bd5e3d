"""A worker goes on where another was stopped, and behind what ended it."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from kernels.calibrate import points
from kernels.calibrate.points import CandidateTimes, CompiledTimes, GeneratedTimes, Times
from kernels.calibrate.programs import count, draw
from kernels.calibrate.shares import Share, programs
from kernels.calibrate.worker import work
from profiler.region.model import Region

SHARES = (Share("pointwise", 2.0), Share("chain", 1.0, 1, 3))


def first(many: int) -> list[tuple[str, int]]:
    """The programs that a worker of these shares begins with."""
    return sorted(itertools.islice(programs(SHARES, count), many))


def measured_in(path: Path) -> list[tuple[str, int]]:
    return sorted((p["family"], p["number"]) for p in points.finished(points.read(path)))


class Clock:
    """Stands for a GPU: each program takes as many µs as its text has lines. stop: after so many programs."""

    events_us = 1.25

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop: int, fault: type[BaseException] | None = None) -> None:
        self.seen: list[Region] = []
        self.with_eager: list[bool] = []
        self.stop, self.fault = stop, fault
        monkeypatch.setattr("kernels.calibrate.worker.time.time", lambda: float(len(self.seen)))

    def eager(self, region: Region) -> Times:
        self.seen.append(region)
        if self.fault and len(self.seen) == self.stop:
            raise self.fault("it ended")
        return {"cold_us": float(len(region.source.splitlines())), "warm_us": 1.0, "host_us": 2.0}

    def compiled(self, region: Region, with_eager: bool) -> CompiledTimes:
        self.with_eager.append(with_eager)
        times: CompiledTimes = {"kernels": [], "externs": []}
        times.update(self.eager(region))  # type: ignore[typeddict-item]
        return times

    def generated(self, region: Region) -> GeneratedTimes:
        return {**self.eager(region), "generated": [], "kept": ["mm"]}

    def own(self, region: Region) -> CandidateTimes:
        return {**self.eager(region), "candidates": {"triton:softmax": {"cold_us": 1.0}}}

    def autotuned(self, region: Region) -> CompiledTimes:
        return {**self.eager(region), "compile_s": 3.0}


def test_each_kind_of_family_is_run_in_its_own_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = [Share(name, 1.0) for name in ("generated_chain", "own_softmax", "autotuned_linear")]
    work(Clock(monkeypatch, 9), shares, 9.0, tmp_path / "a.jsonl")
    by_mode = {p["mode"]: p for p in points.finished(points.read(tmp_path / "a.jsonl"))}
    assert by_mode["generated"]["kept"] == ["mm"]
    assert by_mode["own"]["candidates"] == {"triton:softmax": {"cold_us": 1.0}}
    assert by_mode["max-autotune"]["compile_s"] == 3.0
    assert by_mode["generated"]["text"] == draw("chain", by_mode["generated"]["number"])


def test_the_programs_of_the_shares_are_measured_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work(Clock(monkeypatch, 9), SHARES, 9.0, tmp_path / "a.jsonl")
    written = points.finished(points.read(tmp_path / "a.jsonl"))
    assert sorted((p["family"], p["number"]) for p in written) == first(9)
    assert all(p["text"] == draw(p["family"], p["number"]) for p in written)
    assert all(p["cold_us"] == len(p["text"].splitlines()) for p in written)
    assert {p["mode"] for p in written} == {"eager", "compile"}


def test_what_was_measured_is_not_measured_again_by_whichever_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(Clock(monkeypatch, 5), SHARES, 5.0, tmp_path / "a.jsonl")
    again = Clock(monkeypatch, 3)
    work(again, SHARES, 3.0, tmp_path / "b.jsonl")
    assert sorted(measured_in(tmp_path / "a.jsonl") + measured_in(tmp_path / "b.jsonl")) == first(8)
    assert len(again.seen) == 3


def test_a_program_that_ended_the_process_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        work(Clock(monkeypatch, 3, KeyboardInterrupt), SHARES, 9.0, tmp_path / "a.jsonl")
    third = next(itertools.islice(programs(SHARES, count), 2, None))
    work(Clock(monkeypatch, 4), SHARES, 4.0, tmp_path / "a.jsonl")
    assert sorted([*measured_in(tmp_path / "a.jsonl"), third]) == first(7)


def test_a_program_that_fails_costs_its_point_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    third = next(itertools.islice(programs(SHARES, count), 2, None))
    work(Clock(monkeypatch, 3, RuntimeError), SHARES, 5.0, tmp_path / "a.jsonl")
    reasons = [p.get("failed") for p in points.read(tmp_path / "a.jsonl") if (p["family"], p["number"]) == third]
    assert reasons[-1] == "RuntimeError: it ended"
    assert sorted([*measured_in(tmp_path / "a.jsonl"), third]) == first(5)


def test_a_worker_ends_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1)
    began = time.monotonic()
    work(clock, SHARES, -1.0, tmp_path / "a.jsonl")
    assert clock.seen == []
    assert time.monotonic() - began < 60


def test_a_program_with_gradients_is_timed_without_them_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its backward takes is the difference."""
    clock = Clock(monkeypatch, 9)
    work(clock, (Share("trained_norm", 1.0),), 4.0, tmp_path / "a.jsonl")
    assert [region.requires_grad for region in clock.seen] == [True, False, True, False]
    assert all(p["forward"]["cold_us"] for p in points.finished(points.read(tmp_path / "a.jsonl")))


def test_a_worker_of_programs_that_end_ends_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = count("model_program")
    assert last is not None
    work(Clock(monkeypatch, 9), (Share("model_program", 1.0, last - 3),), 99.0, tmp_path / "a.jsonl")
    assert measured_in(tmp_path / "a.jsonl") == [("model_program", n) for n in range(last - 3, last)]
