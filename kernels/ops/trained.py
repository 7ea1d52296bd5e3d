"""This project's kernels as functions that autograd knows: forward and backward a kernel each.

Each takes the arguments of the operation that it is named after and raises what that raises. Where nothing asks for a
gradient the forward alone runs, and keeps nothing. Attention, causal convolution and selective scan make no gradient
that nobody asked for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from kernels.ops.attention import flash_attention as flash
from kernels.ops.attention.attention_backward import attention_backward
from kernels.ops.elementwise import dropout as drops
from kernels.ops.elementwise import gated_activation as gated
from kernels.ops.elementwise import rope as rotary
from kernels.ops.matmul import grouped_gemm as grouped
from kernels.ops.matmul import linear_cross_entropy as linear_losses
from kernels.ops.norm import layer_norm as layer
from kernels.ops.norm import rms_norm as rms
from kernels.ops.norm.layer_norm_backward import layer_norm_backward
from kernels.ops.norm.rms_norm_backward import rms_norm_backward
from kernels.ops.pool import pool, pool_backward
from kernels.ops.scan import causal_conv1d as causal
from kernels.ops.scan import linear_recurrence as recurrence
from kernels.ops.scan import selective_scan as selective
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


def dropout(x: Tensor, p: float, seed: int | None = None, offset: int = 0) -> Tensor:
    """x / (1 - p), each element 0 instead with probability p; its backward draws the same words anew from the seed."""
    if not _asked(x):
        return drops.dropout(x, p, seed, offset)
    return _Dropout.apply(x, p, drops.drawn_seed() if seed is None else seed, offset)  # type: ignore[no-any-return]


class _Dropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int, offset: int) -> Tensor:
        ctx.settings = (p, seed, offset)
        return drops.dropout(x, p, seed, offset)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        return drops.dropout_backward(dy, *ctx.settings), None, None, None


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


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, causal: bool = False, window: int | None = None,
    cap: float | None = None, scale: float | None = None, logsumexp: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Attention; its backward reads the result and each row's log-sum-exp. ValueError for a gradient with a bias."""
    if not _asked(q, k, v, bias):
        return flash.flash_attention(q, k, v, bias, causal, window, cap, scale, logsumexp)
    if bias is not None:
        raise ValueError("flash_attention has no gradient with a bias")
    o, lse = _FlashAttention.apply(q, k, v, causal, window, cap, scale)
    return (o, lse) if logsumexp else o


class _FlashAttention(Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, window: int | None, cap: float | None,
        scale: float | None,
    ) -> Any:  # fmt: skip
        o, lse = flash.flash_attention(q, k, v, None, causal, window, cap, scale, True)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.settings = (causal, window, cap, scale)
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor | None, dlse: Tensor | None) -> Gradients:
        q, k, v, o, lse = ctx.saved_tensors
        do = torch.zeros_like(o) if do is None else do
        causal, window, cap, scale = ctx.settings
        of_q, of_k, of_v, *_ = ctx.needs_input_grad
        made = attention_backward(
            do, q, k, v, o, lse, causal, window, cap, scale, dlse, of_queries=of_q, of_keys=of_k or of_v
        )
        return *made, None, None, None, None


def causal_conv1d(
    x: Tensor, w: Tensor, bias: Tensor | None = None, act: str | None = None, initial: Tensor | None = None,
    final: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Causal convolution of x [B, C, T] with w [C, W]; its backward computes it anew for the activation's slope."""
    if not _asked(x, w, bias, initial):
        return causal.causal_conv1d(x, w, bias, act, initial, final)
    return _CausalConv1d.apply(x, w, bias, act, initial, final)  # type: ignore[no-any-return]


class _CausalConv1d(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, act: str | None, initial: Tensor | None, final: bool
    ) -> Any:
        ctx.save_for_backward(x, w, bias, initial)
        ctx.act = act
        return causal.causal_conv1d(x, w, bias, act, initial, final)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, dfinal: Tensor | None = None) -> Gradients:
        x, w, bias, initial = ctx.saved_tensors
        of_x, of_w, of_bias, _, of_state, _ = ctx.needs_input_grad
        dx, dw, *more = causal.causal_conv1d_backward(
            dy, x, w, bias, ctx.act, initial, dfinal, of_x or of_state, of_w or of_bias
        )
        dbias = None if bias is None else more.pop(0)
        return dx, dw, dbias, None, None if initial is None else more.pop(0), None


def selective_scan(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor | None = None, z: Tensor | None = None,
    bias: Tensor | None = None, softplus: bool = False,
) -> Tensor:  # fmt: skip
    """Mamba's recurrence; its backward makes the states anew."""
    if not _asked(x, dt, a, b, c, skip, z, bias):
        made = selective.selective_scan(x, dt, a, b, c, skip, z, bias, softplus)
        assert isinstance(made, Tensor)
        return made
    return _SelectiveScan.apply(x, dt, a, b, c, skip, z, bias, softplus)  # type: ignore[no-any-return]


