"""Points beyond a kernel's own tuning space: each computes the same, whatever its tile, warps and stages."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.candidates import build
from kernels.measure.landscape.grid import Cell, cells, tile_of
from kernels.measure.landscape.tuned_kernels import TunedKernel, tuned_kernels
from kernels.tuning import Limits
from profiler.region.language.text import parse

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

REGIONS = {
    "softmax": ("x: f32[6, 70]\nreturn F.softmax(x, dim=-1)", "triton:softmax"),
    "long softmax": ("x: f16[2, 16400]\nreturn F.softmax(x, dim=-1)", "triton:softmax"),
    "rms_norm": ("x: f32[3, 1024]\nw: f32[1024]\nreturn F.rms_norm(x, (1024,), w, 1e-6)", "triton:rms_norm"),
    "odd rms_norm": ("x: f16[3, 1030]\nw: f16[1030]\nreturn F.rms_norm(x, (1030,), w, 1e-6)", "triton:rms_norm"),
    "short rows": ("x: f32[9, 48]\nw: f32[48]\nreturn F.rms_norm(x, (48,), w, 1e-6)", "triton:rms_norm"),
    "matmul": ("x: f16[40, 72]\nw: f16[72, 48]\nb: f16[48]\nreturn F.relu(x @ w + b)", "triton:matmul_epilogue"),
    "gate": ("x: f32[3, 130]\ng: f32[3, 130]\nreturn F.silu(x) * g", "triton:gated_activation"),
    "attention": (
        "q: f16[1, 1, 40, 32]\nk: f16[1, 1, 70, 32]\nv: f16[1, 1, 70, 32]\n"
        "return F.scaled_dot_product_attention(q, k, v)",
        "triton:flash_attention",
    ),
    "generated": ("x: f32[8, 70]\nb: f32[70]\nreturn F.gelu(x + b)", "triton:generated"),
    "generated rows": ("x: f32[8, 70]\nreturn F.softmax(x * 2, dim=-1) + 1", "triton:generated"),
}  # fmt: skip
FEW = 14


def opened(text: str, name: str) -> tuple[Any, list[torch.Tensor], tuple[torch.Tensor, ...], TunedKernel]:
    region = parse(text)
    torch.manual_seed(1)
    shapes = [(i.shape, getattr(torch, {"f32": "float32", "f16": "float16"}[i.dtype])) for i in region.inputs]
    inputs = [torch.randn(tuple(int(n) for n in shape)).to(dtype) * 0.3 for shape, dtype in shapes]
    call = build(name, region, {}, "cpu")
    eager = build("eager", region, {}, "cpu")
    (kernel,) = tuned_kernels(call, inputs)[:1]
    return call, inputs, tuple(o.double() for o in eager(*inputs)), kernel


def few(listed: list[Cell]) -> list[Cell]:
    """Some of every tile that there is, with different warps and stages."""
    by_tile: dict[tuple[str, str], list[Cell]] = {}
    for cell in listed:
        by_tile.setdefault((cell.variant.kernel.__name__, tile_of(cell.variant)), []).append(cell)
    picked = [same[n % len(same)] for n, same in enumerate(by_tile.values())]
    step = max(1, len(picked) // FEW)
    return picked[::step]


@pytest.mark.parametrize("name", REGIONS)
def test_every_tile_computes_the_same(name: str) -> None:
    call, inputs, expected, kernel = opened(*REGIONS[name])
    listed = cells(kernel.variants, kernel.chosen, kernel.arguments, Limits(), kernel.more, most=2000)
    assert len(listed) > len(kernel.variants), "nothing beyond its own space"
    for cell in few(listed):
        kernel.run(cell.variant)
        with kernel.force(cell.variant):
            outputs = call(*inputs)
        for got, right in zip(outputs, expected, strict=True):
            worst = (got.double() - right).abs().max() / right.abs().max()
            assert worst < 5e-3, f"{cell.variant}: {worst:.3g}"


def test_a_forced_variant_is_what_is_launched() -> None:
    call, inputs, _, kernel = opened(*REGIONS["softmax"])
    other = next(c.variant for c in cells(kernel.variants, kernel.chosen, kernel.arguments, Limits()) if not c.own)
    with kernel.force(other):
        (seen,) = tuned_kernels(call, inputs)
        assert seen.chosen == other
    (after,) = tuned_kernels(call, inputs)
    assert after.chosen == kernel.chosen


def test_a_forced_generated_kernel_has_its_own_configurations_back() -> None:
    call, inputs, _, kernel = opened(*REGIONS["generated"])
    smallest = min(kernel.more, key=lambda v: v["BLOCK"])
    assert smallest["BLOCK"] == 4
    with kernel.force(smallest):
        (seen,) = tuned_kernels(call, inputs)
    assert seen.chosen != smallest, "what was forced is none of its own"
    (after,) = tuned_kernels(call, inputs)
    assert after.variants == kernel.variants
    assert after.chosen == kernel.chosen
