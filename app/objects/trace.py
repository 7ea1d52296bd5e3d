"""A trace: one recorded file, its step, its regions, and what following their advice gains."""

from __future__ import annotations

from typing import Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from app.objects.common import Error, Note, Range
from app.objects.obstacle import Obstacle
from app.objects.region import Region, RegionBody, SlimRegion, StoredInputs

StepSource = Literal["profiler", "annotation", "repetition", "window"]


StepOf = Literal["one", "median", "mean", "covered"]


class StepTimes(TypedDict):
    """Times of the recorded steps. low, high: of the middle half; left_out: steps that are not counted.

    of: which step every other figure of the trace is of: the only one; the median, where the steps are even in number
    the mean of the two in the middle; the mean of steps whose sizes differ; or the one that an execution trace has.
    steps: how many they are the mean of.
    """

    count: int
    left_out: int
    median_us: float
    low_us: float
    high_us: float
    shortest_us: float
    longest_us: float
    of: NotRequired[StepOf]
    steps: NotRequired[int]


class StepParts(TypedDict):
    """What a step's wall time is made of. idle_us: the sum of the four kinds of idle time."""

    wall_us: float
    kernels_us: float
    communication_us: float
    copies_us: float
    idle_launch_us: float
    idle_host_us: float
    idle_communication_us: float
    idle_device_us: float
    idle_us: float
    idle_share: float | None


class Critical(TypedDict):
    """What most of the step waits for, and for which share of it."""

    resource: str
    share: float
    because: str


class Graph(TypedDict):
    """A CUDA or HIP graph that is replayed in the step, and the share of its kernels' time without an operation."""

    name: str
    replays_per_step: float
    kernels_per_replay: int
    time_us_per_replay: float
    share_of_kernel_time: float
    hidden_share: float
    kernel_names: list[str]
    remedy: str


class Rest(TypedDict):
    """A part of the step that is no region: copies, communication, kernels without an operation, idle time."""

    name: str
    kind: Literal["copies", "kernels", "idle"]
    time_us: float
    kernels: int
    remedy: str
    share_of_step: float


class Pace(TypedDict):
    """How long the GPU sets the step's pace, how long it then lags behind the host, and launches in the step, those
    too that torch.compile's code makes, libraries' kernels included. optimizer_us: what the host takes for the
    optimizer's step, without waiting for the GPU, where the trace has its annotation."""

    gpu_us: float
    lead_us: float
    launches: float
    compiled_launches: NotRequired[float]
    optimizer_us: NotRequired[float]


class KernelRow(TypedDict):
    """Kernels of one name, or where `name` is "" the smaller ones of one kind. regions: places in the trace's list."""

    name: str
    label: str
    kind: str
    time_us: float
    calls_per_step: float
    regions: list[int]
    names: NotRequired[int]


class ModuleRow(TypedDict):
    """Modules of one class. regions: [place in the trace's list, µs] each."""

    path: str
    modules: int
    time_us: float
    regions: list[list[float]]


class Breakdown(TypedDict):
    """Where the step's kernel time goes, by kernel and by module."""

    kernels: list[KernelRow]
    modules: list[ModuleRow]


class TimelineStream(TypedDict):
    """One stream's spans as columns, in order of time. region: a place in the trace's list; -1 copies, -2 no region,
    -3 other steps. name: a place in the timeline's names; -1 for none. stream: null for all beyond the busiest."""

    stream: int | None
    device: int
    start_us: list[float]
    length_us: list[float]
    busy_us: list[float]
    region: list[int]
    kernels: list[int]
    name: list[int]


class TimelineGaps(TypedDict):
    """The step's gaps as columns. gaps: how many are drawn as one, idle_us: without the work between them."""

    start_us: list[float]
    length_us: list[float]
    idle_us: list[float]
    cause: list[str]
    gaps: list[int]


class Timeline(TypedDict):
    """Of the measured steps the one nearest to the median, along time, in µs from its start."""

    step: str
    wall_us: float
    streams: list[TimelineStream]
    gaps: TimelineGaps
    names: list[str]


class CallTree(TypedDict):
    """Kernel time of one step by path, as columns: a node's `parent` stands before it, -1 for none. The nodes with most
    time are kept. name: a place in `names`, which are classes of modules, or functions as "file.py:12 name", where 12
    is the first line of it. region: of a leaf, a place in the trace's list, -2 for no region; null for a module or a
    function. time_us, kernels: of the node with all below it, in a step."""

    names: list[str]
    parent: list[int]
    name: list[int]
    region: list[int | None]
    time_us: list[float]
    kernels: list[float]


