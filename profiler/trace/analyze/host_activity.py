"""What the host does while the GPU has nothing to do because of it.

The gaps that `idle_breakdown` gives to the host, and the calls that launch one kernel for LONG_CALL_US and more, are
cut at every start and end of an operation and at every launch. What is left longer than PAUSE_US is time in which the
host did one thing; of the first two kinds shorter time counts too, and of a gap of which most lies in one outermost
operation what is left. What it was is told by where it stands:

- loader: inside `enumerate(DataLoader)`, as PyTorch annotates a loader in the process itself and the wait for workers;
- capturing: under an annotation that begins with "capture", as serving frameworks name it: operations go into a graph
  and nothing runs;
- start_up: a long call that launches one kernel (its module is loaded), START_UP_US and more inside one operation that
  runs on the GPU, in no more than a third of the steps (CUDA and its libraries begin, an algorithm is chosen), or
  LOADING_US inside one that allocates;
- compiling: outside of every operation, COMPILING_US and more, and a compiled region follows;
- sync: in a call that waits for the GPU;
- library: inside an operation that launches kernels, named by the innermost one, or inside a compiled region;
- cpu: inside an operation that launches none: it computes on the CPU. Named by the outermost one;
- inputs: outside of every operation, and the GPU's next work is a copy from the host;
- ending: outside of every operation, and none follows in the trace;
- python: outside of every operation. These three have the innermost annotation's name.

A pause is the thread's that last began something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from profiler.trace.analyze.gpu_utilization import merge_intervals
from profiler.trace.analyze.idle_breakdown import PAUSE_US, Gap, idle_gaps, overlap
from profiler.trace.analyze.shortest_around import ShortestAround
from profiler.trace.model import NONE, Floats, Longs, Step, Trace

Kind = Literal["loader", "start_up", "compiling", "capturing", "sync", "library", "cpu", "inputs", "ending", "python"]

LONG_CALL_US = 1_000.0
"""A launch takes the host some µs; one that takes this loads a module. Measured on first calls: 6.5 ms on an MI250, 3 s
on the first kernel of a process (hta_mi250_minitoy, hta_alexnet)."""
START_UP_US = 50_000.0
"""Beyond what any operation's host side takes in a steady step on the traces measured here: cuDNN plans attention in 12
ms a call (bert_train_varlen)."""
LOADING_US = 10_000.0
COMPILING_US = 1_000_000.0
COMPILED = ("Torch-Compiled Region", "TorchDynamo Cache Lookup", "CompiledFunction")
MARKS: Mapping[Kind, str] = {"loader": "enumerate(dataloader)", "capturing": "capture"}
"""Of operations and annotations, in small letters."""
ALLOCATES = ("aten::empty", "aten::zeros", "aten::ones", "aten::full")


@dataclass(slots=True)
class HostTime:
    """Time of one step that the host spends on one thing while the GPU is idle.

    name: the operation or annotation ("" for Python of no name). following: the operation that comes next. module: of
    the operations around, "" where not recorded. longest_us: of one pause. pauses: of all steps together.
    """

    kind: Kind
    name: str
    time_us: float = 0.0
    longest_us: float = 0.0
    pauses: int = 0
    following: str = ""
    module: str = ""


def host_times(trace: Trace, steps: Sequence[Step]) -> list[HostTime]:
    """What takes most of the steps' idle time on the host, the most first; times are means over the steps."""
    if not steps or not len(trace.ops.name):
        return []
    host = _Activity(trace)
    pauses = [
        (n, pause) for n, step in enumerate(steps) for gap in idle_gaps(trace, step) for pause in host.pauses(gap)
    ]
    in_steps: dict[str, set[int]] = {}
    for number, pause in pauses:
        if pause.kind in ("start_up", "library"):
            in_steps.setdefault(pause.name, set()).add(number)
    spent: dict[tuple[Kind, str], HostTime] = {}
    for _, pause in pauses:
        kind = pause.kind
        if pause.inside and kind == "start_up" and len(in_steps[pause.name]) > max(1, len(steps) // 3):
            kind = "library"
        one = spent.setdefault((kind, pause.name), HostTime(kind, pause.name))
        one.time_us += pause.length_us / len(steps)
        one.pauses += 1
        if pause.length_us > one.longest_us:
            one.longest_us, one.following, one.module = pause.length_us, pause.following, pause.module
    return sorted(spent.values(), key=lambda one: -one.time_us)


@dataclass(frozen=True, slots=True)
class _Pause:
    """inside: an operation that runs on the GPU."""

    kind: Kind
    name: str
    length_us: float
    following: str = ""
    module: str = ""
    inside: bool = False


class _Activity:
    """The host's side of a trace, ready to be asked what it did at any time."""

    def __init__(self, trace: Trace) -> None:
        ops, kernels = trace.ops, trace.kernels
        self.trace = trace
        linked = kernels.op[kernels.op != NONE]
        threads = np.unique(ops.thread[linked]) if len(linked) else np.unique(ops.thread)
        self.threads = [rows[np.argsort(ops.start_us[rows], kind="stable")] for rows in
                        (np.flatnonzero(ops.thread == thread) for thread in threads)]  # fmt: skip
        self.starts = [ops.start_us[rows] for rows in self.threads]
        self.outermost = [(r, ops.start_us[r], ops.end_us[r]) for r in
                          (rows[ops.parent[rows] == NONE] for rows in self.threads)]  # fmt: skip
        self.launches = self._on_gpu(linked)
        on_threads = np.isin(ops.thread, threads)
        launch_us = kernels.launch_us[~np.isnan(kernels.launch_us)]
        self.long_calls = _long_calls(trace)
        edges = (ops.start_us[on_threads], ops.end_us[on_threads], launch_us, *self.long_calls[:2])
        self.ticks = np.unique(np.concatenate(edges))
        self.marked = {kind: self._marked(mark) for kind, mark in MARKS.items()}
        syncs = trace.syncs
        self.syncs = merge_intervals(syncs.start_us, syncs.end_us) if syncs is not None else (np.empty(0), np.empty(0))
        memory = trace.memory
        from_host = np.array(["HtoD" in trace.names[int(n)] for n in memory.name], np.bool_)
        self.copies_in = np.sort(memory.start_us[from_host]) if len(memory.name) else np.empty(0)

    def _marked(self, mark: str) -> tuple[str, tuple[Floats, Floats]]:
        """Where operations or annotations whose names begin so stand, and the name of the first."""
        trace, starts, ends, name = self.trace, [], [], ""
        numbers = np.flatnonzero([n.lower().startswith(mark) for n in trace.names])
        for events in (trace.annotations, trace.ops):
            rows = np.flatnonzero(np.isin(events.name, numbers))
            name = name or (trace.names[int(events.name[rows[0]])] if len(rows) else "")
            starts.append(events.start_us[rows])
            ends.append(events.end_us[rows])
        return name, merge_intervals(np.concatenate(starts), np.concatenate(ends))

    def _on_gpu(self, linked: Longs) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Of each operation whether it, or one inside it, launches kernels."""
        parent = self.trace.ops.parent
        marked = np.zeros(len(parent), np.bool_)
        rows = np.unique(linked)
        while len(rows):
            rows = rows[~marked[rows]]
            marked[rows] = True
            rows = np.unique(parent[rows])
            rows = rows[rows != NONE]
        return marked

    def pauses(self, gap: Gap) -> Iterator[_Pause]:
        """What the host did for PAUSE_US and more at a time in a gap."""
        begin, end = gap.start_us, gap.start_us + gap.length_us
        if gap.cause not in ("host", "launch") or gap.length_us < PAUSE_US:
            return
        inner = self.ticks[np.searchsorted(self.ticks, begin, "right") : np.searchsorted(self.ticks, end)]
        edges = np.concatenate(([begin], inner, [end]))
        told = 0.0
        for kind, (name, spans) in self.marked.items():
            if (covered := overlap(spans, begin, end)) > 0.0 and gap.cause == "host":
                told += covered
                yield _Pause(kind, name, covered)
        for place in np.flatnonzero(np.diff(edges) > PAUSE_US).tolist():
            one, other = float(edges[place]), float(edges[place + 1])
            if any(_covers(spans, (one + other) / 2) for _, spans in self.marked.values()):
                continue
            pause = self._pause(one, other, end)
            if gap.cause == "host" or pause.kind == "start_up":
                told += pause.length_us
                yield pause
        if gap.cause == "host" and gap.length_us - told > PAUSE_US:
            yield from self._in_small_pieces(begin, end, gap.length_us - told)

    def _in_small_pieces(self, begin: float, end: float, rest_us: float) -> Iterator[_Pause]:
        """What is left of a gap, where most of it lies in one outermost operation with many short ones inside."""
        ops, best, most = self.trace.ops, NONE, rest_us / 2
        for rows, starts, ends in self.outermost:
            inside = slice(int(np.searchsorted(ends, begin, "right")), int(np.searchsorted(starts, end)))
            covered = np.minimum(ends[inside], end) - np.maximum(starts[inside], begin)
            if len(covered) and (longest := float(covered.max())) > most:
                best, most = int(rows[inside][int(covered.argmax())]), longest
        if best != NONE:
            kind: Kind = "library" if self.launches[best] else "cpu"
            name = self.trace.names[int(ops.name[best])]
            yield _Pause(kind, name, min(rest_us, most), module=self._module([best]), inside=kind == "library")

    def _pause(self, begin: float, end: float, until: float) -> _Pause:
        """What the host did from begin to end. until: when the GPU's next work starts."""
        trace, length, middle = self.trace, end - begin, (begin + end) / 2
        op = self._innermost(middle)
        chain = self._chain(op)
        names = [trace.names[int(trace.ops.name[o])] for o in chain]
        module = self._module(chain)
        if (kernel := self._long_call(middle)) is not None:
            return _Pause("start_up", kernel, length, module=module)
        if _covers(self.syncs, middle):
            return _Pause("sync", names[0] if names else "", length, module=module)
        following = self._following(end)
        if not chain:
            return self._outside(length, middle, until, following)
        if names[0].startswith(ALLOCATES) and length >= LOADING_US:
            return _Pause("start_up", names[0], length, module=module)
        if self.launches[chain[0]] or names[0].startswith(COMPILED):
            kind: Kind = "start_up" if length >= START_UP_US else "library"
            return _Pause(kind, names[0], length, following, module, inside=True)
        return _Pause("cpu", names[-1], length, following, module)

    def _outside(self, length: float, middle: float, until: float, following: str) -> _Pause:
        if length >= COMPILING_US and following.startswith(COMPILED):
            return _Pause("compiling", following.partition(":")[0], length, following)
        kind: Kind = "inputs" if self._copy_begins(until) else "python" if following else "ending"
        return _Pause(kind, self._annotation(middle), length, following)

    def _innermost(self, at_us: float) -> int:
        """The operation that a thread is in; of several threads the one that began last; NONE for none."""
        ops, best = self.trace.ops, NONE
        for rows, starts in zip(self.threads, self.starts, strict=True):
            place = int(np.searchsorted(starts, at_us, "right")) - 1
            op = int(rows[place]) if place >= 0 else NONE
            while op != NONE and ops.end_us[op] < at_us:
                op = int(ops.parent[op])
            if op != NONE and (best == NONE or ops.start_us[op] > ops.start_us[best]):
                best = op
        return best

    def _chain(self, op: int) -> list[int]:
        """The operation and those around it."""
        chain = []
        while op != NONE:
            chain.append(op)
            op = int(self.trace.ops.parent[op])
        return chain

    def _module(self, chain: Sequence[int]) -> str:
        numbers = (int(self.trace.ops.module[o]) for o in chain)
        return next((self.trace.modules[n] for n in numbers if n != NONE), "")

    def _following(self, at_us: float) -> str:
        """Name of the first operation that begins then or later; "" for none."""
        ops, best = self.trace.ops, NONE
        for rows, starts in zip(self.threads, self.starts, strict=True):
            place = int(np.searchsorted(starts, at_us))
            if place < len(rows) and (best == NONE or starts[place] < ops.start_us[best]):
                best = int(rows[place])
        return self.trace.names[int(ops.name[best])] if best != NONE else ""

    def _long_call(self, at_us: float) -> str | None:
        """Name of the kernel whose launch, a long one, the host is in."""
        starts, ends, kernels = self.long_calls
        place = int(np.searchsorted(starts, at_us, "right")) - 1
        if place < 0 or ends[place] <= at_us:
            return None
        return self.trace.names[int(self.trace.kernels.name[kernels[place]])]

    def _annotation(self, at_us: float) -> str:
        """The shortest annotation around a time that is not a step's; "" for none."""
        place = self.around.at(at_us)
        return self.trace.names[int(self.trace.annotations.name[self.unstepped[place]])] if place != NONE else ""

    @cached_property
    def unstepped(self) -> Longs:
        """The annotations that are not a step's."""
        steps = [i for i, name in enumerate(self.trace.names) if name.startswith("ProfilerStep")]
        return np.flatnonzero(~np.isin(self.trace.annotations.name, steps))

    @cached_property
    def around(self) -> ShortestAround:
        """The shortest of them around each time; of several the first by name."""
        marks, rows = self.trace.annotations, self.unstepped
        used, of_row = np.unique(marks.name[rows], return_inverse=True)
        rank = np.argsort(sorted(range(len(used)), key=lambda i: self.trace.names[int(used[i])]))
        return ShortestAround(marks.start_us[rows], marks.end_us[rows], rank[of_row])

    def _copy_begins(self, at_us: float) -> bool:
        """Whether a copy from the host is the work that starts there, within a µs of rounding."""
        place = int(np.searchsorted(self.copies_in, at_us - 1.0))
        return place < len(self.copies_in) and self.copies_in[place] <= at_us + 1.0


def _long_calls(trace: Trace) -> tuple[Floats, Floats, Longs]:
    """(starts, ends, kernels) of the calls that took long to launch one kernel, in order; a graph's launch is none."""
    kernels = trace.kernels
    if kernels.launch_end_us is None:
        return np.empty(0), np.empty(0), np.empty(0, np.int64)
    took = kernels.launch_end_us - kernels.launch_us
    rows = np.flatnonzero((took >= LONG_CALL_US) & ~kernels.graph)
    rows = rows[np.argsort(kernels.launch_us[rows], kind="stable")]
    return kernels.launch_us[rows], kernels.launch_end_us[rows], rows


def _covers(spans: tuple[Floats, Floats], at_us: float) -> bool:
    """Whether one of disjoint spans, in order, holds a time."""
    place = int(np.searchsorted(spans[0], at_us, "right")) - 1
    return place >= 0 and bool(spans[1][place] > at_us)
