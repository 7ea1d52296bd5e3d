"""Student's t distribution for whole degrees of freedom: scipy has it, in a package of some 35 MB.

Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4: exact finite sums.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

NORMAL_FROM = 400
"""Degrees of freedom from which a normal quantile differs by less than 1 % down to a tail of 1e-7."""


def two_sided(t: float, freedom: int) -> float:
    """How likely a value at least as far from 0 is."""
    t = abs(t)
    if freedom >= NORMAL_FROM:
        return math.erfc(t / math.sqrt(2))
    if t > 1e8:
        return 0.0
    theta = math.atan2(t, math.sqrt(freedom))
    cosine = math.cos(theta)
    if freedom % 2:
        total, term = 0.0, cosine
        for k in range(3, freedom + 1, 2):
            total += term
            term *= (k - 1) / k * cosine * cosine
        inside = 2 / math.pi * (theta + math.sin(theta) * total)
    else:
        total, term = 0.0, 1.0
        for k in range(2, freedom + 1, 2):
            total += term
            term *= (k - 1) / k * cosine * cosine
        inside = math.sin(theta) * total
    return min(1.0, max(0.0, 1 - inside))


@lru_cache(maxsize=10_000)
def critical(tail: float, freedom: int) -> float:
    """The value that is exceeded on either side with this probability together, by bisection of `two_sided`."""
    if freedom >= NORMAL_FROM:
        return -NormalDist().inv_cdf(tail / 2)
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > tail and high < 1e8:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > tail else (low, middle)
    return (low + high) / 2
