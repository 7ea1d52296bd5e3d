"""Parts of an eager and a compiled step in pairs, on recordings of both, and what the names of fused kernels tell."""

from __future__ import annotations

from typing import Any

import pytest

from app.trace_report.comparison.compare import compare_traces
from app.trace_report.part_operations import fused_operations, operations, sizes
from tests.app.trace_report.reports import reported

PAIRS = [
    ("handrolled_blocks_bf16_eager", "handrolled_blocks_bf16_compiled"),
    ("llama_prefill_bf16_eager", "llama_prefill_bf16_compiled"),
    ("handrolled_blocks_bf16_compiled", "handrolled_blocks_bf16_eager"),
    ("llama_prefill_bf16_compiled", "llama_prefill_bf16_eager"),
    ("handrolled_blocks_bf16_eager", "handrolled_blocks_bf16_eager_stack"),
    ("llama_prefill_bf16_eager", "handrolled_blocks_bf16_compiled"),
]


def compared(a: str, b: str) -> list[dict[str, Any]]:
    return compare_traces(reported(f"{a}.json.gz"), reported(f"{b}.json.gz"))["rows"]  # type: ignore[return-value]


def names(pieces: list[dict[str, Any]]) -> set[str]:
    return {p["name"] for p in pieces}


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_every_part_stands_in_exactly_one_row(a: str, b: str) -> None:
    rows = compared(a, b)
    for side, name in (("a", a), ("b", b)):
        trace = reported(f"{name}.json.gz")
        told = sorted(round(p["time_us"], 3) for row in rows for p in row[f"{side}_parts"])
        parts = [r["time_us_per_step"] for r in trace["regions"]] + [r["time_us"] for r in trace["rests"]]
        assert told == sorted(round(t, 3) for t in parts if t)


@pytest.mark.parametrize(("a", "b"), PAIRS[:2])
def test_fusion_is_followed_from_eager_to_compiled_and_back_the_same(a: str, b: str) -> None:
    forth, back = compared(a, b), compared(b, a)
    assert {(frozenset(names(r["a_parts"])), frozenset(names(r["b_parts"]))) for r in forth} == {
        (frozenset(names(r["b_parts"])), frozenset(names(r["a_parts"]))) for r in back
    }
    assert not [r for r in forth if r["verdict"] in ("new", "gone") and (r["a"] or r["b"]) > 5.0]


def test_the_kernels_of_an_eager_region_are_those_with_its_operations() -> None:
    rows = {r["name"]: r for r in compared(*PAIRS[0])}
    norm = rows["RMSNorm by hand"]
    assert norm["by"] == "operations" and norm["b_count"] == 2
    assert all("mean_mul_pow_rsqrt" in p["name"] for p in norm["b_parts"])
    epilogue = rows["GEMM with GELU and mask tail"]
    assert names(epilogue["b_parts"]) == {"GEMM", "torch.compile kernel triton_poi_fused__unsafe_view_add_gelu_mul_7"}
    assert (rows["layout copy (heads)"]["by"], rows["layout copy (heads)"]["sure"]) == ("weak operations", "unsure")


def test_residual_adds_and_the_embedding_are_in_the_norms_kernels_of_a_compiled_llama() -> None:
    (row,) = (r for r in compared(*PAIRS[1]) if "RMSNorm by hand" in names(r["a_parts"]))
    assert names(row["a_parts"]) == {"RMSNorm by hand", "residual add", "embedding"}
    assert all("rsqrt" in p["name"] for p in row["b_parts"]) and row["b_count"] == 9


def test_matrix_products_are_paired_by_their_sizes() -> None:
    products = [r for r in compared(*PAIRS[1]) if r["name"] == "GEMM"]
    assert len(products) == 6 and {r["by"] for r in products} == {"sizes"}
    assert all(r["b"] == pytest.approx(r["a"], rel=0.15) for r in products)


def test_two_recordings_of_one_program_are_paired_by_text() -> None:
    rows = [r for r in compared(*PAIRS[4]) if r["kind"] == "region"]
    assert {r["by"] for r in rows} == {"text"} and {r["sure"] for r in rows} == {"sure"}


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", {"to", "add", "mean", "mul", "pow", "rsqrt"}),
        ("triton_poi_fused__unsafe_view_mul_silu_8", {"mul", "silu"}),
        ("triton_poi_fused_clone_permute_select_view_3", {"copy"}),
        ("triton_poi_fused__scaled_dot_product_cudnn_attention_cat_neg_where_4", {"cat", "neg", "where"}),
        ("triton_per_fused_native_layer_norm_add_12", {"layer_norm", "add"}),
        ("nvjet_sm90_tst_256x128", set()),
    ],
)
def test_a_fused_kernels_name_is_read(kernel: str, wanted: set[str]) -> None:
    assert fused_operations(kernel) == wanted


def test_both_forms_of_an_operation_have_one_name() -> None:
    assert operations(["linear"]) == operations(["aten::addmm"]) == operations(["mm"])
    softmax = "triton_red_fused__softmax_add_div_exp_prepare_softmax_online_sub_view_4"
    assert operations(["bmm", softmax, "bmm"]) == operations(["matmul", "div", "add", "softmax", "matmul"])
    assert sizes(["x: bf16[4, 2048, 512]", "w: bf16[512, 512]", "b: bf16[512]"]) == sizes(
        ["b: bf16[512]", "x: bf16[8192, 512]", "w: bf16[512, 512].strides(1, 512)"]
    )
