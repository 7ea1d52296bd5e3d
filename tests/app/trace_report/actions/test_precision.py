"""TF32 and bf16: the laws against measured products that they were not fitted on, and where neither is promised."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from app.trace_report.actions import precision
from app.trace_report.actions.precision import FROM_TF32, LAWS, SPREAD, law_us, precisions, tf32_is_on
from app.trace_report.step_model import Change, step_of, step_us
from profiler.hardware import Device, find_device
from tests.app.trace_report.reports import reported
from tests.app.trace_report.test_speedup import region, trace

Json = dict[str, Any]
ROWS: list[Json] = json.loads(Path("tests/records/precision-h100.json").read_text(encoding="utf-8"))["rows"]


def h100() -> Device:
    device = find_device("NVIDIA H100 80GB HBM3")
    assert device is not None
    return device


def rows_of(dtype: str, aligned: bool, held_out: bool) -> list[Json]:
    multiple = LAWS[dtype][0].multiple
    chosen = [r for place, r in enumerate(ROWS) if (place // 2 % 2 == 1) == held_out]
    return [r for r in chosen if all(r[x] % multiple == 0 for x in "nk") == aligned]


@pytest.mark.parametrize("dtype", ["tf32", "bf16"])
@pytest.mark.parametrize("aligned", [True, False])
def test_the_law_holds_on_the_half_of_the_products_that_it_was_not_fitted_on(dtype: str, aligned: bool) -> None:
    law = LAWS[dtype][0 if aligned else 1]
    off = [math.log(r[f"{dtype}_us"] / law_us(law, r["f32_us"], h100(), dtype)) for r in rows_of(dtype, aligned, True)]
    assert len(off) >= 14
    assert statistics.mean(map(abs, off)) < 0.15
    assert sum(abs(x) < math.log(SPREAD) for x in off) >= 0.8 * len(off)


def test_bf16_over_tf32_is_the_records_median() -> None:
    aligned = [r["bf16_us"] / r["tf32_us"] for r in ROWS if r["n"] % 8 == r["k"] % 8 == 0]
    assert statistics.median(aligned) == pytest.approx(FROM_TF32, abs=0.005)


def test_what_is_said_of_numerics_is_what_was_measured() -> None:
    for dtype, words in (("tf32", precision.TF32_NUMERICS), ("bf16", precision.BF16_NUMERICS)):
        error = statistics.median(r[f"{dtype}_error"] for r in ROWS)
        assert f"about {error:.0e} off".replace("e-0", "e-") in words


def made(name: str, text: str = "x: f32[4096, 4096]\n", **more: Any) -> Json:
    """A step of 1,000 µs whose only region is one f32 operation of that name."""
    found = region("a", 1000.0, "skip", None, text=text, cost={"gemm_flops": 1.0}, **more)
    part = {"way": "eager", "name": name, "time_us": 1000.0, "bytes_moved": 2e8, "flops": 1.37e11}
    found["rests_on"] = {"parts": [part]}
    return trace([found])


def options(found: Json) -> list[str]:
    step = step_of(found)  # type: ignore[arg-type]
    assert step is not None
    return [o.id for o in precisions(step, h100())]


def test_products_in_f32_are_told_both_precisions_with_what_the_law_leaves() -> None:
    step = step_of(made("mm"))  # type: ignore[arg-type]
    assert step is not None
    tf32, bf16 = precisions(step, h100())
    assert (tf32.id, tf32.counted, bf16.counted, bf16.instead_of) == ("tf32", True, False, "tf32")
    assert tf32.change is not None
    law = LAWS["tf32"][0]
    assert step_us(step, [tf32.change])[1] == pytest.approx(law_us(law, 1000.0, h100(), "tf32"))


def test_a_row_that_misses_16_bytes_is_promised_less() -> None:
    def after(text: str) -> float:
        step = step_of(made("mm", text))  # type: ignore[arg-type]
        assert step is not None
        change = precisions(step, h100())[0].change
        assert change is not None
        return step_us(step, [change])[1]

    assert after("N: sizes[4096, 50257]\nx: f32[64, N]\n") > 2 * after("N: sizes[4096, 50256]\nx: f32[64, N]\n")


def test_rows_that_torch_compile_pads_are_promised_as_whole_ones() -> None:
    """cross network training, H200: 15 products of 1,293 columns, 14.8 ms in f32, took 2.8 in TF32 and compiled."""
    step = step_of(made("mm", "x: f32[16384, 1293]\n"))  # type: ignore[arg-type]
    assert step is not None
    tf32 = precisions(step, h100())[0].change
    assert tf32 is not None
    alone, padded = (step_us(step, changes)[1] for changes in ([tf32], [tf32, Change(pads=True)]))
    whole, cut = (law_us(law, 1000.0, h100(), "tf32") for law in LAWS["tf32"])
    assert (alone, padded) == (pytest.approx(cut), pytest.approx(whole)) and padded < 0.2 * 1000.0


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("_scaled_dot_product_efficient_attention", {}),  # the f32 SDPA kernel does not ask the flag
        ("mm", {"kernel_names": ["sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16"]}),
        ("mm", {"text": "x: bf16[4096, 4096]\n"}),
        ("mm", {"text": "x: f32[4096, 4096]\nw: f32[4096, 4096]\nreturn x.to(bf16) @ w.to(bf16)\n"}),
    ],
)  # fmt: skip
def test_nothing_is_promised_where_the_flag_changes_nothing(name: str, more: Json) -> None:
    assert options(made(name, **more)) == []


def test_convolutions_are_not_promised_tf32_which_they_have() -> None:
    assert options(made("convolution")) == ["bf16"]


def test_the_gradients_products_of_a_region_get_the_precision_too() -> None:
    found = made("mm")
    parts = [{**found["regions"][0]["rests_on"]["parts"][0], "name": name} for name in ("mm", "mm_1", "mm_2")]
    found["regions"][0]["rests_on"] = {"parts": parts}
    step = step_of(found)  # type: ignore[arg-type]
    assert step is not None
    change = precisions(step, h100())[0].change
    assert change is not None
    assert step_us(step, [change])[1] == pytest.approx(law_us(LAWS["tf32"][0], 1000.0, h100(), "tf32"))


SGEMM, SCUDNN = "volta_sgemm_128x64_nn", "volta_scudnn_128x64_relu_interior_nn_v1"


def by_names(*names: str) -> Any:
    found = trace([region("a", 1000.0, "skip", None, text=None, kernel_names=list(names))])
    step = step_of(found)  # type: ignore[arg-type]
    rows = [{"name": n, "label": n, "kind": "", "time_us": 800.0, "calls_per_step": 1.0, "regions": [0]} for n in names]
    return step, rows


def device_of(name: str) -> Device:
    device = find_device(name)
    assert device is not None
    return device


def test_products_without_shapes_are_known_by_their_kernels_names() -> None:
    step, rows = by_names(SGEMM)
    tf32, _ = precisions(step, h100(), rows)
    assert tf32.change is not None and 0.2 < tf32.change.time[0].mid < 0.5  # of 1,000 µs 200 are no product
    assert precisions(*by_names("ampere_bf16_s16816gemm_bf16_128x64_nn")[:1], h100(), rows[:0]) == []


@pytest.mark.parametrize("name", ["NVIDIA V100", "NVIDIA GeForce RTX 2080 Ti"])
@pytest.mark.parametrize("kernel", [SGEMM, SCUDNN])
def test_a_gpu_before_ampere_is_told_f16_and_no_other_precision(name: str, kernel: str) -> None:
    step, rows = by_names(kernel)
    (half,) = precisions(step, device_of(name), rows, trained=True)
    assert (half.id, half.counted) == ("fp16", False)
    assert "GradScaler" in half.call
    (served,) = precisions(step, device_of(name), rows)
    assert "GradScaler" not in served.call


def test_what_runs_between_convolutions_takes_their_type() -> None:
    found = made("convolution")
    parts = found["regions"][0]["rests_on"]["parts"]
    found["regions"][0]["rests_on"] = {"parts": [*parts, {**parts[0], "name": "native_batch_norm"}]}
    step = step_of(found)  # type: ignore[arg-type]
    assert step is not None
    (bf16,) = precisions(step, h100())
    assert bf16.change is not None
    left = bf16.change.time[0]
    assert left.mid == pytest.approx((FROM_TF32 + precision.FOLLOWS) / 2)


@pytest.mark.parametrize("kernel", [SGEMM, SCUDNN])
def test_a_4090_is_told_bf16_which_needs_no_scaled_loss(kernel: str) -> None:
    """Its TF32 is no faster than its f32, by the datasheet."""
    step, rows = by_names(kernel)
    (narrow,) = precisions(step, device_of("NVIDIA GeForce RTX 4090"), rows, trained=True)
    assert (narrow.id, narrow.counted, narrow.instead_of) == ("bf16", False, "")
    assert "bfloat16" in narrow.call and "GradScaler" not in narrow.call
    assert "scaled to the NVIDIA GeForce RTX 4090 by its rates" in narrow.evidence["text"]


TF32_GEMM = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x4_nt_align4>(Params)"
BF16_GEMM = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(Params)"


def in_two_regions(first: str, second: str, second_kind: str = "gemm") -> Any:
    """A product on the vector units, 300 of 1,000 µs, and beside it another kernel, 700."""
    kinds = ("gemm", second_kind)
    regions = [
        region(n, us, "skip", None, text=None, kind=k) for n, us, k in zip("ab", (300.0, 700.0), kinds, strict=True)
    ]
    rows = [
        {"name": name, "label": name, "kind": "", "time_us": us, "calls_per_step": 1.0, "regions": [place]}
        for name, us, place in ((first, 300.0, 0), (second, 700.0, 1))
    ]
    return step_of(trace(regions)), rows  # type: ignore[arg-type]


def test_the_flag_is_not_advised_where_it_is_set_though_cublas_takes_the_vector_units_for_some_rows() -> None:
    step, rows = in_two_regions("ampere_sgemm_128x64_nn", TF32_GEMM)
    (narrow,) = precisions(step, h100(), rows)
    assert (narrow.id, narrow.instead_of) == ("bf16", "")
    assert narrow.change is not None and set(narrow.change.time) == {0, 1}
    assert narrow.change.time[1].mid == pytest.approx(FROM_TF32)


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [(TF32_GEMM, "convolution_tail"), ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32", "gemm"), (BF16_GEMM, "gemm")],
)
def test_the_flag_is_advised_where_convolutions_alone_run_in_tf32(kernel: str, kind: str) -> None:
    """cuDNN has 1x1 convolutions done by products of the same names, and their flag is another one. Nor is a product of
    bf16 one in TF32, whose name shares its instruction."""
    step, rows = in_two_regions("ampere_sgemm_128x64_nn", kernel, kind)
    assert not tf32_is_on(rows, [r["kind"] for r in step.regions])
    assert "tf32" in [o.id for o in precisions(step, h100(), rows)]


def test_a_trace_whose_products_run_in_tf32_is_not_told_the_flag() -> None:
    """Its products of 647 columns run on ampere_sgemm in one direction and in TF32 in the other."""
    found = reported("hta_trace_diff_control.json.gz")
    assert [a["id"] for a in found["actions"] if a["tool"] == "precision"] == ["bf16"]
    said = [r["advice"]["headline"] + r["advice"]["action"] for r in found["regions"] if r["advice"]]
    assert not [words for words in said if "TF32" in words]


def test_a_trace_whose_convolutions_alone_run_in_tf32_is_not_taken_for_one_with_the_flag() -> None:
    found = reported("timm_resnet50_train_fp32.json.gz")
    assert not tf32_is_on(found["where"]["kernels"], [r["kind"] for r in found["regions"]])
