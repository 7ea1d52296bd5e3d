"""A registry for tests: matrix products in Triton as users write them, for the interpreter."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from profiler.region.language.program import program
from profiler.region.model import Region
from tests.kernels.measure.candidate.candidates import Candidate


@triton.jit
def product_kernel(x_ptr, w_ptr, y_ptr, M, N, K, SCALE: tl.constexpr, NARROW: tl.constexpr):  # noqa: N803
    row, column, inner = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, 64)
    x = tl.load(x_ptr + row[:, None] * K + inner[None, :], (row[:, None] < M) & (inner[None, :] < K), 0.0)
    w = tl.load(w_ptr + inner[:, None] * N + column[None, :], (inner[:, None] < K) & (column[None, :] < N), 0.0)
    if NARROW:
        x, w = x.to(tl.bfloat16), w.to(tl.bfloat16)
    y = tl.dot(x, w) * SCALE
    tl.store(y_ptr + row[:, None] * N + column[None, :], y, (row[:, None] < M) & (column[None, :] < N))


def run(scale: float, narrow: bool) -> Callable[..., tuple[torch.Tensor]]:
    def call(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        y = torch.empty(x.shape[0], w.shape[1], dtype=x.dtype)
        product_kernel[(1,)](x, w, y, x.shape[0], w.shape[1], x.shape[1], scale, narrow)
        return (y,)

    return call


CALLS = {"triton:right": run(1.0, False), "triton:scaled": run(1.01, False), "triton:narrow": run(1.0, True)}


def candidates(graph: object, host: object) -> tuple[Candidate, ...]:
    return (Candidate("eager", "eager"), *(Candidate(name, "triton") for name in CALLS))


def build(name: str, region: Region, binding: dict[str, int], device: str) -> Callable[..., object]:
    return program(region, binding, device).module if name == "eager" else CALLS[name]
