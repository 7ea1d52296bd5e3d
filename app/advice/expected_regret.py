"""Expected regret: by how much an option is expected to be slower than what will turn out to be the fastest.

Each predicted time is taken as log-normal, its range as the 80 % interval. Half of the variance of its logarithm is
common to all of a region's options, as in `app.atlas.price.Total`: it moves all times alike and no ratio of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from app.estimate.range import Range

EIGHTY = 1.2816
"""Standard deviations to either side that hold 80 % of a normal distribution."""
OWN = 0.5
"""Share of the variance that is an option's own. A guess."""
DRAWS = 256

Floats = npt.NDArray[np.float64]


def expected_regrets(times: Mapping[str, Range]) -> dict[str, float]:
    """Candidate -> mean of its time over the fastest one's, at least 1. The same for the same times in any order."""
    names = sorted(times)
    if not names:
        return {}
    middles = np.log([times[name].mid for name in names])
    deviations = np.array([_deviation(times[name]) for name in names])
    drawn = middles + deviations * _draws(len(names))
    ratios = np.exp(drawn - drawn.min(1, keepdims=True)).mean(0)
    return {name: float(ratio) for name, ratio in zip(names, ratios, strict=True)}


def _deviation(time: Range) -> float:
    """Standard deviation of an option's own part of the logarithm."""
    if not 0 < time.low <= time.high:
        return 0.0
    return math.sqrt(OWN) * math.log(time.high / time.low) / (2 * EIGHTY)


@lru_cache(maxsize=64)
def _draws(options: int) -> Floats:
    """Standard normal numbers [draws, options], each with its opposite, so that they have no mean."""
    half = np.random.RandomState(0).standard_normal((DRAWS // 2, options))
    return np.concatenate([half, -half])
