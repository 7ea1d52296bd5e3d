"""Trace -> Regions: what a step spends its kernel time on, as regions that can be costed, advised on and run."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile

from profiler.region.language.text import MAX_SIZES
from profiler.region.mining.compiled_attention import is_softmax
from profiler.region.mining.dataflow import Graph, graph_of, identity, is_bound, op_written_with
from profiler.region.mining.emit_text import Text, bind, is_bias_learned, write, write_kernel, write_over_many
from profiler.region.mining.execution_edges import Edges, join, joined_share
from profiler.region.mining.infer_edges import infer
from profiler.region.mining.partition import Part, partition
from profiler.region.mining.steps import chosen_steps
from profiler.region.mining.symbolic_sizes import Sized, merge
from profiler.region.mining.texts.many_tensors import Gradients, accumulations, gradients_of, is_over_many
from profiler.region.mining.units import Unit, Units, collect_units
from profiler.region.model import Binding, Workload
from profiler.region.op_kinds import COMMUNICATION
from profiler.region.operations import kind_of
from profiler.region.shares import INFERRED, PARTED, STEPS, OnShare, untold, within
from profiler.trace.analyze.gpu_utilization import Shares, shares
from profiler.trace.analyze.steps import kernel_busy_us, step_time_us
from profiler.trace.execution_trace import Execution
from profiler.trace.model import NONE, Step, Trace


@dataclass(frozen=True, slots=True)
class Shape:
    """One binding of a region's sizes, with the calls and kernel time that the trace has for it, per step."""

    sizes: tuple[tuple[str, int], ...]
    operands: tuple[str, ...]  # the inputs as text: "x: bf16[4, 2048, 2048]"
    calls_per_step: float
    time_us_per_step: float


@dataclass(frozen=True, slots=True)
class MinedRegion:
    """One region of a trace. With `backward` the text has `.requires_grad` and the times hold both passes.

    backward_time_us_per_step: what of the time ran in autograd's nodes; the rest is forward. forward_of: the id_hint of
    the region whose gradient this one computes, where it is one of its own: a view's (the region that reads the view),
    or a function's with a backward of its own (its costliest region); "" for all others.
    module: the innermost nn.Module that all its operations ran in, of the first call; "" without recorded stacks.
    operations: one round of them, where the region is a loop (rounds > 1).
    text is None where the region cannot be written; `missing` says why. assumed: numbers and indices that the trace
    does not record, as they are in the text. time_us_per_step: summed kernel durations. launches: kernels per step.
    """

    id_hint: str
    title: str
    kind: str
    by_hand: bool
    text: str | None
    missing: str
    assumed: tuple[str, ...]
    operations: tuple[str, ...]
    backward: bool
    module: str
    calls_per_step: float
    time_us_per_step: float
    kernels_per_call: float
    kernel_names: tuple[str, ...]
    shapes: tuple[Shape, ...]
    workload: Workload
    ops: tuple[int, ...]  # indices into Trace.ops, of the first call
    kernels: tuple[int, ...]  # indices into Trace.kernels, of all calls in the mined steps
    launches: float
    rounds: int = 1  # of the first call, where the region is a loop
    source: str = ""  # "models/bert.py:429 attention_mask": its Python function, once `sources.locate` has asked
    spans: tuple[tuple[int, float, float], ...] = ()  # thread, start and end on the host, in µs, of each forward call
    backward_time_us_per_step: float = 0.0
    forward_of: str = ""

    @property
    def forward_time_us_per_step(self) -> float:
        """Kernel time outside of autograd's nodes."""
        return self.time_us_per_step - self.backward_time_us_per_step


@dataclass(frozen=True, slots=True)
class Rest:
    """Kernel time that is no region, and why. kernels: indices into Trace.kernels (into Trace.memory for copies)."""

    name: str
    time_us: float
    kernels: tuple[int, ...]
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Mining:
    """The regions of a step, by time, and what is left. Per step, where several were mined: their mean."""

    steps: tuple[str, ...]
    step_time_us: float
    busy_us: float
    kernel_time_us: float
    regions: tuple[MinedRegion, ...]
    rests: tuple[Rest, ...]
    mined: tuple[Step, ...] = ()  # the steps of these names
    joined_share: float | None = None  # of the operations with kernels, those that the given execution trace has
    shares: Shares | None = None  # of the regions, then of the rests other than copies, over all mined steps

    @property
    def backward_time_us(self) -> float:
        """Kernel time of the regions in autograd's nodes, per step."""
        return sum(r.backward_time_us_per_step for r in self.regions)

    @property
    def paired_backward_share(self) -> float | None:
        """Share of it that is paired with its forward: in its region or one that names it. None without backward."""
        paired = sum(r.backward_time_us_per_step for r in self.regions if r.forward_of or r.forward_time_us_per_step)
        return paired / self.backward_time_us if self.backward_time_us else None


