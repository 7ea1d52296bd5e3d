"""A worker goes on where another was stopped, and behind what ended it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kernels.calibrate import points
from kernels.calibrate.points import CompiledTimes, Times
from kernels.calibrate.programs import draw, pick
from kernels.calibrate.worker import work
from profiler.region.model import Region

FAMILIES = ("pointwise", "chain")


class Clock:
    """Stands for a GPU: each program takes as many µs as its text has lines. stop: after so many programs."""

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


def test_every_second_number_is_measured_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 9)
    work(clock, FAMILIES, 1, 2, 9.0, tmp_path / "a.jsonl")
    measured_points = points.finished(points.read(tmp_path / "a.jsonl"))
    assert sorted(p["number"] for p in measured_points) == [1, 3, 5, 7, 9, 11, 13, 15, 17]
    assert all(p["text"] == draw(pick(FAMILIES, p["number"]), p["number"]) for p in measured_points)
    assert all(p["cold_us"] == len(p["text"].splitlines()) for p in measured_points)
    assert {p["mode"] for p in measured_points} == {"eager", "compile"}


def test_what_was_measured_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work(Clock(monkeypatch, 5), FAMILIES, 0, 1, 5.0, tmp_path / "a.jsonl")
    again = Clock(monkeypatch, 3)
    work(again, FAMILIES, 0, 1, 3.0, tmp_path / "a.jsonl")
    measured_points = points.finished(points.read(tmp_path / "a.jsonl"))
    assert sorted(p["number"] for p in measured_points) == list(range(8))
    assert len(again.seen) == 3


def test_a_program_that_ended_the_process_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        work(Clock(monkeypatch, 3, KeyboardInterrupt), FAMILIES, 0, 1, 9.0, tmp_path / "a.jsonl")
    work(Clock(monkeypatch, 4), FAMILIES, 0, 1, 4.0, tmp_path / "a.jsonl")
    measured_points = points.finished(points.read(tmp_path / "a.jsonl"))
    assert sorted(p["number"] for p in measured_points) == [0, 1, 3, 4, 5, 6]


def test_a_program_that_fails_costs_its_point_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work(Clock(monkeypatch, 3, RuntimeError), FAMILIES, 0, 1, 5.0, tmp_path / "a.jsonl")
    everything = list(points.read(tmp_path / "a.jsonl"))
    assert [p["failed"] for p in everything if p["number"] == 2][-1] == "RuntimeError: it ended"
    assert sorted(p["number"] for p in points.finished(everything)) == [0, 1, 3, 4]


def test_a_worker_ends_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1)
    began = time.monotonic()
    work(clock, FAMILIES, 0, 1, -1.0, tmp_path / "a.jsonl")
    assert clock.seen == []
    assert time.monotonic() - began < 60
