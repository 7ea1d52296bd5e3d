"""What a prediction rests on, against the prediction itself, the device's tables and kernels that were measured."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from app.analysis import service
from app.analysis.analyze import AnalyzedRegion, CompilePrediction, Evaluated, decide
from app.atlas.fit import EVENTS_US
from app.atlas.price import CALL_US
from app.estimate import predict
from app.estimate.basis import MOST_PARTS, ExplainedPart, prediction_basis
from app.estimate.rates import FITTED, WITHOUT_ATLAS
from kernels.calibrate import points
from kernels.calibrate.points import KernelTime
from profiler.oracle.model import TEMPLATE, Extern, OracleKernel, Prediction

RECORDED = Path(points.__file__).parent / "recorded"

CHAIN = "x: f32[4096, 8192]\ny = relu(x * 2.0 + 1.0)\nreturn y\n"
COLUMNS = "x: f32[8192, 4096]\nreturn x.sum(0)\n"
NORM = "x: bf16[8192, 4096]\nw: bf16[4096]\nreturn F.layer_norm(x, (4096,), w)\n"
FREQUENCIES = "x: f32[4096, 4096]\ny = torch.fft.rfft(x).abs()\nreturn relu(y)\n"


def prepared(text: str, device: str = "H200") -> AnalyzedRegion:
    return service.prepare_region(text, device=device)


def eager_parts(text: str, device: str = "H200") -> list[ExplainedPart]:
    region = prepared(text, device)
    return [p for p in prediction_basis(region.facts, region.device, FITTED).parts if p.way == "eager"]


@pytest.mark.parametrize("text", [CHAIN, COLUMNS, NORM, FREQUENCIES])
@pytest.mark.parametrize("device", ["H200", "H100", "RTX 4090"])
def test_the_parts_add_up_to_what_eager_is_predicted_to_take(text: str, device: str) -> None:
    region = prepared(text, device)
    eager = predict.eager(region.facts, region.device)
    assert eager is not None
    total = sum(part.time_us for part in eager_parts(text, device))
    assert total == pytest.approx(eager.time_us.mid - CALL_US, rel=1e-9)


def test_bytes_over_the_time_are_the_rate_that_is_told() -> None:
    for part in eager_parts(CHAIN):
        assert part.bytes_moved == 2 * 4 * 4096 * 8192
        assert part.because.startswith("268 MB at ")
        rate, unit = part.because.removeprefix("268 MB at ").partition(":")[0].split()
        scale = {"TB/s": 1e12, "GB/s": 1e9}[unit]
        assert float(rate) * scale == pytest.approx(1e6 * part.bytes_moved / part.time_us, rel=5e-3)
        assert float(rate) * scale < 12e12, "no memory is so fast, nor is L2"


def test_a_sum_over_columns_says_by_how_much_it_is_strided() -> None:
    (part,) = eager_parts(COLUMNS)
    assert "strided by 16.4 kB" in part.because  # 4,096 f32


def test_a_product_is_told_by_flops_and_their_rate_is_below_the_units_peak() -> None:
    region = prepared("x: bf16[4096, 4096]\nw: bf16[4096, 4096]\nreturn x @ w\n")
    (part,) = prediction_basis(region.facts, region.device, FITTED).parts
    assert part.flops == 2 * 4096**3
    assert part.because.startswith("137 GFLOP at ") and "4,096 × 4,096 × 4,096" in part.because
    assert 1e6 * part.flops / part.time_us < region.device.matmul_rate("bf16")


def test_an_operation_that_nobody_measured_is_said_to_go_by_rates_and_counts_as_unknown() -> None:
    region = prepared(FREQUENCIES)
    basis = prediction_basis(region.facts, region.device, FITTED)
    unknown = [p for p in basis.parts if not p.by_atlas]
    assert {p.name for p in unknown} == {"_fft_r2c", "abs_1"}  # neither transforms nor complex numbers were measured
    assert all("by rates" in p.because and p.nearest is None for p in unknown)
    eager = sum(p.time_us for p in basis.parts)
    assert basis.eager_known == pytest.approx(1 - sum(p.time_us for p in unknown) / eager)
    assert 0 < basis.eager_known < 1


def width(text: str, device: str) -> float:
    """Of eager's 80 % interval, in logarithms."""
    region = prepared(text, device)
    eager = predict.eager(region.facts, region.device)
    assert eager is not None
    return math.log(eager.time_us.high / eager.time_us.low)


@pytest.mark.parametrize("text", [CHAIN, COLUMNS, NORM])
def test_where_the_atlas_is_anothers_that_is_said_and_the_interval_is_as_much_wider_as_it_says(text: str) -> None:
    own = prediction_basis(prepared(text).facts, prepared(text).device, FITTED)
    region = prepared(text, "RTX 4090")
    other = prediction_basis(region.facts, region.device, FITTED)
    assert own.own and own.atlas is not None and own.atlas.device == "NVIDIA H200" and own.range_factor == 1.0
    assert not other.own and other.atlas is own.atlas and other.range_factor > 1.0
    assert width(text, "RTX 4090") > 1.2 * width(text, "H200")


