"""Which library calls cover a region: entries against matches, conditions judged on this host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx

from kernels.host import Host
from kernels.libraries.adapters.operands import completed
from kernels.libraries.catalogue import ENTRIES, OPERATIONS
from kernels.libraries.facts import facts_of
from kernels.libraries.flex_text import flex_text, of_heads, times_read
from kernels.libraries.model import Cover, Entry, Facts, least_version
from kernels.libraries.operand_text import Spelling, atom, negated, shown
from kernels.libraries.patterns.matrix_products import product_and_bias
from kernels.libraries.patterns.narrowed import narrowed
from kernels.libraries.patterns.recognised import recognised
from kernels.libraries.patterns.tails import activations_of
from kernels.libraries.patterns.terms import promoted
from kernels.packages import install_command
from profiler.region import op_kinds
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, Role, covered_operations, node_of, role
from profiler.region.graph.nodes import is_call, value
from profiler.region.graph.scores import functions as score_functions
from profiler.region.graph.scores.masks import BLOCK, kept_share

ALONE = "alone: torch.compile fuses it with its neighbours"
WIDENED = frozenset({"rms_norm", "layer_norm", "group_norm", "batch_norm", "softmax"})
"""Kinds whose adapters take `editor.operand`."""
NOT_MEASURED = "Not measured here: no adapter."


def everything(graph: Graph, matches: Sequence[Match]) -> tuple[Match, ...]:
    """Every match of the region that an entry may cover, with the roles that the entries' calls name."""
    known = narrowed(graph, matches)
    named = (*activations(graph), *recognised(graph, known), *score_functions.matches(graph))
    return tuple(completed(graph, m) for m in named)


def coverage(graph: Graph, matches: Sequence[Match], host: Host) -> tuple[Cover, ...]:
    """Every library call known for the region's patterns, those that hold and are installed first.

    Each candidate appears once; where several matches are of its kind, with the operations of all of them.
    """
    asked = asked_of(graph, host)
    by_candidate: dict[str, Cover] = {}
    for match in everything(graph, matches):
        for entry in BY_KIND.get(match.kind, ()):
            cover = cover_of(entry, match, asked)
            if entry.alone and not cover.whole:
                continue
            earlier = by_candidate.get(cover.candidate)
            by_candidate[cover.candidate] = cover if earlier is None else _both(earlier, cover, asked.working)
    return tuple(sorted(by_candidate.values(), key=lambda c: (not c.covers, not c.installed, c.package != "torch")))


BY_KIND: Mapping[str, tuple[Entry, ...]] = {
    kind: tuple(e for e in ENTRIES if kind in e.kinds) for entry in ENTRIES for kind in entry.kinds
}


def _both(first: Cover, second: Cover, working: frozenset[str]) -> Cover:
    """Two places that the same call covers. Written by hand in one of them: not there already."""
    operations = first.operations | second.operations
    lead = second if first.already and not second.already else first
    return replace(lead, operations=operations, already=first.already and second.already,
                   covers=first.covers or second.covers, whole=working <= operations)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """What every cover of a region is judged by. working: the operations that are more than views and constants."""

    graph: Graph
    host: Host
    spelling: Spelling
    working: frozenset[str]


def asked_of(graph: Graph, host: Host) -> Asked:
    """The region as its covers are judged, on this host."""
    working = frozenset(o.name for o in graph.operations if o.kind not in (op_kinds.VIEW, op_kinds.CONSTANT))
    return Asked(graph, host, Spelling(graph), working)


