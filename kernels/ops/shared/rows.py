"""What kernels over rows share: limits, dtypes, and how a tensor becomes rows."""

from __future__ import annotations

import math

import torch
import triton.language as tl
from triton import knobs

HELD = 32768
"""Longest row that a program holds in f32: 32 elements a thread of 1024."""
HELD_PACKED = 65536
"""Longest row of 16-bit elements that a program holds as they came: 32 registers a thread of 1024."""
DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


def held_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype a kernel stores: its own, but f32 in the interpreter, which cuts f32 to bf16 instead of rounding."""
    return torch.float32 if knobs.runtime.interpret and dtype != torch.float32 else dtype


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """x [..., N] as [rows, N] with contiguous rows: a view where its strides allow, else a copy."""
    flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return flat if flat.stride(1) == 1 or flat.shape[1] == 1 else flat.contiguous()


def paired(x: torch.Tensor) -> bool:
    """Every row of 16-bit elements is whole 32-bit words."""
    return all(n % 2 == 0 for n in (x.shape[1], x.stride(0), x.storage_offset())) and x.stride(1) == 1
