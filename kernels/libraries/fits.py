"""Where a hand-written kernel fits a match: the whole region, its dtypes, the last axis."""

from __future__ import annotations

from kernels.host import Host
from kernels.libraries.facts import facts_of
from profiler.region import op_kinds
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match
from profiler.region.graph.operation import Operation

DTYPES = frozenset({"f32", "f16", "bf16"})


def whole(graph: Graph, match: Match, trained: bool = False) -> str:
    """Why a kernel for the match is none for the region: it does more, or wants gradients; "" where it is.

    trained: the kernel has a backward.
    """
    rest = rest_of(graph, match.operations)
    if rest:
        return f"the region does more than the kernel: {rest[0].label}"
    return "" if trained or not graph.region.requires_grad else NO_BACKWARD


def rest_of(graph: Graph, inside: frozenset[str]) -> list[Operation]:
    """The graph's operations that compute something and are not among these."""
    return [o for o in graph.operations if o.kind not in (op_kinds.VIEW, op_kinds.CONSTANT) and o.name not in inside]


NO_BACKWARD = "this kernel has no backward"


def replaces(graph: Graph, match: Match, trained: bool = False) -> str:
    """Why a kernel for the match has no place in the region; "" where it has.

    Where gradients are wanted a kernel that has a backward may be for a part, and the rest stays as it is. Of a forward
    it is for the whole: torch.compile fuses a part of it with its neighbours.
    """
    return "" if trained and graph.region.requires_grad else whole(graph, match, trained)


def reason(graph: Graph, match: Match, trained: bool = False) -> str:
    """Why a kernel over rows does not take the match; "" where it does. trained: as in `whole`."""
    if why_not := replaces(graph, match, trained):
        return why_not
    facts = facts_of(match, graph, Host())
    written = graph.operation(match.output).writes[0] if match.output in {o.name for o in graph.operations} else None
    if facts.dtype not in DTYPES:
        return f"rows of {facts.dtype}"
    if written is not None and written.dtype != facts.dtype:
        return f"{facts.dtype} in, {written.dtype} out"
    shape = facts.sizes.get("x", facts.sizes.get("input0"))
    dim = match.roles.get("dim")
    if shape and isinstance(dim, int) and dim % len(shape) != len(shape) - 1:
        return "over another axis than the last"
    weight = facts.sizes.get("weight")
    if weight and len(weight) != 1:
        return "a weight that is no vector"
    return ""
