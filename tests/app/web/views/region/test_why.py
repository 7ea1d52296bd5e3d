"""Why in three sentences, and criteria read forward: a check mark speaks for the tool that it stands under."""

from __future__ import annotations

from typing import Any

import pytest

from app.advice.criteria import CRITERIA
from app.analysis import service
from app.thresholds import DEFAULTS
from app.web.views.region.verdict import verdict_section
from app.web.views.region.why import criteria_of, mark_of, sentences
from tests.conftest import ROOT

EXAMPLES = sorted((ROOT / "app" / "examples").glob("*.txt"))


def criterion(name: str, holds: bool | None, threshold: float | None = 0.5) -> dict[str, Any]:
    return {"name": name, "holds": holds, "value": 1.0, "threshold": threshold, "because": "so", "source": "rule"}


def bar(name: str, look: str, time_us: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "label": name, "look": look, "time_us": time_us, "excluded_by": "", "missing": False,
        "advised": False, **more,
    }  # fmt: skip


def test_a_criterion_that_is_true_against_a_tool_has_no_check_mark_under_it() -> None:
    assert mark_of(criterion("worth-it", True)) == "against", "it speaks against leaving the region"
    assert mark_of(criterion("worth-it", False)) == "for"
    assert mark_of(criterion("kernel-problem", True)) == "against"
    assert mark_of(criterion("compile-fuses", False)) == "against"
    assert mark_of(criterion("needs-cuda", False, None)) == "against"
    assert mark_of(criterion("library-covers", None)) == "unknown"


def test_a_target_that_nobody_gave_is_no_answer() -> None:
    assert mark_of(criterion("fast-enough", False, None)) == "unasked"
    assert mark_of(criterion("fast-enough", False, 100.0)) == "against"
    assert mark_of(criterion("fast-enough", True, 100.0)) == "for"


def test_every_criterion_stands_once_under_the_tool_that_its_question_leads_to() -> None:
    groups = criteria_of({"criteria": [criterion(c.name, True) for c in CRITERIA]})  # type: ignore[typeddict-item]
    stands = {row["name"]: group["tool"] for group in groups for row in group["rows"]}
    assert set(stands) == {c.name for c in CRITERIA}
    for c in CRITERIA:
        if c.question is not None:
            assert (stands[c.name], c.claim.on) == (c.question.tool, c.question.on), c.name


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_what_was_decided_comes_first_and_a_faster_candidate_is_never_passed_over_in_silence(path: Any) -> None:
    region = service.advise_region(path.read_text(encoding="utf-8"), device="H200", share_of_step=0.12)
    section = verdict_section(region)
    assert section is not None
    assert 1 <= len(section["why"]) <= 3
    assert section["why"][0].startswith("Decided by")
    then = section["then"]
    faster = [b for b in section["bars"] if then and b["time_us"] < then["time_us"] and not b["excluded_by"]]
    if faster:
        assert section["why"][-1].startswith(f"Nearly {faster[0]['label']}: ")
        assert "%" in section["why"][-1] or "not installed" in section["why"][-1]


@pytest.mark.parametrize(
    ("rival", "said"),
    [
        (bar("triton:generated", "triton", 94.0), "under the 10 % that a kernel must win"),
        (bar("triton:generated", "triton", 80.0), "not surely by the 10 % that a kernel must win"),
        (bar("library:x", "library", 95.0, missing=True), "its package is not installed here"),
        (bar("compile-max-autotune", "compile", 95.0), "within the 10 % that count as a tie"),
    ],
)
def test_a_faster_one_that_was_not_taken_has_its_reason(rival: Any, said: str) -> None:
    advice: Any = {"tool": "compile", "mode": "default", "criteria": [], "would_change": []}
    bars: Any = [bar("eager", "eager", 200.0), bar("compile", "compile", 100.0, advised=True), rival]
    assert said in sentences(advice, bars, "measured", DEFAULTS)[-1]


def test_a_criterion_that_ends_the_question_is_what_decided() -> None:
    advice: Any = {"tool": "skip", "mode": "default", "criteria": [criterion("worth-it", False, 0.01)]}
    first = sentences(advice, [], "predicted", DEFAULTS)[0]
    assert first == "Decided by the criterion “Too small a part of the step to matter”: so"


def test_a_region_that_is_a_library_call_already_is_not_told_to_become_one() -> None:
    """Its advice may be another form of that call: padded sizes, another layout."""
    kept = criterion("library-covers", True) | {"value": "torch.mm", "because": "it runs on torch.mm already"}
    advice: Any = {"tool": "library", "mode": "default", "criteria": [kept], "would_change": []}
    bars: Any = [bar("eager", "eager", 200.0), bar("library:remedy.padding", "library", 100.0, advised=True)]
    assert "It stays a library's call: now it is torch.mm" in sentences(advice, bars, "predicted", DEFAULTS)
