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
def convolution_kernel(  # type: ignore[no-untyped-def]
    x_ptr, w_ptr, y_ptr, channels, length, TAPS: tl.constexpr, BLOCK: tl.constexpr
):
    """A block of one channel's steps, each of them a sum of the TAPS last ones; what a tap reads again lies in L1."""
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for tap in tl.static_range(TAPS):
        step = at + tap - (TAPS - 1)
        x = tl.load(x_ptr + row * length + step, mask=(step >= 0) & (at < length), other=0.0)
        total += x.to(tl.float32) * tl.load(w_ptr + row % channels * TAPS + tap).to(tl.float32)
    # What the region rounds between its calls is rounded here.
    total = total.to(y_ptr.dtype.element_ty).to(tl.float32)
    y = (total * tl.sigmoid(total)).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + row * length + at, y, mask=at < length)


def causal_convolution(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Each channel's filter over time and its SiLU in one pass: torch.compile calls a convolution, then a kernel."""
    y = torch.empty_like(x)
    batch, channels, length = x.shape
    grid = (batch * channels, triton.cdiv(length, 1024))
    convolution_kernel[grid](x, w, y, channels, length, TAPS=w.shape[-1], BLOCK=1024, num_warps=4)
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
