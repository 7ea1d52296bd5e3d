"""Which steps of a trace are mined. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

from profiler.trace.analyze.steps import VARYING, measured_steps, middle_steps, step_time_us
from profiler.trace.execution_trace import Execution
from profiler.trace.model import Step, Trace

MAX_STEPS = 16
"""Steps mined where they differ from each other (sequences of varying length)."""
COVERED = 0.5
"""Share of a step's outermost operations that an execution trace has; below it the match is by accident."""
NEARLY = 0.95
"""Share of the best covered step's coverage that another step may lack and still count as covered."""


def chosen_steps(trace: Trace, execution: Execution | None = None) -> tuple[Step, ...]:
    """The steps that every figure of a step is the mean of: those in the middle (`middle_steps`), so that the step's
    time is the median; all measured ones where the steps' operations have other sizes from step to step.

    execution: an execution trace, often recorded of fewer steps than the trace. Where it lacks one of the middle, the
    step that it has whose time is nearest to theirs.
    """
    measured = measured_steps(trace)
    if _vary(trace, measured):
        return measured[:MAX_STEPS]
    middle = middle_steps(trace)
    return middle if execution is None or not middle else _most_covered(trace, middle, execution)


def _vary(trace: Trace, measured: Sequence[Step]) -> bool:
    if trace.step_source == "window" or len(measured) < 3 or not trace.has_shapes:
        return False
    details = [set(trace.ops.detail[s.ops].tolist()) for s in measured]
    common = set.intersection(*details)
    varying = [len(d - common) / max(1, len(d)) for d in details]
    return sorted(varying)[len(varying) // 2] >= VARYING


def _most_covered(trace: Trace, middle: tuple[Step, ...], execution: Execution) -> tuple[Step, ...]:
    """Of the measured steps, and of those that warm up only where it has none of the measured ones."""
    covered = _covered(trace, measured_steps(trace), execution) or _covered(trace, trace.steps, execution)
    if not covered or all(any(step is one for one in covered) for step in middle):
        return middle
    middle_us = sum(step_time_us(trace, step) for step in middle) / len(middle)
    return (min(covered, key=lambda step: abs(step_time_us(trace, step) - middle_us)),)


def _covered(trace: Trace, steps: Sequence[Step], execution: Execution) -> list[Step]:
    """Those that the execution trace has about as much of as of the one that it has most of, where that is enough."""
    shares = [(_share(trace, step, execution), step) for step in steps if len(step.kernels)]
    best = max((share for share, _ in shares), default=0.0)
    return [step for share, step in shares if share >= NEARLY * best] if best >= COVERED else []


def _share(trace: Trace, step: Step, execution: Execution) -> float:
    """Share of the step's outermost operations that the execution trace has by number and name."""
    ops, names = trace.ops, trace.names
    numbered = zip(ops.record_id[step.ops].tolist(), ops.name[step.ops].tolist(), strict=True)
    matching = sum(execution.name(record) == names[name] for record, name in numbered)
    return matching / len(step.ops) if len(step.ops) else 0.0