COPIES, GRAPH, BEFORE, UNKNOWN, COLLECTIVE = (
    "copies and sets", "CUDA graph (ops not recorded)", "launched before the window", "no operation recorded",
    "communication",
)  # fmt: skip
REMEDIES = {
    GRAPH: "record a step without CUDA graphs, with record_shapes=True",
    BEFORE: "record more than one step after a warm-up: schedule(wait=1, warmup=2, active=3)",
    UNKNOWN: "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
    COLLECTIVE: "no kernel problem: overlap it with compute, or communicate less",
}


def mine(
    trace: Trace, step: Step | None = None, execution: Execution | None = None, on_share: OnShare = untold
) -> Mining:
    """The regions of `step`; by default of those that `chosen_steps` gives: the middle ones, or all where sizes differ.

    execution: an execution trace of the same run; makes exact which operand is which value, and gives strings,
    overloads and lists that the trace lacks. What of the steps it does not hold is inferred as without it. on_share: is
    told which share is done: of each step's pieces of work (`shares`), and within them of its operations and parts.

    Every kernel of the mined steps is in exactly one region or one rest. Raises nothing for what a trace holds; a trace
    without steps gives an empty Mining.
    """
    chosen = (step,) if step is not None else chosen_steps(trace, execution)
    if not chosen:
        return Mining((), 0.0, 0.0, 0.0, (), ())
    calls: list[_Call] = []
    unlinked: list[int] = []
    joined = []
    handed = accumulations(trace)
    for place, one in enumerate(chosen):
        step_units = collect_units(trace, one)
        unlinked += step_units.unlinked
        edges = None
        if execution is not None:
            joined.append(joined_share(trace, step_units.units, execution))
            edges = join(trace, step_units.units, execution)
        of_step = within(on_share, STEPS * place / len(chosen), STEPS * (place + 1) / len(chosen))
        calls += _calls(trace, step_units, edges, gradients_of(trace, one, handed), of_step)
    count, step_time = len(chosen), _step_time_us(trace, chosen)
    collective = [c for c in calls if c.part.kind == "communication"]
    regions = _regions(trace, [c for c in calls if c.part.kind != "communication"], count, step_time)
    rests = _rests(trace, chosen, unlinked, [k for c in collective for k in c.part.kernels])
    groups = [r.kernels for r in regions] + [r.kernels for r in rests if r.name != COPIES]
    gpu_shares = shares(trace, chosen, groups)
    on_share(1.0)
    regions = tuple(
        replace(r, workload=replace(r.workload, share_of_step=share if step_time > 0 else None))
        for r, share in zip(regions, gpu_shares.shares, strict=False)
    )
    return replace(
        _of_steps(trace, chosen, gpu_shares),
        regions=regions,
        rests=rests,
        joined_share=sum(joined) / count if joined else None,
    )


def without_regions(trace: Trace) -> Mining:
    """The steps that `mine` takes of its own accord, with none of their kernels in a region or a rest."""
    chosen = chosen_steps(trace, None)
    return _of_steps(trace, chosen, shares(trace, chosen, [])) if chosen else Mining((), 0.0, 0.0, 0.0, (), ())


def _of_steps(trace: Trace, chosen: Sequence[Step], gpu_shares: Shares) -> Mining:
    count = len(chosen)
    return Mining(
        steps=tuple(s.name for s in chosen),
        step_time_us=_step_time_us(trace, chosen),
        busy_us=sum(kernel_busy_us(trace, s) for s in chosen) / count,
        kernel_time_us=sum(float(trace.kernels.duration_us[s.kernels].sum()) for s in chosen) / count,
        regions=(),
        rests=(),
        mined=tuple(chosen),
        shares=gpu_shares,
    )


def _step_time_us(trace: Trace, chosen: Sequence[Step]) -> float:
    return sum(step_time_us(trace, s) for s in chosen) / len(chosen)


@dataclass(frozen=True, slots=True)
class _Call:
    """One part with its text. forward: the part whose gradient it computes, where that is another."""

    part: Part
    text: Text
    forward: Part | None = None


