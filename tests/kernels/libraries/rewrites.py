"""Regions and the call that stands in for each: what an adapter gives has to be what the region gives."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.candidates import build
from profiler.region.language.program import program
from profiler.region.language.text import parse
from profiler.region.model import Region
from tests.kernels.libraries import texts as t

LIB, F_, FI, SDPA = (
    "library:",
    "library:torch.nn.functional.",
    "library:flashinfer.",
    "library:torch.nn.functional.scaled_dot_product_attention",
)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """candidate in the region's place. package: its import name. bound: of the largest difference, over the largest
    value. index: which output holds indices, compared by the values that they select; None for none. chance: the
    outputs are drawn at random, and only checked to be possible.
    """

    candidate: str
    package: str
    text: str
    bound: float
    index: int | None = None
    chance: bool = False


GROUPED_HEADS = """q: bf16[2, 8, 64, 64]
k: bf16[2, 2, 64, 64]
v: bf16[2, 2, 64, 64]
return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
"""
CAUSAL = """q: bf16[2, 4, 64, 64]
k: bf16[2, 4, 64, 64]
v: bf16[2, 4, 64, 64]
s = (q @ k.transpose(-1, -2)) * 0.125
m = torch.ones(64, 64, dtype=torch.bool).tril()
return softmax(s.masked_fill(~m, float("-inf")).float(), -1).to(bf16) @ v
"""
BY_HAND_GROUPS = """x: f32[8, 16, 64]
w: f32[16]
b: f32[16]
h = x.view(8, 4, -1)
m = h.mean(-1, keepdim=True)
v = h.var(-1, unbiased=False, keepdim=True)
y = ((h - m) * torch.rsqrt(v + 1e-5)).view(8, 16, 64)
return y * w[None, :, None] + b[None, :, None]
"""
BY_HAND_BATCH = """x: f32[8, 16, 14, 14]
w: f32[16]
b: f32[16]
m = x.mean((0, 2, 3), keepdim=True)
v = ((x - m) ** 2).mean((0, 2, 3), keepdim=True)
return (x - m) * torch.rsqrt(v + 1e-5) * w[:, None, None] + b[:, None, None]
"""
BY_HAND_LOSS = """x: f32[64, 1000]
t: i64[64].below(1000)
p = torch.log_softmax(x, -1)
return -p.gather(1, t[:, None]).squeeze(1).mean()
"""
WIDENED_LOSS = "x: bf16[64, 1000]\nt: i64[64].below(1000)\nreturn F.cross_entropy(x.float(), t)\n"
F32_LINEAR_LOSS = """x: f32[64, 256]
w: f32[1000, 256]
t: i64[64].below(1000)
return F.cross_entropy(x @ w.t(), t)
"""
LAYER_BF16 = t.LAYER.format(d="bf16", w="bf16")
ATTENTION = t.ATTENTION.format(d="bf16", h=64)
EXPERTS = t.EXPERTS.format(d="bf16")

ON_CPU: tuple[Rewrite, ...] = (
    Rewrite(f"{SDPA}.flash", "torch", ATTENTION, 2e-2),
    Rewrite(f"{SDPA}.flash", "torch", CAUSAL, 2e-2),
    Rewrite(SDPA, "torch", t.BY_DISTANCE.format(d="f32", kv=1, g=""), 2e-5),
    Rewrite(SDPA, "torch", t.BY_DISTANCE.format(d="bf16", kv=2, g=""), 2e-2),
    Rewrite(SDPA, "torch", t.GROUPED.format(d="f32", g=""), 2e-5),
    Rewrite(F_ + "group_norm", "torch", BY_HAND_GROUPS, 2e-6),
    Rewrite(F_ + "batch_norm", "torch", BY_HAND_BATCH, 2e-6),
    Rewrite(F_ + "cross_entropy", "torch", BY_HAND_LOSS, 2e-6),
    Rewrite(F_ + "linear_cross_entropy", "torch", F32_LINEAR_LOSS, 2e-6),
    Rewrite(F_ + "linear_cross_entropy", "torch", t.LINEAR_LOSS.format(more=", reduction='sum'"), 2e-2),
    Rewrite(F_ + "grouped_mm", "torch", EXPERTS, 1e-2),
    Rewrite(F_ + "scaled_mm", "torch", t.FP8.format(k=256), 2e-2),
    Rewrite(LIB + "torch._int_mm", "torch", t.INT8.format(m=32), 1e-6),
)
"""What torch's CPU has."""

