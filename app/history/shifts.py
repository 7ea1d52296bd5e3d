"""Where the level of a row of runs shifts, found as each run comes and once more looking back.

As each run comes, the last 1, 2, 3, ... runs are compared with those of the level before them: the generalized
likelihood ratio over a window (Lai, Sequential changepoint detection in quality control and dynamical systems, J. R.
Statist. Soc. B 57, 1995), with Student's t for the few runs that there are. A run that stands alone raises an alarm and
no new level: the next ones tell. Looking back, shifts that their whole levels do not bear out are merged, the weakest
first (Fleming et al., Hunter, ICPE 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.history.noise import CLIP_SDS, LEAST_SD, MAD_TO_SD, Logs, Noise, from_log, level_of, noise_of, pooled_least
from app.history.student import critical, two_sided

TAILS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""How many of the last runs are compared with those before."""
INDEPENDENT_TAILS = 5
"""Tails overlap, and so do their tests: each doubling is about one of its own."""
MAX_BASE = 100
"""Runs of a level that a new one is compared with: of an older one the machine may have drifted."""
MAX_RESIDUALS = 300
BEYOND = 1.5
"""A run that stands alone is farther off than any before it by this factor: tails of times are longer than normal."""
MANY = 6
"""Runs whose mean is judged by the noise without its tail; the mean of fewer still has a tail."""
LIKELY = 3.84
"""Twice the log likelihood that a place of a shift may lack and still be among 95 % of it: chi-squared of 1."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """When a difference is told. confidence: per run, that one that is told is no chance; min_change: least difference
    of levels, as a share; min_runs: of an environment, before a run of which anything is told."""

    confidence: float = 0.9999
    min_change: float = 0.005
    min_runs: int = 5


USUAL = Sensitivity()
NOTHING: Logs = np.empty(0)


@dataclass(frozen=True, slots=True)
class Alarm:
    """What run number `run` made known: a level that differs from `first` on. log_ratio: new over old."""

    run: int
    first: int
    log_ratio: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Shift:
    """A new level from run `first` on; earliest, latest: where else it may begin. error: of log_ratio, standard."""

    first: int
    earliest: int
    latest: int
    log_ratio: float
    error: float
    freedom: int
    confidence: float
    lone: bool = False


@dataclass(frozen=True, slots=True)
class Detection:
    """alarms: as the runs came; shifts: looking back; noise: None where there are too few runs."""

    alarms: tuple[Alarm, ...]
    shifts: tuple[Shift, ...]
    noise: Noise | None
    outliers: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Test:
    log_ratio: float
    chance: float
    told: bool


def detect(
    logs: Logs, errors: Sequence[float], sensitivity: Sensitivity = USUAL, borrowed: Logs = NOTHING
) -> Detection:  # fmt: skip
    """Shifts in runs of one environment, oldest first. errors: standard ones of each run's own median.

    borrowed: residuals of another environment, by which noise is judged where this one's runs are too few.
    """
    starts = [0]
    alarms: list[Alarm] = []
    residuals = NOTHING
    screen = _Screen(logs, sensitivity)
    for run in range(1, len(logs)):
        if not screen.passes(starts[-1], run):
            continue
        told = _newest(logs, errors, starts[-1], run, residuals, len(starts) - 1, sensitivity, borrowed)
        if told is None:
            continue
        tail, test = told
        first = run - tail + 1
        if tail > 1:
            noise = _pooled(logs[: run + 1], errors[: run + 1], starts, borrowed)
            first = starts[-1] + locate(logs[starts[-1] : run + 1], noise).best
        if first < run:  # one run alone is no level yet
            before = logs[starts[-1] : first]
            residuals = np.concatenate([residuals, before - level_of(before)])[-MAX_RESIDUALS:]
            starts.append(first)
        alarms.append(Alarm(run, first, test.log_ratio, 1 - test.chance))
    last = alarms[-1] if alarms else None
    lone = last is not None and last.run == len(logs) - 1 and last.first == last.run
    return _look_back(logs, errors, starts, tuple(alarms), lone, sensitivity, borrowed)


class _Screen:
    """Leaves out the runs at which no tail comes near a limit, by plain means and the noise of some runs ago."""

    EVERY = 10
    NEAR = 0.5
    """Of the limit: plain means move farther than clipped ones, and a noise of some runs ago is near today's."""

    def __init__(self, logs: Logs, sensitivity: Sensitivity) -> None:
        self.logs = logs
        self.sums = np.concatenate([[0.0], np.cumsum(logs)])
        self.usual = critical((1 - sensitivity.confidence) / INDEPENDENT_TAILS, 10_000)
        self.tails = np.array(TAILS)
        self.known: tuple[int, int, float] = (-1, 0, 0.0)

    def passes(self, start: int, run: int) -> bool:
        runs = run + 1 - start
        if runs < 3 * self.EVERY:
            return True
        if self.known[0] != start or run - self.known[1] >= self.EVERY:
            base = self.logs[max(start, run - MAX_BASE) : run]
            self.known = start, run, max(LEAST_SD, MAD_TO_SD * float(np.median(np.abs(base - np.median(base)))))
        tails = self.tails[self.tails < runs]
        end = run + 1 - tails
        begin = np.maximum(start, end - MAX_BASE)
        before = (self.sums[end] - self.sums[begin]) / (end - begin)
        after = (self.sums[run + 1] - self.sums[end]) / tails
        error = self.known[2] * np.sqrt(1 / tails + 1 / (end - begin))
        return bool(np.any(np.abs(after - before) > self.NEAR * self.usual * error))


