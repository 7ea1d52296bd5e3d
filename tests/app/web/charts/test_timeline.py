"""The timeline's gaps: told one by one as far as they can be, and none of their idle time lost or counted twice."""

from __future__ import annotations

from copy import deepcopy

import pytest

from app.trace_report.timeline import Span, fit_lanes
from app.web.charts.timeline import _split_gaps


def gap(start: float, end: float, idle: float, many: int) -> Span:
    return Span(start, end, 0, idle, many, 0, idle, {0: idle})


def stream(*spans: tuple[float, float]) -> dict[str, object]:
    many = len(spans)
    return {
        "stream": 7, "device": 0, "start_us": [a for a, _ in spans], "length_us": [b - a for a, b in spans],
        "region": [0] * many, "busy_us": [b - a for a, b in spans], "kernels": [1] * many, "name": [0] * many,
    }  # fmt: skip


def test_fewer_spans_do_not_change_those_that_they_are_made_of() -> None:
    lane = [gap(0.0, 1.0, 1.0, 1), gap(1.05, 2.0, 0.95, 1), gap(2.1, 3.0, 0.9, 1)]
    before = deepcopy(lane)
    (fitted,) = fit_lanes([lane], 1, 3.0)
    assert len(fitted) == 1 and fitted[0].busy_us == pytest.approx(2.85)
    assert lane == before


@pytest.mark.parametrize("idle", [60.0, 62.0, 90.0, 30.0])
def test_a_gap_that_is_told_in_parts_keeps_its_idle_time(idle: float) -> None:
    """Between the spans of work 60 µs are free; more of it is inside them, where neighbours were merged."""
    work = stream((30.0, 50.0), (70.0, 90.0))
    pieces = _split_gaps([gap(0.0, 100.0, idle, 3)], [work], 0.0, 100.0)  # type: ignore[list-item]
    assert sum(p.busy_us for p in pieces) == pytest.approx(idle)
    assert len(pieces) == (1 if idle == 90.0 else 3)
    assert all(p.busy_us <= p.length_us + 1e-9 for p in pieces)
