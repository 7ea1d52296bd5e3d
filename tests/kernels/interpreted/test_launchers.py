"""Kernels in the place of whole regions, built by the registry and run: each gives what the region says."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from kernels.candidates import build
from profiler.region.language.text import parse
from tests.kernels.interpreted.checking import assert_as_exact_as_eager
from tests.kernels.libraries.quantised_spellings import INT4, INT8_WEIGHT

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SCORES = "x: bf16[9, 40]\nt: i64[9].below(40)\n"
CODES = "a: f32[6, 16]\nc: f32[20, 16]\n"
EDGES = "x: f32[16, 8]\ns: i64[32].below(16)\nt: i64[32].below(8)\nw: f32[32]\n"
PRODUCT = "x: f16[8, 16]\nw: f16[16, 64]\ng: f16[64]\nb: f16[64]\n"
NARROW = "a: f8e4m3[20, 256]\nb: f8e4m3[24, 256]\n"
LAYERS = "x: f16[20, 16]\nw: f16[16, 24]\nb: f16[24]\nv: f16[24, 16]\nc: f16[16]\n"
SPREAD = "v = x.float().pow(2).mean(1, keepdim=True)\n"

STORED = "x: f16[2, 12, 4, 5]\nm: f16[12]\nv: f16[12]\ng: f16[12]\nb: f16[12]\nr: f16[2, 12, 4, 5]\n"
CODED = "x: f16[6, 200]\nr: f16[6, 200]\nw: f16[200]\ns = x + r\ny = F.rms_norm(s, (200,), w, 1e-6).float()\n"

# Products are of f16 or f32: the interpreter's of bf16 are wrong.
REGIONS = (
    ("linear_cross_entropy", "x: f16[2, 8, 32]\nw: f16[70, 32]\nt: i64[16].below(70)\n"
     "return F.cross_entropy(F.linear(x, w).float().view(-1, 70), t, ignore_index=3)\n"),
    ("linear_cross_entropy", "x: f32[9, 32]\nw: f32[70, 32]\nt: i64[9].below(70)\n"
     "return F.cross_entropy(x @ w.t(), t, reduction='none')\n"),
    *(("weight_only_gemm", text.replace("bf16", "f16")) for name, text in {**INT8_WEIGHT, **INT4}.items()
      if name in ("a scale a row behind the product", "with a zero point", "bytes of an unsigned type and 128",
                  "a batch of rows", "a scale a group", "with a bias", "halves stacked, a zero a group",
                  "8 taken off the integers", "a scale a row")),
    ("scaled_gemm", NARROW + "p: f32[20, 1]\nq: f32[24, 1]\n"
     "return ((a.to(f32) * p) @ (b.to(f32) * q).t()).to(bf16)\n"),
    ("scaled_gemm", NARROW + "p: f32[20, 1]\nq: f32[24]\nreturn (a.float() @ b.float().t()) * q * p\n"),
    ("scaled_gemm", NARROW + "p: f32[()]\nq: f32[()]\nreturn ((a.float() @ b.float().t()) * q * p).to(f16)\n"),
    ("scaled_gemm", "a: f8e4m3[20, 256]\nb: f8e4m3[256, 256]\np: f32[20, 2]\nq: f32[2, 2]\n"
     "x = (a.to(f32).view(20, 2, 128) * p[..., None]).view(20, 256)\n"
     "w = (b.to(f32).view(2, 128, 2, 128) * q[:, None, :, None]).view(256, 256)\nreturn (x @ w.t()).to(bf16)\n"),
    ("scaled_gemm", "a: i8[20, 40]\nb: i8[40, 24]\np: f32[20, 1]\nq: f32[24]\n"
     "return ((a.float() @ b.float()) * p * q).to(bf16)\n"),
    ("cross_entropy", SCORES + "return F.cross_entropy(x.float(), t)\n"),
    ("cross_entropy", SCORES + "return F.cross_entropy(x, t, reduction='sum', ignore_index=3)\n"),
    ("cross_entropy", SCORES + "p = torch.log_softmax(x.float(), -1)\nreturn -p.gather(1, t[:, None])\n"),
    ("cross_entropy", SCORES + "p = torch.log_softmax(x.float(), -1)\nreturn (-p[torch.arange(9), t]).mean()\n"),
    ("cross_entropy", "x: f32[2, 4, 40]\nt: i64[2, 4].below(40)\nm = torch.logsumexp(x, -1)\n"
     "return m - x.gather(-1, t.unsqueeze(-1)).squeeze(-1)\n"),
    ("add_rms_norm", "x: bf16[5, 64]\nr: bf16[5, 64]\nw: bf16[64]\ns = x + r\n"
     "v = s.float().pow(2).mean(-1, keepdim=True)\ny = (s.float() * torch.rsqrt(v + 1e-6)).to(bf16) * w\n"
     "return y, s\n"),
    ("add_rms_norm", "x: f32[5, 64]\nr: f32[5, 64]\ns = x + r\ny = F.rms_norm(s, (64,), None, 1e-5)\nreturn s, y\n"),
    ("rope", "x: f16[2, 3, 8, 16]\nc: f16[8, 16]\ns: f16[8, 16]\n"
     "return x * c + torch.cat((-x[..., 8:], x[..., :8]), -1) * s\n"),
    ("rope", "q: f32[2, 4, 8, 16]\nk: f32[2, 2, 8, 16]\nc: f32[2, 8, 16]\ns: f32[2, 8, 16]\nc = c.unsqueeze(1)\n"
     "s = s.unsqueeze(1)\nq1, q2 = q.chunk(2, -1)\nk1, k2 = k.chunk(2, -1)\n"
     "kk = k * c + torch.cat((-k2, k1), -1) * s\nqq = q * c + torch.cat((-q2, q1), -1) * s\nreturn kk, qq\n"),
    ("router", "l: f32[9, 32]\np = torch.softmax(l.float(), -1)\nw, i = torch.topk(p, 4, -1)\n"
     "return w / w.sum(-1, keepdim=True), i\n"),
    ("router", "l: f32[9, 32]\np = torch.softmax(l, 1)\nw, i = torch.topk(p, 4, -1)\nreturn i, w.to(bf16)\n"),
    ("router", "l: f32[9, 32]\nv, i = torch.topk(l, 4, -1)\nreturn torch.softmax(v, -1), i\n"),
    ("top_k", "x: f32[5, 40]\nv, i = torch.topk(x, 3)\nreturn v, i\n"),
    ("top_k", "x: f32[5, 40]\nv, i = torch.topk(x, 3)\nreturn i\n"),
    ("cumsum", "x: f16[3, 5, 40]\nreturn torch.cumsum(x, -1)\n"),
    ("softmax_axis", "x: f32[5, 40]\nreturn torch.softmax(x.float(), 0)\n"),
    ("softmax_axis", "x: f16[5, 40]\nreturn torch.softmax(x.float(), -1)\n"),
    ("softmax_axis", "x: f16[2, 5, 40]\ny = x.float()\ne = torch.exp(y - y.amax(1, keepdim=True))\n"
     "return (e / e.sum(1, keepdim=True)).to(f16)\n"),
    ("channel_norm", "x: f16[2, 6, 4, 8]\nreturn x / torch.sqrt(x.pow(2).mean(1, keepdim=True) + 1e-5)\n"),
    ("channel_norm", "x: f16[2, 6, 4, 8]\nw: f16[6]\n" + SPREAD
     + "return (x.float() * torch.rsqrt(v + 1e-6)).to(f16) * w.view(1, 6, 1, 1)\n"),
    ("two_axis_reduction", "x: f16[30, 40]\nreturn x.float().sum(1), x.float().sum(0)\n"),
    ("two_axis_reduction", "x: f16[30, 40]\nreturn x.sum(0), x.sum(1)\n"),
    ("bias_activation_mask", "x: f16[7, 40]\nb: f16[40]\nm: f16[7, 40]\nreturn gelu(x + b) * m\n"),
    ("bias_activation_mask", "x: f32[7, 40]\nb: f32[40]\nm: bool[7, 40]\nreturn m * relu(b + x)\n"),
    ("matmul_logsumexp", "x: f16[20, 16]\ny: f16[24, 16]\nreturn torch.logsumexp((x @ y.t()).float() * 2.0, 1)\n"),
    ("matmul_logsumexp", "x: f32[2, 4, 16]\nw: f32[24, 16]\nreturn torch.logsumexp(x @ w.T / 0.5, -1, keepdim=True)\n"),
    ("matmul_layer_norm", PRODUCT + "return F.layer_norm((x @ w).float(), (64,), g.float(), b.float()).to(f16)\n"),
    ("matmul_layer_norm", "x: f32[2, 4, 16]\nw: f32[16, 64]\ng: f32[64]\nb: f32[64]\n"
     "return F.layer_norm(x @ w, (64,), g, b)\n"),
    ("fused_mlp", LAYERS + "return torch.relu(x @ w) @ v\n"),
    ("fused_mlp", LAYERS + "return F.linear(F.gelu(F.linear(x, w.t(), b)), v.t(), c) + x\n"),
    ("fused_mlp", "x: f32[2, 4, 16]\nw: f32[24, 16]\nb: f32[24]\nv: f32[16, 24]\nc: f32[16]\n"
     "return x + F.linear(F.gelu(F.linear(x, w, b), approximate='tanh'), v, c)\n"),
    ("fused_mlp", "x: f32[2, 4, 16]\nw: f32[16, 24]\nb: f32[24]\nv: f32[24, 8]\nc: f32[8]\n"
     "return F.silu(b + x @ w) @ v + c\n"),
    ("fused_mlp", LAYERS + "return (torch.relu(x @ w) @ v).view(10, 32)\n"),
    ("fused_mlp", "x: f16[8, 300]\nw: f16[300, 0]\nv: f16[0, 16]\nreturn torch.relu(x @ w) @ v\n"),
    ("fused_mlp", "x: f16[2, 3, 0]\nw: f16[0, 5]\nv: f16[5, 4]\nreturn torch.relu(x @ w) @ v\n"),
    ("matmul_argmin", CODES + "return torch.cdist(a, c).argmin(-1)\n"),
    ("matmul_argmin", CODES + "return (c.pow(2).sum(1) - 2 * a @ c.t()).argmin(1)\n"),
    ("depthwise_conv", "x: f32[2, 3, 8, 8]\nw: f32[3, 1, 3, 3]\nb: f32[3]\n"
     "return F.conv2d(x, w, b, padding=1, groups=3)\n"),
    ("depthwise_conv", "x: f16[2, 4, 8, 8].channels_last\nw: f16[4, 1, 3, 3]\nreturn F.conv2d(x, w, groups=4)\n"),
    ("layer_norm_backward", "x: f16[9, 64]\ndy: f16[9, 64]\nw: f16[64]\nz = x.float()\nd = dy.float() * w.float()\n"
     "r = torch.rsqrt(z.var(-1, unbiased=False, keepdim=True) + 1e-5)\nh = (z - z.mean(-1, keepdim=True)) * r\n"
     "dx = (d - d.mean(-1, keepdim=True) - h * (d * h).mean(-1, keepdim=True)) * r\n"
     "return dy.float().sum(0), dx.to(f16), (dy.float() * h).sum(0)\n"),
    ("scatter_add", EDGES + "return torch.zeros(8, 8, dtype=f32).index_add(0, t, x[s] * w[:, None], alpha=2.0)\n"),
    ("scatter_add", EDGES + "return torch.zeros(8, 8, dtype=f32).scatter_add(0, t[:, None].expand(-1, 8), x[s])\n"),
    ("group_norm_silu", "x: f16[2, 12, 4, 5]\ng: f16[12]\nb: f16[12]\nreturn F.silu(F.group_norm(x, 4, g, b))\n"),
    ("group_norm_silu", "x: f32[2, 12, 4, 5].channels_last\nreturn F.relu(F.group_norm(x, 4))\n"),
    ("batch_norm_activation", STORED + "return F.relu(F.batch_norm(x, m, v, g, b, False, 0.1, 1e-3) + r)\n"),
    ("batch_norm_activation", "x: f32[2, 12, 4, 5].channels_last\nm: f32[12]\nv: f32[12]\n"
     "return F.silu(F.batch_norm(x, m, v, eps=1e-3))\n"),
    ("norm_quantise", CODED + "a = y.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448.0\n"
     "q = (y / a).clamp(-448.0, 448.0).to(f8e4m3)\nreturn a, q, s\n"),
    ("norm_quantise", CODED.replace("s = x + r", "s = x")
     + "a = y.abs().amax(-1, keepdim=True).clamp(min=3.0) / 448.0\n"  # more than some rows have
     "q = (y / a).clamp(-448.0, 448.0).to(f8e4m3)\nreturn q, a\n"),
    ("norm_quantise", "x: f16[8, 64]\nc: f32[1]\ny = F.layer_norm(x, (64,))\n"
     "return (y / c).clamp(-448.0, 448.0).to(f8e4m3)\n"),
)  # fmt: skip


@pytest.mark.parametrize(("kernel", "text"), REGIONS)
def test_a_kernel_gives_what_the_region_says(kernel: str, text: str) -> None:
    assert_as_exact_as_eager(text, lambda region: build(f"triton:{kernel}", region, {}, "cpu"))


def test_means_of_jagged_segments() -> None:
    text = (
        "v: f32[40, 8]\noff: i64[5].offsets(40)\nn = off[1:] - off[:-1]\n"
        "seg = torch.repeat_interleave(torch.arange(4), n, output_size=40)\n"
        "return torch.zeros(4, 8).index_add(0, seg, v) / n[:, None]\n"
    )
    values, offsets = torch.randn(40, 8), torch.tensor([0, 7, 8, 29, 40])
    (got,) = build("triton:jagged_mean", parse(text), {}, "cpu")(values, offsets)
    wanted = torch.stack([values[a:b].mean(0) for a, b in pairwise(offsets)])
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize(
    "text", ["mode='mean'", "mode='max', include_last_offset=True", "mode='sum', per_sample_weights=w"]
)
def test_bags_of_rows(text: str) -> None:
    inputs = "t: f32[12, 16]\ni: i64[40].below(12)\no: i64[5].offsets(40)\n" + "w: f32[40]\n" * ("=w" in text)
    given = [torch.randn(12, 16), torch.randint(12, (40,)), torch.tensor([0, 7, 7, 29, 40]), torch.randn(40)]
    region = parse(inputs + f"return F.embedding_bag(i, t, o, {text})\n")
    (got,) = build("triton:embedding_bag", region, {}, "cpu")(*given[: len(region.inputs)])
    call = {"mode": text.split("'")[1], "include_last_offset": "last" in text}
    weights = given[3] if "=w" in text else None
    wanted = torch.nn.functional.embedding_bag(given[1], given[0], given[2], per_sample_weights=weights, **call)
    torch.testing.assert_close(got, wanted)
