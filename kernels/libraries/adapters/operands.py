"""Operands of a match as the entries' calls take them: what one call of torch's says, what casts and halves say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any, cast

import torch
from torch.fx import Node

from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, Role, node_of, role
from profiler.region.graph.nodes import CASTS, argument, is_call, same, shape, value

BY_ELEMENT = (*CASTS, "cos", "sin", "mul", "unsqueeze", "view", "expand")
"""What keeps two equal halves of the last dimension equal, where the other operand is a number."""


def completed(graph: Graph, match: Match) -> Match:
    """The match with the roles that the entries' calls name."""
    match = _as_by_hand(graph, match)
    more = ROLES.get(match.kind)
    return match if more is None else replace(match, roles={**match.roles, **more(graph, match)})


def _as_by_hand(graph: Graph, match: Match) -> Match:
    """A match that is one call of torch's already, with the roles that the same thing by hand has."""
    if match.by_hand or match.kind not in ("rms_norm", "layer_norm", "attention", "geglu", "cross_entropy"):
        return match
    nodes = [n for n in graph.module.graph.nodes if n.name in match.operations]
    told = ("rms_norm", "native_layer_norm", "attention", "gelu", "nll_loss_forward")
    node = next((n for n in nodes if is_call(n, *told)), None)
    if node is None or (node.kwargs and not is_call(node, "gelu")):
        return match
    arguments: tuple[Any, ...] = node.args
    if is_call(node, "gelu"):
        extra: dict[str, object] = {"approximate": node.kwargs.get("approximate", "none")}
    elif is_call(node, "nll_loss_forward"):
        number: Any = argument(node, 3, "reduction", 1)
        ignored = argument(node, 4, "ignore_index", -100)
        extra = {"reduction": ("none", "mean", "sum")[number], "ignore_index": ignored}
    elif is_call(node, "attention"):
        q, k, v, mask, dropout, causal, scale, _ = arguments
        kind = None if mask is None else "keep" if mask.meta["val"].dtype == torch.bool else "additive"
        extra = {"q": q, "k": k, "v": v, "mask": mask, "mask_kind": kind, "causal": causal, "scale": scale,
                 "dropout": dropout, "k_transposed": True}  # fmt: skip
    elif is_call(node, "rms_norm"):
        x, size, weight, eps = arguments
        extra = {"x": x, "weight": weight, "eps": eps, "width": size[-1]}
    else:
        x, size, weight, bias, eps = arguments
        extra = {"x": x, "weight": weight, "bias": bias, "eps": eps, "width": size[-1]}
    named = {k: role(graph, v) for k, v in extra.items()}
    return replace(match, roles={**match.roles, **named})


def _groups(graph: Graph, match: Match) -> Mapping[str, Role]:
    """GroupNorm's sizes: N, C, HxW and num_groups."""
    x: Any = node_of(graph, match.roles.get("x"))
    groups = match.roles.get("num_groups", match.roles.get("group"))
    if x is None or len(shape(x)) < 2:
        return {"num_groups": groups}
    return {"num_groups": groups, "N": shape(x)[0], "C": shape(x)[1], "HxW": prod(shape(x)[2:])}


def _logits(graph: Graph, match: Match) -> Mapping[str, Role]:
    """The logits in the dtype in which the text takes their loss: a loss of bf16 logits is rounded to bf16 by most. As
    `narrow` those before the text widens them, for calls that give the loss in f32 whatever they read.

    5.7e-4 from the f64 loss against 1.8e-6 for `cross_entropy((x @ w.t()).float(), t)`, liger_kernel 0.8.5 on an H200.
    """
    x = node_of(graph, match.roles.get("x"))
    casts = [] if x is None else [u for u in x.users if u.name in match.operations and is_call(u, "_to_copy")]
    wider = [c for c in casts if x is not None and value(c).dtype.itemsize > value(x).dtype.itemsize]
    return {"x": wider[0].name, "narrow": match.roles.get("x")} if wider else {}


def _halves(graph: Graph, match: Match) -> Mapping[str, Role]:
    """Whether cosines and sines are made of two equal halves."""
    nodes = [node_of(graph, match.roles.get(name)) for name in ("cos", "sin")]
    return {"twin_halves": all(n is not None and _twin(n) for n in nodes)}


def _twin(node: Any) -> bool:
    while is_call(node, *BY_ELEMENT):
        others = [a for a in node.args[1:] if isinstance(a, Node)]
        source = node.args[0]
        if others or shape(node)[-1:] != shape(source)[-1:]:
            return False
        node = source
    if is_call(node, "cat"):
        parts: Any = node.args[0]
        dim: Any = argument(node, 1, "dim", 0)
        return len(parts) == 2 and dim % len(shape(node)) == len(shape(node)) - 1 and same(*parts)
    return is_call(node, "repeat") and list(cast("list[int]", node.args[1]))[-1] == 2


ROLES: Mapping[str, Callable[[Graph, Match], Mapping[str, Role]]] = {
    "group_norm": _groups,
    "cross_entropy": _logits,
    "rope": _halves,
}
"""Kind -> further roles."""
