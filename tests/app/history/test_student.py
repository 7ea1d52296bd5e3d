"""Student's t: the printed tables, and that tail and quantile undo each other."""

from __future__ import annotations

import pytest

from app.history.student import NORMAL_FROM, critical, two_sided


@pytest.mark.parametrize(
    ("tail", "freedom", "value"),
    [
        (0.05, 1, 12.706), (0.05, 2, 4.303), (0.05, 5, 2.571), (0.05, 10, 2.228), (0.01, 4, 4.604), (0.01, 7, 3.499),
        (0.001, 10, 4.587), (0.001, 30, 3.646), (0.001, 3, 12.924), (0.05, 120, 1.980),
    ],
)  # fmt: skip
def test_quantiles_are_those_of_the_printed_tables(tail: float, freedom: int, value: float) -> None:
    assert critical(tail, freedom) == pytest.approx(value, abs=6e-4)


@pytest.mark.parametrize("freedom", [1, 2, 3, 8, 51, 399, 400, 5000])
@pytest.mark.parametrize("tail", [0.3, 1e-2, 1e-5])
def test_a_quantile_has_its_own_tail(freedom: int, tail: float) -> None:
    assert two_sided(critical(tail, freedom), freedom) == pytest.approx(tail, rel=1e-3)


def test_many_degrees_of_freedom_go_over_into_the_normal_distribution_without_a_step() -> None:
    assert critical(1e-5, NORMAL_FROM - 1) == pytest.approx(critical(1e-5, NORMAL_FROM), rel=0.02)
    assert two_sided(1e9, 3) == 0.0