def _calls(
    trace: Trace, step_units: Units, edges: Edges | None, gradients: Gradients, on_share: OnShare
) -> list[_Call]:
    threads: dict[int, list[Unit]] = defaultdict(list)
    for unit in step_units.units:
        if not unit.backward:
            threads[unit.thread].append(unit)
    texts: dict[object, Text] = {}
    calls = []
    step_parts = partition(trace, step_units)  # completes the units' arguments, so before the edges
    on_share(PARTED)
    graphs = [] if edges is None else [graph_of(step_units.units, edges)]
    graphs.append(graph_of(step_units.units, _infer(threads.values(), step_parts, within(on_share, PARTED, INFERRED))))
    owner = {u.op: part for part in step_parts if not part.units[0].backward for u in part.units}
    writing = within(on_share, INFERRED, 1.0)
    for done, part in enumerate(step_parts):
        writing(done / len(step_parts))
        forward = _forward(part, graphs, owner)
        if is_over_many(part):
            calls.append(_Call(part, write_over_many(part, gradients), forward))
            continue
        if part.kind == "compiled" or any(is_softmax(u) for u in part.units):
            calls.append(_Call(part, write_kernel(part), forward))
            continue
        graph = next((g for g in graphs if is_bound(part, g)), graphs[-1])
        if not is_bound(part, graph) and part.units[0].backward and len(part.units) > 1 and not part.period:
            lack = "which operand of a backward chain is which is not recorded"
            calls.append(_Call(part, Text(None, lack), forward))
            continue
        bound = bind(part, graph)
        if isinstance(bound, Text):
            calls.append(_Call(part, bound, forward))
            continue
        key = (part.title, part.letters, bool(part.backward), is_bias_learned(part), identity(bound))
        if key not in texts:
            texts[key] = write(part, bound)
        calls.append(_Call(part, texts[key], forward))
    return calls


def _forward(part: Part, graphs: Sequence[Graph], owner: Mapping[int, Part]) -> Part | None:
    """The part that a backward part's makers are in or, being views, are written with."""
    for maker in part.makers:
        candidates = (op_written_with(maker, graph, owner.__contains__) for graph in graphs)
        op = next((op for op in candidates if op != NONE), NONE)
        if op != NONE:
            return owner[op]
    return None


def _infer(threads: Iterable[Sequence[Unit]], step_parts: Sequence[Part], on_share: OnShare) -> Edges:
    """Edges of the forward threads, and of backward parts that are one operation or a loop: chains are not inferred."""
    chains = [*threads, *(p.units for p in step_parts if p.units[0].backward and (p.period or len(p.units) == 1))]
    before = [0, *accumulate(len(chain) for chain in chains)]
    of = max(1, before[-1])

    def told(place: int) -> Callable[[int], None]:
        return lambda units: on_share((before[place] + units) / of)

    inferred = [infer(chain, told(place)) for place, chain in enumerate(chains)]
    return Edges(
        {slot: source for edges in inferred for slot, source in edges.sources.items()},
        {slot: key for edges in inferred for slot, key in edges.outside.items()},
        guesses={op: guess for edges in inferred for op, guess in edges.guesses.items()},
    )


def _regions(trace: Trace, calls: Sequence[_Call], steps: int, step_time: float) -> tuple[MinedRegion, ...]:
    regions: list[MinedRegion] = []
    of_part: dict[int, str] = {}
    for gradients in (False, True):  # regions before those that name them
        groups: dict[tuple[object, ...], list[_Call]] = defaultdict(list)
        for call in calls:
            part = call.part
            if (call.forward is not None) == gradients:
                key = (part.title, bool(part.backward), _names(part), of_part.get(id(call.forward), ""))
                groups[*key, call.text.text or call.text.missing].append(call)
        costliest = sorted(groups.items(), key=lambda item: -sum(c.part.time_us for c in item[1]))
        for m in merge([Sized(g[0].text.text, g[0].part.kind, key[:-1], g) for key, g in costliest]):
            partner = of_part.get(id(m.groups[0][0].forward), "")
            bindings, sized = (m.bindings, m.groups) if m.text else _by_operands(m.groups[0])
            regions.append(_region(trace, m.text, bindings, sized, steps, step_time, partner))
            of_part |= {id(c.part): regions[-1].id_hint for g in m.groups for c in g}
    return tuple(sorted(regions, key=lambda r: -r.time_us_per_step))


def _by_operands(calls: Sequence[_Call]) -> tuple[tuple[tuple[tuple[str, int], ...], ...], list[list[_Call]]]:
    """Calls of a region without a text by what they read: without names for their sizes each is a binding of its own.
    Beyond MAX_SIZES those that take least time are one."""
    sized: dict[object, list[_Call]] = defaultdict(list)
    for call in calls:
        sized[tuple(s for u in call.part.round for a in u.args for s in a.sigs)].append(call)
    groups = sorted(sized.values(), key=lambda g: -sum(c.part.time_us for c in g))
    kept, rest = groups[: MAX_SIZES - 1], [c for g in groups[MAX_SIZES - 1 :] for c in g]
    groups = [*kept, *([rest] if rest else [])]
    return ((),) * len(groups), groups


def _names(part: Part) -> tuple[str, ...]:
    return tuple(u.name for u in part.round)


