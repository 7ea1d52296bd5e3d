"""Totals: many scores as few figures. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.accuracy.score import Point, Score
from app.objects.accuracy import AdviceTotals

BAND = 0.2
"""A predicted speed-up counts as right within 20 % of the measured one (DESIGN's target)."""


class Regretted(Protocol):
    """What can be added up."""

    @property
    def regret(self) -> float: ...
    @property
    def right(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Totals:
    """regret_geomean, regret_worst: times over the best measured; right: share of cases. None without a case."""

    cases: int
    regret_geomean: float | None
    regret_worst: float | None
    right: float | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """Predictions of speed-ups over eager against measured ones. within: share inside BAND; error_geomean: the
    geometric mean of the larger over the smaller. None without a prediction."""

    predictions: int
    within: float | None
    error_geomean: float | None


def totals(cases: Iterable[Regretted]) -> Totals:
    """Geometric mean and worst of the regrets, share right."""
    scores = list(cases)
    if not scores:
        return Totals(0, None, None, None)
    regrets = [s.regret for s in scores]
    return Totals(len(scores), geomean(regrets), max(regrets), sum(s.right for s in scores) / len(scores))


def calibration(points: Sequence[tuple[float, float]]) -> Calibration:
    """points: (predicted, measured) speed-ups."""
    if not points:
        return Calibration(0, None, None)
    errors = [max(p / m, m / p) for p, m in points]
    return Calibration(len(points), sum(within(p, m) for p, m in points) / len(points), geomean(errors))


def within(predicted: float, measured: float) -> bool:
    """Within BAND of the measured speed-up."""
    return abs(predicted / measured - 1) <= BAND


def of_advised(scores: Iterable[Score]) -> list[tuple[float, float]]:
    """(predicted, measured) of the candidates that the advice comes to, eager left out: it is what both are against."""
    return [(s.predicted, s.measured) for s in scores if s.predicted is not None and s.measured is not None]


def of_all(scores: Iterable[Score]) -> list[tuple[float, float]]:
    """(predicted, measured) of every candidate that was predicted and measured."""
    points: list[Point] = [p for s in scores for p in s.calibration]
    return [(p, m) for _, p, m in points]


def geomean(values: Sequence[float]) -> float:
    """Geometric mean of positive numbers."""
    return math.exp(sum(map(math.log, values)) / len(values))


def figure_of(advice: AdviceTotals, name: str) -> float | None:
    """One of the figures that targets are set for, by its name. KeyError for another."""
    return {
        "regret_geomean": advice["regret_geomean"],
        "regret_worst": advice["regret_worst"],
        "right": advice["right"],
        "within": advice["within"],
        "within_all": advice["within_all"],
    }[name]
