"""What a kernel's name says: held to the operation that launched it, on every real trace, and to hostile names."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.region.operations import kind_of
from profiler.trace import TraceError, read_trace
from profiler.trace.analyze import kernel_kinds
from profiler.trace.analyze.kernel_kinds import COMMUNICATION, OTHER, is_tf32, kernel_kind, kernel_label
from profiler.trace.model import NONE
from tests.profiler.trace.files import TRACES

SAME = {
    "gemm": {kernel_kinds.GEMM, kernel_kinds.CONVOLUTION},  # a product of cuDNN, a split-k reduction
    "convolution": {kernel_kinds.CONVOLUTION, kernel_kinds.GEMM, kernel_kinds.COPY},  # cuDNN changes the layout first
    "attention": {kernel_kinds.ATTENTION},
    "softmax": {kernel_kinds.SOFTMAX},
    "communication": {kernel_kinds.COMMUNICATION},
}
"""Kind of an operation -> kinds of kernels that it may launch."""


LINKED = (
    "llama_prefill_bf16_eager", "gpt2_train_autocast_eager", "timm_convnext_train_channels_last", "hta_nccl",
    "timm_resnet50_train_fp32", "tl_h100_bert_small",
)  # fmt: skip


@pytest.mark.parametrize("kind", SAME)
def test_the_kind_by_name_is_the_kind_of_the_operation_that_launched_it(kind: str) -> None:
    """The link knows nothing of names: by time, at least 97 % of the kernels agree with it."""
    times: Counter[bool] = Counter()
    wrong: Counter[str] = Counter()
    for name in LINKED:
        trace = read_trace(TRACES / f"{name}.json.gz")
        kernels = trace.kernels
        columns = (kernels.name, kernels.op, kernels.duration_us)
        for called, op, duration in zip(*(c.tolist() for c in columns), strict=True):
            if op == NONE or kind_of(trace.names[trace.ops.name[op]]) != kind:
                continue
            agrees = kernel_kind(trace.names[called]) in SAME[kind]
            times[agrees] += duration
            if not agrees:
                wrong[trace.names[called]] += duration
    if kind == "softmax" and not times:
        pytest.skip("no softmax of its own in these")
    assert times[True] >= 0.97 * times.total(), wrong.most_common(5)


def test_little_of_any_trace_is_of_no_kind() -> None:
    for path in sorted(TRACES.glob("*.json.gz")):
        if path.stat().st_size > 800_000 or ".et." in path.name:
            continue
        try:
            trace = read_trace(path)
        except TraceError:
            continue
        times: Counter[str] = Counter()
        for called, duration in zip(trace.kernels.name.tolist(), trace.kernels.duration_us.tolist(), strict=True):
            times[kernel_kind(trace.names[called])] += duration
        assert times[kernel_kinds.OTHER] <= 0.15 * times.total(), path.name


@pytest.mark.parametrize(
    ("name", "kind", "label"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<ch"
            "ar*, 3> >(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)",
            kernel_kinds.POINTWISE,
            "add (elementwise)",
        ),
        ("triton_red_fused_add_mean_3", kernel_kinds.INDUCTOR, "triton_red_fused_add_mean_3"),
        ("void flash_fwd_kernel<traits<64> >(Flash_fwd_params)", kernel_kinds.ATTENTION, "flash_fwd_kernel"),
        ("nvjet_sm90_tst_128x128_64x6_2x1_v_bz_TNT", kernel_kinds.GEMM, "nvjet_sm90_tst_128x128_64x6_2x1_v_bz_TNT"),
        (
            "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x4_nt_align4>(cutlass_80_tensorop::Params)",
            kernel_kinds.GEMM,
            "cutlass_80_tensorop_s1688gemm_64x64_32x4_nt_align4",
        ),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64EEEvPT0_", kernel_kinds.NORM, "add_rmsnorm_quant_kernel"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", kernel_kinds.COMMUNICATION,
         "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ("void cudnn::bn_bw_1C11_kernel_new<float, float2>(float)", kernel_kinds.NORM, "bn_bw_1C11_kernel_new"),
        ("my_kernel", kernel_kinds.OTHER, "my_kernel"),
    ],
)  # fmt: skip
def test_known_names(name: str, kind: str, label: str) -> None:
    assert (kernel_kind(name), kernel_label(name)) == (kind, label)


@given(st.text(max_size=300))
def test_any_name_has_a_kind_and_a_short_label(name: str) -> None:
    assert kernel_kind(name) in {COMMUNICATION, OTHER, *(kind for kind, _ in kernel_kinds._PARTS)}
    assert len(kernel_label(name, 40)) <= 40


@given(st.integers(1, 99999), st.text("_ZNKaI0123456789E", max_size=80))
def test_a_symbol_that_lies_about_its_lengths_is_only_text(length: int, rest: str) -> None:
    assert len(kernel_label(f"_Z{length}{rest}")) <= 60


def test_a_name_as_long_as_a_file_takes_no_time() -> None:
    started = time.perf_counter()
    for letter in "aA_<:0":
        kernel_label(f"void elementwise_kernel<{letter * 1_000_000}")
        kernel_label("_Z" + letter * 1_000_000)
    assert time.perf_counter() - started < 3.0


@pytest.mark.parametrize(
    ("name", "in_tf32"),
    [
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4", True),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x4_nt_align4>(Params)", True),
        ("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(Params)", False),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_128x128_64x5>(Params)", False),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn", False),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s8_i16832gemm_s8_128x128_64x3_tn_align16>(Params)", False),
        ("void cutlass::Kernel2<cutlass_89_tensorop_s16832gemm_e4m3_128x128_tn_align16>(Params)", False),
        ("ampere_sgemm_128x64_nn", False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x128x8", False),
    ],
)
def test_a_kernel_in_tf32_is_told_from_one_of_fewer_bits_and_one_on_the_vector_units(name: str, in_tf32: bool) -> None:
    assert is_tf32(name) is in_tf32
