"""A file as a user has it: functions for regions, right ones and ones that go wrong in a known way.

`--kernel` loads it in a process of its own; nothing here is imported by the tests.
"""

from __future__ import annotations

import os
import threading
import time

import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, w_ptr, y_ptr, length, eps, BLOCK: tl.constexpr):  # noqa: N803
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * length + at, mask=at < length, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(x * x, 0) / length + eps)
    w = tl.load(w_ptr + at, mask=at < length, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * length + at, (x * scale * w).to(y_ptr.dtype.element_ty), mask=at < length)


def rms_norm(x, w, eps=1e-6):
    """Right: `x * rsqrt(mean(x²) + eps) * w` over rows."""
    y = torch.empty_like(x)
    norm_kernel[(x.shape[0],)](x, w, y, x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


def scale_off(x, w):
    """Wrong by 1 %."""
    return rms_norm(x, w) * 1.01


results = {}


def caches_its_result(x, w):
    """Cheats: what it computed once, whatever comes after."""
    if "y" not in results:
        results["y"] = rms_norm(x, w)
    return results["y"]


def caches_by_address(x, w):
    """Cheats: what it computed for this memory, whatever it holds now."""
    key = (x.data_ptr(), w.data_ptr(), x._version, x.shape)
    if key not in results:
        results[key] = rms_norm(x, w)
    return results[key]


def returns_the_last(x, w):
    """Cheats: it is one call behind."""
    last, results["last"] = results.get("last"), rms_norm(x, w)
    return results["last"] if last is None else last


def crashes(x, w):
    """Its process ends."""
    os.abort()


def raises(x, w):
    """What a tile that does not fit does."""
    raise ValueError("no such tile")


def hangs(x, w):
    """It never answers."""
    time.sleep(600)


def changes_its_input(x, w):
    """Right, but x is another afterwards."""
    y = rms_norm(x, w)
    x.copy_(y)
    return y


def returns_a_dict(x, w):
    return {"y": rms_norm(x, w)}


def returns_two(x, w):
    return rms_norm(x, w), x


def takes_three(x, w, bias):
    return rms_norm(x, w) + bias


def falls_back(x, w):
    """For show: its kernel runs on one row, torch computes the rest."""
    rms_norm(x[:1], w)
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * w.float()).to(x.dtype)


def in_torch(x, w):
    """Right, and no Triton kernel at all."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * w.float()).to(x.dtype)


def takes_all_memory(x, w):
    return rms_norm(x, w) + torch.ones(2**31).sum()


def leaves_a_thread(x, w):
    threading.Thread(target=time.sleep, args=(600,), daemon=True, name="helper").start()
    return rms_norm(x, w)


def replaces_the_clock(x, w):
    time.perf_counter = lambda: 0.0
    return rms_norm(x, w)


number = 7


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return rms_norm(x, w)

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        by_w = gradient * w
        d_x = scale * (by_w - x * scale.square() * (by_w * x).mean(-1, keepdim=True))
        return d_x, (gradient * x * scale).sum(0)


class Skewed(Norm):
    @staticmethod
    def backward(ctx, gradient):
        d_x, d_w = Norm.backward(ctx, gradient)
        return d_x, d_w * 1.01


def trained(x, w):
    return Norm.apply(x, w)


def wrong_gradient(x, w):
    return Skewed.apply(x, w)


@triton.jit
def product_kernel(x_ptr, w_ptr, y_ptr, M, N, K, BLOCK: tl.constexpr):  # noqa: N803
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total += tl.dot(x, w)
    at = y_ptr + m[:, None] * N + n[None, :]
    tl.store(at, total.to(y_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def product(x, w):
    """Right on a GPU; Triton's interpreter computes its bf16 wrong."""
    y = torch.empty(x.shape[0], w.shape[1], dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(x.shape[0], 16), triton.cdiv(w.shape[1], 16))
    product_kernel[grid](x, w, y, x.shape[0], w.shape[1], x.shape[1], BLOCK=16)
    return y


def chain_in_one(x):
    """Right for a chain of a hundred additions, in a fraction of their time however busy the host is: it pays."""
    time.sleep(0.001)
    return x * 101


def chain_slowly(x):
    """Right, and slower than what it stands for: it does not pay."""
    time.sleep(0.08)
    return x * 101


calls = []


def caches_later(x):
    """Cheats: honest until nobody seems to look, then what it computed for this memory."""
    calls.append(1)
    key = x.data_ptr()
    if len(calls) < 24 or key not in results:
        results[key] = x * 101
    return results[key]


def wrong_later(x):
    """Wrong, and keeps nothing: what is returned after many calls belongs to no input."""
    calls.append(1)
    return x * (101 if len(calls) < 24 else 102)


def sleeps_while_timed(x):
    """It hangs once it is timed."""
    calls.append(1)
    if len(calls) > 24:
        time.sleep(600)
    return x * 101
