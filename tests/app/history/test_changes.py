"""Causes: the commit's within an environment, the environment's between two, and what tells them apart."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from app.history.changes import all_series, in_order, series_of
from app.history.model import Change, Entry, Environment
from tests.app.history.runs import H100, H200, KEY, STACKS, UPGRADED, noisy, run


def changes(runs: list[Entry], commits: list[str] | None = None) -> tuple[Change, ...]:
    return series_of(KEY, runs, commits=commits or ()).changes


def test_a_commit_that_is_slower_in_one_environment_is_a_regression() -> None:
    runs = [run(n, time) for n, time in enumerate(noisy([1000.0] * 20 + [1050.0] * 10))]
    (change,) = changes(runs)
    assert (change.cause, change.before.commit, change.after.commit) == ("regression", "c019", "c020")
    assert change.ratio["low"] < 1.05 < change.ratio["high"]
    assert change.also == ()
    assert change.how_to_separate == ""
    (back,) = changes([run(n, time) for n, time in enumerate(noisy([1050.0] * 20 + [1000.0] * 10))])
    assert back.cause == "improvement"


@pytest.mark.parametrize(
    ("environment", "cause", "words"),
    [
        (H100, "hardware", "on NVIDIA H100 instead of NVIDIA H200"),
        (UPGRADED, "software", "torch 2.12.0 instead of 2.11.0"),
        (STACKS, "method", "measured as median of 5 recorded steps, with stacks"),
    ],
)
def test_a_new_environment_is_the_cause_and_never_a_regression(
    environment: Environment, cause: str, words: str
) -> None:  # fmt: skip
    times = noisy([1000.0] * 20 + [1300.0] * 10)
    (change,) = changes([run(n, time, H200 if n < 20 else environment) for n, time in enumerate(times)])
    assert change.cause == cause
    assert words in change.because
    assert "git checkout c019" in change.how_to_separate


def test_a_new_environment_with_the_same_commit_needs_no_telling_apart() -> None:
    times = noisy([1000.0] * 20 + [1300.0])
    runs = [run(n, time) for n, time in enumerate(times[:20])] + [run(20, times[20], H100, commit="c019")]
    (change,) = changes(runs)
    assert (change.cause, change.how_to_separate) == ("hardware", "")


def test_several_parts_at_once_are_all_named() -> None:
    both = replace(UPGRADED, device="NVIDIA H100")
    times = noisy([1000.0] * 20 + [1300.0] * 5)
    (change,) = changes([run(n, time, H200 if n < 20 else both) for n, time in enumerate(times)])
    assert (change.cause, change.also) == ("hardware", ("software",))
    assert "torch 2.12.0 instead of 2.11.0" in change.because


def test_an_environment_without_effect_is_no_change() -> None:
    times = noisy([1000.0] * 40)
    assert changes([run(n, time, H200 if n < 20 else UPGRADED) for n, time in enumerate(times)]) == ()


def test_the_old_commit_in_the_new_environment_tells_both_apart() -> None:
    times = noisy([1000.0] * 20 + [1470.0] * 4 + [1400.0])
    runs = [run(n, time, H200 if n < 20 else H100) for n, time in enumerate(times[:24])]
    (together,) = changes(runs)
    assert together.cause == "hardware"
    first, second = changes([*runs, run(24, times[24], H100, commit="c019")])
    assert (first.cause, round(first.ratio["mid"], 1), first.how_to_separate) == ("hardware", 1.4, "")
    assert (second.cause, round(second.ratio["mid"], 2), second.after.commit) == ("regression", 1.05, "c020")


def test_runners_of_two_kinds_that_take_turns_have_a_base_line_each() -> None:
    levels = [(1000.0 if n % 2 else 1500.0) * (1.06 if n >= 40 else 1.0) for n in range(60)]
    told = changes([run(n, time, H200 if n % 2 else H100) for n, time in enumerate(noisy(levels))])
    assert [(change.cause, change.after.commit) for change in told] == [
        ("hardware", "c001"), ("regression", "c040"), ("regression", "c041"),
    ]  # fmt: skip


def test_a_level_that_moves_within_one_commit_is_noise() -> None:
    runs = [run(n, time, commit="c000") for n, time in enumerate(noisy([1000.0] * 20 + [1050.0] * 10))]
    (change,) = changes(runs)
    assert change.cause == "noise"
    assert "no change of the program" in change.because


def test_what_one_run_does_not_know_has_not_changed() -> None:
    less = Environment("NVIDIA H200", {"torch": "2.11.0"}, "")
    times = noisy([1000.0] * 20 + [1050.0] * 10)
    (change,) = changes([run(n, time, H200 if n % 2 else less) for n, time in enumerate(times)])
    assert change.cause == "regression"


def test_what_is_counted_changes_at_the_first_run() -> None:
    runs = [run(0, 1.0, unit="kernels"), run(1, 1.0, unit="kernels"), run(2, 3.0, unit="kernels")]
    (change,) = changes(runs)
    assert (change.cause, change.ratio["mid"], change.after.commit) == ("regression", pytest.approx(3.0), "c002")
    (other,) = changes([*runs[:2], run(2, 3.0, UPGRADED, unit="kernels")])
    assert other.cause == "software"


def test_commits_between_are_gits_where_it_has_both() -> None:
    times = noisy([1000.0] * 20 + [1050.0] * 10)
    runs = [run(n, time, commit=f"c{n * 3:03}") for n, time in enumerate(times)]
    listed = [f"c{n:03}" for n in range(100)]
    (change,) = changes(runs, listed)
    assert change.commits_between == ("c058", "c059", "c060")
    assert changes(runs)[0].commits_between == ("c060",)


def test_runs_stand_in_the_order_of_their_commits() -> None:
    runs = [run(0, 1.0, commit="a"), run(1, 1.0, commit="c"), run(2, 1.0, commit="a"), run(3, 1.0, commit="b")]
    assert [entry.commit for entry in in_order(runs)] == ["a", "a", "c", "b"]
    assert [entry.commit for entry in in_order(runs, ["a", "b", "c"])] == ["a", "a", "b", "c"]


def test_a_changed_working_tree_is_no_run_of_its_commit() -> None:
    runs = [run(0, 1.0, commit="a"), run(1, 1.0, commit="b"), run(2, 1.0, commit="a", dirty=True)]
    assert [entry.id for entry in in_order(runs)] == ["run-main-0", "run-main-1", "run-main-2"]


def test_points_have_their_segment_and_what_was_expected() -> None:
    times = noisy([1000.0] * 20 + [1300.0] * 10)
    (series,) = all_series([run(n, time, H200 if n < 20 else H100) for n, time in enumerate(times)])
    assert [point.segment for point in series.points] == [0] * 20 + [1] * 10
    for point in series.points:
        assert point.low is not None and point.level is not None and point.high is not None
        assert point.low < point.level < point.high
    inside = sum((p.low or 0) <= p.value <= (p.high or 0) for p in series.points)
    assert inside >= 26
    assert series_of(KEY, []).points == ()


@pytest.mark.parametrize("spread", [None, 100.0])
@pytest.mark.parametrize("unit", ["µs", "kernels"])
@pytest.mark.parametrize("others", [H200, H100])
def test_the_largest_values_and_spreads_that_are_taken_can_be_analysed(
    unit: str, spread: float | None, others: Environment
) -> None:
    runs = [run(n, value, H200 if n < 6 else others, unit=unit) for n, value in enumerate([1e-12] * 6 + [1e18] * 6)]
    runs = [replace(r, measures=(replace(r.measures[0], samples=2, spread=spread),)) for r in runs]
    series = series_of(KEY, [*runs, run(12, 1e-12, unit=unit)])
    assert len(series.points) == 13
    assert all(math.isfinite(number) for change in series.changes for number in change.ratio.values())  # type: ignore[arg-type]


def test_what_tells_causes_apart_is_a_command_a_line() -> None:
    times = noisy([1000.0] * 20 + [1300.0] * 10)
    (change,) = changes([run(n, time, H200 if n < 20 else H100) for n, time in enumerate(times)])
    assert change.how_to_separate.splitlines() == [
        "git checkout c019", "# record the trace again", "tritonworthy check TRACE --history FILE --append",
    ]  # fmt: skip
    hostile = [run(n, time, H200 if n < 20 else H100, commit=f"{n}; sh #") for n, time in enumerate(times)]
    assert changes(hostile)[0].how_to_separate.startswith("git checkout '19; sh #'\n")
