"""What the API answers. Answers may grow; app.web.api.request_schemas has what it takes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """A body that the API answers with."""

    model_config = ConfigDict(extra="allow")


class Error(Answer):
    """Why a trace or a job failed."""

    code: str
    message: str
    remedy: str = ""


class ProblemBody(Answer):
    """RFC 9457 problem details; `code` is stable."""

    type: str
    title: str
    status: int
    code: str
    detail: str


class Range(Answer):
    """low <= mid <= high."""

    low: float
    mid: float
    high: float


class Criterion(Answer):
    """One condition of the rule; holds is null where it could not be judged."""

    name: str
    holds: bool | None
    value: float | str | None
    threshold: float | str | None
    because: str
    source: str


class Alternative(Answer):
    """One way to run the region."""

    tool: str
    time_us: Range | None
    effort_lines: int
    note: str


class Change(Answer):
    """From `at` on, seen from `now`, another tool is advised. of: which number moves, by name."""

    criterion: str
    of: str
    now: float | None
    at: float
    tool: str
    because: str


class Advice(Answer):
    """What to do about a region, and why."""

    tool: Literal["skip", "library", "compile", "triton", "cuda"]
    mode: str
    headline: str
    action: str
    call: str
    criteria: list[Criterion]
    alternatives: list[Alternative]
    region_speedup: Range | None
    step_speedup: Range | None
    floor_us: float | None
    validation: dict[str, Any] | None
    would_change: list[Change] = []


class OracleKernel(Answer):
    """One Triton kernel that Inductor would write. calls: launches in one call of the region."""

    name: str
    kind: str
    calls: int
    bytes_moved: int | None
    operations: list[str]
    source: str | None = None  # left out of lists
    stage: Literal["forward", "backward"]
    lines: list[int]


class OracleExtern(Answer):
    """A call that Inductor leaves to a library."""

    name: str
    calls: int
    stage: Literal["forward", "backward"]


class OracleReplaced(Answer):
    """What Inductor puts in the place of what was written."""

    name: str
    because: str


class OraclePrediction(Answer):
    """What torch.compile makes of the region in one mode. unavailable: why there is none; then the rest is empty."""

    device: str
    mode: str
    binding: dict[str, int]
    training: bool
    kernels: list[OracleKernel]
    externs: list[OracleExtern]
    replaced: list[OracleReplaced]
    assumed: list[str]
    symbolic: bool
    how: str
    torch: str
    triton: str
    took_s: float
    launches: int
    bytes_moved: int | None
    unavailable: str


class Finding(Answer):
    """One decision of the compiler, with the lines of the kernel's source that show it."""

    subject: str
    text: str
    lines: list[int]


class Machine(Answer):
    """A kernel compiled for one GPU. texts: ttir, ttgir, llir, ptx, sass. Null: the target's tools do not tell."""

    target: str
    kernel: str
    num_warps: int
    num_stages: int
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int
    occupancy: float | None
    lines: list[dict[str, Any]]
    matrix: list[dict[str, Any]]
    buffers: list[dict[str, Any]]
    texts: dict[str, str]


class Kernel(Answer):
    """One of Inductor's kernels, and what Triton's compiler decides about it for the region's GPU."""

    region_id: str
    key: str
    mode: str
    device: str
    arch: str
    kernel: OracleKernel
    machine: Machine
    findings: list[Finding]


class AdviceAnswer(Advice):
    """Advice, and for a region's text what the region object has beside it."""

    name: str | None = None
    text: str | None = None
    share_of_step: float | None = None
    shapes: list[Any] | None = None
    cost: dict[str, Any] | None = None
    oracle: list[OraclePrediction] | None = None
    archive: dict[str, Any] | None = None


class Region(Answer):
    """A part of a step, or a text that somebody wrote down, with its cost and advice: null until they are there."""

    id: str
    name: str
    text: str | None
    source: dict[str, Any] | None = None  # of a trace's: trace, module, line, ops
    missing: str = ""  # why there is no text
    key: str | None = None  # its name within its trace
    forward_of: str | None = None  # the key of the region whose gradient it computes
    streams: list[int] = []  # that its kernels run on
    calls_per_step: float | None = None
    time_us_per_step: float | None = None
    forward_time_us_per_step: float | None = None
    backward_time_us_per_step: float | None = None
    share_of_step: float | None = None
    shapes: list[Any]
    cost: dict[str, Any] | None
    oracle: list[OraclePrediction] = []
    notes: list[Any] = []  # why there is no advice, as a trace's notes are
    advice: Advice | dict[str, Any] | None  # null while it is still to come, or where advising on it failed
    validations: list[str]


