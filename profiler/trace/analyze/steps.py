"""Steps of a trace, which one to look at, and how busy the GPU was in it."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from profiler.trace.analyze.gpu_utilization import gpu_window, union_us
from profiler.trace.analyze.kernel_links import nesting
from profiler.trace.analyze.serving_phases import of_one_kind
from profiler.trace.analyze.step_detection import repeated_windows
from profiler.trace.mmap_columns import pieces, take
from profiler.trace.model import NONE, Annotations, Floats, Kernels, Longs, Memory, Ops, Step, Trace

STEP_PREFIX = "ProfilerStep"

WARM_UP_RATIO = 1.5
"""First steps this much longer than the median are a warm-up (allocator, lazy loading, autotuning) and left out; of two
the first where it is this much longer than the other and they do the same."""

VARYING = 0.2
"""Share of a step's distinct operations, with their shapes, that the other steps lack; from this on the work varies."""

COVERING_SHARE = 0.5
"""Share of the kernel time that must be launched inside an annotation for it to count as the step."""

OPTIMIZER = ("Optimizer.zero_grad#", "Optimizer.step#")
"""How torch.optim annotates what its Python and its launches take, before the class."""
_MARKERS = (*OPTIMIZER, "enumerate(DataLoader)#")
"""What PyTorch itself annotates once a step where the user annotated nothing."""

_INNER = ("nccl:", "gloo:", "mpi:", "ucc:", "## Call CompiledFxGraph", "DistributedDataParallel.", *_MARKERS)
"""Annotations that PyTorch writes inside a step: never a step themselves."""

_DIGITS = re.compile(r"\d+")

Window = tuple[str, float, float]
"""Name, start and end in microseconds."""


def find_steps(
    names: Sequence[str], ops: Ops, kernels: Kernels, memory: Memory, memory_launch_us: Floats, annotations: Annotations
) -> tuple[tuple[Step, ...], int, str]:
    """(steps, distinct ProfilerStep names, where the steps are from: "profiler", "annotation", "repetition" or
    "window"): the first of these that the trace has.

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
            windows, source = repeated_windows(kernels, ops), "repetition"
        if not windows:
            windows, source = [whole], "window"
    steps = _fill(windows, source == "window", ops, kernels, memory, memory_launch_us)
    return steps, profiler_steps, source


def _profiler_windows(names: Sequence[str], annotations: Annotations) -> list[Window]:
    """One window for each distinct ProfilerStep name (a name may be on several threads), in order of start."""
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
        ends = [*opening[1:], max(end_us, opening[-1])]  # the last may come after all work
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
    outermost = np.concatenate(
        [
            np.empty(0, np.int64),
            *(np.flatnonzero(ops.parent[at] == NONE) + at.start for at in pieces(len(ops.parent), ops.parent)),
        ]
    )
    kernel_at = np.where(np.isnan(kernels.launch_us), kernels.start_us, kernels.launch_us)
    kernel_at[launched_before(kernels)] = -np.inf
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
            windows,
            split(kernel_at),
            split(cast("Floats", take(ops.start_us, outermost))),
            split(memory_at),
            strict=True,
        )
    )


def launched_before(kernels: Kernels) -> npt.NDArray[np.bool_]:
    """Kernels of work that was asked for before the recording began: without a launch in it, before one of their stream
    that has one. A stream runs in order, so they are no step's."""
    unlaunched = np.isnan(kernels.launch_us)
    before = np.zeros(len(unlaunched), np.bool_)
    if not unlaunched.any() or unlaunched.all():
        return before
    lanes = np.stack((kernels.device, kernels.stream))
    for lane in np.unique(lanes[:, unlaunched], axis=1).T:
        own = (lanes == lane[:, None]).all(axis=0)
        launched = kernels.start_us[own & ~unlaunched]
        if len(launched):
            before |= own & unlaunched & (kernels.start_us < launched.min())
    return before


def kernel_busy_us(trace: Trace, step: Step | None = None) -> float:
    """Time in which at least one kernel ran, of one step or of the whole trace: union of intervals, in microseconds."""
    chosen = slice(None) if step is None else step.kernels
    start = trace.kernels.start_us[chosen]
    return union_us(start, start + trace.kernels.duration_us[chosen])


