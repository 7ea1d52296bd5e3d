"""What attention takes: which tensors and settings it refuses, and how the others are laid out for its kernel."""

from __future__ import annotations

import math

import torch

from kernels.gemm import DTYPES, PRECISIONS, tma_takes

WIDEST = 256
"""Largest head dimension: with more, a block of results does not fit in registers."""


def bias_kind(bias: torch.Tensor | None) -> str:
    """How a bias acts: "add", "mask", or "" where there is none."""
    return "" if bias is None else "mask" if bias.dtype in (torch.bool, torch.uint8) else "add"


def readable(x: torch.Tensor) -> torch.Tensor:
    """x with contiguous rows of its own, less than 2^24 elements apart: offsets within a block are 32 bits."""
    return x if x.stride(-1) == 1 and 0 not in x.stride() and x.stride(2) < 1 << 24 else x.contiguous()


def narrow(bias: torch.Tensor) -> torch.Tensor:
    """A bias with four axes, of size 1 where it is the same all along; a bool's as bytes."""
    full = bias.view(torch.uint8) if bias.dtype == torch.bool else bias
    full = full[(None,) * (4 - full.dim())]
    for axis in range(4):
        if full.stride(axis) == 0:
            full = full.narrow(axis, 0, 1)
    return full


def tma_takes_heads(x: torch.Tensor) -> bool:
    """Whether a descriptor of [batch, heads, rows, D] can be made of it: 16 bytes divide base and strides."""
    return all(s > 0 and s % 8 == 0 for s in x.stride()[:-1]) and x.stride(-1) == 1 and tma_takes(x[0, 0])


def refuse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None, window: int | None,
    cap: float | None, precision: str,
) -> None:  # fmt: skip
    """Raises TypeError or ValueError for what flash_attention does not take."""
    if q.dtype not in DTYPES or q.dtype != k.dtype or q.dtype != v.dtype:
        raise TypeError(f"flash_attention takes f32, f16 or bf16 alike, not {q.dtype}, {k.dtype} and {v.dtype}")
    shapes = f"{[*q.shape]}, {[*k.shape]} and {[*v.shape]}"
    if q.dim() != 4 or k.shape != v.shape or k.dim() != 4 or (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        raise ValueError(f"flash_attention takes [B, H, S, D] and twice [B, KV, T, D], not {shapes}")
    if not 1 <= q.shape[3] <= WIDEST:
        raise ValueError(f"flash_attention takes head dimensions from 1 to {WIDEST}, not {q.shape[3]}")
    if (k.shape[1] == 0) != (q.shape[1] == 0) or (k.shape[1] and q.shape[1] % k.shape[1]):
        raise ValueError(f"{q.shape[1]} query heads cannot share {k.shape[1]} key heads evenly")
    if bias is not None:
        if bias.dtype not in (q.dtype, torch.float32, torch.bool):
            raise TypeError(f"the bias is {q.dtype}, torch.float32 or torch.bool, not {bias.dtype}")
        full = (*q.shape[:3], k.shape[2])
        near = tuple(bias.shape)[::-1]
        if bias.dim() > 4 or any(n not in (1, m) for n, m in zip(near, full[::-1], strict=False)):
            raise ValueError(f"a bias of {[*bias.shape]} does not broadcast to {[*full]}")
    if window is not None and window < 0:
        raise ValueError(f"the window is 0 keys or more, not {window}")
    if cap is not None and not 0 < cap < math.inf:
        raise ValueError(f"the cap is above 0, not {cap}")
    if precision not in PRECISIONS:
        raise ValueError(f"precision is one of {', '.join(PRECISIONS)}, not {precision!r}")
    if len({x.device for x in (q, k, v, bias) if x is not None}) > 1:
        raise ValueError("flash_attention takes tensors of one device")