ON_GPU: tuple[Rewrite, ...] = (
    *ON_CPU,
    Rewrite(f"{SDPA}.cudnn", "torch", ATTENTION, 2e-2),
    Rewrite(f"{SDPA}.efficient", "torch", ATTENTION, 2e-2),
    Rewrite(f"{SDPA}.efficient", "torch", t.BIASED.format(g=""), 2e-2),
    Rewrite(f"{SDPA}.efficient", "torch", t.BY_DISTANCE.format(d="bf16", kv=2, g=""), 2e-2),
    Rewrite(f"{SDPA}.efficient", "torch", t.BY_DISTANCE.format(d="f32", kv=4, g=""), 2e-5),
    Rewrite(f"{SDPA}.cudnn", "torch", t.BY_DISTANCE.format(d="bf16", kv=2, g=""), 2e-2),
    Rewrite(LIB + "torch.nn.attention.flex_attention", "torch", t.WINDOW.format(g=""), 2e-2),
    Rewrite(LIB + "liger_kernel.rms_norm", "liger_kernel", t.RMS.format(w="bf16"), 2e-2),
    Rewrite(LIB + "liger_kernel.fused_add_rms_norm", "liger_kernel", t.ADD_RMS.format(g=""), 2e-2),
    Rewrite(LIB + "liger_kernel.layer_norm", "liger_kernel", LAYER_BF16, 2e-2),
    Rewrite(LIB + "liger_kernel.group_norm", "liger_kernel", BY_HAND_GROUPS, 1e-4),
    Rewrite(LIB + "liger_kernel.group_norm", "liger_kernel", t.GROUP.format(n=512), 1e-4),
    Rewrite(LIB + "liger_kernel.softmax", "liger_kernel", t.SOFTMAX.format(m=64, dim=1), 1e-5),
    Rewrite(LIB + "liger_kernel.swiglu", "liger_kernel", t.SWIGLU.format(g=""), 2e-2),
    Rewrite(LIB + "liger_kernel.geglu", "liger_kernel", t.GEGLU.format(how="tanh"), 2e-2),
    Rewrite(LIB + "liger_kernel.rope", "liger_kernel", t.TWIN_ROPE, 2e-2),
    Rewrite(LIB + "liger_kernel.cross_entropy", "liger_kernel", t.LOSS.format(d="f32"), 1e-5),
    Rewrite(LIB + "liger_kernel.cross_entropy_narrow", "liger_kernel", WIDENED_LOSS, 4e-3),
    Rewrite(LIB + "liger_kernel.fused_linear_cross_entropy", "liger_kernel", t.LINEAR_LOSS.format(more=""), 2e-2),
    Rewrite(LIB + "quack.rmsnorm", "quack", t.RMS.format(w="bf16"), 2e-2),
    Rewrite(LIB + "quack.layernorm", "quack", t.LAYER.format(d="bf16", w="f32"), 2e-2),
    Rewrite(LIB + "quack.softmax", "quack", t.SOFTMAX.format(m=64, dim=1), 1e-5),
    Rewrite(LIB + "quack.cross_entropy", "quack", t.LOSS.format(d="f32"), 1e-5),
    Rewrite(LIB + "quack.cross_entropy", "quack", WIDENED_LOSS, 1e-5),
    Rewrite(LIB + "quack.chunked_linear_cross_entropy", "quack", t.LINEAR_LOSS.format(more=""), 2e-2),
    Rewrite(LIB + "quack.topk", "quack", t.TOPK.format(k=64), 0.0, index=1),
    Rewrite(LIB + "quack.gemm_act", "quack", t.LINEAR_RELU.format(d="bf16"), 2e-2),
    Rewrite(LIB + "flag_gems.rms_norm", "flag_gems", t.RMS.format(w="bf16"), 2e-2),
    Rewrite(LIB + "flag_gems.layer_norm", "flag_gems", LAYER_BF16, 2e-2),
    Rewrite(LIB + "flag_gems.group_norm", "flag_gems", BY_HAND_GROUPS, 1e-4),
    Rewrite(LIB + "flag_gems.softmax", "flag_gems", t.SOFTMAX.format(m=64, dim=1), 1e-5),
    Rewrite(LIB + "flag_gems.softmax", "flag_gems", t.SOFTMAX.format(m=32, dim=0), 1e-5),
    Rewrite(LIB + "flag_gems.silu_and_mul", "flag_gems", t.SWIGLU.format(g=""), 2e-2),
    Rewrite(LIB + "flag_gems.gelu_and_mul", "flag_gems", t.GEGLU.format(how="none"), 2e-2),
    Rewrite(LIB + "flag_gems.cross_entropy_loss", "flag_gems", t.LOSS.format(d="f32"), 1e-5),
    Rewrite(LIB + "flag_gems.topk", "flag_gems", t.TOPK.format(k=8), 0.0, index=1),
    Rewrite(LIB + "flag_gems.scaled_dot_product_attention", "flag_gems", CAUSAL, 2e-2),
    Rewrite(FI + "rmsnorm", "flashinfer", t.RMS.format(w="bf16"), 2e-2),
    Rewrite(FI + "fused_add_rmsnorm", "flashinfer", t.ADD_RMS.format(g=""), 2e-2),
    Rewrite(FI + "silu_and_mul", "flashinfer", t.SWIGLU.format(g=""), 2e-2),
    Rewrite(FI + "gelu_tanh_and_mul", "flashinfer", t.GEGLU.format(how="tanh"), 2e-2),
    Rewrite(FI + "top_p_sampling_from_probs", "flashinfer", t.TOP_P.format(n=1), 0.0, chance=True),
    Rewrite(LIB + "flash_attn.flash_attn_func", "flash_attn", CAUSAL, 2e-2),
    Rewrite(LIB + "flash_attn.flash_attn_func", "flash_attn", GROUPED_HEADS, 2e-2),
    Rewrite(LIB + "flash_attn.cross_entropy", "flash_attn", t.LOSS.format(d="f32"), 1e-5),
    Rewrite(LIB + "flash_attn_interface.flash_attn_func", "flash_attn_interface", CAUSAL, 2e-2),
    Rewrite(LIB + "flash_attn.cute.flash_attn_func", "flash_attn.cute", CAUSAL, 2e-2),
    Rewrite(LIB + "causal_conv1d.causal_conv1d_fn", "causal_conv1d", t.CAUSAL.format(w=4, p=3), 2e-2),
    Rewrite(LIB + "cut_cross_entropy.linear_cross_entropy", "cut_cross_entropy", t.LINEAR_LOSS.format(more=""), 2e-2),
    Rewrite(LIB + "sageattention.sageattn", "sageattention", CAUSAL, 5e-2),
    Rewrite(LIB + "unsloth.rms_norm", "unsloth", t.RMS.format(w="bf16"), 2e-2),
    Rewrite(LIB + "unsloth.swiglu", "unsloth", t.SWIGLU.format(g=""), 2e-2),
    Rewrite(LIB + "unsloth.geglu", "unsloth", t.GEGLU.format(how="tanh"), 2e-2),
    Rewrite(LIB + "vllm.rms_norm", "vllm", t.RMS.format(w="bf16"), 2e-2),
)


