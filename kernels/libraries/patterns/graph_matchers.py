"""Operations of the catalogue that no single term says: attention looked at closely, loops, whole regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch.fx import Node

from kernels.libraries.patterns.weight_only import weight_only
from profiler.region import op_kinds
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import (
    VIEWS,
    Match,
    Role,
    calls,
    covered_operations,
    node_of,
    operation_names,
    role,
)
from profiler.region.graph.nodes import CASTS, is_call, name_of, number, operands, shape, value
from profiler.region.operations import kind_of

MOVES = (*CASTS, *VIEWS, "_unsafe_view", "clone")
POSITIONS = frozenset(
    """arange unsqueeze view expand sub add abs lt le gt ge eq ne logical_and bitwise_and logical_or bitwise_or
    bitwise_not logical_not ones full tril triu zeros scalar_tensor _to_copy mul floor_divide remainder""".split()
)
SEVERAL, TINY_BYTES = 4, 1 << 20


def walked(graph: Graph, matches: Sequence[Match]) -> Iterator[Match]:
    """Matches that refine others or walk further than a term does."""
    by_name = {n.name: n for n in graph.module.graph.nodes}
    for match in matches:
        if match.kind == "attention" and match.by_hand:
            yield from _closer_attention(graph, match, by_name)
        elif match.kind in ("rms_norm", "add_rms_norm", "layer_norm"):
            yield from _norm_and_quant(graph, match, matches)
        elif match.kind == "cross_entropy":
            yield from _loss_of_product(graph, match)
        elif match.kind == "rope":
            yield from _rope_after_norm(graph, match, matches)
    yield from weight_only(graph)
    yield from _paged(graph)
    yield from _recurrence(graph)
    yield from _expert_loop(graph)
    yield from _separate(graph)


def _closer_attention(graph: Graph, match: Match, by_name: dict[str, Node]) -> Iterator[Match]:
    """Documents packed into one row, masks of positions alone, values that are a part of the keys."""
    mask: Any = by_name.get(str(match.roles.get("mask")))
    while is_call(mask, "bitwise_not", "logical_not", *CASTS):
        mask = mask.args[0]
    if is_call(mask, "eq") and all(is_call(o, "unsqueeze") for o in operands(mask)):
        first, second = (o.args[0] for o in operands(mask) if isinstance(o, Node))
        if first is second:
            documents = {"documents": role(graph, first)}
            yield replace(match, kind="varlen_attention", title="packed attention", roles=match.roles | documents)
    elif mask is not None and _of_positions(mask):
        yield replace(match, kind="local_attention", title="attention with a mask of positions")
    keys, values = by_name.get(str(match.roles["k"])), by_name.get(str(match.roles["v"]))
    source: Any = values.args[0] if values is not None and is_call(values, "slice") else None
    if source is not None and role(graph, source) == match.roles["k"] and (keys is None or source is keys):
        latent = {"latent": match.roles["k"], "width": shape(source)[-1]}
        yield replace(match, kind="mla", title="latent attention", roles=match.roles | latent)


def _of_positions(node: Node) -> bool:
    """Made of positions alone: the same for every input."""
    waiting, seen = [node], set()
    while waiting:
        one = waiting.pop()
        if one.op != "call_function" or name_of(one) not in POSITIONS:
            return False
        if one not in seen:
            seen.add(one)
            waiting += one.all_input_nodes
    return True


def _norm_and_quant(graph: Graph, match: Match, matches: Sequence[Match]) -> Iterator[Match]:
    by_name = {n.name: n for n in graph.module.graph.nodes}
    for quant in (q for q in matches if q.kind == "quantise"):
        x: Any = by_name.get(str(quant.roles["x"]))
        normed: Any = by_name[match.output]
        if x is not None and _behind(x, _nothing) is _behind(normed, _nothing):
            roles = {**match.roles, "to": quant.roles["to"], "stored": quant.roles["stored"]}
            inside = match.operations | quant.operations
            yield Match("norm_quant", "norm and quantisation", True, inside, quant.output, roles)


def _loss_of_product(graph: Graph, match: Match) -> Iterator[Match]:
    """The loss of logits that are a product of two matrices and nothing else's."""
    product: Any = node_of(graph, match.roles["x"])
    while is_call(product, *MOVES):
        product = product.args[0]
    output, target = node_of(graph, match.output), node_of(graph, match.roles["target"])
    if not is_call(product, "mm") or output is None:
        return
    a, b = operands(product)
    inside = covered_operations(graph, output, [a, b, target])
    if inside is not None:
        roles = {k: v for k, v in match.roles.items() if k != "x"} | {"a": role(graph, a), "b": role(graph, b)}
        yield Match("linear_cross_entropy", "linear and cross entropy", True, inside, match.output, roles)