def _region(
    trace: Trace,
    text: str | None,
    bindings: Sequence[tuple[tuple[str, int], ...]],
    groups: Sequence[Sequence[_Call]],
    steps: int,
    step_time: float,
    partner: str,
) -> MinedRegion:
    calls = [c for g in groups for c in g]
    first = calls[0]
    part = first.part
    time = sum(c.part.time_us for c in calls) / steps
    kernels = [k for c in calls for k in c.part.kernels]
    shapes = tuple(
        Shape(b, _operands(g[0]), len(g) / steps, sum(c.part.time_us for c in g) / steps)
        for b, g in zip(bindings, groups, strict=True)
    )
    names = Counter(trace.names[int(trace.kernels.name[k])] for k in kernels)
    workload = Workload(
        bindings=tuple(Binding(s.sizes, s.calls_per_step, s.time_us_per_step) for s in shapes),
        step_time_us=step_time,
        share_of_step=min(1.0, time / step_time) if step_time > 0 else None,
        launches_per_step=len(kernels) / steps,
        observed=True,
    )
    return MinedRegion(
        id_hint=_id(part, text, partner),
        title=part.title,
        kind=part.kind,
        by_hand=part.by_hand,
        text=text,
        missing=first.text.missing,
        assumed=first.text.assumed,
        operations=_names(part),
        backward=bool(part.backward) or part.units[0].backward or part.kind == "accumulation",
        module=_module(trace, part.units),
        calls_per_step=len(calls) / steps,
        time_us_per_step=time,
        kernels_per_call=len(kernels) / len(calls),
        kernel_names=tuple(n for n, _ in names.most_common()),
        shapes=shapes,
        workload=workload,
        ops=tuple(u.op for u in (*part.units, *part.backward)),
        kernels=tuple(kernels),
        launches=len(kernels) / steps,
        rounds=len(part.units) // part.period if part.period else 1,
        spans=tuple(_span(trace, c.part.units) for c in calls),
        backward_time_us_per_step=sum(c.part.backward_time_us for c in calls) / steps,
        forward_of=partner,
    )


def _span(trace: Trace, chosen: Sequence[Unit]) -> tuple[int, float, float]:
    """Thread, start of the first operation, end of the last: what lies between them lies inside the region."""
    return chosen[0].thread, chosen[0].start_us, max(float(trace.ops.end_us[u.op]) for u in chosen)


def _id(part: Part, text: str | None, partner: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", part.title.lower()).strip("-")[:48].strip("-")
    operations = (part.title, _names(part), bool(part.backward), *([partner] if partner else []))
    source = repr((*operations, text or [u.args for u in part.units]))
    return f"{slug}-{hashlib.sha256(source.encode()).hexdigest()[:6]}"


def _operands(call: _Call) -> tuple[str, ...]:
    if call.text.text:
        lines = call.text.text.splitlines()
        return tuple(line for line in lines if re.match(r"\w+: \w+\[", line))
    return tuple(
        f"{s.dtype or '?'}[{', '.join(map(str, s.dims))}]" for a in call.part.units[0].args for s in a.sigs if s.dims
    )


def _module(trace: Trace, chosen: Iterable[Unit]) -> str:
    """The innermost module that all of the units share; "" where stacks were not recorded."""
    paths = [trace.modules[u.module].split("/") for u in chosen if u.module != NONE]
    if not paths:
        return ""
    levels = takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
    shared = "/".join(names[0] for names in levels)
    return shared or Counter("/".join(p) for p in paths).most_common(1)[0][0]


def _rests(trace: Trace, steps: Sequence[Step], unlinked: Iterable[int], collective: Iterable[int]) -> tuple[Rest, ...]:
    kernels, sorted_out = trace.kernels, defaultdict(list)
    for kernel in unlinked:
        name = trace.names[int(kernels.name[kernel])]
        if kind_of(name) == COMMUNICATION:
            sorted_out[COLLECTIVE].append(kernel)
        elif kernels.graph[kernel]:
            sorted_out[GRAPH].append(kernel)
        elif not kernels.launched[kernel]:
            sorted_out[BEFORE].append(kernel)
        else:
            sorted_out[UNKNOWN].append(kernel)
    sorted_out[COLLECTIVE] += collective
    count = len(steps)
    rests = [
        Rest(name, float(kernels.duration_us[chosen].sum()) / count, tuple(chosen), REMEDIES[name])
        for name, chosen in sorted_out.items()
        if chosen
    ]
    copies = [int(m) for s in steps for m in s.memory]
    if copies:
        rests.append(Rest(COPIES, float(trace.memory.duration_us[copies].sum()) / count, tuple(copies)))
    return tuple(sorted(rests, key=lambda r: -r.time_us))
