"""Cores for each GPU: no core's threads in two parts, since one would slow the other's wall times."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.validation import validate


@pytest.mark.skipif(shutil.which("taskset") is None, reason="needs taskset")
def test_the_threads_of_a_core_stay_with_one_gpu(monkeypatch):
    monkeypatch.setattr(validate, "siblings", lambda core: frozenset({core % 32, core % 32 + 32}))
    parts = validate.share_cores(["0", "1", "2", "3"], list(range(64)))
    assert [len(part) for part in parts.values()] == [16] * 4
    assert frozenset().union(*parts.values()) == frozenset(range(64))
    assert all((core + 32) % 64 in part for part in parts.values() for core in part)


def test_one_gpu_or_few_cores_are_not_parted(monkeypatch):
    monkeypatch.setattr(validate, "siblings", lambda core: frozenset({core}))
    assert validate.share_cores(["0"], list(range(16))) == {"0": frozenset()}
    assert set(validate.share_cores(["0", "1"], list(range(8))).values()) == {frozenset()}


def test_a_machine_that_does_not_tell_has_cores_of_one_thread():
    assert validate.siblings(10**6) == frozenset({10**6})


def test_those_that_share_a_gpu_leave_one_core_to_the_one_that_times(monkeypatch, tmp_path):
    monkeypatch.setattr(validate, "siblings", lambda core: frozenset({core % 4, core % 4 + 4}))
    workers = validate.share_gpu("0", 3, frozenset(range(1, 8)), tmp_path)
    assert [w.shared for w in workers] == [{"turn": str(tmp_path / "turn-0"), "parts": 3, "cores": [1, 5]}] * 3
    assert {w.command[2] for w in workers} == {"2,3,4,6,7"}
