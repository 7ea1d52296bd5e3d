"""Which library calls cover a region: entries against matches, conditions judged on this host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch.fx

from kernels.host import Host
from kernels.libraries import others, pytorch
from kernels.libraries.model import Cover, Entry, Facts
from kernels.libraries.products import product_and_bias
from profiler.region import kinds
from profiler.region.graph import Graph
from profiler.region.nodes import argument, is_call
from profiler.region.patterns import Match
from profiler.region.roles import covered, role

ENTRIES: tuple[Entry, ...] = (*pytorch.ENTRIES, *others.ENTRIES)
NOT_MEASURED = "Not measured here: no adapter."
TAKES_DTYPE = frozenset({"library:torch.softmax"})
"""Calls with a dtype argument: they convert as they read."""


def coverage(graph: Graph, matches: Sequence[Match], host: Host) -> tuple[Cover, ...]:
    """Every library call known for the region's patterns, those that hold and are installed first.

    Each candidate appears once; where several matches are of its kind, with the operations of all of them.
    """
    working = {o.name for o in graph.operations if o.kind not in (kinds.VIEW, kinds.CONSTANT)}
    found: dict[str, Cover] = {}
    for match in (*activations(graph), *(completed(graph, m) for m in matches)):
        for entry in ENTRIES:
            if match.kind not in entry.kinds:
                continue
            cover = _cover(entry, match, graph, host, working)
            earlier = found.get(cover.candidate)
            found[cover.candidate] = cover if earlier is None else _both(earlier, cover, working)
    return tuple(sorted(found.values(), key=lambda c: (not c.covers, not c.installed, c.package != "torch")))


def _both(first: Cover, second: Cover, working: set[str]) -> Cover:
    """Two places that the same call covers. Written by hand in one of them: not there already."""
    operations = first.operations | second.operations
    lead = second if first.already and not second.already else first
    return replace(lead, operations=operations, already=first.already and second.already,
                   covers=first.covers or second.covers, whole=working <= operations)  # fmt: skip


def _cover(entry: Entry, match: Match, graph: Graph, host: Host, working: set[str]) -> Cover:
    facts = facts_of(match, graph, host)
    conditions = tuple((c.text, c.test(facts)) for c in entry.conditions)
    installed = entry.package in host.packages and (not entry.feature or entry.feature in host.features)
    already = entry.package == "torch" and entry in pytorch.ENTRIES and _is_call(match, graph)
    adapter = entry.adapter or None
    call = _shown(entry.call, match.roles | _mask_as_passed(match, facts))
    if entry in pytorch.ENTRIES and not match.by_hand and (wanted := _other_dtype(match, graph)):
        if entry.candidate in TAKES_DTYPE:
            call, adapter = f"{call[:-1]}, dtype={wanted})", None
        else:
            conditions = (*conditions, (f"a result in the operand's dtype, not in {wanted}", False))
    notes = [entry.note, "" if adapter or already else NOT_MEASURED]
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
    )


def _is_call(match: Match, graph: Graph) -> bool:
    """The match is one call of the library already, views aside. A cast to another dtype is a kernel that a call saves.

    bf16[8192, 4096] as softmax(x.float(), -1).to(bf16) is three kernels, torch.softmax(x, -1) one.
    """
    if match.by_hand or casts_inside(match, graph):
        return False
    real = [graph.operation(n) for n in match.operations if graph.operation(n).kind not in (kinds.VIEW, kinds.CONSTANT)]
    real = [o for o in real if kinds.base_name(o.target) not in ("_to_copy", "_log_softmax", "clone")]
    return len(real) == 1 and pytorch.ALREADY_CALLS.get(kinds.base_name(real[0].target)) == match.kind


def _mask_as_passed(match: Match, facts: Facts) -> dict[str, Any]:
    """The mask as SDPA's fast backends want it: true stays, and two or four dimensions.

    [16, 2048, 2048] took 1115 µs, [1, 16, 2048, 2048] 476 µs (H200, torch 2.11): three leave the memory-efficient one.
    """
    mask = match.roles.get("mask")
    if not isinstance(mask, str):
        return {"score": "score", "blocks": _blocks(match)}
    rank = len(facts.sizes.get("mask", ()))
    at = f"{mask}[{', '.join(('b', 'h', 'q_idx', 'kv_idx')[4 - rank :])}]"
    score = {"drop": f'torch.where({at}, float("-inf"), score)', "keep": f'torch.where({at}, score, float("-inf"))'}
    kind = str(match.roles.get("mask_kind"))
    return {
        "mask": ("~" if kind == "drop" else "") + mask + ("[None]" if rank == 3 else ""),
        "score": score.get(kind, f"score + {at}"),
        "blocks": _blocks(match),
    }


def _blocks(match: Match) -> str:
    """FlexAttention's block mask for a causal order."""
    if not match.roles.get("causal"):
        return "None"
    q, k = match.roles.get("q"), match.roles.get("k")
    return f"create_block_mask(lambda b, h, i, j: i >= j, None, None, {q}.shape[-2], {k}.shape[-2])"


