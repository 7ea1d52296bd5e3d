"""Whose kernels and calls they are: names that a library gives are its own, a plain name nobody's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler.trace import read_trace
from profiler.trace.analyze.kernel_provenance import hand_written_triton, library_times
from profiler.trace.analyze.known_libraries import library_call, library_of_kernel
from tests.profiler.trace.files import kernel, launch, op, real, written

KERNELS = {
    "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_bA32_bB32_bC32_t128x8x512_s4_et128x8_m128x8x32_cga1x1x1_16dp256b": "TensorRT-LLM",
    "bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s7_et64x8_m64x8x32": "TensorRT-LLM",
    "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256_s5": "TensorRT-LLM",
    "fmhaSm100aKernel_QkvBfloat16OBfloat16H64PagedKvCausalP64VarSeqQ16Kv128PersistentSwapsAbForGen": "TensorRT-LLM",
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELi8EEEvPT0_": "AITER",
    "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelI": "Composable Kernel",
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu": "triton_kernels",
    "kernel_unified_attention_2d": "vLLM",
    "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)": "vLLM",
    "create_flashinfer_kv_indices_triton": "SGLang",
    "void flashinfer::BatchDecodeWithPagedKVCacheKernel<int>(Params)": "FlashInfer",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>": "FlashAttention",
    "void at::native::vectorized_elementwise_kernel<4>": "",
    "bmm_of_mine": "",
    "my_rms_norm_kernel": "",
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT": "",
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernels_library_is_told_by_names_that_only_it_gives(name: str) -> None:
    assert library_of_kernel(name) == KERNELS[name]


CALLS = {
    "vllm::moe_forward": "vLLM's mixture of experts",
    "vllm::moe_forward_shared": "vLLM's mixture of experts",
    "vllm::unified_attention_with_output": "vLLM's attention",
    "vllm::unified_kv_cache_update": "vLLM's cache write",
    "_C_cache_ops::reshape_and_cache_flash": "vLLM's cache write",
    "_C::rotary_embedding": "vLLM's rotary embedding",
    "_C::silu_and_mul": "vLLM's gated activation",
    "_moe_C::topk_softmax": "vLLM's router",
    "vllm::rocm_aiter_rmsnorm2d_fwd_with_add": "AITER's RMSNorm",
    "aiter::mha_batch_prefill": "AITER's prefill attention",
    "aiter::gemm_a16w16": "AITER's matrix product",
    "sgl_kernel::silu_and_mul": "SGLang's gated activation",
    "sglang::store_cache": "SGLang's cache write",
    "flash_attn::_flash_attn_forward": "FlashAttention's attention",
    "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function": "FBGEMM's embedding bags of a table batch",
}


@pytest.mark.parametrize("operation", CALLS)
def test_calls_of_serving_stacks_are_known_by_name_with_their_library(operation: str) -> None:
    assert str(library_call(operation)) == CALLS[operation]


@pytest.mark.parametrize("operation", ["mylib::norm", "aten::mm", "vllmish::attention", ""])
def test_an_operation_of_nobody_that_is_known_has_no_library(operation: str) -> None:
    assert library_call(operation) is None


def test_tensorrt_llms_products_are_not_triton_by_hand(tmp_path: Path) -> None:
    names = [next(iter(KERNELS)), "my_rms_norm_kernel", "kernel_unified_attention_2d"]
    events = []
    for i, name in enumerate(names):
        events += [op("custom::op", 10.0 * i, 9), launch(10.0 * i + 2, i + 1), kernel(200.0 + i, 1, i + 1, name=name)]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    assert hand_written_triton(trace).tolist() == [False, True, False]
    assert library_times(trace) == {"TensorRT-LLM": 1.0, "vLLM": 1.0}


def test_what_aten_launches_counts_for_no_library() -> None:
    assert not library_times(real("tl_h100_qwen15.json.gz")), "PyTorch's own flash attention is aten's"
