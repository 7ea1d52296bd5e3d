"""Advice of a version that kept no inputs, issued again: they are read back, and doubt keeps what stands."""

from __future__ import annotations

from typing import Any

import pytest

from app.analysis import reissue, service
from app.storage.store import finite
from app.trace_report.report import report
from tests.conftest import DATA

TRACES = [
    "handrolled_blocks_bf16_eager_stack.json.gz",
    "tl_xdit_sd35_graph.json.gz",  # many bindings a region
    "gpt2_train_autocast_eager.json.gz",
]


def read(name: str) -> dict[str, Any]:
    answer: dict[str, Any] = finite(report(DATA / "traces" / name, name, strict=False))
    return answer


@pytest.mark.parametrize("name", TRACES)
def test_a_regions_advice_can_be_issued_again_word_for_word(name: str) -> None:
    """From the stored JSON alone: the trace's idle shares, observed times and obstacles come back."""
    trace = read(name)
    written = [r for r in trace["regions"] if r["text"]][:25]
    assert written
    for region in written:
        inputs = reissue.inputs_from_shown(region, trace)
        again = finite(service.decide_region(service.prepare_from_inputs(region["text"], inputs))["advice"])
        assert reissue.same_inputs(region["advice"], again), region["name"]
        alone = service.prepare_from_inputs(region["text"], reissue.inputs_from_shown(region, None))
        plain = finite(service.decide_region(alone)["advice"])
        if region["time_us_per_step"]:  # what the trace observed does matter: without it the advice is another
            assert not reissue.same_inputs(region["advice"], plain), region["name"]


def advice(**change: Any) -> dict[str, Any]:
    criteria = [
        {"name": "worth-it", "holds": True, "because": "it is"},
        {"name": reissue.FUSES, "holds": True, "because": "by the rules"},
    ]
    return {"tool": "compile", "headline": "compile it", "criteria": criteria, "notes": ["a"], **change}


def fuses(holds: bool, because: str) -> list[dict[str, Any]]:
    return [advice()["criteria"][0], {"name": reissue.FUSES, "holds": holds, "because": because}]


def test_on_the_same_grounds_the_new_advice_is_kept_with_the_contexts_notes() -> None:
    stored = advice(notes=["a", "the trace does not record strides"])
    new = advice(tool="triton", criteria=fuses(False, "by Inductor"), notes=["b"])
    kept = reissue.keep_unless_same_inputs(stored, advice(), new)
    assert kept == new | {"notes": ["b", "the trace does not record strides"]}


def test_on_other_grounds_the_advice_stays_and_only_the_oracles_criterion_is_brought_up_to_date() -> None:
    stored = advice(headline="compile it, 1 % of a step that nobody remembers")
    agreeing = advice(criteria=fuses(True, "by Inductor"))
    kept = reissue.keep_unless_same_inputs(stored, advice(), agreeing)
    assert kept == stored | {"criteria": fuses(True, "by Inductor")}
    contradicting = advice(tool="triton", criteria=fuses(False, "by Inductor"))
    assert reissue.keep_unless_same_inputs(stored, advice(), contradicting) == stored
