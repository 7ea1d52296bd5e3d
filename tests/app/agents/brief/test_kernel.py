"""A kernel explained: which one is meant, its figures, the regions that launch it; every kernel within the bound."""

from __future__ import annotations

import json

import pytest

from app.agents.brief.kernel import WORDS, NoKernelError, explain_kernel
from app.agents.brief.tokens import MAX_TOKENS, json_text, token_bound
from app.objects.brief import KernelExplained
from profiler.trace.analyze import kernel_kinds
from tests.app.agents.brief.test_trace import NAMES
from tests.app.objects.exact import differences
from tests.app.trace_report.reports import reported

LLAMA = "llama_prefill_bf16_eager_stack.json.gz"


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_of_a_trace_is_told_within_the_bound(name: str) -> None:
    trace = reported(name)
    rows = [row for row in trace["where"]["kernels"] if row["name"]]
    assert rows
    for row in rows[::4]:
        told = explain_kernel(trace, row["name"], name)
        assert token_bound(json_text(told)) <= MAX_TOKENS
        assert told["time_us"] == pytest.approx(max(r["time_us"] for r in rows if r["name"] == row["name"]), rel=1e-3)
        assert told["kind"] == row["kind"] and told["in_words"]
    assert differences(KernelExplained, json.loads(json_text(told))) == []


def test_a_part_of_a_name_means_the_kernel_with_most_time_and_names_the_others() -> None:
    trace = reported(LLAMA)
    told = explain_kernel(trace, "ELEMENTWISE", LLAMA)
    fitting = [r for r in trace["where"]["kernels"] if "elementwise" in r["name"].lower()]
    assert told["time_us"] == pytest.approx(max(r["time_us"] for r in fitting), rel=1e-3)
    assert len(told["others"]) + told["left_out"] == len(fitting) - 1


def test_a_kernel_leads_to_the_code_that_launches_it() -> None:
    told = explain_kernel(reported(LLAMA), "pow_tensor_scalar", LLAMA)
    assert (told["label"], told["kind"], told["calls_per_step"]) == ("pow_tensor_scalar (elementwise)", "pointwise", 17)
    assert told["time_us_per_call"] * told["calls_per_step"] == pytest.approx(told["time_us"], rel=1e-3)
    (region,) = told["regions"]
    assert (region["name"], region["line"]) == ("RMSNorm by hand", 62)
    assert region["file"] == "transformers/models/llama/modeling_llama.py"
    roof = region["roof"]
    assert roof is not None and roof["time_us"] is not None and roof["of_floor"] is not None
    # x and y once, 4 x 2048 x 2048 of two bytes each, and the weight: nothing less can be moved.
    assert roof["bytes_least"] == 2 * 2 * 4 * 2048 * 2048 + 2 * 2048
    assert roof["of_floor"] == pytest.approx(roof["time_us"] / roof["floor_us"], rel=0.01)
    assert (roof["bound"], roof["ridge"]) == ("memory", None)
    assert region["code"].startswith("region = torch.compile(")
    assert f"--region {region['number']}" in told["verify"][1]["command"]


def test_a_matrix_product_has_a_ridge() -> None:
    trace = reported(LLAMA)
    gemm = next(r for r in trace["where"]["kernels"] if r["kind"] == kernel_kinds.GEMM)
    told = explain_kernel(trace, gemm["name"], LLAMA)
    roof = told["regions"][0]["roof"]
    assert roof is not None and roof["ridge"] is not None
    assert (roof["intensity"] > roof["ridge"]) == (roof["bound"] == "compute")


def test_a_kernel_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(NoKernelError, match=r"no kernel of the step has 'winograd' in its name.*pow_tensor_scalar"):
        explain_kernel(reported(LLAMA), "winograd", LLAMA)


def test_every_kind_of_kernel_has_words() -> None:
    kinds = {kind for kind, _ in kernel_kinds._PARTS} | {kernel_kinds.COMMUNICATION, kernel_kinds.OTHER}
    assert kinds == set(WORDS)
