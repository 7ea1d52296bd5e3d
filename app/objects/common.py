"""What several objects are made of: ranges, intervals, errors, notes, bindings, states of jobs."""

from __future__ import annotations

from typing import Generic, Literal, NotRequired, TypeAlias, TypeVar

from typing_extensions import TypedDict

Binding: TypeAlias = dict[str, int]
"""The size of each symbol of a region; {} where nothing varies."""

Versions: TypeAlias = dict[str, str]
"""Version by name: python, torch, triton, cuda, hip, driver, tritonworthy, and of packages."""

State = Literal["queued", "running", "done", "failed", "cancelled"]
"""Of a job, and of what it makes."""

Level = Literal["info", "warning", "error"]
"""How much a note matters."""


Item = TypeVar("Item")


class Page(TypedDict, Generic[Item]):
    """One page of a list, newest first; `next` goes into `?after=`, null on the last page."""

    items: list[Item]
    next: str | None


class Range(TypedDict):
    """low <= mid <= high."""

    low: float
    mid: float
    high: float


class Interval(TypedDict):
    """A measured median with the bounds of its bootstrap interval."""

    median: float
    low: float
    high: float


class Error(TypedDict):
    """Why a trace or a job failed. line, column, end_column: in a region's text, from 1.

    shown: the place in the text, with a caret under it.
    """

    code: str
    message: str
    remedy: NotRequired[str]
    line: NotRequired[int | None]
    column: NotRequired[int | None]
    end_column: NotRequired[int | None]
    hint: NotRequired[str]
    shown: NotRequired[str]


class Problem(TypedDict):
    """Errors as the API answers with them: RFC 9457 problem details; `code` is stable."""

    type: str
    title: str
    status: int
    code: str
    detail: str


class Note(TypedDict):
    """A remark on a trace or a region, with what to do about it."""

    code: str
    level: Level
    message: str
    remedy: str


class Progress(TypedDict):
    """Where a job is: fraction 0 to 1, null where nobody knows; candidate: what is being measured."""

    phase: str
    candidate: str
    fraction: float | None
    message: str
