"""Bags and runs of rows as `segment_reduce` with offsets: embedding bags, and scatters to places that come in runs."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
import torch.fx

from kernels.codegen.graph.scatter_forms import WIDER
from kernels.codegen.nodes import base, bind, fake
from kernels.codegen.plan import is_view
from kernels.codegen.scatter_plan import constant
from profiler.region.graph.lazy_code import graph_module
from profiler.region.graph.lowering import Graph, graph_of

aten = torch.ops.aten

MODES = ("sum", "mean", "max")


def _cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x if x.dtype == dtype else cast(torch.Tensor, aten._to_copy.default(x, dtype=dtype))


def _embedding_bag(
    weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> Any:  # fmt: skip
    if indices.dim() != 1 or padding_idx >= 0 or weight.dim() != 2 or not indices.numel():
        return NotImplemented
    wide = WIDER.get(weight.dtype, weight.dtype)
    count, dtype = indices.shape[0], offsets.dtype
    if not include_last_offset:
        last = aten.full.default([1], count, dtype=dtype, device=offsets.device)
        offsets = aten.cat.default([offsets, last])
    rows = _cast(aten.embedding.default(weight, indices), wide)
    if per_sample_weights is not None:
        rows = aten.mul.Tensor(rows, aten.unsqueeze.default(per_sample_weights, 1))
    how = "max" if mode == 2 else "sum"
    size = aten.sub.Tensor(aten.slice.Tensor(offsets, 0, 1), aten.slice.Tensor(offsets, 0, 0, -1))
    reduced = aten.segment_reduce.default(rows, how, offsets=offsets, unsafe=True)
    sizes = aten.unsqueeze.default(size, 1)
    if mode == 1:
        reduced = aten.div.Tensor(reduced, _cast(aten.clamp_min.default(sizes, 1), wide))
    elif mode == 2:
        reduced = aten.where.ScalarOther(aten.gt.Scalar(sizes, 0), reduced, 0)
    places = aten.arange.default(count, dtype=dtype, device=offsets.device)
    bag = aten.sub.Tensor(aten.searchsorted.Tensor(offsets, places, right=True), 1)
    return _cast(reduced, weight.dtype), _cast(bag, dtype), size, aten.zeros_like.default(size)


def _embedding_bag_backward(
    grad: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, offset2bag: torch.Tensor,
    bag_size: torch.Tensor, maximum_indices: torch.Tensor, num_weights: int, scale_grad_by_freq: bool, mode: int,
    sparse: bool, per_sample_weights: torch.Tensor | None, padding_idx: int = -1,
) -> Any:  # fmt: skip
    if mode == 2 or sparse or scale_grad_by_freq or padding_idx >= 0:
        return NotImplemented
    scaled = grad
    if mode == 1:
        sizes = _cast(aten.clamp_min.default(aten.unsqueeze.default(bag_size, 1), 1), torch.float32)
        scaled = aten.div.Tensor(_cast(grad, WIDER.get(grad.dtype, grad.dtype)), sizes)
    rows = aten.index_select.default(scaled, 0, offset2bag)
    if per_sample_weights is not None:
        rows = aten.mul.Tensor(rows, aten.unsqueeze.default(per_sample_weights, 1))
    return _cast(aten.embedding_dense_backward.default(rows, indices, num_weights, -1, False), grad.dtype)


def _segment_reduce(
    data: torch.Tensor, reduce: str, *, lengths: torch.Tensor | None = None, indices: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Any:  # fmt: skip
    if axis or indices is not None or initial is not None or reduce == "prod":
        return NotImplemented
    if offsets is not None and data.dtype not in WIDER:
        return NotImplemented
    if offsets is None and lengths is not None and lengths.dim() == 1:
        nothing = aten.full.default([1], 0, dtype=lengths.dtype, device=lengths.device)
        offsets = aten.cat.default([nothing, aten.cumsum.default(lengths, 0)])
    if offsets is None or offsets.dim() != 1:
        return NotImplemented
    wide = _cast(data, WIDER.get(data.dtype, data.dtype))
    return _cast(aten.segment_reduce.default(wide, reduce, offsets=offsets, unsafe=True), data.dtype)


SEGMENT_FORMS: Mapping[Any, Callable[..., Any]] = {
    aten._embedding_bag.default: _embedding_bag,
    aten._embedding_bag_forward_only.default: _embedding_bag,
    aten._embedding_bag_backward.default: _embedding_bag_backward,
    aten.segment_reduce.default: _segment_reduce,
}
"""Operation -> what it is in other ones; NotImplemented where it stays."""


# scatters to places that come in runs


def with_segments(graph: Graph) -> Graph:
    """The graph with scatters whose places are repeated in runs as reductions of those runs, and without scatters of a
    number into nothing else; itself where there is neither.
    """
    runs = {n: o for n in graph.module.graph.nodes if (o := _offsets(n)) is not None}
    needless = {n for n in graph.module.graph.nodes if _is_needless(n)}
    if not runs and not needless:
        return graph
    new = torch.fx.Graph()
    made: dict[torch.fx.Node, Any] = {}
    for node in graph.module.graph.nodes:
        if node in needless:
            made[node] = made[bind(node)["self"]]
            continue
        made[node] = new.node_copy(node, made.__getitem__)
        if node in runs:
            made[node] = _segments(new, node, made, runs[node], graph.program.mode)
    new.eliminate_dead_code()
    new.lint()
    module = graph_module(graph.module, new)
    return graph_of(graph.region, graph.binding, graph.program, module, [name for name, _ in graph.inputs])


def _is_needless(node: torch.fx.Node) -> bool:
    """It sets places of a tensor to the number that all of it is."""
    if base_of(node) != "scatter" or "value" not in (a := bind(node)):
        return False
    return constant(a["self"]) == a["value"] and fake(a["self"]).dtype == fake(node).dtype


HOW = {"scatter_add": ("sum", 0.0), "amax": ("max", -math.inf), "amin": ("min", math.inf)}


def _offsets(node: torch.fx.Node) -> torch.fx.Node | None:
    """The offsets of the runs that a scatter's places come in; None where they do not."""
    if (
        node.op != "call_function"
        or node.target is operator.getitem
        or base(node) not in ("scatter_add", "scatter_reduce")
    ):
        return None
    a = bind(node)
    how = HOW.get(a.get("reduce") or "scatter_add")
    if (
        how is None
        or constant(a["self"]) != how[1]
        or a["dim"] % max(1, fake(node).dim())
        or not a.get("include_self", True)
    ):
        return None
    if not fake(node).dtype.is_floating_point or fake(a["src"]).shape != fake(a["index"]).shape:
        return None
    if fake(node).shape[1:] != fake(a["src"]).shape[1:]:
        return None
    index, value = a["index"], fake(a["index"])
    if any(n > 1 and t for n, t in zip(value.shape[1:], value.stride()[1:], strict=True)):
        return None
    while is_view(index):
        index = index.args[0]
    if base_of(index) == "index_select" and constant_range(index.args[0], fake(node).shape[0]):
        index = index.args[2]
    return _cumulated(index, fake(node).shape[0]) if base_of(index) == "repeat_interleave" else None


