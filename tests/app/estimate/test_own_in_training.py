"""Kernels of this project in a region with gradients are predicted at what they were measured to take by themselves."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app.advice.rule import advise
from app.analysis.analyze import AdviceContext, prepare
from app.estimate import predict
from app.estimate.facts import RegionFacts
from app.estimate.rates import FITTED, longest_prefix
from app.estimate.rates import TRAINED as SPREAD_AT_LEAST
from kernels.host import Host
from profiler.hardware import Device, find_device
from profiler.region.language.text import parse
from profiler.region.model import Workload
from tests.conftest import ROOT
from tests.kernels.ops.trained_regions import TRAINED

RECORD = json.loads((ROOT / "tests" / "records" / "kernels-h200.json").read_text(encoding="utf-8"))
ROWS = "x: bf16[8192, 16384].requires_grad\nw: bf16[16384].requires_grad\n"
RMS_NORM = ROWS + "y = rms_norm(x, [16384], w, 1e-06)\nreturn y\n"
LAYER_NORM = ROWS + "b: bf16[16384].requires_grad\ny = layer_norm(x, [16384], w, b)\nreturn y\n"
LOSS = (
    "x: bf16[8192, 128256].requires_grad\nt: i64[8192].below(128256)\n"
    "y = F.cross_entropy(x.float(), t)\nreturn y\n"
)  # fmt: skip
WITH_A_PRODUCT = (
    "x: bf16[8192, 4096].requires_grad\nw: bf16[4096].requires_grad\nm: bf16[4096, 4096].requires_grad\n"
    "y = rms_norm(x, [4096], w, 1e-06)\nz = y @ m\nreturn z\n"
)


def facts_of(text: str) -> RegionFacts:
    host = Host(gpu="NVIDIA H200", capability=(9, 0), versions={"torch": "2.11.0"}, packages=frozenset({"torch"}))
    return prepare(parse(text), Workload(), h200(), AdviceContext(host=host)).facts


def h200() -> Device:
    device = find_device("NVIDIA H200")
    assert device is not None
    return device


def recorded_us(operation: str, case: str) -> float:
    row = next(r for r in RECORD["rows"] if r["operation"] == operation and r["case"] == case)
    return float(row["candidates"]["triton"]["median_us"])


@pytest.mark.parametrize(
    ("text", "candidate", "rows"),
    [
        (RMS_NORM, "triton:rms_norm", [("rms_norm", "bf16 rows=8192 columns=16384"),
                                       ("rms_norm_backward", "bf16 rows=8192 columns=16384")]),
        (LAYER_NORM, "triton:layer_norm", [("layer_norm", "bf16 rows=8192 columns=16384"),
                                           ("layer_norm_backward", "bf16 rows=8192 columns=16384")]),
        (LOSS, "triton:cross_entropy", [("cross_entropy_with_gradient", "bf16 rows=8192 columns=128256")]),
    ],
)  # fmt: skip
def test_a_kernel_for_all_of_it_takes_what_its_two_halves_were_measured_to(
    text: str, candidate: str, rows: list[tuple[str, str]]
) -> None:
    facts = facts_of(text)
    kernel = next(k for k in facts.kernels if k.candidate == candidate)
    assert kernel.part is None
    predicted = predict.own(facts, h200(), kernel)
    assert predicted is not None
    assert predicted.time_us.mid == pytest.approx(sum(recorded_us(*row) for row in rows), rel=0.25)


def test_a_kernel_for_a_part_leaves_the_product_as_it_is() -> None:
    facts = facts_of(WITH_A_PRODUCT)
    kernel = next(k for k in facts.kernels if k.candidate == "triton:rms_norm")
    assert kernel.part == {"rms_norm"} or len(kernel.part or ()) >= 1
    predicted, now = predict.own(facts, h200(), kernel), predict.eager(facts, h200())
    assert predicted is not None
    assert now is not None
    products = 3 * 2 * 8192 * 4096 * 4096 / h200().matmul_rate("bf16") * 1e6
    assert products < predicted.time_us.mid < 1.01 * now.time_us.mid  # the norm is a tenth of it


def test_what_is_shown_is_the_function_that_autograd_knows() -> None:
    advice = advise(facts_of(RMS_NORM), Workload(share_of_step=0.5), h200())
    own = next(a for a in advice.alternatives if a.candidate == "triton:rms_norm")
    assert own.call.startswith("from kernels.ops.trained import rms_norm\n")
    assert not any("backward kernel has to be written" in n for n in advice.notes)


def own_time_us(facts: RegionFacts, candidate: str) -> float:
    kernel = next(k for k in facts.kernels if k.candidate == candidate)
    predicted = predict.own(facts, h200(), kernel)
    assert predicted is not None
    return predicted.time_us.mid


def rate_of(dtype: str) -> float:
    """FLOPs of the matrix units in a µs."""
    return h200().matmul_rate(dtype) / 1e6


@pytest.mark.parametrize("gradients", ["", ".requires_grad"])
def test_a_kernel_with_products_takes_no_less_than_the_matrix_units_do(gradients: str) -> None:
    text = f"x: bf16[8192, 4096]{gradients}\nw: bf16[128256, 4096]{gradients}\nt: i64[8192].below(128256)\n"
    facts = facts_of(text + "return F.cross_entropy(F.linear(x, w).float(), t)\n")
    products = 3 if gradients else 1
    assert own_time_us(facts, "triton:linear_cross_entropy") > products * 2 * 8192 * 4096 * 128256 / rate_of("bf16")


def test_products_of_one_byte_are_taken_at_their_own_rate() -> None:
    text = (
        "a: f8e4m3[8192, 4096]\np: f32[8192, 1]\nb: f8e4m3[8192, 4096]\nq: f32[8192, 1]\n"
        "return ((a.to(f32) * p) @ (b.to(f32) * q).t()).to(bf16)\n"
    )
    facts = facts_of(text)
    flops = 2 * 8192 * 8192 * 4096
    assert flops / rate_of("f8e4m3") < own_time_us(facts, "triton:scaled_gemm") < flops / rate_of("bf16")


def test_a_kernel_that_no_gpu_has_measured_is_no_advice() -> None:
    assert predict.is_measured("triton:softmax_axis")
    assert predict.is_measured("triton:channel_norm"), "over another axis"
    assert not predict.is_measured("triton:channel")
    facts = facts_of(RMS_NORM)
    unknown = replace(facts, kernels=tuple(replace(k, candidate="triton:of_tomorrow") for k in facts.kernels))
    assert "triton:rms_norm" in {o.candidate for o in advise(facts, Workload(), h200()).alternatives}
    assert "triton:of_tomorrow" not in {o.candidate for o in advise(unknown, Workload(), h200()).alternatives}


def test_a_kernel_whose_backward_no_gpu_has_measured_is_none_for_training() -> None:
    assert predict.is_measured("triton:flash_attention")
    assert not predict.is_measured("triton:flash_attention", trained=True)
    assert predict.is_measured("triton:rms_norm", trained=True)
    assert predict.is_measured("triton:cross_entropy", trained=True), "one pass makes the gradient too"


def test_a_kernel_to_be_written_names_the_one_that_is_there_unmeasured() -> None:
    facts = facts_of("x: bf16[16, 4096]\nw: i8[4096, 4096]\ns: bf16[4096]\nreturn F.linear(x, w.to(bf16)) * s\n")
    advice = advise(facts, Workload(share_of_step=0.5), h200())
    (custom,) = (a for a in advice.alternatives if a.candidate == "triton:custom")
    assert "triton:weight_only_gemm" in custom.note
    assert "to be written" not in custom.note


@pytest.mark.parametrize("name", TRAINED)
def test_every_kernel_with_a_backward_has_a_time_and_a_range_that_says_how_sure_it_is(name: str) -> None:
    """Also one that no rate was fitted on: its range is no narrower than of those that were."""
    candidate, text = TRAINED[name]
    facts = facts_of(text)
    (kernel,) = (k for k in facts.kernels if k.candidate == candidate)
    predicted = predict.own(facts, h200(), kernel)
    assert predicted is not None, "what it replaces is in the graph with gradients, by its name"
    time = predicted.time_us
    fitted = FITTED.spread[longest_prefix(FITTED.spread, candidate) or "triton"]
    assert 0 < time.low <= time.mid <= time.high
    assert time.high >= time.mid * max(SPREAD_AT_LEAST[1], fitted[1]) * 0.999
    least = min(s.cost.ideal.bytes_read + s.cost.ideal.bytes_written for s in facts.shapes)
    assert time.mid > least / h200().copy_rate * 1e6


UNMEASURED = ("embedding_bag", "max_pool", "average_pool", "grouped_gemm", "segment_reduce")


@pytest.mark.parametrize("kernel", UNMEASURED)
def test_what_no_gpu_has_timed_with_its_backward_is_tried_and_not_advised(kernel: str) -> None:
    candidate, text = next(v for v in TRAINED.values() if v[0] == f"triton:{kernel}")
    facts = facts_of(text)
    assert candidate in {k.candidate for k in facts.kernels}
    assert not predict.is_measured(candidate, trained=True)
    assert candidate not in {o.candidate for o in advise(facts, Workload(), h200()).alternatives}


def test_dropout_and_a_recurrence_were_timed_with_their_backward() -> None:
    for kernel in ("dropout", "linear_recurrence"):
        candidate, text = next(v for v in TRAINED.values() if v[0] == f"triton:{kernel}")
        assert candidate in {o.candidate for o in advise(facts_of(text), Workload(), h200()).alternatives}
