"""Amdahl's law: what a step gains when a part of it gets faster."""

from __future__ import annotations

import math


def amdahl(share: float, faster: float) -> float:
    """A step of which `share`, 0 to 1, runs `faster` times as fast is so many times as fast. faster may be inf."""
    left = (1.0 - share) + share / faster
    return math.inf if left == 0.0 else 1.0 / left
