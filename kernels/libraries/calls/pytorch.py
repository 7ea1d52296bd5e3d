"""torch's own functions that need more than a line: one backend of SDPA, groups as offsets, scales as rows."""

from __future__ import annotations

import functools
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F


def _sdpa(backend: str, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, grouped: bool) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, backend)):
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
        )


def sdpa_flash(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, grouped: bool) -> Any:
    """FlashAttention, and nothing else."""
    return _sdpa("FLASH_ATTENTION", q, k, v, mask, causal, scale, grouped)


def sdpa_cudnn(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, grouped: bool) -> Any:
    """cuDNN's attention, and nothing else."""
    return _sdpa("CUDNN_ATTENTION", q, k, v, mask, causal, scale, grouped)


def sdpa_efficient(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, grouped: bool) -> Any:
    """The memory-efficient kernel, and nothing else."""
    return _sdpa("EFFICIENT_ATTENTION", q, k, v, mask, causal, scale, grouped)


def grouped_mm(x: torch.Tensor, weight: torch.Tensor, rows: tuple[int, ...]) -> torch.Tensor:
    """cat of x[start:end] @ weight[i], with rows[i] of x each: [M, K], [G, K, N] -> [M, N]."""
    result: torch.Tensor = F.grouped_mm(x, weight, offs=_ends(rows, str(x.device)))
    return result


@functools.lru_cache(maxsize=64)
def _ends(rows: tuple[int, ...], device: str) -> torch.Tensor:
    return torch.tensor(list(accumulate(rows)), dtype=torch.int32, device=device)


def scaled_mm(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    """(a · scale_a) @ (b · scale_b): fp8 [M, K] and [K, N], scales of one number or [M] and [N]; bf16 [M, N]."""
    from torch.nn.functional import ScalingType

    one = scale_a.numel() == 1 and scale_b.numel() == 1
    if one:
        kind, scales = ScalingType.TensorWise, (scale_a.reshape(()), scale_b.reshape(()))
    else:
        wide_a, wide_b = scale_a.reshape(-1, 1), scale_b.reshape(1, -1)
        kind = ScalingType.RowWise
        scales = (wide_a.expand(a.shape[0], 1).contiguous(), wide_b.expand(1, b.shape[1]).contiguous())
    result: torch.Tensor = F.scaled_mm(a, b, scales[0], kind, scales[1], kind, output_dtype=torch.bfloat16)
    return result


def linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, reduction: str, ignore_index: int
) -> torch.Tensor:
    """In chunks: the logits are never whole."""
    from torch.nn import LinearCrossEntropyOptions

    loss: torch.Tensor = F.linear_cross_entropy(
        x, weight, target, reduction=reduction, ignore_index=ignore_index, options=LinearCrossEntropyOptions()
    )
    return loss