def inputs(region: Region, device: str) -> list[torch.Tensor]:
    """Random values: indices below their limits, masks by their share, bytes over their range."""
    torch.manual_seed(5)
    made = []
    for given, fake in zip(region.inputs, program(region).inputs, strict=True):
        size, dtype = tuple(fake.shape), fake.dtype
        if given.below is not None:
            value = torch.randint(0, given.below, size)
        elif dtype == torch.bool:
            value = torch.rand(size) < (given.ones if given.ones is not None else 0.5)
        elif not dtype.is_floating_point:
            value = torch.randint(-100 if dtype == torch.int8 else 0, 100, size).to(dtype)
        elif dtype == torch.float4_e2m1fn_x2:
            value = torch.randint(0, 256, size, dtype=torch.uint8).view(dtype)
        else:
            value = torch.randn(size).to(dtype)
        made.append(value.to(device))
    return made


def compare(rewrite: Rewrite, device: str) -> None:
    """The call's outputs against the region's own, operation by operation in f64-free eager torch; inputs unchanged."""
    region = parse(rewrite.text)
    given = inputs(region, device)
    kept = [g.clone() for g in given]
    expected = build("eager", region, {}, device)(*given)
    got = build(rewrite.candidate, region, {}, device)(*given)
    for before, after in zip(kept, given, strict=True):
        assert torch.equal(before.float(), after.float()), "an input was written into"
    for number, (mine, wanted) in enumerate(zip(got, expected, strict=True)):
        assert (mine.shape, mine.dtype) == (wanted.shape, wanted.dtype)
        if rewrite.chance:
            assert bool(((mine >= 0) & (mine < 1000)).all())
        elif number == rewrite.index:
            source = given[0]
            assert torch.equal(source.gather(-1, mine), source.gather(-1, wanted))
        else:
            off = (mine.double() - wanted.double()).abs().max().item()
            assert off <= rewrite.bound * max(1.0, wanted.double().abs().max().item())
