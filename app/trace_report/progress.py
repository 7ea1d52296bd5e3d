"""How far the reading of a trace is: which of its stages, and the share of all of them that is done.

A stage's part of the whole is what it takes as a rule, by the size of the file. So the share goes by work that is done,
bytes read and regions advised on, and not by the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

StageName = Literal["reading", "regions", "callers", "parts", "advice"]

Tell = Callable[[StageName, float], None]
"""Is told of the stage, and of the share of the whole that is done, from 0 to below 1: that never shrinks."""

TELL_EVERY_S = 0.2
"""Between two tellings within a stage: a page asks four times a second."""

PLAIN_RATIO = 15.0
"""Of a plain file, how many times larger it is than compressed: the median of tests/data/traces."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What it takes: seconds of any file, and of each megabyte (compressed)."""

    name: StageName
    least_s: float
    s_per_mb: float


STAGES = (
    Stage("reading", 0.01, 0.06),
    Stage("regions", 0.05, 0.40),
    Stage("callers", 0.01, 0.06),
    Stage("parts", 0.02, 0.10),
    Stage("advice", 1.0, 0.0),
)
"""In their order; seconds of six traces of tests/data/traces of 0.04 to 4 MB on two cores, rounded."""


def spans(packed_mb: float) -> dict[StageName, tuple[float, float]]:
    """Where each stage begins and ends in the whole, from 0 to 1."""
    costs = [stage.least_s + stage.s_per_mb * packed_mb for stage in STAGES]
    whole = sum(costs)
    return {
        stage.name: (sum(costs[:place]) / whole, sum(costs[: place + 1]) / whole) for place, stage in enumerate(STAGES)
    }


def packed_mb(path: Path | str) -> float:
    """The size of a trace's file, compressed."""
    with Path(path).open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
        size = file.seek(0, 2)
    return size / 1e6 / (1.0 if is_packed else PLAIN_RATIO)


class Progress:
    """Tells of whole percents, the first of each stage at once and others no more often than TELL_EVERY_S."""

    def __init__(self, packed_mb: float, tell: Tell, clock: Callable[[], float] = time.monotonic) -> None:
        self._spans = spans(packed_mb)
        self._tell = tell
        self._clock = clock
        self._stage: StageName | None = None
        self._percent = -1
        self._told_at = 0.0

    def at(self, stage: StageName, share: float = 0.0) -> None:
        """So much of a stage is done. What is less than was told is not told: a file may be read a second time."""
        begin, end = self._spans[stage]
        percent = min(99, int(100 * (begin + (end - begin) * min(1.0, max(0.0, share)))))
        new = stage != self._stage
        if not new and (percent <= self._percent or self._clock() - self._told_at < TELL_EVERY_S):
            return
        self._stage, self._percent, self._told_at = stage, max(percent, self._percent), self._clock()
        self._tell(stage, self._percent / 100)
