"""Matrix products in a graph, with and without their bias."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from profiler.region.graph.nodes import behind_casts, is_call, operands, shape, vector_of


def product_and_bias(node: Any) -> tuple[Node, Node, Node] | None:
    """(bias, a, b) of a @ b + bias with a 1-D bias; views of whole leading dimensions are looked through."""
    bias: Any
    a: Any
    b: Any
    node = behind_views(node)
    if is_call(node, "addmm") and not node.kwargs:
        bias, a, b = node.args
    elif is_call(node, "add") and not node.kwargs:
        left, right = operands(node)
        product, bias = (left, right) if is_product(left) else (right, left)
        if not is_product(product):
            return None
        product = behind_views(product)
        a, b = product.args
    else:
        return None
    width = shape(b)[-1]
    if not vector_of(bias, width) or len(shape(bias)) != 1 or bias is behind_casts(a):
        return None
    return bias, a, b


def behind_views(node: Any) -> Any:
    """The node behind views that keep the last dimension; a scalar has none to keep."""
    while is_call(node, "view", "_unsafe_view") and shape(node)[-1:] == shape(node.args[0])[-1:]:
        node = node.args[0]
    return node


def is_product(node: Any) -> bool:
    """A product of two matrices, also of more leading dimensions put together."""
    return is_call(behind_views(node), "mm")
