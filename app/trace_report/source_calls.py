"""What each function of the recorded stacks calls, by the names that its text has it under, with the kernel time.

A recorded frame tells the first line of its function and not the line of a call. What it calls it does tell, and who
has the text finds the line: the one that has the name, or of several the one whose turn it is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from app.objects.trace import SourceCalls
from app.trace_report.called_from import CalledFrom
from profiler.trace.model import NONE, Trace
from profiler.trace.read.columns import MODULE_PREFIX
from profiler.trace.read.frames import Frame

MAX_CALLS, MAX_TURNS, MAX_NAMES = 800, 32, 5
"""Calls that are kept, those with most time; turns that are told apart, more are taken for a loop; names of one."""
WRAPPERS = frozenset(
    "wrapper wrapped wrapped_func wrapped_fn inner decorate_context decorate_autocast helper new_func new_fn func "
    "call_impl".split()
)
"""Names of functions that stand around another: the text of who calls has the other's."""
REFLECTED = frozenset("__rdiv__ __rtruediv__ __rsub__ __rpow__ __rfloordiv__ __rmod__ __rmatmul__ __pow__".split())
"""Methods of tensors in Python that stand for an operator and launch others."""
_BUILTIN = re.compile(r"^<built-in (?:function|method) (?P<name>\w+)\b")
_FUNCTION = re.compile(r"^.+\(\d+\): (?P<name>.+)$")

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    """function: as the tree has it; called: which call of it; child: which of what it calls; own: launches itself."""

    function: str
    called: int
    child: tuple[str, int]
    names: Names
    own: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """As `SourceCalls` has it."""

    function: str
    names: Names
    turn: int
    turns: int
    own: bool
    region: int


def source_calls(
    trace: Trace, called: CalledFrom, regions: Sequence[int], times: Sequence[float], steps: int
) -> SourceCalls | None:
    """regions, times: of each kernel, as for the trees. None where no function was open."""
    ops = trace.kernels.op[called.kernels].tolist()
    frames = dict(zip(ops, called.frames, strict=True))
    by_op = {op: list(_calls(trace, op, frames[op])) for op in sorted(frames) if op != NONE and frames[op].stack}
    if not by_op:
        return None
    turns: dict[tuple[int, Names], dict[tuple[str, int], int]] = defaultdict(dict)
    for calls in by_op.values():
        for call in calls:
            of = turns[call.called, call.names]
            of.setdefault(call.child, len(of))
    factors = lent_factors([op in by_op for op in ops], regions, times)
    sums: dict[_Row, float] = defaultdict(float)
    for op, region, time_us in zip(ops, regions, times, strict=True):
        for call in by_op.get(op, ()):
            of = turns[call.called, call.names]
            several = len(of) <= MAX_TURNS
            turn, count = (of[call.child], len(of)) if several else (0, MAX_TURNS + 1)
            sums[_Row(call.function, call.names, turn, count, call.own, region)] += time_us * factors.get(region, 1.0)
    return _columns(_merged(sums), steps)


def _merged(sums: dict[_Row, float]) -> dict[_Row, float]:
    """What a function launches by another once, with the region that most of it is in."""
    largest: dict[_Row, tuple[float, int]] = {}
    merged: dict[_Row, float] = defaultdict(float)
    for row, time_us in sums.items():
        of = row if row.own else replace(row, region=NONE)
        merged[of] += time_us
        largest[of] = max(largest.get(of, (0.0, NONE)), (time_us, row.region))
    return {replace(of, region=largest[of][1]): time_us for of, time_us in merged.items()}


def lent_factors(known: Sequence[bool], regions: Sequence[int], times: Sequence[float]) -> dict[int, float]:
    """By how much a region's work with a stack stands for its work without one, as a backward kernel's."""
    every, with_one = defaultdict[int, float](float), defaultdict[int, float](float)
    for is_known, region, time_us in zip(known, regions, times, strict=True):
        if region >= 0:
            every[region] += time_us
            with_one[region] += time_us if is_known else 0.0
    return {region: time_us / with_one[region] for region, time_us in every.items() if with_one[region]}


def _calls(trace: Trace, op: int, frame: Frame) -> Iterator[_Call]:
    """Of every function that was open the call in which this operation ran."""
    below: list[Frame] = []
    chain: list[Frame] = []
    at: Frame | None = frame
    while at is not None:
        chain.append(at)
        at = at.parent
    chain.reverse()
    seen = set[str]()
    last = max((place for place, f in enumerate(chain) if f.text), default=NONE)
    for place, of in enumerate(chain):
        if not of.text or of.text in seen:
            continue
        seen.add(of.text)
        below = chain[place + 1 :]
        outer = _outermost(trace, op, of.start_us)
        names = tuple(_names(below)) or (trace.names[trace.ops.name[outer]],)
        if place == last:
            names = (*names, trace.names[trace.ops.name[outer]]) if below else names
        child = ("frame", id(below[0])) if below else ("op", outer)
        yield _Call(of.text, id(of), child, tuple(dict.fromkeys(names))[:MAX_NAMES], place == last)


def _outermost(trace: Trace, op: int, start_us: float) -> int:
    """The outermost operation around this one that began within a call that began then."""
    while (parent := int(trace.ops.parent[op])) != NONE and trace.ops.start_us[parent] >= start_us:
        op = parent
    return op


def _names(below: Sequence[Frame]) -> Iterator[str]:
    """The names by which a function may have what it calls, down to the first that says what it is."""
    for frame in below:
        if frame.name.startswith(MODULE_PREFIX):
            yield "module " + frame.name.removeprefix(MODULE_PREFIX).rpartition("_")[0]
            return
        match = _BUILTIN.match(frame.name) or _FUNCTION.match(frame.name)
        name = match["name"] if match else ""
        if name in REFLECTED:
            yield name
            return
        if not name.isidentifier() or (name.startswith("__") and name.endswith("__")) or name in WRAPPERS:
            continue
        yield name
        if frame.text:
            return


def _columns(sums: dict[_Row, float], steps: int) -> SourceCalls:
    rows = sorted(sums.items(), key=lambda row: -row[1])[:MAX_CALLS]
    functions: dict[str, int] = {}
    callees: dict[Names, int] = {}
    made: SourceCalls = {
        "functions": [], "callees": [], "function": [], "callee": [], "turn": [], "turns": [], "own": [],
        "region": [], "time_us": [],
    }  # fmt: skip
    for row, time_us in rows:
        made["function"].append(functions.setdefault(row.function, len(functions)))
        made["callee"].append(callees.setdefault(row.names, len(callees)))
        made["turn"].append(row.turn)
        made["turns"].append(row.turns)
        made["own"].append(row.own)
        made["region"].append(row.region)
        made["time_us"].append(round(time_us / steps, 3))
    made["functions"], made["callees"] = list(functions), [list(names) for names in callees]
    return made
