"""Measured candidates of a region, their outcome, and under which conditions they were measured."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.objects.common import Binding, Interval, Versions

Outcome = Literal["confirmed", "overturned", "tie", "unmeasured"]
Status = Literal[
    "ok", "correct", "mismatch", "unsupported", "not_installed", "error", "fault", "timeout", "out_of_memory",
    "bad_output", "impossible", "cancelled", "not_run",
]  # fmt: skip
"""What became of a candidate; kernels.measure.model.STATUSES says what each means."""

CandidateTool = Literal["eager", "library", "compile", "triton", "cuda"]
Match = Literal["same", "other-layout", "other-sizes"]
"""How alike a record's program and a region are."""


class CandidateShape(TypedDict):
    """One candidate at one binding. Ratios: its time over the other's, under 1 is faster. share_of_limit: floor / time.

    error_vs_eager: error against float64 over eager's own, or over what roundings explain where that is more. time_us:
    device time of one call; wall_us: host time of one of many calls in a row.
    """

    binding: Binding
    calls: float
    error_vs_eager: float | None
    time_us: Interval | None
    wall_us: float | None
    ratio_to_eager: Interval | None
    ratio_to_best_other: Interval | None
    share_of_limit: float | None
    peak_bytes: int | None


class Candidate(TypedDict):
    """What became of one candidate; figures are those of its shapes, weighted by their calls.

    call: what the user writes. compile_s: seconds of the first call. kernels: names of those that one call launches.
    source: of a generated kernel.
    """

    name: str
    tool: CandidateTool
    status: Status
    message: str
    call: str
    error_vs_eager: float | None
    time_us: Interval | None
    wall_us: float | None
    ratio_to_eager: Interval | None
    ratio_to_best_other: Interval | None
    share_of_limit: float | None
    peak_bytes: int | None
    compile_s: float | None
    kernels: list[str]
    shapes: list[CandidateShape]
    source: str


class Reading(TypedDict, total=False):
    """What the GPU said of itself; a figure that it does not tell is left out. rounds: after how many it was read."""

    rounds: int
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    sm_clock_max_mhz: float | None
    temperature_c: float | None
    power_w: float | None
    power_limit_w: float | None
    memory_used_mib: float | None
    throttle: list[str]
    other_processes: int | None


class MeasuredGpu(TypedDict, total=False):
    """The GPU that was measured on. free_bytes: of its memory, when measuring began."""

    name: str
    index: int
    uuid: str
    memory_bytes: int
    free_bytes: int
    l2_bytes: float
    processors: int
    capability: str


class Conditions(TypedDict, total=False):
    """Under which conditions was measured. prepare_s: seconds by candidate and by what they were spent on.

    decided_by: "device time" or "wall time". unlocked: why other validations were not kept off the GPU.
    """

    phases_s: dict[str, float]
    before: Reading
    after: Reading
    during: list[Reading]
    rounds: int
    order_seed: int
    decided_by: str
    launch_bound: bool | None
    warnings: list[str]
    device: MeasuredGpu | None
    prepare_s: dict[str, dict[str, float]]
    unlocked: str


class Figures(TypedDict):
    """The measured candidates of a region and the outcome, null until it is done.

    region: its text. best: the fastest correct candidate. date: the day of the measurement. coverage: which library
    call covers the region.
    """

    outcome: Outcome | None
    reason: str
    region: str
    candidates: list[Candidate]
    device: str | None
    software: Versions
    conditions: Conditions
    best: str | None
    floor_us: float | None
    date: str
    coverage: str


class Archived(TypedDict):
    """Where a record is from: `file` of the archive, or `here`, measured by this server. match: with what was asked.

    id: of the record that an advice was issued again with.
    """

    id: NotRequired[str]
    file: NotRequired[str]
    here: NotRequired[bool]
    match: NotRequired[Match]


class Evidence(Figures):
    """The measurement that an advice was issued again with: a validation without advice. id: of the validation."""

    id: NotRequired[str]
    archived: NotRequired[Archived]
