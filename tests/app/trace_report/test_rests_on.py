"""A trace says once what the predictions on its regions rest on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.cli.text import trace_text
from app.trace_report.report import report
from app.trace_report.rests_on import rests_on_words

EXAMPLE = Path(__file__).resolve().parents[3] / "app" / "examples" / "handrolled_blocks.json.gz"


@pytest.fixture(scope="module")
def trace() -> Any:
    return report(EXAMPLE, EXAMPLE.name)


def test_a_trace_says_it_once_and_each_of_its_regions_has_its_own(trace: Any) -> None:
    written = [r for r in trace["regions"] if r["text"] and r["advice"]]
    assert written
    for region in written:
        assert region["advice"]["prediction"] == region["rests_on"]["prediction"] == "rules"
        assert region["rests_on"]["observed"] and "goes by the trace's" in region["rests_on"]["sentence"]
    words = rests_on_words(trace["regions"])
    assert words.startswith("Predicted from this project's NVIDIA H")
    assert words.endswith("torch.compile's time is by our fusion rules: Inductor was not asked.")
    assert trace_text(trace).splitlines().count(words) == 1


def test_regions_without_a_text_predict_nothing(trace: Any) -> None:
    bare = [{k: v for k, v in r.items() if k != "rests_on"} for r in trace["regions"]]
    assert rests_on_words(bare) == ""  # type: ignore[arg-type]


def test_of_regions_that_inductor_was_asked_about_it_says_how_many(trace: Any) -> None:
    rows = [r for r in trace["regions"] if r.get("rests_on")]
    asked = [{**rows[0], "rests_on": {**rows[0]["rests_on"], "prediction": "oracle", "prediction_because": ""}}]
    assert rests_on_words(asked).endswith("Inductor's own list, priced one by one.")  # type: ignore[arg-type]
    mixed = [*asked, *rows[1:]]
    assert f"Inductor's own list in 1 region of {len(rows)}" in rests_on_words(mixed)  # type: ignore[arg-type]
    other = {**rows[0]["rests_on"], "prediction_because": "Inductor could not answer: late"}
    both = rests_on_words([*rows[1:], {**rows[0], "rests_on": other}])  # type: ignore[arg-type]
    assert "each region says why" in both