def step_time_us(trace: Trace, step: Step) -> float:
    """Wall time of one step: the length of its `gpu_window`, in microseconds."""
    start, end = gpu_window(trace, step)
    return end - start


def measured_steps(trace: Trace) -> tuple[Step, ...]:
    """The steps that times are taken from, without those that warm up. () where the trace has none.

    Steps without kernels do not count where others have some: a truncated file has lost theirs. Those at the front are
    left out, as far as the middle, that take more than WARM_UP_RATIO times the median; of two the first, where it takes
    so much more than the other and does the same: a prefill before a decode is no warm-up. Of a serving engine's steps
    those of the kind that takes most kernel time (`serving_phases.of_one_kind`).
    """
    steps = [s for s in trace.steps if len(s.kernels)] or list(trace.steps)
    steps = of_one_kind(trace, steps)[1]
    times = [step_time_us(trace, step) for step in steps]
    usual = statistics.median(times) if len(times) > 2 else min(times, default=0.0)
    first = 0
    while first < len(steps) // 2 and times[first] > WARM_UP_RATIO * usual:
        first += 1
    return tuple(steps if first and len(steps) == 2 and _do_other_work(trace, *steps) else steps[first:])


def two_unlike(trace: Trace) -> bool:
    """Whether the measured steps are two that do different work and so take different times."""
    steps = measured_steps(trace)
    if len(steps) != 2:
        return False
    shorter, longer = sorted(step_time_us(trace, step) for step in steps)
    return longer > WARM_UP_RATIO * shorter and _do_other_work(trace, *steps)


def _do_other_work(trace: Trace, first: Step, second: Step) -> bool:
    """Whether the second step does what the first did not. What a first one does besides may be its warm-up."""
    done, doing = (_operations(trace, step) for step in (first, second))
    return len(doing - done) > VARYING * len(doing)


def _operations(trace: Trace, step: Step) -> set[int]:
    """Distinct outermost operations with their shapes; without shapes the kernels, which other sizes have others of."""
    if trace.has_shapes and len(step.ops):
        return set(trace.ops.detail[step.ops].tolist())
    return set(trace.kernels.name[step.kernels].tolist())


def middle_steps(trace: Trace) -> tuple[Step, ...]:
    """Of the measured steps the one of median time, of an even number the two in the middle, in their order: the mean
    over them is the median. () where the trace has none."""
    steps = measured_steps(trace)
    by_time = sorted(range(len(steps)), key=lambda place: step_time_us(trace, steps[place]))
    return tuple(steps[place] for place in sorted(by_time[(len(steps) - 1) // 2 : len(steps) // 2 + 1]))


def steady_step(trace: Trace) -> Step:
    """One that stands for the others: the shorter one in the middle. Raises ValueError where the trace has none."""
    steps = middle_steps(trace)
    if not steps:
        raise ValueError("a trace without ops and kernels has no step")
    return min(steps, key=lambda step: step_time_us(trace, step))


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Wall time of the measured steps, in microseconds.

    count: steps measured; left_out: steps of the trace that were not (warm-up, no kernels). low_us, high_us: the first
    and third quartile, by linear interpolation between the sorted times; the shortest and longest of fewer than four.
    """

    count: int
    left_out: int
    median_us: float
    low_us: float
    high_us: float
    shortest_us: float
    longest_us: float


def step_times(trace: Trace) -> StepTimes | None:
    """The median time of a step and its spread; None for a trace without steps."""
    times = np.array([step_time_us(trace, step) for step in measured_steps(trace)])
    if not len(times):
        return None
    low, high = (25.0, 75.0) if len(times) >= 4 else (0.0, 100.0)
    return StepTimes(
        count=len(times),
        left_out=len(trace.steps) - len(times),
        median_us=float(np.median(times)),
        low_us=float(np.percentile(times, low)),
        high_us=float(np.percentile(times, high)),
        shortest_us=float(times.min()),
        longest_us=float(times.max()),
    )