class SourceCalls(TypedDict):
    """What the functions of the stacks call, as columns: the calls with most time. A recorded frame names the first
    line of its function; by these calls its text tells the lines.

    function: a place in `functions`, which are as in the tree. callee: a place in `callees`, each the names by which
    the text may have it, the likeliest first: "module Linear" for an `nn.Module` of that class, "aten::mul" for an
    operation, else a function. turn, turns: which of how many such calls of one call of the function it is, the first
    is 0. own: launched by the function itself and not by another one of the stacks. region: as in the tree, else of
    what is not its own that with most time."""

    functions: list[str]
    callees: list[list[str]]
    function: list[int]
    callee: list[int]
    turn: list[int]
    turns: list[int]
    own: list[bool]
    region: list[int]
    time_us: list[float]


class SourceShare(TypedDict):
    """Kernel time of one step by what stacks tell of who launched it: a line, a function by its first line, nothing."""

    line_us: float
    function_us: float
    none_us: float


class CallTrees(TypedDict):
    """By modules and by Python functions; null where the trace recorded none. lines: whether the lines of functions are
    their first ones or those of the calls, as from an operation's `Call stack`; calls: null where they are the calls'.

    Work of a region that has no path, as a backward kernel's, is spread over the region's paths by their time."""

    modules: CallTree | None
    functions: CallTree | None
    lines: NotRequired[Literal["first", "call"]]
    calls: NotRequired[SourceCalls | None]
    told: NotRequired[SourceShare]


HostKind = Literal[
    "loader", "capturing", "start_up", "compiling", "sync", "library", "cpu", "inputs", "ending", "python"
]

ActionTool = Literal["compile", "library", "triton", "cuda", "precision", "layout", "host", "communication", "record"]
"""What is reached for: a tool for code, what the whole step is run with, or another recording of it."""


class ActionWhere(TypedDict):
    """Where in the user's code; what is not known is "" or null."""

    module: str
    file: str
    line: int | None


class ActionEvidence(TypedDict):
    """How the saving is known. bound: only that it lies between nothing and the whole of a recorded wait; its middle is
    half of it."""

    kind: Literal["measured", "predicted", "observed", "bound"]
    text: str


PhaseKind = Literal["prefill", "decode", "mixed"]


class Phase(TypedDict):
    """What a serving engine's step does: prefill (whole prompts), decode (one token a sequence), or both in one step.
    told_by: annotations of the engine, or the shapes of attention's calls. decode_share: of the calls that tell, those
    with one token a sequence; null where annotations tell."""

    kind: PhaseKind
    told_by: Literal["annotations", "shapes"]
    decode_share: float | None


class Action(TypedDict):
    """One thing to do about the step. region: its key, where it is about one; regions: keys of all that it is about.
    phase: of a serving engine's step which it is about: now, floor and prediction are of it alone, of "mixed" both
    kinds together.

    saves_us, step_time_us: of it alone, null where no time is predicted. adds_us: what it adds to the actions before it
    that are followed together; these add up to what `gain.all` saves. Null for what is not among them: instead_of then
    names the action that it stands in the place of, or is "". parts_us: how adds_us falls on `regions`, what launches
    outside of them and the host itself take less being none of theirs; [] where it is null. numerics: what changes in
    results, "" for nothing.
    """

    id: str
    scope: Literal["step", "region"]
    region: str | None
    tool: ActionTool
    mode: str
    title: str
    call: str
    where: ActionWhere | None
    saves_us: Range | None
    step_time_us: Range | None
    adds_us: float | None
    evidence: ActionEvidence
    because: str
    numerics: str
    regions: list[str | None]
    parts_us: list[float]
    instead_of: str
    phase: NotRequired[PhaseKind]


class GainTotal(TypedDict):
    """The step once this advice is followed. idle_us: of the middle of step_time_us. advice: names."""

    step_time_us: Range
    speedup: Range
    saved_us: Range
    idle_us: float
    advice: list[str]


class GainEach(TypedDict):
    """One action followed alone. regions: keys of those that it is about."""

    advice: str
    regions: list[str | None]
    saved_us: Range


class GainUnknown(TypedDict):
    """Something that the trace cannot tell about the step after following the advice, and how much time it is about."""

    code: str
    text: str
    time_us: float


class Gain(TypedDict):
    """What following the advice gains: all of it, and the few pieces (`top`) that save most; null without a predicted
    time."""

    all: GainTotal | None
    top: GainTotal | None
    each: list[GainEach]
    unknown: list[GainUnknown]


class HostTime(TypedDict):
    """What the host does in a step while the GPU is idle because of it: µs of a step, and of the longest pause.

    kind: loader (a DataLoader), capturing (a graph is recorded), start_up (CUDA, a library or a module is loaded),
    compiling, sync (a call that waits), library (inside an operation that runs on the GPU), cpu (inside one that
    does not), inputs (Python, then a copy to the GPU), ending (after the trace's last operation), python. name: the
    operation or annotation, following: the operation that comes next; "" for none. other_steps: the step that is shown
    has none of it, and the time is the mean over all recorded steps.
    """

    kind: HostKind
    name: str
    time_us: float
    longest_us: float
    following: str
    module: str
    other_steps: bool


