"""What the table of validations says of two runs: how far ratios moved, whether outcomes differ, what advice cost."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from app.archive import record_store
from benchmarks.validation.validate_table import PAGE, RECORD, page, regrets, repeatability, summary, table

Json = dict[str, Any]


@pytest.fixture
def first() -> Json:
    """A record that ships: SwiGLU, eager 285 µs, the others 164."""
    (path,) = record_store.FOLDER.glob("swiglu-*-2026-11-21-*.json")
    return json.loads(path.read_text()) | {"verdict_s": 12.3}


def moved(validation: Json, name: str, factor: float) -> Json:
    again = copy.deepcopy(validation)
    for candidate in again["candidates"]:
        if candidate["name"] == name:
            candidate["ratio_to_eager"]["median"] *= factor
    return again


def test_two_equal_runs_agree(first: Json) -> None:
    answer = repeatability({"swiglu": [summary(first), summary(first)]})
    timed = [c for c in first["candidates"] if c["status"] == "ok" and c["name"] != "eager"]
    assert (answer["ratios"], answer["within"], answer["outcomes_differ"]) == (len(timed), len(timed), [])


def test_a_ratio_that_moved_is_counted_and_named(first: Json) -> None:
    again = moved(first, "compile", 1.05)
    again["outcome"] = "tie"
    answer = repeatability({"swiglu": [summary(first), summary(again)]})
    assert answer["within"] == answer["ratios"] - 1
    assert answer["moved_most"][0] == [pytest.approx(0.05, abs=1e-3), "swiglu", "compile"]
    assert answer["outcomes_differ"] == ["swiglu"]


def test_one_run_or_a_failed_one_says_nothing_of_repeatability(first: Json) -> None:
    answer = repeatability({"once": [summary(first)], "failed": [summary(first), summary({"failed": "no answer"})]})
    assert (answer["regions"], answer["ratios"], answer["share_within"]) == (0, 0, None)


def test_regret_is_of_the_tool_that_was_advised(first: Json) -> None:
    times = {c["name"]: c["time_us"]["median"] for c in first["candidates"] if c["time_us"]}
    assert first["advice_before"]["tool"] == "compile"
    best = min(times["compile"], times["compile-max-autotune"]) / min(times.values())
    assert regrets({"swiglu": [summary(first)]}) == {"swiglu": pytest.approx(best)}
    first["advice_before"]["tool"] = "skip"
    assert regrets({"swiglu": [summary(first)]}) == {"swiglu": pytest.approx(times["eager"] / min(times.values()))}


def test_a_tool_that_was_not_measured_has_no_regret(first: Json) -> None:
    first["advice_before"]["tool"] = "cuda"
    assert regrets({"swiglu": [summary(first)]}) == {}


def test_the_table_names_what_failed_and_why(first: Json) -> None:
    first["candidates"][1] |= {"status": "timeout", "message": "building took too long"}
    regions = {"swiglu": [summary(first)], "other": [summary({"failed": "no answer within 9 s"})]}
    text = table({"device": first["device"], "regions": regions, "repeatability": repeatability(regions)})
    assert "timeout: building took too long" in text
    assert "other: no answer within 9 s" in text
    assert "best compile" in text
    assert "285.2 µs" in text


def test_without_eager_there_are_times_and_no_ratios(first: Json) -> None:
    for candidate in first["candidates"]:
        candidate["ratio_to_eager"] = None
    first["candidates"][0] |= {"status": "out_of_memory", "time_us": None}
    regions = {"swiglu": [summary(first), summary(first)]}
    answer = repeatability(regions)
    assert answer["ratios"] == 0
    assert "of eager" not in table({"regions": regions, "repeatability": answer})


def test_the_page_is_what_the_record_says() -> None:
    assert PAGE.read_text() == page(json.loads(RECORD.read_text()))
