"""What of the catalogue a region's graph shows: single calls by their names, by-hand forms by their terms."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from kernels.libraries.patterns import graph_matchers
from kernels.libraries.patterns.readings import readable, readable_anywhere
from kernels.libraries.patterns.recipes import RECIPES, Recipe
from kernels.libraries.patterns.tails import tail
from kernels.libraries.patterns.terms import Call, Either, Leaf, Listed, Term, Viewed, With, arguments, fits, heads
from profiler.region import op_kinds
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import VIEWS, Match, Role, operation_names, role
from profiler.region.graph.nodes import CASTS, is_call, shape

CALLS: Mapping[str, str] = {
    "batch_norm": "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional cudnn_batch_norm",
    "group_norm": "native_group_norm",
    "convolution": "convolution cudnn_convolution",
    "grouped_gemm": "_grouped_mm grouped_mm",
    "fp8_gemm": "_scaled_mm",
    "int8_gemm": "_int_mm",
    "embedding": "embedding",
    "embedding_backward": "embedding_dense_backward",
    "embedding_bag": "_embedding_bag _embedding_bag_forward_only embedding_bag",
    "gather": "gather index index_select take _unsafe_index",
    "scatter_add": "index_add scatter_add",
    "segment": "segment_reduce scatter_reduce index_reduce",
    "sort": "sort argsort msort",
    "topk": "topk",
    "scan": "cumsum cumprod cummax cummin logcumsumexp",
    "histogram": "histc bincount nonzero",
    "pooling": """max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d max_pool1d avg_pool1d
        _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d""",
    "fft": "_fft_r2c _fft_c2r _fft_c2c",
    "activation": "gelu silu relu mish elu softplus hardswish",
    "dropout": "native_dropout",
    "pair_loss": """mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits
        soft_margin_loss""",
    "kv_append": "index_put index_copy",
}
"""Kind -> the aten operations that are it by themselves, by base name."""

KIND_OF_CALL: Mapping[str, str] = {name: kind for kind, names in CALLS.items() for name in names.split()}
CAUSAL_KIND = "causal_conv1d"
TITLE_WORDS = {"fft": "FFT", "fp8_gemm": "scaled GEMM", "mx_gemm": "block-scaled GEMM", "int8_gemm": "int8 GEMM"}
GIVEN_NAMES = {"self": "x", "input": "x", "grad_output": "x", "indices": "index"}
"""Roles that read better than the schema's names."""


BLOCK_SCALED = (torch.float8_e8m0fnu, torch.float4_e2m1fn_x2)
"""Of mxfp8 the scales, of mxfp4 and nvfp4 the numbers."""


def recognised(graph: Graph, matches: Sequence[Match]) -> tuple[Match, ...]:
    """Every match for the catalogue: those of `profiler.region.graph.patterns`, single calls, by-hand forms, and the
    walks.

    A form inside a larger one is left out: the softmax of an attention is no softmax to replace.
    """
    settled = tuple(_told_apart(m, graph) for m in matches if not _listed(m, graph))
    recipes = tuple(_recipes(graph))
    forms = [*recipes, *graph_matchers.walked(graph, (*settled, *recipes)), *tail(graph)]
    larger = [m.operations for m in (*settled, *forms) if m.by_hand]
    kept = [m for m in forms if not any(m.operations < other for other in larger)]
    return (*settled, *single_calls(graph), *kept, *graph_matchers.whole(graph))


def _listed(match: Match, graph: Graph) -> bool:
    """A match that is one call of the table: `single_calls` gives it with its arguments."""
    only = next(iter(match.operations)) if len(match.operations) == 1 else ""
    return not match.by_hand and bool(only) and op_kinds.base_name(graph.operation(only).target) in KIND_OF_CALL


def _told_apart(match: Match, graph: Graph) -> Match:
    """Products of one matrix and of a batch of them are two operations of the catalogue."""
    if match.kind == "gemm" and op_kinds.base_name(graph.operation(match.output).target) in ("bmm", "baddbmm"):
        return replace(match, kind="batched_gemm")
    return match


def single_calls(graph: Graph) -> Iterator[Match]:
    """Operations that are one call, with their arguments by the schema's names: tensors, numbers, tuples of numbers."""
    for node, name in graph.named_calls:
        kind = KIND_OF_CALL.get(name)
        if kind is None:
            continue
        roles: dict[str, Role] = {}
        for argument, (given, _) in arguments(node).items():
            roles[GIVEN_NAMES.get(argument, argument)] = _as_role(graph, given)
        roles["call"] = name
        roles["function"] = name.removeprefix("_").removesuffix("_with_indices")
        kind = _closer(kind, node)
        if kind:
            title = TITLE_WORDS.get(kind, kind.replace("_", " "))
            yield Match(kind, title, False, operation_names(graph, [node]), node.name, roles)


def _as_role(graph: Graph, given: Any) -> Role:
    if isinstance(given, (list, tuple)):
        nodes = [g for g in given if isinstance(g, Node)]
        if len(nodes) == 1:
            return role(graph, nodes[0])
        return tuple(given) if all(isinstance(g, int) for g in given) else None
    return role(graph, given) if isinstance(given, (Node, int, float, bool)) else None


def _closer(kind: str, node: Node) -> str:
    """A narrower kind where the arguments say so; "" where the call is no such operation."""
    if kind == "convolution":
        named = {k: v for k, (v, _) in arguments(node).items()}
        x: Any = named.get("input", named.get("self"))
        groups = named.get("groups", 1)
        return "depthwise_convolution" if groups > 1 and groups == shape(x)[1] else kind
    if kind == "fp8_gemm":
        return "mx_gemm" if any(t.meta["val"].dtype in BLOCK_SCALED for t in node.all_input_nodes) else kind
    if kind == "kv_append":
        rows = len(shape(node)) == 3
        return kind if rows and not arguments(node).get("accumulate", (False, None))[0] else ""
    return kind