class Serving(TypedDict):
    """What a step's attention works on at a time, else its products; told by their shapes. kind: decode where most
    calls have one token of each sequence, else prefill, as of an encoder that reads whole sequences; tokens: of each
    sequence, in the middle of the calls; single_share: of the calls, those with one."""

    kind: Literal["prefill", "decode"]
    tokens: int
    single_share: float


class Gap(TypedDict):
    """What the record of a program assumes or says nothing of, and the line that it is about. ends: nothing behind it
    was recorded."""

    what: str
    where: str
    ends: bool


class Origin(TypedDict):
    """Of a trace that was predicted from a module and that nobody recorded: all its times are predictions.

    known_share: of its kernels' time, what the device's atlas has points for.
    """

    kind: Literal["module"]
    name: str
    device: str
    training: bool
    parameters: int
    weights_bytes: int
    known_share: float
    gaps: list[Gap]


class TraceFigures(TypedDict):
    """What a trace says apart from its regions. The figures that may be null are so until its parts are known.

    device: as the trace names it; estimates_for: the device of the table that advice is for. backward_time_us: of the
    step; paired_backward_share: what of it stands with its forward. rests: with the regions' shares theirs add up to 1.
    companions: what was read with it: the name of each file, by its field. group: shared by the ranks of one job.
    host_times: what the host does while the GPU waits for it, the longest first. compute_capability: of an NVIDIA GPU.
    serving: of a step without a backward pass; null where no shape tells.
    origin: of what is predicted from a module; null for a recorded trace. with_modules: recorded with_modules=True.
    profiler_slows: by how many times recording is taken to have slowed the host; unprofiled_us: what the step then
    takes without it, from which actions save. phase: of a serving engine's step; null for what is none.
    """

    name: str
    events: int | None
    kernels: int | None
    profiler_steps: int | None
    steps: int | None
    step_time_us: float | None
    kernel_time_us: float | None
    gpu_busy_share: float | None
    linked_share: float | None
    device: str | None
    notes: list[Note]
    dropped: NotRequired[int]
    step_source: NotRequired[StepSource]
    step_times: NotRequired[StepTimes | None]
    step_parts: NotRequired[StepParts | None]
    critical: NotRequired[Critical | None]
    has_shapes: NotRequired[bool]
    has_stacks: NotRequired[bool]
    with_modules: NotRequired[bool]
    profiler_slows: NotRequired[Range | None]
    unprofiled_us: NotRequired[float | None]
    truncated: NotRequired[bool]
    estimates_for: NotRequired[str]
    rank: NotRequired[int | None]
    graphs: NotRequired[list[Graph]]
    rests: NotRequired[list[Rest]]
    backward_time_us: NotRequired[float]
    serving: NotRequired[Serving | None]
    phase: NotRequired[Phase | None]
    paired_backward_share: NotRequired[float | None]
    compile_obstacles: NotRequired[list[Obstacle]]
    pace: NotRequired[Pace | None]
    host_times: NotRequired[list[HostTime]]
    compute_capability: NotRequired[str | None]
    group: NotRequired[str | None]
    companions: NotRequired[dict[str, str]]
    where: NotRequired[Breakdown | None]
    timeline: NotRequired[Timeline | None]
    call_trees: NotRequired[CallTrees | None]
    origin: NotRequired[Origin | None]


class OracleProgress(TypedDict):
    """How far Inductor has been asked about the regions of a trace, those of one text together, the heaviest first.

    asked: how many it is asked about in all; answered, failed: of these, so far; failed are those that it has no answer
    for, whose advice stays by the fusion rules. of_time: the share of the regions' time that the asked ones take. done:
    nothing more comes.
    """

    asked: int
    answered: int
    failed: int
    of_time: float
    done: bool


class AskedRegion(TypedDict):
    """Of a region what decides whether Inductor is asked about it. unavailable: None while it was not asked, "" where
    it has answered, else why it has not. advised: there is advice, by whatever prediction."""

    text: str
    time_us: float | None
    advised: bool
    unavailable: str | None


class TraceBody(TraceFigures):
    """A trace as it is built. advice_inputs: of each of its regions, for the store alone."""

    regions: list[RegionBody]
    advice_inputs: NotRequired[list[StoredInputs]]
    gain: NotRequired[Gain | None]
    actions: NotRequired[list[Action]]
    oracle: NotRequired[OracleProgress | None]


class TraceSummary(TraceFigures):
    """A trace without its regions. Figures are null until its parts are known, which is before it is ready.

    bytes, sha256: of the file as it was sent. job: the id of the job that reads it.
    """

    id: str
    status: Literal["reading", "ready", "failed"]
    created_at: str
    bytes: int
    sha256: str
    error: Error | None
    job: str