class TraceSummary(Answer):
    """A trace without its regions. Figures are null until its parts are known, which is before it is ready."""

    id: str
    name: str
    status: Literal["reading", "ready", "failed"]
    events: int | None
    kernels: int | None
    profiler_steps: int | None
    steps: int | None
    step_time_us: float | None
    kernel_time_us: float | None
    gpu_busy_share: float | None
    linked_share: float | None
    device: str | None
    notes: list[Any]
    error: Error | None
    created_at: str


class Trace(TraceSummary):
    """A trace with its regions.

    While it is being read they are here as soon as its parts are known, `advice` and `cost` of each null until they
    have come; `gain` comes with the last. A region's id does not change.

    Their shares of the step and those of `rests` (copies, communication, kernels without an operation, the kinds of
    idle time) add up to 1.
    """

    regions: list[Region]
    rests: list[dict[str, Any]] = []
    dropped: int = 0
    step_source: Literal["profiler", "annotation", "repetition", "window"] | None = None
    step_times: dict[str, Any] | None = None
    step_parts: dict[str, Any] | None = None
    pace: dict[str, float] | None = None  # gpu_us, lead_us, launches: where the GPU sets the step's pace
    gain: dict[str, Any] | None = None  # all, top: step_time_us, speedup, saved_us (ranges), idle_us, advice; unknown[]
    critical: dict[str, Any] | None = None
    graphs: list[dict[str, Any]] = []
    backward_time_us: float | None = None
    paired_backward_share: float | None = None  # of it, what stands with its forward
    compile_obstacles: list[dict[str, Any]] = []
    rank: int | None = None
    group: str | None = None
    companions: dict[str, str] = {}  # what was read beside it: the name of each file, by its field
    # kernels[]: name, label, kind, time_us, calls_per_step, regions[]; modules[]: path, modules, time_us, regions[]
    where: dict[str, Any] | None = None
    # Of the median step, in µs from its start: streams[] and gaps as columns (app.trace_report.timeline).
    timeline: dict[str, Any] | None = None


class Ranks(Answer):
    """The ranks of one group by number; nulls and no ranks for fewer than two that are read."""

    ranks: list[dict[str, Any]]
    slowest: int | None
    spread: float | None
    waiting_share: float | None


class Validation(Answer):
    """The measured candidates and the outcome, null until it is done. ahead: see Job; null in lists."""

    id: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    region: str
    region_id: str | None
    outcome: Literal["confirmed", "overturned", "tie", "unmeasured"] | None
    reason: str
    device: str | None
    candidates: list[dict[str, Any]]
    best: str | None
    error: Error | None
    ahead: int | None = None


class Job(Answer):
    """A piece of work; its id is that of the trace, validation, landscape or check that it makes.

    ahead: how many jobs of its kind, for the same kind of GPU, are to be done before it; null unless it waits.
    """

    id: str
    kind: Literal["read", "validate", "landscape", "check"]
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: dict[str, Any] | None
    result: dict[str, Any] | None
    error: Error | None
    attempt: int
    ahead: int | None = None


class Since(Answer):
    """A validation held to the measurement before it. outcome: null where there is none, which `because` tells.

    before, after: tool, mode, headline, best, time_us of today's rule with either measurement. changed: what was
    upgraded between them. record: the id of the measurement before.
    """

    name: str
    record: str | None
    device: str | None
    action: Literal["validate", "unchanged", "no-record"]
    because: str
    changed: list[str]
    was: dict[str, str]
    now: dict[str, str]
    outcome: Literal["flipped", "kept", "unmeasured"] | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class TraceList(Answer):
    """One page of traces, newest first; `next` goes into `?after=`."""

    items: list[TraceSummary]
    next: str | None


class RegionList(Answer):
    """One page of written regions, newest first."""

    items: list[Region]
    next: str | None


class ValidationList(Answer):
    """One page of validations, newest first."""

    items: list[Validation]
    next: str | None


class Device(Answer):
    """What this host can measure on. fleet: the kinds that jobs may run on instead; null without a fleet."""

    gpu: str | None
    versions: dict[str, str]
    fleet: list[dict[str, Any]] | None = None


class Health(Answer):
    """The process answers."""

    status: Literal["ok"]


class Ready(Answer):
    """What the server can do. warnings: what waits although it is ready, in words."""

    status: Literal["ok", "degraded"]
    warnings: list[str]
    advice_warm: bool
