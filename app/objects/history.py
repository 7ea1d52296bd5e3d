"""A check's history: runs as one file or the database keeps them, series and changes as they are answered."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.objects.common import Range, Versions

HistoryCause = Literal["regression", "improvement", "method", "hardware", "software", "noise"]


class HistoryEnvironment(TypedDict):
    """Where and how a run was measured. software: versions by name; method: what else changes times, in words."""

    device: str
    software: Versions
    method: str


class HistoryMeasure(TypedDict):
    """One value of a run. samples: measured within the run; spread: their relative standard deviation."""

    subject: str
    metric: str
    unit: str
    value: float
    samples: int
    spread: float | None


class HistoryEntry(TypedDict):
    """One run of a check, a line of the file. at: ISO 8601 in UTC; dirty: the working tree had other changes."""

    schema: NotRequired[Literal[1]]
    id: str
    check: str
    at: str
    commit: str
    branch: str
    environment: HistoryEnvironment
    measures: list[HistoryMeasure]
    parents: list[str]
    dirty: bool


class HistoryKey(TypedDict):
    """What a series is of."""

    check: str
    branch: str
    subject: str
    metric: str


class HistoryRun(TypedDict):
    """Which run, without what it measured."""

    id: str
    at: str
    commit: str
    dirty: bool
    environment: HistoryEnvironment


class HistoryPoint(TypedDict):
    """One run of a series. segment: a new one where the environment changed; level, low, high: what was expected."""

    run: HistoryRun
    value: float
    samples: int
    spread: float | None
    segment: int
    outlier: bool
    level: float | None
    low: float | None
    high: float | None


class HistoryChange(TypedDict):
    """A level that changed. ratio: after over before; less is better. also: what else of the environment changed then.

    how_to_separate: lines for a shell that tell the commit from the environment, "" where one of them alone changed.
    """

    key: HistoryKey
    before: HistoryRun
    after: HistoryRun
    ratio: Range
    cause: HistoryCause
    confidence: float
    because: str
    commits_between: list[str]
    also: list[HistoryCause]
    how_to_separate: str


class HistorySeries(TypedDict):
    """All runs of one series, oldest first, with the changes between them."""

    key: HistoryKey
    unit: str
    points: list[HistoryPoint]
    changes: list[HistoryChange]


class HistorySummary(TypedDict):
    """A series in a list. runs: how many there are. recent: its newest values, oldest first; newest: the last run.

    change: the newest of `recent` that is more than noise, null without one.
    """

    id: str
    key: HistoryKey
    unit: str
    runs: int
    recent: list[float]
    newest: HistoryRun
    change: HistoryChange | None


class HistoryList(TypedDict):
    """One page of series, the one whose run came last first."""

    items: list[HistorySummary]
    next: str | None


class HistoryBranch(TypedDict):
    """The same measure on a branch. id: of the series."""

    branch: str
    id: str


class HistoryDetail(HistorySeries):
    """A series of the store. runs: how many there are, on the device where one is asked for; `points` has the newest.

    checks: run -> id of its check, where that was made here and is here still. devices: of its runs; branches: where
    the same was measured.
    """

    id: str
    runs: int
    checks: dict[str, str]
    devices: list[str]
    branches: list[HistoryBranch]


class HistoryBadLine(TypedDict):
    """A line that is no run. number: from 1."""

    number: int
    problem: str


class HistoryAppended(TypedDict):
    """What became of runs that were sent. known: were here already; bad_lines: are none, and were left out.

    other_values: ids of those known whose values here are other ones, which stay.
    """

    added: int
    known: int
    other_values: list[str]
    bad_lines: list[HistoryBadLine]
