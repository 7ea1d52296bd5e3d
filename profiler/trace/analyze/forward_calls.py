"""Calls of a step that lie in a model's forward, and how that is known: what torch.compile(model) would take.

An `.item()` in the optimizer, behind the loss or in the data loader stops nothing. So a call counts as the model's only
where the trace says so: by the nn.Module frames of with_stack, by an annotation that names the forward, or, with
neither, by the order: between two heavy operations (matrix products, convolutions, lookups) of one forward pass.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from profiler.trace.analyze.compile_blocker_kinds import COLLECTIVES, HEAVY, OWN_NAMESPACES
from profiler.trace.model import NONE, Step, Trace

MODULE, ANNOTATION, ORDER = "module", "annotation", "order"
"""How a call is known to be the model's. The last is only what the order of operations suggests."""

_FORWARD = re.compile(r"\bforward\b|\.forward$", re.IGNORECASE)
_NOT_FORWARD = ("Optimizer.step", "Optimizer.zero_grad", "enumerate(DataLoader)")
COMPILED_CODE = "## Call CompiledFxGraph"
"""What annotates a call of Inductor's code."""
_COMPILED = ("Torch-Compiled Region", "CompiledFunction", "triton_")
SCRIPT = "<forward op>"
"""What TorchScript's profiling executor calls a graph that it differentiates."""
_CUSTOM = re.compile(r"^([A-Za-z_]\w*)::[A-Za-z_][\w.]*$")
_WEIGHT = {"embedding": 0, "addmm": 2, "addbmm": 2, "baddbmm": 2}
"""Which argument of a heavy operation is its weight, where it is not the second."""


class Windows:
    """Half-open spans of time [start, end), in microseconds, which may nest and overlap, indexed by their start."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self.spans = sorted(spans)
        self._starts = [start for start, _ in self.spans]
        self._reach = list(accumulate((end for _, end in self.spans), max))

    def __bool__(self) -> bool:
        return bool(self.spans)

    def __contains__(self, at_us: float) -> bool:
        place = bisect_right(self._starts, at_us) - 1
        return place >= 0 and at_us < self._reach[place]

    def innermost(self, at_us: float) -> tuple[float, float] | None:
        """The span round an instant that starts last; None where there is none."""
        place = bisect_right(self._starts, at_us) - 1
        while place >= 0 and at_us < self._reach[place]:
            if at_us < self.spans[place][1]:
                return self.spans[place]
            place -= 1
        return None

    def starting_in(self, start_us: float, end_us: float) -> Windows:
        """Those that start in [start, end)."""
        return Windows(self.spans[bisect_left(self._starts, start_us) : bisect_left(self._starts, end_us)])


@dataclass(slots=True)
class _Launches:
    """What one operation launched: kernels, copies to the host, pageable copies from it, copies of any direction."""

    kernels: int = 0
    to_host: int = 0
    to_gpu: int = 0
    any_copy: int = 0


@dataclass(slots=True)
class Call:
    """One outermost operation as the program called it, with what lies beneath.

    beneath: indices of the operations under it. kernels: on the GPU, of all of these. to_host, to_gpu: copies between
    host and GPU beneath; any_copy: copies of any direction (ROCm writes device to device for reads).
    """

    op: int
    name: str
    thread: int
    start_us: float
    beneath: list[int] = field(default_factory=list)
    kernels: int = 0
    to_host: int = 0
    to_gpu: int = 0
    any_copy: int = 0
    within: str = ""

    @property
    def on_gpu(self) -> bool:
        """It, or something beneath, left something on the GPU."""
        return bool(self.kernels or self.any_copy)


def custom_namespace(name: str) -> str:
    """`fbgemm` of `fbgemm::permute_2D_sparse_data`; "" for PyTorch's own names and for what is no operation."""
    match = _CUSTOM.match(name)
    return match.group(1) if match and match.group(1) not in OWN_NAMESPACES else ""


