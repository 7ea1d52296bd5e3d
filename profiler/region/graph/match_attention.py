"""Attention by hand: softmax(q @ kᵀ · scale + bias) @ v."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch.fx import Node

from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, calls, covered_operations, role
from profiler.region.graph.nodes import (
    BATCH_VIEWS,
    CASTS,
    argument,
    behind_batch_views,
    behind_casts,
    is_call,
    number,
    operands,
    shape,
)


def attention(graph: Graph) -> Iterator[Match]:
    """softmax(q @ kᵀ · scale + bias) @ v, with mask, casts and dropout where they stand."""
    for node in calls(graph, "_softmax", "_safe_softmax"):
        rank = len(shape(node))  # 0: torch takes the softmax of a scalar
        if not rank or int(node.args[1]) % rank != rank - 1:  # type: ignore[arg-type]
            continue
        scores = _scores(graph, node.args[0])
        output = next((u for u in _reach(node) if is_call(u, "bmm") and _reads_first(u, node)), None)
        if scores is None or output is None:
            continue
        roles, product = scores
        v = behind_batch_views(output.args[1])
        output_product = output
        for view in output.users:
            output = view if is_call(view, "_unsafe_view", "view") and len(output.users) == 1 else output
        q, (k, transposed) = behind_batch_views(product.args[0]), _strip_transpose(product.args[1])
        leaves = [q, k, v, roles.pop("_mask_node")]
        inside = covered_operations(graph, output, leaves)
        if inside is None:
            continue
        roles["dropout"] = _dropout(output_product)
        roles |= {"q": role(graph, q), "k": role(graph, k), "v": role(graph, v), "k_transposed": transposed}
        yield Match("attention", "attention by hand", True, inside, output.name, roles)


def _reach(node: Node) -> Iterator[Node]:
    """What reads the probabilities, through casts, views and dropout."""
    for user in node.users:
        if _passes(user):
            yield from _reach(user)
        else:
            yield user


def _reads_first(product: Node, probabilities: Node) -> bool:
    source: Any = product.args[0]
    while _passes(source):
        source = source.args[0]
    return source is probabilities


def _passes(node: Any) -> bool:
    """Hands the probabilities on with rows and columns where they were: casts, folded batches, dropout."""
    if is_call(node, "getitem"):
        return is_call(node.args[0], "native_dropout") and node.args[1] == 0
    folded = is_call(node, *BATCH_VIEWS) and shape(node)[-2:] == shape(node.args[0])[-2:]
    return folded or is_call(node, *CASTS, "native_dropout")


def _dropout(product: Node) -> float:
    """The rate at which probabilities are dropped before the second product."""
    source: Any = product.args[0]
    while _passes(source):
        if is_call(source, "native_dropout"):
            return float(source.args[1])
        source = source.args[0]
    return 0.0


def _scores(graph: Graph, node: Any) -> tuple[dict[str, Any], Node] | None:
    """Walk back from softmax's operand to the product q @ kᵀ: scale, additive bias, boolean mask on the way."""
    roles: dict[str, Any] = {"scale": 1.0, "mask": None, "mask_kind": None, "causal": False, "_mask_node": None}
    for _ in range(12):
        node = behind_batch_views(node)
        if is_call(node, "bmm"):
            return (roles, node) if 0 < roles["scale"] < math.inf else None
        constant = number(node.args[1]) if is_call(node, "mul", "div") else None
        if constant is not None:
            if is_call(node, "div") and not constant:
                return None  # scores that are not finite: no scale of attention
            roles["scale"] *= constant if is_call(node, "mul") else 1 / constant
            node = node.args[0]
        elif is_call(node, "add", "masked_fill", "where") and roles["_mask_node"] is None:
            step = _mask(graph, node, roles)
            if step is None:
                return None
            node = step
        else:
            return None
    return None


def _mask(graph: Graph, node: Node, roles: dict[str, Any]) -> Any:
    """Record the mask of one step and return the scores behind it."""
    if is_call(node, "add"):
        if roles["scale"] != 1.0 or number(argument(node, 2, "alpha", 1)) != 1:
            return None  # a scale after the bias would scale the bias as well
        left, right = operands(node)
        scores = left if is_call(_strip_scale(left), "bmm") else right
        other = right if scores is left else left
        if not isinstance(other, Node):
            return None
        roles |= {"mask": role(graph, other), "mask_kind": "additive", "_mask_node": other}
        return scores
    if is_call(node, "masked_fill"):
        scores, dropped = operands(node)
        kind, fill = "drop", node.args[2]
    else:
        condition, first, second = node.args[:3]
        kept_first = is_call(_strip_scale(first), "bmm")
        scores, dropped, kind = (first, condition, "keep") if kept_first else (second, condition, "drop")
        fill = second if kept_first else first
    if not isinstance(dropped, Node) or not _vanishes(fill):
        return None
    causal = _is_causal(dropped, kind)
    roles |= {"mask": None if causal else role(graph, dropped), "mask_kind": None if causal else kind,
              "causal": causal, "_mask_node": None if causal else dropped}  # fmt: skip
    return scores


LEAST = -1e9
"""A score this low has probability 0 next to any other: what people write where -inf is meant."""


def _vanishes(fill: Any) -> bool:
    """The value that masked scores get: -inf, or low enough. A fill of 0 is another function."""
    while isinstance(fill, Node) and is_call(fill, *CASTS, *BATCH_VIEWS, "full", "scalar_tensor"):
        fill = fill.args[1] if is_call(fill, "full") else fill.args[0]
    value = number(fill)
    return value is not None and value <= LEAST


def _strip_scale(node: Any) -> Any:
    node = behind_batch_views(node)
    while is_call(node, "mul", "div") and number(node.args[1]) is not None:
        node = behind_batch_views(node.args[0])
    return node


def _is_causal(node: Any, kind: str) -> bool:
    """not(tril(ones)) as what is dropped, tril(ones) as what is kept, triu(ones, 1) as what is dropped."""
    node = behind_casts(node)
    inverted = is_call(node, "bitwise_not", "logical_not")
    inner = behind_casts(node.args[0]) if inverted else node
    dropped = kind == "drop"
    if is_call(inner, "tril") and is_call(behind_casts(inner.args[0]), "ones", "full", "ones_like"):
        return argument(inner, 1, "diagonal", 0) == 0 and dropped == inverted
    if is_call(inner, "triu") and is_call(behind_casts(inner.args[0]), "ones", "full", "ones_like"):
        return argument(inner, 1, "diagonal", 0) == 1 and dropped != inverted
    return False


def _strip_transpose(node: Any) -> tuple[Any, bool]:
    """(k, True) where the product's operand is k with its last dimensions swapped, else (the operand, False)."""
    node = behind_batch_views(node)
    if is_call(node, "transpose"):
        rank = len(shape(node))
        if {int(d) % rank for d in node.args[1:3]} == {rank - 1, rank - 2}:
            return node.args[0], True
    if is_call(node, "t"):
        return node.args[0], True
    return node, False
