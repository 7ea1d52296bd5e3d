"""What autograd calls on a GPU alone is taken apart as the same region is on a CPU."""

from __future__ import annotations

import operator

import torch

from kernels.codegen.graph.prepare import prepare
from profiler.region.graph.lowering import Graph, graph_of, lower
from profiler.region.language.text import parse

aten = torch.ops.aten
TRAINED = """x: f32[4, 8, 6, 6].requires_grad.channels_last
w: f32[8].requires_grad
b: f32[8].requires_grad
mean: f32[8]
var: f32[8]
return relu(batch_norm(x, mean, var, w, b, training=True))
"""


def as_on_a_gpu(graph: Graph) -> Graph:
    """Batch norm by cuDNN's calls, forward and backward, with what the first keeps in reserve for the second."""
    calls = {n.target: n for n in graph.module.graph.nodes}
    forward, backward = calls[aten.native_batch_norm.default], calls[aten.native_batch_norm_backward.default]
    with graph.program.mode:
        empty = torch.empty(0, dtype=torch.uint8)
    with graph.module.graph.inserting_after(forward):
        reserve = graph.module.graph.call_function(operator.getitem, (forward, 3))
    forward.meta["val"], reserve.meta["val"] = (*forward.meta["val"], empty), empty
    gradient, x, weight, mean, var, kept_mean, kept_var, _, eps, _ = backward.args
    forward.target = aten.cudnn_batch_norm.default
    backward.target = aten.cudnn_batch_norm_backward.default
    backward.args = (x, gradient, weight, mean, var, kept_mean, kept_var, eps, reserve)
    graph.module.recompile()
    names = [name for name, _ in graph.inputs]
    return graph_of(graph.region, graph.binding, graph.program, graph.module, names)


def test_batch_norm_by_cudnn_has_the_parts_of_torchs_own() -> None:
    ours, cudnns = prepare(lower(parse(TRAINED))), prepare(as_on_a_gpu(lower(parse(TRAINED))))
    targets = [[str(n.target) for n in g.module.graph.nodes if n.op == "call_function"] for g in (ours, cudnns)]
    assert targets[0] == targets[1]
    assert "aten.var_mean.correction" in targets[1] and targets[1].count("aten.copy_.default") == 2
