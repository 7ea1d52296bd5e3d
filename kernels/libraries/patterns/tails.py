"""A matrix product with what follows it, as one match: bias, activation, mask, residual, each at most once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.fx import Node

from kernels.libraries.patterns.matrix_products import behind_views, is_product, product_and_bias
from kernels.libraries.patterns.readings import Part, calls_of, first_of
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, covered_operations, role
from profiler.region.graph.nodes import behind_casts, is_call, shape


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
    node, by_role["residual"] = _without(node, "add", output)
    node, by_role["mask"] = _without(node, "mul", output)
    activated = next(activations_of(node), None)
    if activated is not None:
        by_role["activation"], node = activated
    by_role |= dict(zip(("bias", "a", "b"), product_and_bias(node) or (None, None, None), strict=True))
    if by_role["a"] is None and is_product(node):
        product = behind_views(node)
        by_role |= {"a": product.args[0], "b": product.args[1]}
    if by_role["a"] is None or output is node:
        return ()
    by_role |= {n: first_of(by_role[n]) for n in ("a", "b", "bias")}
    leaves = [leaf for n in ("a", "b", "bias", "mask", "residual") if isinstance(leaf := by_role[n], Node)]
    inside = covered_operations(graph, output, leaves)
    if inside is None:
        return ()
    roles = {name: role(graph, value) for name, value in by_role.items()}
    return (Match("gemm_tail", "GEMM with its tail", True, inside, output.name, roles),)


def activations_of(node: object) -> Iterator[tuple[str, Any]]:
    """(which, what it is of) where the node is an activation, by a call or by hand."""
    for name, (x, *how) in calls_of(node, "relu", "silu", "gelu"):
        if name == "gelu" and isinstance(node, Node) and not how:
            how = [node.kwargs.get("approximate", "none")] if is_call(node, "gelu") else how
        yield "gelu_tanh" if how[:1] == ["tanh"] else name, x


def _without(node: object, operation: str, output: Node) -> tuple[Any, Any]:
    """(what goes on, the full-size operand that is given), where the node adds or multiplies one; else (node, None)."""
    if isinstance(node, Node) and is_call(node, operation) and node.kwargs:
        return node, None
    for _, (left, right, *_more) in calls_of(node, operation):
        for inner, given in ((left, right), (right, left)):
            source = first_of(behind_casts(given)) if isinstance(given, Node) else None
            if (
                isinstance(source, Node)
                and source.op == "placeholder"
                and shape(source) == shape(output)
                and isinstance(inner, (Node, Part))
                and inner is not given
            ):
                return inner, source
    return node, None
