"""Reductions of few, long rows in two steps, so that every multiprocessor has work: partial results, then theirs.

A dimension of M that is reduced is seen as [parts, M / parts]; the first step reduces the inner one. Written as aten
operations, so that each step is grouped and generated as any other. Variances are joined by Chan's formula.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx

from kernels.codegen.expressions import ops
from kernels.codegen.expressions.reductions import reduced_over
from kernels.codegen.graph.few_rows import WHOLE, in_steps, operand_of
from kernels.codegen.graph.steps import Parts, Steps
from kernels.codegen.memory_steps import memory_steps
from kernels.codegen.nodes import base, bind, fake
from kernels.codegen.stages import signature
from profiler.region.graph.lazy_code import graph_module
from profiler.region.graph.lowering import Graph, graph_of

SPLIT = frozenset({
    "sum", "mean", "amax", "amin", "var", "std", "var_mean", "logsumexp", "prod", "argmax", "argmin",
    "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", *WHOLE,
})  # fmt: skip
SMALLEST = 1 << 20
"""Elements from which on a second launch costs less than idle multiprocessors."""
FEWEST, WANTED = 264, 1056
"""Programs below which a reduction is split, and how many it is split into: 2 and 8 for each of 132 multiprocessors."""
SHORTEST = 256
"""Elements that a part has at least."""
NEIGHBOURS = 64
"""Neighbours in memory that stay in one part where another dimension can be split."""
SIDE_BY_SIDE = 64
"""Rows of one program where neighbours in memory lie along the rows."""

aten = torch.ops.aten

PLACES: Mapping[str, tuple[Any, Any]] = {
    "argmax": (aten.amax.default, aten.argmax.default), "argmin": (aten.amin.default, aten.argmin.default),
}  # fmt: skip
"""What gives the element at a place, and the place."""
SCANS: Mapping[str, tuple[Any, Any, Any, float]] = {
    "cumsum": (aten.sum.dim_IntList, aten.cumsum.default, aten.add.Tensor, 0),
    "cumprod": (aten.prod.dim_int, aten.cumprod.default, aten.mul.Tensor, 1),
    "logcumsumexp": (aten.logsumexp.default, aten.logcumsumexp.default, aten.logaddexp.default, -math.inf),
    "cummax": (aten.amax.default, aten.cummax.default, aten.maximum.default, -math.inf),
    "cummin": (aten.amin.default, aten.cummin.default, aten.minimum.default, math.inf),
}
"""What gives all of a part, what runs along it, what joins two, and where it begins."""


def parts_of(shape: tuple[int, ...], strides: tuple[int, ...], dims: tuple[int, ...]) -> Parts | None:
    """How to split a reduction over `dims`; None where one step will do, or where sizes do not divide.

    shape, strides: of what is reduced, as it lies in the memory it is read from.
    """
    elements, width = math.prod(shape), math.prod(shape[d] for d in dims)
    if elements < SMALLEST or width < 2 * SHORTEST:
        return None
    nearest = min((d for d, n in enumerate(shape) if n > 1), key=lambda d: (strides[d], -d))
    programs = elements // width / (1 if nearest in dims else SIDE_BY_SIDE)
    if programs >= FEWEST:
        return None
    best: tuple[bool, float, int, int] | None = None
    for dim in dims:
        for parts in _divisors(shape[dim]):
            if parts > 1 and width // parts >= SHORTEST:
                off = abs(math.log(max(1.0, programs) * parts / WANTED))
                torn = dim == nearest and shape[dim] // parts < NEIGHBOURS  # of what memory reads at once
                best = min(best or (True, math.inf, 0, 0), (torn, off, dim, parts))
    if best is None:
        return None
    _, _, dim, parts = best
    seen = (*shape[:dim], parts, shape[dim] // parts, *shape[dim + 1 :])
    over = tuple(d + (d >= dim) for d in dims)
    at = sum(d not in dims for d in range(dim))
    return Parts(seen, over, parts, width // parts, at, dim)


def _memory_order(source: torch.Tensor) -> list[int]:
    """The dimensions, outermost in memory first."""
    return sorted(range(source.dim()), key=lambda d: (-source.stride()[d], d))


def _dense(source: torch.Tensor, dims: tuple[int, ...]) -> bool:
    """All of a tensor is reduced that fills its memory: it can be cut anywhere."""
    return len(dims) == source.dim() and source.permute(_memory_order(source)).is_contiguous()


MADE_AGAIN = (ops.POINTWISE, ops.CASTS, ops.VIEWS)
"""Operations of one element each."""


def _read_by_another(node: torch.fx.Node) -> bool:
    """A reduction over other rows reads what is made of the result, by steps that each of them can make again."""
    own, pending, seen = signature(node), list(node.users), set[torch.fx.Node]()
    while pending:
        user = pending.pop()
        if user in seen or user.op != "call_function":
            continue
        seen.add(user)
        if user.target is not operator.getitem and base(user) in ops.REDUCTIONS:
            if signature(user) != own:
                return True
        elif user.target is operator.getitem or any(base(user) in table for table in MADE_AGAIN):
            pending.extend(user.users)
    return False


def _values_alone(node: torch.fx.Node) -> bool:
    """Floating values are asked for, and no places: these are known by one walk alone."""
    values = fake(bind(node)["self"]).dtype
    return values.is_floating_point and all(
        u.target is operator.getitem and u.args[1] == 0 for u in node.users if u.users
    )


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def split(graph: Graph) -> Graph:
    """The graph with such reductions in two steps; itself where there is none."""
    chosen: dict[torch.fx.Node, Parts | None] = {}
    for node in graph.module.graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem and base(node) in SPLIT:
            operand, dims = operand_of(bind(node)), reduced_over(node)[1]
            source, shape, strides = fake(operand), tuple(fake(operand).shape), memory_steps(operand)
            if len(dims) > 1 and base(node) not in WHOLE and (base(node) in PLACES or _dense(source, dims)):
                shape, strides, dims = (source.numel(),), (1,), (0,)
            parts = parts_of(shape, strides, dims)
            if base(node) in ops.PLACED_SCANS and not _values_alone(node):
                parts = None
            if parts is not None or (base(node) in WHOLE and _read_by_another(node)):
                chosen[node] = parts
    if not chosen:
        return graph
    new = torch.fx.Graph()
    made: dict[torch.fx.Node, Any] = {}
    for node in graph.module.graph.nodes:
        if node in chosen:
            steps = _Reduction(new, node, graph.program.mode, made)
            if base(node) in WHOLE:
                made[node] = in_steps(steps, base(node), chosen[node])
            elif (parts := chosen[node]) is not None:
                made[node] = steps.run(made[bind(node)["self"]], parts)
        elif node.target is operator.getitem and node.args[0] in chosen:
            made[node] = made[node.args[0]][node.args[1]]
        else:
            made[node] = new.node_copy(node, made.__getitem__)
    new.lint()
    module = graph_module(graph.module, new)
    return graph_of(graph.region, graph.binding, graph.program, module, [name for name, _ in graph.inputs])


class _Reduction(Steps):
    """The steps of a reduction that is nothing else."""

    def run(self, source: torch.fx.Node, parts: Parts) -> Any:
        """The node that stands for the reduction; for var_mean both."""
        name = base(self.node)
        values = self.node.meta["val"]
        first = values if isinstance(values, torch.Tensor) else values[0]
        if len(parts.shape) == 2 and fake(source).dim() > 1:
            source = self.in_order(source, name)
        x = self.emit(aten.view.default, source, list(parts.shape))
        own = fake(source).dtype
        becomes_float = first.is_floating_point() and not own.is_floating_point  # mean(integers, dtype=bf16)
        if name not in ("amax", "amin", *PLACES) and (own in (torch.bfloat16, torch.float16) or becomes_float):
            wide = torch.float64 if becomes_float and first.dtype == torch.float64 else torch.float32
            x = self.emit(aten._to_copy.default, x, dtype=wide)
        over, at = list(parts.over), [parts.at]
        if name in PLACES:
            return self.finished(self.place(name, x, parts), first)
        if name in SCANS:
            scanned = self.finished(self.scan(name, x, parts, first.dtype), first)
            return (scanned,) if isinstance(values, tuple | list) else scanned
        if name == "prod":
            for dim in reversed(over):
                x = self.emit(aten.prod.dim_int, x, dim)
            return self.finished(self.emit(aten.prod.dim_int, x, at[0]), first)
        if name == "sum":
            wanted = {"dtype": first.dtype if first.dtype == torch.float64 else None}
            total = self.emit(aten.sum.dim_IntList, x, over, **wanted)
            return self.finished(self.emit(aten.sum.dim_IntList, total, at), first)
        if name in ("var", "std", "var_mean"):
            correction = self.bound.get("correction", 1 if self.bound.get("unbiased", True) else 0)
            variance, mean = self.variance(x, over, parts, 1 if correction is None else correction)
            spread = self.emit(aten.sqrt.default, variance) if name == "std" else variance
            if name == "var_mean":
                return self.finished(spread, first), self.finished(mean, first)
            return self.finished(spread, first)
        steps: dict[str, Callable[..., Any]] = {
            "mean": aten.mean.dim, "amax": aten.amax.default, "amin": aten.amin.default,
            "logsumexp": aten.logsumexp.default,
        }  # fmt: skip
        return self.finished(self.emit(steps[name], self.emit(steps[name], x, over), at), first)

    def in_order(self, source: torch.fx.Node, name: str) -> torch.fx.Node:
        """All of a tensor in one order: for a place that of its dimensions, else that of memory."""
        if name in PLACES:
            return self.emit(aten.clone.default, source, memory_format=torch.contiguous_format)
        return self.emit(aten.permute.default, source, _memory_order(fake(source)))

    def place(self, name: str, x: torch.fx.Node, parts: Parts) -> torch.fx.Node:
        """The first place of the largest element: of the parts that have it, or NaN, the first one's."""
        largest, places = PLACES[name]
        own = self.emit(largest, x, list(parts.over))
        where = self.emit(places, x, parts.over[0])
        hit = self.emit(aten.eq.Tensor, own, self.emit(largest, own, [parts.at], True))
        if fake(own).is_floating_point():
            hit = self.emit(aten.bitwise_or.Tensor, hit, self.emit(aten.ne.Tensor, own, own))
        first = self.emit(aten.mul.Tensor, self.numbered(fake(where), parts.at), parts.count)
        place = self.emit(aten.add.Tensor, first, where)
        beyond = self.emit(aten.where.ScalarOther, hit, place, parts.parts * parts.count)
        return self.emit(aten.amin.default, beyond, [parts.at])

    def scan(self, name: str, x: torch.fx.Node, parts: Parts, dtype: torch.dtype) -> torch.fx.Node:
        """A scan of each part, whose first element takes in what the parts before it give."""
        total, running, joined, start = SCANS[name]
        if not fake(x).is_floating_point():
            x = self.emit(aten._to_copy.default, x, dtype=dtype)
        whole = self.emit(total, x, parts.over[0] if name == "cumprod" else list(parts.over))
        shape = [1 if d == parts.at else n for d, n in enumerate(fake(whole).shape)]
        nothing = self.emit(aten.full.default, shape, start, dtype=fake(whole).dtype, device=fake(whole).device)
        earlier = self.emit(aten.slice.Tensor, whole, parts.at, 0, parts.parts - 1)
        before = self.values(running, self.emit(aten.cat.default, [nothing, earlier], parts.at), parts.at)
        before = self.emit(aten.unsqueeze.default, before, parts.over[0])
        first = self.emit(aten.eq.Scalar, self.numbered(fake(x), parts.over[0]), 0)
        taken_in = self.emit(aten.where.self, first, self.emit(joined, x, before), x)
        return self.values(running, taken_in, parts.over[0])

    def values(self, running: Any, x: torch.fx.Node, dim: int) -> torch.fx.Node:
        """A scan's values, without places."""
        scanned = self.emit(running, x, dim)
        return scanned if isinstance(scanned.meta["val"], torch.Tensor) else self.item(scanned, 0)

    def numbered(self, like: torch.Tensor, dim: int) -> torch.fx.Node:
        """0, 1, 2, ... along one dimension of a tensor, to be broadcast over the others."""
        numbers = self.emit(aten.arange.default, like.shape[dim], device=like.device)
        return self.emit(aten.view.default, numbers, [like.shape[dim] if d == dim else 1 for d in range(like.dim())])
