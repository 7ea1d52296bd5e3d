"""Why the GPU idles inside a step, and what the step's bottleneck is.

The wall time of a step (`gpu_utilization.gpu_window`) falls into the time in which anything ran on the GPU and the
gaps in which nothing did. Every gap has one cause, by what ends it: the kernel, copy or set that starts next.

- communication: that work or the last before it is a communication kernel and was launched before the gap began (it
  waited for another rank, or for a collective to be done); or the host stood in a communication call for more than half
  of the gap.
- device: else, that work was launched before the gap began: the GPU had it and was not ready. Some µs between any two
  kernels, dependencies between streams. As long as the host was still inside the call that launched it, the GPU did not
  have it yet, and that part of the gap is launch's.
- host: the launch came after the gap had begun, and in between the host waited for the GPU (a synchronising call) or
  did nothing that the profiler sees for more than PAUSE_US (data loading, slow Python, a long computation on the CPU).
  The gap after the last work of a step is the host's too. So is a stretch of more than PAUSE_US that would be the
  device's, and during most of which the host stood in a synchronising call: it could hand over nothing else meanwhile.
- launch: else. The host issues one operation after the other and each takes it longer than the GPU: launch-bound.

Where the work starts more than PAUSE_US after its launch returned, that last part of the gap is the device's. Where the
launch itself takes as long, that part is launch's, whatever came before.

A launch is a call with a length: loading a module lazily, a full queue or a graph of many kernels make it long. Only
the first kernel of a call waits for it; the later ones of a graph follow on the GPU. Copies keep the start of theirs: a
blocking one ends after the copy. Measured on the traces here: with launches as instants, a first hipLaunchKernel of
6.5 ms (70 % of the step of hta_mi250_minitoy) and a first cudaLaunchKernel of 3.06 s (7 %, hta_alexnet) counted as the
device's, and 3.5 and 1.1 % of the step in two training traces (timm_convnext, large_t5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler.trace.analyze.gpu_utilization import gaps, gpu_window, merge_intervals, union_us, work_intervals
from profiler.trace.analyze.kernel_kinds import communication_kernels, is_communication_op
from profiler.trace.model import NONE, Floats, Kernels, Longs, Step, Trace

PAUSE_US = 200.0
"""Host time without an operation's start or end, or a launch, from which it is not launching. Eager PyTorch takes 5 to
60 µs from one launch to the next on the traces measured here, up to 150 with stacks recorded."""

CAUSES = ("launch", "host", "communication", "device")


@dataclass(frozen=True, slots=True)
class StepParts:
    """Mean wall time of one step, in microseconds, and what it is made of. busy + the four idle parts = wall.

    kernels_us: union of compute kernels. communication_us: time in which communication runs and no compute kernel does
    (it is not hidden). copies_us: time in which nothing but copies and sets run.
    """

    wall_us: float
    kernels_us: float
    communication_us: float
    copies_us: float
    idle_launch_us: float
    idle_host_us: float
    idle_communication_us: float
    idle_device_us: float

    @property
    def busy_us(self) -> float:
        return self.kernels_us + self.communication_us + self.copies_us

    @property
    def idle_us(self) -> float:
        return self.idle_launch_us + self.idle_host_us + self.idle_communication_us + self.idle_device_us


def step_parts(trace: Trace, steps: Sequence[Step]) -> StepParts | None:
    """The mean over the steps; None for no step."""
    if not steps:
        return None
    host = _Host(trace)
    rows = np.array([_parts(trace, step, host) for step in steps]).mean(axis=0)
    return StepParts(*rows.tolist())


def _parts(trace: Trace, step: Step, host: _Host) -> tuple[float, ...]:
    window, inside, begin, finish = _inside(trace, step)
    of_kernels = inside < len(trace.kernels.start_us)
    compute = of_kernels & ~host.communication[inside]
    kernels_us = union_us(begin[compute], finish[compute])
    running_us = union_us(begin[of_kernels], finish[of_kernels])
    idle = dict.fromkeys(CAUSES, 0.0)
    for gap in _gaps(trace, step, host):
        idle[gap.cause] += gap.length_us
    return (
        window[1] - window[0], kernels_us, running_us - kernels_us, union_us(begin, finish) - running_us,
        *(idle[cause] for cause in CAUSES),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gap:
    """Time in which nothing ran on the GPU, and why: one of CAUSES. start_us: from the trace's origin."""

    start_us: float
    length_us: float
    cause: str


