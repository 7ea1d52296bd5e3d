"""Figures kept to so many digits that the same measurements give the same file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DIGITS = 5
"""Significant digits: a measurement repeats to three."""


def rounded(value: Any) -> Any:
    """The same JSON with every float to DIGITS."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list | tuple) else value
