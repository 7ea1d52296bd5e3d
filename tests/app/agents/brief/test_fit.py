"""What does not fit goes, the least useful first, and all that went is counted."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.agents.brief.fit import code_text, fit_brief, fit_kernel, fit_validation, is_within
from app.agents.brief.kernel import explain_kernel
from app.agents.brief.trace import trace_brief
from app.objects.brief import BriefValidation
from tests.app.trace_report.reports import reported

NAME = "timm_convnext_train_channels_last.json.gz"
LEAST = 420
"""Tokens of a brief with nothing but its step and its commands."""


@settings(max_examples=60, deadline=None)
@given(st.integers(LEAST, 3000))
def test_a_brief_is_within_any_bound_and_counts_what_went(most: int) -> None:
    whole = trace_brief(reported(NAME), NAME, most=10**6)
    brief = fit_brief(whole, most)
    assert is_within(brief, most)
    listed: tuple[Any, ...] = ("do", "do_not", "warnings")
    for name in listed:
        assert len(brief[name]) + brief["left_out"][name] == len(whole[name])  # type: ignore[literal-required]
        assert len(brief[name]) <= len(whole[name])  # type: ignore[literal-required]
    lost = sum(bool(w["edit"][half]) and not b["edit"][half] for half in ("before", "after")  # type: ignore[literal-required]
               for b, w in zip(brief["do"], whole["do"], strict=False))  # fmt: skip
    assert brief["left_out"]["edits"] >= lost


def test_the_best_change_outlives_all_else_but_the_commands() -> None:
    brief = fit_brief(trace_brief(reported(NAME), NAME, most=10**6), 700)
    assert brief["do"] and brief["do"][0]["edit"]["after"]
    assert len(brief["verify"]) == 3


def test_code_is_whole_or_not_there() -> None:
    code = "y = f(x)\n" * 20
    assert code_text(code).split() == code.split()
    assert code_text("y = f(x)\n" * 2000) == ""


def test_a_kernel_with_many_others_and_regions_keeps_the_first() -> None:
    told = explain_kernel(reported(NAME), "elementwise", NAME, most=10**6)
    many: Any = {**told, "others": ["kernel " * 20] * 50, "regions": told["regions"][:1] * 20}
    short = fit_kernel(many)
    assert is_within(short)
    assert short["regions"][0] == told["regions"][0]
    assert len(short["others"]) + len(short["regions"]) + short["left_out"] == 70 + told["left_out"]


def test_a_validation_keeps_the_verdict_and_the_fastest() -> None:
    candidate: Any = {
        "name": "library:x", "status": "ok", "time_us": {"median": 1.0, "low": 1.0, "high": 1.0},
        "ratio_to_eager": None, "error_vs_eager": 1.0, "message": "m " * 20,
    }  # fmt: skip
    answer: BriefValidation = {
        "of": "validation", "name": "n", "device": None, "outcome": None, "because": "b", "best": None,
        "floor_us": None, "kernel": {"verdict": "keep", "because": "b", "against": None, "speedup": None},
        "candidates": [{**candidate, "name": "first"}] + [candidate] * 60, "advice": "a", "warnings": [], "left_out": 0,
    }  # fmt: skip
    short = fit_validation(answer)
    assert is_within(short)
    assert short["candidates"][0]["name"] == "first" and short["kernel"] == answer["kernel"]
    assert len(short["candidates"]) + short["left_out"] == 61
