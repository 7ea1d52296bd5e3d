"""Where torch looks at the device before it decides what to call: on tensors without memory, what a GPU would run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

aten = torch.ops.aten
CUDNN_FROM = 9
"""Compute capability from which torch asks cuDNN for attention before its own kernels."""
HEAD = 256
"""Most elements of a head that the fused kernels of attention take."""


Chosen = Mapping[object, Callable[..., torch.Tensor]]
"""Composite operations with what a GPU runs for them."""


def chosen_on(capability: int) -> Chosen:
    """On an NVIDIA GPU of this major compute capability."""

    def attention(*arguments: Any, **named: Any) -> torch.Tensor:
        return fused_attention(*arguments, by_cudnn=capability >= CUDNN_FROM, **named)

    return {aten.scaled_dot_product_attention.default: attention, aten.dropout.default: dropout}


def padded(values: torch.Tensor, pad: Sequence[int], value: float = 0.0) -> torch.Tensor:
    """Without anything to add it is a copy, which is asked for with memory alone."""
    return NotImplemented if any(pad) else values.clone()


WITHIN: Chosen = {aten.constant_pad_nd.default: padded}
"""Operations of one kernel that on a GPU call another one."""


@contextmanager
def gpu_choices(chosen: Chosen) -> Iterator[None]:
    """Within it these operations on the meta device call that. Where autograd is off altogether, as in
    torch.inference_mode, torch does not ask here: the recorder does."""
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for operation, function in chosen.items():
        library.impl(operation, function, "AutogradMeta")  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        library._destroy()  # type: ignore[no-untyped-call]


def fused_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
    by_cudnn: bool = True,
) -> torch.Tensor:  # fmt: skip
    """torch's order of choice (aten/native/transformers/cuda/sdp_utils.cpp): cuDNN, flash, memory-efficient, matrix
    products.

    cuDNN takes 16-bit types, flash those without a mask, the memory-efficient kernel f32 and masks as well. A mask
    that learns leaves matrix products alone.
    """
    tensors = (query, key, value)
    fits = query.dim() == 4 and query.size(-1) <= HEAD and query.size(-1) == value.size(-1) and query.size(-1) % 8 == 0
    half = query.dtype in (torch.float16, torch.bfloat16)
    needs = any(t.requires_grad for t in tensors) and torch.is_grad_enabled()
    learned = attn_mask is not None and attn_mask.requires_grad and torch.is_grad_enabled()
    fits = fits and not learned
    if fits and half and by_cudnn:
        bias = _as_bias(attn_mask, query, key)
        return aten._scaled_dot_product_cudnn_attention(  # type: ignore[no-any-return]
            *tensors, bias, needs, dropout_p, is_causal, False, scale=scale
        )[0]
    if fits and half and attn_mask is None:
        result: torch.Tensor = aten._scaled_dot_product_flash_attention(
            *tensors, dropout_p, is_causal, return_debug_mask=False, scale=scale
        )[0]
        return result
    if fits and (half or query.dtype == torch.float32):
        key, value = (_repeated(t, query, enable_gqa) for t in (key, value))
        bias = _as_bias(attn_mask, query, key)
        return aten._scaled_dot_product_efficient_attention(  # type: ignore[no-any-return]
            query, key, value, bias, needs, dropout_p, is_causal, scale=scale
        )[0]
    key, value = (_repeated(t, query, enable_gqa) for t in (key, value))
    return aten._scaled_dot_product_attention_math(  # type: ignore[no-any-return]
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale
    )[0]


def _repeated(tensor: torch.Tensor, query: torch.Tensor, grouped: bool) -> torch.Tensor:
    """Keys or values once for each head that reads them."""
    if not grouped or tensor.size(-3) == query.size(-3):
        return tensor
    return tensor.repeat_interleave(query.size(-3) // tensor.size(-3), -3)


def _as_bias(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | None:
    """A mask as the kernel takes it: added, and for every head."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, float("-inf")).to(query.dtype)
    return mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))


def dropout(values: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """One fused kernel on a GPU."""
    if not train or p == 0.0:
        return values
    result: torch.Tensor = aten.native_dropout(values, p, train)[0]
    return result
