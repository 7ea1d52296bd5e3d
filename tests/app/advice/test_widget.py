from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.advice.rule import advise
from app.advice.widget import BOUNDS, KINDS, WidgetAnswers, advise_widget, facts_of
from profiler.region.model import Workload
from tests.app.advice.cases import H200
from tests.effort import calls_of

UNIT = st.floats(0, 1)


@pytest.mark.parametrize(
    ("answers", "tool"),
    [
        (WidgetAnswers(0.005, 0.9, 0.9), "skip"),
        (WidgetAnswers(0.3, 0.9, 0.9, "memory"), "triton"),
        (WidgetAnswers(0.3, 0.9, 0.9, "compute"), "triton"),
        (WidgetAnswers(0.3, 0.9, 0.1, "memory"), "compile"),
        (WidgetAnswers(0.3, 0.5, 0.5), "compile"),
        (WidgetAnswers(0.3, 0.1, 0.1, kind="gemm"), "skip"),
        (WidgetAnswers(0.3, 0.1, 0.5, kind="attention"), "library"),
        (WidgetAnswers(0.3, 0.2, 0.2, kind="quantised_gemm"), "library"),
        (WidgetAnswers(0.3, 0.1, 0.1, kind="elementwise"), "compile"),
        (WidgetAnswers(0.3, 0.9, 0.9, kind="elementwise"), "compile"),
        (WidgetAnswers(0.3, 0.1, 0.1, kind="normalisation"), "library"),
    ],
)
def test_three_answers(answers, tool):
    assert advise_widget(answers).tool == tool


@settings(max_examples=200, deadline=None)
@given(UNIT, UNIT, UNIT, st.sampled_from([None, *BOUNDS]), st.sampled_from([None, *KINDS]))
def test_widget_is_the_rule_on_the_facts_that_the_answers_stand_for(share, unique, irregular, bound, kind):
    answers = WidgetAnswers(share, unique, irregular, bound, kind)
    advice = advise_widget(answers, device=H200)
    assert advice == advise(facts_of(answers), Workload(share_of_step=share), H200)
    assert advice.region_speedup is None or advice.tool == "skip"
    if share < 0.01:
        assert advice.tool == "skip"


@pytest.mark.parametrize(
    "wrong",
    [
        {"share_of_step": 1.5}, {"uniqueness": -0.1}, {"irregularity": float("nan")}, {"share_of_step": True},
        {"bound": "disk"}, {"kind": "sorting"},
    ],
)  # fmt: skip
def test_answers_that_are_none(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        WidgetAnswers(**({"share_of_step": 0.5, "uniqueness": 0.5, "irregularity": 0.5} | wrong))


def test_an_answer_is_a_bounded_number_of_calls():
    answers = WidgetAnswers(0.3, 0.9, 0.9)
    advise_widget(answers)
    calls_of(lambda: advise_widget(answers), most=1_000)  # 276, some 0.13 ms
