"""scaled_dot_product_attention as one library call, as it is on a GPU.

Which backend it goes to is decided in C++ that asks the device; without one it would be taken apart into products and a
softmax. Flash or efficient attention stand for all backends: predictions say "sdpa".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._C import DispatchKey

ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
KEYS = (DispatchKey.AutogradCUDA, DispatchKey.CUDA, DispatchKey.CompositeImplicitAutograd)
FLASH_HEAD = 256
"""Widest head that flash attention takes (torch 2.13, sdp_utils.cpp)."""


def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Flash attention where a GPU could use it, else the memory-efficient one."""
    aten = torch.ops.aten
    half = query.dtype in (torch.float16, torch.bfloat16)
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        if not half or attn_mask is not None:
            key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    if attn_mask is None and half and query.shape[-1] <= FLASH_HEAD:
        return aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*query.shape[:-1], key.shape[-2])
    needed = any(t.requires_grad for t in (query, key, value))
    results = aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, needed, dropout_p, is_causal, scale=scale
    )
    return results[0]


@contextlib.contextmanager
def whole_attention() -> Iterator[None]:
    """aten.scaled_dot_product_attention dispatches to `attention` meanwhile."""
    before = {k: ATTENTION.py_kernels.get(k) for k in KEYS}
    ATTENTION._dispatch_cache.clear()
    for key in KEYS:
        ATTENTION.py_kernels[key] = attention
    try:
        yield
    finally:
        for key, kernel in before.items():
            if kernel is None:
                ATTENTION.py_kernels.pop(key, None)
            else:
                ATTENTION.py_kernels[key] = kernel
        ATTENTION._dispatch_cache.clear()