def calls(trace: Trace, steps: Sequence[Step]) -> list[list[Call]]:
    """Each step's outermost calls outside of backward, optimizer, data loading and compiled code, by thread and time.

    Names that are no operation (record_function, TorchScript's method names, autograd functions) are looked through.
    """
    ops = trace.ops
    roles = [_role(name) for name in trace.names]
    role = [roles[i] for i in ops.name.tolist()]
    shut_windows = annotated_windows(trace, lambda name: name.startswith((*_NOT_FORWARD, COMPILED_CODE)))
    forwards = annotated_windows(trace, forward_name)
    launches = _launch_counts(trace)
    outermost = np.flatnonzero(ops.parent == NONE)
    calls_by_step = []
    for step in steps:
        step_calls: list[Call] = []
        for root in sorted(step.ops.tolist()):
            after = int(np.searchsorted(outermost, root, side="right"))
            end = int(outermost[after]) if after < len(outermost) else len(ops.parent)
            _visit(root, end, trace, role, launches, step_calls)
        step_calls = [c for c in step_calls if c.start_us not in shut_windows]
        _place(trace, step, step_calls, forwards.starting_in(step.start_us, step.end_us))
        calls_by_step.append(sorted(step_calls, key=lambda c: (c.thread, c.start_us, c.op)))
    return calls_by_step


def _role(name: str) -> str:
    """ "shut": not to be looked into; "call": what the program called; "" to look through."""
    if "Backward" in name or name.startswith(("autograd::engine", *_NOT_FORWARD, *_COMPILED)):
        return "shut"
    if name.startswith(("aten::", "quantized::", *COLLECTIVES)) or name == SCRIPT or custom_namespace(name):
        return "call"
    return ""


def _visit(
    root: int, end: int, trace: Trace, role: Sequence[str], launches: dict[int, _Launches],
    step_calls: list[Call],
) -> None:  # fmt: skip
    ops = trace.ops
    parents = ops.parent[root:end].tolist()
    owner: dict[int, Call | None] = {}  # the call that an operation is or lies under; None: not to be looked at
    for offset, above in enumerate(parents):
        op = root + offset
        if above in owner:
            call = owner[above]
            owner[op] = call
            if call is not None:
                call.beneath.append(op)
                _count(call, launches.get(op))
        elif role[op] == "shut":
            owner[op] = None
        elif role[op] == "call":
            call = Call(op, trace.names[int(ops.name[op])], int(ops.thread[op]), float(ops.start_us[op]))
            _count(call, launches.get(op))
            owner[op] = call
            step_calls.append(call)


def _count(call: Call, launches: _Launches | None) -> None:
    if launches is not None:
        call.kernels += launches.kernels
        call.to_host += launches.to_host
        call.to_gpu += launches.to_gpu
        call.any_copy += launches.any_copy


def _launch_counts(trace: Trace) -> dict[int, _Launches]:
    """What each operation launched."""
    counts: defaultdict[int, _Launches] = defaultdict(_Launches)
    for op in trace.kernels.op[trace.kernels.op != NONE].tolist():
        counts[op].kernels += 1
    for op, number in zip(trace.memory.op.tolist(), trace.memory.name.tolist(), strict=True):
        name = trace.names[number]
        if op == NONE or not name.startswith("Memcpy"):
            continue
        row = counts[op]
        row.to_host += "DtoH" in name
        row.to_gpu += "HtoD" in name and "Pinned" not in name
        row.any_copy += 1
    return dict(counts)


def annotated_windows(trace: Trace, accepts: Callable[[str], object]) -> Windows:
    """Where the annotations are open whose names are accepted."""
    notes = trace.annotations
    chosen = np.array([bool(accepts(name)) for name in trace.names], np.bool_)
    rows = np.flatnonzero(chosen[notes.name]) if len(notes.name) else np.empty(0, np.int64)
    return Windows(zip(notes.start_us[rows].tolist(), notes.end_us[rows].tolist(), strict=True))


