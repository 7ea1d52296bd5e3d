"""What a reduction in two steps is written with: how it is split, and a graph that takes aten operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import getitem as _getitem
from typing import Any

import torch
import torch.fx

from kernels.codegen.nodes import bind, fake

aten = torch.ops.aten
NARROW = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Parts:
    """How a reduction is split. shape: its operand's with one dimension in two; over: what the first step reduces, of
    `shape`; axis: the dimension of the parts in it.

    count: elements of a part; at: the dimension of the parts in the first step's result.
    """

    shape: tuple[int, ...]
    over: tuple[int, ...]
    parts: int
    count: int
    at: int
    axis: int


class Steps:
    """Writes one operation's steps into a graph, each with its fake result.

    made: what stands for the nodes of the graph that is split; mode: that of its fakes.
    """

    def __init__(
        self, graph: torch.fx.Graph, node: torch.fx.Node, mode: Any, made: Mapping[torch.fx.Node, Any]
    ) -> None:
        self.graph = graph
        self.node = node
        self.mode = mode
        self.made = made
        self.bound: Mapping[str, Any] = bind(node)

    def operand(self, name: str) -> Any:
        """A tensor of the call in the new graph; None where it has none."""
        given = self.bound.get(name)
        return None if given is None else self.made[given]

    def emit(self, target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        """One more operation."""
        made = self.graph.call_function(target, args, {k: v for k, v in kwargs.items() if v is not None})
        values = torch.fx.node.map_arg(args, lambda n: n.meta["val"])
        with self.mode:
            made.meta["val"] = target(*values, **made.kwargs)
        made.meta.update({k: v for k, v in self.node.meta.items() if k == "custom"})
        return made

    def wide(self, x: torch.fx.Node) -> torch.fx.Node:
        """In f32 where it has 16 bits."""
        return self.emit(aten._to_copy.default, x, dtype=torch.float32) if fake(x).dtype in NARROW else x

    def viewed(self, x: torch.fx.Node, shape: Sequence[int]) -> torch.fx.Node:
        """The same elements in this shape."""
        return x if tuple(fake(x).shape) == tuple(shape) else self.emit(aten.view.default, x, list(shape))

    def finished(self, node: torch.fx.Node, like: torch.Tensor) -> torch.fx.Node:
        """The result in the shape and dtype that the operation gives."""
        if fake(node).dtype != like.dtype:
            node = self.emit(aten._to_copy.default, node, dtype=like.dtype)
        return self.viewed(node, like.shape)

    def variance(
        self, x: torch.fx.Node, over: list[int], parts: Parts, correction: float
    ) -> tuple[torch.fx.Node, torch.fx.Node]:
        """Variance and mean from those of parts of equal size (Chan, Golub and LeVeque, 1979)."""
        both = self.emit(aten.var_mean.correction, x, over, correction=0)
        own, means = (self.item(both, place) for place in (0, 1))
        mean = self.emit(aten.mean.dim, means, [parts.at], True)
        apart = self.emit(aten.sub.Tensor, means, mean)
        summed = self.emit(aten.add.Tensor, own, self.emit(aten.mul.Tensor, apart, apart))
        total = self.emit(aten.sum.dim_IntList, summed, [parts.at])
        whole = parts.parts * parts.count - correction
        scaled = self.emit(aten.mul.Tensor, total, parts.count / whole)
        return scaled, self.emit(aten.mean.dim, means, [parts.at])

    def item(self, several: torch.fx.Node, place: int) -> torch.fx.Node:
        """One result of an operation that gives several."""
        made = self.graph.call_function(_getitem, (several, place))
        made.meta["val"] = several.meta["val"][place]
        made.meta.update({k: v for k, v in self.node.meta.items() if k == "custom"})
        return made
