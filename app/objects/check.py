"""Checks: assertions on traces and regions, their findings and verdict."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from app.objects.common import Error, Progress, Range, State, Versions
from app.objects.history import HistoryMeasure
from app.objects.trace import Action, ComparedStep

CheckEvidence = Literal["predicted", "recorded", "measured"]
CheckOutcome = Literal["passed", "failed", "unmeasured"]
Severity = Literal["off", "warn", "error"]
"""How much it matters that an assertion does not hold; one that is off is not judged."""


FiredSeverity = Literal["warn", "error"]


class Fingerprints(TypedDict):
    """`place` is the same whatever the times, the line and the shapes are; `region` knows the shapes."""

    place: str
    region: str


class CheckFinding(TypedDict):
    """An assertion that does not hold, at one place. Empty texts and nulls: not known, or none.

    source: as the trace's stacks tell it, "models/net.py:42 forward". new: whether the baseline has it not.
    """

    assertion: str
    check: str
    level: FiredSeverity
    subject: str
    message: str
    region: str
    region_id: str | None
    module: str
    source: str
    action: str
    call: str
    tool: str
    mode: str
    share_of_step: float | None
    time_us_per_step: float | None
    region_speedup: Range | None
    step_speedup: Range | None
    evidence: CheckEvidence | None
    new: bool | None
    fingerprints: Fingerprints


class Unmeasured(TypedDict):
    """An assertion that could not be judged, and why."""

    assertion: str
    level: FiredSeverity
    subject: str
    region: str
    reason: str


AssertionOutcome = Literal["passed", "failed", "warned", "unmeasured", "off"]


class AssertionRow(TypedDict):
    """What became of one assertion. options: those that are not as by default."""

    name: str
    check: str
    level: Severity
    options: dict[str, Any]
    outcome: AssertionOutcome
    findings: int
    unmeasured: int


class Subject(TypedDict):
    """What was checked. id: of a trace or region that is kept here; error: why it could not be read.

    kind: a kernel is the repository's own, of a check on the command line; a server takes none. actions: what to do
    about a trace's step, as the trace itself has them. measures, method: what a history keeps of it, and how a trace
    was recorded, as far as it tells; reports of before had neither.
    """

    name: str
    kind: Literal["trace", "region", "kernel"]
    id: str | None
    device: str | None
    step_time_us: float | None
    regions: int
    actions: list[Action]
    error: str
    measures: NotRequired[list[HistoryMeasure]]
    method: NotRequired[str]


class Baseline(Subject):
    """What it was checked against. step: of both, as `/compare.json` has it; verdict: of the comparison, in words."""

    step: ComparedStep | None
    verdict: str | None


class Counts(TypedDict):
    """Findings of each kind, also those beyond what a report lists."""

    errors: int
    warnings: int
    unmeasured: int


class Found(TypedDict):
    """What a check that is done found, and in what."""

    errors: list[CheckFinding]
    warnings: list[CheckFinding]
    unmeasured: list[Unmeasured]
    assertions: list[AssertionRow]
    subjects: list[Subject]
    baseline: Baseline | None


class Report(Found):
    """`check.json`, as `tritonworthy check --format json` writes it: a check that is done, without its job."""

    schema: Literal[1]
    name: str
    outcome: CheckOutcome
    passed: bool
    exit_code: Literal[0, 1, 2]
    because: str
    counts: Counts
    source_root: str
    software: Versions
    id: NotRequired[str]
    created_at: NotRequired[str]


class CheckSummary(TypedDict):
    """A check without its findings; outcome, passed and exit_code are null until it is done."""

    id: str
    name: str
    state: State
    progress: Progress | None
    outcome: CheckOutcome | None
    passed: bool | None
    exit_code: Literal[0, 1, 2] | None
    because: str
    counts: Counts
    error: Error | None
    created_at: str


class Check(CheckSummary, Found):
    """A check. exit_code: 0, 1 for an assertion of level error that does not hold, 2 for could not measure."""

    schema: NotRequired[Literal[1]]
    source_root: NotRequired[str]
    software: NotRequired[Versions]


class CheckList(TypedDict):
    """One page of checks, newest first."""

    items: list[CheckSummary]
    next: str | None
