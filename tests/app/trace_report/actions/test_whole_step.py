"""What compiling a whole model is predicted to make of a step, against the same models recorded compiled."""

from __future__ import annotations

from typing import Any

import pytest

from app.trace_report.actions.listed import before_us
from app.trace_report.actions.model import HOST_OF_LAUNCHES
from app.trace_report.actions.ranking import plan
from app.trace_report.actions.whole_step import COMPILE, PARTS, grows
from app.trace_report.step_model import launches_of, step_of
from tests.app.trace_report.reports import reported
from tests.app.trace_report.test_speedup import region, trace

Json = dict[str, Any]
RECORDED = {
    "handrolled_blocks_bf16_eager": "handrolled_blocks_bf16_compiled",
    "llama_prefill_bf16_eager": "llama_prefill_bf16_compiled",
}


def attention_us(trace: Json) -> float:
    return sum(r["time_us_per_step"] for r in trace["regions"] if r["name"] == "SDPA attention")


@pytest.mark.parametrize("name", RECORDED)
def test_launches_of_the_compiled_model_are_those_that_were_recorded(name: str) -> None:
    eager, compiled = (reported(f"{n}.json.gz") for n in (name, RECORDED[name]))
    known = plan(eager)
    assert known is not None
    step, priced = known
    change = next(p.option.change for p in priced if p.option.id == COMPILE)
    assert change is not None
    left = sum(
        launches_of(region) * (change.launches[i].mid / HOST_OF_LAUNCHES if i in change.launches else 1.0)
        for i, region in enumerate(step.regions)
    )
    assert left == pytest.approx(sum(launches_of(r) for r in compiled["regions"]), rel=0.08)


@pytest.mark.parametrize("name", RECORDED)
def test_the_compiled_step_is_what_was_recorded_but_for_the_mask_that_tracing_stored(name: str) -> None:
    """The compiled llama reads a causal mask of 2,048 x 2,048, which the eager one does not make."""
    eager, compiled = (reported(f"{n}.json.gz") for n in (name, RECORDED[name]))
    predicted = next(a for a in eager["actions"] if a["id"] == COMPILE)["step_time_us"]
    masked_us = max(0.0, attention_us(compiled) - attention_us(eager)) if attention_us(eager) else 0.0
    found_us = compiled["step_parts"]["wall_us"] - masked_us
    slowed = eager["step_time_us"] / before_us(eager)  # both were recorded by the profiler
    assert slowed * predicted["mid"] == pytest.approx(found_us, rel=0.06)
    assert slowed * predicted["low"] <= found_us <= slowed * predicted["high"]


GROWN = "N: sizes[128, 129, 130, 131, 132]\nx: bf16[4, 8, N, 64]\nx2: bf16[4, 8, 1, 64]\ny = cat([x, x2], dim=-2)\n"
READ = "N: sizes[129, 130, 131, 132, 133]\nq: bf16[4, 8, 1, 64]\nk: bf16[4, 8, N, 64]\n"


@pytest.mark.parametrize(("text", "kind", "grown"), [
    (GROWN, "attention", True),
    (GROWN, "gemm", False),
    (GROWN.replace("bf16[4, 8, N, 64]", "i64[4, N]"), "attention", False),
])  # fmt: skip
def test_only_what_attention_reads_is_a_cache_that_grows(text: str, kind: str, grown: bool) -> None:
    cat = region("a", 100.0, "skip", None, text=text, source={"ops": ["cat"]})
    step = step_of(trace([cat, region("b", 100.0, "skip", None, text=READ, kind=kind)]))  # type: ignore[arg-type]
    assert step is not None and grows(step) is grown


def test_parts_of_a_model_are_not_given_one_models_names() -> None:
    assert "bottom" not in PARTS and "(model.part, ...)" in PARTS
