"""Serving and training packages that need a GPU of their own: SageAttention, Unsloth, vLLM's ops, FlashInfer's and
torchao's products of block-scaled numbers.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.libraries.calls.block_scales import padded_scales


def sage_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float) -> Any:
    """Scores from 8-bit integers; operands of [batch, heads, time, dimension]."""
    from sageattention import sageattn

    return sageattn(q, k, v, tensor_layout="HND", is_causal=causal, sm_scale=scale)


def unsloth_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> Any:
    """RMSNorm over the last dimension, with its backward."""
    from unsloth.kernels.rms_layernorm import Fast_RMS_Layernorm

    return Fast_RMS_Layernorm.apply(x, weight, eps)


def unsloth_swiglu(a: torch.Tensor, b: torch.Tensor) -> Any:
    """silu(a) * b of three dimensions, forward alone."""
    from unsloth.kernels.swiglu import swiglu_fg_kernel

    return swiglu_fg_kernel(_three(a), _three(b)).reshape(a.shape)


def unsloth_geglu(a: torch.Tensor, b: torch.Tensor) -> Any:
    """gelu(a) * b in its tanh form, of three dimensions, forward alone."""
    from unsloth.kernels.geglu import geglu_approx_forward_kernel

    return geglu_approx_forward_kernel(_three(a), _three(b)).reshape(a.shape)


def _three(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().reshape(1, -1, x.shape[-1])


def vllm_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> Any:
    """RMSNorm over the last dimension; it writes into a tensor that is made here."""
    from vllm import _custom_ops

    result = torch.empty_like(x)
    _custom_ops.rms_norm(result, x, weight, eps)
    return result


def flashinfer_mm_fp4(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> Any:
    """nvfp4 or mxfp4, by the scales' type. The region's scales lie in blocks of 128 by 4, as FlashInfer's do."""
    import flashinfer

    nvfp4 = scale_a.dtype == torch.float8_e4m3fn
    block = 16 if nvfp4 else 32
    scales_a = padded_scales(scale_a, a.shape[0])
    scales_b = padded_scales(scale_b, b.shape[1]).t()
    return flashinfer.mm_fp4(
        a.view(torch.uint8), b.view(torch.uint8), scales_a, scales_b, None, torch.bfloat16,
        block_size=block, use_nvfp4=nvfp4,
    )  # fmt: skip


def flashinfer_mm_mxfp8(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> Any:
    """mxfp8; its scales have one dimension, as the region's have."""
    import flashinfer

    return flashinfer.mm_mxfp8(
        a, b, scale_a.view(torch.uint8), scale_b.view(torch.uint8), out_dtype=torch.bfloat16
    )  # fmt: skip


def torchao_mx_fp8(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> Any:
    """CUTLASS's mxfp8 product, built into torchao for sm_100."""
    import torchao.ops  # noqa: F401 - registers the operation

    return torch.ops.torchao.mx_fp8_bf16(a, b, scale_a, scale_b)
