"""docs/advice-review.md says what its record says, and the record judges the advice that is given today."""

from __future__ import annotations

import json
from typing import Any

import pytest

from profiler.trace.errors import TraceError
from tests.app.trace_report.reports import reported
from tools.docs import advice_review
from tools.docs.advice_review import JUDGED, LARGEST, RECORD, counts, largest, trace_files

Json = dict[str, Any]

WORDS = json.loads(RECORD.read_text(encoding="utf-8"))
TRACES: dict[str, Json] = WORDS["traces"]


def test_the_page_is_what_the_record_says() -> None:
    assert advice_review.PAGE.read_text(encoding="utf-8") == advice_review.page(WORDS), (
        "python -m tools.docs.advice_review"
    )


def test_every_recorded_trace_is_judged_with_a_reason_for_each_piece() -> None:
    assert set(TRACES) == {path.name for path in trace_files()}
    for name, trace in TRACES.items():
        assert trace["expected"], name
        assert len(trace["advice"]) <= LARGEST, name
        for piece in trace["advice"]:
            assert piece["judged"] in JUDGED, (name, piece)
            assert len(piece["reason"]) > 20, (name, piece)


def test_the_claims_that_are_made_of_it() -> None:
    """The goal is 85 % right and none wrong. What is reached is held, so that it does not get worse unseen."""
    by_judgement = counts(TRACES)
    total = sum(by_judgement.values())
    assert by_judgement["right"] >= RIGHT_AT_LEAST * total
    assert by_judgement["wrong"] <= WRONG_AT_MOST


@pytest.mark.parametrize("name", sorted(TRACES))
def test_what_was_judged_is_what_is_advised_today(name: str) -> None:
    """Advice that changes is to be judged again: python -m tools.docs.advice_review --ask."""
    try:
        today = [(p["piece"], p["says"]) for p in largest(reported(name))]  # type: ignore[arg-type]
    except TraceError as error:
        today = [("error", error.message)]
    assert [(p["piece"], p["says"]) for p in TRACES[name]["advice"]] == today


RIGHT_AT_LEAST, WRONG_AT_MOST = 0.85, 0
