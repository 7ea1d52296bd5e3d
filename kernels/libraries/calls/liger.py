"""Liger's functions, as a region calls them: nothing is written over that is read again."""

from __future__ import annotations

from typing import Any

import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> Any:
    """RMSNorm over the last dimension."""

    from liger_kernel.transformers.functional import liger_rms_norm

    return liger_rms_norm(x, weight, eps, in_place=False)


def fused_add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> Any:
    """(normalised, sum)."""
    from liger_kernel.transformers.functional import liger_fused_add_rms_norm

    return liger_fused_add_rms_norm(x, residual, weight, eps, in_place=False)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> Any:
    """LayerNorm over the last dimension."""

    from liger_kernel.transformers.functional import liger_layer_norm

    return liger_layer_norm(x, weight, bias, eps)


def group_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int, eps: float) -> Any:
    """GroupNorm of [batch, channels, ...]."""

    from liger_kernel.transformers.functional import liger_group_norm

    return liger_group_norm(x, weight, bias, x.shape[1], groups, eps)


def softmax(x: torch.Tensor) -> Any:
    """softmax over the last dimension."""

    from liger_kernel.transformers.functional import liger_softmax

    return liger_softmax(x)


def swiglu(a: torch.Tensor, b: torch.Tensor, kept: tuple[bool, bool]) -> Any:
    """silu(a) * b. kept: which of them must outlive a backward that writes both gradients over them.

    Copied then, which counts against it. Liger itself copies what is not contiguous.
    """
    from liger_kernel.transformers.functional import liger_swiglu

    return liger_swiglu(*_spared(a, b, kept))


def geglu(a: torch.Tensor, b: torch.Tensor, kept: tuple[bool, bool]) -> Any:
    """gelu(a) * b in the tanh form. kept: as for swiglu."""
    from liger_kernel.transformers.functional import liger_geglu

    return liger_geglu(*_spared(a, b, kept))


def _spared(a: torch.Tensor, b: torch.Tensor, kept: tuple[bool, bool]) -> list[torch.Tensor]:
    trained = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    return [x.clone() if trained and keep and x.is_contiguous() else x for x, keep in zip((a, b), kept, strict=True)]


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
    """x of [batch, heads, time, dimension]. Its kernel turns queries and keys at once: here x and its first head."""
    from liger_kernel.transformers.functional import liger_rope

    flat_cos, flat_sin = (t.reshape(-1, t.shape[-2], t.shape[-1]) for t in (cos, sin))
    turned = liger_rope(_apart(x), _apart(x.detach()[:, :1]), flat_cos, flat_sin)[0]
    if turned.requires_grad:
        turned.register_hook(_apart)  # its backward turns the gradient that comes in, in place as well
    return turned


def _apart(x: torch.Tensor) -> torch.Tensor:
    """A copy where Liger would make none and turn the operand in place: heads next to each other in memory."""
    return x.clone() if x.transpose(1, 2).is_contiguous() else x


def cross_entropy(x: torch.Tensor, target: torch.Tensor, reduction: str, ignore_index: int, kept: bool) -> Any:
    """It writes the gradient over the logits. kept: they must outlive that, so that it is given a copy."""
    from liger_kernel.transformers.functional import liger_cross_entropy

    logits = x.clone() if kept and x.requires_grad else x
    return liger_cross_entropy(logits, target, reduction=reduction, ignore_index=ignore_index)


def narrow_cross_entropy(x: torch.Tensor, target: torch.Tensor, reduction: str, ignore_index: int, kept: bool) -> Any:
    """The loss in f32, of logits that are not widened: it is rounded to their dtype on the way."""
    return cross_entropy(x, target, reduction, ignore_index, kept).float()


def linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, reduction: str, ignore_index: int
) -> Any:
    """Loss of x [rows, width] and a weight [classes, width]: the logits are never whole."""

    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    return liger_fused_linear_cross_entropy(x, weight, target, reduction=reduction, ignore_index=ignore_index)
