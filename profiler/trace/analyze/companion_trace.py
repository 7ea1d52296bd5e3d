"""Operations and shapes for the kernels of a graph, borrowed from another trace of the same model.

A graph replay records kernels and nothing else. A trace of the same step without graphs (eager), or of the graph's
capture, has the operations. Kernels of both are matched by name and order; what has no counterpart stays unlinked.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler.trace.analyze.gpu_graphs import Replay, find_graphs
from profiler.trace.analyze.kernel_links import innermost
from profiler.trace.analyze.steps import steady_step
from profiler.trace.model import NONE, Ints, Longs, Note, Ops, Step, Trace

MOST_PAIRS = 16_000_000
"""Length of one sequence times the other's, beyond which no order is looked for: that takes time in proportion."""

ALIKE_SHARE = 0.75
"""Share of a graph's kernels that must be in the lender in the same order, or it is of another model. Of the traces
here those of other transformers reach up to 0.64, by the GEMMs and pointwise kernels that all have."""


@dataclass(frozen=True, slots=True)
class Lender:
    """Launches of another trace, in order: kernel name ("" where it is not recorded), and the operation around each."""

    names: tuple[str, ...]
    ops: Ints
    trace: Trace


def lender_of_step(other: Trace) -> Lender | None:
    """The linked kernels of the steady step, in order of launch; None where there are none."""
    if not other.steps:
        return None
    kernels = other.kernels
    rows = steady_step(other).kernels
    rows = rows[(kernels.op[rows] != NONE) & ~kernels.graph[rows]]
    if not len(rows):
        return None
    rows = rows[np.argsort(kernels.launch_us[rows], kind="stable")]
    return Lender(tuple(other.names[i] for i in kernels.name[rows].tolist()), kernels.op[rows], other)


def lender_of_launches(other: Trace, launches: Sequence[tuple[tuple[str, str], float, str]]) -> Lender | None:
    """The launches of a capture (thread, microseconds from the trace's origin, kernel name), in order."""
    number = {thread: i for i, thread in enumerate(other.threads)}
    launched = sorted((at, number[thread], name) for thread, at, name in launches if thread in number)
    if not launched:
        return None
    at = np.array([a for a, _, _ in launched])
    thread = np.array([t for _, t, _ in launched], np.int32)
    ops = other.ops
    op = innermost(thread, at, ops.thread, ops.start_us, ops.end_us, ops.parent)
    inside = np.flatnonzero(op != NONE)
    if not len(inside):
        return None
    return Lender(tuple(launched[i][2] for i in inside.tolist()), op[inside], other)


def match(borrower: Sequence[str], lender: Sequence[str], kinds: Sequence[object]) -> list[int]:
    """For each kernel name of the borrower the place in the lender's sequence, or NONE.

    In order first: the blocks of equal names that both have (difflib); less than ALIKE_SHARE of it is no match at all.
    A kernel that is left gets the last of its name if all of that name are of one kind (kinds: hashable, of each of
    the lender's kernels). Names that the lender lacks match by place alone where both sequences are equally long and it
    recorded none.
    """
    if not any(lender) and len(borrower) == len(lender):
        return list(range(len(borrower)))
    places = [NONE] * len(borrower)
    if len(borrower) * len(lender) <= MOST_PAIRS:
        blocks = difflib.SequenceMatcher(None, borrower, lender, autojunk=False).get_matching_blocks()
        for a, b, size in blocks:
            places[a : a + size] = range(b, b + size)
    if sum(place != NONE for place in places) < ALIKE_SHARE * len(borrower):
        return [NONE] * len(borrower)
    of_name: defaultdict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(lender):
        if name:
            of_name[name].append(place)
    for place, name in enumerate(borrower):
        places_of_name = of_name.get(name, [])
        if places[place] == NONE and places_of_name and len({kinds[i] for i in places_of_name}) == 1:
            places[place] = places_of_name[-1]
    return places


def borrow(trace: Trace, lender: Lender, name: str) -> Trace:
    """The trace with operations for the kernels of its graphs. name: of the lender's file, for the note.

    The lender's operations are repeated for every replay, on threads of their own, squeezed into the step's time from
    the launch on: their order and shapes mean something, their times do not.
    """
    other = lender.trace
    kinds = _kinds(lender)
    copies = _Copies(trace, other)
    op = trace.kernels.op.copy()
    hidden_us = filled_us = 0.0
    for graph in find_graphs(trace):
        first = graph.replays[0].kernels
        sequence = [trace.names[i] for i in trace.kernels.name[first].tolist()]
        places = np.array(match(sequence, lender.names, kinds), np.int64)
        for replay in graph.replays:
            hidden = trace.kernels.op[replay.kernels] == NONE
            hidden_us += float(trace.kernels.duration_us[replay.kernels[hidden]].sum())
            matched = hidden & (places != NONE)
            if not matched.any():
                continue
            rows = replay.kernels[matched]
            filled_us += float(trace.kernels.duration_us[rows].sum())
            op[rows] = copies.add(replay, lender.ops[places[matched]])
    if not hidden_us:
        return trace
    note = _note(name, filled_us / hidden_us, trace, other)
    if not filled_us:
        return replace(trace, notes=(*trace.notes, note))
    ops = copies.ops()
    return replace(
        trace,
        names=copies.names,
        threads=copies.threads(name),
        modules=(*trace.modules, *other.modules),
        details=(*trace.details, *other.details),
        ops=ops,
        kernels=replace(trace.kernels, op=op),
        steps=tuple(_with_ops(step, ops, len(trace.ops.name)) for step in trace.steps),
        has_shapes=trace.has_shapes or other.has_shapes,
        triton_files={**other.triton_files, **trace.triton_files},
        notes=(*(n for n in trace.notes if n.code not in _ANSWERED or filled_us < hidden_us), note),
    )


