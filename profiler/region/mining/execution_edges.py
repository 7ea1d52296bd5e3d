"""An execution trace joined with a step's units: exact edges, overloads, strings, what lists hold. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from profiler.region.mining.units import DTYPES, Argument, Sig, Unit
from profiler.trace.execution_trace import Execution, Node, Operand, Tensor
from profiler.trace.model import NONE, Trace

Slot = tuple[int, int, int]
"""One tensor operand: the reading unit's op, the argument's place, the place in a list (0 where it is none)."""
Source = tuple[int, int]
"""What an operand is: the op of the unit that made it, and which of its outputs."""


@dataclass(frozen=True, slots=True)
class Guess:
    """Which of several equal tensors an operation reads, as a sentence's part, and the ops that made them."""

    text: str
    makers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Edges:
    """Where the operands of a step come from. outside: operands that no unit made; equal values are one tensor.

    guesses: by op, where several equal tensors may be the operand.
    """

    sources: Mapping[Slot, Source]
    outside: Mapping[Slot, object] = field(default_factory=dict)
    exact: bool = False
    guesses: Mapping[int, Guess] = field(default_factory=dict)


def node_of(trace: Trace, unit: Unit, execution: Execution) -> Node | None:
    """The unit in the execution trace: equal record id, name and sizes. None where another run numbered so."""
    record = int(trace.ops.record_id[unit.op])
    if record == NONE or execution.name(record) not in (f"aten::{unit.name}", unit.name):
        return None
    node = execution.node(record)
    if node is None or (unit.args and len(node.inputs) != len(unit.args)):
        return None
    for argument, operand in zip(unit.args, node.inputs, strict=False):
        if argument.kind == "tensor" and operand.kind == "tensor" and operand.tensors[0] is not None:
            if argument.sigs[0].dims != operand.tensors[0].dims:
                return None
    return node


def joined_share(trace: Trace, units: Sequence[Unit], execution: Execution) -> float:
    """Share of the units with kernels that the execution trace has; below about 0.9 it is of another run."""
    busy = [u for u in units if u.kernels]
    return sum(node_of(trace, u, execution) is not None for u in busy) / len(busy) if busy else 0.0


def exact(trace: Trace, units: Sequence[Unit], execution: Execution) -> Edges:
    """The edges of units in any order. A producer is the latest that made this tensor, else wrote its storage.

    Ids are used again after a tensor is freed, so both must be equal. An operation that returns its operand unchanged
    (`x.to(x.dtype)`) makes nothing.
    """
    sources: dict[Slot, Source] = {}
    outside: dict[Slot, object] = {}
    producer_of: dict[tuple[int, int], tuple[Source, tuple[int, ...]]] = {}
    last_write: dict[int, Source] = {}
    for unit in sorted(units, key=lambda u: u.start_us):
        node = node_of(trace, unit, execution)
        if node is None:
            continue
        read = set()
        for place, operand in enumerate(node.inputs):
            for member, tensor in enumerate(operand.tensors):
                if tensor is None:
                    continue
                pair = (tensor.tensor, tensor.storage)
                read.add(pair)
                producer = producer_of.get(pair)
                source = producer[0] if producer and producer[1] == tensor.dims else last_write.get(tensor.storage)
                if source is None:
                    outside[unit.op, place, member] = (*pair, tensor.dims)
                else:
                    sources[unit.op, place, member] = source
        results = [t for o in node.outputs for t in o.tensors]
        for index, tensor in enumerate(results):
            if tensor is None:
                continue
            pair = (tensor.tensor, tensor.storage)
            if pair in read and not node.changes_operands:
                continue
            producer_of[pair] = ((unit.op, index), tensor.dims)
            last_write[tensor.storage] = (unit.op, index)
    return Edges(sources, outside, exact=True)


def slot_of(unit: Unit, place: int, member: int) -> Slot:
    """The operand's place as the operation was recorded: `x[i]` is written as index_select(x, dim, i)."""
    if unit.written in ("index_select", "index_copy", "index_add"):
        dim = unit.args[1].value
        recorded = {2: (1, dim if isinstance(dim, int) else 0), 3: (2, 0)}
        return (unit.op, *recorded.get(place, (place, member)))
    return (unit.op, place, member)


def join(trace: Trace, units: Sequence[Unit], execution: Execution) -> Edges:
    """The exact edges of a step's units; their arguments are completed on the way."""
    edges = exact(trace, units, execution)
    enrich(trace, units, execution)
    return edges


def enrich(trace: Trace, units: Sequence[Unit], execution: Execution) -> int:
    """Puts into the units what the trace lost: overloads, strings, lists with their dtypes. How many were joined."""
    joined = 0
    for unit in units:
        node = node_of(trace, unit, execution)
        if node is None:
            continue
        joined += 1
        unit.overload = node.overload if node.schema else ""
        args = unit.args or tuple(Argument("none") for _ in node.inputs)
        unit.args = tuple(_merge(a, o) for a, o in zip(args, node.inputs, strict=True))
    return joined


def _merge(argument: Argument, operand: Operand) -> Argument:
    """The trace's scalars, which are whole; the execution trace's tensors, lists and strings."""
    tensors = tuple(_sig(t) for t in operand.tensors)
    if operand.kind == "tensors" and all(t is not None for t in tensors):
        return Argument("tensors", tuple(t for t in tensors if t is not None))
    if argument.kind == "none" and operand.kind == "tensor" and tensors[0] is not None:
        return Argument("tensor", (tensors[0],))
    if argument.kind == "none" and operand.kind == "value":
        return Argument("value", (), operand.value)
    return argument


def _sig(tensor: Tensor | None) -> Sig | None:
    if tensor is None or tensor.dtype not in DTYPES:
        return None
    return Sig(DTYPES[tensor.dtype], tensor.dims, tensor.strides)
