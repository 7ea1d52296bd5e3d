"""Attention by hand: softmax(q @ kᵀ · scale + bias) @ v."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

from torch.fx import Node

from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, Role, calls, covered_operations, role
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

ADDITIVE = "additive"


@dataclass(frozen=True, slots=True)
class _Scores:
    """What the scores are made of: product is q @ kᵀ, mask the node that hides some, mask_kind how it does.

    mask_kind: ADDITIVE, "drop" where true hides, "keep" where true shows; None without a mask. causal: the mask is a
    triangle, which an argument of the call says.
    """

    product: Node
    scale: float = 1.0
    mask: Node | None = None
    mask_kind: str | None = None
    causal: bool = False


@dataclass(frozen=True, slots=True)
class _Mask:
    """One step that hides scores, and the scores behind it."""

    scores: object
    node: Node
    kind: str
    causal: bool = False


def attention(graph: Graph) -> Iterator[Match]:
    """softmax(q @ kᵀ · scale + bias) @ v, with mask, casts and dropout where there are any."""
    for node in calls(graph, "_softmax", "_safe_softmax"):
        rank = len(shape(node))  # 0: torch takes the softmax of a scalar
        if not rank or int(node.args[1]) % rank != rank - 1:  # type: ignore[arg-type]
            continue
        scores = _scores(node.args[0])
        output = next((u for u in _reach(node) if is_call(u, "bmm") and _reads_first(u, node)), None)
        if scores is None or output is None:
            continue
        product = scores.product
        v = behind_batch_views(output.args[1])
        output_product = output
        for view in output.users:
            output = view if is_call(view, "_unsafe_view", "view") and len(output.users) == 1 else output
        q, (k, transposed) = behind_batch_views(product.args[0]), _strip_transpose(product.args[1])
        inside = covered_operations(graph, output, [q, k, v, scores.mask])
        if inside is None:
            continue
        roles: dict[str, Role] = {
            "scale": scores.scale, "mask": role(graph, scores.mask), "mask_kind": scores.mask_kind,
            "causal": scores.causal, "dropout": _dropout(output_product), "q": role(graph, q), "k": role(graph, k),
            "v": role(graph, v), "k_transposed": transposed,
        }  # fmt: skip
        yield Match("attention", "attention by hand", True, inside, output.name, roles)


def _reach(node: Node) -> Iterator[Node]:
    """What reads the probabilities, through casts, views and dropout."""
    for user in node.users:
        if _passes(user):
            yield from _reach(user)
        else:
            yield user


def _reads_first(product: Node, probabilities: Node) -> bool:
    source: object = product.args[0]
    while _passes(source):
        source = source.args[0]
    return source is probabilities


def _passes(node: object) -> TypeGuard[Node]:
    """Hands the probabilities on with rows and columns where they were: casts, folded batches, dropout."""
    if is_call(node, "getitem"):
        return is_call(node.args[0], "native_dropout") and bool(node.args[1] == 0)
    folded = is_call(node, *BATCH_VIEWS) and shape(node)[-2:] == shape(node.args[0])[-2:]
    return folded or is_call(node, *CASTS, "native_dropout")


def _dropout(product: Node) -> float:
    """The rate at which probabilities are dropped before the second product."""
    source: object = product.args[0]
    while _passes(source):
        if is_call(source, "native_dropout"):
            return number(source.args[1]) or 0.0
        source = source.args[0]
    return 0.0


def _scores(node: object) -> _Scores | None:
    """Walk back from softmax's operand to the product q @ kᵀ: scale, additive bias, boolean mask on the way."""
    scale, causal = 1.0, False
    mask: _Mask | None = None  # of those that are no triangle
    for _ in range(12):
        node = behind_batch_views(node)
        if is_call(node, "bmm"):
            if not 0 < scale < math.inf:
                return None
            return _Scores(node, scale, mask.node if mask else None, mask.kind if mask else None, causal)
        constant = number(node.args[1]) if is_call(node, "mul", "div") else None
        if is_call(node, "mul", "div") and constant is not None:
            if is_call(node, "div") and not constant:
                return None  # scores that are not finite: no scale of attention
            scale *= constant if is_call(node, "mul") else 1 / constant
            node = node.args[0]
        elif is_call(node, "add", "masked_fill", "where") and mask is None:
            step = _mask(node, scale)
            if step is None:
                return None
            causal = causal if step.kind == ADDITIVE else step.causal
            mask = None if step.causal else step
            node = step.scores
        else:
            return None
    return None


def _mask(node: Node, scale: float) -> _Mask | None:
    """The mask of one step. scale: of the scores so far, from the softmax on."""
    if is_call(node, "add"):
        if scale != 1.0 or number(argument(node, 2, "alpha", 1)) != 1:
            return None  # a scale after the bias would scale the bias as well
        left, right = operands(node)
        scores = left if is_call(_strip_scale(left), "bmm") else right
        other = right if scores is left else left
        return _Mask(scores, other, ADDITIVE) if isinstance(other, Node) else None
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
    return _Mask(scores, dropped, kind, _is_causal(dropped, kind))


LEAST = -1e9
"""A score this low has probability 0 next to any other: what people write where -inf is meant."""


def _vanishes(fill: object) -> bool:
    """The value that masked scores get: -inf, or low enough. A fill of 0 is another function."""
    while isinstance(fill, Node) and is_call(fill, *CASTS, *BATCH_VIEWS, "full", "scalar_tensor"):
        fill = fill.args[1] if is_call(fill, "full") else fill.args[0]
    value = number(fill)
    return value is not None and value <= LEAST


def _strip_scale(node: object) -> object:
    node = behind_batch_views(node)
    while is_call(node, "mul", "div") and number(node.args[1]) is not None:
        node = behind_batch_views(node.args[0])
    return node


def _is_causal(node: object, kind: str) -> bool:
    """not(tril(ones)) as what is dropped, tril(ones) as what is kept, triu(ones, 1) as what is dropped."""
    inner = outer = behind_casts(node)
    if is_call(outer, "bitwise_not", "logical_not"):
        inner = behind_casts(outer.args[0])
    inverted = inner is not outer
    dropped = kind == "drop"
    if is_call(inner, "tril") and is_call(behind_casts(inner.args[0]), "ones", "full", "ones_like"):
        return argument(inner, 1, "diagonal", 0) == 0 and dropped == inverted
    if is_call(inner, "triu") and is_call(behind_casts(inner.args[0]), "ones", "full", "ones_like"):
        return argument(inner, 1, "diagonal", 0) == 1 and dropped != inverted
    return False


def _strip_transpose(node: object) -> tuple[object, bool]:
    """(k, True) where the product's operand is k with its last dimensions swapped, else (the operand, False)."""
    node = behind_batch_views(node)
    if is_call(node, "transpose"):
        rank = len(shape(node))
        if {d % rank for d in node.args[1:3] if isinstance(d, int)} == {rank - 1, rank - 2}:
            return node.args[0], True
    if is_call(node, "t"):
        return node.args[0], True
    return node, False
