"""The newest run: told where it is known, unmeasured where the history is short, a pull request against its base."""

from __future__ import annotations

from dataclasses import replace

from app.history.model import Entry, Measure
from app.history.newest import Newest, judge_newest
from app.history.shifts import USUAL
from tests.app.history.runs import H100, noisy, run


def judged(earlier: list[Entry], newest: Entry, base: str = "") -> Newest:
    (only,) = judge_newest(earlier, newest, USUAL, base=base)
    return only


EARLIER = [run(n, time) for n, time in enumerate(noisy([1000.0] * 20))]


def test_a_slower_run_is_told_and_one_as_before_is_not() -> None:
    slower = judged(EARLIER, run(20, 1060.0)).change
    assert slower is not None
    assert slower.cause == "regression"
    assert "one run alone says so" in slower.because
    assert judged(EARLIER, run(20, 1001.0)) == Newest(run(20, 1001.0).measures[0], None)


def test_another_run_of_the_same_commit_tells_it_again_and_a_later_commit_stands_on_it() -> None:
    earlier = [*EARLIER, run(20, 1060.0)]
    again = judged(earlier, run(21, 1061.0, commit="c020")).change
    assert again is not None
    assert again.after.commit == "c020"
    assert judged(earlier, run(21, 1061.0)).change is None
    assert judged(earlier, run(21, 1001.0, commit="c020")).change is None


def test_a_measurement_that_is_judged_again_is_not_compared_with_itself() -> None:
    slower = run(20, 1060.0)
    kernels = Measure("contract norm: RMSNorm", "kernels", "kernels", 3.0)
    kept = replace(slower, id="with contracts", measures=(*slower.measures, kernels))
    assert judged([*EARLIER, kept], slower) == judged(EARLIER, slower)
    assert "4 earlier runs" in judged([*EARLIER[:4], kept], slower).lacks


def test_a_short_history_says_how_short() -> None:
    assert judged([], run(0, 1.0)).lacks == "the history has no run of it yet"
    assert "2 earlier runs in this environment of the 5 needed" in judged(EARLIER[:2], run(2, 1000.0)).lacks
    assert "0 earlier runs in this environment" in judged(EARLIER, run(20, 1000.0, H100)).lacks


def test_a_pull_request_is_compared_with_the_runs_of_its_base() -> None:
    request = run(20, 1060.0, branch="feature")
    assert judged(EARLIER, request).lacks == "the history has no run of it yet"
    change = judged(EARLIER, request, base="main").change
    assert change is not None
    assert (change.cause, change.key.branch) == ("regression", "main")
