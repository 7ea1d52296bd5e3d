"""What each function of the recorded stacks calls, by the names that its text has it under, with the kernel time.

A recorded frame tells the first line of its function and not the line of a call. What it calls it does tell, and who
has the text finds the line: the one that has the name, or of several the one whose turn it is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from app.objects.trace import SourceCalls
from app.trace_report.called_from import CalledFrom
from profiler.region.shares import OnShare, untold
from profiler.trace.model import NONE, Trace
from profiler.trace.read.columns import MODULE_PREFIX
from profiler.trace.read.frames import Frame

MAX_CALLS, MAX_TURNS, MAX_NAMES = 800, 32, 5
"""Calls that are kept, those with most time; turns that are told apart, more are taken for a loop; names of one."""
FOLLOWED, TURNED = 0.4, 0.8
"""What is done once every operation's calls are followed, and once it is known whose turn each is."""
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
    """of: this call's frame; within: the frame that it calls, None where it calls an operation; names: of what it
    calls, () where no frame tells; own: launches itself."""

    of: Frame
    within: Frame | None
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


_Turns = dict[Frame | int, int]
"""Of each call or operation that one call of a function has by the same names: which of them it is."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A row before its region and before all of its turns are known."""

    function: str
    names: Names
    own: bool
    turns: _Turns
    turn: int

    def row(self, region: int) -> _Row:
        turn, turns = (self.turn, len(self.turns)) if len(self.turns) <= MAX_TURNS else (0, MAX_TURNS + 1)
        return _Row(self.function, self.names, turn, turns, self.own, region)


@dataclass(slots=True, eq=False)
class _Link:
    """A call and those around it. entry: once it is told; time_us: of what ran within it, by region."""

    call: _Call
    around: _Link | None
    entry: _Entry | None = None
    time_us: dict[int, float] = field(default_factory=lambda: defaultdict(float))


def source_calls(
    trace: Trace,
    called: CalledFrom,
    regions: Sequence[int],
    times: Sequence[float],
    steps: int,
    on_share: OnShare = untold,
) -> SourceCalls | None:
    """regions, times: of each kernel, as for the trees. None where no function was open. on_share: is told which share
    is done."""
    ops = trace.kernels.op[called.kernels].tolist()
    frames = dict(zip(ops, called.frames, strict=True))
    stacks = _Stacks()
    known = [op for op in sorted(frames) if op != NONE]
    innermost: dict[int, _Link] = {}
    for done, op in enumerate(known, 1):
        if (link := stacks.calls(frames[op])) is not None:
            innermost[op] = link
        on_share(FOLLOWED * done / len(known))
    if not innermost:
        return None
    operations = _Operations.of(trace)
    turns: dict[tuple[Frame, Names], _Turns] = defaultdict(dict)
    told = {}
    for done, (op, link) in enumerate(innermost.items(), 1):
        told[op] = _entries(link, op, operations, turns)
        on_share(FOLLOWED + (TURNED - FOLLOWED) * done / len(innermost))
    factors = lent_factors([op in told for op in ops], regions, times)
    sums: dict[_Row, float] = defaultdict(float)
    for op, region, time_us in zip(ops, regions, times, strict=True):
        if op in told:
            own, around = told[op]
            lent_us = time_us * factors.get(region, 1.0)
            for entry in own:
                sums[entry.row(region)] += lent_us
            if around is not None:
                around.time_us[region] += lent_us
    for link in reversed(stacks.links):  # from the innermost on
        for region, lent_us in link.time_us.items():
            if link.entry is not None:
                sums[link.entry.row(region)] += lent_us
            if link.around is not None:
                link.around.time_us[region] += lent_us
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


