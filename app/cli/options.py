"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path

Sizes = dict[str, float | None]
"""A size for each symbol of a region, and its `calls` in a step, None where they are not known."""

LONGEST_STEP_US = 1e12
LONGEST_BUDGET_S = 86400.0
LEAST_MINUTES = 0.5


def workload_options(parser: argparse.ArgumentParser) -> None:
    """How the region is used, and for which device."""
    parser.add_argument("--share", type=share, metavar="0..1", help="share of the step that the region takes")
    parser.add_argument("--step-time-us", type=step_time_us, metavar="US", help="time of one step, in µs")
    parser.add_argument(
        "--device", "--device-name", help="device to predict for, such as H200; advise: or all; validate: or cpu"
    )
    parser.add_argument("--objective", choices=("time", "memory"), default="time")
    parser.add_argument("--json", action="store_true", help="print the API's object")


def share(text: str) -> float:
    """A share, 0 to 1."""
    value = _number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("a share is between 0 and 1")
    return value


def step_time_us(text: str) -> float:
    """A time in µs, as the API takes it."""
    value = _number(text)
    if not 0 < value <= LONGEST_STEP_US:
        raise argparse.ArgumentTypeError(f"a time in µs is wanted, above 0 and at most {LONGEST_STEP_US:g}")
    return value


def budget_s(text: str) -> float:
    """Seconds that measuring may take."""
    value = _number(text)
    if not 1 <= value <= LONGEST_BUDGET_S:
        raise argparse.ArgumentTypeError(f"seconds are wanted, 1 to {LONGEST_BUDGET_S:g}")
    return value


def minutes(text: str) -> float:
    """Minutes to measure a GPU in: below half a minute processes hardly have begun."""
    value = _number(text)
    if not LEAST_MINUTES <= value <= LONGEST_BUDGET_S / 60:
        raise argparse.ArgumentTypeError(f"minutes are wanted, {LEAST_MINUTES:g} to {LONGEST_BUDGET_S / 60:g}")
    return value


def count(low: int, high: int) -> Callable[[str], int]:
    """A whole number from low to high."""

    def whole(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"a whole number is wanted, {low} to {high}")
        return value

    return whole


def given_path(text: str) -> Path:
    """A path; the empty one, as of a variable that is not set, would be the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError("a path is wanted; it is empty")
    return Path(text)


def shapes(text: str) -> list[Sizes]:
    """Sizes in use, as JSON."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise argparse.ArgumentTypeError("not JSON") from None
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise argparse.ArgumentTypeError('a list of objects, such as [{"N": 37, "calls": 3}]')
    return value


def _number(text: str) -> float:
    """A number; NaN, which is in no range, for a text that is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
