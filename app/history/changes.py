"""The series of a history, and why their levels changed. Pure functions of runs.

Runs of one environment (device, software, method) are compared with each other alone: a change among them is the
commits'. Where an environment is new its first level is compared with the last one of the environment before, and what
differs is the environment's, also where the commit is another: then a run of the old commit in the new environment
tells them apart, and once there is one it is what the new commit is compared with.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from app.history.environments import differences, groups
from app.history.model import Cause, Change, Entry, Measure, Point, Series, SeriesKey
from app.history.noise import Logs, Noise, from_log, level_of, standard_error
from app.history.shifts import NOTHING, USUAL, Detection, Sensitivity, Shift, about_levels, compare, detect
from app.history.student import critical
from app.history.wording import because

EXACT_UNITS = frozenset({"kernels", "bytes/byte", "graph breaks", "recompiles"})
"""Counted, not timed: any difference is a change, and no run is noise."""
HOW_TO_SEPARATE = """git checkout {commit}
# record the trace again
tritonworthy check TRACE --history FILE --append"""
"""Lines for a shell."""
BAND = 0.05
"""Share of runs beyond the band that a chart shows, and of intervals that miss."""


def keys(entries: Iterable[Entry]) -> list[SeriesKey]:
    """Every series that runs have, in the order in which they first come."""
    return list(dict.fromkeys(
        SeriesKey(entry.check, entry.branch, measure.subject, measure.metric)
        for entry in entries for measure in entry.measures
    ))  # fmt: skip


def all_series(
    entries: Sequence[Entry], sensitivity: Sensitivity = USUAL, commits: Sequence[str] = ()
) -> list[Series]:  # fmt: skip
    """Every series of these runs, see `series_of`."""
    return [series_of(key, entries, sensitivity, commits) for key in keys(entries)]


def series_of(
    key: SeriesKey, entries: Sequence[Entry], sensitivity: Sensitivity = USUAL, commits: Sequence[str] = ()
) -> Series:  # fmt: skip
    """The runs of one key, as `in_order` has them, with their changes. commits: oldest first, as git has them."""
    runs = [(entry, measure) for entry in in_order(entries, commits) if (measure := _measure(entry, key)) is not None]
    environments = groups([entry.environment for entry, _ in runs])
    exact = bool(runs) and runs[0][1].unit in EXACT_UNITS
    stretches: list[_Stretch] = []
    for number in range(max(environments, default=-1) + 1):
        places = [place for place, group in enumerate(environments) if group == number]
        # An old commit was run here, too: few runs must do, by the noise of the environment that it was run in before.
        earlier = {_name(entry) for stretch in stretches for entry in stretch.entries}
        again = any(_name(runs[place][0]) in earlier for place in places)
        borrowed = stretches[-1].residuals() if again else NOTHING
        stretches.append(_Stretch(places, [runs[place] for place in places], exact, sensitivity, borrowed))
    changes = _within(stretches, key, commits) + _between(stretches, key, commits, sensitivity, exact)
    order = {entry.id: place for place, (entry, _) in enumerate(runs)}
    changes.sort(key=lambda change: order[change.after.id])
    expected = {point.place: point for stretch in stretches for point in stretch.points()}
    points = [
        Point(
            entry, measure.value, measure.samples, measure.spread, segment, expected[place].outlier,
            expected[place].level, expected[place].low, expected[place].high,
        )
        for place, ((entry, measure), segment) in enumerate(zip(runs, _segments(environments), strict=True))
    ]  # fmt: skip
    return Series(key, runs[-1][1].unit if runs else "", tuple(points), tuple(changes))


def in_order(entries: Sequence[Entry], commits: Sequence[str] = ()) -> list[Entry]:
    """By commits, oldest first: an old commit that is run again stands with its first run. Runs that git's list does
    not place go by the time of their commit's first run, those of a changed working tree by their own."""
    first: dict[str, str] = {}
    for entry in sorted(entries, key=lambda entry: (entry.at, entry.id)):
        first.setdefault(_name(entry), entry.at)
    listed = {commit: place for place, commit in enumerate(commits)}
    # A commit that git places before another one is no later than it, whenever it was run.
    latest = ""
    for commit in reversed(commits):
        if commit in first:
            latest = first[commit] = min(first[commit], latest) if latest else first[commit]
    return sorted(entries, key=lambda e: (first[_name(e)], listed.get(e.commit, -1), e.at, e.id))


def _name(entry: Entry) -> str:
    return entry.commit if entry.commit and not entry.dirty else f"{entry.commit}+{entry.id}"


def _measure(entry: Entry, key: SeriesKey) -> Measure | None:
    if (entry.check, entry.branch) != (key.check, key.branch):
        return None
    return next((m for m in entry.measures if (m.subject, m.metric) == (key.subject, key.metric)), None)


def _segments(environments: Sequence[int]) -> list[int]:
    """Counts up where the environment changes, back to an old one as well."""
    numbers: list[int] = []
    for place, group in enumerate(environments):
        changed = place > 0 and group != environments[place - 1]
        numbers.append((numbers[-1] if numbers else 0) + changed)
    return numbers


@dataclass(frozen=True, slots=True)
class _Placed:
    """What is expected of the run at one place of the series."""

    place: int
    outlier: bool
    level: float | None
    low: float | None
    high: float | None


