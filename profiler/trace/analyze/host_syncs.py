"""What happens between the model's operations, in none of them: waits for the GPU, kernels of extensions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from profiler.trace.analyze.forward_calls import ANNOTATION, MODULE, Call, Windows, annotated_windows, forward_name
from profiler.trace.model import NONE, Step, Trace

_OWN_KERNELS = ("at::", "nccl", "ncclDevKernel", "rccl", "Memcpy", "Memset", "cub::", "thrust::")
"""Launched by PyTorch itself or by its libraries, though the operation around them was not recorded."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Something between two calls of the model. module: the innermost one that both calls are in, "" where unknown."""

    thread: int
    at_us: float
    within: str
    module: str = ""


def between_calls(
    trace: Trace, steps: Sequence[Step], calls_by_step: Sequence[Sequence[Call]]
) -> dict[tuple[str, str], list[Gap]]:
    """(kind, name) -> where: waits for the GPU and kernels launched past PyTorch, between two calls of the model.

    calls_by_step: the calls of each step, as `forward_calls.calls` gives them.
    """
    gaps: dict[tuple[str, str], list[Gap]] = {}
    forwards = annotated_windows(trace, forward_name)
    for step, step_calls in zip(steps, calls_by_step, strict=True):
        by_thread: dict[int, list[Call]] = {}
        for call in step_calls:
            by_thread.setdefault(call.thread, []).append(call)
        firsts = {
            thread: next((c for c in thread_calls if c.within), thread_calls[0])
            for thread, thread_calls in by_thread.items()
        }
        starts = {thread: [c.start_us for c in thread_calls] for thread, thread_calls in by_thread.items()}
        for kind, name, thread, at_us in (*_waits(trace, step), *_extension_kernels(trace, step, by_thread)):
            place = bisect_right(starts.get(thread, ()), at_us)
            gap = _gap(trace, by_thread[thread], firsts[thread], place, at_us) if thread in by_thread else None
            if gap is not None and (gap.within != ANNOTATION or _amid(forwards, starts[thread], place, at_us)):
                gaps.setdefault((kind, name), []).append(gap)
    return gaps


def _amid(forwards: Windows, starts: Sequence[float], place: int, at_us: float) -> bool:
    """Whether the calls before and after lie in the innermost window too: benchmarks wait where a forward begins."""
    start, end = forwards.innermost(at_us) or (np.inf, 0.0)
    return start <= starts[place - 1] and starts[place] < end


def _waits(trace: Trace, step: Step) -> Iterator[tuple[str, str, int, float]]:
    """Kind, name, thread and start of the host's waits for the GPU in a step."""
    if trace.syncs is None:
        return
    syncs = trace.syncs
    for row in range(*np.searchsorted(syncs.start_us, (step.start_us, step.end_us)).tolist()):
        yield "synchronise", trace.names[int(syncs.name[row])], int(syncs.thread[row]), float(syncs.start_us[row])


def _extension_kernels(
    trace: Trace, step: Step, by_thread: dict[int, list[Call]]
) -> Iterator[tuple[str, str, int, float]]:
    """Kernels with the name of a C++ function that were launched in no operation, as if on the busiest thread.

    A Triton kernel has a plain name: torch.compile traces its launch.
    """
    main = max(by_thread, key=lambda t: len(by_thread[t]), default=NONE)
    kernels = trace.kernels
    outside_ops = (kernels.op == NONE) & kernels.launched & ~kernels.graph
    for row in step.kernels[outside_ops[step.kernels]].tolist():
        name = trace.names[int(kernels.name[row])].removeprefix("void ")
        if "(" in name and not name.startswith(_OWN_KERNELS):
            yield "extension-call", name.split("(")[0].split("<")[0] or name, main, float(kernels.launch_us[row])


def _gap(trace: Trace, thread_calls: Sequence[Call], first: Call, place: int, at_us: float) -> Gap | None:
    """The gap before the call at `place`, where it and the one before are the model's; None elsewhere.

    first: the model's first call in the step.
    """
    if not 0 < place < len(thread_calls):
        return None
    before, after = thread_calls[place - 1], thread_calls[place]
    thread = after.thread
    if not before.within or not after.within or at_us < float(trace.ops.end_us[before.op]):
        return None
    if before.within != MODULE:
        return Gap(thread, at_us, before.within)
    if trace.ops.module[after.op] == trace.ops.module[first.op]:
        return None  # where a forward begins: what came before it lies between two of them
    shared = _shared_path(_path(trace, before), _path(trace, after))
    return Gap(thread, at_us, MODULE, shared) if shared else None


def _path(trace: Trace, call: Call) -> list[str]:
    number = int(trace.ops.module[call.op])
    return trace.modules[number].split("/") if number != NONE else []


def _shared_path(one: Sequence[str], other: Sequence[str]) -> str:
    shared = []
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        shared.append(a)
    return "/".join(shared)
