"""A region that is what one kernel computes is recognised, however it is written; one that only looks alike is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernels.candidates import candidates, hand_written
from kernels.hand_written import LAUNCHERS, WRITTEN
from kernels.host import Host
from profiler.region.graph.lowering import Graph, lower, without_grad
from profiler.region.graph.patterns import match
from profiler.region.language.text import parse
from tests.kernels.libraries.quantised_spellings import INT4, INT8_WEIGHT, LOOK_ALIKE

WEIGHTS = {**INT8_WEIGHT, **INT4}
NOT_OURS = ("weights of [inner, outer]", "one scale", "halves side by side", "the high half first",
            "scales repeated over their group", "eight to a word, by shifts",
            "eight to a word, with a bias")  # fmt: skip
"""Spellings whose weights are stored in another order, or whose scales are no tensor of a number a row or group."""
REGIONS = Path(__file__).resolve().parent.parent / "regions"
HOST = Host(packages=frozenset({"torch", "triton"}), features=frozenset({"F.rms_norm"}))

SCORES = "x: bf16[8, 32]\nt: i64[8].below(32)\n"
ROPE = "q: f32[2, 4, 16, 8]\nk: f32[2, 2, 16, 8]\nc: f32[16, 8]\ns: f32[16, 8]\n"
CODES = "a: f32[16, 64]\nc: f32[32, 64]\n"
PRODUCT = "x: bf16[8, 16]\nw: bf16[16, 64]\ng: bf16[64]\nb: bf16[64]\n"
LAYERS = "x: bf16[8, 16]\nw: bf16[16, 64]\nb: bf16[64]\nv: bf16[64, 16]\nc: bf16[16]\nr: bf16[8, 1]\n"
EDGES = "x: f32[16, 8]\ns: i64[32].below(16)\nt: i64[32].below(5)\nw: f32[32]\n"
GRADIENTS = (
    "x: f32[9, 64]\ndy: f32[9, 64]\nw: f32[64]\nd = dy * w\n"
    "r = torch.rsqrt(x.var(-1, correction={c}, keepdim=True) + 1e-5)\n"
    "h = (x - x.mean(-1, keepdim=True)) * r\n"
    "dx = (d - d.mean(-1, keepdim=True) - h * (d * h).mean(-1, keepdim=True)) * r\nreturn dx, {sums}\n"
)
NARROW = "a: f8e4m3[16, 256]\nb: f8e4m3[256, 256]\nsa: f32[16, 2]\nsb: f32[2, 2]\np: f32[16, 1]\nq: f32[256]\n"
PLANES = "x: bf16[2, 64, 16, 16]\ng: bf16[64]\nb: bf16[64]\n"
STORED = "x: bf16[2, 64, 16, 16]\nm: f32[64]\nv: f32[64]\ng: f32[64]\nb: f32[64]\nr: bf16[2, 64, 16, 16]\n"
ROWS_OF_I8 = "x: f16[2, 64]\nw: i8[40, 64]\ns: f16[40]\nb: f16[40]\n"
BLOCKS = "x = (a.float().view(16, 2, 128) * sa[..., None]).view(16, 256)\n"
HEAD = "x: bf16[2, 8, 32]\nw: bf16[64, 32]\nt: i64[16].below(64)\nl = F.linear(x, w)\n"
BAGS = "t: f32[64, 16]\ni: i64[100].below(64)\no: i64[9].offsets(100)\n"
CODED = (
    "x: bf16[16, 512]\nr: bf16[16, 512]\nw: bf16[512]\ns = x + r\ny = F.rms_norm(s, (512,), w, 1e-6).float()\n"
    "a = y.abs().amax({dim}, keepdim=True).clamp(min={least}) / 448.0\n"
    "q = (y / a).clamp(-448.0, {top}).to(f8e4m3)\nreturn {results}\n"
)
RAGGED = "v: bf16[64, 8]\no: i64[9].offsets(64)\n"
EXPERTS = "x: bf16[64, 32]\nw: bf16[4, 32, 48]\no: i32[4].offsets(64)\n"
STEPS = (
    "a: f32[2, 5, 16]\nb: f32[2, 5, 16]\nh = torch.{first}\ns = []\nfor t in range({count}):\n    h = {step}\n"
    "    s.append(h)\nreturn torch.stack(s, {dim})\n"
)
IMAGE = "x: f32[2, 4, 8, 8]\nw: f32[4, 1, 3, 3]\nb: f32[4]\n"
SPREAD = "v = x.pow(2).mean(1, keepdim=True)\n"


def recurrence(
    first: str = "zeros_like(b[:, 0])", step: str = "a[:, t] * h + b[:, t]", count: int = 5, dim: int = 1
) -> str:
    """A loop over time of the same operations, in this order or another."""
    return STEPS.format(first=first, step=step, count=count, dim=dim)


def found(text: str) -> dict[str, str]:
    """Kernel -> why it does not take the region, "" where it does."""
    graph: Graph = lower(parse(text))
    known = match(graph)
    return {k.name.removeprefix("triton:"): k.reason(graph, m) for k in LAUNCHERS for m in k.matches(graph, known)}


@pytest.mark.parametrize(
    ("region", "kernel"),
    [
        ("add_rmsnorm_residual", "add_rms_norm"), ("bias_gelu_mask", "bias_activation_mask"),
        ("depthwise_conv2d_k3", "depthwise_conv"), ("gemm_layernorm_epilogue", "matmul_layer_norm"),
        ("gemm_logsumexp", "matmul_logsumexp"), ("jagged_mean", "jagged_mean"), ("moe_router_softmax_topk", "router"),
        ("outer_dim_softmax_short", "softmax_axis"), ("softmax_rows_128k", "softmax_axis"),
        ("softmax_rows_1M_few", "softmax_axis"), ("rmsnorm_channel_dim", "channel_norm"), ("rope_rotate_half", "rope"),
        ("two_axis_reduction", "two_axis_reduction"), ("tiny_hidden_fused_mlp", "fused_mlp"),
        ("layernorm_backward_manual", "layer_norm_backward"), ("linear_recurrence_loop", "linear_recurrence"),
    ],
)  # fmt: skip
def test_the_measured_regions_have_their_kernel(region: str, kernel: str) -> None:
    assert found((REGIONS / f"{region}.txt").read_text()) == {kernel: ""}


@pytest.mark.parametrize(
    "region",
    ["pointwise_chain_12", "rmsnorm_manual_fwd", "softmax_rows_4k", "dropout_add_layernorm", "manual_causal_attention",
     "top_p_sampling_sort", "sparsemax_sort_bound", "gae_tiny_share", "causal_conv1d_silu", "square_gemm_8k"],
)  # fmt: skip
def test_the_other_measured_regions_have_none(region: str) -> None:
    assert found((REGIONS / f"{region}.txt").read_text()) == {}


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        (SCORES + "return F.cross_entropy(x.float(), t)\n", "cross_entropy"),
        (SCORES + "return F.cross_entropy(x, t, reduction='none', ignore_index=3)\n", "cross_entropy"),
        (SCORES + "p = F.log_softmax(x.float(), dim=-1)\nreturn F.nll_loss(p, t, reduction='sum')\n", "cross_entropy"),
        (SCORES + "p = torch.log_softmax(x, -1)\nreturn -p.gather(1, t[:, None]).squeeze(1).mean()\n", "cross_entropy"),
        (SCORES + "p = torch.log_softmax(x, -1)\nreturn (-p[torch.arange(8), t]).sum()\n", "cross_entropy"),
        (SCORES + "m = torch.logsumexp(x, -1)\nreturn (m - x.gather(-1, t[:, None]).squeeze(-1)).mean()\n",
         "cross_entropy"),
        ("x: f32[8, 64]\nr: f32[8, 64]\nw: f32[64]\ns = r + x\ny = F.rms_norm(s, (64,), w, 1e-5)\nreturn s, y\n",
         "add_rms_norm"),
        (ROPE + "q1, q2 = q.chunk(2, -1)\nk1, k2 = k.chunk(2, -1)\nqq = q * c + torch.cat((-q2, q1), -1) * s\n"
         "kk = k * c + torch.cat((-k2, k1), -1) * s\nreturn qq, kk\n", "rope"),
        ("q: bf16[2, 4, 16, 8]\nc: bf16[2, 16, 8]\ns: bf16[2, 16, 8]\nc = c.unsqueeze(1)\ns = s.unsqueeze(1)\n"
         "return (q * c) + (torch.cat((-q[..., 4:], q[..., :4]), dim=-1) * s)\n", "rope"),
        ("x: bf16[9, 64]\nv, i = torch.topk(x, 6)\nw = torch.softmax(v.float(), -1)\nreturn w.to(bf16), i\n", "router"),
        ("x: bf16[9, 64]\np = F.softmax(x, 1, dtype=f32)\nw, i = p.topk(6, -1)\nreturn w, i\n", "router"),
        ("x: bf16[9, 64]\nv, i = torch.topk(x, 6)\nreturn v, i\n", "top_k"),
        ("x: bf16[9, 64]\nv, i = torch.topk(x, 6)\nreturn i\n", "top_k"),
        ("x: bf16[9, 64]\nreturn x.cumsum(1)\n", "cumsum"),
        ("x: f32[9, 64]\ne = torch.exp(x - x.amax(0, keepdim=True))\nreturn e / e.sum(0, keepdim=True)\n",
         "softmax_axis"),
        ("x: f32[2, 8, 5, 5]\nw: f32[8]\n" + SPREAD + "return x * torch.rsqrt(v + 1e-6) * w[:, None, None]\n",
         "channel_norm"),
        ("x: bf16[9, 64]\nreturn x.sum(-1), x.sum(0)\n", "two_axis_reduction"),
        ("x: f16[9, 64]\nb: f16[64]\nm: bool[9, 64]\nreturn m * silu(b + x)\n", "bias_activation_mask"),
        ("x: f32[9, 64]\nb: f32[64]\nreturn F.gelu(x + b, approximate='tanh')\n", "bias_activation_mask"),
        ("x: f32[2, 4, 16]\nw: f32[64, 16]\nreturn torch.logsumexp(x @ w.T / 0.5, -1, keepdim=True)\n",
         "matmul_logsumexp"),
        (PRODUCT + "z = x @ w\nd = z - z.mean(-1, keepdim=True)\nv = d.pow(2).mean(-1, keepdim=True)\n"
         "return d * torch.rsqrt(v + 1e-5) * g + b\n", "matmul_layer_norm"),
        (CODES + "return torch.cdist(a, c).argmin(-1)\n", "matmul_argmin"),
        (CODES + "return (a.pow(2).sum(1, keepdim=True) - 2 * a @ c.t() + c.pow(2).sum(1)).argmin(1)\n",
         "matmul_argmin"),
        (IMAGE + "return F.conv2d(x, w, b, padding=1, groups=4)\n", "depthwise_conv"),
        (EDGES + "return torch.zeros(5, 8).index_add(0, t, x[s] * w[:, None])\n", "scatter_add"),
        (EDGES + "return torch.zeros(5, 8).scatter_add(0, t[:, None].expand(-1, 8), x[s])\n", "scatter_add"),
        (GRADIENTS.format(c=0, sums="dy.sum(0), (h * dy).sum(0)"), "layer_norm_backward"),
        (PLANES + "return F.silu(F.group_norm(x, 32, g, b))\n", "group_norm_silu"),
        ("x: f32[2, 64, 30]\nreturn F.gelu(F.group_norm(x, 8), approximate='tanh')\n", "group_norm_silu"),
        ("x: f16[2, 64, 8, 8].channels_last\nreturn F.group_norm(x, 8, eps=1e-6)\n", "group_norm_silu"),
        (STORED + "return F.relu(F.batch_norm(x, m, v, g, b, False, 0.1, 1e-5) + r)\n", "batch_norm_activation"),
        (STORED + "return F.relu(r + F.batch_norm(x, m, v, g, b))\n", "batch_norm_activation"),
        (STORED + "return F.silu(F.batch_norm(x, m, v))\n", "batch_norm_activation"),
        (CODED.format(dim=-1, least=1e-12, top=448.0, results="q, a, s"), "norm_quantise"),
        (CODED.format(dim=-1, least=1e-8, top=448.0, results="s, a, q"), "norm_quantise"),
        ("x: f16[8, 64]\nw: f16[64]\nb: f16[64]\nc: f32[1]\ny = F.layer_norm(x, (64,), w, b)\n"
         "return (y / c).clamp(-448.0, 448.0).to(f8e4m3)\n", "norm_quantise"),
        (BAGS + "return F.embedding_bag(i, t, o)\n", "embedding_bag"),
        (BAGS + "return F.embedding_bag(i, t, o, mode='max', include_last_offset=True)\n", "embedding_bag"),
        (BAGS + "w: f32[100]\nreturn F.embedding_bag(i, t, o, mode='sum', per_sample_weights=w)\n", "embedding_bag"),
        (PLANES + "return F.max_pool2d(x, 3, 2, 1)\n", "max_pool"),
        (PLANES + "return F.max_pool2d(x, (3, 2), dilation=2, ceil_mode=True)\n", "max_pool"),
        ("x: f32[2, 6, 20]\nreturn F.max_pool1d(x, 3, 2, 1)\n", "max_pool"),
        (PLANES + "return F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)\n", "average_pool"),
        ("x: f16[2, 64, 8, 8].channels_last\nreturn F.avg_pool2d(x, 2)\n", "average_pool"),
        (EXPERTS + "return F.grouped_mm(x, w, offs=o)\n", "grouped_gemm"),
        (RAGGED + "return torch.segment_reduce(v, 'mean', offsets=o, axis=0)\n", "segment_reduce"),
        (RAGGED + "return torch.segment_reduce(v, 'max', offsets=o, unsafe=True)\n", "segment_reduce"),
        ("x: bf16[8, 64]\nreturn F.dropout(x, 0.1)\n", "dropout"),
        (recurrence(), "linear_recurrence"),
        (recurrence(step="b[:, t] + h * a[:, t]", dim=-2), "linear_recurrence"),
        (recurrence(first="zeros(2, 16)", step="torch.addcmul(b[:, t], h, a[:, t])"), "linear_recurrence"),
        ("a: f32[2, 3, 16]\nb: f32[2, 3, 16]\nh = b[:, 0]\nk = a[:, 1] * h + b[:, 1]\n"
         "return torch.stack((h, k, a[:, 2] * k + b[:, 2]), 1)\n", "linear_recurrence"),
        (NARROW + "return ((a.float() * p) @ (b.float() * q[:, None]).t()).to(bf16)\n", "scaled_gemm"),
        (HEAD + "return F.cross_entropy(l.float().view(-1, 64), t)\n", "linear_cross_entropy"),
        (HEAD + "return F.cross_entropy(l.view(-1, 64).float(), t, ignore_index=3, reduction='none')\n",
         "linear_cross_entropy"),
        (HEAD + "return F.nll_loss(F.log_softmax(l.flatten(0, 1), -1, dtype=f32), t, reduction='sum')\n",
         "linear_cross_entropy"),
        (NARROW + "return ((a.to(bf16) @ b.to(bf16)) * p * q).to(bf16)\n", "scaled_gemm"),
        (ROWS_OF_I8 + "return F.linear(x, w.to(f16) * s[:, None]) + b\n", "weight_only_gemm"),
        (ROWS_OF_I8 + "return F.linear(x, w.to(f16) * s[:, None], b)\n", "weight_only_gemm"),
        (NARROW + BLOCKS + "w = (b.float().view(2, 128, 2, 128) * sb[:, None, :, None]).view(256, 256)\n"
         "return (x @ w.t()).to(bf16)\n", "scaled_gemm"),
    ],
)  # fmt: skip
def test_other_ways_to_write_it(text: str, kernel: str) -> None:
    assert found(text) == {kernel: ""}


@pytest.mark.parametrize(
    "text",
    [
        SCORES + "return F.cross_entropy(x, t, label_smoothing=0.1)\n",
        SCORES + "w: bf16[32]\nreturn F.cross_entropy(x, t, w)\n",
        SCORES + "p = torch.log_softmax(x, 0)\nreturn -p.gather(1, t[:, None]).mean()\n",  # over the other axis
        SCORES + "p = torch.log_softmax(x, -1)\nreturn p.gather(1, t[:, None]).mean()\n",  # not negated
        SCORES + "p = torch.log_softmax(x, -1)\nreturn -p.gather(1, t[:, None]).mean(), p\n",  # p is wanted too
        SCORES + "m = torch.logsumexp(x, -1)\nreturn (m - x.gather(1, t[:, None])).mean()\n",  # [8] - [8, 1]
        "x: f32[8, 64]\nr: f32[64]\ns = x + r\ny = F.rms_norm(s, (64,), None, 1e-5)\nreturn y, s\n",  # a bias
        "x: f32[8, 64]\nr: f32[8, 64]\ny = F.rms_norm(x, (64,), None, 1e-5)\nreturn y, x + r\n",  # norm of x alone
        ROPE + "return q * c + torch.cat((q[..., 4:], -q[..., :4]), -1) * s\n",  # turned the other way
        ROPE + "return q * c + torch.cat((-q[..., 2:], q[..., :2]), -1) * s\n",  # not in the middle
        ROPE + "return q * c + torch.cat((-k[..., 4:], k[..., :4]), -1).repeat(1, 2, 1, 1) * s\n",
        "x: f32[9, 64]\np = torch.softmax(x, 0)\nw, i = p.topk(6, -1)\nreturn w, i\n",  # shares among tokens
        "x: f32[9, 64]\np = torch.sigmoid(x)\nw, i = p.topk(6, -1)\nreturn w / w.sum(-1, keepdim=True), i\n",
        "x: f32[9, 64]\nb: f32[64]\np = torch.softmax(x + b, -1)\nw, i = p.topk(6, -1)\nreturn w, i\n",
        "x: f32[9, 64]\nv, i = torch.topk(x, 6, largest=False)\nreturn v, i\n",
        "x: f32[9, 64]\nv, i = torch.topk(x, 6, 0)\nreturn v, i\n",
        "x: f32[9, 64]\nv, i = torch.topk(x.to(bf16), 6)\nreturn v, i\n",  # rounded numbers are other numbers
        "x: f32[9, 64]\nreturn x.cumsum(0)\n",
        "x: f32[9, 64]\nm: f32[9, 64]\nreturn torch.softmax(x + m, 0)\n",  # a mask between
        "x: f32[9, 64]\ny = torch.softmax(x, 0)\nreturn y, y * 2\n",
        "x: f32[9, 64]\ne = torch.exp(x - x.amax(1, keepdim=True))\nreturn e / e.sum(0, keepdim=True)\n",
        "x: f32[2, 8, 5, 5]\nw: f32[5]\n" + SPREAD + "return x * torch.rsqrt(v + 1e-6) * w\n",  # of the last axis
        "x: f32[2, 8, 5, 5]\n" + SPREAD + "return x * torch.rsqrt(v) + 1e-6\n",
        "x: f32[9, 64]\nreturn x.sum(0), x.sum(0)\n",
        "x: f32[9, 64]\ny: f32[9, 64]\nreturn x.sum(0), y.sum(1)\n",
        "x: f32[9, 64]\nreturn x.mean(0), x.mean(1)\n",
        "x: f32[9, 64]\nb: f32[9, 1]\nreturn relu(x + b)\n",
        "x: f32[9, 64]\nb: f32[64]\nreturn relu(x - b)\n",
        "x: f32[9, 64]\nb: f32[64]\nreturn torch.add(x, b, alpha=2).relu()\n",
        "x: f32[9, 64]\nb: f32[64]\nm: f32[64]\nreturn relu(x + b) * m\n",
        "x: f32[8, 16]\nw: f32[16, 64]\nreturn torch.logsumexp(x @ w, 0)\n",
        "x: f32[8, 16]\nw: f32[16, 64]\nb: f32[64]\nreturn torch.logsumexp(x @ w + b, 1)\n",
        PRODUCT + "z = x @ w\nv = z.var(-1, keepdim=True)\n"
        "return (z - z.mean(-1, keepdim=True)) * torch.rsqrt(v + 1e-5) * g + b\n",  # by n - 1
        PRODUCT + "return F.layer_norm(x @ w, (64,), None, None)\n",
        CODES + "return (c.pow(2).sum(1) + 2 * a @ c.t()).argmin(1)\n",  # the farthest
        CODES + "return (a.pow(2).sum(1, keepdim=True) - 2 * a @ c.t()).argmin(1)\n",
        CODES + "return torch.cdist(a, c).argmin(0)\n",
        CODES + "return torch.cdist(a, c, p=1.0).argmin(-1)\n",
        IMAGE + "return F.conv2d(x, w, b, stride=2, groups=4)\n",
        "x: f32[2, 4, 8, 8]\nw: f32[4, 4, 3, 3]\nreturn F.conv2d(x, w)\n",
        LAYERS + "return torch.relu((x @ w) * 2) @ v\n",  # scaled between
        LAYERS + "return torch.tanh(x @ w) @ v\n",
        LAYERS + "return (x @ w) @ v\n",
        LAYERS + "return torch.relu(x @ w + r) @ v\n",  # a bias of rows
        LAYERS + "return torch.relu(x @ w) @ v + r\n",  # a residual that is spread
        LAYERS + "h = torch.relu(x @ w)\nreturn h @ v, h\n",
        LAYERS + "return torch.relu(torch.addmm(b, x, w) + b) @ v\n",  # a bias twice
        LAYERS + "return torch.addmm(c, torch.relu(x @ w), v) + c\n",
        LAYERS + "u: bf16[32, 16]\nreturn torch.relu(x @ w).view(16, 32) @ u\n",  # rows cut in two
        LAYERS + "q: bf16[8, 1, 16]\nreturn (torch.relu(x @ w) @ v) + q\n",  # spread to [8, 8, 16]
        LAYERS + "return (torch.relu(x @ w) @ v).view(8, 16, 1) + c\n",
        LAYERS + "return torch.relu((x @ w).view(8, 64, 1) + b).view(512, 64) @ v\n",
        LAYERS + "return v.t() @ torch.relu(x @ w).t()\n",
        LAYERS + "return torch.add(torch.relu(x @ w) @ v, x, alpha=2)\n",
        GRADIENTS.format(c=1, sums="dy.sum(0), (h * dy).sum(0)"),
        GRADIENTS.format(c=0, sums="d.sum(0), (h * dy).sum(0)"),  # the weighted gradient's sum
        NARROW + "return (a.float() @ (b.float() * q[:, None])) * p\n",  # by rows of what is multiplied as it is
        NARROW + "return (a.float() @ b.float()) * q\n",
        HEAD + "return F.cross_entropy(l.float().view(-1, 64) / 2, t)\n",
        HEAD + "return F.cross_entropy(l.float().view(-1, 64), t, label_smoothing=0.1)\n",
        HEAD.replace("l = F.linear(x, w)", "b: bf16[64]\nl = F.linear(x, w) + b")
        + "return F.cross_entropy(l.float().view(-1, 64), t)\n",
        HEAD + "return F.cross_entropy(l.float().view(-1, 64), t), l\n",  # the logits are wanted too
        NARROW + "r: f32[256, 2]\n" + BLOCKS + "w = (b.float().view(256, 2, 128) * r[..., None]).view(256, 256)\n"
        "return (x @ w.t()).to(bf16)\n",  # a scale for 128 numbers of one row of b
        # Scales that are spread over the last two axes, which are as long as the first two.
        "a: f8e4m3[128, 16384]\nb: f8e4m3[256, 16384]\nsa: f32[128, 128]\nsb: f32[2, 128]\n"
        "x = (a.float().view(128, 128, 128) * sa).view(128, 16384)\n"
        "w = (b.float().view(2, 128, 128, 128) * sb[:, None, :, None]).view(256, 16384)\nreturn (x @ w.t()).to(bf16)\n",
        "a: f8e4m3[16, 16384]\nb: f8e4m3[16384, 16384]\nsa: f32[16, 128]\nsb: f32[128, 128]\n"
        "x = (a.float().view(16, 128, 128) * sa[..., None]).view(16, 16384)\n"
        "w = (b.float().view(128, 128, 128, 128) * sb).view(16384, 16384)\nreturn (x @ w.t()).to(bf16)\n",
        NARROW.replace("f8e4m3", "i8") + "return ((a.to(torch.bool).float() @ b.float()) * p * q).to(bf16)\n",
        ROWS_OF_I8 + "return F.linear(x, w.to(torch.bool).to(f16) * s[:, None])\n",
        ROWS_OF_I8 + "return F.linear(x, w.to(f16) * s[:, None], b) + b\n",  # a bias twice
        EDGES + "return torch.ones(5, 8).index_add(0, t, x[s])\n",
        EDGES + "return torch.zeros(5, 32).index_add(1, t, x[s].T[:5])\n",
        PLANES + "return F.tanh(F.group_norm(x, 32, g, b))\n",
        PLANES + "y = F.group_norm(x, 32, g, b)\nreturn y, F.silu(y)\n",  # the norm is wanted too
        STORED + "return F.relu(torch.add(F.batch_norm(x, m, v, g, b), r, alpha=2))\n",
        STORED + "return F.relu(F.batch_norm(x, m, v, g, b) + r[:1])\n",  # a residual that is spread
        STORED + "return F.relu(F.batch_norm(x, None, None, g, b, True))\n",  # the batch's own statistics
        PLANES + "y, i = F.max_pool2d(x, 3, return_indices=True)\nreturn y, i\n",  # torch's own places
        PLANES + "return F.avg_pool2d(x, 3, divisor_override=5)\n",
        PLANES + "return F.max_pool2d(x, 3)[1:]\n",
        "x: f32[4, 8, 8]\nreturn F.max_pool2d(x, 3)\n",
        RAGGED + "return torch.segment_reduce(v, 'max', offsets=o, initial=0)\n",
        "v: f32[64]\no: i64[9].offsets(64)\nreturn torch.segment_reduce(v, 'sum', offsets=o)\n",
        "x: bf16[4, 64, 32]\nw: bf16[4, 32, 48]\nreturn F.grouped_mm(x, w)\n",
        "x: bf16[8, 64]\nreturn F.dropout(x, 0.1) * 2\n",
        recurrence(step="a[:, 4 - t] * h + b[:, 4 - t]"),  # backwards in time
        recurrence(step="a[:, t] * h + b[:, 4 - t]"),
        recurrence(step="a[:, t] * h - b[:, t]"),
        recurrence(step="torch.add(a[:, t] * h, b[:, t], alpha=2)"),
        recurrence(step="a[:, t] * b[:, t] + h"),
        recurrence(step="a[:, 0] * h + b[:, t]"),  # one factor for every step
        recurrence(count=4),  # not all of them
        recurrence(dim=0),
        recurrence(first="ones_like(b[:, 0])"),
        CODED.format(dim=0, least=1e-12, top=448.0, results="q, a, s"),  # scales of columns
        CODED.format(dim=-1, least=0.0, top=448.0, results="q, a, s"),  # a row of zeros has no scale
        CODED.format(dim=-1, least=1e-12, top=240.0, results="q, a, s"),  # another type's range
        CODED.format(dim=-1, least=1e-12, top=448.0, results="q, a, s, y"),
    ],
)  # fmt: skip
def test_what_only_looks_alike_is_none(text: str) -> None:
    assert found(text) == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x: bf16[9, 64]\nreturn x.cumsum(1, dtype=f32)\n", "bf16 in, f32 out"),
        ("x: f64[9, 64]\nreturn x.cumsum(1)\n", "operands of f64"),
        ("x: f32[64, 9].strides(1, 64)\nb: f32[9]\nreturn relu(x + b)\n", "other strides"),
        ("x: f32[2, 900]\nv, i = torch.topk(x, 300)\nreturn v, i\n", "up to 256"),
        ("x: bf16[9, 64]\np = torch.softmax(x, -1)\nw, i = p.topk(6, -1)\nreturn w, i\n", "rounded to bf16"),
        ("x: f32[2, 2000]\np = torch.softmax(x, -1)\nw, i = p.topk(6, -1)\nreturn w, i\n", "1024 experts"),
        ("x: bf16[9, 64]\nb: f32[64]\nreturn relu(x + b)\n", "operands of bf16, f32"),
        ("x: bf16[8, 16]\nw: bf16[16, 600]\ng: bf16[600]\nb: bf16[600]\nreturn F.layer_norm(x @ w, (600,), g, b)\n",
         "up to 512"),
        (LAYERS.replace("64", "264") + "return torch.relu(x @ w) @ v\n", "up to 256 hidden columns"),
        (LAYERS.replace("v: bf16", "v: f32") + "return torch.relu(x @ w).float() @ v\n", "operands of bf16, f32"),
        (LAYERS + "return torch.relu(x.float() @ w.float()) @ v.float()\n", "bf16 in, f32 out"),
        (LAYERS + "return (torch.relu(x.float() @ w.float()) @ v.float()).to(bf16)\n", "a hidden layer in f32"),
        ("a: bf16[16, 64]\nc: bf16[32, 64]\nreturn (c.pow(2).sum(1) - 2 * a @ c.t()).argmin(1)\n", "rounded to bf16"),
        (NARROW.replace("p: f32", "p: bf16") + "return ((a.float() * p) @ (b.float() * q[:, None]).t()).to(bf16)\n",
         "operands of bf16, f32"),
        (HEAD + "return F.cross_entropy(l.view(-1, 64), t)\n", "shares rounded to bf16"),
        (NARROW.replace("f8e4m3", "f8e5m2") + "return (a.float() @ b.float()) * p * q\n", "numbers in f8e5m2"),
        ("x: f32[2, 4, 20, 20]\nw: f32[4, 1, 9, 9]\nreturn F.conv2d(x, w, groups=4)\n", "filters up to 7"),
        (EDGES.replace("s: i64[32].below(16)", "s: i64[32]") + "return torch.zeros(5, 8).index_add(0, t, x[s])\n",
         "counted from 0"),
        ("v: f32[64, 8]\noff: i64[5]\nn = off[1:] - off[:-1]\n"
         "seg = torch.repeat_interleave(torch.arange(4), n, output_size=64)\n"
         "return torch.zeros(4, 8).index_add(0, seg, v) / n[:, None]\n", "not said to run from 0"),
        (BAGS.replace(".offsets", ".below") + "return F.embedding_bag(i, t, o)\n", "not said to run from 0"),
        (BAGS.replace(".below(64)", "") + "return F.embedding_bag(i, t, o)\n", "not counted from 0"),
        (EXPERTS.replace(".offsets(64)", ".offsets(60)") + "return F.grouped_mm(x, w, offs=o)\n", "the last row"),
        (RAGGED.replace(".offsets", ".below") + "return torch.segment_reduce(v, 'sum', offsets=o)\n", "run from 0"),
        (PLANES + "return F.max_pool2d(x, 16)\n", "up to 255 positions"),
        ("x: f32[64, 9].strides(1, 64)\nreturn F.dropout(x, 0.1)\n", "other strides"),
        ("x: f64[2, 64, 30]\nreturn F.silu(F.group_norm(x, 8))\n", "operands of f64"),
        (STORED.replace("m: f32", "m: f64") + "return F.batch_norm(x, m, v, g, b)\n", "vectors of f64"),
    ],
)  # fmt: skip
def test_what_a_kernel_does_not_take_is_said(text: str, reason: str) -> None:
    (said,) = found(text).values()
    assert reason in said


@pytest.mark.parametrize(
    ("region", "call"),
    [
        ("moe_router_softmax_topk", "from kernels.router import router\ny, second = router(l, 8, True)"),
        ("rope_rotate_half", "from kernels.rope import rope\ny = rope(x, None, c, s)"),
        ("bias_gelu_mask", "from kernels.bias_activation_mask import bias_activation_mask\n"
         "y = bias_activation_mask(x, b, m, 'gelu')"),
    ],
)  # fmt: skip
def test_the_call_has_the_regions_own_names(region: str, call: str) -> None:
    graph = lower(parse((REGIONS / f"{region}.txt").read_text()))
    assert call in [c.call for c in candidates(graph, HOST) if c.available]


def test_every_launcher_is_a_candidate_of_its_own() -> None:
    names = [w.name for w in WRITTEN]
    assert len(names) == len(set(names))
    assert {k.name for k in LAUNCHERS} <= set(names)


@pytest.mark.parametrize("spelling", WEIGHTS)
def test_stored_weights_in_rows_have_our_kernel_and_others_none(spelling: str) -> None:
    assert found(WEIGHTS[spelling]) == ({} if spelling in NOT_OURS else {"weight_only_gemm": ""})


@pytest.mark.parametrize("text", LOOK_ALIKE.values(), ids=LOOK_ALIKE)
def test_what_only_looks_like_stored_weights_has_none(text: str) -> None:
    assert found(text) == {}


def test_a_zero_point_taken_off_bytes_without_a_sign_wraps_and_is_none() -> None:
    text = INT4["8 taken off the integers"]
    assert found(text.replace("packed: i8", "packed: u8")) == {}
    assert found(text.replace("- 8", "- 130")) == {}, "int8 ends at -128"
    assert found(text.replace("((packed >> 4) & 15)", "(packed >> 4)")) == {}, "an arithmetic shift keeps the sign"


def test_scales_of_columns_of_square_weights_are_not_those_of_rows() -> None:
    text = "x: bf16[16, 256]\nw: i8[256, 256]\ns: bf16[256]\nreturn F.linear(x, w.to(bf16) * s)\n"
    assert found(text) == {}
    assert found(text.replace("* s)", "* s[:, None])")) == {"weight_only_gemm": ""}


@pytest.mark.parametrize(("reduction", "reason"), [("mean", ""), ("none", "no gradient of every row's loss")])
def test_training_has_the_loss_of_a_linear_layer_with_its_gradients(reduction: str, reason: str) -> None:
    text = HEAD.replace("32]", "32].requires_grad")
    text += f"return F.cross_entropy(l.float().view(-1, 64), t, reduction='{reduction}')\n"
    (made,) = [c for c in candidates(lower(parse(text)), HOST) if c.name == "triton:linear_cross_entropy"]
    assert made.available is not bool(reason)
    assert reason in made.reason
    assert "from kernels.ops.trained import linear_cross_entropy" in made.call


def trained_in(text: str, kernel: str) -> list[tuple[bool, str, frozenset[str] | None]]:
    """Whether it is available, why not, and the part that it takes, of the kernel in a region with gradients."""
    region = parse(text)
    graph = replace(lower(without_grad(region)), region=region)
    return [(c.available, c.reason, c.part) for c in hand_written(graph, match(graph)) if c.name == f"triton:{kernel}"]


def test_in_training_a_kernel_with_a_backward_takes_each_of_its_parts() -> None:
    text = PLANES.replace("16, 16]", "16, 16].requires_grad")
    text += "y = F.max_pool2d(F.max_pool2d(relu(x), 3, 2, 1), 2)\nreturn F.avg_pool2d(y, 2) * 2\n"
    both = frozenset({"max_pool2d_with_indices", "max_pool2d_with_indices_1"})
    assert trained_in(text, "max_pool") == [(True, "", both)]
    assert trained_in(text, "average_pool") == [(True, "", frozenset({"avg_pool2d"}))]
    plain = candidates(lower(parse(text.replace(".requires_grad", ""))), HOST)
    assert not [c for c in plain if c.name.endswith("_pool")], "a forward is for torch.compile as a whole"


def test_a_part_whose_inside_others_read_stays() -> None:
    text = "x: f32[2, 4, 8, 8].requires_grad\ny, i = F.max_pool2d(x, 2, return_indices=True)\nreturn y * 2, i\n"
    assert trained_in(text, "max_pool") == []
    states = recurrence().replace("16]", "16].requires_grad")
    assert trained_in(states, "linear_recurrence") == [(True, "", None)]
    assert (
        trained_in(states.replace("return torch.stack(s, 1)", "return torch.stack(s, 1), h"), "linear_recurrence") == []
    )


def test_tables_that_are_learned_have_no_gradient_in_a_part_either() -> None:
    """The cosines of the rotation are computed from an input that wants a gradient."""
    text = ROPE.replace("q: f32[2, 4, 16, 8]", "q: f32[2, 4, 16, 8].requires_grad")
    text += "d = cos(c)\ny = q * d + torch.cat((-q[..., 4:], q[..., :4]), -1) * s\nreturn y * 2\n"
    assert [available for available, *_ in trained_in(text, "rope")] == [True]
    learned = text.replace("c: f32[16, 8]", "c: f32[16, 8].requires_grad")
    ((available, reason, _),) = trained_in(learned, "rope")
    assert (available, reason) == (False, "no gradient for cos")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("F.embedding_bag(i, t, o, scale_grad_by_freq=True)", "scaled by how often"),
        ("F.embedding_bag(i, t, o, sparse=True)", "sparse"),
    ],
)
def test_a_table_s_gradient_of_another_kind_is_not_ours(call: str, reason: str) -> None:
    text = BAGS.replace("16]", "16].requires_grad")
    ((available, why, _),) = trained_in(f"{text}return {call}\n", "embedding_bag")
    assert not available
    assert reason in why
    assert found(f"{BAGS}return {call}\n") == {"embedding_bag": ""}, "without a gradient it does not matter"


@pytest.mark.parametrize(("dtype", "available"), [("f32", True), ("bf16", False)])
def test_the_gradient_of_a_maximum_that_rows_of_16_bits_share_is_torch_s_own(dtype: str, available: bool) -> None:
    text = RAGGED.replace("bf16[64, 8]", f"{dtype}[64, 8].requires_grad")
    text += "return torch.segment_reduce(v, 'max', offsets=o)\n"
    assert [one for one, *_ in trained_in(text, "segment_reduce")] == [available]