def base_of(node: torch.fx.Node) -> str:
    """The operation's name, "" for what is no operation."""
    return base(node) if node.op == "call_function" and node.target is not operator.getitem else ""


def constant_range(node: Any, count: int) -> bool:
    """arange(count)"""
    if not isinstance(node, torch.fx.Node) or base_of(node) != "arange":
        return False
    a = bind(node)
    return (a.get("start") or 0) == 0 and (a.get("step") or 1) == 1 and fake(node).shape[0] == count


def _cumulated(repeated: torch.fx.Node, count: int) -> torch.fx.Node | None:
    """The offsets whose differences say how often each is repeated."""
    lengths = repeated.args[0]
    if not isinstance(lengths, torch.fx.Node) or base_of(lengths) != "sub" or fake(lengths).shape != (count,):
        return None
    upper, lower = lengths.args[0], lengths.args[1]
    if not all(isinstance(n, torch.fx.Node) and base_of(n) == "slice" for n in (upper, lower)):
        return None
    assert isinstance(upper, torch.fx.Node)
    assert isinstance(lower, torch.fx.Node)
    source = upper.args[0]
    if not isinstance(source, torch.fx.Node) or source is not lower.args[0] or fake(source).shape != (count + 1,):
        return None
    first, second = fake(upper).storage_offset(), fake(lower).storage_offset()
    return source if first - second == fake(source).stride(0) else None


def _segments(
    new: torch.fx.Graph, node: torch.fx.Node, made: Mapping[torch.fx.Node, Any], offsets: torch.fx.Node, mode: Any
) -> torch.fx.Node:
    def emit(target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        call = new.create_node("call_function", target, args, kwargs, f"{node.name}_runs")
        values = torch.fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
        with mode:
            call.meta["val"] = target(*values[0], **values[1])
        call.meta.update({k: v for k, v in node.meta.items() if k == "custom"})
        return call

    a = bind(node)
    how = HOW[a.get("reduce") or "scatter_add"][0]
    first = emit(aten.slice.Tensor, made[offsets], 0, 0, 1)
    begins = emit(aten.sub.Tensor, made[offsets], first)
    return emit(aten.segment_reduce.default, made[a["src"]], how, offsets=begins, unsafe=True)
