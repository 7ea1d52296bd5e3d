"""Ways to tell from runs, as each comes, that a level has changed: ours, a fixed threshold, and Bencher's t-test.

Each takes logarithms of values, oldest first, and says at which runs it raises an alarm, and in which direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from app.history.noise import Logs
from app.history.shifts import USUAL, detect
from app.history.student import critical

Alarms: TypeAlias = list[tuple[int, int]]
"""(run, 1 for slower or -1 for faster)."""


def ours(logs: Logs, errors: Sequence[float]) -> Alarms:
    """As `tritonworthy check --history` judges each run."""
    return [(alarm.run, 1 if alarm.log_ratio > 0 else -1) for alarm in detect(logs, errors, USUAL).alarms]


def fixed(logs: Logs, errors: Sequence[float], *, share: float = 0.05) -> Alarms:
    """The run before, and a share by which this one may differ from it."""
    steps = np.expm1(np.diff(logs))
    return [(run + 1, 1 if step > 0 else -1) for run, step in enumerate(steps) if abs(step) > share]


def bencher_t(logs: Logs, errors: Sequence[float], *, boundary: float, sample: int = 64) -> Alarms:
    """Student's t as Bencher has it (`bencher_boundary`: `new_normal`): the prediction interval of one more value.

    Both boundaries, of the last 64 values as its documentation's example has them. It knows nothing of a change once
    told: the level before is a part of the sample until it has left it.
    """
    values = np.exp(logs)
    alarms = []
    for run in range(2, len(values)):
        last = values[max(0, run - sample) : run]
        sd = float(np.std(last, ddof=1))
        reach = critical(2 * (1 - boundary), len(last) - 1) * sd * math.sqrt(1 + 1 / len(last))
        difference = float(values[run] - np.mean(last))
        if sd and abs(difference) > reach:
            alarms.append((run, 1 if difference > 0 else -1))
    return alarms


DETECTORS: Mapping[str, Callable[[Logs, Sequence[float]], Alarms]] = {
    "tritonworthy": ours,
    "5 % of the run before": fixed,
    "Bencher's t-test, 0.99": partial(bencher_t, boundary=0.99),
    "Bencher's t-test, 0.9999": partial(bencher_t, boundary=0.9999),
}
