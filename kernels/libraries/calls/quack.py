"""quack's functions: rows in two dimensions, what they give in the region's shape."""

from __future__ import annotations

from typing import Any

import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> Any:
    """RMSNorm over the last dimension."""

    from quack.rmsnorm import rmsnorm

    return rmsnorm(_rows(x), weight, eps=eps).reshape(x.shape)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float) -> Any:
    """LayerNorm over the last dimension."""

    from quack.rmsnorm import layernorm_fwd

    return layernorm_fwd(_rows(x), weight, bias=bias, eps=eps).reshape(x.shape)


def softmax(x: torch.Tensor) -> Any:
    """softmax over the last dimension."""

    from quack.softmax import softmax as call

    return call(_rows(x)).reshape(x.shape)


def cross_entropy(x: torch.Tensor, target: torch.Tensor, reduction: str, ignore_index: int) -> Any:
    """Loss of logits [rows, classes]."""

    from quack.cross_entropy import cross_entropy as call

    return call(x, target, reduction=reduction, ignore_index=ignore_index)


def linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, reduction: str, ignore_index: int
) -> Any:
    """Loss of x [rows, width] and a weight [classes, width]: the logits are never whole."""

    from quack.linear_cross_entropy import chunked_linear_cross_entropy

    return chunked_linear_cross_entropy(x, weight, target, reduction=reduction, ignore_index=ignore_index)


def top_k(x: torch.Tensor, k: int) -> Any:
    """(values, indices of 32 bits)."""
    from quack.topk import topk

    return topk(x, k)


def gemm_act(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str | None, residual: torch.Tensor | None
) -> Any:
    """activation(a @ b + residual + bias)."""
    from quack.gemm_interface import gemm_act as call

    return call(a, b, C=residual, bias=bias, activation=activation, store_preact=False)[1]


def _rows(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, x.shape[-1])
