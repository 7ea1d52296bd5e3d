"""Small questions about fx nodes of an aten graph: what is this, what stands behind its casts and views."""

from __future__ import annotations

import functools
import operator
from typing import Any

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


def is_call(node: object, *names: str) -> bool:
    """The node calls an aten operation with one of these base names."""
    return name_of(node) in names


def value(node: Node) -> torch.Tensor:
    """The fake tensor that the node stands for."""
    fake: torch.Tensor = node.meta["val"]
    return fake


def shape(node: Node) -> tuple[int, ...]:
    """Sizes of the tensor that the node stands for."""
    return tuple(value(node).shape)


def argument(node: Node, position: int, name: str, default: Any = None) -> Any:
    """An argument by position or keyword."""
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name, default)


def behind_casts(node: Any) -> Any:
    """The node behind dtype casts and detaches."""
    while is_call(node, *CASTS):
        node = node.args[0]
    return node


BATCH_VIEWS = ("view", "_unsafe_view", "expand", "reshape")


def behind_batch_views(node: Any) -> Any:
    """The node behind casts and the views with which matmul folds batch dimensions: rows and columns stay."""
    while is_call(node, *CASTS) or (is_call(node, *BATCH_VIEWS) and shape(node)[-2:] == shape(node.args[0])[-2:]):
        node = node.args[0]
    return node


def keeps_dim(reduced: Any, source: Any) -> bool:
    """The reduction over the last dimension kept it, so that it broadcasts back along rows."""
    return len(shape(reduced)) == len(shape(source)) and shape(reduced)[-1] == 1


def same(a: Any, b: Any) -> bool:
    """Both stand for the same values, up to casts: the same node, or the same small expression written twice."""
    return _alike(behind_casts(a), behind_casts(b), depth=3)


def _alike(a: Any, b: Any, depth: int) -> bool:
    if a is b:
        return True
    if not isinstance(a, Node) or not isinstance(b, Node) or depth == 0:
        return not isinstance(a, Node) and not isinstance(b, Node) and bool(a == b)
    if a.op != "call_function" or a.target != b.target or len(a.args) != len(b.args) or a.kwargs != b.kwargs:
        return False
    return all(_alike(behind_casts(x), behind_casts(y), depth - 1) for x, y in zip(a.args, b.args, strict=True))


def number(node: Any) -> float | None:
    """A Python number, or None."""
    if isinstance(node, bool) or not isinstance(node, int | float):
        return None
    return float(node)


def operands(node: Node) -> tuple[Any, Any]:
    """Both operands of a binary operation."""
    return node.args[0], node.args[1]


def last_dim_only(node: Node) -> bool:
    """A reduction over exactly the last dimension."""
    dims = argument(node, 1, "dim")
    rank = len(shape(node.args[0]))  # type: ignore[arg-type]
    listed = [dims] if isinstance(dims, int) else list(dims or [])
    return [d % rank for d in listed] == [rank - 1] if rank else False


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


def vector_of(node: Any, length: int) -> bool:
    """A tensor that varies along the last dimension only: [N], [1, N]."""
    if not isinstance(node, Node) or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    sizes = shape(node)
    return bool(sizes) and sizes[-1] == length and value(node).numel() == length
