"""The record of planted changes: what docs/history.md claims of it, and a small part of it made again."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from app.history.shifts import USUAL
from benchmarks.history.causes import told_as
from benchmarks.history.detectors import bencher_t, fixed
from benchmarks.history.noise import Pair, figures, halves, read_pairs
from benchmarks.history.planted import PAGE, RECORD, detection, events, plant, score, tables

OURS, BENCHER = "tritonworthy", "Bencher's t-test, 0.99"
ENVIRONMENTS = {
    "device, 40 % slower": "hardware",
    "torch and triton, 5 % slower": "software",
    "stacks recorded, 10 % slower": "method",
}


@pytest.fixture(scope="module")
def record() -> Any:
    return json.loads(RECORD.read_text(encoding="utf-8"))


def row(record: Any, noise: str, size: float, detector: str) -> Any:
    (one,) = [r for r in record["detection"] if (r["noise"], r["size"], r["detector"]) == (noise, size, detector)]
    return one


def share(one: Any) -> float:
    return float(one["detected"] / one["planted"])


@pytest.mark.parametrize("noise", ["one candidate", "one region", "all"])
def test_changes_of_5_and_10_per_cent_are_told_within_two_runs(record: Any, noise: str) -> None:
    for size in (0.05, 0.1):
        assert share(row(record, noise, size, OURS)) >= 0.98
        assert row(record, noise, size, OURS)["delay_runs_median"] <= 2


@pytest.mark.parametrize("noise", ["one candidate", "one region", "all"])
def test_2_per_cent_are_told_more_often_than_by_the_others(record: Any, noise: str) -> None:
    ours = row(record, noise, 0.02, OURS)
    assert share(ours) >= 0.9
    others = {r["detector"] for r in record["detection"]} - {OURS}
    for other in others:
        compared = row(record, noise, 0.02, other)
        fewer_false = compared["false_alarms"] <= ours["false_alarms"]
        assert share(compared) < share(ours) or not fewer_false, other


@pytest.mark.parametrize(("noise", "most"), [("one candidate", 0.01), ("one region", 0.99), ("all", 0.3)])
def test_false_alarms_are_fewer_than_bencher_s(record: Any, noise: str, most: float) -> None:
    for size in (0.0, 0.02, 0.05, 0.1):
        ours, theirs = row(record, noise, size, OURS), row(record, noise, size, BENCHER)
        assert ours["false_alarms"] <= most * theirs["false_alarms"]
        assert ours["false_alarms_per_500_runs"] <= 4


@pytest.mark.parametrize(("planted", "cause"), ENVIRONMENTS.items())
def test_an_environment_is_never_told_as_a_commit(record: Any, planted: str, cause: str) -> None:
    told = record["causes"][planted]
    assert told["told_as"].get(cause, 0) >= 0.9 * told["series"]
    assert "regression" not in told["told_as"]
    assert "improvement" not in told["told_as"]


def test_an_old_commit_run_again_tells_the_two_parts_apart(record: Any) -> None:
    together = record["causes"]["device 40 % and commit 5 % slower"]
    assert "regression" not in together["told_as"]
    assert together["how_to_separate"] >= 0.9 * together["series"]
    again = record["causes"]["the same, old commit run again"]
    assert again["told_as"]["hardware and regression"] >= 0.8 * again["series"]


def test_the_record_is_of_this_noise_and_these_parameters_and_stands_on_the_page(record: Any) -> None:
    chosen, judged = halves(read_pairs())
    assert record["noise"] == {"chosen_by": figures(chosen), "judged_by": figures(judged)}
    assert {pair.region for pair in chosen}.isdisjoint(pair.region for pair in judged)
    assert record["sensitivity"] == {
        "confidence": USUAL.confidence, "min_change": USUAL.min_change, "min_runs": USUAL.min_runs,
    }  # fmt: skip
    assert tables(record) in PAGE.read_text(encoding="utf-8")


def test_a_small_part_made_again_says_the_same() -> None:
    _, judged = halves(read_pairs())
    regions = sorted({pair.region for pair in judged})[:4]
    few = [pair for pair in judged if pair.region in regions]
    ours, *_ = detection(few, [1000], "one candidate", 0.05)
    assert (ours["detector"], ours["planted"]) == (OURS, 16)
    assert ours["detected"] == 16
    causes = told_as(few[:4], [1000], "device, 40 % slower")
    assert causes["told_as"] == {"hardware": 4}


def test_what_is_planted_is_there_and_goes_again() -> None:
    planted = plant(np.random.default_rng(0), 0.05)
    assert len(planted) == 4
    assert np.prod([1 + size for _, size in planted]) == pytest.approx(1.0)
    assert plant(np.random.default_rng(0), 0.0) == []


def test_an_alarm_counts_for_the_change_before_it_in_its_direction() -> None:
    planted = [(100, 0.05), (200, -0.05)]
    assert score([(102, 1), (103, 1), (201, -1)], planted) == ({100: 3, 200: 2}, 0)
    assert score([(102, -1), (50, 1), (161, 1)], planted) == ({}, 3)
    assert events([(1, 1), (2, 1), (6, 1), (7, -1)]) == [[(1, 1), (2, 1)], [(6, 1)], [(7, -1)]]


def test_bencher_s_interval_is_that_of_one_more_value() -> None:
    """Of 3, 4, 5: mean 4, deviation 1, t of 0.99 with 2 degrees of freedom 6.965: 4 ± 6.965 * sqrt(4 / 3) = 8.04."""
    values = [3.0, 4.0, 5.0]
    assert bencher_t(np.log([*values, 8.0]), [], boundary=0.99) == []
    assert bencher_t(np.log([*values, 12.1]), [], boundary=0.99) == [(3, 1)]
    assert fixed(np.log([100.0, 104.0, 110.0, 100.0]), []) == [(2, 1), (3, -1)]


def test_both_parts_of_the_noise_add_up() -> None:
    made = figures([Pair("a", 0.005, 0.003), Pair("b", -0.005, 0.003)])
    assert (made["run"], made["within_run"], made["between_runs"]) == (0.005, 0.003, 0.004)