class _Stretch:
    """The runs of one environment, with their levels. places: of its runs in the whole series."""

    def __init__(
        self, places: Sequence[int], runs: Sequence[tuple[Entry, Measure]], exact: bool, sensitivity: Sensitivity,
        borrowed: Logs,
    ) -> None:  # fmt: skip
        self.places = places
        self.entries = [entry for entry, _ in runs]
        self.logs: Logs = np.log([measure.value for _, measure in runs])
        errors = [standard_error(measure.samples, measure.spread) for _, measure in runs]
        self.detection = _counted(self.logs) if exact else detect(self.logs, errors, sensitivity, borrowed)
        self.starts = [0, *(shift.first for shift in self.detection.shifts)]

    def level(self, number: int) -> Logs:
        """The runs of one level."""
        return self.logs[self.starts[number] : [*self.starts[1:], len(self.logs)][number]]

    def residuals(self) -> Logs:
        """What its runs differ by themselves."""
        return about_levels(self.logs, self.starts)

    def points(self) -> list[_Placed]:
        noise = self.detection.noise
        placed = []
        for number, start in enumerate(self.starts):
            runs = self.level(number)
            level = level_of(runs)
            reach = critical(BAND, noise.freedom) * noise.sd if noise else None
            for run in range(start, start + len(runs)):
                bounds = (None, None, None) if reach is None else (level, level - reach, level + reach)
                shown = (None if bound is None else from_log(bound) for bound in bounds)
                placed.append(_Placed(self.places[run], run in self.detection.outliers, *shown))
        return placed


def _counted(logs: Logs) -> Detection:
    """Levels of what is counted: each another number."""
    firsts = np.flatnonzero(np.diff(logs) != 0) + 1
    shifts = tuple(
        Shift(int(first), int(first), int(first), float(logs[first] - logs[first - 1]), 0.0, 1, 1.0) for first in firsts
    )
    return Detection((), shifts, Noise(0.0, 0.0, 1, 0.0), frozenset())


def _within(stretches: Sequence[_Stretch], key: SeriesKey, commits: Sequence[str]) -> list[Change]:
    """Changes among runs of one environment: the commits'."""
    return [
        _change(
            key, stretch.entries[shift.earliest - 1], stretch.entries[shift.first - 1], stretch.entries[shift.first],
            stretch.entries[shift.latest], shift, (), commits,
        )
        for stretch in stretches for shift in stretch.detection.shifts
    ]  # fmt: skip


def _between(
    stretches: Sequence[_Stretch], key: SeriesKey, commits: Sequence[str], sensitivity: Sensitivity, exact: bool
) -> list[Change]:  # fmt: skip
    """Changes of level where an environment is first met."""
    changes = []
    for number, stretch in enumerate(stretches[1:], 1):
        earlier = [
            (place, other, run)
            for other in stretches[:number]
            for run, place in enumerate(other.places)
            if place < stretch.places[0]
        ]
        if not earlier:  # its runs stand before those of the environments that came first, in git's order
            continue
        _, other, run = max(earlier, key=lambda one: one[0])
        level = max(n for n, start in enumerate(other.starts) if start <= run)
        before = other.logs[other.starts[level] : run + 1]
        after = stretch.level(0)
        noise = other.detection.noise or stretch.detection.noise
        if noise is None or not len(before):
            continue
        own = stretch.detection.noise
        noise = own if own is not None and own.sd > noise.sd else noise
        test = compare(after, level_of(before, noise.sd), len(before), noise, sensitivity) if not exact else None
        ratio = float(after[0] - before[-1]) if test is None else test.log_ratio
        if not (test.told if test is not None else ratio):
            continue
        error = (noise.sd if len(after) > 1 else noise.tail_sd) * math.sqrt(1 / len(before) + 1 / len(after))
        shift = Shift(0, 0, 0, ratio, error, noise.freedom, 1 - (test.chance if test else 0.0), len(after) == 1)
        old, new = other.entries[run], stretch.entries[0]
        parts = tuple(differences(old.environment, new.environment).items())
        if parts:
            changes.append(_change(key, old, old, new, new, shift, parts, commits))
    return changes


def _change(
    key: SeriesKey, good: Entry, before: Entry, after: Entry, bad: Entry, shift: Shift,
    parts: Sequence[tuple[Cause, str]], commits: Sequence[str],
) -> Change:  # fmt: skip
    """good, bad: the last run that is surely of the old level and the first that is surely of the new one."""
    slower = shift.log_ratio > 0
    program: Cause = "regression" if slower else "improvement"
    moved = _name(before) != _name(after)
    causes = [cause for cause, _ in parts]
    reach = critical(BAND, shift.freedom) * shift.error
    low, mid, high = (from_log(shift.log_ratio + by) for by in (-reach, 0.0, reach))
    both = bool(causes) and moved
    return Change(
        key=key,
        before=good,
        after=after,
        ratio={"low": low, "mid": mid, "high": high},
        cause=causes[0] if causes else program if moved else "noise",
        confidence=min(1.0, max(0.0, shift.confidence)),
        because=because(before, after, mid, [text for _, text in parts], shift.lone, moved),
        commits_between=commits_between(good, bad, commits),
        also=tuple(causes[1:]),
        how_to_separate=HOW_TO_SEPARATE.format(commit=shlex.quote(before.commit)) if both and before.commit else "",
    )


def commits_between(good: Entry, bad: Entry, commits: Sequence[str] = ()) -> tuple[str, ...]:
    """After the good run's commit up to the bad one's, oldest first; without git's list the bad one alone."""
    if good.commit in commits and bad.commit in commits:
        between = commits[commits.index(good.commit) + 1 : commits.index(bad.commit) + 1]
        if between:
            return tuple(between)
    return (bad.commit,) if bad.commit and bad.commit != good.commit else ()
