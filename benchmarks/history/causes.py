"""Planted causes: as what a change of device, software, method or program is told.

Each series has 80 runs, each of another commit, with a planted change at one of them. In CI a runner is replaced while
commits go on, so that a change of the environment always comes with another commit, too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.history.changes import keys, series_of
from app.history.model import Change, Entry, Environment, Measure
from benchmarks.history.noise import Pair

RUNS = 80
NEAR_RUNS = 20
"""A change that is told to begin within so many runs of the planted one is that one."""
H200 = Environment("NVIDIA H200", {"torch": "2.11.0", "triton": "3.6.0"}, "median of 5 recorded steps")
H100 = replace(H200, device="NVIDIA H100")
UPGRADED = replace(H200, software={"torch": "2.12.0", "triton": "3.7.0"})
STACKS = replace(H200, method="median of 5 recorded steps, stacks")


@dataclass(frozen=True, slots=True)
class Planted:
    """share: of the environment's change, and of the commit's at the same run. again: an old commit is run again in
    the new environment."""

    environment: Environment
    environment_share: float
    commit_share: float
    again: bool = False


PLANTED: Mapping[str, Planted] = {
    "nothing": Planted(H200, 0.0, 0.0),
    "commit 5 % slower": Planted(H200, 0.0, 0.05),
    "commit 5 % faster": Planted(H200, 0.0, -0.05),
    "device, 40 % slower": Planted(H100, 0.40, 0.0),
    "torch and triton, 5 % slower": Planted(UPGRADED, 0.05, 0.0),
    "torch and triton, no effect": Planted(UPGRADED, 0.0, 0.0),
    "stacks recorded, 10 % slower": Planted(STACKS, 0.10, 0.0),
    "device 40 % and commit 5 % slower": Planted(H100, 0.40, 0.05),
    "the same, old commit run again": Planted(H100, 0.40, 0.05, again=True),
}


def runs_of(planted: Planted, at: int, pair: Pair, rng: np.random.Generator) -> list[Entry]:
    """The series, as runs of a check."""
    runs = []
    numbers = [*range(RUNS)]
    if planted.again:
        numbers.insert(at + 3, at - 1)
    for order, number in enumerate(numbers):
        environment = planted.environment if number >= at or (planted.again and order == at + 3) else H200
        share = (1 + planted.environment_share) if environment is not H200 or not planted.environment_share else 1.0
        share *= (1 + planted.commit_share) if number >= at else 1.0
        value = 1000 * share * math.exp(abs(pair.noise) * rng.normal())
        runs.append(
            Entry(
                "nightly", f"2026-01-{1 + order // 24:02d}T{order % 24:02d}:00:00.000000Z", f"{number:040x}", "main",
                environment, (Measure("step", "time", "µs", value),), str(order),
            )
        )  # fmt: skip
    return runs


def told_as(pairs: Sequence[Pair], seeds: Sequence[int], name: str) -> dict[str, object]:
    """In how many series a planted cause was told as what; several changes of one series joined by "and"."""
    told: Counter[str] = Counter()
    elsewhere = separable = 0
    for seed in seeds:
        for number, pair in enumerate(pairs):
            rng = np.random.default_rng([seed, number, len(name)])
            at = int(rng.integers(20, 60))
            runs = runs_of(PLANTED[name], at, pair, rng)
            changes = series_of(keys(runs)[0], runs).changes
            near = [change for change in changes if abs(_number(change) - at) <= NEAR_RUNS]
            told[" and ".join(change.cause for change in near) or "no change"] += 1
            separable += any(change.how_to_separate for change in near)
            elsewhere += len(changes) - len(near)
    return {
        "series": len(seeds) * len(pairs), "told_as": dict(told.most_common()), "how_to_separate": separable,
        "changes_elsewhere": elsewhere,
    }  # fmt: skip


def _number(change: Change) -> int:
    return int(change.after.commit, 16)
