"""What people write by hand, recorded here and mined: the region's text must compute what the function computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.mining.mine import MinedRegion, mine
from profiler.trace.read.reader import read_trace
from tests.profiler.region.recording import record

X = (4, 16, 64)


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype)


def rms_llama(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    z = x.to(torch.float32)
    z = z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6)
    return w * z.to(x.dtype)


def rms_cast_inside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w


def rms_square(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w


def rms_gemma(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    z = x.float()
    z = z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (z * (1.0 + w.float())).type_as(x)


def layer_norm_pow(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5) * w + b


def layer_norm_var(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    mean, var = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
    return (x - mean) / torch.sqrt(var + 1e-5) * w + b


def softmax_by_hand(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def gelu_new(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def quick_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


def attention(q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias, -1) @ v


def attention_scaled_first(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    p = torch.softmax((q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1), dim=-1, dtype=torch.float32)
    return p.to(q.dtype) @ v


def attention_bmm(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.bmm(F.softmax(torch.bmm(q, k.transpose(1, 2)) * q.shape[-1] ** -0.5, dim=-1), v)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up


def gemm_tail(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.gelu(x @ w + b) * mask


def linear_relu(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.relu(F.linear(x, w, b))


def gemm_sigmoid_residual(x: torch.Tensor, w: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(F.linear(x, w)) + residual


def add_then_norm(x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x + residual, (x.shape[-1],), w, b)


def attention_causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-2, -1) * 32**-0.5
    future = ~torch.tril(torch.ones(16, 16, dtype=torch.bool))
    return F.softmax(scores.masked_fill(future, float("-inf")), -1) @ v


def attention_capped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.softmax(torch.tanh(q @ k.transpose(-2, -1) * 32**-0.5 / 50.0) * 50.0, -1) @ v


def attention_exp(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)) @ v


def rms_reciprocal(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * (1.0 / torch.sqrt(torch.mean(x**2, -1, keepdim=True) + 1e-6)) * w


def gelu_erf(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def log_likelihood(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return logits.float().log_softmax(-1).gather(-1, target).mean(-1)


def shifted_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.float()[:, :-1].contiguous().view(-1, 100), target)


def int8_weight(w: torch.Tensor, scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w.to(torch.bfloat16) * scale)


def l2_normalise(x: torch.Tensor) -> torch.Tensor:
    return F.normalize(x, dim=-1)


def total_norm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """What clip_grad_norm_ computes of the gradients."""
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in (a, b, c)]))


def largest_of_rows(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(x, float("inf"), dim=(0, -1), keepdim=True)


def norm_in_f32(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(x, 1, dim=-1, dtype=torch.float32)


BF16 = torch.bfloat16
HEADS = (2, 4, 16, 32)
CASES: dict[str, tuple[Callable[..., torch.Tensor], str, tuple[torch.Tensor, ...]]] = {
    "rms_llama": (rms_llama, "RMSNorm by hand", (randn(*X, dtype=torch.bfloat16), randn(64, dtype=torch.bfloat16))),
    "rms_cast_inside": (rms_cast_inside, "RMSNorm by hand", (randn(*X, dtype=torch.bfloat16), randn(64).bfloat16())),
    "rms_square": (rms_square, "RMSNorm by hand", (randn(*X), randn(64))),
    "rms_gemma": (rms_gemma, "RMSNorm by hand", (randn(*X, dtype=torch.bfloat16), randn(64).bfloat16())),
    "layer_norm_pow": (layer_norm_pow, "LayerNorm by hand", (randn(*X), randn(64), randn(64))),
    "layer_norm_var": (layer_norm_var, "LayerNorm by hand", (randn(*X), randn(64), randn(64))),
    "softmax": (softmax_by_hand, "softmax by hand", (randn(*X),)),
    "gelu_new": (gelu_new, "GELU (tanh) by hand", (randn(*X),)),
    "quick_gelu": (quick_gelu, "QuickGELU by hand", (randn(*X),)),
    "attention": (attention, "attention by hand", (randn(*HEADS), randn(*HEADS), randn(4, 16, 16), randn(*HEADS))),
    "attention_scaled_first": (
        attention_scaled_first, "attention by hand", tuple(randn(*HEADS, dtype=torch.bfloat16) for _ in range(3)),
    ),
    "attention_bmm": (attention_bmm, "attention by hand", tuple(randn(8, 16, 32) for _ in range(3))),
    "rope": (rope, "RoPE", (randn(*HEADS), randn(1, 1, 16, 32), randn(1, 1, 16, 32))),
    "swiglu": (swiglu, "SwiGLU", (randn(*X), randn(*X))),
    "gemm_tail": (
        gemm_tail, "GEMM with GELU and mask tail", (randn(*X), randn(64, 128), randn(128), randn(4, 16, 128)),
    ),
    "linear_relu": (linear_relu, "GEMM with ReLU tail", (randn(*X), randn(128, 64), randn(128))),
    "gemm_sigmoid_residual": (
        gemm_sigmoid_residual, "GEMM with sigmoid and residual tail", (randn(*X), randn(128, 64), randn(4, 16, 128)),
    ),
    "attention_causal": (attention_causal, "attention by hand", tuple(randn(*HEADS) for _ in range(3))),
    "attention_capped": (attention_capped, "attention by hand", tuple(randn(*HEADS) for _ in range(3))),
    "attention_exp": (attention_exp, "attention by hand", tuple(randn(*HEADS) for _ in range(3))),
    "rms_reciprocal": (rms_reciprocal, "RMSNorm by hand", (randn(*X), randn(64))),
    "gelu_erf": (gelu_erf, "GELU by hand", (randn(*X),)),
    "int8_weight": (
        int8_weight, "dequantise and GEMM",
        (torch.randint(-8, 8, (128, 64), dtype=torch.int8), randn(128, 1, dtype=BF16), randn(16, 64, dtype=BF16)),
    ),
    "log_likelihood": (
        log_likelihood, "cross entropy by hand", (randn(32, 100, dtype=BF16), torch.randint(0, 100, (32, 1))),
    ),
    "shifted_loss": (
        shifted_loss, "cross entropy", (randn(2, 16, 100, dtype=BF16), torch.randint(0, 100, (30,))),
    ),
    "l2_normalise": (l2_normalise, "L2 normalise by hand", (randn(*X),)),
    "total_norm": (total_norm, "norm, concatenation", (randn(*X), randn(64, 32), randn(64))),
    "largest_of_rows": (largest_of_rows, "norm", (randn(*X),)),
    "norm_in_f32": (norm_in_f32, "norm", (randn(*X, dtype=BF16),)),
    "add_then_norm": (add_then_norm, "residual add, LayerNorm", (randn(*X), randn(*X), randn(64), randn(64))),
}  # fmt: skip


def mined(path: Path, function: Callable[..., torch.Tensor], *args: torch.Tensor, shapes: bool = True) -> MinedRegion:
    found = mine(read_trace(record(path, function, *args, shapes=shapes))).regions
    assert len(found) == 1, [(r.title, r.operations) for r in found]
    return found[0]


@pytest.mark.parametrize("name", CASES)
def test_the_text_computes_what_was_run(name: str, tmp_path: Path) -> None:
    function, title, args = CASES[name]
    region = mined(tmp_path / "t.json", function, *args)
    assert (region.title, region.calls_per_step) == (title, 1.0)
    assert region.text is not None, region.missing
    built = program(parse(region.text))
    assert [tuple(i.shape) for i in built.inputs] == [tuple(a.shape) for a in args]
    (result,) = built.module(*args)
    expected = function(*args)
    tolerance = 2e-2 if expected.dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)


SIZES_DECIDE = {"gemm_sigmoid_residual", "gelu_erf", "int8_weight", "rms_reciprocal", "log_likelihood"}
"""Without sizes and types a residual is a bias, a cast is any cast, and a number is any tensor."""


@pytest.mark.parametrize("name", [n for n in CASES if n not in SIZES_DECIDE])
def test_without_shapes_the_same_region_is_named(name: str, tmp_path: Path) -> None:
    function, title, args = CASES[name]
    region = mined(tmp_path / "t.json", function, *args, shapes=False)
    assert region.title in (title, title.replace("residual add", "add"))
    assert region.text is None
    assert "record_shapes=True" in region.missing


def test_a_number_that_the_trace_lost_is_said_to_be_assumed(tmp_path: Path) -> None:
    region = mined(tmp_path / "t.json", rms_llama, *CASES["rms_llama"][2])
    assert any("eps" in note for note in region.assumed)


def test_training_joins_forward_and_backward(tmp_path: Path) -> None:
    x, w = randn(*X).requires_grad_(), randn(64).requires_grad_()
    upstream = randn(*X)

    def train() -> None:
        rms_llama(x, w).backward(upstream)

    regions = mine(read_trace(record(tmp_path / "t.json", train))).regions
    norm = regions[0]
    assert (norm.title, norm.backward) == ("RMSNorm by hand", True)
    assert norm.text is not None
    assert norm.text.count(".requires_grad") == 2
    assert norm.kernels_per_call > len(norm.operations)
    assert sum(r.time_us_per_step for r in regions[1:]) < 0.2 * norm.time_us_per_step  # accumulating the gradients


def test_sizes_that_vary_become_symbols(tmp_path: Path) -> None:
    w = randn(64)
    inputs = [randn(2, n, 64) for n in (16, 24, 40)]

    def run() -> None:
        for x in inputs:
            rms_square(x, w)

    (region,) = mine(read_trace(record(tmp_path / "t.json", run))).regions
    assert region.text is not None
    parsed = parse(region.text)
    assert sorted(b["N"] for b in parsed.bindings) == [16, 24, 40]
    assert [b.calls_per_step for b in region.workload.bindings] == [1.0, 1.0, 1.0]
    for binding in parsed.bindings:
        built = program(parsed, binding)
        x = next(i for i in inputs if i.shape[1] == binding["N"])
        torch.testing.assert_close(built.module(x, w)[0], rms_square(x, w))


def test_layouts_survive(tmp_path: Path) -> None:
    x = randn(2, 16, 4, 32).transpose(1, 2)
    region = mined(tmp_path / "t.json", swiglu, x, x.contiguous())
    assert region.text is not None
    assert "gate: f32[2, 4, 16, 32].strides(2048, 32, 128, 1)" in region.text
    image = randn(2, 8, 6, 6).to(memory_format=torch.channels_last)
    region = mined(tmp_path / "c.json", F.relu, image)
    assert region.text is not None
    assert "f32[2, 8, 6, 6].channels_last" in region.text
