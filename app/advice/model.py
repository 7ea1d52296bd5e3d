"""Advice as data: the tool, why, what else, and what it is worth. Field names are the API's; times in µs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from app.estimate.range import Range

Tool = Literal["skip", "library", "compile", "triton", "cuda"]

EFFORT_ORDER: tuple[Tool, ...] = ("skip", "library", "compile", "triton", "cuda")
"""Least effort first: the rule takes the first whose predicted time is near the best."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """One condition of the rule, shown whether it holds or not. holds is None where it could not be judged."""

    name: str  # stable, kebab-case; docs/rule.md has one section each
    holds: bool | None
    value: float | str | None
    threshold: float | str | None
    because: str
    source: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to run the region, with its predicted time and what it costs to get there."""

    tool: Tool
    candidate: str  # the Candidate's fixed name
    time_us: Range | None
    effort_lines: int
    note: str
    admitted: bool = True  # the rule lets it compete
    call: str = ""
    mode: str = ""
    excluded_by: str = ""  # why the rule does not let it compete, "" where it does


@dataclass(frozen=True, slots=True)
class Change:
    """What would change an advice: from `at` on, seen from `now`, the rule advises `tool`.

    criterion: the one that flips, or "estimate" where predicted times decide. of: which number moves, by name.
    """

    criterion: str
    of: str
    now: float | None
    at: float
    tool: Tool
    because: str


@dataclass(frozen=True, slots=True)
class WorthInstalling:
    """A library call that is predicted to win over what is advised, of a package that is not installed here.

    install: the command that gets it. speedup: predicted time as advised over its own.
    """

    candidate: str
    package: str
    install: str
    call: str
    time_us: Range
    speedup: Range | None


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about a region, and why."""

    tool: Tool
    mode: str
    headline: str
    action: str  # the exact next action, one sentence
    call: str  # code to paste; "" where there is none
    criteria: tuple[Criterion, ...]
    alternatives: tuple[Alternative, ...] = ()
    region_speedup: Range | None = None
    step_speedup: Range | None = None
    floor_us: float | None = None
    device: str = ""  # for which device the estimate is
    validation: dict[str, Any] | None = None
    notes: tuple[str, ...] = field(default=())
    would_change: tuple[Change, ...] = ()  # nearest first
    worth_installing: tuple[WorthInstalling, ...] = ()  # to try: the fastest first
    prediction: Literal["oracle", "rules"] | None = None  # whose kernels torch.compile's time is of