_ANSWERED = ("graph-launches", "no-shapes", "no-ops")
"""Notes that no longer hold once every hidden kernel has its operation."""


def _kinds(lender: Lender) -> list[tuple[int, int]]:
    ops = lender.trace.ops
    return list(zip(ops.name[lender.ops].tolist(), ops.detail[lender.ops].tolist(), strict=True))


def _note(name: str, share: float, trace: Trace, other: Trace) -> Note:
    if not share:
        return Note(
            "nothing-borrowed", "warning",
            f"No kernel of the graphs has a counterpart in {name}: its kernels have other names or other orders.",
            "Give a trace of the same model, sizes and dtype, recorded on the same GPU without graphs.",
        )  # fmt: skip
    message = f"{share:.0%} of the time that graphs hide was given the operations and shapes of {name}, by kernel name "
    message += "and order."
    if trace.device and other.device and trace.device != other.device:
        message += f" That trace is of another GPU ({other.device}): what runs there may differ."
    return Note("borrowed", "info", message)


def _with_ops(step: Step, ops: Ops, own_count: int) -> Step:
    """The step with the borrowed operations that begin inside it."""
    lent = own_count + np.flatnonzero(ops.parent[own_count:] == NONE)
    inside = lent[(ops.start_us[lent] >= step.start_us) & (ops.start_us[lent] < step.end_us)]
    return replace(step, ops=np.concatenate((step.ops, inside)))


class _Copies:
    """The borrower's operations, and the lender's once more for every replay."""

    def __init__(self, trace: Trace, other: Trace) -> None:
        self._trace, self._other = trace, other
        number_of = {name: i for i, name in enumerate(trace.names)}
        renamed = [number_of.setdefault(name, len(number_of)) for name in other.names]
        self.names = tuple(number_of)
        self._renamed = np.array(renamed, np.int32)
        outermost = np.flatnonzero(other.ops.parent == NONE)
        place = np.searchsorted(outermost, np.arange(len(other.ops.name)), side="right") - 1
        self._root: Longs = outermost[place]
        self._parts: list[tuple[Longs, float, float, float]] = []
        self._count = len(trace.ops.name)

    def add(self, replay: Replay, ops: Ints) -> Ints:
        """Indices of these operations of the lender in this replay's copy."""
        other = self._other.ops
        roots = self._root[ops]
        begin, end = float(other.start_us[roots].min()), float(other.end_us[roots].max())
        start = other.start_us[self._root]
        rows = np.flatnonzero((start >= begin) & (start <= end))
        at, length = self._place(replay)
        self._parts.append((rows, begin, at, min(1.0, length / (end - begin)) if end > begin else 1.0))
        copied: Ints = (self._count + np.searchsorted(rows, ops)).astype(np.int32)
        self._count += len(rows)
        return copied

    def _place(self, replay: Replay) -> tuple[float, float]:
        """(start, length) of the time on the host that a copy is put into: from its launch to the end of the step."""
        first = int(replay.kernels[0])
        at = replay.launch_us if not np.isnan(replay.launch_us) else float(self._trace.kernels.start_us[first])
        end = min((s.end_us for s in self._trace.steps if s.start_us <= at < s.end_us), default=at + 1.0)
        return at, (end - at) * 0.99

    def _first_thread(self, number: int) -> int:
        return len(self._trace.threads) + (number - 1) * len(self._other.threads)

    def threads(self, name: str) -> tuple[tuple[str, str], ...]:
        """The borrower's threads and those of the copies."""
        lent = [(f"{name} {i}: {pid}", tid) for i in range(len(self._parts)) for pid, tid in self._other.threads]
        return (*self._trace.threads, *lent)

    def ops(self) -> Ops:
        """All of them, in the order that Ops has (thread, start, end): every copy is on threads of its own."""
        own, other = self._trace.ops, self._other.ops
        base, parts = len(own.name), []
        sequence_stride = int(max(own.sequence.max(initial=0), other.sequence.max(initial=0))) + 1
        for number, (rows, begin, at, scale) in enumerate(self._parts, 1):
            above = other.parent[rows]
            sequence = other.sequence[rows]
            parts.append(
                Ops(
                    name=self._renamed[other.name[rows]],
                    start_us=at + (other.start_us[rows] - begin) * scale,
                    end_us=at + (other.end_us[rows] - begin) * scale,
                    thread=(other.thread[rows] + self._first_thread(number)).astype(np.int32),
                    parent=np.where(above == NONE, NONE, base + np.searchsorted(rows, above)).astype(np.int32),
                    detail=_shift(other.detail[rows], len(self._trace.details)),
                    external_id=np.full(len(rows), NONE, np.int64),
                    record_id=np.full(len(rows), NONE, np.int64),
                    sequence=np.where(sequence == NONE, NONE, sequence + sequence_stride * number),
                    module=_shift(other.module[rows], len(self._trace.modules)),
                )
            )
            base += len(rows)
        return _join([own, *parts])


def _shift(index: Ints, by: int) -> Ints:
    return np.where(index == NONE, NONE, index + by).astype(np.int32)


def _join(parts: Sequence[Ops]) -> Ops:
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Ops.__slots__}
    return Ops(**columns)
