"""A graph as the generator takes it: composite operations in their parts, nothing changed in place, random numbers
numbered, scatters and bags as few forms, and in no group.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from kernels.codegen.expressions import ops
from kernels.codegen.expressions.pools import PLACED
from kernels.codegen.expressions.rules import RULES
from kernels.codegen.graph.parts import PARTS_OF_OUR_OWN
from kernels.codegen.graph.scatter_forms import FORMS, bincount
from kernels.codegen.graph.segment_forms import SEGMENT_FORMS
from kernels.codegen.graph.updates import is_update
from kernels.codegen.graph.upsampled import UPSAMPLED
from kernels.codegen.index import Unsupported, contiguous_strides
from kernels.codegen.nodes import base
from profiler.region import op_kinds
from profiler.region.graph.lowering import Graph, graph_of
from profiler.region.graph.tracing import BeyondTracingError, traced
from profiler.region.language.opaque_ops import rms_norm_gradients, whole_operations
from profiler.region.language.recorder import one_line

aten = torch.ops.aten

PARTS = (
    aten.native_group_norm, aten.native_group_norm_backward, aten.native_layer_norm_backward,
    aten._fused_rms_norm_backward, aten.native_batch_norm, aten._native_batch_norm_legit,
    aten.native_batch_norm_backward, aten.cudnn_batch_norm, aten.cudnn_batch_norm_backward, aten.nll_loss_forward,
    aten.nll_loss_backward, aten.mse_loss, aten.mse_loss_backward, aten.smooth_l1_loss, aten.smooth_l1_loss_backward,
    aten.stack, aten.elu_backward, aten.leaky_relu_backward, aten.hardtanh_backward, aten.hardswish_backward,
    aten.hardsigmoid_backward, aten.softplus_backward, aten.log_sigmoid_backward, aten.select_backward,
    aten.frac, aten.nan_to_num, aten.logit, aten.std_mean, aten.glu, aten.glu_backward, aten.mish_backward,
    aten.hardshrink, aten.softshrink, aten.xlogy, aten.addcmul_, aten.logaddexp, aten.huber_loss,
    aten.huber_loss_backward, aten.binary_cross_entropy, aten.binary_cross_entropy_backward,
    aten.binary_cross_entropy_with_logits, aten.native_dropout_backward, aten.heaviside, aten.square_, aten.split,
)  # fmt: skip
"""Operations that are taken apart by PyTorch's own decompositions."""
INSIDE = frozenset({"getitem", "log_sigmoid_forward", "native_dropout", *ops.ROWWISE, *PLACED})
"""Operations of several results that `reductions.part` knows."""


@functools.cache
def _table() -> Mapping[Any, Callable[..., Any]]:
    whole = whole_operations()
    return {
        **get_decompositions(PARTS),
        **FORMS,
        **SEGMENT_FORMS,
        aten.as_strided.default: _as_view,
        **PARTS_OF_OUR_OWN,
        **UPSAMPLED,
        whole._fused_rms_norm_backward.default: rms_norm_gradients,
        whole.bincount.default: bincount,
    }


def _as_view(x: torch.Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    """as_strided as the reshape that it is where both are contiguous."""
    steps = zip(size, stride, contiguous_strides(size), strict=True)
    in_order = all(one == other for n, one, other in steps if n > 1)  # a dimension of one element takes no step
    whole = x.is_contiguous() and in_order and math.prod(size) == x.numel()
    if whole and (storage_offset or 0) == x.storage_offset():
        return aten.view.default(x, size)
    return NotImplemented


def known(node: torch.fx.Node) -> bool:
    """The generator has a rule for it, which may still refuse a form of it with a reason."""
    if node.target is operator.getitem:
        return True
    name = base(node)
    tables = (RULES, ops.CASTS, ops.POINTWISE, ops.REDUCTIONS, ops.FILLS, ops.VIEWS, INSIDE)
    return any(name in table for table in tables)


def prepare(graph: Graph) -> Graph:
    """Parts for composites, and values for changes in place; of what changes an input a copy_ into all of it.

    Raises Unsupported where another change is left.
    """
    in_place = any(map(_mutates, _calls(graph)))
    if in_place or any(n.target in _table() for n in _calls(graph)):
        graph = _retraced(graph, in_place)
    if not in_place and any(map(_mutates, _calls(graph))):  # parts of a batch norm write its running statistics
        graph = _retraced(graph, True)
    for node in _calls(graph):
        if _mutates(node) and not is_update(node):
            raise Unsupported(f"{node.target}: it writes into its input")
    return graph


def _calls(graph: Graph) -> list[torch.fx.Node]:
    nodes = graph.module.graph.nodes
    return [n for n in nodes if n.op == "call_function" and n.target is not operator.getitem]


def apart(graph: Graph) -> Graph:
    """The graph with `other` as the kind of scatters that have no rule: calls of their own, between kernels.

    Anything else that has none stays in its group, which is refused with the reason.
    """
    unknown = {n.name for n in graph.module.graph.nodes if n.op == "call_function" and not known(n)}
    if not unknown:
        return graph
    operations = tuple(
        dataclasses.replace(o, kind=op_kinds.OTHER) if o.name in unknown and o.kind == op_kinds.SCATTER else o
        for o in graph.operations
    )
    return dataclasses.replace(graph, operations=operations)


def _mutates(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return bool(schema is not None and schema.is_mutable)


class _Runner(torch.fx.Interpreter):
    """Runs a graph and tells what is kept of the call that runs."""

    custom: Mapping[str, object] | None = None

    def run_node(self, n: torch.fx.Node) -> Any:
        self.custom = n.meta.get("custom")
        return super().run_node(n)


def _traced(
    runner: _Runner, run: Callable[..., Any], inputs: Sequence[torch.Tensor], in_place: bool
) -> torch.fx.GraphModule:
    if not in_place:
        with contextlib.suppress(BeyondTracingError):
            return traced(run, inputs, lambda: runner.custom, _table())
    called = torch.func.functionalize(run, remove="mutations") if in_place else run
    with torch.fx.traceback.preserve_node_meta():
        module: torch.fx.GraphModule = make_fx(called, decomposition_table=dict(_table()))(*inputs)
    return module


def _retraced(graph: Graph, in_place: bool) -> Graph:
    """The graph traced once more, line and label of each operation carried on."""
    runner = _Runner(graph.module)

    def run(*inputs: torch.Tensor) -> Any:
        with torch.no_grad():
            return tuple(runner.run(*inputs))

    inputs = [n.meta["val"] for n in graph.module.graph.nodes if n.op == "placeholder"]
    with graph.program.mode:
        try:
            module = _traced(runner, run, inputs, in_place)
        except (RuntimeError, ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as fault:
            raise Unsupported(f"it cannot be taken apart: {one_line(fault)}") from None
    module.graph.eliminate_dead_code()
    taken = {name for name, _ in graph.inputs}
    for node in module.graph.nodes:
        if node.op != "placeholder" and node.name in taken:
            node._rename(f"{node.name}_operation")
    module.recompile()
    return graph_of(graph.region, graph.binding, graph.program, module, [name for name, _ in graph.inputs])
