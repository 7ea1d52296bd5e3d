"""How much runs of one level differ by themselves, on the scale of logarithms, where 0.01 is 1 %.

Two figures, because measured runs have longer tails than a normal distribution: most lie close together and a few far
off. `sd` is of residuals that were clipped, so that a few outliers do not hide a lasting shift of many runs; `tail_sd`
is of all of them, by which a run that stands alone is judged. What the samples within a run differ by is a part of it,
and so the least that runs can differ by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Logs = NDArray[np.float64]

CLIP_SDS = 3.5
"""Where residuals are clipped. Of a normal distribution 1 in 2,000 lies beyond."""
MAD_TO_SD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
MEDIAN_TO_MEAN = math.sqrt(math.pi / 2)
"""Standard error of a normal sample's median over that of its mean."""
LEAST_SD = 1e-6
"""So that runs which agree to the last digit have noise, too."""
LARGEST_LOG = 100.0
"""No value and no ratio of two is larger: intervals of few runs that differ much end here."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations of one run. freedom: degrees of freedom of both. farthest: the largest residual."""

    sd: float
    tail_sd: float
    freedom: int
    farthest: float


def from_log(log: float) -> float:
    """The value, or the ratio, of a logarithm."""
    return math.exp(min(LARGEST_LOG, log))


def standard_error(samples: int, spread: float | None) -> float:
    """Of a run's median, from what its samples differ by; 0 where that is not known."""
    return 0.0 if spread is None or samples < 2 else MEDIAN_TO_MEAN * spread / math.sqrt(samples)


def noise_of(residuals: Logs, levels: int, least: float) -> Noise:
    """Of residuals about so many levels, each of which took a degree of freedom. least: what a run measures itself."""
    freedom = max(1, len(residuals) - levels)
    least = max(least, LEAST_SD)
    plain = math.sqrt(float(np.sum(residuals**2)) / freedom)
    middle = MAD_TO_SD * float(np.median(np.abs(residuals))) * math.sqrt(len(residuals) / freedom)
    if middle <= LEAST_SD:  # more than half of the runs agree
        middle = plain
    clipped = np.clip(residuals, -CLIP_SDS * middle, CLIP_SDS * middle)
    sd = math.sqrt(float(np.sum(clipped**2)) / freedom)
    return Noise(max(sd, least), max(plain, least), freedom, float(np.max(np.abs(residuals), initial=0.0)))


def level_of(values: Logs, sd: float | None = None) -> float:
    """A level that outliers do not move far: the mean of what lies near the median, clipped to it."""
    middle = float(np.median(values))
    if sd is None:
        sd = MAD_TO_SD * float(np.median(np.abs(values - middle)))
    if len(values) < 3 or sd <= 0:
        return middle
    return middle + float(np.mean(np.clip(values - middle, -CLIP_SDS * sd, CLIP_SDS * sd)))


def pooled_least(errors: Sequence[float]) -> float:
    """The standard error that is usual among runs."""
    return float(np.median(errors)) if len(errors) else 0.0
