"""Expected regret: by how much an option is expected to be slower than what will turn out to be the fastest.

Each predicted time is taken as log-normal, its range as the 80 % interval. Half of the variance of its logarithm is
common to all of a region's options, as in `app.atlas.price.Total`: it moves all times alike and no ratio of them. What
comes seldom and costs much (`Range.tail`) is in the mean besides.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from app.atlas.interpolation import EIGHTY, Floats
from app.estimate.range import Range

OWN = 0.5
"""Share of the variance that is an option's own. A guess."""
DRAWS = 256
LEAST_US = 1e-9
"""Of a time, so that it has a logarithm."""


@lru_cache(maxsize=256)
def expected_regrets(times: tuple[Range, ...]) -> tuple[float, ...]:
    """Of each time the mean of it over the fastest one, at least 1. The same for the same times in any order.

    Remembered: what would change an advice is asked with the same times and other thresholds again and again.
    """
    if not times:
        return ()
    order = sorted(range(len(times)), key=lambda n: (times[n].mid, times[n].low, times[n].high))
    middles = np.array([[math.log(max(LEAST_US, times[n].mid))] for n in order])
    deviations = np.array([[_deviation(times[n])] for n in order])
    drawn = middles + deviations * _draws(len(order))
    drawn -= np.minimum.reduce(drawn)
    means = np.add.reduce(np.exp(drawn, out=drawn), axis=1) / DRAWS
    regrets = [1.0] * len(times)
    for place, mean in zip(order, means.tolist(), strict=True):
        regrets[place] = mean * times[place].tail
    return tuple(regrets)


def _deviation(time: Range) -> float:
    """Standard deviation of an option's own part of the logarithm."""
    if not 0 < time.low <= time.high:
        return 0.0
    return math.sqrt(OWN) * math.log(time.high / time.low) / (2 * EIGHTY)


@lru_cache(maxsize=64)
def _draws(options: int) -> Floats:
    """Standard normal numbers [options, draws], each with its opposite, so that they have no mean."""
    half = np.random.RandomState(0).standard_normal((DRAWS // 2, options)).T
    return np.ascontiguousarray(np.concatenate([half, -half], axis=1))
