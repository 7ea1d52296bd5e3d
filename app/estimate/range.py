"""Range: a predicted or measured figure with what it may be at least and at most."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """low <= mid <= high."""

    low: float
    mid: float
    high: float
