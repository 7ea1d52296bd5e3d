"""What the processes of a measurement say to each other: every question, answer and event, as it travels.

A message is one line of JSON over a socket (`processes.channel`). There are three conversations:

- parent and fork server: `Ready` once, then `Fork` -> `Forked`, and `Exited` whenever a child has ended;
- parent and child: `Question` -> `Answer` or `Failed`, and in between the child's `Waiting`, `Running`, `Note`,
  `TimingBegins`, `TimingEnds`;
- in them, by the child's module: the planner takes `MakePlan` -> `PlanAnswer`; a candidate's process takes `GetReady`
  (a hint), `Prepare` -> `Prepared`, `Warm` -> `Warmed`, `Round` -> `RoundTimes`, `Finish` -> `Finished`. What is asked
  of a landscape's process stands in `landscape.messages`, since its points do.

Who reads a message checks it against its type: candidates run in the children, and may write into their sockets. All
that is of another form raises msgspec.ValidationError, a ValueError. Times are in µs, sizes in bytes. No torch.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

import msgspec

from kernels.host import Host
from kernels.measure.model import USERS_KERNEL

MOST_SAMPLES = 4
"""Outputs of timed calls that a process keeps for the check after timing."""

ToldStatus: TypeAlias = Literal[
    "unsupported", "not_installed", "error", "fault", "out_of_memory", "mismatch", "not_run"
]  # fmt: skip
"""Statuses that a child may give itself; the rest of `model.STATUSES` is for the parent to say."""


REPLACED = "it replaced"
LEFT_RUNNING = "it left a thread running behind its call"
"""How the message of a candidate begins that was caught at this: told in its process, read in the parent."""


class Fork(msgspec.Struct, frozen=True):
    """To the fork server: a child that runs `module.main(channel)`. execute: as a fresh interpreter."""

    module: str
    env: dict[str, str]
    execute: bool


class ToldByServer(msgspec.Struct, frozen=True, tag_field="event"):
    """What the fork server tells: the event's name and its fields."""


class Ready(ToldByServer, frozen=True, tag="ready"):
    """Its imports are done."""

    pid: int


class Forked(ToldByServer, frozen=True, tag="forked"):
    """The child that was asked for."""

    pid: int


class Exited(ToldByServer, frozen=True, tag="exited"):
    """A child has ended. status: as waitpid has it."""

    pid: int
    status: int


ServerEvent: TypeAlias = Ready | Forked | Exited


def server_event(line: object) -> ServerEvent:
    """What the fork server said."""
    return cast(ServerEvent, msgspec.convert(line, ServerEvent))


class Question(msgspec.Struct, frozen=True):
    """To a child. id: its answer's too; None: a hint, which has no answer. request: one of those below."""

    id: int | None
    request: object


class ToldByChild(msgspec.Struct, frozen=True, tag_field="event"):
    """What a child tells: the event's name and its fields."""


class Waiting(ToldByChild, frozen=True, tag="waiting"):
    """It waits for the GPU: that time is not counted."""


class Running(ToldByChild, frozen=True, tag="running"):
    """It waits no more."""


class Note(ToldByChild, frozen=True, tag="note"):
    """What it does now, in words."""

    message: str


class TimingBegins(ToldByChild, frozen=True, tag="timing"):
    """The loop that the parent times as well begins."""


class TimingEnds(ToldByChild, frozen=True, tag="timed"):
    """That loop has ended."""


class Answer(ToldByChild, frozen=True, tag="answer"):
    """To the question of that id. result: of the type that belongs to the request."""

    id: int
    result: object


class Fault(msgspec.Struct, frozen=True):
    """Why there is no answer."""

    status: ToldStatus
    message: str


class Failed(ToldByChild, frozen=True, tag="failed"):
    """The question of that id has no answer."""

    id: int
    fault: Fault


ChildEvent: TypeAlias = Waiting | Running | Note | TimingBegins | TimingEnds | Answer | Failed


def child_event(line: object) -> ChildEvent:
    """What a child said."""
    return cast(ChildEvent, msgspec.convert(line, ChildEvent))


class Request(msgspec.Struct, frozen=True, tag_field="command"):
    """What a question asks for: the command's name and its fields."""


# --- the planner's


class MakePlan(Request, frozen=True, tag="plan"):
    """What there is to measure. registry: the module that knows the candidates; bindings: sizes by symbol."""

    region: str
    bindings: list[dict[str, int]]
    device: str | None
    registry: str
    host: Host


