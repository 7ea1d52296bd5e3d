"""Effort against speed-up, and predictions held to measurements: whose figure is which."""

from __future__ import annotations

import pytest

from app.web.charts import effort
from app.web.views import predicted_vs_measured
from tests.app import samples


def test_each_tool_has_its_best_prediction_and_its_best_measurement() -> None:
    rows = {r["tool"]: r for r in effort.effort_rows(samples.advice(), samples.validation())}
    options = {o["candidate"]: o["time_us"] for o in samples.advice()["alternatives"] if o.get("time_us")}
    assert rows["compile"]["predicted"]["mid"] == pytest.approx(options["eager"]["mid"] / options["compile"]["mid"])
    timed = [c for c in samples.validation()["candidates"] if c["tool"] == "triton" and c["time_us"]]
    fastest = min(timed, key=lambda c: c["time_us"]["median"])
    assert rows["triton"]["measured"]["median"] == pytest.approx(1 / fastest["ratio_to_eager"]["median"])
    assert rows["eager"]["measured"] is None
    assert effort.effort_chart(list(rows.values())) is not None


def test_without_a_predicted_eager_there_is_nothing_to_hold_speedups_against() -> None:
    advice = samples.advice()
    advice["alternatives"] = [o for o in advice["alternatives"] if o["candidate"] != "eager"]
    assert effort.effort_rows(advice) == []
    assert effort.effort_chart([]) is None


def test_predictions_of_another_gpu_are_not_held_to_this_measurement() -> None:
    advice = samples.advice() | {"device": "NVIDIA H200"}
    validation = samples.validation(advice_before=None)
    rows = predicted_vs_measured.prediction_rows(validation, advice)
    assert rows
    for row in rows:
        assert row["ratio"] == pytest.approx(row["predicted"]["mid"] / row["measured"]["median"])
        assert row["inside"] is (abs(row["ratio"] - 1) <= 0.2)
    assert predicted_vs_measured.prediction_rows(validation, advice | {"device": "NVIDIA A100"}) == []
    assert predicted_vs_measured.prediction_rows(None) == []


def test_what_was_predicted_before_counts_not_what_is_predicted_now() -> None:
    before = samples.advice() | {"device": "NVIDIA H200"}
    now = samples.advice() | {"device": "NVIDIA H200"}
    now["alternatives"] = [{**o, "time_us": {"low": 1.0, "mid": 1.0, "high": 1.0}} for o in now["alternatives"]]
    rows = predicted_vs_measured.prediction_rows(samples.validation(advice_before=before), now)
    assert rows and all(r["predicted"]["mid"] != 1.0 for r in rows)
