"""Every scatter as one of four: scatter_add, scatter_reduce of amax or amin, scatter, index_put.

They add up in a type that the GPU adds atomically: 16-bit floats in f32, small integers in i32, with a cast after.
Written as aten operations, so that what is around a scatter is grouped and generated as anything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch

aten = torch.ops.aten

WIDER = {
    torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.int16: torch.int32, torch.int8: torch.int32,
    torch.uint8: torch.int32,
}  # fmt: skip
"""Types without an atomic addition, and what stands in for them."""


def _widened(result: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return result if result.dtype == like.dtype else cast(torch.Tensor, aten._to_copy.default(result, dtype=like.dtype))


def _wide(x: torch.Tensor) -> torch.Tensor:
    wide = WIDER.get(x.dtype)
    return x if wide is None else cast(torch.Tensor, aten._to_copy.default(x, dtype=wide))


def _along(index: torch.Tensor, dim: int, source: torch.Tensor) -> torch.Tensor:
    """A vector of indices along one dimension of the source, as an index for each of its elements."""
    if not source.dim():
        return cast(torch.Tensor, aten.view.default(index, []))
    shape = [1] * source.dim()
    shape[dim] = index.numel()
    return cast(torch.Tensor, aten.expand.default(aten.view.default(index, shape), list(source.shape)))


def _scatter_add(self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> Any:
    if self.dtype not in WIDER:
        return NotImplemented
    return _widened(aten.scatter_add.default(_wide(self), dim, index, _wide(src)), self)


def _index_add(self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1) -> Any:
    if not self.dim():
        return NotImplemented
    dim %= self.dim()
    added = _wide(source) if alpha == 1 else aten.mul.Tensor(_wide(source), alpha)
    return _widened(aten.scatter_add.default(_wide(self), dim, _along(index, dim, source), added), self)


def _scatter_reduce(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    first = {"sum": 0, "mean": 0, "amax": _least(self.dtype), "amin": _largest(self.dtype)}.get(reduce)
    if first is None or self.dtype == torch.bool:
        return NotImplemented
    if reduce in ("amax", "amin") and include_self and self.dtype not in WIDER:
        return NotImplemented
    start = _wide(self) if include_self else aten.scatter.value(_wide(self), dim, index, first)
    if reduce in ("amax", "amin"):
        return _widened(aten.scatter_reduce.two(start, dim, index, _wide(src), reduce), self)
    total = aten.scatter_add.default(start, dim, index, _wide(src))
    if reduce == "sum":
        return _widened(total, self)
    if not self.dtype.is_floating_point:
        return NotImplemented
    shape = list(self.shape)
    for d in range(index.dim()):  # one index for all of a dimension: counted once
        if d != dim % index.dim() and index.stride(d) == 0 and index.shape[d] == self.shape[d]:
            index = aten.slice.Tensor(index, d, 0, 1)
            shape[d] = 1
    ones = aten.full.default(list(index.shape), 1, dtype=total.dtype, device=self.device)
    counted = aten.full.default(shape, float(include_self), dtype=total.dtype, device=self.device)
    count = aten.scatter_add.default(counted, dim, index, ones)
    return _widened(aten.div.Tensor(total, aten.clamp_min.default(count, 1)), self)


def _least(dtype: torch.dtype) -> float | int:
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min if dtype != torch.bool else 0


def _largest(dtype: torch.dtype) -> float | int:
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max if dtype != torch.bool else 1


def _index_reduce(
    self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    if not self.dim() or reduce not in ("mean", "amax", "amin"):
        return NotImplemented
    dim %= self.dim()
    along = _along(index, dim, source)
    return aten.scatter_reduce.two(self, dim, along, source, reduce, include_self=include_self)


def _index_copy(self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    if not self.dim():
        return NotImplemented
    dim %= self.dim()
    return aten.scatter.src(self, dim, _along(index, dim, source), source)


def _index_fill(self: torch.Tensor, dim: int, index: torch.Tensor, value: float) -> Any:
    if not self.dim():
        return NotImplemented
    dim %= self.dim()
    shape = [*self.shape[:dim], index.numel(), *self.shape[dim + 1 :]]
    from_the_end = aten.add.Tensor(index, self.shape[dim])
    place = aten.where.self(aten.lt.Scalar(index, 0), from_the_end, index)
    along = aten.view.default(place, [1] * dim + [index.numel()] + [1] * (self.dim() - dim - 1))
    return aten.scatter.value(self, dim, aten.expand.default(along, shape), value)


def _index_put(
    self: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False,
) -> Any:  # fmt: skip
    if not accumulate or self.dtype not in WIDER:
        return NotImplemented
    return _widened(aten.index_put.default(_wide(self), list(indices), _wide(values), True), self)


def _unsafe_index_put(
    self: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False,
) -> Any:  # fmt: skip
    if accumulate and self.dtype in WIDER:
        return _index_put(self, indices, values, accumulate)
    return aten.index_put.default(self, list(indices), values, accumulate)


def _embedding_dense_backward(
    grad_output: torch.Tensor, indices: torch.Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    if scale_grad_by_freq:
        return NotImplemented
    width = grad_output.shape[-1]
    rows = aten.view.default(indices, [indices.numel(), 1])
    gradient = _wide(aten.reshape.default(grad_output, [indices.numel(), width]))
    if padding_idx >= 0:
        gradient = aten.masked_fill.Scalar(gradient, aten.eq.Scalar(rows, padding_idx), 0)
    nothing = aten.full.default([num_weights, width], 0, dtype=gradient.dtype, device=gradient.device)
    total = aten.scatter_add.default(nothing, 0, aten.expand.default(rows, [indices.numel(), width]), gradient)
    return _widened(total, grad_output)


def _histc(self: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    if not min < max or self.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    flat = aten.reshape.default(self, [self.numel()])
    place = aten.div.Tensor(aten.mul.Tensor(aten.sub.Tensor(flat, min), bins), max - min)
    clamped = aten.clamp.default(aten._to_copy.default(place, dtype=torch.int64), 0, bins - 1)
    inside = aten.bitwise_and.Tensor(aten.ge.Scalar(flat, min), aten.le.Scalar(flat, max))
    nothing = aten.full.default([bins], 0, dtype=self.dtype, device=self.device)
    return aten.scatter_add.default(nothing, 0, clamped, aten._to_copy.default(inside, dtype=self.dtype))


def bincount(x: torch.Tensor, weights: torch.Tensor | None, minlength: int) -> Any:
    """How often each value below minlength occurs, or the sums of their weights.

    Weights are added in f64 also where the sums are f32: in few bins most of the rounding would be that of adding many
    to one sum, one after the other, where eager adds partial sums.
    """
    dtype = torch.int64 if weights is None else torch.float64
    nothing = aten.full.default([minlength], 0, dtype=dtype, device=x.device)
    if weights is None:
        added = aten.full.default([x.numel()], 1, dtype=dtype, device=x.device)
    else:
        added = weights if weights.dtype == dtype else aten._to_copy.default(weights, dtype=dtype)
    place = x if x.dtype == torch.int64 else aten._to_copy.default(x, dtype=torch.int64)
    total = aten.scatter_add.default(nothing, 0, place, added)
    return _widened(total, weights) if weights is not None and weights.dtype == torch.float32 else total


FORMS: Mapping[Any, Callable[..., Any]] = {
    aten.scatter_add.default: _scatter_add,
    aten.scatter_reduce.two: _scatter_reduce,
    aten.index_add.default: _index_add,
    aten.index_reduce.default: _index_reduce,
    aten.index_copy.default: _index_copy,
    aten.index_fill.int_Scalar: _index_fill,
    aten.index_put.default: _index_put,
    aten._unsafe_index_put.default: _unsafe_index_put,
    aten.embedding_dense_backward.default: _embedding_dense_backward,
    aten.histc.default: _histc,
}
"""Operation -> what it is in other ones; NotImplemented where it stays."""
