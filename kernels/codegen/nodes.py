"""What the generator asks of fx nodes: dtype, arguments, views and the index behind a view."""

from __future__ import annotations

import functools
import operator
from typing import Any, TypeAlias

import torch
import torch.fx

from kernels.codegen.expressions import ops
from kernels.codegen.index import Domain, Index, Linear, Unsupported, broadcast, reshape
from profiler.region.language.vocabulary import DTYPE_NAMES
from profiler.region.op_kinds import base_name

GRAPHS_TYPE = "type in the graph"
"""In a node's meta: its dtype before it was widened."""


def dtype_of(value: torch.Tensor) -> str:
    """The region language's name of a tensor's dtype; raises Unsupported where Triton has none."""
    name = DTYPE_NAMES.get(value.dtype, "")
    if name not in ops.TRITON_DTYPES:  # complex, quantised; f8e8m0 and f4e2m1x2, of which Triton has no pointers
        raise Unsupported(f"the dtype {name or value.dtype}")
    return name


def computed(dtype: str) -> str:
    """The dtype a value of this dtype is computed in: 16- and 8-bit floats in f32."""
    return "f32" if dtype in ("bf16", "f16", "f8e4m3", "f8e5m2") else dtype


Arguments: TypeAlias = dict[str, Any]
"""Argument name -> value of an aten call. A value is what the call's schema says, which each rule knows of its own."""


def bind(node: torch.fx.Node) -> Arguments:
    """The arguments of an aten call, defaults filled in."""
    bound: Arguments = {}
    for i, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if i < len(node.args):
            bound[argument.name] = node.args[i]
        elif argument.name in node.kwargs:
            bound[argument.name] = node.kwargs[argument.name]
        else:
            bound[argument.name] = argument.default_value if argument.has_default_value() else None
    return bound


def fake(node: torch.fx.Node) -> torch.Tensor:
    """The fake tensor a node stands for; raises Unsupported where it stands for none."""
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        raise Unsupported(f"{node.target} gives no tensor")
    return value


def base(node: torch.fx.Node) -> str:
    """`aten.mul.Tensor` -> `mul`."""
    return _named(node.target)


@functools.cache
def _named(target: object) -> str:
    return base_name(str(target))


def first_input(node: torch.fx.Node) -> torch.fx.Node:
    """What a view is of."""
    source = node.args[0]
    assert isinstance(source, torch.fx.Node)
    return source


def root(node: torch.fx.Node) -> torch.fx.Node:
    """The node behind a chain of views."""
    while node.op == "call_function" and node.target is not operator.getitem and base(node) in ops.VIEWS:
        node = first_input(node)
    return node


def is_fill(node: torch.fx.Node) -> bool:
    """Known without reading memory."""
    return node.op == "call_function" and node.target is not operator.getitem and base(node) in ops.FILLS


def is_number(node: torch.fx.Node) -> bool:
    """A constant scalar tensor of the module."""
    return node.op == "get_attr" and constant_of(node) is not None


def constant_of(node: torch.fx.Node) -> float | int | bool | None:
    """The number in a constant tensor of one element, None for any other."""
    value = getattr(node.graph.owning_module, str(node.target), None)
    if isinstance(value, torch.Tensor) and value.numel() == 1 and type(value) is torch.Tensor:
        return value.item()
    return None


def view_index(node: torch.fx.Node, index: Index, domain: Domain) -> Index:
    """The index into a view's input that an index into the view means."""
    old, new = tuple(fake(first_input(node)).shape), tuple(fake(node).shape)
    name, bound = base(node), bind(node)
    if name in ("alias", "detach", "lift_fresh"):
        return index
    if name in ("expand", "broadcast_to"):
        return broadcast(index, new, old)
    if name in ("t", "numpy_T"):
        return tuple(reversed(index))
    if name in ("permute", "transpose"):
        order = list(range(len(old)))
        if name == "permute":
            order = [d % len(old) for d in bound["dims"]]
        elif old:
            a, b = bound["dim0"] % len(old), bound["dim1"] % len(old)
            order[a], order[b] = order[b], order[a]
        return tuple(index[order.index(d)] for d in range(len(old)))
    if name == "slice":
        dim = bound["dim"] % len(old)
        start = bound["start"] or 0
        start = min(max(start + old[dim] if start < 0 else start, 0), old[dim])
        part = index[dim].scaled(bound["step"] or 1) + Linear(start)
        return (*index[:dim], part, *index[dim + 1 :])
    if name == "select":
        dim = bound["dim"] % len(old)
        return (*index[:dim], Linear(bound["index"] % old[dim]), *index[dim:])
    return reshape(index, new, old, domain)
