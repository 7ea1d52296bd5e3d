from __future__ import annotations

import re

import pytest

from app.advice.criteria import NAMES
from app.thresholds import DEFAULTS, Thresholds
from tests.conftest import ROOT

RULE = (ROOT / "docs" / "rule.md").read_text(encoding="utf-8")


def test_every_criterion_has_its_section_in_the_docs_in_order():
    headings = [line.removeprefix("## ") for line in RULE.splitlines() if line.startswith("## ")]
    assert tuple(headings[: len(NAMES)]) == NAMES


@pytest.mark.parametrize("threshold", DEFAULTS.described(), ids=lambda t: t.name)
def test_every_threshold_is_in_the_docs_with_its_value(threshold):
    assert re.search(rf"`{threshold.name}`[ ,(|]+{re.escape(f'{threshold.default:g}')}\b", RULE)
    assert threshold.source
    assert threshold.meaning


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("worth=1", "no such threshold: worth; there are .*worth_share"),
        ("worth_share=some", "no number in 'worth_share=some'"),
        ("worth_share", "name=value"),
        ("worth_share=-1", "worth_share must be a number"),
        ("worth_share=nan", "worth_share must be a number"),
    ],
)
def test_wrong_words_for_thresholds_are_refused(text, said):
    with pytest.raises(ValueError, match=said):
        Thresholds.parse(text)


def test_thresholds_are_read_from_words():
    found = Thresholds.parse(" worth_share = 0.02,win_margin=0.15, ")
    assert (found.worth_share, found.win_margin, found.near_best) == (0.02, 0.15, DEFAULTS.near_best)


def test_thresholds_are_data():
    assert Thresholds.from_mapping({"worth_share": 0.02}).worth_share == 0.02
    assert Thresholds.from_mapping({}) == DEFAULTS
    with pytest.raises(ValueError, match="no such threshold: worth"):
        Thresholds.from_mapping({"worth": 1})
    for wrong in (-1.0, float("inf"), float("nan"), True):
        with pytest.raises(ValueError, match="worth_share"):
            Thresholds.from_mapping({"worth_share": wrong})
