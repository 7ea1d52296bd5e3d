"""Figures of a third: recomputed from the measured file and the programs' rows, and every program told of."""

from __future__ import annotations

import math
from typing import Any

import pytest

from app.accuracy.corpus.corpus_figures import (
    ATLAS,
    COMPARED,
    FAMILIES,
    MODES,
    Prediction,
    newest_records,
    prediction_of,
    remembering,
    run_of,
    third_figures,
    without_programs,
)
from app.accuracy.corpus.looks import not_whole
from app.accuracy.corpus.measured import load_measured
from app.accuracy.corpus.programs import DEVELOPMENT, load_corpus, load_programs
from app.estimate.rates import FITTED, SCALED_ATLAS, WITHOUT_ATLAS
from app.objects.corpus import CorpusRun, DeviceFigures
from tests.app.accuracy.corpus.made import H100, H200, development_records
from tools.corpus.families import LABELS

COUNT = 24
RULES = prediction_of(FITTED, False)


@pytest.fixture(scope="module")
def run() -> CorpusRun:
    """So many programs on one device and a few on another, where they took as long."""
    return third_figures(DEVELOPMENT, RULES, None, [*development_records(COUNT), *development_records(3, H100)])


def of(run: CorpusRun, name: str) -> DeviceFigures:
    return next(d for d in run["devices"] if d["device"] == name)


def test_devices_are_counted_each_for_itself(run: CorpusRun) -> None:
    assert {d["device"]: d["measured"] for d in run["devices"]} == {H200: COUNT, H100: 3}
    assert {d["device"]: (d["atlas"], d["own"]) for d in run["devices"]} == {H200: (H200, True), H100: (H100, True)}
    assert run["programs"] == len(load_programs(DEVELOPMENT))


def test_eagers_times_are_those_of_the_measured_file(run: CorpusRun) -> None:
    """The medians, from the file itself; the middle of each prediction against them with other arithmetic."""
    measured = {
        r["name"]: c["time_us"]["median"]
        for r in load_measured(DEVELOPMENT)
        if r["device"] == H200
        for c in r["candidates"]
        if c["name"] == "eager" and c["time_us"]
    }
    points = [(o["eager"], measured[o["program"]]) for o in run["outcomes"] if o["device"] == H200 and o["eager"]]
    assert points and all(p["measured"] == pytest.approx(m, rel=1e-4) for p, m in points)
    held = of(run, H200)["all"]["eager"]
    assert held["predictions"] == len(points)
    assert held["within"] == pytest.approx(sum(0.8 <= p["mid"] / m <= 1.2 for p, m in points) / len(points), rel=1e-3)
    assert held["inside"] == pytest.approx(sum(p["low"] <= m <= p["high"] for p, m in points) / len(points), rel=1e-3)
    error = math.prod(max(p["mid"] / m, m / p["mid"]) for p, m in points) ** (1 / len(points))
    assert held["error_geomean"] == pytest.approx(error, rel=1e-3)


def test_totals_are_those_of_the_programs_by_family_and_by_mode(run: CorpusRun) -> None:
    for device in run["devices"]:
        rows = [o for o in run["outcomes"] if o["device"] == device["device"]]
        for key, parts in (("family", device["families"]), ("mode", device["modes"])):
            for name, group in parts.items():
                regrets = [o["score"]["regret"] for o in rows if o["score"] and o[key] == name]  # type: ignore[literal-required]
                assert group["cases"] == len(regrets)
                if regrets:
                    assert group["regret_worst"] == pytest.approx(max(regrets), rel=1e-4)
                    mean = math.prod(regrets) ** (1 / len(regrets))
                    assert group["regret_geomean"] == pytest.approx(mean, rel=1e-4)
            assert sum(g["cases"] for g in parts.values()) == device["all"]["cases"]
        assert device["all"]["right"] == pytest.approx(
            sum(o["score"]["right"] for o in rows if o["score"]) / device["all"]["cases"], rel=1e-4
        )


def test_every_program_of_the_third_counts_or_is_left_out_with_a_reason(run: CorpusRun) -> None:
    for device in run["devices"]:
        assert not_whole(device, run["programs"]) == []
        assert all(row["reason"] and row["programs"] > 0 for row in device["left_out"])
        missing = [r for r in device["left_out"] if r["reason"] == "not measured on this device yet"]
        assert [r["programs"] for r in missing] == [run["programs"] - device["measured"]] * 4


def test_policies_stand_on_the_programs_that_the_advice_is_counted_on(run: CorpusRun) -> None:
    device = of(run, H200)
    assert {"always eager", "always torch.compile", "always max-autotune", "always Triton"} < set(device["policies"])
    knowing = device["policies"]["the decision rule, had it known the measurement"]
    assert knowing["right"] == 1 and knowing["cases"] == device["all"]["cases"]
    assert (knowing["regret_geomean"] or 9) <= (device["all"]["regret_geomean"] or 0)
    assert not [name for name in device["policies"] if "label" in name]  # nobody published any of the corpus


def test_the_same_program_measured_again_counts_once_and_as_last_measured() -> None:
    first: Any = development_records(1)[0]
    again = first | {"date": "2027-01-01", "id": "again"}
    assert newest_records([again, first]) == newest_records([first, again]) == [again]
    elsewhere = development_records(1, H100)[0]
    assert len(newest_records([first, elsewhere])) == 2


def test_families_are_those_that_the_corpus_was_built_by() -> None:
    assert set(FAMILIES) == set(LABELS)
    assert {p.label for p in load_corpus().programs} <= set(FAMILIES)
    assert {p.mode for p in load_corpus().programs} == set(MODES)


def test_ways_of_predicting_are_named_by_what_they_are() -> None:
    assert prediction_of(FITTED, True) is ATLAS
    assert len({p.name for p in COMPARED}) == len(COMPARED)
    for rates, start in ((FITTED, "own atlas"), (SCALED_ATLAS, "another's atlas"), (WITHOUT_ATLAS, "rates")):
        assert prediction_of(rates, False).name == f"{prediction_of(rates, True).name.partition(',')[0]}, fusion rules"
        assert prediction_of(rates, True).name.startswith(start)


def test_what_is_published_of_the_blind_third_names_no_program(run: CorpusRun) -> None:
    text = str(without_programs(run))
    assert not [p.name for p in load_programs(DEVELOPMENT) if p.name in text]


def test_the_oracle_is_asked_once_a_record_and_not_where_rules_predict() -> None:
    from app.analysis.analyze import NO_COMPILE_PREDICTION

    asked: list[str] = []

    def oracle(question: Any) -> Any:
        asked.append(question.case.record)
        return NO_COMPILE_PREDICTION

    few, known = development_records(2), remembering(oracle)
    for prediction in COMPARED:
        run = third_figures(DEVELOPMENT, prediction, known, few)
        assert run["devices"][0]["unanswered"] == (2 if prediction.oracle else 0)
    assert sorted(asked) == sorted(r["id"] for r in few)


def test_nothing_measured_is_no_device() -> None:
    assert run_of(DEVELOPMENT, Prediction("x", FITTED), load_programs(DEVELOPMENT), [])["devices"] == []
