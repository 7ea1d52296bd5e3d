"""An answer for a coding agent: short JSON of what to do, what to leave, and how to prove it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from typing_extensions import TypedDict

from app.objects.common import Interval, Range
from app.objects.cost import Bound
from app.objects.evidence import Outcome, Status
from app.objects.kernel_verdict import Verdict
from app.objects.trace import ActionTool


class BriefStep(TypedDict):
    """The step now, and after everything in `do` that is followed together; null where no time is predicted."""

    time_us: float
    after_us: Range | None
    gpu_idle_share: float | None
    launches: float | None


class BriefCall(TypedDict):
    """One call of a region: as written, as advised, and the least time that the device allows. Null without sizes."""

    now_us: Range | None
    advised_us: Range | None
    floor_us: float | None
    bound: Bound | None


class BriefEdit(TypedDict):
    """An edit. file, line, module: where, as the trace's stacks tell it, "" and null where they do not; line is the
    first one of the function. before: what the code computes, in the region language; after: what to write instead.
    Each is whole, or "" where it is not known or too long."""

    file: str
    line: int | None
    module: str
    before: str
    after: str


class BriefAction(TypedDict):
    """One thing to do. rank: from 1. saves_us: of a step, or of one call of a region's text; by itself.

    instead_of: the rank of the action that it stands in the place of. region: its number for `validate --region`.
    """

    rank: int
    title: str
    tool: ActionTool
    saves_us: Range | None
    evidence: str
    because: str
    edit: BriefEdit
    numerics: str
    instead_of: int | None
    region: int | None


class BriefLeave(TypedDict):
    """What not to write, and why. share_of_step: of all that it is about."""

    what: str
    share_of_step: float | None
    because: str


class BriefProof(TypedDict):
    """A command, and what it proves."""

    proves: str
    command: str


class BriefLeftOut(TypedDict):
    """How much is not told for want of room: entries of each list, and halves of edits."""

    do: int
    do_not: int
    warnings: int
    edits: int


class Brief(TypedDict):
    """Advice on a trace, on a module whose step was predicted and not recorded, or on a region's text, at most 1,500
    tokens long. more: the command that prints all of it."""

    of: Literal["trace", "module", "region"]
    name: str
    device: str
    step: BriefStep | None
    call: BriefCall | None
    bottleneck: str
    do: list[BriefAction]
    do_not: list[BriefLeave]
    verify: list[BriefProof]
    warnings: list[str]
    left_out: BriefLeftOut
    more: str


class BriefCandidate(TypedDict):
    """One way to run a region, as measured. error_vs_eager: its error against float64 over eager's own."""

    name: str
    status: Status
    time_us: Interval | None
    ratio_to_eager: Interval | None
    error_vs_eager: float | None
    message: str


class BriefVerdict(TypedDict):
    """Whether to keep the kernel that was given."""

    verdict: Verdict
    because: str
    against: str | None
    speedup: Interval | None


class BriefValidation(TypedDict):
    """A validation: the fastest candidates first, then those without a time. advice: after measuring."""

    of: Literal["validation"]
    name: str
    device: str | None
    outcome: Outcome | None
    because: str
    best: str | None
    floor_us: float | None
    kernel: BriefVerdict | None
    candidates: list[BriefCandidate]
    advice: str
    warnings: list[str]
    left_out: int


class KernelRoof(TypedDict):
    """The roofline of a region at the sizes that move most: one call. of_floor: its time over the least possible.

    bytes_moved: as written; bytes_least: with everything fused. intensity: FLOPs a byte of these; ridge: from which the
    device computes longer than it copies, null where nothing is multiplied.
    """

    bound: Bound
    bytes_moved: int
    bytes_least: int
    flops: int
    intensity: float
    ridge: float | None
    floor_us: float
    time_us: float | None
    of_floor: float | None


class KernelRegion(TypedDict):
    """A region that launches the kernel. number: for `validate --region`. advice: its headline; action: what to do."""

    number: int
    name: str
    module: str
    file: str
    line: int | None
    share_of_step: float | None
    kernels_per_call: float | None
    roof: KernelRoof | None
    advice: str
    action: str
    code: str


class KernelExplained(TypedDict):
    """What one kernel of a trace is: its name in words, its time, the regions that launch it, and what to do.

    time_us: of a step. others: more kernels that the name fits, by time, as `explain_kernel` takes them.
    """

    of: Literal["kernel"]
    name: str
    label: str
    kind: str
    in_words: str
    time_us: float
    calls_per_step: float
    time_us_per_call: float
    share_of_kernel_time: float | None
    regions: list[KernelRegion]
    verify: list[BriefProof]
    others: list[str]
    left_out: int


AnyBrief: TypeAlias = Brief | BriefValidation | KernelExplained