def _newest(
    logs: Logs, errors: Sequence[float], start: int, run: int, residuals: Logs, levels: int, sensitivity: Sensitivity,
    borrowed: Logs,
) -> tuple[int, _Test] | None:  # fmt: skip
    """The test of the tail that tells most, where one tells anything."""
    best: tuple[int, _Test] | None = None
    for tail in TAILS:
        end = run + 1 - tail
        base = logs[max(start, end - MAX_BASE) : end]
        if end <= start:
            break
        level = level_of(base)
        own = np.concatenate([residuals, base - level])
        pooled = own if len(own) >= sensitivity.min_runs else np.concatenate([borrowed, own])
        if len(pooled) < sensitivity.min_runs:
            break
        noise = noise_of(pooled, levels + 1, pooled_least(errors[start : run + 1]))
        test = compare(logs[end : run + 1], level, len(base), noise, sensitivity)
        if test.told and (best is None or test.chance < best[1].chance or best[0] == 1):
            best = tail, test
    return best


def compare(after: Logs, level: float, runs_before: int, noise: Noise, sensitivity: Sensitivity) -> _Test:
    """Runs against a level that so many gave. One alone is judged by the tail of the noise, several by their mean, to
    which one adds no more than clipping leaves."""
    limit = critical((1 - sensitivity.confidence) / INDEPENDENT_TAILS, noise.freedom)
    sd = noise.tail_sd if len(after) < MANY else noise.sd
    difference = level_of(after, sd) - level
    score = difference
    if len(after) > 1:
        usual = critical((1 - sensitivity.confidence) / INDEPENDENT_TAILS, 10_000)
        clip = CLIP_SDS * sd * limit / usual * math.sqrt(1 + len(after) / runs_before)
        score = float(np.mean(np.clip(after - level, -clip, clip)))
    t = score / (sd * math.sqrt(1 / len(after) + 1 / runs_before))
    chance = min(1.0, INDEPENDENT_TAILS * two_sided(t, noise.freedom))
    told = abs(t) > limit and abs(from_log(difference) - 1) >= sensitivity.min_change
    if len(after) == 1:
        told = told and abs(difference) > BEYOND * noise.farthest
    return _Test(difference, chance, told)


