"""Backward with forward: which operations made the autograd node that a unit of the backward pass runs in. Torch-free.

Autograd numbers the nodes of a thread in the order in which they are made. An operation shows the number that the next
node gets, so of all operations with a number the last one made the node; the node's own events repeat the number in the
backward pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from profiler.region.mining.units import Unit, Units
from profiler.trace.model import NONE, Trace


@dataclass(frozen=True, slots=True)
class Maker:
    """What made a node. op: its event. units: those inside; several where it is a function with a backward of its own
    (`torch.autograd.Function`, a compiled graph), whose operations have no nodes themselves.
    """

    op: int
    units: tuple[Unit, ...]


def pair_backward(trace: Trace, step_units: Units) -> Mapping[int, Maker]:
    """Backward unit's op -> what made its node, where that is in the step.

    Threads number on their own, so two may have one number: see `_Nodes.one_of`.
    """
    makers = _makers(trace, step_units)
    nodes = _Nodes(trace)
    chosen: dict[int, Maker] = {}
    for unit in step_units.units:
        by_thread = makers.get(unit.node_sequence) if unit.backward and unit.node_sequence != NONE else None
        maker = nodes.one_of(list(by_thread.values()), unit) if by_thread else None
        if maker is not None:
            chosen[unit.op] = maker
    return chosen


def _makers(trace: Trace, step_units: Units) -> Mapping[int, Mapping[int, Maker]]:
    """number -> thread -> the last operation of the forward pass that has it."""
    ops = trace.ops
    inside: dict[int, list[Unit]] = defaultdict(list)
    for unit in step_units.units:
        if unit.sequence == NONE and not unit.node:
            function = next((op for op in _above(trace, unit.op) if ops.sequence[op] != NONE), None)
            if function is not None:
                inside[function].append(unit)
    numbered: dict[int, tuple[Unit, ...]] = {op: tuple(units) for op, units in inside.items()}
    for op, unit in step_units.of_op.items():
        if not unit.backward and ops.sequence[op] != NONE:
            numbered[op] = (unit,)
    makers: dict[int, dict[int, Maker]] = defaultdict(dict)
    for op in sorted(numbered):  # in the order of a trace: by thread, then time
        makers[int(ops.sequence[op])][int(ops.thread[op])] = Maker(op, numbered[op])
    return makers


def _above(trace: Trace, op: int) -> Iterator[int]:
    """The operations that enclose op, from the innermost."""
    parent = trace.ops.parent
    at = int(parent[op])
    while at != NONE:
        yield at
        at = int(parent[at])


class _Nodes:
    """Which of several makers with one number, on threads that each counted for themselves, made a unit's node."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def one_of(self, makers: Sequence[Maker], unit: Unit) -> Maker | None:
        """What a checkpoint computed again inside the very node that differentiates it; else what ran in no node: what
        saved tensors were computed again for is discarded; else what ran on the same GPU, else on the same thread.
        None where that leaves several.
        """
        if len(makers) == 1:
            return makers[0]
        outer = {op for op in _above(self.trace, unit.op) if self._number(op) not in (NONE, unit.node_sequence)}
        within = [m for m in makers if not outer.isdisjoint(_above(self.trace, m.op))]
        remaining = within or [m for m in makers if not m.units[0].node] or list(makers)
        if len(remaining) > 1:
            devices = self._devices([unit])
            remaining = [m for m in remaining if not devices or self._devices(m.units) & devices] or remaining
        if len(remaining) > 1:
            remaining = [m for m in remaining if int(self.trace.ops.thread[m.op]) == unit.thread]
        return remaining[0] if len(remaining) == 1 else None

    def _number(self, op: int) -> int:
        return int(self.trace.ops.sequence[op])

    def _devices(self, units: Sequence[Unit]) -> set[int]:
        return {int(self.trace.kernels.device[k]) for u in units for k in u.kernels}
