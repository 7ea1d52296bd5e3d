# ruff: noqa: N803 (names as kernels have them)
# mypy: disable-error-code="untyped-decorator"
"""Kernels as a user might hand them in, one for each verdict: `own_kernel.py` has them judged."""

from __future__ import annotations

import os
import time

import torch
import triton
import triton.language as tl


@triton.jit
def scan_kernel(  # type: ignore[no-untyped-def]
    x_ptr, gate_ptr, y_ptr, rows, length, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Whole rows of a block at once."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    at, mask = row * length + column, (row < rows) & (column < length)
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, (tl.cumsum(x, 1) * gate).to(y_ptr.dtype.element_ty), mask=mask)


def gated_scan(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Running sums of rows times a gate, in one pass: torch.compile leaves the scan by itself."""
    y = torch.empty_like(x)
    rows, length = x.shape
    block = triton.next_power_of_2(length)
    scan_kernel[(triton.cdiv(rows, 4),)](x, gate, y, rows, length, ROWS=4, BLOCK=block, num_warps=4)
    return y


@triton.jit
def norm_kernel(  # type: ignore[no-untyped-def]
    x_ptr, w_ptr, y_ptr, length, eps, FACTOR: tl.constexpr, BLOCK: tl.constexpr
):
    """A row a program."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * length + at, mask=at < length, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + at, mask=at < length, other=0.0).to(tl.float32)
    y = x * (FACTOR / tl.sqrt(tl.sum(x * x, 0) / length + eps)) * w
    tl.store(y_ptr + row * length + at, y.to(y_ptr.dtype.element_ty), mask=at < length)


def scaled(x: torch.Tensor, w: torch.Tensor, factor: float) -> torch.Tensor:
    """RMSNorm times a factor."""
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    norm_kernel[(x.shape[0],)](x, w, y, x.shape[1], 1e-6, FACTOR=factor, BLOCK=block, num_warps=8)
    return y


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Right, and as fast as what torch.compile makes."""
    return scaled(x, w, 1.0)


def too_large(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """1 % off."""
    return scaled(x, w, 1.01)


CACHE: dict[tuple[int, int], torch.Tensor] = {}


def caching(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """What was computed for the memory's contents before."""
    key = (x.data_ptr(), w.data_ptr())
    if key not in CACHE:
        CACHE[key] = scaled(x, w, 1.0)
    return CACHE[key]


def crashing(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Ends its process."""
    os.abort()


def hanging(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Never returns."""
    while True:
        time.sleep(1)