def idle_gaps(trace: Trace, step: Step) -> list[Gap]:
    """Every gap of one step, or each of its parts, in order: what the idle times of `step_parts` add up."""
    return list(_gaps(trace, step, _Host(trace)))


def _inside(trace: Trace, step: Step) -> tuple[tuple[float, float], Longs, Floats, Floats]:
    """The step's window, the GPU work that reaches into it (kernels first), and its starts and ends cut to it."""
    window = gpu_window(trace, step)
    start, end = work_intervals(trace)
    inside = np.flatnonzero((end > window[0]) & (start < window[1]) & (end > start))
    return window, inside, np.maximum(start[inside], window[0]), np.minimum(end[inside], window[1])


def _gaps(trace: Trace, step: Step, host: _Host) -> Iterator[Gap]:
    window, inside, begin, finish = _inside(trace, step)
    start, end = work_intervals(trace)
    launch, handed_over, communication = host.launch_us[inside], host.handed_over_us[inside], host.communication[inside]
    free_from, free_to = gaps(begin, finish, window)
    parts = _causes(free_from, free_to, start[inside], end[inside], launch, handed_over, communication, host)
    return (gap for gap in parts if gap.length_us > 0.0)


class _Host:
    """What the host did, as far as it explains gaps; and of all GPU work, kernels first: launch, whether it is
    communication."""

    def __init__(self, trace: Trace) -> None:
        kernels, memory, ops = trace.kernels, trace.memory, trace.ops
        copies = memory.launch_us if memory.launch_us is not None else np.full(len(memory.start_us), np.nan)
        self.launch_us = np.concatenate((kernels.launch_us, copies))
        self.handed_over_us = np.concatenate((_call_ends(kernels), copies))
        marked = communication_kernels(trace.names, kernels.name)
        self.communication = np.concatenate((marked, np.zeros(len(memory.start_us), np.bool_)))
        launching = np.unique(ops.thread[kernels.op[kernels.op != NONE]])
        on_launching = np.isin(ops.thread, launching)
        launches_us = self.launch_us[~np.isnan(self.launch_us)]
        calls = _calls(kernels)
        ticks = np.unique(np.concatenate((ops.start_us[on_launching], ops.end_us[on_launching], launches_us, *calls)))
        long = np.flatnonzero(np.diff(ticks) > PAUSE_US)
        # Every start and end of a call is a tick: between two of them the host is inside one all the time, or never.
        middle = (ticks[long] + ticks[long + 1]) / 2
        inside = np.searchsorted(calls[0], middle) > np.searchsorted(calls[1], middle)
        long = long[~inside]
        syncs = trace.syncs
        self.pauses = ticks[long], ticks[long + 1]
        self.syncs = merge_intervals(syncs.start_us, syncs.end_us) if syncs is not None else (np.empty(0), np.empty(0))
        marks = np.array([is_communication_op(name) for name in trace.names], np.bool_)
        of = marks[ops.name] if len(ops.name) else np.zeros(0, np.bool_)
        self.collectives = merge_intervals(ops.start_us[of], ops.end_us[of])


def _calls(kernels: Kernels) -> tuple[Floats, Floats]:
    """(starts, ends) of the time in which the host is inside a call that launches kernels, in order."""
    if kernels.launch_end_us is None:
        return np.empty(0), np.empty(0)
    return merge_intervals(kernels.launch_us[kernels.launched], kernels.launch_end_us[kernels.launched])


def _call_ends(kernels: Kernels) -> Floats:
    """When the call that launched each kernel had handed it over: its end for the first kernel of a call, else its
    start; NaN where it is not in the window."""
    handed_over_us = kernels.launch_us.copy()
    if kernels.launch_end_us is not None:
        # Kernels are in order of start: the first of each launch is the one that the host was handing over.
        first = np.unique(kernels.launch_us, return_index=True)[1]
        handed_over_us[first] = np.maximum(kernels.launch_end_us[first], handed_over_us[first])
    return handed_over_us


