"""A criterion's declaration is all that has to be written: who goes over the criteria takes a new one as it comes."""

from __future__ import annotations

from typing import Any

import pytest

from app.advice import criteria
from app.advice.criteria import CRITERIA
from app.advice.sensitivity import CRITERION_OF
from app.thresholds import DEFAULTS


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("fast-enough", 16769.0, "16.8 ms"),
        ("worth-it", 0.496, "49.6 %"),
        ("worth-it", 0.01, "1 %"),
        ("worth-it", "unknown", "unknown"),
        ("kernel-problem", 0.6, "60 %"),
        ("compile-fuses", 1.15, "1.15×"),
        ("several-shapes", 0.34, "0.340"),
        ("needs-cuda", None, "–"),
    ],
)
def test_a_criterion_shows_the_unit_of_its_numbers(name: str, value: object, shown: str) -> None:
    assert criteria.figure(value, name) == shown


def test_every_threshold_of_a_criterion_is_one_of_the_rule_and_of_that_criterion_alone() -> None:
    named = [threshold for criterion in CRITERIA for threshold in criterion.thresholds]
    assert len(named) == len(set(named))
    assert set(named) <= {t.name for t in DEFAULTS.described()}
    assert CRITERION_OF["launch_share"] == "kernel-problem"


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda c: c.name)
def test_a_criterion_says_what_it_means_and_where_it_is_from(criterion: Any) -> None:
    """What ends the question says so in words, and how a region that is left for it is told of."""
    assert criterion.meaning.startswith(("Holds where ",))
    assert criterion.source
    assert (criterion.ends_at is None) or criterion.ends
    assert criterion.question is None or criterion.question.ends == bool(criterion.ends)
    assert not criterion.joins or criteria.BY_NAME[criterion.joins].question is not None
