"""Matrix products in a graph, with and without their bias."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from kernels.libraries.patterns.readings import calls_of
from profiler.region.graph.nodes import behind_casts, is_call, shape, vector_of


def product_and_bias(node: Any) -> tuple[Node, Node, Node] | None:
    """(bias, a, b) of a @ b + bias with a 1-D bias; views of whole leading dimensions are looked through."""
    bias: Any
    a: Any
    b: Any
    node = behind_views(node)
    if is_call(node, "addmm", "add") and node.kwargs:
        return None
    if is_call(node, "addmm"):
        bias, a, b = node.args
        return (bias, a, b) if _is_bias(bias, a, b) else None
    for _, (left, right, *_more) in calls_of(node, "add"):
        product, bias = (left, right) if is_product(left) else (right, left)
        if is_product(product):
            a, b = behind_views(product).args
            if _is_bias(bias, a, b):
                return bias, a, b
    return None


def _is_bias(bias: Any, a: Any, b: Any) -> bool:
    return vector_of(bias, shape(b)[-1]) and len(shape(bias)) == 1 and bias is not behind_casts(a)


def behind_views(node: Any) -> Any:
    """The node behind views that keep the last dimension; a scalar has none to keep."""
    while is_call(node, "view", "_unsafe_view") and shape(node)[-1:] == shape(node.args[0])[-1:]:
        node = node.args[0]
    return node


def is_product(node: Any) -> bool:
    """A product of two matrices, also of more leading dimensions put together."""
    return is_call(behind_views(node), "mm")
