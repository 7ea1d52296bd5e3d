"""Evidence as shown: a record from elsewhere must never look like a measurement of this host."""

from __future__ import annotations

from typing import Any

import pytest

from app.web.templating import environment
from app.web.views import validation_page
from app.web.views.region import region_page
from app.web.views.trace.regions import saves_us
from tests.app import samples


def rendered(part: str = "evidence", **context: Any) -> str:
    return environment().get_template(f"partials/region/{part}.html").render(current="/regions/x", **context)


def test_a_record_of_the_archive_names_its_device_and_day() -> None:
    record = samples.validation(archived={"file": "x.json", "match": "same"})
    shown = validation_page.summarize_validation(record)
    page = rendered(
        "nearest", nearest=record, nearest_chart=shown["candidates_chart"], nearest_rows=shown["candidate_rows"]
    )
    assert "from elsewhere: NVIDIA H200, 2026-11-21" in page
    assert "measured here" not in page
    assert 'class="plot"><svg' in page
    other = {**record, "archived": {"file": "x.json", "match": "other-sizes"}}
    assert "Measured on H200 at other sizes: agrees" in rendered(
        "nearest", nearest=other, nearest_chart=None, nearest_rows=[]
    )


def test_a_host_without_a_gpu_says_unmeasured_and_shows_no_time() -> None:
    unmeasured = samples.validation(
        outcome="unmeasured",
        reason="nothing was timed",
        device=None,
        best=None,
        candidates=[samples.candidate("eager", "eager", None, status="correct")],
    )
    page = rendered(**validation_page.summarize_validation(unmeasured))
    assert "<h2>Unmeasured</h2>" in page
    assert "unmeasured: no GPU" in page
    assert "Device time" not in page
    assert 'class="plot"' not in page


@pytest.mark.parametrize(("device", "measured"), [("NVIDIA H200", 3), ("NVIDIA A100-SXM4-80GB", 0)])
def test_measured_points_join_only_the_roofline_of_their_own_device(device: str, measured: int) -> None:
    shown = region_page.analysis(samples.region("a"), samples.validation(device=device))
    assert sum(point["measured"] for point in shown["roofline_points"]) == measured


def test_saving_counts_the_whole_step_and_nothing_for_what_is_left_alone() -> None:
    region = samples.region("a", "compile", time_us=1000.0)
    assert saves_us(region, 10000.0) == pytest.approx(10000.0 * (1 - 1 / 1.05))
    assert saves_us(region, None) == pytest.approx(1000.0 * (1 - 1 / 1.25))
    assert saves_us(samples.region("a", "skip"), 10000.0) == 0.0


@pytest.mark.parametrize(
    ("tool", "status", "said"),
    [
        ("triton", "correct", True),
        ("triton", "not_run", False),
        ("triton", "mismatch", False),
        ("compile", "correct", False),
        ("skip", "correct", False),
        ("triton", "other", False),
    ],
)
def test_advice_is_called_checked_only_where_a_candidate_of_it_was(tool: str, status: str, said: bool) -> None:
    """On a host without a GPU eager is always right, and says nothing of what is advised."""
    candidates = [samples.candidate("eager", "eager", None, status="correct"),
                  samples.candidate("triton:generated", "triton", None, status=status)]  # fmt: skip
    advice = samples.region("a", tool)["advice"]
    advice = {**advice, "validation": samples.validation(outcome="unmeasured", device=None, candidates=candidates)}
    other = samples.alternative("triton", "triton:other", 1500.0, mode="other")
    if status == "other":
        advice = {**advice, "mode": "other", "alternatives": [*advice["alternatives"], other]}
        candidates[1]["status"] = "correct"
    shown = environment().from_string('{% from "macros.html" import evidence %}{{ evidence(advice) }}')
    tag = shown.render(current="/regions/x", advice=advice)
    assert ("checked" in tag) == said
    assert ("predicted" in tag) != said
