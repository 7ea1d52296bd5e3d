"""Small questions about fx nodes of an aten graph: what is this, what is behind its casts and views."""

from __future__ import annotations

import functools
import operator
from typing import TypeGuard

import torch
from torch.fx import Node

from profiler.region import op_kinds

CASTS = frozenset({"_to_copy", "to", "detach", "alias", "lift_fresh_copy", "clone"})


def name_of(node: object) -> str:
    """`mul` for aten.mul.Tensor, "getitem" for tuple access, "" for anything that is no call."""
    if not isinstance(node, Node) or node.op != "call_function":
        return ""
    return "getitem" if node.target is operator.getitem else _name(node.target)


@functools.lru_cache(maxsize=4096)
def _name(target: object) -> str:
    return op_kinds.base_name(str(target))


def is_call(node: object, *names: str) -> TypeGuard[Node]:
    """The node calls an aten operation with one of these base names."""
    return name_of(node) in names


def value(node: object) -> torch.Tensor:
    """The fake tensor of a node."""
    assert isinstance(node, Node)
    fake: torch.Tensor = node.meta["val"]
    return fake


def shape(node: object) -> tuple[int, ...]:
    """Sizes of a node's tensor."""
    return tuple(value(node).shape)


def argument(node: Node, position: int, name: str, default: object = None) -> object:
    """An argument by position or keyword."""
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name, default)


def integers(dims: object) -> list[int]:
    """An argument that is one whole number, a list of them, or left out."""
    if isinstance(dims, int):
        return [dims]
    return [d for d in dims if isinstance(d, int)] if isinstance(dims, list | tuple) else []


def behind_casts(node: object) -> object:
    """The node behind dtype casts and detaches."""
    while is_call(node, *CASTS):
        node = node.args[0]
    return node


def same(a: object, b: object) -> bool:
    """Both are the same values, up to casts: the same node, or the same small expression written twice."""
    return _alike(behind_casts(a), behind_casts(b), depth=3)


def _alike(a: object, b: object, depth: int) -> bool:
    if a is b:
        return True
    if not isinstance(a, Node) or not isinstance(b, Node) or depth == 0:
        return not isinstance(a, Node) and not isinstance(b, Node) and bool(a == b)
    if a.op != "call_function" or a.target != b.target or len(a.args) != len(b.args) or a.kwargs != b.kwargs:
        return False
    return all(_alike(behind_casts(x), behind_casts(y), depth - 1) for x, y in zip(a.args, b.args, strict=True))


def number(node: object) -> float | None:
    """A Python number, or None."""
    if isinstance(node, bool) or not isinstance(node, int | float):
        return None
    return float(node)


def operands(node: Node) -> tuple[object, object]:
    """Both operands of a binary operation."""
    return node.args[0], node.args[1]


def users(node: Node, *names: str) -> list[Node]:
    """Calls with one of these names that read the node, looking through casts."""
    matching: list[Node] = []
    waiting = list(node.users)[::-1]
    while waiting:
        user = waiting.pop()
        if is_call(user, *CASTS):
            waiting += list(user.users)[::-1]
        elif name_of(user) in names:
            matching.append(user)
    return matching


def vector_of(node: object, length: int) -> bool:
    """A tensor that varies along the last dimension only: [N], [1, N]."""
    if not isinstance(node, Node) or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    sizes = shape(node)
    return bool(sizes) and sizes[-1] == length and value(node).numel() == length
