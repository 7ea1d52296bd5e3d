"""Whose kernels and calls they are, by names that only one library gives: what serving stacks launch. Torch-free.

A kernel with a plain C name is somebody's Triton only where no library is known for it: TensorRT-LLM's generated
products (`bmm_MxE4m3_...`), which FlashInfer, vLLM and SGLang launch, are C symbols as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_KERNELS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (library, re.compile(pattern))
    for library, pattern in (
        ("TensorRT-LLM", r"^bmm_(?:Mx|[EU]\d|B?[Ff](?:loat|p)?\d|Int)|^fmhaSm\d+|tensorrt_llm|trtllm"),
        ("DeepGEMM", r"deep_gemm::|^sm\d+_(?:fp8|bf16)_(?:m_grouped_)?gemm_1d\dd"),
        ("DeepEP", r"deep_ep::"),
        ("FlashInfer", r"(?<!create_)flashinfer"),
        ("AITER", r"^_ZN5aiter|\baiter::|^aiter_|^_ZN7aiter|^fmoe_|^mla_(?:a8|dec)"),
        ("Composable Kernel", r"^_ZN7ck_tile|ck_tile::|^_ZN2ck16|\bck::tensor_operation"),
        ("triton_kernels", r"^_(?:p_)?matmul_ogs|^_topk_forward|^_topk_backward|^_sum_bitmatrix|^_combined_routing"
         r"|^_routing_|^_finalize_matmul|^_expt_data"),
        ("vLLM", r"\bvllm::|^_ZN4vllm|^kernel_unified_attention|^reduce_segments$|^fused_moe_kernel|^_moe_mmk"
         r"|^_paged_attn_reduce|paged_attention_v\d_kernel|paged_attention_ll4mi|reshape_and_cache|topkGatingSoftmax"
         r"|moe_align_block_size|^act_and_mul_kernel|\bmarlin::|\bMarlin"),
        ("SGLang", r"sgl_hip|sgl_kernel|\bsglang|^compute_position_kernel$|^create_flashinfer_kv_indices"
         r"|store_kvcache<|resolve_future_token_ids|^_fwd_grouped_kernel_stage|^_fwd_kernel_stage2$|^write_req_to_token"),
        ("FlashAttention", r"^void flash::|^flash_(?:fwd|bwd)_|FlashAttnFwd"),
        ("FBGEMM", r"fbgemm|split_embedding"),
        ("Transformer Engine", r"transformer_engine"),
        ("xFormers", r"xformers"),
        ("Mamba", r"selective_scan_(?:fwd|bwd)_kernel|causal_conv1d_(?:fwd|bwd|update)"),
    )
)  # fmt: skip
"""The first row that has the name wins: whoever wrote a kernel before who launches it."""

_CALLS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (library, re.compile(pattern))
    for library, pattern in (
        ("AITER", r"^aiter::|^vllm::rocm_aiter_|^sglang_profiler::.*aiter"),
        ("FlashInfer", r"^flashinfer::|^vllm::flashinfer_|^sglang::flashinfer_"),
        ("TensorRT-LLM", r"^trtllm::|^tensorrt_llm::"),
        ("DeepGEMM", r"^deep_gemm::|^vllm::.*deep_gemm"),
        ("Marlin", r"^_(?:moe_)?C::.*marlin|^gptq_marlin"),
        ("vLLM", r"^vllm::|^_C::|^_moe_C::|^_C_cache_ops::|^_rocm_C::|^_vllm_fa\d_C::"),
        ("SGLang", r"^sgl_kernel::|^sglang::|^sglang_profiler::"),
        ("FlashAttention", r"^flash_attn(?:_\w+)?::|^_flash_attn"),
        ("FBGEMM", r"^fbgemm::|\bSplitLookupFunction_"),
        ("torchao", r"^torchao::"),
        ("Transformer Engine", r"^(?:tex|transformer_engine)::"),
        ("xFormers", r"^xformers"),
        ("Mamba", r"^mamba_ssm::|^causal_conv1d::"),
    )
)  # fmt: skip
"""Operations by namespace and name: whose they are."""

_WHAT: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        ("mixture of experts", r"moe_forward|fused_moe|fused_experts|grouped_(?:gemm|mm)|moe_wna16|cutlass_moe"),
        ("router", r"topk_softmax|topk_sigmoid|grouped_topk|moe_align|moe_sum|biased_grouped|topk"),
        ("cache write", r"kv_cache_update|reshape_and_cache|store_cache|set_kv_buffer|concat_and_cache"),
        ("prefill attention", r"prefill"),
        ("decode attention", r"paged_attention|decode|pa_fwd"),
        ("attention", r"attention|mha|mla|flash_attn|_fmha|attn"),
        ("RMSNorm", r"rms_?norm"),
        ("rotary embedding", r"rotary|rope"),
        ("gated activation", r"silu_and_mul|gelu_and_mul|gelu_tanh_and_mul|swiglu|act_and_mul"),
        ("quantisation", r"quant"),
        ("matrix product", r"gemm|_mm\b|matmul|linear|scaled_mm"),
        ("embedding bags of a table batch",
         r"embedding_codegen_lookup|split_embedding|table_batched|SplitLookupFunction"),
        ("state-space scan", r"selective_scan|ssd_|mamba"),
        ("sampling", r"sampl|top_k_top_p|argmax"),
        ("all-reduce", r"all_reduce|allreduce"),
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A call of a library: whose, and what it computes, "" where its name does not tell."""

    library: str
    what: str

    def __str__(self) -> str:
        return f"{self.library}'s {self.what}" if self.what else self.library


@lru_cache(maxsize=8192)
def library_of_kernel(name: str) -> str:
    """The library whose kernel it is, "" where its name is nobody's in particular."""
    return next((library for library, names in _KERNELS if names.search(name[:400])), "")


@lru_cache(maxsize=1024)
def library_call(operation: str) -> LibraryCall | None:
    """The library's call that a custom operation is, by its name; None where it is nobody's that is known."""
    library = next((library for library, names in _CALLS if names.search(operation)), None)
    if library is None:
        return None
    name = operation.partition("::")[2] or operation
    return LibraryCall(library, next((what for what, words in _WHAT if words.search(name)), ""))
