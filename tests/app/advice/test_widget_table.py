"""The widget's table says what the rule says, at every position of its sliders."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.advice.widget import BOUNDS, KINDS, WidgetAnswers, advise_widget
from app.advice.widget_table import STATES, STEPS, changes, positions_of, table, value
from app.thresholds import DEFAULTS, Thresholds
from app.web.labels import WIDGET_PRESETS

POSITIONS = st.fixed_dictionaries({slider: st.integers(0, positions_of(slider) - 1) for slider in STEPS})
BOUND, KIND = st.sampled_from([None, *BOUNDS]), st.sampled_from([None, *KINDS])
OTHERS = Thresholds(worth_share=0.2, textbook=0.1, custom=0.9, irregular=0.5)


@settings(max_examples=300, deadline=None)
@given(POSITIONS, BOUND, KIND, st.sampled_from([DEFAULTS, OTHERS]))
def test_looking_up_gives_what_the_rule_gives(positions, bound, kind, limits):
    found = table(bound, kind, limits)
    answers = WidgetAnswers(**{s: value(s, i) for s, i in positions.items()}, bound=bound, kind=kind)
    asked = advise_widget(answers, limits)
    _, advice = found.verdicts[found.key(positions)]
    assert (advice.tool, advice.mode, advice.headline, advice.call) == (
        asked.tool, asked.mode, asked.headline, asked.call,
    )  # fmt: skip
    for row, criterion in zip(found.rows, asked.criteria, strict=True):
        assert row.name == criterion.name
        assert row.states[row.at(positions)] == STATES[criterion.holds]
        assert row.because[row.at(positions)] == criterion.because


@settings(max_examples=100, deadline=None)
@given(POSITIONS, BOUND, KIND)
def test_what_would_change_the_widget_is_the_first_position_with_another_tool(positions, bound, kind):
    answers = WidgetAnswers(**{s: value(s, i) for s, i in positions.items()}, bound=bound, kind=kind)
    advice = advise_widget(answers)

    def tool(slider: str, position: int) -> str:
        given = {s: value(s, i) for s, i in {**positions, slider: position}.items()}
        return advise_widget(WidgetAnswers(**given, bound=bound, kind=kind)).tool

    told = {(c.of, c.at > c.now): c for c in changes(answers, advice)}
    for slider, step in STEPS.items():
        for up in (False, True):
            change = told.get((slider, up))
            end = positions_of(slider) - 1 if up else 0
            if change is None:
                assert tool(slider, end) == advice.tool
                continue
            at = round(change.at / step)
            assert tool(slider, at) == change.tool != advice.tool
            assert tool(slider, at - 1 if up else at + 1) == advice.tool


def test_an_answer_between_two_positions_is_held_to_the_next_ones():
    answers = WidgetAnswers(0.0099, 0.9, 0.9)
    advice = advise_widget(answers)
    assert advice.tool == "skip"
    share = next(c for c in changes(answers, advice) if c.of == "share_of_step")
    assert (share.at, share.tool) == (0.01, "triton")
    assert share.because == "with a share of the step of at least 1 %: Triton"


@pytest.mark.parametrize(
    ("title", "tool"),
    [
        ("Vanilla GEMM", "skip"), ("Attention", "library"), ("Elementwise chain", "compile"),
        ("Quantised GEMM", "library"), ("Under 1 % of the step", "skip"), ("Nobody has it, many shapes", "triton"),
    ],
)  # fmt: skip
def test_the_sources_table_of_situations_comes_out_as_it_says(title, tool):
    answers = dict(WIDGET_PRESETS)[title]
    assert advise_widget(WidgetAnswers(**answers)).tool == tool