class Trace(TraceSummary):
    """A trace with its regions.

    While it is being read they are here as soon as its parts are known, `advice` and `cost` of each null until they
    have come; `gain` and `actions` come with the last. A region's id does not change.

    actions: everything to do about the step, what saves most of it first: options for the whole of it and the regions'
    advice in one list, of which those with `adds_us` are followed together.

    Their shares of the step and those of `rests` (copies, communication, kernels without an operation, the kinds of
    idle time) add up to 1.

    oracle: how far Inductor has been asked about the regions, which begins when all have their advice by the fusion
    rules: one region's advice after the other is issued again with its kernels. Null before that, and where nobody is
    asked. What Inductor writes is without its source here, which the region has.
    """

    regions: list[Region]
    gain: Gain | None
    actions: list[Action]
    oracle: OracleProgress | None


class SlimTrace(TypedDict, total=False):
    """Of a trace what assertions and comparisons look at; of a region by itself, `device` and `regions`."""

    id: str
    name: str
    device: str | None
    origin: Origin | None
    step_time_us: float | None
    unprofiled_us: float | None
    step_times: StepTimes | None
    step_parts: StepParts | None
    rests: list[Rest]
    compile_obstacles: list[Obstacle]
    actions: list[Action]
    backward_time_us: float
    regions: list[SlimRegion]


AnyTrace: TypeAlias = Trace | TraceBody | SlimTrace


class TraceList(TypedDict):
    """One page of traces, newest first; `next` goes into `?after=`."""

    items: list[TraceSummary]
    next: str | None


class TraceProgress(TypedDict):
    """How far a trace is. ahead: how many are read before it, null unless it waits. stage, fraction: what its reader
    said last, of the whole reading; "" and null while nobody has. advised: the places of the regions with advice."""

    status: Literal["reading", "ready", "failed"]
    ahead: int | None
    stage: str
    fraction: float | None
    parts: bool
    step_time_us: float | None
    regions: int
    advised: list[int]


class Rank(TypedDict):
    """The step of one rank: its own time, and its waiting for others in communication."""

    rank: int
    wall_us: float
    own_us: float
    communication_us: float
    wait_us: float


class RankSpread(TypedDict):
    """The ranks of one group by number. spread: how far apart their own times are, of a step; waiting_share: of a step.

    slowest: the rank that the others wait for.
    """

    ranks: list[Rank]
    slowest: int
    spread: float
    waiting_share: float


class GroupRank(Rank):
    """A rank of a group, with the trace that tells of it. slowest: whether the others wait for it."""

    id: str
    name: str
    slowest: bool


class Ranks(TypedDict):
    """The ranks of one group by number; nulls and no ranks for fewer than two that are read."""

    ranks: list[GroupRank]
    slowest: int | None
    spread: float | None
    waiting_share: float | None


Verdict = Literal["faster", "slower", "no difference", "new", "gone", "no verdict"]

Sureness = Literal["sure", "likely", "unsure"]

PairedBy = Literal["text", "module", "sizes", "name", "operations", "weak operations", "alone"]
"""How parts of two traces were known to be the same: one text; one name in one module; a matrix product of the same
sizes and calls; one name; the same operations, or only such as stand in most kernels; not at all."""


class ComparedStep(TypedDict):
    """The steps of two traces. ratio: b's median over a's. sure: of the verdict, for which `because` is the reason."""

    a: StepTimes
    b: StepTimes
    ratio: float | None
    verdict: Verdict
    sure: Sureness
    because: str


class ComparedPiece(TypedDict):
    """One of the parts that stand together on one side. time_us: of one step; id: of a region."""

    name: str
    time_us: float
    id: str | None


class ComparedPart(TypedDict):
    """Regions or rests that are the same work in two traces. a, b: µs of one step, null where it is not there.
    a_parts, b_parts: what stands together; *_count: how many; *_id: of the region where it is one. by: how the sides
    were known to be the same, and sure: how sure that is."""

    name: str
    kind: Literal["region", "rest"]
    module: str
    tool: str
    a: float | None
    b: float | None
    change_us: float
    ratio: float | None
    verdict: Verdict
    by: PairedBy
    sure: Sureness
    a_count: int
    b_count: int
    a_id: str | None
    b_id: str | None
    a_parts: list[ComparedPiece]
    b_parts: list[ComparedPiece]


class Comparison(TypedDict):
    """Two traces side by side. refused: nothing may be called faster, which `because` tells. margin: a smaller change
    is none. masked: of attention that reads a stored mask in one alone; "" for none. verdict: all of it in words."""

    rows: list[ComparedPart]
    step: ComparedStep | None
    refused: bool
    because: str
    margin: float
    masked: str
    verdict: str
