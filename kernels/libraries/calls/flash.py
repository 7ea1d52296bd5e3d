"""FlashAttention in its editions, FlashInfer, causal_conv1d, cut_cross_entropy."""

from __future__ import annotations

from typing import Any

import torch


def attention_2(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float) -> Any:
    """Operands of [batch, heads, time, dimension], as SDPA has them."""
    from flash_attn import flash_attn_func

    return _turned(flash_attn_func(_turned(q), _turned(k), _turned(v), softmax_scale=scale, causal=causal))


def attention_3(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float) -> Any:
    """FlashAttention 3, of Hopper."""

    from flash_attn_interface import flash_attn_func

    result = flash_attn_func(_turned(q), _turned(k), _turned(v), softmax_scale=scale, causal=causal)
    return _turned(result[0] if isinstance(result, tuple) else result)


def attention_4(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float) -> Any:
    """FlashAttention 4, of Hopper and Blackwell."""

    from flash_attn.cute import flash_attn_func

    result = flash_attn_func(_turned(q), _turned(k), _turned(v), softmax_scale=scale, causal=causal)
    return _turned(result[0] if isinstance(result, tuple) else result)


def _turned(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2)


def cross_entropy(x: torch.Tensor, target: torch.Tensor, reduction: str, ignore_index: int) -> Any:
    """flash_attn's gives a loss by row."""
    from flash_attn.ops.triton.cross_entropy import cross_entropy_loss

    losses = cross_entropy_loss(x, target, ignore_index=ignore_index)[0]
    if reduction == "none":
        return losses
    return losses.sum() / (target != ignore_index).sum() if reduction == "mean" else losses.sum()


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> Any:
    """RMSNorm over the last dimension."""

    import flashinfer

    return flashinfer.rmsnorm(x, weight, eps)


def fused_add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> Any:
    """(normalised, sum). It overwrites both operands: on copies here, which counts against it."""
    import flashinfer

    normalised, total = x.clone(), residual.clone()
    flashinfer.fused_add_rmsnorm(normalised, total, weight, eps)
    return normalised, total


def silu_and_mul(a: torch.Tensor, b: torch.Tensor) -> Any:
    """silu(a) * b."""

    import flashinfer

    return flashinfer.silu_and_mul(torch.cat((a, b), -1))


def gelu_tanh_and_mul(a: torch.Tensor, b: torch.Tensor) -> Any:
    """gelu(a) * b in the tanh form."""

    import flashinfer

    return flashinfer.gelu_tanh_and_mul(torch.cat((a, b), -1))


def top_p_sampling(x: torch.Tensor, p: float) -> Any:
    """One index a row, from logits of [rows, classes]."""
    from flashinfer.sampling import top_p_sampling_from_probs

    return top_p_sampling_from_probs(torch.softmax(x.float(), -1), p)


def causal_conv1d(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None) -> Any:
    """x of [batch, channels, time], weight of [channels, 1, width]."""
    from causal_conv1d import causal_conv1d_fn

    return causal_conv1d_fn(x, weight.squeeze(1), bias, activation=activation)


def linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, reduction: str, ignore_index: int
) -> Any:
    """Loss of x [rows, width] and a weight [classes, width]: the logits are never whole."""

    from cut_cross_entropy import linear_cross_entropy as call

    return call(x, weight, target, reduction=reduction, ignore_index=ignore_index)
