"""How many tensors a call gives and how many rounds it loops, computed from its arguments before it runs.

A split of 2^40 elements into one each is an argument's worth of work to write down, and never ends. What gives a list
has an entry in `COUNTS`, or is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

from profiler.region.language.signatures import Call

Count = Callable[[Call], int]


def outputs(label: str, call: Call | None) -> int:
    """Tensors that come out of a call, at most. label: the function's name, as in `COUNTS`."""
    if call is None or call.signature.outputs is not None:
        return 1 if call is None else call.signature.outputs or 0
    return COUNTS[label](call)


def rounds(label: str, call: Call | None) -> int:
    """How often torch goes through what a call does: `diff(n=...)` is n differences one after the other."""
    if label != "diff" or call is None:
        return 1
    number = call.first("n", default=1)
    return max(1, number) if isinstance(number, int) else 1


def _size(call: Call, default: int = 0) -> int:
    """The tensor's size along the dimension that the call names. 0 where torch will refuse it."""
    tensor, dim = call.first("self", "tensor"), call.first("dim", default=default)
    if not isinstance(tensor, torch.Tensor) or not isinstance(dim, int) or not -tensor.dim() <= dim < tensor.dim():
        return 0
    return example_size(tensor.shape[dim])


def example_size(size: int | torch.SymInt) -> int:
    """A symbolic size by its example: a comparison would pin it."""
    return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)


def _split(call: Call) -> int:
    number = call.first("split_size", "split_size_or_sections", "split_sizes")
    if isinstance(number, tuple | list):
        return len(number)
    number = example_size(number) if isinstance(number, int | torch.SymInt) else 0
    return max(1, -(-_size(call) // number)) if number > 0 else 1


def _chunk(call: Call) -> int:
    number, size = call.first("chunks"), _size(call)
    if not isinstance(number, int) or number <= 0:
        return 1
    return number if size == 0 else -(-size // -(-size // number))


def _sections(call: Call) -> int:
    number = call.first("sections", "indices")
    if isinstance(number, tuple | list):
        return len(number) + 1
    return number if isinstance(number, int) else 1


def _unbind(call: Call) -> int:
    return _size(call)


def _tensors(call: Call) -> int:
    tensors = call.first("tensors", default=())
    if len(tensors) == 1 and isinstance(tensors[0], tuple | list):
        return len(tensors[0])
    return len(tensors) if isinstance(tensors, tuple | list) else 1


def _dimensions(call: Call) -> int:
    """`where(condition)`: an index for each dimension, whose size no fake tensor knows."""
    condition = call.first("condition")
    return max(1, condition.dim()) if isinstance(condition, torch.Tensor) else 1


COUNTS: Mapping[str, Count] = MappingProxyType(
    {
        "split": _split, "unsafe_split": _split, "chunk": _chunk, "unsafe_chunk": _chunk, "unbind": _unbind,
        "tensor_split": _sections, "hsplit": _sections, "vsplit": _sections, "dsplit": _sections,
        "meshgrid": _tensors, "broadcast_tensors": _tensors, "atleast_1d": _tensors, "atleast_2d": _tensors,
        "atleast_3d": _tensors, "where": _dimensions,
    }
)  # fmt: skip
"""Functions that give a list of tensors, by name: how many, exactly where torch takes the arguments."""