def _entries(
    link: _Link | None, op: int, operations: _Operations, turns: dict[tuple[Frame, Names], _Turns]
) -> tuple[list[_Entry], _Link | None]:
    """The entries of this operation alone, and the first call that is the same for all operations within it."""
    own: list[_Entry] = []
    while link is not None and (link.call.own or not link.call.names):
        outer = operations.outermost(op, link.call.of.start_us)
        name = operations.name(outer)
        if link.call.within is not None:  # a frame is between: no operator
            name = name.rpartition("::")[2]
        own.append(_entry(link.call, (*link.call.names, name), outer, turns))
        link = link.around
    first = link
    while link is not None and link.entry is None:
        link.entry = _entry(link.call, link.call.names, NONE, turns)
        link = link.around
    return own, first


def _entry(call: _Call, names: Names, outer: int, turns: dict[tuple[Frame, Names], _Turns]) -> _Entry:
    names = tuple(dict.fromkeys(names))[:MAX_NAMES]
    known = turns[call.of, names]
    return _Entry(call.of.text, names, call.own, known, known.setdefault(call.within or outer, len(known)))


@dataclass(slots=True)
class _Stacks:
    """What every function of a stack calls, made once for all stacks that begin alike. links: an inner one is later."""

    links: list[_Link] = field(default_factory=list)
    innermost: dict[Frame, _Link | None] = field(default_factory=dict)
    around: dict[Frame, _Link | None] = field(default_factory=dict)
    told: dict[str, tuple[str, bool]] = field(default_factory=dict)

    def calls(self, frame: Frame) -> _Link | None:
        """Of every function of a Python file that was open; of one that is open twice the outer one alone."""
        if frame in self.innermost:
            return self.innermost[frame]
        way: list[_Call | Frame] = []
        within: Frame | None = None
        names: Names = ()
        own, link = True, None
        for of in frame.outwards():
            if of.text:
                if of.parent is None or all(outer.text != of.text for outer in of.parent.outwards()):
                    way.append(_Call(of, within, names, own))
                own = False
            name, is_all = self._told(of)
            names = (name, *(() if is_all else (n for n in names if n != name)))[:MAX_NAMES] if name else names
            within = of
            if is_all and not own:  # who calls this one knows it by this name, whatever is within it
                if of in self.around:
                    link = self.around[of]
                    break
                way.append(of)
        for step in reversed(way):
            if isinstance(step, _Call):
                link = _Link(step, link)
                self.links.append(link)
            else:
                self.around[step] = link
        self.innermost[frame] = link
        return link

    def _told(self, frame: Frame) -> tuple[str, bool]:
        """The name by which a function may have this call, "" for none, and whether it says what the call is."""
        if (known := self.told.get(frame.name)) is not None:
            return known
        return self.told.setdefault(frame.name, _name(frame))


def _name(frame: Frame) -> tuple[str, bool]:
    if frame.name.startswith(MODULE_PREFIX):
        return "module " + frame.name.removeprefix(MODULE_PREFIX).rpartition("_")[0], True
    match = _BUILTIN.match(frame.name) or _FUNCTION.match(frame.name)
    name = match["name"] if match else ""
    if name in REFLECTED:
        return name, True
    if not name.isidentifier() or (name.startswith("__") and name.endswith("__")) or name in WRAPPERS:
        return "", False
    return name, bool(frame.text)


@dataclass(frozen=True, slots=True)
class _Operations:
    """Columns of `Trace.ops` as lists: one number at a time is read."""

    names: Sequence[str]
    called: list[int]
    parent: list[int]
    start_us: list[float]

    @classmethod
    def of(cls, trace: Trace) -> _Operations:
        ops = trace.ops
        return cls(trace.names, ops.name.tolist(), ops.parent.tolist(), ops.start_us.tolist())

    def outermost(self, op: int, start_us: float) -> int:
        """The outermost operation around this one that began within a call that began then."""
        while (parent := self.parent[op]) != NONE and self.start_us[parent] >= start_us:
            op = parent
        return op

    def name(self, op: int) -> str:
        return self.names[self.called[op]]


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
