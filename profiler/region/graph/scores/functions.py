"""Attention as FlexAttention takes it: the product of queries and keys, what changes its scores, and what hides them.

Whatever a region computes between the scores' product and the softmax becomes the code of two functions of one score
and its place: `score_mod`, and `mask_mod` of what is hidden by positions, by numbers of a row, of a column or of a
head. Which scores a mask of pairs hides (one that is stored for every row and column) is left to `score_mod`: no block
of it can be known to be empty without reading all of it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

import torch
from torch.fx import Node

from profiler.region.graph.canonical.graph_values import GraphValues, graph_values
from profiler.region.graph.canonical.identities import hidden
from profiler.region.graph.canonical.pattern import Pattern, told
from profiler.region.graph.canonical.values import Product, Shape, Table, Value, as_product, as_total
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, Role, calls, role
from profiler.region.graph.nodes import shape as shape_of
from profiler.region.graph.scores.fills import fills, turns
from profiler.region.graph.scores.masks import Sizes, hides_rows
from profiler.region.graph.scores.places import Name, Place, element_number, of, unravelled
from profiler.region.graph.scores.rules import RULES, both, hide
from profiler.region.graph.scores.text import COLUMN, ROW, SCORE, Said, UnsayableError, Writer, number

KIND, TITLE = "flex_attention", "attention with its own scores by hand"
NAMED = "scored_attention"
"""The kind of one that no other name fits, where regions are named."""
TENSOR = "tensor"
"""Roles of tensors that the code reads: tensor0, tensor1, ..., as the code names them."""
HIDDEN = number(-inf)
CAUSAL = Said(f"{ROW} >= {COLUMN}", 0, "bool", frozenset({ROW, COLUMN}))


@dataclass(frozen=True, slots=True)
class Functions:
    """score: code of `score_mod`, "" where scores stay as they are; keep: of `mask_mod`, "" where none is hidden.

    positions: the part of what is hidden that reads no tensor. captured: tensors that are read, by their names in the
    code. hides: `score` hides scores. averaged: a row that a tensor hides as a whole is the mean of all values in the
    graph, and 0 here.
    """

    scale: float
    score: str
    keep: str
    positions: str
    captured: tuple[tuple[str, Value], ...]
    by_batch: bool
    by_head: bool
    hides: bool
    averaged: bool


@functools.lru_cache(maxsize=4)
def _matches(module: torch.fx.GraphModule, graph: _ByIdentity) -> tuple[Match, ...]:
    return (*_by_hand(graph.graph), *_called(graph.graph))


@dataclass(frozen=True, slots=True, eq=False)
class _ByIdentity:
    graph: Graph

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.graph is self.graph

    def __hash__(self) -> int:
        return id(self.graph)


def matches(graph: Graph) -> tuple[Match, ...]:
    """Every attention of the graph whose scores can be said one by one."""
    return _matches(graph.module, _ByIdentity(graph))


# ------------------------------------------------------------------------------------------------------ written by hand


def _by_hand(graph: Graph) -> Iterator[Match]:
    values = graph_values(graph.module)
    if not {"softmax", "matmul"} <= values.table.operations:
        return
    for root in values.results:
        weights = root.args[0] if root.op == "matmul" else None
        if weights is not None and weights.op == "reshape" and weights.shape[-2:] == weights.args[0].shape[-2:]:
            weights = weights.args[0]
        if weights is None or weights.op != "softmax" or weights.attrs != (-1,) or not weights.scores:
            continue
        for product in _products(weights.args[0], weights.shape):
            one = _attention(graph, values, root, weights.args[0], product)
            if one:
                yield from one
                break


def _products(scores: Value, shape: tuple[int, ...]) -> Iterator[Value]:
    """What may be the product of queries and keys: of as many rows, columns and heads as the scores."""
    waiting, seen = [scores], set[Value]()
    while waiting:
        one = waiting.pop(0)
        if one in seen:
            continue
        seen.add(one)
        same = one.shape[-2:] == shape[-2:] and prod(one.shape) == prod(shape)
        if one.op == "matmul" and same:
            yield one
        elif one.op not in ("softmax", "matmul"):
            waiting += one.args


def _attention(graph: Graph, values: GraphValues, root: Value, scores: Value, product: Value) -> list[Match]:
    q, turned, v = product.args[0], product.args[1], root.args[1]
    k = values.table.turned(turned)
    sizes = _sizes(q.shape, k.shape, v.shape, scores.shape[:-2])
    if sizes is None or product.attrs != root.attrs:
        return []
    made = functions(values, product, scores, sizes)
    if made is None:
        return []
    q, k, turned, v = (_at_node(values, one) for one in (q, k, turned, v))
    transposed = bool(k.nodes) or not turned.nodes
    roles: dict[str, Value | Node | Role] = {
        "q": q, "k": k if transposed else turned, "v": v, "k_transposed": transposed, **_told(made, sizes)
    }  # fmt: skip
    roles |= dict(made.captured)
    free = frozenset(n for n, one in values.values.items() if not _scored(one, product))
    there = told(graph, values, PATTERN, roles, root, free)
    return [_without_shared(graph, m, free) for m in there]


def _at_node(values: GraphValues, one: Value) -> Value:
    """The operand, or where no node has it the same rows with their leading axes in one, as einsum lays them out."""
    views = (made for n in one.reshaped if (made := values.of(n)) is not None and made.shape[-2:] == one.shape[-2:])
    return one if one.nodes else next(views, one)


def plain(match: Match) -> Match | None:
    """The match as SDPA takes it, where its scores stay as they are and nothing or the future is hidden."""
    roles = match.roles
    scale = roles["scale"]
    positive = isinstance(scale, float) and scale > 0
    if not positive or roles["score"] or roles["keep"] not in ("", CAUSAL.code):
        return None
    more: dict[str, Role] = {"mask": None, "mask_kind": None, "causal": bool(roles["keep"])}
    return replace(match, kind="attention", title="attention by hand", roles=roles | more)


def _scored(result: object, product: Value) -> bool:
    """Made of the product; what is not one value may be."""
    return not isinstance(result, Value) or _depends(result, product)


def _depends(one: Value, product: Value) -> bool:
    waiting, seen = [one], set[Value]()
    while waiting:
        value = waiting.pop()
        if value is product:
            return True
        if value not in seen and value.order >= product.order:
            seen.add(value)
            waiting += value.args
    return False


def _without_shared(graph: Graph, match: Match, free: frozenset[Node]) -> Match:
    """Without what others read too, which stays computed: a mask that several layers share."""
    inside = {n for n in graph.module.graph.nodes if n.name in match.operations}
    kept: set[Node] = set()
    for node in reversed(graph.module.graph.nodes):
        if node in inside and node in free and any(u not in inside or u in kept for u in node.users):
            kept.add(node)
    operations = match.operations - {n.name for n in kept}
    return Match(match.kind, match.title, match.by_hand, operations, match.output, match.roles)


def _nothing(binding: object) -> None:
    return None


PATTERN = Pattern(KIND, TITLE, (), {}, _nothing, through_views=True)


def _sizes(q: Shape, k: Shape, v: Shape, scores: Shape = ()) -> Sizes | None:
    """As FlexAttention has them; None where keys and values do not fit to the queries. scores: leading axes of theirs,
    which tell batch and heads of queries that have them in one.
    """
    if min(map(len, (q, k, v))) < 2 or len(q) < 3 or q[-1] != k[-1] or k[-2] != v[-2]:
        return None
    lead = q[:-2] if len(q) > 3 or prod(scores) != prod(q[:-2]) else scores
    batch = lead[0] if len(lead) > 1 else 1
    heads = prod(lead) // batch
    keys, values = prod(k[:-2]), prod(v[:-2])
    if keys != values or (keys != 1 and keys % batch):
        return None
    groups = max(1, keys // batch)
    return Sizes(batch, heads, groups, q[-2], k[-2]) if heads % groups == 0 else None


def _told(made: Functions, sizes: Sizes) -> dict[str, Role]:
    return {
        "scale": made.scale, "score": made.score, "keep": made.keep, "positions": made.positions,
        "by_batch": made.by_batch, "by_head": made.by_head, "hides": made.hides,
        "averaged": made.averaged, "dropout": 0.0, "batch": sizes.batch,
        "heads": sizes.heads, "groups": sizes.groups, "rows": sizes.rows, "columns": sizes.columns,
    }  # fmt: skip


# ----------------------------------------------------------------------------------------------------- torch's own call


def _called(graph: Graph) -> Iterator[Match]:
    """scaled_dot_product_attention with a mask or in causal order."""
    values = graph_values(graph.module)
    for node in calls(graph, "attention"):
        q, k, v, mask, dropout, causal, scale, _ = node.args
        sizes = _sizes(shape_of(q), shape_of(k), shape_of(v))
        if sizes is None or dropout or len(shape_of(q)) != 4:
            continue
        shape = (sizes.batch, sizes.heads, sizes.rows, sizes.columns)
        product = values.table.make("scores_of", (), (node.name,), shape)
        factor = float(scale) if isinstance(scale, (int, float)) else shape_of(q)[-1] ** -0.5
        scores = values.table.scaled(product, factor)
        added = values.of(mask)
        if added is not None and isinstance(mask, Node):
            truths = mask.meta["val"].dtype == torch.bool
            scores = hidden(values.table, scores, added) if truths else values.table.plus((scores, 1.0), (added, 1.0))
        elif mask is not None:
            continue
        ends = [mask] if isinstance(mask, Node) and mask.meta["val"].dtype != torch.bool else []
        made = functions(values, product, scores, sizes, bool(causal), ends)
        if made is None:
            continue
        leaves = {"q": q, "k": k, "v": v} | {name: one.nodes[0] for name, one in made.captured}
        roles = {name: role(graph, leaf) for name, leaf in leaves.items()}
        yield Match(KIND, "SDPA attention", False, frozenset({node.name}), node.name,
                    {**roles, "k_transposed": True, **_told(made, sizes)})  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ functions


def functions(
    values: GraphValues, product: Value, scores: Value, sizes: Sizes, causal: bool = False,
    ends: Sequence[Node] | None = None,
) -> Functions | None:  # fmt: skip
    """The scores' code, in two functions; None where they can not be said one by one.

    ends: what is added by torch's own call, None where a node has the scores. Where a tensor hides scores by a finite
    number, `score_mod` says that number: a row that is hidden as a whole is then the mean that the graph makes of it.
    """
    batch, head = of(Name("b", sizes.batch)), of(Name("h", sizes.heads))
    row, column = of(Name(ROW, sizes.rows)), of(Name(COLUMN, sizes.columns))
    place = element_number((batch, head), (sizes.batch, sizes.heads))

    def places(shape: tuple[int, ...]) -> tuple[Place, ...]:
        return (*unravelled(place, shape[:-2]), row, column)

    shown, masks = without_masks(values.table, scores)
    if turns(scores):
        return None
    told = fills(values, product, scores.nodes or scores.reshaped if ends is None else ends, int(bool(ends)))
    at = places(scores.shape)

    def written(value: Value, low: float) -> tuple[Writer, Said]:
        first = Writer(RULES, values, product, places(product.shape), low=low)
        first.said(value, at)
        writer = Writer(RULES, values, product, places(product.shape), _scale(first), low)
        return writer, writer.said(value, at)

    try:
        writer, score = written(shown, -inf)
        parts = [CAUSAL] if causal else []
        for mask in masks:
            parts += [writer.operand(p, at) for p in (mask.args if mask.op == "all_of" else (mask,))]
        if SCORE not in score.names or any(p.kind != "bool" or not p.names or SCORE in p.names for p in parts):
            return None
        paired = [p for p in parts if p.names & writer.pairs]
        kept = [p for p in parts if not p.names & writer.pairs]
        for part in paired:
            score = hide(score, part)
        positions = _all([p for p in kept if not _reads(p)])
        hides = HIDDEN in score.code
        averaged = told.finite and (any(map(_reads, parts)) or (hides and _reads(score)))
        if averaged and told.single is not None:
            writer, score = written(scores, told.single)
            kept, hides, averaged = [CAUSAL] if causal else [], True, False
    except UnsayableError:
        return None
    keep = _all(kept)
    if positions and positions == keep and hides_rows(positions, sizes):
        return None
    names = frozenset[str]().union(*(p.names for p in kept))
    captured = tuple((name, value) for value, name in writer.captured.items())
    if any(not one.nodes for _, one in captured):
        return None
    said = "" if score.code == SCORE else score.code
    by = ("b" in names, "h" in names)
    return Functions(writer.scale, said, keep, positions, captured, *by, hides, averaged)


def _reads(said: Said) -> bool:
    return any(n.startswith(TENSOR) for n in said.names)


def _all(parts: Sequence[Said]) -> str:
    return both(parts).code if parts else ""


def _scale(writer: Writer) -> float:
    """What the product is multiplied with first: what everything has in common, and a cap as it is written."""
    if len(writer.factors) != 1:
        return 1.0
    (factor,) = writer.factors
    (cap,) = writer.caps if len(writer.caps) == 1 else (1.0,)
    return float(f"{factor * cap:.12g}") if factor * cap > 0 else factor


def without_masks(table: Table, scores: Value) -> tuple[Value, tuple[Value, ...]]:
    """(scores, what is kept of them): masks taken off sums and positive multiples, which they hide all the same."""
    if scores.op == "hidden":
        inner, masks = without_masks(table, scores.args[0])
        return inner, (*masks, scores.args[1])
    if scores.op == "product":
        parts = as_product(scores)
        bases = list(parts.exponents.items())
        if len(bases) == 1 and bases[0][1] == 1 and parts.coefficient > 0:
            inner, masks = without_masks(table, bases[0][0])
            return (table.product(Product(parts.coefficient, {inner: 1.0})), masks) if masks else (scores, ())
    if scores.op == "total":
        terms = as_total(scores, table)
        rest = [(table.number(terms.constant), 1.0)] if terms.constant else []
        taken: list[Value] = []
        for term, c in terms.coefficients.items():
            inner, more = without_masks(table, term) if c > 0 and term.shape == scores.shape else (term, ())
            taken += more
            rest.append((inner, c))
        return (table.plus(*rest), tuple(taken)) if taken else (scores, ())
    return scores, ()


def sizes_of(match: Match) -> Sizes:
    """Of a match's roles."""
    told_sizes = [match.roles[name] for name in ("batch", "heads", "groups", "rows", "columns")]
    return Sizes(*(int(n) for n in told_sizes if isinstance(n, (int, float))))


def tensors_of(match: Match) -> tuple[str, ...]:
    """Roles of the tensors that the code reads, in order."""
    return tuple(sorted((n for n in match.roles if n.startswith(TENSOR) and n[6:].isdigit()), key=lambda n: int(n[6:])))
