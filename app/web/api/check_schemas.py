"""What /api/v1/checks takes and answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from app.web.api.request_schemas import Name, Request
from app.web.api.schemas import Answer, Error, Range

Text = Annotated[str, Field(min_length=1)]
Outcome = Literal["passed", "failed", "unmeasured"]


class CheckRequest(Request):
    """Traces and regions that are here, regions by text, and what is asserted of them, as in tritonworthy.toml."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "regions": ["x: bf16[8192, 4096]\ny = gelu(x) * 2\nreturn y\n"],
                "assertions": {"compile": {"level": "warn", "min_share": 0.05}, "triton": "error"},
            }
        }
    )

    traces: Annotated[list[Name], Field(default_factory=list, max_length=16)]
    region_ids: Annotated[list[Name], Field(default_factory=list, max_length=64)]
    regions: Annotated[list[Text], Field(default_factory=list, max_length=64)]
    baseline: Annotated[Name | None, Field(description="Id of a trace of the same step before the change.")] = None
    check: Annotated[dict[str, Any] | None, Field(description="name, validate, device, share_of_step, ...")] = None
    assertions: Annotated[
        dict[str, Any] | None,
        Field(description='Level by assertion: off, warn or error; or {"level": "error", "min_share": 0.05, ...}.'),
    ] = None


class CheckFinding(Answer):
    """An assertion that does not hold, at one place. Empty texts and nulls: not known, or none.

    source: as the trace's stacks tell it, "models/net.py:42 forward". new: whether the baseline has it not.
    fingerprints: `place` is the same whatever the times, the line and the shapes are; `region` knows the shapes.
    """

    assertion: str
    check: str
    level: Literal["warn", "error"]
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
    evidence: Literal["predicted", "recorded", "measured"] | None
    new: bool | None
    fingerprints: dict[str, str]


class Unmeasured(Answer):
    """An assertion that could not be judged, and why."""

    assertion: str
    level: Literal["warn", "error"]
    subject: str
    region: str
    reason: str


class AssertionRow(Answer):
    """What became of one assertion."""

    name: str
    check: str
    level: Literal["off", "warn", "error"]
    options: dict[str, Any]
    outcome: Literal["passed", "failed", "warned", "unmeasured", "off"]
    findings: int
    unmeasured: int


class Subject(Answer):
    """What was checked. id: of a trace or region that is kept here; error: why it could not be read."""

    name: str
    kind: Literal["trace", "region"]
    id: str | None
    device: str | None
    step_time_us: float | None
    regions: int
    error: str


class Baseline(Subject):
    """What it was checked against. step: of both, as `/compare.json` has it; verdict: of the comparison, in words."""

    step: dict[str, Any] | None
    verdict: str | None


class Counts(Answer):
    """Findings of each kind, also those beyond what a report lists."""

    errors: int
    warnings: int
    unmeasured: int


class CheckSummary(Answer):
    """A check without its findings; outcome, passed and exit_code are null until it is done."""

    id: str
    name: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    outcome: Outcome | None
    passed: bool | None
    exit_code: Literal[0, 1, 2] | None
    because: str
    counts: Counts
    error: Error | None
    created_at: str


class Found(Answer):
    """What a check that is done found, and in what."""

    errors: list[CheckFinding]
    warnings: list[CheckFinding]
    unmeasured: list[Unmeasured]
    assertions: list[AssertionRow]
    subjects: list[Subject]
    baseline: Baseline | None


class Check(Found, CheckSummary):
    """A check. exit_code: 0, 1 for an assertion of level error that does not hold, 2 for could not measure."""


class Report(Found):
    """`check.json`, as `tritonworthy check --format json` writes it: a check that is done, without its job."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    name: str
    outcome: Outcome
    passed: bool
    exit_code: Literal[0, 1, 2]
    because: str
    counts: Counts
    source_root: str
    software: dict[str, str]


class CheckList(Answer):
    """One page of checks, newest first."""

    items: list[CheckSummary]
    next: str | None
