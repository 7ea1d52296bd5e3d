"""Small kernels whose machine code can be counted by hand. They stand in a file: Triton reads their source from it."""

# ruff: noqa: N803 - M, N, B: the names kernels are written in

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add(x, y, z, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(z + i, a + b)


@triton.jit
def columns(x, y, M: tl.constexpr, N: tl.constexpr):
    """Divides by the sum over a column: the whole tile stays in registers meanwhile."""
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    a = tl.load(x + i)
    s = tl.sum(a, 0)
    tl.store(y + i, a / s[None, :])


@triton.jit
def sines(x, y, B: tl.constexpr):
    """The sine of a large number is reduced with a small array in local memory, which is no spill."""
    i = tl.arange(0, B)
    tl.store(y + i, tl.sin(tl.load(x + i)))


@triton.jit
def row_sum(x, y, n, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + r * n + i, mask=i < n, other=0.0)
    tl.store(y + r, tl.sum(v))


@triton.jit
def product(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.bfloat16))


@triton.jit
def exact_product(a, b, c, B: tl.constexpr):
    """float32 without TF32: there is no such matrix instruction."""
    i = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    x = tl.load(a + i)
    y = tl.load(b + i)
    tl.store(c + i, tl.dot(x, y, input_precision="ieee"))


@triton.jit
def tile_copy(x, y, M, N, B: tl.constexpr):
    """A tile through a tensor descriptor: TMA where the GPU has it."""
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, B])
    tile = source.load([tl.program_id(0) * B, tl.program_id(1) * B])
    i = tl.arange(0, B)[:, None] * N + tl.arange(0, B)[None, :]
    tl.store(y + i, tile * 2)


@triton.jit
def histogram(x, y, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(y + tl.load(x + i), 1)


@triton.jit
def wrong(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), 1.0)


@triton.jit
def specialized(a, b, c, N, K, B: tl.constexpr):
    """Some warps load, others multiply."""
    first = tl.make_tensor_descriptor(a, [N, K], [K, 1], [B, B])
    second = tl.make_tensor_descriptor(b, [N, K], [K, 1], [B, B])
    row, column = tl.program_id(0) * B, tl.program_id(1) * B
    acc = tl.zeros((B, B), tl.float32)
    for k in tl.range(0, K, B, warp_specialize=True):
        acc = tl.dot(first.load([row, k]), second.load([column, k]).T, acc)
    i = (row + tl.arange(0, B))[:, None] * N + (column + tl.arange(0, B))[None, :]
    tl.store(c + i, acc.to(tl.bfloat16))
