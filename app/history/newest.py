"""Whether the newest run of a history shows a change: what a check asks. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.history.changes import EXACT_UNITS, series_of
from app.history.environments import groups
from app.history.model import Change, Entry, Measure, SeriesKey
from app.history.shifts import Sensitivity

SAME_RUNS = 3
"""A change that begins so many runs from where it began a run ago is that one."""


@dataclass(frozen=True, slots=True)
class Newest:
    """What the newest run says of one measure. change: one that this run, or another of its commit, made known.

    lacks: why nothing can be said; "" where something can.
    """

    measure: Measure
    change: Change | None
    lacks: str = ""


def judge_newest(
    earlier: Sequence[Entry], newest: Entry, sensitivity: Sensitivity, commits: Sequence[str] = (), base: str = ""
) -> list[Newest]:
    """Each measure of a run against the runs before it, of its branch or, for one that is to be merged, of its base.

    A change is told at the run that makes it known and at others of that run's commit. Later commits stand on it: the
    series keeps it, and their checks pass.
    """
    branch = base or newest.branch
    of_branch = [e for e in earlier if e.branch == branch and e.check == newest.check and not _is_same(e, newest)]
    run = replace(newest, branch=branch)
    return [_judge(of_branch, run, measure, sensitivity, commits) for measure in newest.measures]


def _is_same(earlier: Entry, newest: Entry) -> bool:
    """Whether it is the same measurement, judged again: its own run, maybe with what contracts counted besides."""
    alike = (earlier.commit, earlier.environment) == (newest.commit, newest.environment)
    return earlier.id == newest.id or (alike and set(newest.measures) <= set(earlier.measures))


def in_series(entries: Sequence[Entry], check: str, branch: str, base: str = "") -> list[Entry]:
    """The runs of a branch; with a base those of both, all as the base's, which a branch to be merged continues."""
    taken = (branch, base) if base else (branch,)
    return [replace(e, branch=base or branch) for e in entries if e.check == check and e.branch in taken]


def _judge(
    earlier: Sequence[Entry], newest: Entry, measure: Measure, sensitivity: Sensitivity, commits: Sequence[str]
) -> Newest:  # fmt: skip
    key = SeriesKey(newest.check, newest.branch, measure.subject, measure.metric)
    having = [e for e in earlier if any((m.subject, m.metric) == (key.subject, key.metric) for m in e.measures)]
    series = series_of(key, [*having, newest], sensitivity, commits)
    # Looking for changes is all that takes long: without one there is none that the runs before could have had.
    before = series_of(key, having, sensitivity, commits).changes if series.changes else ()
    fresh = [change for change in series.changes if _is_fresh(change, newest, [*having, newest], before)]
    change = fresh[-1] if fresh else None
    if change is not None or not having:
        return Newest(measure, change, "" if having else "the history has no run of it yet")
    numbers = groups([e.environment for e in having] + [newest.environment])
    count = numbers[:-1].count(numbers[-1])
    least = 1 if measure.unit in EXACT_UNITS else sensitivity.min_runs
    if count < least:
        runs = "1 earlier run" if count == 1 else f"{count} earlier runs"
        return Newest(measure, None, f"the history has {runs} in this environment of the {least} needed")
    return Newest(measure, None)


def _is_fresh(change: Change, newest: Entry, runs: Sequence[Entry], before: Sequence[Change]) -> bool:
    if change.after.id == newest.id or (newest.commit and change.after.commit == newest.commit):
        return True
    place = {entry.id: number for number, entry in enumerate(runs)}
    return not any(
        abs(place[change.after.id] - place[old.after.id]) <= SAME_RUNS
        and (change.ratio["mid"] > 1) == (old.ratio["mid"] > 1)
        for old in before
    )