def casts_inside(match: Match, graph: Graph) -> list[torch.fx.Node]:
    """The match's conversions to another dtype."""
    nodes = [n for n in graph.module.graph.nodes if n.name in match.operations and is_call(n, "_to_copy")]
    return [n for n in nodes if n.meta["val"].dtype != n.args[0].meta["val"].dtype]


def _other_dtype(match: Match, graph: Graph) -> str:
    """The result's dtype, where casts inside the match make it another than its operand's; else nothing."""
    nodes = {n.name: n for n in graph.module.graph.nodes if n.name in match.operations}
    casts = casts_inside(match, graph)
    if not casts or match.output not in nodes:
        return ""
    outside = [n for n in casts if n.args[0].name not in nodes]
    before = (outside[0].args[0] if outside else casts[-1].args[0]).meta["val"].dtype
    result = nodes[match.output].meta["val"]
    result = (result[0] if isinstance(result, tuple) else result).dtype
    return "" if before == result else str(result)


class _Roles(dict[str, Any]):
    """Roles for a call's text: what no role names is left as it is."""

    def __missing__(self, key: str) -> str:
        return key


def _shown(call: str, roles: Mapping[str, Any]) -> str:
    shown = {k: (v if isinstance(v, str) else repr(v)) for k, v in roles.items()}
    return call.format_map(_Roles(shown))


def facts_of(match: Match, graph: Graph, host: Host) -> Facts:
    """What conditions may look at."""
    inputs = dict(graph.inputs)
    sizes: dict[str, tuple[int, ...]] = {}
    dtypes: dict[str, str] = {}
    for key, name in match.roles.items():
        if not isinstance(name, str):
            continue
        tensor = inputs.get(name)
        if tensor is None and any(o.name == name and o.writes for o in graph.operations):
            tensor = graph.operation(name).writes[0]
        if tensor is not None:
            sizes[key], dtypes[key] = tensor.shape, tensor.dtype
    main = next((dtypes[k] for k in ("x", "q", "a", "input0") if k in dtypes), "")
    if not main:
        written = [o.writes for o in (graph.operation(n) for n in match.operations) if o.writes]
        main = written[0][0].dtype if written else ""
    return Facts(match.kind, match.by_hand, main, match.roles, sizes, dtypes, graph.region.requires_grad,
                 host.capability, host.features)  # fmt: skip


def completed(graph: Graph, match: Match) -> Match:
    """A match that is one call of torch's already, with the roles that the same thing by hand has."""
    if match.by_hand or match.kind not in ("rms_norm", "layer_norm", "attention", "geglu"):
        return match
    nodes = [n for n in graph.module.graph.nodes if n.name in match.operations]
    node = next((n for n in nodes if is_call(n, "rms_norm", "native_layer_norm", "attention", "gelu")), None)
    if node is None or (node.kwargs and not is_call(node, "gelu")):
        return match
    if is_call(node, "gelu"):
        extra: dict[str, Any] = {"approximate": node.kwargs.get("approximate", "none")}
    elif is_call(node, "attention"):
        q, k, v, mask, _, causal, scale, _ = node.args
        extra = {"q": q, "k": k, "v": v, "mask": mask, "causal": causal, "scale": scale, "k_transposed": True}
    elif is_call(node, "rms_norm"):
        x, size, weight, eps = node.args
        extra = {"x": x, "weight": weight, "eps": eps, "width": size[-1]}
    else:
        x, size, weight, bias, eps = node.args
        extra = {"x": x, "weight": weight, "bias": bias, "eps": eps, "width": size[-1]}
    named = {k: role(graph, v) for k, v in extra.items()}
    return replace(match, roles={**match.roles, **named})


def activations(graph: Graph) -> tuple[Match, ...]:
    """relu or tanh-GELU of a matrix product plus a 1-D bias: what cuBLASLt does in one call."""
    found = []
    for node in graph.module.graph.nodes:
        if not (is_call(node, "relu") or (is_call(node, "gelu") and argument(node, 1, "approximate") == "tanh")):
            continue
        parts = product_and_bias(node.args[0])
        if parts is None:
            continue
        bias, a, b = parts
        inside = covered(graph, node, [bias, a, b])
        if inside is None:
            continue
        roles = {"bias": role(graph, bias), "a": role(graph, a), "b": role(graph, b), "use_gelu": is_call(node, "gelu")}
        found.append(Match("gemm_activation", "GEMM with bias and activation", True, inside, node.name, roles))
    return tuple(found)
