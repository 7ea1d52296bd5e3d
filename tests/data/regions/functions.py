"""The regions of regions.json as PyTorch functions, by name: what the texts in tests/regions are held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Given:
    """One argument. below: where it is an index, what it stays below."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    below: int | None = None


@dataclass(frozen=True)
class Case:
    """A function and its arguments. backward: it is timed with its gradients."""

    function: Callable[..., Any]
    arguments: Sequence[Given]
    backward: bool = False


def _given(*shape: int, dtype: torch.dtype = torch.bfloat16, below: int | None = None) -> Given:
    return Given(shape, dtype, below)


def bias_gelu_mask(x, b, m):
    return F.gelu(x + b) * m


def chain12(x, y):
    z = x * 1.7 + y
    z = torch.tanh(z)
    z = z * z + x
    z = torch.sigmoid(z) * y
    z = torch.clamp(z, -3, 3)
    z = torch.where(z > 0, z, z * 0.1)
    return (z * 2.0 + 1.0).to(torch.bfloat16)


def swiglu(a, b):
    return F.silu(a) * b


def rms_manual(x, w):
    v = x.float().pow(2).mean(-1, keepdim=True)
    return (x.float() * torch.rsqrt(v + 1e-06)).to(x.dtype) * w


def add_rms(x, r, w):
    s = x + r
    return (rms_manual(s, w), s)


def ln_bwd(x, dy, w):
    xf, df = (x.float(), dy.float() * w.float())
    m = xf.mean(-1, keepdim=True)
    r = torch.rsqrt(xf.var(-1, unbiased=False, keepdim=True) + 1e-05)
    xh = (xf - m) * r
    dx = (df - df.mean(-1, keepdim=True) - xh * (df * xh).mean(-1, keepdim=True)) * r
    return (dx.to(x.dtype), (dy.float() * xh).sum(0), dy.float().sum(0))


def rope(x, c, s):
    return x * c + torch.cat((-x[..., 64:], x[..., :64]), -1) * s


def softmax_row(x):
    return torch.softmax(x.float(), -1).to(x.dtype)


def huge_sm(x):
    return torch.softmax(x.float(), -1)


def fp8q(x):
    a = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-12)
    s = a / 448.0
    return ((x.float() / s).clamp(-448, 448).to(torch.float8_e4m3fn), s)


def drop_add_ln(x, r, w, b):
    return F.layer_norm(F.dropout(x, 0.1, True) + r, (x.shape[-1],), w, b)


def tiny_chain(x, w):
    for _ in range(10):
        x = torch.tanh(x * w + 0.1)
    return x


def w8_gemv(x, wq, s):
    return F.linear(x, wq.to(x.dtype)) * s


def attn(q, k, v):
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** (-0.5)
    m = torch.ones(s.shape[-2:], device=s.device, dtype=torch.bool).tril()
    return torch.softmax(s.masked_fill(~m, float("-inf")).float(), -1).to(v.dtype) @ v


def attn_bi(q, k, v):
    return torch.softmax((q @ k.transpose(-1, -2)).float() * q.shape[-1] ** (-0.5), -1).to(v.dtype) @ v


def decode_attn(q, kc, vc, bt):
    k = kc[bt].flatten(1, 2)
    v = vc[bt].flatten(1, 2)
    s = torch.einsum("bhd,bthd->bht", q, k).float() * 0.088
    return torch.einsum("bht,bthd->bhd", torch.softmax(s, -1).to(v.dtype), v)


def lmce(x, w, t):
    return F.cross_entropy((x @ w.t()).float(), t)


def ln_manual(x, w, b):
    m = x.mean(-1, keepdim=True)
    v = ((x - m) ** 2).mean(-1, keepdim=True)
    return (x - m) * torch.rsqrt(v + 1e-05) * w + b


def fp8dq_mm(a, sa, b, sb):
    return (a.to(torch.float32) * sa @ (b.to(torch.float32) * sb).t()).to(torch.bfloat16)


def w4mm(x, w, s, z):
    lo = (w & 15).to(x.dtype)
    hi = (w >> 4).to(x.dtype)
    q = torch.stack((lo, hi), -1).flatten(1)
    q = (q.view(q.shape[0], -1, 128) - z[..., None]) * s[..., None]
    return F.linear(x, q.flatten(1))


def moe_loop(x, w1, w3, w2, idx, p):
    y = torch.zeros_like(x)
    for e in range(w1.shape[0]):
        t, kk = torch.where(idx == e)
        xe = x[t]
        y.index_add_(0, t, F.silu(xe @ w1[e]) * (xe @ w3[e]) @ w2[e] * p[t, kk, None])
    return y


def topp(logits):
    p = torch.softmax(logits.float(), -1)
    s, i = torch.sort(p, -1, descending=True)
    c = s.cumsum(-1)
    s = torch.where(c - s > 0.9, torch.zeros_like(s), s)
    s = s / s.sum(-1, keepdim=True)
    return torch.gather(i, 1, torch.multinomial(s, 1))