def test_without_an_atlas_nothing_is_known_by_one() -> None:
    region = prepared(CHAIN)
    basis = prediction_basis(region.facts, region.device, WITHOUT_ATLAS)
    assert basis.atlas is None and basis.eager_known == 0.0
    assert all(p.nearest is None for p in basis.parts)


def test_of_many_operations_the_longest_are_told() -> None:
    lines = "\n".join(f"y = torch.tanh(y[:, :{4096 - n}])" for n in range(1, 41))
    parts = eager_parts(f"x: f32[4096, 4096]\ny = x\n{lines}\nreturn y\n")
    times = [p.time_us for p in parts]
    assert len(times) == MOST_PARTS and times == sorted(times, reverse=True)


# --------------------------------------------------------------------------------------------------- torch.compile's


def recorded_kernel(kind: str) -> tuple[KernelTime, float]:
    """One of Inductor's kernels that was measured by itself on an H200, of the kind and longer than 20 µs; and what two
    events added there."""
    for point in points.read_recording(RECORDED / "h200.jsonl.gz")[1]:
        for kernel in point.get("kernels", ()):
            if kind in kernel["name"] and kernel["times_us"] and kernel["times_us"][0] > 20:
                return kernel, point.get("events_us", EVENTS_US)
    raise LookupError(kind)


def answer(*kernels: OracleKernel, **more: object) -> Prediction:
    base = Prediction("NVIDIA H200", "default", {}, training=False, kernels=kernels)
    return replace(base, **more)  # type: ignore[arg-type]


def decided(*answers: Prediction, text: str = CHAIN) -> Evaluated:
    return decide(prepared(text), CompilePrediction(answers))


@pytest.mark.parametrize("kind", ["triton_poi", "triton_red", "triton_per"])
def test_inductors_own_kernels_are_told_with_their_measured_like(kind: str) -> None:
    measured, events_us = recorded_kernel(kind)
    kernel = OracleKernel(measured["name"], "pointwise", 2, measured["bytes_moved"], (), measured["source"])
    basis = decided(answer(kernel)).basis
    assert (basis.prediction, basis.because) == ("oracle", "")
    (part,) = [p for p in basis.parts if p.way == "compile"]
    assert (part.name, part.launches) == (measured["name"], 2)
    assert part.nearest is not None and part.correlation > 0.999
    assert part.nearest.time_us == pytest.approx(measured["times_us"][0] - events_us, rel=0.01)
    # within half: kernels that are alike by their numbers differ, and the price lies between them
    assert part.time_us == pytest.approx(2 * part.nearest.time_us, rel=0.5)


def template() -> OracleKernel:
    return OracleKernel("triton_tem_fused_mm_0", TEMPLATE, 1, 4096, ("aten.mm",), "")


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ((), "Inductor was not asked"),
        ((answer(unavailable="it took longer than 20 s"),), "Inductor could not answer: it took longer than 20 s"),
        (
            (answer(template()),),
            "Inductor answered, but its kernel triton_tem_fused_mm_0 is a template's product that was not measured",
        ),
        (
            (answer(externs=(Extern("aten._fft_r2c", 3),)),),
            "measurements cover 0 % of the time of Inductor's kernels and calls",
        ),
    ],
)
def test_where_our_rules_stand_in_for_inductors_kernels_the_reason_is_told(
    answers: tuple[Prediction, ...], reason: str
) -> None:
    evaluated = decided(*answers)
    assert (evaluated.basis.prediction, evaluated.basis.because) == ("rules", reason)
    assert evaluated.advice.prediction == "rules"
    assert all(p.way == "eager" for p in evaluated.basis.parts)


def test_rules_stand_in_just_where_the_kernels_do_not_move_the_prediction() -> None:
    """Whether the time of torch.compile is that without an answer tells whose kernels it is of."""
    measured, _ = recorded_kernel("triton_poi")
    kernel = OracleKernel(measured["name"], "pointwise", 1, measured["bytes_moved"], (), measured["source"])

    def compiled_us(evaluated: Evaluated) -> float:
        (time,) = (a.time_us for a in evaluated.advice.alternatives if a.candidate == "compile")
        assert time is not None
        return time.mid

    unasked = compiled_us(decided())
    for one, source in ((answer(kernel), "oracle"), (answer(template()), "rules")):
        evaluated = decided(one)
        assert evaluated.basis.prediction == source
        assert (compiled_us(evaluated) == pytest.approx(unasked, rel=1e-12)) == (source == "rules")
