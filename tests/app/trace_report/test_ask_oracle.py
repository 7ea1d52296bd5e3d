"""A trace that rules have advised on, then Inductor: asked for real, once for the module."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from app.analysis.service import ask_oracle as ask_about_one
from app.analysis.service import decide_region, outline, prepare_from_inputs
from app.objects.trace import OracleProgress, TraceBody
from app.trace_report.ask_oracle import ask_oracle
from app.trace_report.report import Whole, whole_report
from profiler.oracle.cache import Cache
from profiler.oracle.process import Oracle
from tests.conftest import ROOT

TRACE = ROOT / "app" / "examples" / "handrolled_blocks.json.gz"


@dataclass
class Asked:
    """A trace by the rules, then with Inductor's answers, with what was told meanwhile."""

    whole: Whole
    trace: TraceBody
    told: list[OracleProgress]
    cache: Cache


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    whole = whole_report(TRACE, TRACE.name)
    oracle = Oracle(Cache(tmp_path_factory.mktemp("oracle")), timeout_s=120.0)
    told: list[OracleProgress] = []
    try:
        trace = ask_oracle(whole.trace, whole.inputs, oracle, on_progress=told.append)
    finally:
        oracle.stop()
    assert oracle.cache is not None
    return Asked(whole, trace, told, oracle.cache)


def test_the_heaviest_regions_go_by_inductors_kernels_and_the_tail_by_rules(asked: Asked) -> None:
    assert {r["prediction"] for r in asked.whole.trace["regions"]} == {"rules"}
    assert "oracle" not in asked.whole.trace
    regions = asked.trace["regions"]
    by_time = sorted(regions, key=lambda r: -(r["time_us_per_step"] or 0.0))
    names = [r["prediction"] for r in by_time]
    assert names == ["oracle"] * 5 + ["rules"] * (len(regions) - 5)
    for region in by_time[:5]:
        assert region["oracle"][0]["unavailable"] == ""
        assert region["oracle"][0]["kernels"] or region["oracle"][0]["externs"]
    fuses = [c["source"] for r in by_time[:5] for c in (r["advice"] or {})["criteria"] if c["name"] == "compile-fuses"]
    assert any(source.startswith("Inductor's own kernels") for source in fuses)
    held = sum(r["time_us_per_step"] or 0.0 for r in by_time[:5]) / sum(r["time_us_per_step"] or 0.0 for r in by_time)
    assert asked.trace.get("oracle") == {
        "asked": 5, "answered": 5, "failed": 0, "of_time": pytest.approx(held), "done": True
    }  # fmt: skip
    assert 0.95 <= held < 1.0


def test_its_advice_is_what_the_regions_page_would_say(asked: Asked) -> None:
    """The same inputs and the same answer by the other way: a text, prepared and decided by itself."""
    oracle = Oracle(asked.cache, timeout_s=0.001)  # nobody has to be asked any more
    for region, inputs in zip(asked.trace["regions"], asked.whole.inputs, strict=True):
        if region["prediction"] == "rules":
            continue
        prepared = prepare_from_inputs(region["text"] or "", inputs)
        prediction = ask_about_one(oracle, outline(prepared), 5.0)
        decided = decide_region(prepared, prediction)
        assert decided["advice"] == region["advice"]
        assert decided["rests_on"]["prediction"] == region["rests_on"]["prediction"] == region["advice"]["prediction"]


def test_what_the_trace_says_stays_and_the_step_is_estimated_anew(asked: Asked) -> None:
    changed = {"oracle", "recompiles", "prediction", "advice", "launches_left", "rests_on"}
    for before, after in zip(asked.whole.trace["regions"], asked.trace["regions"], strict=True):
        assert {k: v for k, v in before.items() if k not in changed} == {
            k: v for k, v in after.items() if k not in changed
        }
    tail = {r["name"]: r for r in asked.trace["regions"]}["GEMM with GELU and mask tail"]
    cost = tail["cost"]
    assert cost is not None
    assert tail["launches_left"]["compile"] == tail["oracle"][0]["launches"] / cost["unfused"]["launches"]
    assert asked.trace["gain"] != asked.whole.trace["gain"]


def test_progress_is_told_before_the_first_answer_and_after_each(asked: Asked) -> None:
    assert [p["answered"] for p in asked.told] == [0, 1, 2, 3, 4, 5]
    assert [p["done"] for p in asked.told] == [False] * 5 + [True]


def test_what_was_answered_is_not_asked_again(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Oracle, "_wait", lambda *a: pytest.fail("a process was asked"))
    again = ask_oracle(asked.whole.trace, asked.whole.inputs, Oracle(asked.cache))
    assert again == asked.trace


def test_a_region_that_inductor_has_no_answer_for_keeps_its_advice_and_says_why(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.trace_report import ask_oracle as module

    heaviest = asked.whole.trace["regions"][0]["text"]
    known = module.service.predict_compile

    def of_all_but_one(oracle: Oracle, prepared: object, *more: object) -> object:
        if prepared.text == heaviest:  # type: ignore[attr-defined]
            raise RuntimeError("it cannot be asked")
        return known(oracle, prepared, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(module.service, "predict_compile", of_all_but_one)
    late = ask_oracle(asked.whole.trace, asked.whole.inputs, Oracle(asked.cache, timeout_s=0.001))
    first = late["regions"][0]
    assert (first["prediction"], first["advice"]) == ("rules", asked.whole.trace["regions"][0]["advice"])
    assert first["oracle"][0]["unavailable"] == "RuntimeError: it cannot be asked"
    progress = late.get("oracle")
    assert progress is not None
    assert (progress["answered"], progress["failed"], progress["done"]) == (4, 1, True)
    # In time, but without an answer: what a process that is never up in time says.
    monkeypatch.undo()
    hurried = Oracle(Cache(tmp_path), timeout_s=0.001)
    nobody = ask_oracle(asked.whole.trace, asked.whole.inputs, hurried)
    hurried.stop()
    assert {r["prediction"] for r in nobody["regions"]} == {"rules"}
    assert nobody["regions"][0]["oracle"][0]["unavailable"] == "no answer within 0.001 s"
    assert [r["advice"] for r in nobody["regions"]] == [r["advice"] for r in asked.whole.trace["regions"]]
    assert nobody["gain"] == asked.whole.trace["gain"]
