"""This project's kernels as functions that autograd knows: forward and backward a kernel each.

Each takes the arguments of the operation that it is named after and raises what that raises. Where nothing asks for a
gradient the forward alone runs, and keeps nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from kernels.ops.elementwise import gated_activation as gated
from kernels.ops.elementwise import rope as rotary
from kernels.ops.norm import layer_norm as layer
from kernels.ops.norm import rms_norm as rms
from kernels.ops.norm.layer_norm_backward import layer_norm_backward
from kernels.ops.norm.rms_norm_backward import rms_norm_backward
from kernels.ops.pool import pool
from kernels.ops.scan import linear_recurrence as recurrence
from kernels.ops.scatter import embedding_bag as bags
from kernels.ops.scatter import segment_reduce as segments
from kernels.ops.softmax import cross_entropy as losses
from kernels.ops.softmax import softmax as shares
from kernels.ops.softmax.cross_entropy_backward import scale_gradient
from kernels.ops.softmax.softmax_backward import softmax_backward

Tensor = torch.Tensor
Gradients = tuple[Tensor | None, ...]


def _asked(*tensors: Tensor | None) -> bool:
    """Whether a gradient of one of them will be asked for."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """RMSNorm over the last axis; its backward reads x and 1 / root mean square of each row."""
    if not _asked(x, weight):
        return rms.rms_norm(x, weight, eps)
    return _RMSNorm.apply(x, weight, eps)  # type: ignore[no-any-return]


class _RMSNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        y, rstd = rms.rms_norm_with_rstd(x, weight, eps)
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        x, weight, rstd = ctx.saved_tensors
        made = rms_norm_backward(dy, x, weight, rstd)
        return (made, None, None) if weight is None else (*made, None)


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """LayerNorm over the last axis; its backward reads x and each row's mean and 1 / standard deviation."""
    if not _asked(x, weight, bias):
        return layer.layer_norm(x, weight, bias, eps)
    return _LayerNorm.apply(x, weight, bias, eps)  # type: ignore[no-any-return]


class _LayerNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        y, mean, rstd = layer.layer_norm_with_stats(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.biased = None if bias is None else bias.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        x, weight, mean, rstd = ctx.saved_tensors
        given = x.new_ones(x.shape[-1]) if weight is None else weight
        dx, dw, db = layer_norm_backward(dy, x, given, mean, rstd)
        return dx, None if weight is None else dw, None if ctx.biased is None else db.to(ctx.biased), None


def softmax(x: Tensor, widen: bool = False) -> Tensor:
    """Softmax over the last axis; its backward reads the result."""
    if not _asked(x):
        return shares.softmax(x, widen)
    return _Softmax.apply(x, widen)  # type: ignore[no-any-return]


class _Softmax(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, widen: bool) -> Tensor:
        y = shares.softmax(x, widen)
        ctx.save_for_backward(y)
        ctx.dtype = x.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y).to(ctx.dtype), None


def gated_activation(a: Tensor, b: Tensor | None = None, activation: str = "silu") -> Tensor:
    """activation(a) * b; its backward computes the activation anew."""
    if not _asked(a, b):
        return gated.gated_activation(a, b, activation)
    if b is None:
        a, b = a.chunk(2, -1)
    return _GatedActivation.apply(a, b, activation)  # type: ignore[no-any-return]