def _rope_after_norm(graph: Graph, match: Match, matches: Sequence[Match]) -> Iterator[Match]:
    for norm in (n for n in matches if n.kind == "rms_norm"):
        if norm.output == match.roles["x"]:
            roles = {**norm.roles, **{k: v for k, v in match.roles.items() if k != "x"}}
            inside = match.operations | norm.operations
            yield Match("qk_norm_rope", "norm of heads and RoPE", True, inside, match.output, roles)


def _nothing(node: Node) -> bool:
    return False


def _behind(node: Any, stop: Callable[[Node], bool]) -> Any:
    """The node behind views, copies and casts, or the first for which `stop` holds."""
    while isinstance(node, Node) and is_call(node, *MOVES) and not stop(node):
        node = node.args[0]
    return node


def _paged(graph: Graph) -> Iterator[Match]:
    """softmax(q · kᵀ) · v with keys and values gathered from pages by one table."""
    for node in calls(graph, "_softmax"):
        scores: Any = node.args[0]
        while is_call(scores, *MOVES) or (is_call(scores, "mul", "div") and number(scores.args[1]) is not None):
            scores = scores.args[0]
        output = next((u for u in _readers(node) if is_call(u, "bmm")), None)
        if not is_call(scores, "bmm") or output is None:
            continue
        keys, values = _pages(scores), _pages(output)
        if keys is None or values is None or keys[1] is not values[1]:
            continue
        (k, table, q), v = keys, values[0]
        last = output
        while len(last.users) == 1 and is_call(next(iter(last.users)), *MOVES):
            last = next(iter(last.users))
        inside = covered_operations(graph, last, [q, k, v, table])
        if inside is not None:
            named = {"q": q, "k": k, "v": v, "table": table}
            roles = {r: role(graph, n) for r, n in named.items()}
            yield Match("paged_attention", "attention over pages", True, inside, last.name, roles)


def _readers(node: Node) -> Iterator[Node]:
    for user in node.users:
        if is_call(user, *MOVES):
            yield from _readers(user)
        else:
            yield user


def _pages(product: Any) -> tuple[Node, Node, Node] | None:
    """(cache, table, other operand) of a product whose one operand is an indexed cache."""
    for ours, other in (operands(product), operands(product)[::-1]):
        pages = _behind(ours, _nothing)
        if not is_call(pages, "index"):
            continue
        cache, tables = cast("tuple[Node, list[Node]]", pages.args[:2])
        if len(tables) == 1 and len(shape(tables[0])) == 2:
            return cache, tables[0], _behind(other, _nothing)
    return None


def _recurrence(graph: Graph) -> Iterator[Match]:
    """h = a · h + b, unrolled SEVERAL times or more: a scan, a state-space model, or a linear attention's state."""
    for node in calls(graph, "stack", "cat"):
        parts: Any = node.args[0]
        if len(parts) < SEVERAL or not all(isinstance(p, Node) for p in parts):
            continue
        possible = [_step(p) for p in parts]
        steps = [s for s in possible if s is not None]
        states = [s[0] for s in steps]
        if len(steps) < len(possible) or not all(b[1] is a for a, b in zip(states, steps[1:], strict=False)):
            continue
        decays, news = [s[2] for s in steps], [s[3] for s in steps]
        outer = all(_outer(n) for n in news)
        full = isinstance(decays[0], Node) and shape(decays[0])[-2:] == shape(states[0])[-2:]
        kind = "linear_recurrence"
        if outer and len(shape(states[0])) >= 3:
            kind = "selective_scan" if full and 1 not in shape(decays[0])[-2:] else "linear_attention"
        inside = operation_names(graph, _until_inputs(node))
        roles: dict[str, Role] = {"x": role(graph, states[0]), "state": shape(states[0])[-1], "steps": len(parts)}
        yield Match(kind, kind.replace("_", " "), True, inside, node.name, roles)


def _step(part: Node) -> tuple[Node, Any, Any, Any] | None:
    """(new state, old state, factor, what is added) of one step, from the state or from what it is read by."""
    node: Any = part
    for _ in range(6):
        if is_call(node, "add"):
            for product, new in (operands(node), operands(node)[::-1]):
                if is_call(product, "mul"):
                    for old, factor in (operands(product), operands(product)[::-1]):
                        if isinstance(old, Node) and shape(old) == shape(node) and _is_state(old):
                            return node, old, factor, new
            return None
        if is_call(node, "sum", *MOVES):
            node = node.args[0]
        elif is_call(node, "mul", "bmm"):
            node = next((o for o in operands(node) if is_call(_behind(o, _nothing), "add")), None)
            node = _behind(node, _nothing)
        else:
            return None
    return None


