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
from kernels.ops.elementwise import gated_activation as gated
from kernels.ops.elementwise import rope as rotary
from kernels.ops.norm import layer_norm as layer
from kernels.ops.norm import rms_norm as rms
from kernels.ops.norm.layer_norm_backward import layer_norm_backward
from kernels.ops.norm.rms_norm_backward import rms_norm_backward
from kernels.ops.scan import causal_conv1d as causal
from kernels.ops.scan import linear_recurrence as recurrence
from kernels.ops.scan import selective_scan as selective
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
