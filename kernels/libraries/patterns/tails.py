"""A matrix product with what follows it, as one match: bias, activation, mask, residual, each at most once."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from kernels.libraries.patterns.matrix_products import behind_views, is_product, product_and_bias
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, covered_operations, role
from profiler.region.graph.nodes import argument, behind_casts, is_call, operands, shape


def tail(graph: Graph) -> tuple[Match, ...]:
    """The region's one output, where it is such a product; none for a product alone, or with its bias.

    Roles: a, b, and where there are any bias, mask, residual (nodes), activation ("none", "relu", "gelu", "gelu_tanh",
    "silu").
    """
    results = next(n for n in graph.module.graph.nodes if n.op == "output").args[0]
    results = results if isinstance(results, (tuple, list)) else (results,)
    if len(results) != 1 or not isinstance(results[0], Node):
        return ()
    node: Any = results[0]
    output = node
    by_role: dict[str, object] = {"residual": None, "mask": None, "activation": "none"}
    node, by_role["residual"] = _without(node, "add")
    node, by_role["mask"] = _without(node, "mul")
    if is_call(node, "relu", "silu", "gelu"):
        tanh = is_call(node, "gelu") and argument(node, 1, "approximate") == "tanh"
        by_role["activation"] = "gelu_tanh" if tanh else _activation(node)
        node = node.args[0]
    by_role |= dict(zip(("bias", "a", "b"), product_and_bias(node) or (None, None, None), strict=True))
    if by_role["a"] is None and is_product(node):
        product = behind_views(node)
        by_role |= {"a": product.args[0], "b": product.args[1]}
    if by_role["a"] is None or output is node:
        return ()
    leaves = [leaf for n in ("a", "b", "bias", "mask", "residual") if isinstance(leaf := by_role[n], Node)]
    inside = covered_operations(graph, output, leaves)
    if inside is None:
        return ()
    roles = {name: role(graph, value) for name, value in by_role.items()}
    return (Match("gemm_tail", "GEMM with its tail", True, inside, output.name, roles),)


def _activation(node: Node) -> str:
    return next(n for n in ("relu", "silu", "gelu") if is_call(node, n))


def _without(node: object, operation: str) -> tuple[Any, Any]:
    """(what goes on, the full-size operand that is given), where the node adds or multiplies one; else (node, None)."""
    if not is_call(node, operation) or node.kwargs:
        return node, None
    left, right = operands(node)
    for inner, given in ((left, right), (right, left)):
        source = behind_casts(given) if isinstance(given, Node) else None
        if (
            isinstance(source, Node)
            and source.op == "placeholder"
            and shape(source) == shape(node)
            and inner is not given
        ):
            return inner, source
    return node, None
