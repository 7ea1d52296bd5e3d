"""Calls of a step that lie in a model's forward, and how that is known: what torch.compile(model) would take.

An `.item()` in the optimizer, behind the loss or in the data loader stops nothing. So a call counts as the model's only
where the trace says so: by the nn.Module frames of with_stack, by an annotation that names the forward, or, with
neither, by the order: between two heavy operations (matrix products, convolutions, lookups) of one forward pass.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from profiler.trace.analyze.compile_blocker_kinds import COLLECTIVES, HEAVY, OWN_NAMESPACES
from profiler.trace.analyze.time_windows import Windows
from profiler.trace.model import NONE, Step, Trace

MODULE, ANNOTATION, ORDER = "module", "annotation", "order"
"""How a call is known to be the model's. The last is what the order of operations suggests, and is said so."""

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
    shut = annotated_windows(trace, lambda name: name.startswith((*_NOT_FORWARD, COMPILED_CODE)))
    forwards = annotated_windows(trace, forward_name)
    holds = _holds(trace)
    outermost = np.flatnonzero(ops.parent == NONE)
    every = []
    for step in steps:
        found: list[Call] = []
        for root in sorted(step.ops.tolist()):
            after = int(np.searchsorted(outermost, root, side="right"))
            end = int(outermost[after]) if after < len(outermost) else len(ops.parent)
            _visit(root, end, trace, role, holds, found)
        found = [c for c in found if c.start_us not in shut]
        _place(trace, step, found, forwards.starting_in(step.start_us, step.end_us))
        every.append(sorted(found, key=lambda c: (c.thread, c.start_us, c.op)))
    return every


def _role(name: str) -> str:
    """ "shut": not to be looked into; "call": what the program called; "" to look through."""
    if "Backward" in name or name.startswith(("autograd::engine", *_NOT_FORWARD, *_COMPILED)):
        return "shut"
    if name.startswith(("aten::", "quantized::", *COLLECTIVES)) or name == SCRIPT or custom_namespace(name):
        return "call"
    return ""


def _visit(
    root: int, end: int, trace: Trace, role: Sequence[str], holds: dict[int, tuple[int, int, int, int]],
    found: list[Call],
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
                _count(call, holds.get(op))
        elif role[op] == "shut":
            owner[op] = None
        elif role[op] == "call":
            call = Call(op, trace.names[int(ops.name[op])], int(ops.thread[op]), float(ops.start_us[op]))
            _count(call, holds.get(op))
            owner[op] = call
            found.append(call)


def _count(call: Call, own: tuple[int, int, int, int] | None) -> None:
    if own is not None:
        call.kernels += own[0]
        call.to_host += own[1]
        call.to_gpu += own[2]
        call.any_copy += own[3]


def _holds(trace: Trace) -> dict[int, tuple[int, int, int, int]]:
    """Kernels, copies to the host, pageable copies from it, and copies of any kind that each operation launched."""
    held: dict[int, list[int]] = {}
    for op in trace.kernels.op[trace.kernels.op != NONE].tolist():
        held.setdefault(op, [0, 0, 0, 0])[0] += 1
    for op, number in zip(trace.memory.op.tolist(), trace.memory.name.tolist(), strict=True):
        name = trace.names[number]
        if op == NONE or not name.startswith("Memcpy"):
            continue
        row = held.setdefault(op, [0, 0, 0, 0])
        row[1] += "DtoH" in name
        row[2] += "HtoD" in name and "Pinned" not in name
        row[3] += 1
    return {op: (a, b, c, d) for op, (a, b, c, d) in held.items()}


def annotated_windows(trace: Trace, wanted: Callable[[str], object]) -> Windows:
    """Where the annotations are open whose names are wanted."""
    notes = trace.annotations
    chosen = np.array([bool(wanted(name)) for name in trace.names], np.bool_)
    rows = np.flatnonzero(chosen[notes.name]) if len(notes.name) else np.empty(0, np.int64)
    return Windows(zip(notes.start_us[rows].tolist(), notes.end_us[rows].tolist(), strict=True))


def forward_name(name: str) -> bool:
    """Whether an annotation names the model's forward ("DistributedDataParallel.forward")."""
    return _FORWARD.search(name) is not None


def _place(trace: Trace, step: Step, found: list[Call], forwards: Windows) -> None:
    """Sets `within` of those that are the model's."""
    if trace.modules:
        _by_module(trace, found)
    elif forwards:
        for call in found:
            call.within = ANNOTATION if call.start_us in forwards else ""
    else:
        _by_order(trace, step, found)


def _by_module(trace: Trace, found: Sequence[Call]) -> None:
    """In an nn.Module whose outermost module holds heavy work: a loss or a metric alone is no model."""
    module = trace.ops.module
    root = {c.op: trace.modules[int(module[c.op])].split("/")[0] for c in found if int(module[c.op]) != NONE}
    models = {root[c.op] for c in found if c.op in root and heavy(c)}
    for call in found:
        call.within = MODULE if root.get(call.op) in models else ""


def heavy(call: Call) -> bool:
    """A matrix product, convolution, lookup or custom operation on the GPU."""
    if not call.on_gpu:
        return False
    return call.name.removeprefix("aten::") in HEAVY or bool(custom_namespace(call.name))


def _by_order(trace: Trace, step: Step, found: Sequence[Call]) -> None:
    """Between two heavy calls of one forward pass, on the thread that has most of them."""
    loads: dict[int, int] = {}
    for call in found:
        if heavy(call):
            loads[call.thread] = loads.get(call.thread, 0) + 1
    if not loads:
        return
    main = max(loads, key=lambda t: loads[t])
    ordered = sorted((c for c in found if c.thread == main), key=lambda c: c.start_us)
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
