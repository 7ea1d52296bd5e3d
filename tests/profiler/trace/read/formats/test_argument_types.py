"""Types told by kernels' names, held against those that torch.profiler recorded of the same operations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profiler.trace import Trace, read_trace
from profiler.trace.model import NONE, Detail
from profiler.trace.read.formats.argument_types import OF_ONE_TYPE, kernel_type, with_argument_types
from tests.profiler.trace.files import TRACES, loaded, real
from tests.profiler.trace.nsys_export import export

UNTYPED = ("", "Scalar", "ScalarList")


def judged(trace: Trace) -> tuple[int, int, int]:
    """Of the operations that have kernels and recorded types: how many are told right, wrong, and not at all."""
    bare = with_argument_types(replace(trace, details=tuple(Detail(d.dims, ()) for d in trace.details)))
    with_kernels: set[int] = set()
    for op in set(trace.kernels.op.tolist()):
        while op != NONE and op not in with_kernels:
            with_kernels.add(op)
            op = int(trace.ops.parent[op])
    right = wrong = unsaid = 0
    for op in with_kernels:
        name = trace.names[trace.ops.name[op]]
        if trace.ops.detail[op] == NONE or not name.startswith("aten::") or name[6:] not in OF_ONE_TYPE:
            continue
        recorded, told = trace.details[trace.ops.detail[op]], bare.details[bare.ops.detail[op]]
        pairs = zip(recorded.types, recorded.dims, strict=True)
        expected = [kind for kind, sizes in pairs if sizes and kind not in UNTYPED]
        given = [kind for kind in told.types if kind]
        right, wrong, unsaid = (
            right + (given == expected),
            wrong + (bool(given) and given != expected),
            unsaid + (not given),
        )
    return right, wrong, unsaid


def test_what_is_told_is_what_was_recorded() -> None:
    """The patterns were made on these traces: the next GPU's names may be told less often, and are not told wrong."""
    totals = [0, 0, 0]
    for path in sorted(TRACES.glob("*.json.gz")):
        if ".et." not in path.name and real(path.name).has_shapes:
            totals = [a + b for a, b in zip(totals, judged(real(path.name)), strict=True)]
    right, wrong, unsaid = totals
    assert wrong == 0
    assert right > 30_000
    assert unsaid < 0.15 * right


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "c10::BFloat16"),
        ("nvjet_sm90_hsh_96x64_64x8_2x4_h_bz_NTN", "c10::Half"),
        ("void at::native::vectorized_elementwise_kernel<8, at::native::AUnaryFunctor<c10::BFloat16, c10::BFloat16, "
         "c10::BFloat16, at::native::binary_internal::MulFunctor<float> >>", "c10::BFloat16"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "float"),
        ("void at::native::vectorized_elementwise_kernel<2, at::native::CUDAFunctor_add<long>>", None),
        ("ampere_bf16_s16816gemm_bf16_128x64", "c10::BFloat16"),
        ("ampere_fp16_s16816gemm_fp16_128x64", "c10::Half"),
        ("ampere_sgemm_128x64_nn", "float"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32", None),
        ("unrolled_elementwise_kernel<CUDAFunctor_add<float>, LoadWithCast<1>>", None),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV", "c10::BFloat16"),
        ("add_c10::Half_and_c10::BFloat16", None),
        ("my_kernel", None),
    ],
)  # fmt: skip
def test_a_kernel_s_name_says_one_type_or_none(name: str, told: str | None) -> None:
    assert kernel_type(name) == told


def test_an_operation_that_casts_first_has_other_operands_than_its_kernels() -> None:
    trace = real("gpt2_train_autocast_eager.json.gz")
    right, wrong, unsaid = judged(trace)
    assert (wrong, right > 300, unsaid > 100) == (0, True, True), (right, wrong, unsaid)


def test_an_export_says_what_it_took_from_names(tmp_path: Path) -> None:
    name = "llama_prefill_bf16_eager.json.gz"
    trace = read_trace(export(loaded(name), tmp_path / "run.sqlite"))
    assert "types-by-kernels" in [note.code for note in trace.notes]
    assert {kind for detail in trace.details for kind in detail.types} == {"", "c10::BFloat16", "float"}
    assert "types-by-kernels" not in [note.code for note in real(name).notes]
