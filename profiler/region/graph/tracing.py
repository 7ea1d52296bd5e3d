"""Tracing: the aten calls that a function makes on fakes, as a graph. What make_fx does, for what regions are made of.

make_fx goes through proxies, snapshots and records of its own that nobody here reads: half of what a lowering took. It
is still asked where something comes up that is not just a call on tensors (`BeyondTracingError`), and tests hold the
two to each other.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode, autograd_would_have_decomposed

from profiler.region.graph.lazy_code import graph_module

Custom = Mapping[str, object]
"""What the recorder keeps of a call: its line, its label, its place."""


class BeyondTracingError(Exception):
    """The function does what only make_fx follows: it makes a tensor from nowhere, or changes a tensor's shape."""


def traced(
    function: Callable[..., tuple[torch.Tensor, ...]],
    inputs: Sequence[torch.Tensor],
    told: Callable[[], Custom | None],
    parts: Mapping[object, Callable[..., object]] | None = None,
) -> torch.fx.GraphModule:
    """Every call that the function makes on these fakes, in order: call_function nodes whose meta has `val`, and
    `custom`, which is what `told` says at the time. Raises BeyondTracingError, and what the function raises.

    parts: operations of which other calls are recorded in their place.
    """
    tracer = _Tracer(told, parts or {})
    for place, value in enumerate(inputs):
        tracer.track(tracer.graph.placeholder(f"arg{place}_1"), value)
    with tracer:
        results = function(*inputs)
    tracer.graph.output(map_aggregate(tuple(results), tracer.node_of))
    tracer.detach()
    return graph_module(torch.nn.Module(), tracer.graph)


class _Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records each call. nodes: of every tensor that was seen, by its identity: no other has it while it is held."""

    def __init__(self, told: Callable[[], Custom | None], parts: Mapping[object, Callable[..., object]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.parts = parts
        self.graph = torch.fx.Graph()
        self.told = told
        self.nodes: dict[int, torch.fx.Node] = {}
        self.held: list[torch.Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:
            return func(*args, **kwargs)
        if func in self.parts:
            with self:
                result = self.parts[func](*args, **kwargs)
            if result is not NotImplemented:
                return result
        kind = _kind(func)
        if kind == _BEYOND:
            raise BeyondTracingError(str(func))
        if kind == _COMPOSITE and autograd_would_have_decomposed(func, [*tensors_in((args, kwargs))]):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        node_args, node_kwargs = map_aggregate(tuple(args), self.node_of), map_aggregate(dict(kwargs), self.node_of)
        name = self.graph._target_to_str(func.overloadpacket.__name__)
        node = self.graph.create_node("call_function", func, node_args, node_kwargs, name)
        result = func(*args, **kwargs)
        if kind == _FACTORY and isinstance(result, torch.Tensor):
            # Not held: of a factory's tensor that another holds torch makes a copy, and that would be one more call.
            self.nodes[id(result)] = node
            self.describe(node, result.detach(), self.told())
        else:
            self.track(node, result, self.told())
        return result

    def node_of(self, value: Any) -> Any:
        """The node of a tensor; anything else as it is."""
        if not isinstance(value, torch.Tensor):
            return value
        node = self.nodes.get(id(value))
        if node is None:
            raise BeyondTracingError("a tensor that is no input's and no call's")
        return node

    def track(self, node: torch.fx.Node, value: object, custom: Custom | None = None) -> None:
        """Keep a result, and make a node for each part of one that has parts."""
        self.describe(node, value, custom)
        if isinstance(value, torch.Tensor):
            self.nodes[id(value)] = node
            self.held.append(value)
        elif isinstance(value, tuple | list):
            for place, part in enumerate(value):
                self.track(self.graph.call_function(operator.getitem, (node, place)), part, custom)

    def describe(self, node: torch.fx.Node, value: object, custom: Custom | None) -> None:
        """What is read of a node."""
        if custom is not None:
            node.meta["custom"] = custom
        node.meta["val"] = value

    def detach(self) -> None:
        """Nodes keep what a tensor is, not what autograd would make of it."""
        for node in self.graph.nodes:
            if "val" in node.meta:
                node.meta["val"] = map_aggregate(node.meta["val"], _detached)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Every tensor in nested tuples, lists and mappings, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, Mapping):
        yield from tensors_in(tuple(value.values()))


_CALL, _FACTORY, _COMPOSITE, _BEYOND = "call", "factory", "composite", "beyond"


@cache
def _kind(func: object) -> str:
    if not isinstance(func, torch._ops.OpOverload):
        return _BEYOND
    # A literal's tensor; a value that becomes a number; a tensor that gets another shape while nodes hold it.
    tags = (torch.Tag.inplace_view, torch.Tag.data_dependent_output)
    if func._schema.name in ("aten::lift_fresh", "aten::is_nonzero") or any(tag in func.tags for tag in tags):
        return _BEYOND
    if func._can_decompose():
        return _COMPOSITE
    return _FACTORY if any(argument.name == "pin_memory" for argument in func._schema.arguments) else _CALL
