"""Program: what one step of a module runs, as recorded on tensors without memory. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from profiler.region.graph.operation import Operation

NO_PARENT = -1
ENGINE = "autograd::engine::evaluate_function"
"""Begins the name of a node of autograd's engine."""


class ProgramError(Exception):
    """The program cannot be recorded, in words for who wrote it. remedy: what to do about it, "" where unknown."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of one call as torch.profiler writes them."""

    dims: tuple[object, ...] = ()
    types: tuple[str, ...] = ()
    strides: tuple[object, ...] = ()
    concrete: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One operation as torch.profiler lists it, the calls that it makes behind it.

    parent: index of the call that made this one, NO_PARENT for none. operation: what reaches the device, None for a
    call that only makes others, or waits. stack: index into `Program.stacks`, of the Python functions that are open.
    sequence: pairs forward and backward, -1 for none. backward: autograd's engine made it. waits: the host goes on only
    when values of it have come from the device.
    """

    name: str
    parent: int
    signature: Signature
    operation: Operation | None
    stack: int
    sequence: int
    backward: bool
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """What the record says nothing of, or assumes. where: file and line in the user's program, "" where unknown.

    ends: nothing behind it was recorded.
    """

    what: str
    where: str
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """One step. frames: Python functions and modules as torch.profiler names them, each time one was entered;
    stacks: indices into frames, the outermost first. weights_bytes: of its parameters and buffers."""

    name: str
    calls: tuple[Call, ...]
    frames: tuple[str, ...]
    stacks: tuple[tuple[int, ...], ...]
    gaps: tuple[Gap, ...]
    training: bool
    parameters: int
    weights_bytes: int
    versions: tuple[tuple[str, str], ...] = ()