def _is_state(node: Node) -> bool:
    """What a step may start from: a step before it, zeros, or an input."""
    return node.op == "placeholder" or is_call(node, "add", "zeros_like", "zeros", "new_zeros", "full")


def _outer(node: Any) -> bool:
    """A product of two that each broadcast: an outer product."""
    if not is_call(node, "mul"):
        return False
    parts = [o for o in operands(node) if isinstance(o, Node)]
    return len(parts) == 2 and all(shape(p) != shape(node) for p in parts)


def _until_inputs(node: Node) -> set[Node]:
    inside: set[Node] = set()
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if one.op == "call_function" and one not in inside:
            inside.add(one)
            waiting += one.all_input_nodes
    return inside


def _expert_loop(graph: Graph) -> Iterator[Match]:
    """cat of products of slices of one tensor with the matrices of one stack: a grouped product in a loop."""
    for node in calls(graph, "cat"):
        listed: Any = node.args[0]
        parts = [_behind(p, lambda n: is_call(n, "slice")) for p in listed]
        if len(parts) < 2 or not all(is_call(p, "mm") for p in parts):
            continue
        rows, matrices = ([_source(p.args[i]) for p in parts] for i in (0, 1))
        if None in rows or None in matrices or len(set(rows)) != 1 or len(set(matrices)) != 1:
            continue
        inside = covered_operations(graph, node, [rows[0], matrices[0]])
        if inside is not None and len(shape(matrices[0])) == 3:
            sizes = tuple(shape(p)[0] for p in parts)
            roles: dict[str, Role] = {"x": role(graph, rows[0]), "weight": role(graph, matrices[0]), "rows": sizes}
            yield Match("grouped_gemm", "products of experts in a loop", True, inside, node.name, roles)


def _source(node: Any) -> Any:
    """What a slice, a row of a stack or a part of a split is of."""
    node = _behind(node, lambda n: is_call(n, "slice", "select"))
    if is_call(node, "getitem"):
        node = node.args[0]
    whole = is_call(node, "slice", "select", "split", "split_with_sizes", "unbind")
    return _behind(node.args[0], _nothing) if whole else None


def _separate(graph: Graph) -> Iterator[Match]:
    """One operation on each of SEVERAL separate tensors: what a loop over parameters gives."""
    outputs = set(graph.outputs)
    alike: dict[tuple[str, str], list[Node]] = {}
    for node, _ in graph.named_calls:
        first = node.args[0] if node.args else None
        given = isinstance(first, Node) and first.op == "placeholder"
        single = isinstance(node.meta.get("val"), torch.Tensor)
        if given and single and node.name in outputs and kind_of(str(node.target)) == op_kinds.POINTWISE:
            alike.setdefault((str(node.target), str(value(node).dtype)), []).append(node)
    for nodes in alike.values():
        if len(nodes) >= SEVERAL and len({n.args[0] for n in nodes}) == len(nodes):
            inside = operation_names(graph, nodes)
            roles: dict[str, Role] = {"x": role(graph, nodes[0].args[0]), "call": name_of(nodes[0]),
                                      "tensors": len(nodes), "dtypes": 1}  # fmt: skip
            yield Match("foreach", "one operation for many tensors", True, inside, nodes[-1].name, roles)


def whole(graph: Graph) -> Iterator[Match]:
    """What the region is as a whole: a chain of pointwise operations, and many small launches."""
    working = [o for o in graph.operations if o.kind not in (op_kinds.VIEW, op_kinds.CONSTANT)]
    if len(working) < 2:
        return
    names = frozenset(o.name for o in graph.operations if o.kind != op_kinds.CONSTANT)
    first = next((n for n, _ in graph.inputs), None)
    roles: dict[str, Role] = {
        "x": first,
        "launches": len(working),
        "most_bytes": max(t.bytes for o in working for t in o.writes),
    }
    if all(o.kind in (op_kinds.POINTWISE, op_kinds.COPY, op_kinds.RANDOM) for o in working):
        yield Match("pointwise", "pointwise chain", True, names, working[-1].name, dict(roles))
    if len(working) > SEVERAL and all(t.bytes <= TINY_BYTES for o in working for t in (*o.reads, *o.writes)):
        yield Match("launch_bound", "many small launches", True, names, working[-1].name, dict(roles))
