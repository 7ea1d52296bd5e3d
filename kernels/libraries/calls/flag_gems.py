"""FlagGems' functions by themselves: its replacement of aten's operations is never switched on."""

from __future__ import annotations

from math import prod
from typing import Any

import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> Any:
    """RMSNorm over the last dimension."""

    import flag_gems

    return flag_gems.rms_norm(x, (x.shape[-1],), weight, eps)


def layer_norm(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float) -> Any:
    """LayerNorm over the last dimension."""

    import flag_gems

    return flag_gems.layer_norm(x, (x.shape[-1],), weight, bias, eps)[0]


def group_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int, eps: float) -> Any:
    """GroupNorm of [batch, channels, ...]."""

    import flag_gems

    batch, channels = x.shape[:2]
    return flag_gems.group_norm(x, weight, bias, batch, channels, prod(x.shape[2:]), groups, eps)[0]


def softmax(x: torch.Tensor, dim: int) -> Any:
    """softmax over any dimension."""

    import flag_gems

    return flag_gems.softmax(x, dim)


def silu_and_mul(a: torch.Tensor, b: torch.Tensor) -> Any:
    """silu(a) * b."""

    import flag_gems

    return flag_gems.silu_and_mul(a, b)


def gelu_and_mul(a: torch.Tensor, b: torch.Tensor, approximate: str) -> Any:
    """gelu(a) * b, approximate as torch names it."""

    import flag_gems

    return flag_gems.gelu_and_mul(a, b, approximate)


def cross_entropy(x: torch.Tensor, target: torch.Tensor, reduction: str, ignore_index: int) -> Any:
    """Loss of logits [rows, classes]."""

    import flag_gems

    return flag_gems.cross_entropy_loss(x, target, reduction=reduction, ignore_index=ignore_index)


def top_k(x: torch.Tensor, k: int) -> Any:
    """(values, indices) of the largest, in order."""

    import flag_gems

    return flag_gems.topk(x, k)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool, scale: float,
              grouped: bool) -> Any:  # fmt: skip
    """SDPA of [batch, heads, time, dimension]."""

    import flag_gems

    return flag_gems.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
    )