class _GatedActivation(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, activation: str) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.activation = activation
        return gated.gated_activation(a, b, activation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        a, b = ctx.saved_tensors
        return *gated.gated_activation_backward(dy, a, b, ctx.activation), None


def rope(q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    """Rotary embedding of q and k, or of q alone; cos and sin get no gradient: ValueError where they ask for one."""
    if not _asked(q, k, cos, sin):
        return rotary.rope(q, k, cos, sin)
    if cos.requires_grad or sin.requires_grad:
        raise ValueError("rope has no gradient for cos and sin")
    return _Rope.apply(q, k, cos, sin)  # type: ignore[no-any-return]


class _Rope(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor) -> Any:
        ctx.save_for_backward(cos, sin)
        return rotary.rope(q, k, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dq: Tensor, dk: Tensor | None = None) -> Gradients:
        made = rotary.rope_backward(dq, dk, *ctx.saved_tensors)
        return *(made if isinstance(made, tuple) else (made, None)), None, None


def linear_recurrence(a: Tensor, b: Tensor) -> Tensor:
    """h[:, t] = a[:, t] * h[:, t - 1] + b[:, t] over [B, T, C]; its backward reads a and h."""
    if not _asked(a, b):
        return recurrence.linear_recurrence(a, b)
    return _LinearRecurrence.apply(a, b)  # type: ignore[no-any-return]


class _LinearRecurrence(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        h = recurrence.linear_recurrence(a, b)
        ctx.save_for_backward(a, h)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor) -> Gradients:
        return recurrence.linear_recurrence_backward(dh, *ctx.saved_tensors)


def cross_entropy(
    logits: Tensor, target: Tensor, ignore_index: int = losses.IGNORE, label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Cross entropy whose forward makes the logits' gradient in the same pass.

    Its backward scales that in place, so it is for one backward: a second one raises RuntimeError.
    """
    if not _asked(logits):
        return losses.cross_entropy(logits, target, ignore_index, label_smoothing, reduction)
    return _CrossEntropy.apply(logits, target, ignore_index, label_smoothing, reduction)  # type: ignore[no-any-return]


class _CrossEntropy(Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, ignore_index: int, label_smoothing: float, reduction: str
    ) -> Tensor:
        loss, ctx.gradient = losses.cross_entropy_with_gradient(
            logits, target, ignore_index, label_smoothing, reduction
        )
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor) -> Gradients:
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            raise RuntimeError("the gradient that cross_entropy kept is used up: a second backward needs a new forward")
        return scale_gradient(gradient, dloss), None, None, None, None


def segment_reduce(values: Tensor, offsets: Tensor, mode: str) -> Tensor:
    """Sum, mean or max of segments; its backward of "max" reads values and results."""
    if not _asked(values):
        return segments.segment_reduce(values, offsets, mode)
    return _SegmentReduce.apply(values, offsets, mode)  # type: ignore[no-any-return]


class _SegmentReduce(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, offsets: Tensor, mode: str) -> Tensor:
        y = segments.segment_reduce(values, offsets, mode)
        ctx.mode = mode
        ctx.save_for_backward(values, y, offsets)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        values, y, offsets = ctx.saved_tensors
        return segments.segment_reduce_backward(dy, values, y, offsets, ctx.mode), None, None


def embedding_bag(
    table: Tensor, indices: Tensor, offsets: Tensor, sample_weights: Tensor | None = None, mode: str = "sum",
    include_last_offset: bool = True,
) -> Tensor:  # fmt: skip
    """Sum, mean or max of the rows of bags; the table's gradient is a whole tensor."""
    if not _asked(table, sample_weights):
        return bags.embedding_bag(table, indices, offsets, sample_weights, mode, include_last_offset)
    offsets = offsets if include_last_offset else bags.with_end(offsets, indices)
    return _EmbeddingBag.apply(table, indices, offsets, sample_weights, mode)  # type: ignore[no-any-return]


class _EmbeddingBag(Function):
    @staticmethod
    def forward(
        ctx: Any, table: Tensor, indices: Tensor, offsets: Tensor, sample_weights: Tensor | None, mode: str
    ) -> Tensor:
        places = None
        if mode == "max":
            y, places = bags.embedding_bag_with_places(table, indices, offsets)
        else:
            y = bags.embedding_bag(table, indices, offsets, sample_weights, mode)
        ctx.mode = mode
        ctx.save_for_backward(table, indices, offsets, sample_weights, places)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        table, indices, offsets, sample_weights, places = ctx.saved_tensors
        asked = (ctx.needs_input_grad[0], ctx.needs_input_grad[3])
        made = bags.embedding_bag_backward(dy, table, indices, offsets, sample_weights, places, ctx.mode, asked)
        return made[0], None, None, made[1] if len(made) > 1 else None, None


def max_pool(x: Tensor, window: pool.Window) -> Tensor:
    """The largest number of each window; its backward reads a byte a result."""
    return _MaxPool.apply(x, window) if _asked(x) else pool.max_pool(x, window)


class _MaxPool(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, window: pool.Window) -> Tensor:
        y, places = pool.max_pool_with_places(x, window)
        ctx.shape, ctx.window = x.shape, window
        ctx.save_for_backward(places)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        (places,) = ctx.saved_tensors
        return pool.max_pool_backward(dy, places, ctx.shape, ctx.window), None


def average_pool(x: Tensor, window: pool.Window) -> Tensor:
    """The mean of each window; nothing is kept for its backward."""
    return _AveragePool.apply(x, window) if _asked(x) else pool.average_pool(x, window)


class _AveragePool(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, window: pool.Window) -> Tensor:
        ctx.shape, ctx.window = x.shape, window
        return pool.average_pool(x, window)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        return pool.average_pool_backward(dy, ctx.shape, ctx.window), None
