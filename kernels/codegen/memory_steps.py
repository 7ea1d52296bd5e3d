"""How the elements of a value lie in the memory that its kernel reads them from, whatever its own layout.

`x.contiguous().view(...)` of a channels-last x is read from x: in a kernel neither the copy nor the view exists.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Sequence

import torch.fx

from kernels.codegen.expressions import ops
from kernels.codegen.nodes import base, bind, fake, first_input

MADE_ON_THE_WAY = (ops.POINTWISE, ops.CASTS)
"""Operations of one element each, whose results a kernel need not keep."""


def memory_steps(node: torch.fx.Node, inside: Container[torch.fx.Node] | None = None) -> tuple[int, ...]:
    """The step in memory from one element of each dimension to the next; of what is stored, its strides.

    inside: what the kernel computes, views apart; without, all that it could compute on its way.
    """
    behind: list[torch.fx.Node] = []
    while (before := _source(node, inside)) is not None:
        behind.append(node)
        node = before
    shape, steps = tuple(fake(node).shape), tuple(fake(node).stride())
    for view in reversed(behind):
        steps = _viewed(view, shape, steps)
        shape = tuple(fake(view).shape)
    return steps


def _source(node: torch.fx.Node, inside: Container[torch.fx.Node] | None) -> torch.fx.Node | None:
    """What the elements of a node are made of, one of each: the operand of a view, a cast or a pointwise operation."""
    if node.op != "call_function" or node.target is operator.getitem:
        return None
    if base(node) in ops.VIEWS:
        return first_input(node) if base(node) not in ("slice", "select") else None
    if any(base(node) in table for table in MADE_ON_THE_WAY) and (inside is None or node in inside):
        own = fake(node).shape
        alike = [n for n in node.all_input_nodes if _shape(n) == own]
        return min(alike, key=lambda n: 0 in fake(n).stride(), default=None)  # what is expanded says little
    return None


def _shape(node: torch.fx.Node) -> torch.Size | None:
    value = node.meta.get("val")
    return value.shape if isinstance(value, torch.Tensor) else None


def _viewed(node: torch.fx.Node, shape: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, ...]:
    """The steps of what a node makes of something of this shape and these steps."""
    name, new = base(node), tuple(fake(node).shape)
    if name not in ops.VIEWS:
        return steps
    if name in ("t", "numpy_T"):
        return tuple(reversed(steps))
    if name == "permute":
        return tuple(steps[d] for d in bind(node)["dims"])
    if name == "transpose":
        first, second = (bind(node)[d] % len(shape) for d in ("dim0", "dim1"))
        order = list(range(len(shape)))
        order[first], order[second] = order[second], order[first]
        return tuple(steps[d] for d in order)
    if name in ("expand", "broadcast_to"):
        added = len(new) - len(shape)
        own = [0 if n == 1 and new[d + added] != 1 else steps[d] for d, n in enumerate(shape)]
        return (*[0] * added, *own)
    return reshaped(shape, steps, new)


def reshaped(shape: Sequence[int], steps: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
    """The steps of the same elements in another shape. Of a dimension that runs through several: its first step."""
    inner, place = 1, []  # the elements between one of each dimension and the next, in the old shape
    for n, step in zip(reversed(shape), reversed(steps), strict=True):
        if n != 1:
            place.append((inner, n, step))
        inner *= n
    inner, made = 1, []
    for n in reversed(new):
        made.append(next((step * (inner // first) for first, m, step in place if first <= inner < first * m), 1))
        inner *= n
    return tuple(reversed(made))
