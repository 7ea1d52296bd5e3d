from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.advice.criteria import NAMES
from app.advice.thresholds import DEFAULTS, Thresholds

RULE = (Path(__file__).resolve().parents[3] / "docs" / "rule.md").read_text(encoding="utf-8")


def test_every_criterion_has_its_section_in_the_docs_in_order():
    headings = [line.removeprefix("## ") for line in RULE.splitlines() if line.startswith("## ")]
    assert tuple(headings[: len(NAMES)]) == NAMES


@pytest.mark.parametrize("threshold", DEFAULTS.described(), ids=lambda t: t.name)
def test_every_threshold_is_in_the_docs_with_its_value(threshold):
    assert re.search(rf"`{threshold.name}`[ ,(]+{re.escape(f'{threshold.default:g}')}\b", RULE)
    assert threshold.source
    assert threshold.meaning


def test_thresholds_are_data():
    assert Thresholds.from_mapping({"worth_share": 0.02}).worth_share == 0.02
    assert Thresholds.from_mapping({}) == DEFAULTS
    with pytest.raises(ValueError, match="no such threshold: worth"):
        Thresholds.from_mapping({"worth": 1})
    for wrong in (-1.0, float("inf"), float("nan"), True):
        with pytest.raises(ValueError, match="worth_share"):
            Thresholds.from_mapping({"worth_share": wrong})