def forward_name(name: str) -> bool:
    """Whether an annotation names the model's forward ("DistributedDataParallel.forward")."""
    return _FORWARD.search(name) is not None


def _place(trace: Trace, step: Step, step_calls: list[Call], forwards: Windows) -> None:
    """Sets `within` of those that are the model's."""
    if trace.modules:
        _by_module(trace, step_calls)
    elif forwards:
        for call in step_calls:
            call.within = ANNOTATION if call.start_us in forwards else ""
    else:
        _by_order(trace, step, step_calls)


def _by_module(trace: Trace, step_calls: Sequence[Call]) -> None:
    """In an nn.Module whose outermost module holds heavy work: a loss or a metric alone is no model."""
    module = trace.ops.module
    root = {c.op: trace.modules[int(module[c.op])].split("/")[0] for c in step_calls if int(module[c.op]) != NONE}
    models = {root[c.op] for c in step_calls if c.op in root and heavy(c)}
    for call in step_calls:
        call.within = MODULE if root.get(call.op) in models else ""


def heavy(call: Call) -> bool:
    """A matrix product, convolution, lookup or custom operation on the GPU."""
    if not call.on_gpu:
        return False
    return call.name.removeprefix("aten::") in HEAVY or bool(custom_namespace(call.name))


def _by_order(trace: Trace, step: Step, step_calls: Sequence[Call]) -> None:
    """Between two heavy calls of one forward pass, on the thread that has most of them."""
    loads: dict[int, int] = {}
    for call in step_calls:
        if heavy(call):
            loads[call.thread] = loads.get(call.thread, 0) + 1
    if not loads:
        return
    main = max(loads, key=lambda t: loads[t])
    ordered = sorted((c for c in step_calls if c.thread == main), key=lambda c: c.start_us)
    borders = _borders(trace, step)
    segments: dict[int, list[Call]] = {}
    for call in ordered:
        segments.setdefault(bisect_right(borders, call.start_us), []).append(call)
    first = next(c for c in ordered if heavy(c))
    for segment in segments.values():
        for part in _passes(trace, segment, _weight(trace, first)):
            places = [i for i, c in enumerate(part) if heavy(c)]
            for call in part[places[0] : places[-1] + 1] if len(places) > 1 else ():
                call.within = ORDER


def _borders(trace: Trace, step: Step) -> list[float]:
    """When a backward pass, an optimizer or a data loader was at work: no forward pass goes on across it."""
    names, ops = trace.names, trace.ops
    marks = np.array([n.startswith(("autograd::engine", *_NOT_FORWARD)) or "Backward" in n for n in names], np.bool_)
    rows = marks[ops.name] if len(ops.name) else np.empty(0, np.bool_)
    starts = ops.start_us[rows & (ops.start_us >= step.start_us) & (ops.start_us < step.end_us)]
    others = annotated_windows(trace, lambda name: name.startswith(_NOT_FORWARD))
    return sorted([*starts.tolist(), *(start for start, _ in others.spans)])


def _weight(trace: Trace, call: Call) -> tuple[str, object]:
    """What tells one layer from the next: the operation and its weight's sizes, None where shapes are not recorded."""
    name = call.name.removeprefix("aten::")
    detail = int(trace.ops.detail[call.op])
    place = _WEIGHT.get(name, 1)
    dims = trace.details[detail].dims if detail != NONE else ()
    return name, dims[place] if place < len(dims) else None


def _passes(trace: Trace, segment: Sequence[Call], first: tuple[str, object]) -> list[list[Call]]:
    """A generation or evaluation loop has many passes in a row: each begins where the step's first layer comes again.

    Not where that layer follows itself: a stack of equal layers is one pass.
    """
    parts: list[list[Call]] = [[]]
    before: tuple[str, object] | None = None
    for call in segment:
        if heavy(call):
            layer = _weight(trace, call)
            if layer == first and before is not None and before != first:
                parts.append([])
            before = layer
        parts[-1].append(call)
    return parts