def causal_conv(x, w):
    return F.silu(F.conv1d(F.pad(x, (3, 0)), w, groups=x.shape[1]))


def adam(p, g, m, v):
    m2 = m * 0.9 + g * 0.1
    v2 = v * 0.999 + g * g * 0.001
    return (p - 0.001 * m2 / (v2.sqrt() + 1e-08), m2, v2)


def kvapp(kc, vc, k, v, slot):
    return (kc.index_put((slot,), k), vc.index_put((slot,), v))


def router(logits):
    p = torch.softmax(logits.float(), -1)
    w, i = torch.topk(p, 8, -1)
    return (w / w.sum(-1, keepdim=True), i)


def rms_chan(x):
    return x / torch.sqrt(x.pow(2).mean(1, keepdim=True) + 1e-05)


def dw2(x, w):
    return F.conv2d(x, w, groups=x.shape[1])


def mm_ln(x, w, g, b):
    return F.layer_norm((x @ w).float(), (w.shape[1],), g.float(), b.float()).to(x.dtype)


def mlp2(x, w1, w2):
    return torch.relu(x @ w1) @ w2


def infonce(x, y):
    return torch.logsumexp((x @ y.t()).float() * 20.0, 1)


def recur(a, b):
    hh = torch.zeros_like(b[:, 0])
    o = []
    for t in range(b.shape[1]):
        hh = a[:, t] * hh + b[:, t]
        o.append(hh)
    return torch.stack(o, 1)


def jmean(v, off):
    lengths = off[1:] - off[:-1]
    seg = torch.repeat_interleave(torch.arange(lengths.shape[0], device=v.device), lengths, output_size=v.shape[0])
    return (
        torch.zeros(lengths.shape[0], v.shape[1], device=v.device, dtype=v.dtype).index_add(0, seg, v)
        / lengths[:, None]
    )


def two_axis(x):
    return (x.float().sum(0), x.float().sum(1))


def outer_sm(x):
    return torch.softmax(x.float(), 0)


def gn(x, w, b):
    return F.group_norm(x, x.shape[1] // 4, w, b)


def mm(a, b):
    return a @ b


def gae(r, v):
    d = r + 0.99 * v
    return torch.flip(torch.cumsum(torch.flip(d, [0]), 0), [0])


def spmax(x):
    z, _ = torch.sort(x, -1, descending=True)
    k = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    c = z.cumsum(-1)
    s = (1 + k * z > c).sum(-1, keepdim=True)
    t = (torch.gather(c, -1, s - 1) - 1) / s
    return torch.clamp(x - t, min=0)


def fftc(x, k):
    return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(k), n=x.shape[-1])


