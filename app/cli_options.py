"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import argparse
import json
from typing import Any

Json = dict[str, Any]


def workload_options(parser: argparse.ArgumentParser) -> None:
    """How the region is used, and for which device."""
    parser.add_argument("--share", type=share, metavar="0..1", help="share of the step that the region takes")
    parser.add_argument("--step-time-us", type=float, metavar="US", help="time of one step, in µs")
    parser.add_argument("--device", help="device to predict for, such as H200; advise: or all; validate: or cpu")
    parser.add_argument("--objective", choices=("time", "memory"), default="time")
    parser.add_argument("--json", action="store_true", help="print the API's object")


def share(text: str) -> float:
    """A share, 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("a share is between 0 and 1")
    return value


def shapes(text: str) -> list[Json]:
    """Sizes in use, as JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        raise argparse.ArgumentTypeError("not JSON") from None
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise argparse.ArgumentTypeError('a list of objects, such as [{"N": 37, "calls": 3}]')
    return value