# -------------------------------------------------------------------------------------------------------- looking back


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a row of runs a level begins that the runs before it have not: the best place and the likely ones."""

    best: int
    earliest: int
    latest: int


def locate(logs: Logs, noise: Noise) -> Place:
    """The place of one shift, from 1 to the last run: two levels, least squares, outliers clipped as they would be."""
    count = len(logs)
    sums = np.concatenate([[0.0], np.cumsum(_clipped(logs, noise))])
    k = np.arange(1, count)
    gain = (sums[k] / k - (sums[-1] - sums[k]) / (count - k)) ** 2 * k * (count - k) / count
    best = int(np.argmax(gain))
    likely = np.flatnonzero(gain >= gain[best] - LIKELY * noise.sd**2)
    return Place(best + 1, int(likely[0]) + 1, int(likely[-1]) + 1)


def _clipped(logs: Logs, noise: Noise) -> Logs:
    """Runs that stand alone drawn to their neighbours': a median of five, with what the noise allows about it."""
    if len(logs) < 5:
        return logs
    padded = np.concatenate([logs[:1], logs[:1], logs, logs[-1:], logs[-1:]])
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)
    return np.clip(logs, middle - CLIP_SDS * noise.sd, middle + CLIP_SDS * noise.sd)


def _bounds(starts: Sequence[int], count: int) -> list[tuple[int, int]]:
    return list(zip(starts, [*starts[1:], count], strict=True))


def _pooled(logs: Logs, errors: Sequence[float], starts: Sequence[int], borrowed: Logs = NOTHING) -> Noise:
    """Of runs about their levels."""
    parts = [about_levels(logs, starts), borrowed]
    return noise_of(np.concatenate(parts), len(starts), pooled_least(errors))


def about_levels(logs: Logs, starts: Sequence[int]) -> Logs:
    """What is left of runs without their levels."""
    return np.concatenate([logs[a:b] - level_of(logs[a:b]) for a, b in _bounds(starts, len(logs))])


def _look_back(
    logs: Logs, errors: Sequence[float], starts: list[int], alarms: tuple[Alarm, ...], lone: bool,
    sensitivity: Sensitivity, borrowed: Logs,
) -> Detection:  # fmt: skip
    """Places and sizes of shifts again, with all the runs that came after them."""
    count = len(logs)
    if count + len(borrowed) < sensitivity.min_runs:
        return Detection(alarms, (), None, frozenset())
    if lone:
        starts = [*starts, count - 1]
    while True:
        noise = _pooled(logs, errors, starts, borrowed)
        shifts = [_shift(logs, starts, n, noise, sensitivity) for n in range(1, len(starts))]
        weak = [(shift[1].chance, n) for n, shift in enumerate(shifts, 1) if not shift[1].told]
        if not weak:
            break
        del starts[max(weak)[1]]
    outliers = frozenset(
        run for a, b in _bounds(starts, count) for run in range(a, b)
        if b - a > 2 and abs(logs[run] - level_of(logs[a:b], noise.sd)) > 2 * CLIP_SDS * noise.sd
    )  # fmt: skip
    return Detection(alarms, tuple(shift for shift, _ in shifts), noise, outliers)


def _shift(
    logs: Logs, starts: list[int], number: int, noise: Noise, sensitivity: Sensitivity
) -> tuple[Shift, _Test]:  # fmt: skip
    bounds = [*starts, len(logs)]
    low, high = bounds[number - 1], bounds[number + 1]
    place = locate(logs[low:high], noise)
    first = starts[number] = low + place.best
    before, after = logs[max(low, first - MAX_BASE) : first], logs[first : min(high, first + MAX_BASE)]
    level = level_of(before, noise.sd)
    test = compare(after, level, len(before), noise, sensitivity)
    one = len(after) == 1
    error = (noise.tail_sd if one else noise.sd) * math.sqrt(1 / len(before) + 1 / len(after))
    shift = Shift(
        first, low + place.earliest, low + place.latest, test.log_ratio, error, noise.freedom, 1 - test.chance, one
    )
    return shift, test
