"""Steps of a trace, which one to look at, and how busy the GPU was in it."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from profiler.trace.links import nesting
from profiler.trace.model import NONE, Annotations, Floats, Kernels, Longs, Memory, Ops, Step, Trace

STEP_PREFIX = "ProfilerStep"

WARM_UP_RATIO = 1.5
"""A first step this much longer than the median is a warm-up (allocator, lazy loading, autotuning) and left out."""

COVERING_SHARE = 0.5
"""Share of the kernel time that must be launched inside an annotation for it to be taken for the step."""

_MARKERS = ("Optimizer.zero_grad#", "Optimizer.step#", "enumerate(DataLoader)#")
"""What PyTorch itself annotates once a step where the user annotated nothing."""

_INNER = ("nccl:", "gloo:", "mpi:", "ucc:", "## Call CompiledFxGraph", "DistributedDataParallel.", *_MARKERS)
"""Annotations that PyTorch writes inside a step: never a step themselves."""

_DIGITS = re.compile(r"\d+")

Window = tuple[str, float, float]
"""Name, start and end in microseconds."""


def find_steps(
    names: Sequence[str], ops: Ops, kernels: Kernels, memory: Memory, memory_launch_us: Floats, annotations: Annotations
) -> tuple[tuple[Step, ...], int, str]:
    """(steps, distinct ProfilerStep names, where the steps are from: "profiler", "annotation" or "window").

    memory_launch_us: start of each copy's runtime event, NaN where it is not in the window.
    """
    windows = _profiler_windows(names, annotations)
    profiler_steps, source = len(windows), "profiler"
    if not windows:
        whole = _whole(ops, kernels, memory, annotations)
        if whole is None:
            return (), 0, "window"
        at_us, weight_us = _work(ops, kernels)
        windows, source = _annotation_windows(names, annotations, at_us, weight_us, whole[2]), "annotation"
        if not windows:
            windows, source = [whole], "window"
    steps = _fill(windows, source == "window", ops, kernels, memory, memory_launch_us)
    return steps, profiler_steps, source


def _profiler_windows(names: Sequence[str], annotations: Annotations) -> list[Window]:
    """One window for each distinct ProfilerStep name (a name may stand on several threads), in order of start."""
    chosen = {i: name for i, name in enumerate(names) if name.startswith(STEP_PREFIX)}
    windows: dict[str, Window] = {}
    for number, start, end in zip(
        annotations.name.tolist(), annotations.start_us.tolist(), annotations.end_us.tolist(), strict=True
    ):
        name = chosen.get(number)
        if name is not None:
            windows.setdefault(name, (name, start, end))
    return sorted(windows.values(), key=lambda w: w[1])


def _annotation_windows(
    names: Sequence[str], annotations: Annotations, at_us: Floats, weight_us: Floats, end_us: float
) -> list[Window]:
    """Repetitions of the outermost annotation in which most of the work is launched.

    Else the time from one of PyTorch's own markers to the next; else one annotation around most of the work. Names that
    differ in their numbers only ("step_3", "step_4") are one annotation. at_us, weight_us: when each piece of work was
    launched and how long it took. end_us: the end of the trace.
    """
    order, parent = nesting(annotations.thread, annotations.start_us, annotations.end_us)
    depth: list[int] = []
    groups: defaultdict[tuple[int, str], list[Window]] = defaultdict(list)
    markers: defaultdict[str, list[float]] = defaultdict(list)
    for row, outer in zip(order.tolist(), parent.tolist(), strict=True):
        depth.append(depth[outer] + 1 if outer != NONE else 0)
        name = names[annotations.name[row]]
        start, end = float(annotations.start_us[row]), float(annotations.end_us[row])
        if name.startswith(_MARKERS):
            markers[name].append(start)
        elif not name.startswith(_INNER):
            groups[depth[-1], _DIGITS.sub("#", name)].append((name, start, end))
    covering = {
        key: share
        for key, group in groups.items()
        if (share := _launched_share(group, at_us, weight_us)) >= COVERING_SHARE
    }
    repeated = [key for key in covering if len(groups[key]) > 1]
    if repeated:
        chosen = min(repeated, key=lambda key: (key[0], -covering[key]))
        return sorted(groups[chosen], key=lambda w: w[1])
    opening = _opening_marker([sorted(starts) for starts in markers.values() if len(starts) > 1])
    if opening:
        ends = [*opening[1:], end_us]
        return [(f"step {i}", start, end) for i, (start, end) in enumerate(zip(opening, ends, strict=True))]
    return groups[min(covering, key=lambda key: (key[0], -covering[key]))] if covering else []


def _opening_marker(repeated: list[list[float]]) -> list[float]:
    """Of the markers that occur most often (once in every step) the one that comes first in it."""
    most = max(map(len, repeated), default=0)
    return min((starts for starts in repeated if len(starts) == most), default=[])


def _launched_share(windows: list[Window], at_us: Floats, weight_us: Floats) -> float:
    """Share of the work that was launched in any of the windows."""
    total = float(weight_us.sum())
    starts = np.array(sorted(w[1] for w in windows))
    ends = np.array(sorted(w[2] for w in windows))
    # A window is open at t when more have started than have ended by then.
    inside = np.searchsorted(starts, at_us, side="right") > np.searchsorted(ends, at_us, side="right")
    return float(weight_us[inside].sum()) / total if total > 0.0 else 0.0


def _whole(ops: Ops, kernels: Kernels, memory: Memory, annotations: Annotations) -> Window | None:
    starts = np.concatenate((ops.start_us, kernels.start_us, memory.start_us))
    if not len(starts):
        return None
    ends = np.concatenate((ops.end_us, kernels.start_us + kernels.duration_us, memory.start_us + memory.duration_us))
    launches = kernels.launch_us[~np.isnan(kernels.launch_us)]
    first = min(float(starts.min()), float(launches.min(initial=np.inf)))
    return "window", first, float(ends.max())


def _work(ops: Ops, kernels: Kernels) -> tuple[Floats, Floats]:
    """(launch, duration) of kernels, in microseconds; of outermost ops where there are no kernels."""
    if len(kernels.start_us):
        return np.where(np.isnan(kernels.launch_us), kernels.start_us, kernels.launch_us), kernels.duration_us
    outermost = ops.parent == NONE
    return ops.start_us[outermost], (ops.end_us - ops.start_us)[outermost]


def _fill(
    windows: list[Window], everything: bool, ops: Ops, kernels: Kernels, memory: Memory, memory_launch_us: Floats
) -> tuple[Step, ...]:
    """Steps with what belongs to them: by launch time, else by own start; or all of it to the only one."""
    outermost = np.flatnonzero(ops.parent == NONE)
    kernel_at = np.where(np.isnan(kernels.launch_us), kernels.start_us, kernels.launch_us)
    memory_at = np.where(np.isnan(memory_launch_us), memory.start_us, memory_launch_us)

    def split(at: Floats) -> list[Longs]:
        if everything:
            return [np.arange(len(at), dtype=np.int64)]
        order = np.argsort(at, kind="stable")
        first = np.searchsorted(at[order], [w[1] for w in windows])
        last = np.searchsorted(at[order], [w[2] for w in windows])
        return [np.sort(order[a:b]) for a, b in zip(first.tolist(), last.tolist(), strict=True)]

    return tuple(
        Step(name=name, start_us=start, end_us=end, kernels=of_kernels, ops=outermost[of_ops], memory=of_memory)
        for (name, start, end), of_kernels, of_ops, of_memory in zip(
            windows, split(kernel_at), split(ops.start_us[outermost]), split(memory_at), strict=True
        )
    )


def union_us(start_us: Floats, end_us: Floats) -> float:
    """Time covered by intervals that may overlap (several streams), in microseconds."""
    if not len(start_us):
        return 0.0
    order = np.argsort(start_us, kind="stable")
    start, end = start_us[order], end_us[order]
    reached = np.concatenate(([-np.inf], np.maximum.accumulate(end)[:-1]))
    return float(np.maximum(0.0, end - np.maximum(start, reached)).sum())


def kernel_busy_us(trace: Trace, step: Step | None = None) -> float:
    """Time in which at least one kernel ran, of one step or of the whole trace: union of intervals, in microseconds."""
    chosen = slice(None) if step is None else step.kernels
    start = trace.kernels.start_us[chosen]
    return union_us(start, start + trace.kernels.duration_us[chosen])


def gpu_busy_us(trace: Trace, step: Step | None = None) -> float:
    """As `kernel_busy_us`, with copies and sets."""
    kernels = slice(None) if step is None else step.kernels
    memory = slice(None) if step is None else step.memory
    start = np.concatenate((trace.kernels.start_us[kernels], trace.memory.start_us[memory]))
    duration = np.concatenate((trace.kernels.duration_us[kernels], trace.memory.duration_us[memory]))
    return union_us(start, start + duration)


def step_time_us(trace: Trace, step: Step) -> float:
    """How long one step takes: its host window, or its GPU work where the host runs ahead and the window is shorter."""
    return max(step.duration_us, gpu_busy_us(trace, step))


def gpu_busy_share(trace: Trace, step: Step) -> float | None:
    """Share of the step in which the GPU did anything, 0 to 1; None where the trace has no GPU work or no time."""
    time_us = step_time_us(trace, step)
    if time_us <= 0.0 or not (len(trace.kernels.start_us) or len(trace.memory.start_us)):
        return None
    return gpu_busy_us(trace, step) / time_us


def idle_us(trace: Trace, step: Step) -> float:
    """Time of the step in which the GPU did nothing, in microseconds."""
    return step_time_us(trace, step) - gpu_busy_us(trace, step)


def steady_step(trace: Trace) -> Step:
    """The step of median time, leaving out a first one that warms up. Raises ValueError where the trace has none.

    Steps without kernels do not count where others have some: a truncated file has lost theirs.
    """
    steps = [s for s in trace.steps if len(s.kernels)] or list(trace.steps)
    if not steps:
        raise ValueError("a trace without ops and kernels has no step")
    times = [step_time_us(trace, step) for step in steps]
    if len(steps) >= 3 and times[0] > WARM_UP_RATIO * statistics.median(times):
        steps, times = steps[1:], times[1:]
    return steps[times.index(statistics.median_low(times))]
