"""What conditions look at: sizes, dtypes and strides of a match's roles, direction, GPU."""

from __future__ import annotations

from kernels.host import Host
from kernels.libraries.model import Facts
from profiler.hardware import find_device
from profiler.region.graph.lowering import Graph
from profiler.region.graph.match_model import Match, node_of
from profiler.region.graph.nodes import is_call
from profiler.region.graph.operation import Tensor


def facts_of(match: Match, graph: Graph, host: Host) -> Facts:
    """What conditions may look at."""
    inputs = dict(graph.inputs)
    sizes: dict[str, tuple[int, ...]] = {}
    dtypes: dict[str, str] = {}
    strides: dict[str, tuple[int, ...]] = {}
    for key, name in match.roles.items():
        if not isinstance(name, str):
            continue
        tensor = inputs.get(name) or _written(graph, name)
        if tensor is not None:
            sizes[key], dtypes[key], strides[key] = tensor.shape, tensor.dtype, tensor.stride
    main = next((dtypes[k] for k in ("x", "q", "a", "p", "input0") if k in dtypes), "")
    if not main:
        written = [o.writes for o in (graph.operation(n) for n in match.operations) if o.writes]
        main = written[0][0].dtype if written else ""
    device = find_device(host.gpu)
    return Facts(match.kind, match.by_hand, main, match.roles, sizes, dtypes, graph.region.requires_grad,
                 host.capability, host.features, strides, device.processors if device else None,
                 bool(graph.region.symbols), device.arch if device else "")  # fmt: skip


def _written(graph: Graph, name: str) -> Tensor | None:
    """What the operation of this name writes first, or the one of several results that a name stands for."""
    index: int = 0
    if name not in graph._by_name:
        node = node_of(graph, name)
        if not is_call(node, "getitem"):
            return None
        name, index = str(node.args[0]), int(str(node.args[1]))
    written = graph.operation(name).writes if name in graph._by_name else ()
    return written[index] if index < len(written) else None
