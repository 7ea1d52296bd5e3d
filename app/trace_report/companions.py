"""What was recorded with a trace, taken into it: another trace's operations, an execution trace's operands.

`strict`: what cannot be used raises TraceError; else the trace goes on without it and has a note of level "error".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from app.units import percent
from profiler.trace import TraceError, read_trace
from profiler.trace.analyze.companion_trace import borrow, lender_of_launches, lender_of_step
from profiler.trace.execution_trace import Execution, read_execution
from profiler.trace.model import NONE, Note, Trace
from profiler.trace.notes import damage_notes
from profiler.trace.read.capture import captured_launches
from profiler.trace.read.source import Limits

JOINED = 0.9
"""Share of the operations that an execution trace of the same run has; the rest are record functions without an id."""

NOT_USED = ("nothing-borrowed", "nothing-to-borrow")
"""Notes that say that a companion was given for nothing."""


@dataclass(frozen=True, slots=True)
class Companion:
    """A file that was recorded with a trace. name: what people call it."""

    path: str | Path
    name: str


def lend(trace: Trace, companion: Companion, limits: Limits, strict: bool) -> Trace:
    """The trace with the operations of its companion: of the steady step, else of a graph's capture in it."""
    try:
        lent = _borrow(trace, companion, limits)
    except TraceError as error:
        return _without(trace, companion, error, strict)
    if strict:
        return lent
    return replace(lent, notes=tuple(replace(n, level="error") if n.code in NOT_USED else n for n in lent.notes))


def observe(trace: Trace, execution: Companion, strict: bool) -> tuple[Trace, Execution | None]:
    """The execution trace, and the trace with a note where there is none."""
    try:
        read = read_execution(execution.path)
    except TraceError as error:
        return _without(trace, execution, error, strict), None
    return replace(trace, notes=(*trace.notes, *damage_notes(read.damage, execution.name))), read


def judge_join(trace: Trace, share: float, strict: bool) -> Trace:
    """The trace with a note on how much of it the execution trace told. share: of its operations with kernels."""
    if share == 0.0:
        error = TraceError(
            "execution-trace-other-run",
            "No operation of the trace is in the execution trace: the files are of different runs or steps.",
            "Record both with one profiler: profile(execution_trace_observer=ExecutionTraceObserver()...).",
        )
        return _without(trace, None, error, strict)
    code, level = ("execution-trace", "info") if share >= JOINED else ("execution-trace-in-part", "warning")
    rest = "" if share >= JOINED else "; for the others it is inferred from sizes"
    message = f"the execution trace tells for {percent(share)} of the operations which operand is which value{rest}"
    return replace(trace, notes=(*trace.notes, Note(code, level, message)))


def _without(trace: Trace, companion: Companion | None, error: TraceError, strict: bool) -> Trace:
    """The trace with a note instead of the companion; raises the error, with the companion's name, where strict."""
    said = f"{companion.name}: {error.message}" if companion else error.message
    if strict:
        raise TraceError(error.code, said, error.remedy) from error
    message = f"{said} The trace was read without it."
    return replace(trace, notes=(*trace.notes, Note(error.code, "error", message, error.remedy)))


def _borrow(trace: Trace, companion: Companion, limits: Limits) -> Trace:
    path = Path(companion.path)
    other = read_trace(path, limits)
    trace = replace(trace, notes=(*trace.notes, *damage_notes(other.damage, companion.name)))
    lender = lender_of_launches(other, captured_launches(path, other, limits)) if _is_capture(other) else None
    lender = lender or lender_of_step(other)
    if lender is None:
        message = f"{companion.name} has no kernels that operations launched: nothing can be borrowed from it."
        remedy = "Give a trace of the same model recorded without graphs, with record_shapes=True."
        return replace(trace, notes=(*trace.notes, Note("nothing-borrowed", "warning", message, remedy)))
    lent = borrow(trace, lender, companion.name)
    if lent is trace:
        message = f"No kernel of this trace is hidden by a CUDA graph: its companion {companion.name} was not needed."
        return replace(trace, notes=(*trace.notes, Note("nothing-to-borrow", "warning", message)))
    return lent


def _is_capture(other: Trace) -> bool:
    """Whether hardly anything ran though there are operations: what is put into a graph does not run meanwhile."""
    return len(other.kernels.name) * 10 < int((other.ops.parent == NONE).sum())