def cover_of(entry: Entry, match: Match, asked: Asked) -> Cover:
    """One entry against one match of its kind: whether each of its conditions holds, and the call as it would read."""
    if entry.narrow and "narrow" in match.roles:
        match = replace(match, roles={**match.roles, "x": match.roles["narrow"]})
    graph, host, working = asked.graph, asked.host, asked.working
    facts = facts_of(match, graph, host)
    conditions = tuple((c.text, c.test(facts)) for c in entry.all_conditions)
    if entry.alone:
        conditions = (*conditions, (ALONE, working <= match.operations))
    installed = entry.package in host.packages and (not entry.feature or entry.feature in host.features)
    already = is_call_already(entry, match, graph)
    adapter = entry.adapter or None
    roles = asked.spelling.roles(match)
    wider = _wider(match, graph)
    if wider and not entry.takes_dtype:
        roles["x"] = f"{atom(str(roles['x']))}.to({wider})"
    more = _mask_as_passed(roles, facts)
    times = _times(facts)
    if "batch" in match.roles:  # heads that are not an axis of their own
        roles |= of_heads(graph, match, roles)
        times = times_read(match)
    more |= _groups_as_passed(entry, roles, facts, times)
    call = flex_text(graph, match, roles) if match.kind == score_functions.KIND else shown(entry.call, roles | more)
    if wider and entry.takes_dtype:
        call = f"{call[:-1]}, dtype={wider})"
    elif entry.targets and not match.by_hand and (wanted := _other_dtype(match, graph)):
        conditions = (*conditions, (f"a result in the operand's dtype, not in {wanted}", False))
    notes = [entry.note, "" if adapter or already else _unmeasured(entry)]
    return Cover(
        candidate=entry.candidate,
        package=entry.package,
        call=call,
        covers=all(holds is not False for _, holds in conditions),
        conditions=conditions,
        installed=installed,
        already=already,
        kind=match.kind,
        note=" ".join(n for n in notes if n),
        adapter=None if already else adapter,
        operations=match.operations,
        whole=working <= match.operations,
        source=entry.source,
        install="" if installed else _install(entry, host),
        since=entry.since,
        gives_up=entry.gives_up,
        version=host.versions.get(entry.package, ""),
        gpu_only=entry.gpu_only or entry.package != "torch",
        verdict=_verdict(entry, facts),
        density=_density(match),
        loses_digits=entry.loses_digits,
    )


def _density(match: Match) -> float | None:
    """Of FlexAttention, which leaves out blocks that its mask hides: what is left of the scores."""
    if match.kind != score_functions.KIND:
        return None
    sizes = score_functions.sizes_of(match)
    return kept_share(str(match.roles["positions"]), sizes, BLOCK) if match.roles["keep"] else 1.0


def _install(entry: Entry, host: Host) -> str:
    """The package, or of the one that is here a version with the call."""
    return install_command(entry.package, least_version(entry.since) if entry.package in host.packages else "")


def _verdict(entry: Entry, facts: Facts) -> str:
    """Of the entry's row that the match is."""
    rows = (o for o in OPERATIONS if o.row in entry.rows and facts.kind in o.kinds)
    return next((o.verdict for o in rows if not any(c.test(facts) is False for c in o.where)), "")


def _unmeasured(entry: Entry) -> str:
    return f"Not measured here: {entry.unmeasured}." if entry.unmeasured else NOT_MEASURED


def is_call_already(entry: Entry, match: Match, graph: Graph) -> bool:
    """The match is the entry's call already, views aside. A cast to another dtype is a kernel that a call saves.

    A bf16 matrix as softmax(x.float(), -1).to(bf16) is three kernels, torch.softmax(x, -1) one.
    """
    if not entry.targets or match.by_hand or casts_inside(match, graph):
        return False
    real = [
        graph.operation(n)
        for n in match.operations
        if graph.operation(n).kind not in (op_kinds.VIEW, op_kinds.CONSTANT)
    ]
    real = [o for o in real if op_kinds.base_name(o.target) not in ("_to_copy", "_log_softmax", "clone")]
    return len(real) == 1 and op_kinds.base_name(real[0].target) in entry.targets


