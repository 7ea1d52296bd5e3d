"""What a region is called where only what is done with the data tells: layouts, halves, types, backward views."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from profiler.region.mining.mine import Mining, mine
from profiler.trace.read.reader import read_trace
from tests.profiler.region.recording import record

randn = torch.randn


def mined(path: Path, function: Callable[..., object], *args: torch.Tensor) -> Mining:
    return mine(read_trace(record(path, function, *args)))


def geglu(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return F.gelu(a) * b


def masked_gelu(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.gelu(x) * mask


def layer_scale(x: torch.Tensor, gamma: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return x * gamma + residual


def repeat_kv(k: torch.Tensor) -> torch.Tensor:
    return k[:, :, None].expand(2, 4, 3, 16, 32).reshape(2, 12, 16, 32)


def to_last(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).contiguous()


def rms_of_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x / (x.norm(2, dim=-1, keepdim=True) * 64**-0.5 + 1e-6) * w


def cosine(x: torch.Tensor) -> torch.Tensor:
    return F.normalize(x, dim=-1)


def layer_norm_once(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    var, mean = torch.var_mean(x, -1, unbiased=False, keepdim=True)
    return (x - mean) * torch.rsqrt(var + 1e-5) * w + b


def by_row(x: torch.Tensor) -> torch.Tensor:
    return (x / (x.abs().amax(-1, keepdim=True) / 448.0)).clamp(-448, 448).to(torch.float8_e4m3fn)


def gelu_erf(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.erf(x * 0.5**0.5))


def mish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tanh(F.softplus(x))


def rope_halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def segment_mean(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(10, 16).index_add_(0, index, x)
    count = torch.zeros(10).index_add_(0, index, torch.ones(64))
    return total / count.clamp(min=1)[:, None]


def dequantise_int8(w: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return x @ ((w.to(torch.float32) - zero) * scale).t()


def cast_and_int8(w: torch.Tensor, scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    x = x.to(torch.bfloat16)
    return F.linear(x, w.to(torch.bfloat16) * scale)


def cast_and_linear(w: torch.Tensor, scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w.to(torch.bfloat16) * scale)


HEADS = (2, 4, 16, 32)
NAMED: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...], str]] = {
    "halves of one tensor": (geglu, (randn(2, 16, 64),), "GeGLU"),
    "a mask is no half": (masked_gelu, (randn(2, 16, 32), randn(2, 16, 32)), "GELU, mul"),
    "layer scale": (layer_scale, (randn(2, 8, 8, 32), randn(32), randn(2, 8, 8, 32)), "layer scale, residual add"),
    "a full factor is no scale": (layer_scale, tuple(randn(2, 8, 32) for _ in range(3)), "mul, residual add"),
    "repeat_kv": (repeat_kv, (randn(*HEADS),), "layout copy (repeated heads)"),
    "to channels last": (to_last, (randn(2, 8, 6, 6),), "layout copy (to channels last)"),
    "heads": (heads, (randn(2, 16, 4, 32),), "layout copy (heads)"),
    "norm of a norm": (rms_of_norm, (randn(2, 16, 64), randn(64)), "RMSNorm by hand"),
    "normalise": (cosine, (randn(2, 64),), "L2 normalise by hand"),
    "var_mean": (layer_norm_once, (randn(2, 16, 64), randn(64), randn(64)), "LayerNorm by hand"),
    "fp8 by row": (by_row, (randn(16, 64),), "quantise by row"),
    "erf": (gelu_erf, (randn(2, 64),), "GELU by hand"),
    "mish": (mish, (randn(2, 64),), "Mish by hand"),
    "rotated halves": (rope_halves, (randn(*HEADS), randn(16, 16), randn(16, 16)), "RoPE"),
    "segment mean": (segment_mean, (randn(64, 16), torch.randint(0, 10, (64,))), "segment mean by hand"),
    "dequantise with zero point": (
        dequantise_int8,
        (torch.randint(-8, 8, (128, 64), dtype=torch.int8), randn(128, 1), randn(128, 1), randn(16, 64)),
        "dequantise and GEMM",
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_one_region_of_that_name(name: str, tmp_path: Path) -> None:
    function, args, title = NAMED[name]
    (region,) = mined(tmp_path / "t.json", function, *args).regions
    assert region.title == title


def test_a_cast_of_a_floating_weight_is_no_dequantisation(tmp_path: Path) -> None:
    mining = mined(
        tmp_path / "t.json", cast_and_linear, randn(128, 64), randn(128, 1).bfloat16(), randn(16, 64).bfloat16()
    )
    assert [r.title for r in mining.regions if "GEMM" in r.title] == ["GEMM"]


def test_a_cast_before_does_not_hide_a_dequantisation(tmp_path: Path) -> None:
    w = torch.randint(-8, 8, (128, 64), dtype=torch.int8)
    mining = mined(tmp_path / "t.json", cast_and_int8, w, randn(128, 1).bfloat16(), randn(16, 64))
    assert {r.title for r in mining.regions} == {"cast", "dequantise and GEMM"}


def test_slices_of_a_rotation_are_its_backward_too(tmp_path: Path) -> None:
    """A slice has no kernel forward, and two backward: zeros and a copy."""
    x, cos, sin = randn(*HEADS).requires_grad_(), randn(16, 32), randn(16, 32)

    def train() -> None:
        rotated = torch.cat((-x[..., 16:], x[..., :16]), -1)
        (x * cos + rotated * sin).backward(torch.ones(*HEADS))

    mining = mined(tmp_path / "t.json", train)
    assert not [r.title for r in mining.regions if "slice" in r.title]
    rope = next(r for r in mining.regions if r.title == "RoPE")
    assert any("slice_backward" in n for n in rope.kernel_names)


def test_clipping_is_no_optimizer_step(tmp_path: Path) -> None:
    weights = [torch.nn.Parameter(randn(16, 16)) for _ in range(4)]
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9, foreach=True)
    for w in weights:
        w.grad = randn(16, 16)

    def step() -> None:
        torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=True)
        optimizer.step()

    titles = [r.title for r in mined(tmp_path / "t.json", step).regions]
    assert "gradient clipping (foreach)" in titles
    assert "optimizer step (foreach)" in titles