def causal_convolutions(graph: Graph) -> Iterator[Match]:
    """Those along time, which a kernel of our own takes as well as a library."""
    if any(name == "convolution" for _, name in graph.named_calls):
        yield from (m for m in _recipes(graph) if m.kind == CAUSAL_KIND)


MOST_CALLS = 24
"""In a graph of more, a form ends where a call is written that it ends with: to read each value as every call takes
tens of milliseconds there.
"""


def _recipes(graph: Graph) -> Iterator[Match]:
    by_name: dict[str, list[Node]] = {}
    short = len(graph.named_calls) <= MOST_CALLS
    for node, name in graph.named_calls:
        for one in {name} | (readable(node) if short else frozenset()):
            by_name.setdefault(one, []).append(node)
    present = by_name.keys() | readable_anywhere(graph.module)
    for recipe, by_term, needed in zip(RECIPES, HEADS, NEEDED, strict=True):
        taken: set[str] = set()
        for term, first, wanted in zip(recipe.terms, by_term, needed, strict=True):
            if not any(all(names & present for names in way) for way in wanted):
                continue
            for node in (n for head in sorted(first & by_name.keys()) for n in by_name[head]):
                match = _one(graph, recipe, term, node) if node.name not in taken else None
                if match is not None:
                    taken.add(node.name)
                    yield match


def _one(graph: Graph, recipe: Recipe, term: Term, node: Node) -> Match | None:
    for bound in fits(term, node, {}):
        settled: Mapping[str, Any] | None = bound if recipe.settled is None else recipe.settled(bound)
        if settled is None:
            continue
        leaves = [settled[r] for r in leaf_roles(term) if isinstance(settled.get(r), Node)]
        output = _after_casts(node)
        free = {settled[r] for r in recipe.shared if isinstance(settled.get(r), Node)}
        inside = enclosed(graph, output, leaves, free)
        if inside is not None:
            roles = {k: role(graph, v) for k, v in settled.items() if isinstance(v, (Node, int, float, str))}
            roles |= {k: None for k, v in settled.items() if v is None}
            return Match(recipe.kind, recipe.title, True, inside, output.name, roles)
    return None


def _after_casts(node: Node) -> Node:
    """The node behind its only user, where that changes the floating dtype."""
    user = next(iter(node.users)) if len(node.users) == 1 else None
    if user is not None and is_call(user, "_to_copy") and user.meta["val"].dtype.itemsize > 1:
        return user
    return node


def enclosed(graph: Graph, output: Node, leaves: Iterable[Node], free: Iterable[Node]) -> frozenset[str] | None:
    """Operations between the leaves and the output; None where one is read from outside and is not in `free`."""
    stops, allowed = set(leaves), set(free)
    inside: set[Node] = set()
    waiting = [output]
    while waiting:
        node = waiting.pop()
        if node not in inside and node not in stops and node.op == "call_function":
            inside.add(node)
            waiting += node.all_input_nodes
    for node in inside - {output} - allowed:
        if any(u not in inside for u in node.users) and not _shareable(node):
            return None
    return operation_names(graph, inside)


def _shareable(node: Node) -> bool:
    """What stays computed at no cost, and a tuple of which only parts are read."""
    return is_call(node, *CASTS, *VIEWS, "getitem", "ones", "arange", "tril", "full", "scalar_tensor", "zeros") or any(
        is_call(u, "getitem") for u in node.users
    )


def leaf_roles(term: Any) -> frozenset[str]:
    """Roles of the tensors that a term is given."""
    if isinstance(term, Leaf):
        return frozenset({term.role})
    if isinstance(term, Call):
        parts = (*term.operands, *(o for o in term.options.values() if not isinstance(o, (str, int, float))))
    elif isinstance(term, Listed):
        parts = term.items
    elif isinstance(term, Either):
        parts = term.terms
    elif isinstance(term, (With, Viewed)):
        parts = (term.term,)
    else:
        parts = ()
    return frozenset().union(*(leaf_roles(p) for p in parts)) if parts else frozenset()


Ways = frozenset[frozenset[frozenset[str]]]
"""Any of these; of each, all; of each of them, one name."""
NO_NEED: Ways = frozenset({frozenset()})


def _ways(term: Any) -> Ways:
    """What names a graph must have for the term to be in it."""
    if isinstance(term, Call):
        ways = frozenset({frozenset({frozenset(term.names)})})
        for part in (*term.operands, *(o for o in term.options.values() if not isinstance(o, (str, int, float)))):
            ways = _both(ways, _ways(part))
        return ways
    if isinstance(term, Listed):
        return functools.reduce(_both, map(_ways, term.items), NO_NEED)
    if isinstance(term, (With, Viewed)):
        return _ways(term.term)
    if isinstance(term, Either):
        return frozenset().union(*map(_ways, term.terms))
    return NO_NEED


def _both(one: Ways, other: Ways) -> Ways:
    return frozenset(a | b for a in one for b in other)


HEADS: tuple[tuple[frozenset[str], ...], ...] = tuple(tuple(map(heads, r.terms)) for r in RECIPES)
NEEDED: tuple[tuple[Ways, ...], ...] = tuple(tuple(map(_ways, r.terms)) for r in RECIPES)
"""Of each recipe's terms, in order."""
