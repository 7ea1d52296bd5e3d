"""Interpolation against a Gaussian process written out by its definition, and on a function known everywhere."""

from __future__ import annotations

import math

import numpy as np
import pytest

from app.atlas.interpolation import JITTER, NEAREST, Interpolation

NAMES = ("bytes", "rows")


def made(count: int = 60, noise: float = 0.05) -> Interpolation:
    rng = np.random.RandomState(1)
    points = rng.uniform(0, 10, (count, 2))
    values = np.sin(points[:, 0] / 3) + 0.1 * points[:, 1]
    return Interpolation(NAMES, points, values, values - 0.5, np.array([0.8, 1.5]), 0.9, noise)


def by_definition(known: Interpolation, place: tuple[float, float]) -> tuple[float, float]:
    """Mean and standard deviation by inverting the covariance of the points."""

    def alike(one: np.ndarray, other: np.ndarray) -> float:
        offset = (one - other) / known.points.std(0) / known.lengths
        distance = math.sqrt(3 * float(offset @ offset))
        return known.height**2 * (1 + distance) * math.exp(-distance)

    near = sorted(range(len(known.points)), key=lambda n: -alike(np.array(place), known.points[n]))[:NEAREST]
    points, cold = known.points[near], known.cold[near]
    matrix = np.array([[alike(a, b) for b in points] for a in points])
    matrix += np.eye(len(matrix)) * (known.noise**2 + JITTER)
    to = np.array([alike(np.array(place), b) for b in points])
    middle = np.median(known.cold)
    mean = middle + to @ np.linalg.inv(matrix) @ (cold - middle)
    variance = known.height**2 + known.noise**2 - to @ np.linalg.inv(matrix) @ to
    return float(mean), math.sqrt(variance)


@pytest.mark.parametrize("count", [60, 2 * NEAREST])
@pytest.mark.parametrize("place", [(2.0, 3.0), (9.5, 0.5), (15.0, 12.0)])
def test_mean_and_deviation_are_a_gaussian_processs_over_the_nearest_points(
    place: tuple[float, float], count: int
) -> None:
    known = made(count)
    estimate = known.at(dict(zip(NAMES, place, strict=True)))
    mean, deviation = by_definition(known, place)
    assert estimate.cold == pytest.approx(mean, abs=1e-6)
    assert estimate.deviation == pytest.approx(deviation, rel=1e-3)


def test_between_points_a_smooth_function_is_met_and_far_from_them_the_deviation_grows() -> None:
    known = made(200, 0.01)
    near, far = known.at({"bytes": 4.3, "rows": 5.1}), known.at({"bytes": 400.0, "rows": 5.1})
    assert near.cold == pytest.approx(math.sin(4.3 / 3) + 0.51, abs=0.05)
    assert far.cold == pytest.approx(float(np.median(known.cold)), abs=0.01)
    assert near.deviation < 0.1 < 0.8 < far.deviation


def test_warm_times_are_interpolated_with_the_same_lengths() -> None:
    estimate = made(200, 0.01).at({"bytes": 4.3, "rows": 5.1})
    assert estimate.warm == pytest.approx(estimate.cold - 0.5, abs=0.01)


def test_the_nearest_point_is_named() -> None:
    known = made()
    row = known.points[17]
    assert known.at({"bytes": row[0], "rows": row[1]}).nearest == 17


def test_a_category_that_no_point_has_is_not_covered() -> None:
    known = Interpolation(
        ("target=sum", "bytes"), np.array([[1.0, 2.0], [1.0, 3.0]]), np.zeros(2), np.zeros(2), np.ones(2), 0.3, 0.1
    )
    assert known.covers({"target=sum": 1.0, "bytes": 2.5, "another number": 1.0})
    assert not known.covers({"target=prod": 1.0, "bytes": 2.5})


def test_points_of_another_device_are_not_counted_as_its_own() -> None:
    known = Interpolation(
        ("another device", "bytes"), np.array([[1.0, 2.0], [0.0, 3.0], [0.0, 4.0]]), np.zeros(3), np.zeros(3),
        np.ones(2), 0.3, 0.1,
    )  # fmt: skip
    assert known.own == 2
    assert made(60).own == 60


@pytest.mark.parametrize("count", [NEAREST // 2, 2 * NEAREST, 2 * NEAREST + 1, 1500])
def test_of_many_points_the_nearest_are_those_that_sorting_all_gives_and_equal_ones_in_their_order(count: int) -> None:
    rng = np.random.RandomState(3)
    points = rng.randint(0, 6, (count, 2)).astype(float)  # on a grid: most are as far as many others
    known = Interpolation(NAMES, points, points[:, 0], points[:, 1], np.array([0.8, 1.5]), 0.9, 0.05)
    for place in ((2.0, 3.0), (2.5, 2.5), (-40.0, 1e4)):
        row = known._place(np.array([place]))
        offsets = known._place(points) - row
        by_sorting = np.argsort((offsets * offsets).sum(1), kind="stable")[:NEAREST]
        numbers, squares = known._nearest(row)
        assert numbers.tolist() == by_sorting.tolist()
        assert squares.tolist() == (offsets[by_sorting] ** 2).sum(1).tolist()
