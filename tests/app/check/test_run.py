"""A check of real traces and texts: what is read, what the archive adds, what is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from app.archive import record_store
from app.check import run
from app.check.config import from_mapping
from app.check.formats import FORMATS
from app.check.run import MAX_VALIDATIONS, NO_TEXT, TOO_MANY, check, measure_regions, told_apart
from app.check.subject import Subject
from app.trace_report.comparison.compare import PREDICTED
from profiler.region.model import RegionError
from tests.app.check.hostile_trace import EXAMPLE, write_hostile_trace
from tests.app.check.subjects import region, timed, trace
from tests.app.check.validators import VALIDATORS, sarif
from tests.conftest import DATA, ROOT

Json = dict[str, Any]

NORM = (ROOT / "app" / "examples" / "rms_norm_by_hand.txt").read_text()


def checked(*sources: Json, baseline: Json | None = None, archives: tuple[Path, ...] = (), **config: Any) -> Json:
    return check(
        {"config": config, "sources": list(sources), "baseline": baseline, "archives": [str(a) for a in archives]}
    )


def test_a_fusible_chain_that_costs_nine_per_cent_is_named_with_its_line() -> None:
    fuses = {"level": "error", "min_share": 0.06}
    report = checked({"name": "step", "path": str(EXAMPLE)}, assertions={"compile-fuses": fuses})
    assert report["outcome"] == "failed"
    (finding,) = [f for f in report["errors"] if f["region"] == "RMSNorm by hand"]
    assert finding["source"] == "traces.py:108 norm"
    assert finding["share_of_step"] == pytest.approx(0.093, abs=0.001)
    for name, known in FORMATS.items():
        VALIDATORS[name](known.render(report))


def test_a_trace_of_hostile_names_makes_valid_reports(tmp_path: Path) -> None:
    path = tmp_path / "hostile.json.gz"
    write_hostile_trace(path)
    report = checked({"name": "hostile", "path": str(path)}, assertions={"compile": "error", "library": "error"})
    assert report["outcome"] == "failed"
    assert all(f["module"] and f["source"] and "Block" not in f["module"] for f in report["errors"])
    for name, known in FORMATS.items():
        VALIDATORS[name](known.render(report))
    places = [
        r["locations"][0]["physicalLocation"] for r in sarif(FORMATS["sarif"].render(report))["runs"][0]["results"]
    ]
    assert all(p["region"]["startLine"] >= 1 for p in places)


def test_subjects_of_one_name_have_findings_and_cases_of_their_own() -> None:
    subjects = told_apart([Subject(n, "region") for n in ("a", "a (2)", "a", "b", "a")])
    assert [s.name for s in subjects] == ["a", "a (2)", "a (3)", "b", "a (4)"]
    bad, good = {"name": "r", "text": NORM}, {"name": "r", "text": "x: f32[8]\ny = relu(x)\nreturn y\n"}
    report = checked(good, bad, assertions={"compile-fuses": "error", "compile": "error", "triton": "error"})
    firing = {f["subject"] for f in report["errors"]}
    assert firing == {"r (2)"}
    first, second = report["subjects"]
    assert (first["name"], second["name"]) == ("r", "r (2)")
    suites = ElementTree.fromstring(FORMATS["junit"].render(report)).findall("testsuite")
    assert [(s.get("name"), s.get("failures") != "0") for s in suites] == [("r", False), ("r (2)", True)]


def test_a_trace_of_a_host_without_a_gpu_is_unmeasured() -> None:
    path = DATA / "traces" / "hta_cpu_only.json.gz"
    report = checked({"name": "step", "path": str(path)}, assertions={"triton": "error"})
    assert (report["outcome"], report["exit_code"]) == ("unmeasured", 2)
    assert report["subjects"][0]["error"]


def test_the_same_trace_twice_is_no_regression_and_steps_that_differ_are_compared() -> None:
    path = DATA / "traces" / "large_t5_train_autocast_2steps.json.gz"
    source = {"name": "step", "path": str(path)}
    report = checked(source, baseline=source, assertions={"regression": "error", "region-regression": "error"})
    assert report["passed"], report["unmeasured"]
    assert report["baseline"]["step"]["ratio"] == 1.0


@pytest.mark.parametrize("before", [True, False])
def test_a_predicted_step_is_no_baseline_of_a_recorded_one_nor_the_reverse(before: bool) -> None:
    told = {"origin": {"kind": "module", "name": "m.py:make", "device": "NVIDIA H200", "gaps": []}}
    predicted, recorded = trace(**told).body, trace(step_us=30_000.0).body
    now, then = (recorded, predicted) if before else (predicted, recorded)
    report = checked(
        {"name": "now", "trace": now}, baseline={"name": "then", "trace": then},
        assertions={"regression": "error", "region-regression": "error"},
    )  # fmt: skip
    assert (report["outcome"], report["exit_code"]) == ("unmeasured", 2)
    assert {u["reason"] for u in report["unmeasured"]} == {PREDICTED}
    assert "predicted" in report["baseline"]["verdict"]
    slower = checked(
        {"name": "now", "trace": recorded}, baseline={"name": "then", "trace": trace().body},
        assertions={"regression": "error"},
    )  # fmt: skip
    assert slower["outcome"] == "failed"


def test_a_regions_text_is_advised_on_with_what_the_configuration_knows() -> None:
    asserted = {"compile": {"level": "error", "min_share": 0.05, "min_step_speedup": 1.01}}
    source = {"name": "norm.txt", "text": NORM}
    assert checked(source, check={"share_of_step": 0.2}, assertions=asserted)["outcome"] == "failed"
    assert checked(source, check={"share_of_step": 0.04}, assertions=asserted)["outcome"] == "passed"
    fast = {"step_time_us": 900.0, "target_step_time_us": 1000.0}
    assert checked(source, check=fast, assertions={"fast-enough": "error"})["passed"]
    slow = {"step_time_us": 1100.0, "target_step_time_us": 1000.0}
    assert checked(source, check=slow, assertions={"fast-enough": "error"})["outcome"] == "failed"
    with pytest.raises(RegionError):
        checked({"name": "x", "text": "x: f32[4]\ny = gleu(x)\nreturn y\n"})


def test_recorded_evidence_is_the_archives_of_the_same_region_on_the_same_device() -> None:
    source = {"name": "norm", "text": NORM}
    beats = {"beats": {"level": "error", "candidate": "compile-max-autotune", "over": "eager", "min_speedup": 2}}
    assert checked(source, assertions=beats, check={"device": "H200"})["exit_code"] == 2
    report = checked(source, archives=(record_store.FOLDER,), assertions=beats, check={"device": "H200"})
    assert report["passed"], report
    elsewhere = checked(source, archives=(record_store.FOLDER,), assertions=beats, check={"device": "A100"})
    assert elsewhere["exit_code"] == 2
    asserted = {
        "compile": {"level": "error", "evidence": "recorded"},
        "library": {"level": "error", "evidence": "recorded"},
    }
    report = checked(source, archives=(record_store.FOLDER,), assertions=asserted, check={"device": "H200"})
    assert {f["evidence"] for f in report["errors"]} == {"recorded"}


def test_validating_without_a_gpu_measures_nothing_and_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_gpu", lambda: None)
    asserted = {tool: {"level": "error", "evidence": "measured"} for tool in ("compile", "library", "triton")}
    report = checked({"name": "norm", "text": NORM}, check={"validate": True}, assertions=asserted)
    assert (report["outcome"], report["exit_code"]) == ("unmeasured", 2)
    assert "no GPU" in report["unmeasured"][0]["reason"]


def test_another_gpu_than_the_advice_is_for_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_gpu", lambda: "NVIDIA A100-SXM4-80GB")
    asserted = {tool: {"level": "error", "evidence": "measured"} for tool in ("compile", "library", "triton")}
    report = checked({"name": "norm", "text": NORM}, check={"validate": True, "device": "H200"}, assertions=asserted)
    assert "this host has NVIDIA A100" in report["unmeasured"][0]["reason"]


MEASURED = from_mapping({"assertions": {"compile": {"level": "error", "evidence": "measured", "min_share": 0.05}}})


def test_only_what_an_assertion_wants_measured_is_measured_the_largest_share_first() -> None:
    asked: list[str] = []

    def validate(found: Json) -> Json:
        asked.append(found["name"])
        return timed(compile=80.0) | {"advice_after": found["advice"]}

    parts = [region("small", share=0.01), region("left", "skip"), region("a", share=0.1), region("b", share=0.3)]
    (subject,) = measure_regions([trace(*parts)], MEASURED, validate)
    assert asked == ["b", "a"]
    assert [bool(r["advice"]["validation"]) for r in subject.regions] == [False, False, True, True]
    again = measure_regions([subject], MEASURED, validate)
    assert asked == ["b", "a"]
    assert again == [subject]


def test_what_cannot_be_measured_says_why() -> None:
    parts = [region(f"chain {n}", share=0.5 - n / 100) for n in range(MAX_VALIDATIONS + 1)]
    parts.append(region("wordless", share=0.9, text=None))
    asked: list[str] = []

    def validate(found: Json) -> Json:
        asked.append(found["name"])
        return {"outcome": "unmeasured", "reason": f"{found['name']} hung"}

    (subject,) = measure_regions([trace(*parts)], MEASURED, validate)
    assert len(asked) == MAX_VALIDATIONS
    hung = {n: f"chain {n} hung" for n in range(MAX_VALIDATIONS)}
    assert subject.unmeasured == {**hung, MAX_VALIDATIONS: TOO_MANY, MAX_VALIDATIONS + 1: NO_TEXT}
    alone = Subject("a.txt", "region", {"regions": [region("chain", share=None)]})
    assert measure_regions([alone], MEASURED, validate)[0].unmeasured == {0: "chain hung"}