def _mask_as_passed(roles: Mapping[str, Role], facts: Facts) -> dict[str, Role]:
    """The mask as SDPA's fast backends want it: true stays, two or four dimensions, the last one dense.

    [16, 2048, 2048] took 1115 µs, [1, 16, 2048, 2048] 476 µs (H200, torch 2.11): three leave the memory-efficient one.
    A bias by distance is a table's rows, permuted: no fast kernel takes its strides, and the unfused reference of
    [4, 71, 1024, 64] took 10,631 µs where eager's own operations took 6,911 µs.
    """
    mask = roles.get("mask")
    if not isinstance(mask, str):
        return {}
    size, stride = facts.sizes.get("mask", ()), facts.strides.get("mask", ())
    passed = negated(mask) if roles.get("mask_kind") == "drop" else mask
    passed = f"{atom(passed)}[None]" if len(size) == 3 else passed
    return {"mask": f"{atom(passed)}.contiguous()" if size and size[-1] > 1 != stride[-1] else passed}


def _times(facts: Facts) -> int:
    """How many heads of q read one of k and v; 1 where k has no whole part of them."""
    q, k = facts.sizes.get("q", ()), facts.sizes.get("k", ())
    whole = len(q) > 2 and len(k) > 2 and k[-3] > 0 and q[-3] % k[-3] == 0
    return max(1, q[-3] // k[-3]) if whole else 1


def _groups_as_passed(entry: Entry, roles: Mapping[str, Role], facts: Facts, times: int) -> dict[str, Role]:
    """How an attention call is told of heads of k and v that several of q read."""
    if times == 1 or facts.dtype not in entry.repeats:
        return {"grouped": ", enable_gqa=True" if times > 1 else ""}
    spread = {role: f"{atom(str(roles[role]))}.repeat_interleave({times}, -3)" for role in ("k", "v")}
    return {**spread, "grouped": ""}


def casts_inside(match: Match, graph: Graph) -> list[torch.fx.Node]:
    """The match's conversions to another dtype."""
    nodes: list[Any] = [n for n in graph.module.graph.nodes if n.name in match.operations and is_call(n, "_to_copy")]
    return [n for n in nodes if n.meta["val"].dtype != n.args[0].meta["val"].dtype]


def _other_dtype(match: Match, graph: Graph) -> str:
    """The result's dtype, where casts inside the match make it another than its operand's; else nothing."""
    nodes = {n.name: n for n in graph.module.graph.nodes if n.name in match.operations}
    casts: list[Any] = list(casts_inside(match, graph))
    if not casts or match.output not in nodes:
        return ""
    outside = [n for n in casts if n.args[0].name not in nodes]
    before = (outside[0].args[0] if outside else casts[-1].args[0]).meta["val"].dtype
    result = nodes[match.output].meta["val"]
    result = (result[0] if isinstance(result, tuple) else result).dtype
    return "" if before == result else str(result)


def _wider(match: Match, graph: Graph) -> str:
    """The result's dtype, where a norm or softmax of narrower numbers gives it: they are widened, as in the text."""
    x, output = node_of(graph, match.roles.get("x")), node_of(graph, match.output)
    if match.kind not in WIDENED or x is None or output is None:
        return ""
    result = output.meta["val"]
    made = (result[0] if isinstance(result, tuple) else result).dtype
    narrow = value(x).dtype
    return str(made) if narrow != made and promoted(narrow, made) == made else ""


def activations(graph: Graph) -> tuple[Match, ...]:
    """relu or tanh-GELU of a matrix product plus a 1-D bias: what cuBLASLt does in one call."""
    matches = []
    for node, _ in graph.named_calls:
        activation, inner = next((a for a in activations_of(node) if a[0] in ("relu", "gelu_tanh")), ("", None))
        parts = product_and_bias(inner) if activation else None
        if parts is None:
            continue
        bias, a, b = parts
        inside = covered_operations(graph, node, [bias, a, b])
        if inside is None:
            continue
        roles = {
            "bias": role(graph, bias),
            "a": role(graph, a),
            "b": role(graph, b),
            "use_gelu": activation == "gelu_tanh",
        }
        matches.append(Match("gemm_activation", "GEMM with bias and activation", True, inside, node.name, roles))
    return tuple(matches)
