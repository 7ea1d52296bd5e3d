"""What an advice was issued on, as it is stored: nothing is lost, and what cannot be read is no input."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from app.analysis.advice_inputs import AdviceInputs, TraceFacts, from_stored, to_stored
from app.estimate.facts import RegionFacts
from profiler.region.model import Binding, Workload
from profiler.trace.analyze.compile_blockers import CompileBlocker

OBSTACLE = CompileBlocker(
    "graph-break", "break", "a graph break", "aten::item", 2.5, "it reads a value", "keep it a tensor", "module",
    modules=("model.layer", "model.head"), sources=("a.py:12 forward",), operands=("f32[4]",), at=((3, 17.25),),
    inside=True,
)  # fmt: skip
INPUTS = AdviceInputs(
    "NVIDIA H200",
    Workload(
        (Binding((("M", 3), ("N", 7)), 1 / 3, 12.345678901234567), Binding((), 2.0, None)),
        step_time_us=1e4 / 7, share_of_step=0.1, target_step_time_us=900.0, launches_per_step=17 / 3, observed=True,
    ),
    TraceFacts("a title", 1 / 7, 3.3, 5 / 3, False, True, False, False, (OBSTACLE,)),
    objective="memory",
    notes=("assumed: strides",),
    target="NVIDIA L4",
)  # fmt: skip


def stored(inputs: AdviceInputs) -> Any:
    """As it comes back out of a database's JSON."""
    return json.loads(json.dumps(to_stored(inputs)))


def test_every_field_comes_back_to_the_last_bit_but_when_obstacles_were_met() -> None:
    kept = replace(INPUTS, observed=replace(INPUTS.observed, obstacles=(replace(OBSTACLE, at=()),)))
    assert from_stored(stored(INPUTS)) == kept
    assert from_stored(stored(AdviceInputs())) == AdviceInputs()


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"version": None}, {"workload": {"bindings": [{"calls_per_step": None}]}}, {"notes": 3}]
)
def test_another_versions_inputs_and_damaged_ones_are_none(change: dict[str, Any]) -> None:
    assert from_stored({**stored(INPUTS), **change}) is None


@pytest.mark.parametrize("nothing", [None, [], "text", {}])
def test_a_row_without_inputs_has_none(nothing: object) -> None:
    assert from_stored(nothing) is None


def test_what_a_trace_is_silent_about_does_not_replace_what_the_text_tells() -> None:
    assert TraceFacts().known() == {}
    assert TraceFacts(gpu_idle_share=0.0, communication=False).known() == {
        "gpu_idle_share": 0.0, "communication": False,
    }  # fmt: skip


def test_what_a_trace_tells_is_asked_for_by_the_names_of_the_facts() -> None:
    """`known` goes into RegionFacts as keywords, which no type checker follows."""
    facts = {f.name: f.type for f in fields(RegionFacts)}
    for told in fields(TraceFacts):
        assert str(told.type).removesuffix(" | None") == str(facts[told.name]).removesuffix(" | None"), told.name