class Card(msgspec.Struct, frozen=True):
    """The GPU's own figures."""

    name: str
    index: int
    uuid: str
    memory_bytes: int
    free_bytes: int
    l2_bytes: float
    processors: int
    capability: str


class Offered(msgspec.Struct, frozen=True):
    """A candidate of the region, as `kernels.candidates.Candidate` has it."""

    name: str
    tool: str
    call: str
    note: str
    available: bool
    reason: str
    source: str
    on_request: bool
    untried: bool
    part: frozenset[str] | None = None


class BindingCost(msgspec.Struct, frozen=True):
    """What every implementation of the region needs at one binding, and what a check of one holds in memory.

    set_bytes: of one input set. outputs_bytes: of all outputs that are not inputs; with gradients these too, and those
    that come in from behind the region. renewed_bytes: what an input set takes beside itself while its contents are
    made anew.
    """

    bytes_touched: int
    flops: float
    matmul_dtype: str | None
    working_bytes: int
    set_bytes: int
    floor_us: float | None
    outputs_bytes: int = 0
    renewed_bytes: int = 0


class Planned(msgspec.Struct, frozen=True):
    """What there is to measure. device: None without a GPU; only then reduced, the region at sizes for the CPU.

    reduced_wide: the same with f32 where the text has bf16.
    """

    region: str
    device: Card | None
    software: dict[str, str]
    candidates: list[Offered]
    coverage: str
    bindings: list[BindingCost]
    reduced: str | None = None
    reduced_wide: str | None = None


class RegionFault(msgspec.Struct, frozen=True):
    """A RegionError."""

    message: str
    code: str
    line: int
    column: int
    end_column: int
    hint: str


class PlanAnswer(msgspec.Struct, frozen=True):
    """One of the two."""

    plan: Planned | None = None
    region_error: RegionFault | None = None


# --- a candidate's


class InRoom(msgspec.Struct, frozen=True):
    """An output's error by the room that roundings give it on these inputs (`candidate.room`).

    error: root mean square of each element's error over its own room; row: of the worst row; outlier: of the worst
    element. Of outputs that have steps, error is how many times as many elements are on another step as by chance.
    slope: what rounding by chance makes all of it too large or too small by, relative. outside: share of the
    elements that no rounding puts where they are, of outputs that have steps. held: of how many elements that is known,
    where others differ from the reference too; 0 where it is known of all that do.
    """

    error: float = 0.0
    row: float = 0.0
    outlier: float = 0.0
    slope: float = 0.0
    outside: float = 0.0
    held: int = 0


class Spread(msgspec.Struct, frozen=True):
    """How far two samples of a random output lie apart by chance, were clusters of it independent
    (`candidate.clusters`).

    clusters: how many there are along each of the output's axes. variances: of the differences of mean, standard
    deviation and share of zeros; errors: the standard error of each of the variances.
    """

    clusters: tuple[int, ...]
    variances: tuple[float, ...]
    errors: tuple[float, ...]


class OutputError(msgspec.Struct, frozen=True):
    """One output against its reference. kind: float, index, exact, random.

    error: ||out - ref|| / ||ref|| over elements finite in both (exact: share of differing elements);
    outlier: max |out - ref| / rms(ref); misfits: elements that are NaN or infinite in one and not in the other.
    statistics: for random outputs (mean, standard deviation, share of zeros) of out, then of the reference; spreads:
    how far those of both lie apart by chance, for each way to take elements together.
    row: error of the worst row, along the last dimension, 0 where there are none; slope: <out - ref, ref> / <ref, ref>.
    differ: of 8-bit floats, the share of elements that are not the reference rounded once. in_room: None where
    nothing asked for it, or it could not be had.
    """

    kind: str
    dtype: str
    elements: int
    error: float
    outlier: float
    misfits: int
    statistics: tuple[float, ...] = ()
    row: float = 0.0
    slope: float = 0.0
    differ: float = 0.0
    in_room: InRoom | None = None
    spreads: list[Spread] = []


class Case(msgspec.Struct, frozen=True):
    """One call's outputs held against the reference. distribution: of its inputs, in words.

    precision: the reference's; against: what is to be said of it, "" where it is float64. repeats: whether a second
    call on the same inputs gave the same bits; stale: errors of the outputs for other inputs. Both None where not
    looked at. kept: what is wrong of the outputs is, bit for bit, what an earlier call returned for other inputs.
    written: by the input's name, errors of what is left in those that the reference or the call writes into.
    """

    distribution: str
    precision: str
    outputs: list[OutputError]
    against: str = ""
    repeats: bool | None = None
    stale: list[OutputError] | None = None
    kept: bool = False
    written: dict[str, OutputError] = {}