def _causes(
    free_from: Floats, free_to: Floats, start: Floats, end: Floats, launch: Floats, handed_over: Floats,
    communication: npt.NDArray[np.bool_], host: _Host,
) -> Iterator[Gap]:  # fmt: skip
    """Each gap, or its parts in order; parts may be empty.

    start, end, launch, handed_over, communication: of the work in the window. handed_over: when the call that launched
    it had handed it over; communication: whether it is any.
    """
    by_start, by_end = np.argsort(start, kind="stable"), np.argsort(end, kind="stable")
    following = np.searchsorted(start[by_start], free_to)
    before = np.searchsorted(end[by_end], free_from, side="right") - 1
    rows = np.column_stack((free_from, free_to, following, before)).tolist()
    for a, b, after, last in ((a, b, int(after), int(last)) for a, b, after, last in rows):
        if after == len(start):
            yield Gap(a, b - a, "host")
            continue
        work = by_start[after]
        launch_us, handed_over_us = float(launch[work]), float(handed_over[work])
        late = launch_us > a
        around = communication[work] or (last >= 0 and communication[by_end[last]])
        if (around and not late) or overlap(host.collectives, a, b) > (b - a) / 2:
            yield Gap(a, b - a, "communication")
            continue
        if not late:
            calling_us = max(0.0, min(b, handed_over_us) - a) if handed_over_us > a else 0.0
            yield Gap(a, calling_us, "launch")
            yield Gap(a + calling_us, b - a - calling_us, _queued(host, a + calling_us, b))
            continue
        host_waited = overlap(host.syncs, a, launch_us) > 0.0 or _longest(host.pauses, a, min(launch_us, b)) > PAUSE_US
        queued_us = b - handed_over_us if b - handed_over_us > PAUSE_US else 0.0
        calling_us = max(0.0, min(b, handed_over_us) - launch_us) if handed_over_us - launch_us > PAUSE_US else 0.0
        waiting_us = b - a - calling_us - queued_us
        yield Gap(a, waiting_us, "host" if host_waited else "launch")
        yield Gap(a + waiting_us, calling_us, "launch")
        yield Gap(b - queued_us, queued_us, _queued(host, b - queued_us, b))


def _queued(host: _Host, start_us: float, end_us: float) -> str:
    """The cause of a stretch in which the GPU had work and did not start it."""
    stood = end_us - start_us > PAUSE_US and overlap(host.syncs, start_us, end_us) > (end_us - start_us) / 2
    return "host" if stood else "device"


def overlap(spans: tuple[Floats, Floats], start_us: float, end_us: float) -> float:
    """Time of disjoint spans, in order, that lies in [start, end)."""
    first = int(np.searchsorted(spans[1], start_us, side="right"))
    last = int(np.searchsorted(spans[0], end_us))
    if first >= last:
        return 0.0
    cut = np.minimum(spans[1][first:last], end_us) - np.maximum(spans[0][first:last], start_us)
    return float(cut.sum())


def _longest(spans: tuple[Floats, Floats], start_us: float, end_us: float) -> float:
    """The longest part of one of the spans that lies in [start, end)."""
    first = int(np.searchsorted(spans[1], start_us, side="right"))
    last = int(np.searchsorted(spans[0], end_us))
    if first >= last:
        return 0.0
    return float((np.minimum(spans[1][first:last], end_us) - np.maximum(spans[0][first:last], start_us)).max())


@dataclass(frozen=True, slots=True)
class Critical:
    """The bottleneck: what takes most of the step's time. name: gpu, launches, host, communication or copies."""

    name: str
    share: float
    because: str


_WORDS = {
    "gpu": "compute kernels run on the GPU",
    "launches": "the GPU waits for the next launch: the host issues kernels more slowly than the GPU runs them",
    "host": "the GPU waits for the host: synchronising calls, data loading or slow Python",
    "communication": "the GPU has nothing but communication to run, or waits for it",
    "copies": "only copies and sets run on the GPU",
    "queue": "the GPU has work in its queue and has not started it: dependencies between streams, or a long launch",
}


def critical_resource(parts: StepParts) -> Critical | None:
    """The largest of these, as a share of the wall time; None where the step has no length.

    gpu (compute kernels), launches, host, communication (not hidden, and its gaps), copies, queue (gaps of the device).
    """
    if parts.wall_us <= 0.0:
        return None
    times = {
        "gpu": parts.kernels_us,
        "launches": parts.idle_launch_us,
        "host": parts.idle_host_us,
        "communication": parts.communication_us + parts.idle_communication_us,
        "copies": parts.copies_us,
        "queue": parts.idle_device_us,
    }
    name = max(times, key=lambda n: times[n])
    share = times[name] / parts.wall_us
    return Critical(name, share, f"for {100 * share:.1f} % of the step {_WORDS[name]}")
