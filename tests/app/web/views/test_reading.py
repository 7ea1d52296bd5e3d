"""What a page says of a reading: a percentage that is 100 only of what is read."""

from __future__ import annotations

import pytest

from app.objects.trace import TraceProgress
from app.trace_report.progress import STAGES as TOLD
from app.web.views.reading import STAGES, describe_progress

READING: TraceProgress = {
    "status": "reading", "ahead": None, "stage": "regions", "fraction": 0.37, "parts": False, "step_time_us": None,
    "regions": 0, "advised": [],
}  # fmt: skip


def test_every_stage_that_is_told_has_its_words() -> None:
    assert list(STAGES) == [stage.name for stage in TOLD]


def test_stages_before_are_done_and_those_after_to_come() -> None:
    said = describe_progress(READING)
    assert [row["state"] for row in said["stages"]] == ["done", "now", "later", "later", "later"]
    assert (said["percent"], said["words"]) == (37, "Cutting the step into regions")


@pytest.mark.parametrize(("fraction", "percent"), [(0.0, 0), (0.29, 29), (0.999, 99), (1.0, 99), (None, None)])
def test_nothing_is_at_a_hundred_before_it_is_read(fraction: float | None, percent: int | None) -> None:
    assert describe_progress({**READING, "fraction": fraction})["percent"] == percent
    parts: TraceProgress = {**READING, "parts": True, "regions": 2, "advised": [0, 1], "fraction": fraction}
    assert describe_progress(parts)["percent"] == percent
    assert describe_progress({**parts, "status": "ready"})["percent"] == 100


def test_a_page_is_told_again_only_where_the_percentage_is_another() -> None:
    first, same, other = (describe_progress({**READING, "fraction": f})["state"] for f in (0.371, 0.374, 0.38))
    assert first == same != other


def test_a_page_is_told_of_another_stage_at_the_same_percentage() -> None:
    callers, parts = (describe_progress({**READING, "stage": stage, "fraction": 0.6}) for stage in ("callers", "parts"))
    assert callers["percent"] == parts["percent"]
    assert callers["state"] != parts["state"]
    # What is read out is the phase, which is the same.
    assert callers["said"] == parts["said"]
    assert callers["state"].partition("-")[0] == parts["state"].partition("-")[0]


def test_one_that_waits_has_all_before_it() -> None:
    waiting = describe_progress({**READING, "ahead": 2, "stage": "queued", "fraction": None})
    assert {row["state"] for row in waiting["stages"]} == {"later"}
    assert (waiting["words"], waiting["percent"]) == ("2 traces before it", None)