class _SelectiveScan(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor | None, z: Tensor | None,
        bias: Tensor | None, softplus: bool,
    ) -> Any:  # fmt: skip
        ctx.save_for_backward(x, dt, a, b, c, skip, z, bias)
        ctx.softplus = softplus
        return selective.selective_scan(x, dt, a, b, c, skip, z, bias, softplus)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        x, dt, a, b, c, skip, z, bias = given = ctx.saved_tensors
        wanted = sum(1 << i for i, needed in enumerate(ctx.needs_input_grad[:8]) if needed)
        made = list(selective.selective_scan_backward(dy, x, dt, a, b, c, skip, z, bias, ctx.softplus, wanted))
        return *(made.pop(0) if t is not None else None for t in given), None


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


def linear_cross_entropy(
    x: Tensor, w: Tensor, target: Tensor, ignore_index: int = losses.IGNORE, reduction: str = "mean"
) -> Tensor:
    """Cross entropy of x @ w^T, never all of its logits; the forward makes the gradients, for a mean or a sum.

    Its backward scales them in place, so it is for one backward: a second one raises RuntimeError. Raises ValueError
    for gradients of a mean in f16, which holds no share of a class divided by thousands of rows.
    """
    if not _asked(x, w):
        return linear_losses.linear_cross_entropy(x, w, target, ignore_index, reduction)
    if x.dtype == torch.float16 and reduction == "mean":
        raise ValueError("f16 does not hold the logits' gradient of a mean: use bf16, or a sum that is divided behind")
    return _LinearCrossEntropy.apply(x, w, target, ignore_index, reduction)  # type: ignore[no-any-return]


class _LinearCrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, target: Tensor, ignore_index: int, reduction: str) -> Tensor:
        wanted = ctx.needs_input_grad[:2]
        loss, *ctx.gradients = linear_losses.wanted_gradients(x, w, target, wanted, ignore_index, reduction)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor) -> Gradients:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError(
                "the gradients that linear_cross_entropy kept are used up: a second backward needs a new forward"
            )
        dx, dw = (None if g is None else scale_gradient(g, dloss) for g in gradients)
        return dx, dw, None, None, None


def grouped_gemm(
    x: Tensor, w: Tensor, offsets: Tensor, source: Tensor | None = None, target: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Products of groups of rows; gradients of x, w and weight, the router's, each where it is asked for."""
    if not _asked(x, w, weight):
        return grouped.grouped_gemm(x, w, offsets, source, target, weight)
    return _GroupedGemm.apply(x, w, offsets, source, target, weight)  # type: ignore[no-any-return]


def grouped_mm(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    """grouped_gemm as F.grouped_mm says it: ends [E], where the rows of each expert end, the last one's at T."""
    return grouped_gemm(x, w, grouped.with_start(ends))


class _GroupedGemm(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, offsets: Tensor, source: Tensor | None, target: Tensor | None,
        weight: Tensor | None,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(x, w, offsets, source, target, weight)
        return grouped.grouped_gemm(x, w, offsets, source, target, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        x, w, offsets, source, target, weight = ctx.saved_tensors
        of_x, of_w, *_, of_weight = ctx.needs_input_grad
        dx, dw, dweight = grouped.wanted_gradients(
            dy, x, w, offsets, source, target, weight, (of_x, of_w, of_weight)
        )  # fmt: skip
        if dx is not None and source is not None:
            dx = torch.zeros_like(x).index_add_(0, source, dx)
        return dx, dw, None, None, None, dweight


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


def max_pool2d(
    x: Tensor, size: pool.Pair, stride: pool.Pair | None = None, padding: pool.Pair = (0, 0),
    dilation: pool.Pair = (1, 1), ceil: bool = False,
) -> Tensor:  # fmt: skip
    """max_pool of a window of these settings, in the order of F.max_pool2d."""
    return max_pool(x, pool.Window(size, stride, padding, dilation, ceil))


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
        return pool_backward.max_pool_backward(dy, places, ctx.shape, ctx.window), None


def average_pool(x: Tensor, window: pool.Window) -> Tensor:
    """The mean of each window; nothing is kept for its backward."""
    return _AveragePool.apply(x, window) if _asked(x) else pool.average_pool(x, window)


def avg_pool2d(
    x: Tensor, size: pool.Pair, stride: pool.Pair | None = None, padding: pool.Pair = (0, 0), ceil: bool = False,
    counted: bool = True,
) -> Tensor:  # fmt: skip
    """average_pool of a window of these settings, in the order of F.avg_pool2d."""
    return average_pool(x, pool.Window(size, stride, padding, ceil=ceil, counted=counted))


class _AveragePool(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, window: pool.Window) -> Tensor:
        ctx.shape, ctx.window = x.shape, window
        return pool.average_pool(x, window)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        return pool_backward.average_pool_backward(dy, ctx.shape, ctx.window), None
