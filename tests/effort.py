"""How much a function does, counted: the same on an idle machine and on a busy one, which a clock is not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class TooMuchError(Exception):
    """It was still at work behind as many calls as it may make."""


def calls_of(function: Callable[[], Any], most: int) -> tuple[int, Any]:
    """The calls of Python functions that it makes, and its answer; TooMuchError at the first beyond `most`."""
    made = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal made
        if event == "call":
            made += 1
            if made > most:
                raise TooMuchError(f"more than {most:,} calls, in {frame.f_code.co_qualname}")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        answer = function()
    finally:
        sys.setprofile(before)
    return made, answer
