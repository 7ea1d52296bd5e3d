"""What a part of a trace reads and makes: values, the statements that make them, and small questions about both."""

from __future__ import annotations

from dataclasses import dataclass, field

from profiler.region.mining.output_shapes import Call
from profiler.region.mining.units import Sig, Unit

TYPED = frozenset({"to", "type_as"})
"""These read only the dtype of their second tensor."""
SIZED = frozenset({"expand_as", "view_as", "reshape_as"})
"""These read only the sizes of their second operand."""


@dataclass(slots=True, eq=False)
class Value:
    """A tensor: an input of the region (made None) or output `index` of a statement."""

    sig: Sig
    made: Statement | None = None
    index: int = 0
    readers: int = 0
    role: str = ""
    below: int | None = None
    offsets: int | None = None


@dataclass(slots=True, eq=False)
class Statement:
    """One operation with the value behind every tensor argument. own: one of the region's units, else a view."""

    unit: Unit
    letter: str
    call: Call
    operands: dict[str, list[Value]]
    own: bool
    outputs: list[Value] = field(default_factory=list)


@dataclass(slots=True)
class Flow:
    """The statements of a part in order and its inputs in order of first use."""

    statements: list[Statement]
    inputs: list[Value]
    outputs: list[Value]


def inputs_of(statement: Statement, used: dict[int, Value]) -> None:
    """Adds the inputs that a statement reads, in the order of its arguments, through views."""
    for name in statement.call.names:
        for value in statement.operands.get(name, ()):
            if value.made is None:
                used.setdefault(id(value), value)
            elif not value.made.own:
                inputs_of(value.made, used)


def swaps_last(unit: Unit) -> bool:
    """The unit transposes the last two dimensions."""
    if unit.base in ("t", "numpy_T", "adjoint", "mT"):
        return True
    rank = len(unit.args[0].sigs[0].dims)
    if unit.base != "transpose" or len(unit.args) < 3 or rank < 2:
        return False
    dims = [a.value for a in unit.args[1:3]]
    return all(isinstance(d, int) for d in dims) and {d % rank for d in dims if isinstance(d, int)} == {
        rank - 2,
        rank - 1,
    }


def index_range(statement: Statement, name: str) -> int | None:
    """The range of an index input: rows of the table it selects from."""
    args, base = statement.call.arguments, statement.unit.base
    if base == "embedding" and name == "indices":
        return args["weight"].sigs[0].dims[0]
    if name == "index" and "self" in args and args["self"].sigs:
        dim = args["dim"].value if "dim" in args else 0
        dims = args["self"].sigs[0].dims
        return dims[dim] if isinstance(dim, int) and -len(dims) <= dim < len(dims) else None
    if name == "target" and args["self"].sigs and len(args["self"].sigs[0].dims) > 1:
        return args["self"].sigs[0].dims[1]
    return None
