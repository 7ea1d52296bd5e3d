"""What the generator writes a kernel for though Inductor calls a library, and what it leaves though Inductor fuses it.

Groups are then as they would be if the compiler did the same; the prediction of its own is not asked here.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping

import torch
import torch.fx

from kernels.codegen.expressions.pools import MAX_TAPS, each, is_depthwise
from kernels.codegen.expressions.rowwise import orders
from kernels.codegen.graph.prepare import known
from kernels.codegen.nodes import Arguments, base, bind, fake
from profiler.region import op_kinds
from profiler.region.graph.lowering import Graph
from profiler.region.graph.operation import Operation

CALLED = frozenset({op_kinds.SORT, op_kinds.SCAN})
"""Kinds of which an operation without a rule stays a call."""
CALLED_NAMES = re.compile("_pool|upsample_|^repeat_interleave$|^copy_$")
"""Names of operations that stay calls as well: a pool, a resized image, a copy into an input."""


def own(graph: Graph) -> Graph:
    """The graph with each operation as the generator takes it: fused, or a call of its own."""
    nodes = {n.name: n for n in graph.module.graph.nodes}
    operations = tuple(
        _own(o, nodes[o.name]) if o.name in nodes and nodes[o.name].op == "call_function" else o
        for o in graph.operations
    )
    return dataclasses.replace(graph, operations=operations)


def taken(graph: Graph) -> frozenset[str]:
    """Operations that the generator writes a kernel for where torch.compile calls a library or aten."""
    nodes = {n.name: n for n in graph.module.graph.nodes if n.op == "call_function"}
    called = [o.name for o in graph.operations if o.extern and o.name in nodes]
    tables = {**TAKEN, **SCATTERED}
    return frozenset(n for n in called if base(nodes[n]) in tables and tables[base(nodes[n])](nodes[n], bind(nodes[n])))


def _own(operation: Operation, node: torch.fx.Node) -> Operation:
    name = base(node)
    if name in TAKEN:
        if TAKEN[name](node, bind(node)):
            kind = op_kinds.POINTWISE if operation.kind == op_kinds.CONVOLUTION else operation.kind
            return dataclasses.replace(operation, kind=kind, falls_back=False)
        return dataclasses.replace(operation, kind=op_kinds.OTHER)
    if not known(node) and (operation.kind in CALLED or CALLED_NAMES.search(name)):
        return dataclasses.replace(operation, kind=op_kinds.OTHER)
    return operation


def _small(node: torch.fx.Node, a: Arguments) -> bool:
    """A window that can be written out."""
    rank = next(r for r in (1, 2, 3) if f"{r}d" in base(node))
    return math.prod(each(a["kernel_size"], rank)) <= MAX_TAPS


def _equal(node: torch.fx.Node, a: Arguments) -> bool:
    """An adaptive average of windows that divide the image."""
    sizes = fake(a["self"]).shape[-len(a["output_size"]) :]
    return all(parts and size % parts == 0 for size, parts in zip(sizes, a["output_size"], strict=True))


def _always(node: torch.fx.Node, a: Arguments) -> bool:
    return True


def _adds(node: torch.fx.Node, a: Arguments) -> bool:
    """A scatter that has a kernel of its own."""
    first = node.meta["val"][0] if isinstance(node.meta["val"], tuple | list) else fake(node)
    reduce = a.get("reduce") or "sum"
    return first.dtype != torch.bool and reduce in ("sum", "mean", "amax", "amin", "max", "min") and not a.get("axis")


TAKEN: Mapping[str, Callable[[torch.fx.Node, Arguments], bool]] = {
    "sort": orders, "topk": orders, "convolution": is_depthwise, "cummax": _always, "cummin": _always,
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices"), _small),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _small),
    "_adaptive_avg_pool3d": _equal,
}  # fmt: skip
"""When the generator takes one of these; else it stays a call."""

SCATTERED: Mapping[str, Callable[[torch.fx.Node, Arguments], bool]] = dict.fromkeys(
    ("index_add", "scatter_add", "scatter_reduce", "index_reduce", "index_put", "histc", "bincount", "segment_reduce",
     "_embedding_bag", "_embedding_bag_forward_only"), _adds,
)  # fmt: skip
"""Scatters and reductions of runs: kernels of their own, in no group."""
