"""What a user would call instead of our kernels: torch's library call, Liger, FlagGems, quack, each by operation.

What a peer does not do is said in its name ("no bias").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.operations import peer_calls as calls
from benchmarks.operations.peer_builders import LIGER, Builder, Call, always, backward_of, of, only

aten = torch.ops.aten
PEERS: Mapping[str, Mapping[str, Builder]] = {
    "softmax": {
        "F.softmax": always(lambda x, widen: F.softmax(x, -1, dtype=torch.float32 if widen else None)),
        "liger": of(f"{LIGER}.softmax", "LigerSoftmaxFunction", lambda f, x, *_: f.apply(x)),
        "quack": of("quack.softmax", "softmax_fwd", lambda f, x, *_: f(x)),
        "flag_gems": of("flag_gems", "softmax", lambda f, x, *_: f(x, -1)),
    },
    "softmax_long": {
        "F.softmax": always(lambda x, widen: F.softmax(x, -1, dtype=torch.float32 if widen else None)),
    },
    "softmax_backward": {
        "quack": of("quack.softmax", "softmax_bwd", lambda f, dy, y: f(dy, y)),
    },
    "cross_entropy": {
        "F.cross_entropy": always(calls.cross_entropy),
        "quack": only(calls.plain, "plain mean only", of("quack.cross_entropy", "cross_entropy_fwd", calls.quack_loss)),
    },
    "cross_entropy_with_gradient": {
        "F.cross_entropy": always(calls.cross_entropy_with_gradient),
        "liger (in place)": calls.liger_loss_and_gradient,
        "quack (unscaled gradient)": only(
            calls.plain, "plain mean only",
            of("quack.cross_entropy", "cross_entropy_fwd", calls.quack_loss_and_gradient),
        ),
    },
    "rms_norm": {
        "liger": of(f"{LIGER}.rms_norm", "rms_norm_forward", lambda f, x, w, e: f(x, w, e, 0.0, "llama", None)[0]),
        "quack": of("quack.rmsnorm", "rmsnorm_fwd", lambda f, x, w, e: f(x, w, eps=e)[0]),
        "flag_gems": of("flag_gems", "rms_norm", lambda f, x, w, e: f(x, calls.rows(x), w, e)),
    },
    "add_rms_norm": {
        "liger": of(
            f"{LIGER}.fused_add_rms_norm", "fused_add_rms_norm_forward",
            lambda f, x, r, w, e: f(x, r, w, e, 0.0, "llama")[:2],
        ),
        "quack": of("quack.rmsnorm", "rmsnorm_fwd", lambda f, x, r, w, e: f(x, w, residual=r, eps=e)[:2]),
    },
    "rms_norm_backward": {
        "aten._fused_rms_norm_backward": always(
            lambda dy, x, w, rstd: aten._fused_rms_norm_backward(dy, x, calls.rows(x), rstd[..., None], w, [True, True])
        ),
        "liger": backward_of(
            f"{LIGER}.rms_norm", "LigerRMSNormFunction", lambda f, x, w: f.apply(x, w, 1e-6, 0.0, "llama", False),
            lambda x, w, *_: (x, w),
        ),
        "quack": of("quack.rmsnorm", "rmsnorm_bwd", lambda f, dy, x, w, rstd: f(x, w, dy, rstd)[:2]),
    },
    "layer_norm": {
        "liger": of(f"{LIGER}.layer_norm", "layer_norm_forward", lambda f, x, w, b, e: f(x, w, b, e)[0]),
        "quack (f32 weight)": of("quack.rmsnorm", "layernorm_fwd", calls.quack_layer_norm),
        "flag_gems": of("flag_gems", "layer_norm", lambda f, x, w, b, e: f(x, calls.rows(x), w, b, e)[0]),
    },
    "layer_norm_backward": {
        "aten.native_layer_norm_backward": only(
            lambda c: bool(c.get("stats", True)), "without statistics",
            always(lambda dy, x, w, m, r, *_: aten.native_layer_norm_backward(
                dy, x, calls.rows(x), m[..., None], r[..., None], w, torch.zeros_like(w), [True, True, True])),
        ),
        "quack": only(
            lambda c: bool(c.get("stats", True)), "without statistics",
            of("quack.rmsnorm", "layernorm_bwd", lambda f, dy, x, w, m, r, *_: f(x, w, dy, r, m)),
        ),
    },
    "top_k": {
        "quack": of("quack.topk", "topk", lambda f, x, k: f(x, k)),
        "flag_gems": of("flag_gems", "topk", lambda f, x, k: f(x, k)),
    },
    "cumsum": {"flag_gems": of("flag_gems", "cumsum", lambda f, x: f(x, -1))},
    "matmul": {
        "quack": of("quack.gemm_interface", "gemm", lambda f, a, b, *_: f(a, b)),
        "flag_gems": of("flag_gems", "mm", lambda f, a, b, *_: f(a, b)),
    },
    "matmul_epilogue": {
        "addmm_activation (cuBLASLt)": only(
            lambda c: c.get("activation", "gelu") == "gelu_tanh" and not c.get("mask", "dtype"),
            "bias and tanh-GELU only", always(calls.addmm_activation),
        ),
    },
    "scaled_gemm": {
        "_scaled_mm": calls.scaled_mm(fast=False), "_scaled_mm (fast sums)": calls.scaled_mm(fast=True),
        "scaled_mm (blocks)": calls.scaled_mm_blocks, "_int_mm": calls.int_mm,
    },
    "weight_only_gemm": {
        "_weight_int8pack_mm": calls.weight_int8pack_mm, "_weight_int4pack_mm": calls.weight_int4pack_mm,
        "torchao (int8)": calls.torchao_int8, "gemlite": calls.gemlite,
        "unpacked, F.linear": calls.unpacked_then_product,
    },
    "linear_cross_entropy": {
        "F.linear_cross_entropy": of(
            "torch.nn.functional", "linear_cross_entropy", lambda f, *a: calls.torch_linear_loss(f, *a).float()
        ),
        "f32 logits, F.cross_entropy": always(calls.two_steps),
        "cut_cross_entropy": of(
            "cut_cross_entropy", "linear_cross_entropy",
            lambda f, x, w, t, ignore, reduction: f(x, w, t, ignore_index=ignore, reduction=reduction).float(),
        ),
    },
    "linear_cross_entropy_with_gradient": {
        "F.linear_cross_entropy": calls.linear_loss_with_gradients(
            "torch.nn.functional", "linear_cross_entropy", calls.torch_linear_loss
        ),
        "liger": calls.linear_loss_with_gradients(
            f"{LIGER}.fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction",
            lambda f, x, w, t, ignore, reduction: f.apply(x, w, t, None, None, ignore, 0.0, 0.0, reduction),
        ),
        "quack": calls.linear_loss_with_gradients(
            "quack.linear_cross_entropy", "chunked_linear_cross_entropy",
            lambda f, x, w, t, ignore, reduction: f(x, w, t, ignore_index=ignore, reduction=reduction),
        ),
        "cut_cross_entropy": calls.linear_loss_with_gradients(
            "cut_cross_entropy", "linear_cross_entropy",
            lambda f, x, w, t, ignore, reduction: f(x, w, t, ignore_index=ignore, reduction=reduction),
        ),
    },
    "grouped_gemm": {"_grouped_mm": calls.grouped_mm},
    "grouped_gemm_backward": {"_grouped_mm": calls.grouped_mm_backward},
    "gated_activation": {
        "liger": only(
            lambda c: c.get("activation", "silu") == "silu", "SwiGLU only",
            of(f"{LIGER}.swiglu", "swiglu_forward", lambda f, a, b, *_: f(a, b)[2]),
        ),
        "flag_gems": only(
            lambda c: c.get("activation", "silu") == "silu", "SwiGLU only",
            of("flag_gems", "silu_and_mul", lambda f, a, b, *_: f(a, b)),
        ),
    },
    "flash_attention": {
        "SDPA cuDNN": calls.sdpa("CUDNN_ATTENTION"), "SDPA flash": calls.sdpa("FLASH_ATTENTION"),
        "SDPA efficient": calls.sdpa("EFFICIENT_ATTENTION"), "FlexAttention": calls.flex,
    },
    "attention_backward": {
        "SDPA cuDNN": calls.backward_of_attention(calls.sdpa("CUDNN_ATTENTION")),
        "SDPA flash": calls.backward_of_attention(calls.sdpa("FLASH_ATTENTION")),
        "FlexAttention": calls.backward_of_attention(calls.flex),
    },
    "paged_decode": {
        "flashinfer": only(
            lambda c: not c.get("ragged") and not c.get("logsumexp"), "full lengths, no log-sum-exp",
            calls.flashinfer_decode,
        ),
    },
    "causal_conv1d": {
        "causal_conv1d": only(
            lambda c: not c.get("state") and not c.get("final"), "without states",
            of("causal_conv1d", "causal_conv1d_fn", lambda f, x, w, b, act, *_: f(x, w, b, activation=act)),
        ),
        "fla": only(
            lambda c: bool(c.get("last")) and not c.get("state") and not c.get("final"), "channels last, no states",
            of("fla.modules.causal_conv1d.ops", "causal_conv1d", calls.fla_conv),
        ),
    },
    "causal_conv1d_backward": {
        "causal_conv1d": only(
            lambda c: not c.get("state") and not c.get("final"), "without states", calls.causal_conv1d_backward
        ),
    },
    "gated_linear_attention": {"fla": of("fla.ops.simple_gla", "chunk_simple_gla", calls.fla_decayed)},
    "selective_scan": {"mamba_ssm": calls.mamba},
    "selective_scan_backward": {"mamba_ssm": calls.mamba_backward},
    "adamw_many": {
        "torch._fused_adamw_": only(
            lambda c: c.dtype == "f32" and not c.get("scaled"), "moments in the parameters' dtype only",
            calls.fused_adamw,
        ),
        "torch._fused_adamw_ (moments of 16 bits)": only(
            lambda c: c.dtype != "f32" and not any(map(c.get, ("master", "wide", "scaled"))), "16 bits alone",
            calls.fused_adamw,
        ),
    },
    "group_norm_silu": {
        "liger (no activation)": only(
            lambda c: not c.get("last") and c.get("weight", True), "contiguous, with weight and bias",
            of(f"{LIGER}.group_norm", "group_norm_forward",
               lambda f, x, g, w, b, e, _: F.silu(f(x, x.shape[1], g, w, b, e)[0])),
        ),
        "flag_gems (no activation)": only(
            lambda c: not c.get("last"), "contiguous",
            of("flag_gems", "group_norm", lambda f, x, g, w, b, e, _: F.silu(
                f(x, w, b, x.shape[0], x.shape[1], x[0, 0].numel(), g, e)[0])),
        ),
    },
    "segment_reduce": {
        "torch.segment_reduce": always(
            lambda x, offsets, mode: torch.segment_reduce(x, mode, offsets=offsets, axis=0, unsafe=True)
        ),
    },
    "rms_norm_quantise": {
        "vllm": only(
            calls.codes_alone("row", False), "scales of rows, no residual: it writes over that",
            of("vllm._custom_ops", "rms_norm_dynamic_per_token_quant", calls.norm_to_codes),
        ),
        "vllm (blocks)": only(
            calls.codes_alone("block", False), "scales of blocks, no residual",
            of("vllm._custom_ops", "rms_norm_per_block_quant", calls.norm_to_blocks),
        ),
        "flashinfer (residual in place)": only(
            calls.codes_alone("tensor", True), "a given scale, with a residual", calls.flashinfer_norm_to_codes
        ),
    },
    "embedding_bag": {
        "F.embedding_bag": always(
            lambda table, indices, offsets, weights, mode: F.embedding_bag(
                indices, table, offsets, mode=mode, per_sample_weights=weights, include_last_offset=True)
        ),
    },
    "max_pool": {
        "F.max_pool2d": always(
            lambda x, w: F.max_pool2d(x, w.size, w.strides, w.padding, w.dilation, w.ceil)
        ),
    },
    "average_pool": {
        "F.avg_pool2d": always(lambda x, w: F.avg_pool2d(x, w.size, w.strides, w.padding, w.ceil, w.counted)),
    },
    "average_pool_backward": {"aten.avg_pool2d_backward": calls.average_pool_backward},
    "embedding_bag_backward": {
        "aten._embedding_bag_backward": only(
            lambda c: not c.get("weights"), "without the gradient of sample weights", calls.bag_backward
        ),
    },
    "top_k_top_p_sample": {
        "flashinfer (its own random numbers)": only(
            lambda c: bool(c.get("k") and c.get("p")) and not c.get("t") and c.dtype == "f32", "k and p, f32",
            of("flashinfer.sampling", "top_k_top_p_sampling_from_logits", lambda f, x, u, k, p, t: f(x, k, p)),
        ),
    },
    "max_pool_backward": {"aten.max_pool2d_with_indices_backward": calls.max_pool_backward},
    "depthwise_conv": {
        "F.conv2d": always(lambda x, w, b, p: F.conv2d(x, w, b, padding=p, groups=x.shape[1])),
    },
}  # fmt: skip
"""Operation -> peer -> builder. An operation whose reference is torch's own call has it as "eager" as well. Batch norm
of inference with its activation, and LayerNorm to 8 bits with scales of rows, no library has as one call."""


def _mask_backward(dy: torch.Tensor, p: float, *_: Any) -> torch.Tensor:
    """torch's: a mask that the forward kept is read as well as dy."""
    if "mask" not in _kept or _kept["mask"].shape != dy.shape:
        _kept["mask"] = aten.native_dropout(dy, p, True)[1]
    result: torch.Tensor = aten.native_dropout_backward(dy, _kept["mask"], 1 / (1 - p))
    return result


_kept: dict[str, torch.Tensor] = {}
RIVALS: Mapping[str, Call] = {
    "dropout": lambda x, p, *_: F.dropout(x, p), "dropout_backward": _mask_backward,
}  # fmt: skip
"""What eager and torch.compile run where the reference is exact, but nothing that anybody would run: these draw other
random numbers, so their results are not compared."""


UNFAIR = frozenset({"selective_scan", "selective_scan_backward", "gated_linear_attention"})
"""Operations whose reference is a formula that nobody would run: all states of all steps, or all pairs of steps, in
memory. What eager and torch.compile make of it is shown, but a row is not won against it."""
UNLIKE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("matmul", "f32 m=4096 k=4096 n=4096"): {
        "flag_gems": "multiplies each f32 as a sum of TF32 numbers on tensor cores (tf32x3), the row's products are "
        "f32's own (FMA), as cuBLAS's; sums of parts stand in the row of precision=bf16x6, FlagGems's with them",
    },
}
"""Row -> peer -> what else it computes: its time is shown there, and is held against ours in the row of its like."""


def peers_of(name: str) -> Mapping[str, Builder]:
    """Of one operation; none where there is no library call."""
    return PEERS.get(name, {})
