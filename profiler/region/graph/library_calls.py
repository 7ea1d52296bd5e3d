"""Operations that are one call of a library already, and matrix products: matches with no form to recognise."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.region import op_kinds
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, Role, calls, role
from profiler.region.graph.nodes import is_call

LIBRARY_CALLS = {
    "attention": ("attention", "SDPA attention"),
    "rms_norm": ("rms_norm", "RMSNorm"),
    "native_layer_norm": ("layer_norm", "LayerNorm"),
    "native_group_norm": ("group_norm", "GroupNorm"),
    "native_batch_norm": ("batch_norm", "BatchNorm"),
    "_native_batch_norm_legit": ("batch_norm", "BatchNorm"),
    "convolution": ("convolution", "convolution"),
    "_scaled_mm": ("quantised_gemm", "scaled GEMM"),
    "_int_mm": ("quantised_gemm", "int8 GEMM"),
    "_grouped_mm": ("grouped_gemm", "grouped GEMM"),
    "grouped_mm": ("grouped_gemm", "grouped GEMM"),
    "embedding": ("embedding", "embedding"),
    "topk": ("sort", "top-k"),
    "sort": ("sort", "sort"),
    "cumsum": ("scan", "cumulative sum"),
}


def library_calls(graph: Graph) -> Iterator[Match]:
    """Operations that are one library call already."""
    for operation in graph.operations:
        name = op_kinds.base_name(operation.target)
        if name in LIBRARY_CALLS:
            kind, title = LIBRARY_CALLS[name]
            roles: dict[str, Role] = {f"input{i}": n for i, n in enumerate(operation.inputs)}
            yield Match(kind, title, False, frozenset({operation.name}), operation.name, roles)


def gemms(graph: Graph) -> Iterator[Match]:
    """Each matrix product by itself."""
    for node in calls(graph, "mm", "addmm", "bmm", "baddbmm"):
        a, b = node.args[-2:]
        roles = {"a": role(graph, a), "b": role(graph, b)}
        if is_call(node, "addmm", "baddbmm"):
            roles["bias"] = role(graph, node.args[0])
        yield Match("gemm", "GEMM", False, frozenset({node.name}), node.name, roles)
