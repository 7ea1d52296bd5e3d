"""Softmax, layer norm and their like as statistics of rows and what is made of them.

Over few, long rows: statistics of parts of a row, theirs, then every element. Over whole rows where another reduction
reads the result: its kernel then needs the rows' statistics alone, and makes the elements again.

Each gives what the one operation gives for NaN and infinities: a part of -inf alone counts for nothing in a row that
has more, and a row of -inf alone is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.fx

from kernels.codegen.graph.steps import Parts, Steps, aten
from kernels.codegen.nodes import fake


def _rows(like: torch.Tensor, dims: Sequence[int]) -> list[int]:
    """The shape of one number for each row, with the reduced dimensions as ones."""
    return [1 if d in dims else n for d, n in enumerate(like.shape)]


def _own_dims(steps: Steps, x: torch.fx.Node) -> tuple[int, ...]:
    shape = steps.bound.get("normalized_shape") or steps.bound.get("shape")
    rank = fake(x).dim()
    return tuple(range(rank - len(shape), rank)) if shape else (steps.bound["dim"] % rank,)


def _power(steps: Steps, x: torch.fx.Node, top: torch.fx.Node) -> torch.fx.Node:
    return steps.emit(aten.exp.default, steps.emit(aten.sub.Tensor, x, top))


def _exponentials(steps: Steps, x: torch.fx.Node, parts: Parts | None) -> tuple[torch.fx.Node, torch.fx.Node]:
    """The largest element of each row, and the sum of exp(x - largest); of a part both come from one walk."""
    dims = list(_own_dims(steps, x))
    if parts is None:
        top = steps.emit(aten.amax.default, x, dims, True)
        return top, steps.emit(aten.sum.dim_IntList, _power(steps, x, top), dims, True)
    over, axis = list(parts.over), [parts.axis]
    seen = steps.viewed(x, parts.shape)
    own = steps.emit(aten.amax.default, seen, over, True)
    sums = steps.emit(aten.sum.dim_IntList, _power(steps, seen, own), over, True)
    top = steps.emit(aten.amax.default, own, axis, True)
    some = steps.emit(aten.where.ScalarSelf, steps.emit(aten.eq.Scalar, own, -math.inf), 0.0, sums)
    shares = steps.emit(aten.mul.Tensor, some, _power(steps, own, top))
    total = steps.emit(aten.sum.dim_IntList, shares, axis, True)
    rows = _rows(fake(x), dims)
    return steps.viewed(top, rows), steps.viewed(total, rows)


def _added(steps: Steps, x: torch.fx.Node, parts: Parts | None, how: Any) -> torch.fx.Node:
    """The sum or the mean of each row. how: aten's."""
    dims = list(_own_dims(steps, x))
    if parts is None:
        return steps.emit(how, x, dims, True)
    own = steps.emit(how, steps.viewed(x, parts.shape), list(parts.over), True)
    return steps.viewed(steps.emit(how, own, [parts.axis], True), _rows(fake(x), dims))


def softmax(steps: Steps, parts: Parts | None) -> torch.fx.Node:
    """softmax and log_softmax."""
    x = steps.wide(steps.operand("self"))
    top, total = _exponentials(steps, x, parts)
    if "log" in str(steps.node.target):
        return steps.emit(aten.sub.Tensor, steps.emit(aten.sub.Tensor, x, top), steps.emit(aten.log.default, total))
    return steps.emit(aten.div.Tensor, _power(steps, x, top), total)


def softmax_backward(steps: Steps, parts: Parts | None) -> torch.fx.Node:
    """The gradients of softmax and log_softmax."""
    upstream, output = (steps.wide(steps.operand(name)) for name in ("grad_output", "output"))
    if "log" in str(steps.node.target):
        total = _added(steps, upstream, parts, aten.sum.dim_IntList)
        share = steps.emit(aten.mul.Tensor, steps.emit(aten.exp.default, output), total)
        return steps.emit(aten.sub.Tensor, upstream, share)
    total = _added(steps, steps.emit(aten.mul.Tensor, upstream, output), parts, aten.sum.dim_IntList)
    return steps.emit(aten.mul.Tensor, output, steps.emit(aten.sub.Tensor, upstream, total))


def layer_norm(steps: Steps, parts: Parts | None) -> tuple[torch.fx.Node, ...]:
    """The result, mean and 1 / standard deviation."""
    x = steps.wide(steps.operand("input"))
    dims = list(_own_dims(steps, x))
    if parts is None:
        both = steps.emit(aten.var_mean.correction, x, dims, correction=0, keepdim=True)
        variance, mean = steps.item(both, 0), steps.item(both, 1)
    else:
        own = steps.variance(steps.viewed(x, parts.shape), list(parts.over), parts, 0)
        variance, mean = (steps.viewed(node, _rows(fake(x), dims)) for node in own)
    rstd = steps.emit(aten.rsqrt.default, steps.emit(aten.add.Scalar, variance, float(steps.bound["eps"])))
    result = steps.emit(aten.mul.Tensor, steps.emit(aten.sub.Tensor, x, mean), rstd)
    return _scaled(steps, result), mean, rstd


def rms_norm(steps: Steps, parts: Parts | None) -> tuple[torch.fx.Node, ...]:
    """The result and 1 / root mean square."""
    x = steps.wide(steps.operand("input" if "input" in steps.bound else "x"))
    mean = _added(steps, steps.emit(aten.mul.Tensor, x, x), parts, aten.mean.dim)
    rstd = steps.emit(aten.rsqrt.default, steps.emit(aten.add.Scalar, mean, float(steps.bound["eps"])))
    return _scaled(steps, steps.emit(aten.mul.Tensor, x, rstd)), rstd


def _scaled(steps: Steps, result: torch.fx.Node) -> torch.fx.Node:
    for name, target in (("weight", aten.mul.Tensor), ("bias", aten.add.Tensor)):
        if steps.bound.get(name) is not None:
            result = steps.emit(target, result, steps.wide(steps.operand(name)))
    return result


WHOLE: Mapping[str, Callable[[Steps, Parts | None], Any]] = {
    "_softmax": softmax, "_log_softmax": softmax, "_softmax_backward_data": softmax_backward,
    "_log_softmax_backward_data": softmax_backward, "native_layer_norm": layer_norm, "_fused_rms_norm": rms_norm,
    "rms_norm": rms_norm,
}  # fmt: skip
"""Operations that are a reduction and what is made of it, and their steps."""
OPERANDS = ("self", "input", "x", "grad_output")


def operand_of(bound: Mapping[str, Any]) -> torch.fx.Node:
    """What is reduced."""
    reduced = next(bound[name] for name in OPERANDS if bound.get(name) is not None)
    assert isinstance(reduced, torch.fx.Node)
    return reduced


def in_steps(steps: Steps, name: str, parts: Parts | None) -> Any:
    """What stands for the operation: one node, or one for each of its results. parts: None for whole rows."""
    made, values = WHOLE[name](steps, parts), steps.node.meta["val"]
    if isinstance(values, torch.Tensor):
        return _laid_out(steps, made[0] if isinstance(made, tuple) else made, values)
    return tuple(_laid_out(steps, node, like) for node, like in zip(made, values, strict=True))


def _laid_out(steps: Steps, node: torch.fx.Node, like: torch.Tensor) -> torch.fx.Node:
    """The result as the operation gives it: contiguous, of whatever lay otherwise."""
    node = steps.finished(node, like)
    if like.is_contiguous() and not fake(node).is_contiguous():
        return steps.emit(aten.clone.default, node, memory_format=torch.contiguous_format)
    return node
