"""Figures with as many digits as they are worth. Pure functions."""

from __future__ import annotations

import math
from typing import overload

from app.objects.common import Interval, Range

SIGNIFICANT = 4


@overload
def rounded(value: float) -> float: ...
@overload
def rounded(value: None) -> None: ...
def rounded(value: float | None) -> float | None:
    """With four significant digits; whole where it is that large."""
    if value is None or value == 0 or not math.isfinite(value):
        return value if value is None or math.isfinite(value) else None
    places = SIGNIFICANT - 1 - math.floor(math.log10(abs(value)))
    result = round(value, places)
    return int(result) if places <= 0 else result


def rounded_range(values: Range | None) -> Range | None:
    """A range, rounded."""
    if values is None:
        return None
    return {"low": rounded(values["low"]), "mid": rounded(values["mid"]), "high": rounded(values["high"])}


def rounded_interval(values: Interval | None) -> Interval | None:
    """A measured median, rounded."""
    if values is None:
        return None
    return {"median": rounded(values["median"]), "low": rounded(values["low"]), "high": rounded(values["high"])}
