"""Runs of a check with made-up times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from app.history.model import Entry, Environment, Measure, SeriesKey

H200 = Environment("NVIDIA H200", {"torch": "2.11.0", "driver": "580.1"}, "median of 5 recorded steps")
H100 = Environment("NVIDIA H100", {"torch": "2.11.0", "driver": "580.1"}, "median of 5 recorded steps")
UPGRADED = Environment("NVIDIA H200", {"torch": "2.12.0", "driver": "580.1"}, "median of 5 recorded steps")
STACKS = Environment("NVIDIA H200", {"torch": "2.11.0", "driver": "580.1"}, "median of 5 recorded steps, with stacks")
KEY = SeriesKey("nightly", "main", "step.json", "step time")
START = datetime(2026, 1, 1, tzinfo=UTC)


def run(
    number: int, time_us: float, environment: Environment = H200, *, commit: str | None = None, branch: str = "main",
    unit: str = "µs", dirty: bool = False,
) -> Entry:  # fmt: skip
    """Run number so much, an hour after the one before, of a commit of its own."""
    at = (START + timedelta(hours=number)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    commit = f"c{number:03}" if commit is None else commit
    measure = Measure(KEY.subject, KEY.metric, unit, time_us, 5, None)
    return Entry("nightly", at, commit, branch, environment, (measure,), f"run-{branch}-{number}", dirty=dirty)


def noisy(levels: Sequence[float], sd: float = 0.003, seed: int = 0) -> list[float]:
    """Each level with log-normal noise of this relative standard deviation."""
    rng = np.random.default_rng(seed)
    return [float(level * np.exp(sd * rng.normal())) for level in levels]