class GetReady(Request, frozen=True, tag="get_ready"):
    """A hint, before it is known which candidate this will be: import a module, make the context on a device.

    workers: of torch.compile's pool, which has to be there before the context.
    """

    imports: str = ""
    device: str = ""
    workers: int = 0


class UserKernel(msgspec.Struct, frozen=True):
    """A function of the user's own file, which runs with his rights. path: absolute."""

    path: str
    function: str

    @property
    def candidate(self) -> str:
        """The candidate's name."""
        return f"{USERS_KERNEL}{self.function}"


class Shape(msgspec.Struct, frozen=True):
    """A region's text at one binding of its symbols."""

    region: str
    sizes: dict[str, int]


class Prepare(Request, frozen=True, kw_only=True, tag="prepare"):
    """Build the candidate for each task, call it once, check it.

    turn: the file whose lock is the turn on the GPU, None for none. memory_bytes: for this process's inputs and checks.
    compile_workers: of torch.compile's pool. crowded: not all candidates fit into memory at once, then each waits until
    free_bytes are free; roomy: their checks do. env: to set before anything else. kernel: where the candidate is the
    user's own; refilled: check it on new contents in memory that it was called on before, too.
    """

    candidate: str
    tasks: list[Shape]
    device: str
    seed: int
    turn: str | None
    memory_bytes: float
    l2_bytes: float
    compile_workers: int
    registry: str
    crowded: bool = False
    free_bytes: float = 0.0
    env: dict[str, str] = {}
    roomy: bool = False
    kernel: UserKernel | None = None
    refilled: bool = False


class PreparedTask(msgspec.Struct, frozen=True):
    """compile_s: of building and the first call. mutated: names of the inputs that it changes. peak_bytes: on a GPU.

    unable: what of the task Triton's interpreter cannot compute, for which there are no cases then; "" for nothing.
    """

    compile_s: float
    cases: list[Case]
    mutated: list[str]
    peak_bytes: int | None
    unable: str = ""


class Prepared(msgspec.Struct, frozen=True):
    """spent_s: seconds by what they went to. ablation: what came of launching nothing, "" where not tried.

    held_bytes: of the GPU, that this process keeps when it has given back all that it can.
    """

    tasks: list[PreparedTask]
    spent_s: dict[str, float]
    ablation: str = ""
    held_bytes: int = 0


class Warm(Request, frozen=True, tag="warm"):
    """Make the input sets, and run for that many ms of GPU time.

    sets_bytes: for the input sets of all tasks; None: as `Prepare` said of memory. in_turns: give all memory back
    behind every turn, and wait before it until turn_bytes are free. samples: copies of outputs of timed calls that may
    be kept.
    """

    ms: float
    sets_bytes: float | None = None
    in_turns: bool = False
    samples: int = MOST_SAMPLES
    turn_bytes: float = 0.0


class Warmed(msgspec.Struct, frozen=True):
    """Per task: what one call takes of a turn, and how many input sets it rotates over."""

    cold_us: list[float]
    sets: list[int]


class Round(Request, frozen=True, tag="round"):
    """One turn of the task of that number: so many untimed calls, cold calls, and as many of these back to back."""

    task: int
    calls: int
    warm_calls: int


class RoundTimes(msgspec.Struct, frozen=True):
    """times_us: device time of each cold call. wall_us, drain_us: as timing.BackToBack has them.

    fresh: numbers of the cold calls that were the first on their inputs' contents.
    """

    times_us: list[float]
    wall_us: float
    drain_us: float
    fresh: list[int]


class Finish(Request, frozen=True, tag="finish"):
    """Check outputs of timed calls. profile: ask the profiler too which kernels run."""

    profile: bool


class Finished(msgspec.Struct, frozen=True):
    """cases: per task, one or none. kernels: as the profiler names them; triton_kernels: as Triton launched them.

    recompiled: graphs that torch.compile compiled while it was timed.
    """

    cases: list[list[Case]]
    kernels: list[str]
    triton_kernels: list[str]
    ablation: str
    recompiled: int


CandidateRequest: TypeAlias = GetReady | Prepare | Warm | Round | Finish


def candidate_request(request: object) -> CandidateRequest:
    """What a candidate's process is asked."""
    return cast(CandidateRequest, msgspec.convert(request, CandidateRequest))
