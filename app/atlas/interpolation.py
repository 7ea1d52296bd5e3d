"""Interpolation: what lies between measured points, by a Gaussian process over their descriptions.

What is interpolated is the logarithm of measured time over the item's own floor (bytes and FLOPs at the device's
rates), so that far from every point a prediction falls back to the floor times the group's usual factor. The covariance
of two items is Matérn's with nu = 3/2 over the distance of their numbers, each with a length of its own (Rasmussen and
Williams, Gaussian Processes for Machine Learning, 2006, eq. 2.25-2.26 and 4.17). Compared with gradient boosting and
extremely randomised trees on a quarter of the H200's points held out it was the nearest in 8 groups of 11: of all
1,242 points within 20 %: 64 %, 58 %, 59 %.

Of a group's points those that are nearest to the item count: what lies behind them they hide (a local process; of 11
groups of the H200 held out, with 64, 200 and all points, none was nearer by more than noise). An item takes 0.2
to 0.4 ms, whatever a group's size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from app.atlas.item import ANOTHER

Floats = npt.NDArray[np.float64]

JITTER = 1e-4
"""Added to the variance of each point, which is 1 % of its time: without it alike points make a covariance that has no
root."""
ALIKE = 1e-9
"""Standard deviation up to which a number is the same in all points."""
NEAREST = 128
"""Points that count for an item."""
ROUNDING = 1e-12
"""Of the squares of two points' distances from the mean: more than their difference can be off by in 64 bits."""
EIGHTY = 1.2816
"""Standard deviations to either side that hold 80 % of a normal distribution."""


@dataclass(frozen=True)
class Interpolation:
    """The points of one group.

    names: of the numbers, a column each. points: [n, numbers], as they were described. cold, warm: logarithms of
    measured time over floor, [n], with inputs that are not in L2 and that are. lengths: by how much a number, in
    standard deviations of the points, has to differ until it matters. height: standard deviation of what the numbers
    explain; noise: of what they leave.
    """

    names: tuple[str, ...]
    points: Floats
    cold: Floats
    warm: Floats
    lengths: Floats
    height: float
    noise: float

    @cached_property
    def scale(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each number; 1 where the points are all alike."""
        return scale_of(self.points)

    @cached_property
    def _placed(self) -> Floats:
        return self._place(self.points)

    @cached_property
    def _middles(self) -> tuple[float, float]:
        """The medians that what is interpolated counts from."""
        return float(np.median(self.cold)), float(np.median(self.warm))

    def _place(self, described: Floats) -> Floats:
        middle, deviation = self.scale
        placed: Floats = (described - middle) / deviation / self.lengths
        return placed

    @property
    def own(self) -> int:
        """Points that were measured on the device itself."""
        if ANOTHER not in self.names:
            return len(self.points)
        return int((self.points[:, self.names.index(ANOTHER)] == 0).sum())

    def covers(self, numbers: Mapping[str, float]) -> bool:
        """Whether each category of an item has a point: of an operation that nobody measured nothing is known."""
        return all(name in self._named for name in numbers if "=" in name)

    @cached_property
    def _named(self) -> frozenset[str]:
        return frozenset(self.names)

    def row(self, numbers: Mapping[str, float]) -> Floats:
        """A description as a row of `points`; a number that no point has is left out, one that is missing is 0."""
        return np.array([[numbers.get(name, 0.0) for name in self.names]])

    def at(self, numbers: Mapping[str, float]) -> Estimate:
        """What is expected of an item."""
        near, squares = self._nearest(self._place(self.row(numbers)))
        between, placed = _fallen_off(squares, self.height), self._placed[near]
        alike = covariance(placed, placed, self.height)
        alike.flat[:: len(near) + 1] += self.noise**2 + JITTER
        weights = np.linalg.solve(alike, between)
        variance = self.height**2 + self.noise**2 - float(weights @ between)
        cold, warm = self._middles
        return Estimate(
            float(weights @ (self.cold[near] - cold)) + cold,
            float(weights @ (self.warm[near] - warm)) + warm,
            math.sqrt(max(variance, self.noise**2)),
            int(near[0]),
            float(between[0]) / self.height**2,
        )

    def _nearest(self, row: Floats) -> tuple[npt.NDArray[np.intp], Floats]:
        """The numbers of the nearest points and the squares of their distances, the nearest first."""
        placed, kept = self._placed, np.arange(len(self._placed))
        if len(placed) > 2 * NEAREST:
            # As |p|² - 2 pq + |q|², which is quick and off by some rounding: what it leaves out is farther for sure.
            about = self._squares - 2 * (placed @ row[0])
            slack = ROUNDING * (self._farthest + float((row * row).sum()))
            kept = np.flatnonzero(about <= np.partition(about, NEAREST - 1)[NEAREST - 1] + slack)
            placed = placed[kept]
        offsets = placed - row
        squares = (offsets * offsets).sum(1)
        # Points as far as each other are taken in their order: BLAS's threads must not choose between them.
        order = np.argsort(squares, kind="stable")[:NEAREST]
        return kept[order], squares[order]

    @cached_property
    def _squares(self) -> Floats:
        """Of each point's distance from the mean."""
        squares: Floats = (self._placed * self._placed).sum(1)
        return squares

    @cached_property
    def _farthest(self) -> float:
        return float(self._squares.max())

    def prepare(self) -> None:
        """Do now what the first item would wait for: before processes are forked that all need it."""
        _ = self._placed, self._middles, self._named, self._farthest


@dataclass(frozen=True, slots=True)
class Estimate:
    """cold, warm: logarithms of time over floor. deviation: standard deviation of either. nearest: number of the point
    that is most like it. correlation: of what the numbers explain of it and of that point, 0 to 1."""

    cold: float
    warm: float
    deviation: float
    nearest: int
    correlation: float


def scale_of(described: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each column; 1 where all rows are alike."""
    deviation = described.std(0)
    return described.mean(0), np.where(deviation > ALIKE, deviation, 1.0)


def covariance(one: Floats, other: Floats, height: float) -> Floats:
    """Matérn's, nu = 3/2, of rows that are already divided by their lengths: [n, m]."""
    squares = (one * one).sum(1)[:, None] + (other * other).sum(1)[None] - 2 * one @ other.T
    return _fallen_off(squares, height)


def _fallen_off(squares: Floats, height: float) -> Floats:
    """By squares of distances."""
    distance: Floats = np.sqrt(np.maximum(squares, 1e-12))
    distance *= math.sqrt(3)
    share = np.exp(np.negative(distance))
    distance += 1
    distance *= height**2
    distance *= share
    return distance
