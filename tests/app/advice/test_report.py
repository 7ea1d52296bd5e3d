from __future__ import annotations

import pytest

from app.advice.model import Advice, Range
from app.advice.report import IDLE, Item, Rest, report


def advice(tool: str, factor: float | None) -> Advice:
    span = None if factor is None else Range(factor * 0.9, factor, factor * 1.1)
    return Advice(tool, "default", f"{tool} it", "do", "", (), region_speedup=span)


ITEMS = [
    Item("norm", advice("compile", 4.0), 200.0),
    Item("attention", advice("library", 5.0), 400.0),
    Item("gemm", advice("skip", 1.0), 300.0),
    Item("odd", advice("triton", None), 50.0),
]


def test_regions_are_ranked_by_what_following_saves():
    found = report(ITEMS, step_time_us=1000.0)
    assert [r.name for r in found.rows] == ["attention", "norm", "gemm", "odd"]
    assert [r.saved_us.mid if r.saved_us else None for r in found.rows] == [320.0, 150.0, 0.0, None]


def test_amdahl_of_all_together():
    found = report(ITEMS, step_time_us=1000.0)
    assert found.saved_us.mid == pytest.approx(470.0)
    assert found.together.mid == pytest.approx(1000 / 530)
    assert found.together.low < found.together.mid < found.together.high
    assert found.rows[0].step_speedup == pytest.approx(1000 / 680)


def test_shares_add_up_with_the_named_rests():
    found = dict(report(ITEMS, [Rest("copies and sets", 20.0)], 1000.0).shares)
    assert sum(found.values()) == pytest.approx(1.0)
    assert found["copies and sets"] == pytest.approx(0.02)
    assert found[IDLE] == pytest.approx(0.03)


def test_without_a_step_there_are_no_shares():
    found = report(ITEMS)
    assert found.together is None
    assert found.shares == ()
    assert found.saved_us.mid == pytest.approx(470.0)


def test_nothing_to_report():
    found = report([], step_time_us=10.0)
    assert found.together.mid == 1.0
    assert found.rows == ()