CASES = {
    "bias_gelu_mask": Case(bias_gelu_mask, [_given(8192, 4096), _given(4096), _given(8192, 4096)]),
    "pointwise_chain_12": Case(
        chain12, [_given(4096, 16384, dtype=torch.float32), _given(4096, 16384, dtype=torch.float32)]
    ),
    "swiglu_act_fwd_bwd": Case(swiglu, [_given(3072, 12288), _given(3072, 12288)], backward=True),
    "rmsnorm_manual_fwd": Case(rms_manual, [_given(2048, 4096), _given(4096)]),
    "add_rmsnorm_residual": Case(add_rms, [_given(2048, 5120), _given(2048, 5120), _given(5120)]),
    "layernorm_backward_manual": Case(ln_bwd, [_given(8192, 4096), _given(8192, 4096), _given(4096)]),
    "rope_rotate_half": Case(rope, [_given(4, 32, 2048, 128), _given(2048, 128), _given(2048, 128)]),
    "softmax_rows_4k": Case(softmax_row, [_given(16384, 4096)]),
    "softmax_rows_1M_few": Case(huge_sm, [_given(4, 1048576)]),
    "softmax_rows_128k": Case(huge_sm, [_given(4096, 131072)]),
    "fp8_quant_per_token": Case(fp8q, [_given(2048, 5120)]),
    "dropout_add_layernorm": Case(drop_add_ln, [_given(8192, 4096), _given(8192, 4096), _given(4096), _given(4096)]),
    "launch_bound_tiny_chain": Case(tiny_chain, [_given(1, 4096), _given(4096)]),
    "int8_weight_only_decode": Case(w8_gemv, [_given(1, 4096), _given(14336, 4096, dtype=torch.int8), _given(14336)]),
    "manual_causal_attention": Case(
        attn, [_given(2, 32, 4096, 128), _given(2, 32, 4096, 128), _given(2, 32, 4096, 128)]
    ),
    "manual_attention_short": Case(
        attn_bi, [_given(16, 16, 1024, 64), _given(16, 16, 1024, 64), _given(16, 16, 1024, 64)]
    ),
    "paged_decode_attention": Case(
        decode_attn,
        [
            _given(32, 32, 128),
            _given(8192, 16, 32, 128),
            _given(8192, 16, 32, 128),
            _given(32, 128, dtype=torch.int64, below=8192),
        ],
    ),
    "lm_head_ce_fits_memory": Case(
        lmce, [_given(4096, 4096), _given(128256, 4096), _given(4096, dtype=torch.int64, below=128256)], backward=True
    ),
    "lm_head_ce_memory_bound": Case(
        lmce, [_given(32768, 4096), _given(128256, 4096), _given(32768, dtype=torch.int64, below=128256)], backward=True
    ),
    "manual_layernorm": Case(
        ln_manual,
        [_given(8192, 1024, dtype=torch.float32), _given(1024, dtype=torch.float32), _given(1024, dtype=torch.float32)],
        backward=True,
    ),
    "fp8_rowwise_gemm_naive": Case(
        fp8dq_mm,
        [
            _given(4096, 4096, dtype=torch.float8_e4m3fn),
            _given(4096, 1, dtype=torch.float32),
            _given(14336, 4096, dtype=torch.float8_e4m3fn),
            _given(14336, 1, dtype=torch.float32),
        ],
    ),
    "w4a16_decode_m16": Case(
        w4mm,
        [
            _given(16, 4096, dtype=torch.float16),
            _given(14336, 2048, dtype=torch.uint8),
            _given(14336, 32, dtype=torch.float16),
            _given(14336, 32, dtype=torch.float16),
        ],
    ),
    "w4a16_prefill_m2048": Case(
        w4mm,
        [
            _given(2048, 4096, dtype=torch.float16),
            _given(14336, 2048, dtype=torch.uint8),
            _given(14336, 32, dtype=torch.float16),
            _given(14336, 32, dtype=torch.float16),
        ],
    ),
    "moe_expert_loop_sm90": Case(
        moe_loop,
        [
            _given(8192, 2048),
            _given(128, 2048, 768),
            _given(128, 2048, 768),
            _given(128, 768, 2048),
            _given(8192, 8, dtype=torch.int64, below=128),
            _given(8192, 8),
        ],
    ),
    "top_p_sampling_sort": Case(topp, [_given(128, 131072)]),
    "causal_conv1d_silu": Case(causal_conv, [_given(1, 4096, 2048), _given(4096, 1, 4)]),
    "adam_step_manual": Case(
        adam,
        [
            _given(4096, 4096, dtype=torch.float32),
            _given(4096, 4096, dtype=torch.float32),
            _given(4096, 4096, dtype=torch.float32),
            _given(4096, 4096, dtype=torch.float32),
        ],
    ),
    "kv_cache_append": Case(
        kvapp,
        [
            _given(131072, 8, 128),
            _given(131072, 8, 128),
            _given(256, 8, 128),
            _given(256, 8, 128),
            _given(256, dtype=torch.int64, below=131072),
        ],
    ),
    "moe_router_softmax_topk": Case(router, [_given(16384, 128)]),
    "rmsnorm_channel_dim": Case(rms_chan, [_given(32, 64, 512, 512)]),
    "depthwise_conv2d_k3": Case(
        dw2, [_given(16, 64, 512, 512, dtype=torch.float32), _given(64, 1, 3, 3, dtype=torch.float32)]
    ),
    "gemm_layernorm_epilogue": Case(mm_ln, [_given(131072, 256), _given(256, 256), _given(256), _given(256)]),
    "tiny_hidden_fused_mlp": Case(
        mlp2,
        [
            _given(1048576, 64, dtype=torch.float16),
            _given(64, 64, dtype=torch.float16),
            _given(64, 64, dtype=torch.float16),
        ],
    ),
    "gemm_logsumexp": Case(infonce, [_given(32768, 512), _given(32768, 512)]),
    "linear_recurrence_loop": Case(
        recur, [_given(64, 128, 256, dtype=torch.float32), _given(64, 128, 256, dtype=torch.float32)]
    ),
    "jagged_mean": Case(
        jmean, [_given(131072, 128, dtype=torch.float32), _given(513, dtype=torch.int64, below=131072)]
    ),
    "two_axis_reduction": Case(two_axis, [_given(16384, 16384)]),
    "outer_dim_softmax_short": Case(outer_sm, [_given(32, 2097152, dtype=torch.float32)]),
    "group_norm_many_groups": Case(
        gn,
        [
            _given(128, 2048, 512, dtype=torch.float32),
            _given(2048, dtype=torch.float32),
            _given(2048, dtype=torch.float32),
        ],
        backward=True,
    ),
    "square_gemm_8k": Case(mm, [_given(8192, 8192), _given(8192, 8192)]),
    "fp32_matmul_no_tf32": Case(mm, [_given(4096, 4096, dtype=torch.float32), _given(4096, 4096, dtype=torch.float32)]),
    "gae_tiny_share": Case(gae, [_given(128, 2048, dtype=torch.float32), _given(128, 2048, dtype=torch.float32)]),
    "sparsemax_sort_bound": Case(spmax, [_given(2048, 32768, dtype=torch.float32)]),
    "fft_conv": Case(fftc, [_given(64, 512, 8192, dtype=torch.float32), _given(512, 8192, dtype=torch.float32)]),
}
