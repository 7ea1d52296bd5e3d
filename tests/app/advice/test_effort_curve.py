"""The picture of effort against speed-up stands on what was recorded, and says where it does not."""

from __future__ import annotations

import json
import statistics

import pytest

from app.advice.effort_curve import LINES, Measured, gradient
from app.archive import record_store
from app.estimate.range import Range
from app.web.pages.widget import archive_measurements, draw_picture

THREE = (
    Measured("elementwise", "compile", 2.0), Measured("elementwise", "compile", 4.0),
    Measured("elementwise", "triton", 3.8), Measured("gemm", "compile", 1.0), Measured("attention", "library", 5.0),
)  # fmt: skip


def test_ranges_are_those_of_the_kind_and_of_all_where_none_was_recorded():
    by_tool = {r.tool: r for r in gradient(THREE, "elementwise")}
    assert by_tool["compile"].speedup == Range(2.0, 3.0, 4.0)
    assert "2 recorded regions of this kind" in by_tool["compile"].source
    everything = {r.tool: r for r in gradient(THREE, "reduction")}
    assert everything["compile"].speedup.low == 1.0
    assert "3 recorded regions of all kinds" in everything["compile"].source


def test_a_library_stands_where_one_was_recorded_for_the_kind():
    assert [r.tool for r in gradient(THREE, "elementwise")] == ["eager", "compile", "triton", "cuda"]
    assert [r.tool for r in gradient((*THREE, Measured("elementwise", "library", 2.0)), "elementwise")] == list(LINES)


def test_cuda_is_triton_over_the_share_that_the_sources_give_it():
    triton, cuda = (r.speedup for r in gradient(THREE, "elementwise", "compute")[-2:])
    assert (cuda.low, cuda.high) == pytest.approx((triton.low / 0.95, triton.high / 0.80))
    *_, triton, cuda = gradient(THREE, "elementwise", "memory")
    assert cuda.speedup == triton.speedup
    assert "sources" in cuda.source


def test_a_plain_product_gains_nothing_from_triton_or_cuda():
    *_, triton, cuda = gradient(THREE, "gemm")
    assert triton.speedup.high < 1.0
    assert cuda.speedup.high == 1.0


def test_the_shipped_archive_is_what_the_picture_shows():
    best = []
    for path in record_store.FOLDER.glob("*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        done = [c for c in record["candidates"] if c["tool"] == "triton" and c["status"] == "ok"]
        if done and "norm" in record["name"].lower() and not record["name"].startswith("GEMM"):
            best.append(max(1 / c["ratio_to_eager"]["median"] for c in done))
    shown = {r.tool: r for r in gradient(archive_measurements(), "normalisation")}["triton"]
    span = (shown.speedup.low, shown.speedup.mid, shown.speedup.high)
    assert span == pytest.approx(statistics.quantiles(best, n=4, method="inclusive"))
    assert f"measured on {len(best)} " in shown.source


@pytest.mark.parametrize("kind", [None, "gemm", "attention", "elementwise", "normalisation", "custom"])
def test_every_bar_lies_inside_the_picture(kind):
    drawn = draw_picture(kind, None)
    assert {m.rung.tool for m in drawn["marks"]} >= {"eager", "compile", "triton", "cuda"}
    for mark in drawn["marks"]:
        assert drawn["left"] < mark.left < mark.left + mark.width <= drawn["width"]
        assert 0 < mark.high <= mark.middle <= mark.high + mark.height + 3 <= drawn["bottom"] + 3
