"""What the profiler costs the host: by steps timed with it and without, and what it does to predictions."""

from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from app.trace_report.actions.ranking import changes, plan
from app.trace_report.profiler_cost import SLOWS, WITH_MODULES, profiler_slows
from app.trace_report.speedup import with_actions
from app.trace_report.step_model import step_of, step_us
from profiler.trace import read_trace
from tests.app.trace_report.reports import reported
from tests.app.trace_report.test_speedup import region, trace
from tests.profiler.trace.files import TRACES
from tools.docs.measured_page import load, of_modules_us, unprofiled_us

Json = dict[str, Any]
MODELS: list[Json] = [m for m in load("applied")["models"] if m["eager_us"]]


def test_steps_are_estimated_as_they_were_timed_without_the_profiler() -> None:
    off = {m["model"]: unprofiled_us(m) / m["eager_us"] - 1 for m in MODELS}
    assert len(off) == 28
    assert statistics.median(map(abs, off.values())) < 0.05
    assert sum(abs(x) <= 0.15 for x in off.values()) >= 20
    assert max(off.values()) < 0.45 and min(off.values()) > -0.15


def test_the_range_holds_the_steps_that_the_host_paces() -> None:
    paced = 0
    for model in MODELS:
        parts, pace = model["parts"], model["pace"]
        if parts["idle_launch_us"] < 0.4 * parts["wall_us"]:
            continue
        paced += 1
        ends = []
        for slows in (SLOWS["low"], SLOWS["high"]):
            given = dict.fromkeys(("low", "mid", "high"), slows)
            step = step_of({"step_parts": parts, "pace": pace, "regions": [], "profiler_slows": given})  # type: ignore[typeddict-item]
            assert step is not None
            ends.append(step.parts["wall_us"])
        assert ends[1] * 0.9 <= model["eager_us"] <= ends[0] * 1.05, model["model"]
    assert paced == 11  # eight, as SLOWS says, and three that were measured later


def test_a_recording_with_modules_has_a_range_of_its_own_which_its_header_tells() -> None:
    for name in ("gpt2_train_autocast_eager_stack", "llama_prefill_bf16_eager_stack"):
        recorded = read_trace(TRACES / f"{name}.json.gz")
        assert recorded.with_modules and profiler_slows(recorded) == WITH_MODULES
    plain = read_trace(TRACES / "llama_prefill_bf16_eager.json.gz")
    assert not plain.with_modules and profiler_slows(plain) == SLOWS
    alone = replace(recorded, with_modules=False)  # with_stack=True without with_modules slows less
    between = profiler_slows(alone)
    assert between is not None and SLOWS["mid"] < between["mid"] < WITH_MODULES["mid"]


def test_steps_recorded_with_modules_are_estimated_as_they_were_timed_without_the_profiler() -> None:
    rows = load("program")["rows"]
    off = {r["name"]: of_modules_us(r, "mid") / r["overhead"]["its_bare_us"] - 1 for r in rows}
    assert len(off) == 10
    assert statistics.median(map(abs, off.values())) <= 0.10
    assert sum(abs(x) <= 0.15 for x in off.values()) >= 9 and max(map(abs, off.values())) < 0.25
    for row in rows:
        bare = row["overhead"]["its_bare_us"]
        assert of_modules_us(row, "high") <= 1.02 * bare, row["name"]
        assert of_modules_us(row, "low") >= 0.9 * bare, row["name"]


def slowed(told: Json, by: float = 2.0) -> Json:
    return told | {"profiler_slows": {"low": by, "mid": by, "high": 2 * by}}


def test_kernels_that_get_faster_save_time_where_only_the_profiler_kept_the_gpu_waiting() -> None:
    recorded = trace([region("a", 1000.0, "library", launches_left={})], lead=0.0)
    recorded["step_parts"] = {**recorded["step_parts"], "wall_us": 1500.0, "idle_launch_us": 500.0, "idle_us": 500.0}
    recorded["pace"] = {**recorded["pace"], "gpu_us": 0.0, "lead_us": 0.0}
    recorded["regions"][0]["gpu_paced_us_per_step"] = 0.0
    saved = []
    for told in (recorded, slowed(recorded)):
        planned = plan(told)  # type: ignore[arg-type]
        assert planned is not None
        step, priced = planned
        own = [p for p in priced if not p.option.scope_is_step]
        saved.append(step.parts["wall_us"] - step_us(step, changes(own))[1])
    assert saved[0] < 1.0  # the host sets the pace as recorded
    assert saved[1] > 100.0


def partly_compiled(launches: float) -> Json:
    """A step that launches pace, so many of its 100 launches made by compiled code."""
    told = trace([region("a", 400.0)], launch=600.0, gpu=0.0, lead=0.0)
    told["step_parts"] = {**told["step_parts"], "idle_us": 600.0}
    return slowed(told | {"pace": {**told["pace"], "compiled_launches": launches}})


def test_the_more_of_a_step_is_compiled_the_less_the_profiler_slowed_it_without_a_jump() -> None:
    walls = []
    for launches in range(101):
        step = step_of(partly_compiled(float(launches)))  # type: ignore[arg-type]
        assert step is not None
        walls.append(step.parts["wall_us"])
    assert walls[0] == pytest.approx(500.0) and walls[100] == pytest.approx(1000.0)
    assert all(0.0 <= after - before < 10.0 for before, after in pairwise(walls))
    assert walls[50] == pytest.approx(750.0)  # what compiled code launches stays, the other half takes half as long


def test_calls_of_libraries_in_compiled_code_are_compiled_by_what_the_trace_shows() -> None:
    compiled, eager = (reported(f"llama_prefill_bf16_{how}.json.gz")["pace"] for how in ("compiled", "eager"))
    assert compiled["compiled_launches"] > 0.95 * compiled["launches"]
    assert eager["compiled_launches"] == 0.0


def test_a_pages_note_says_what_the_step_is_taken_for() -> None:
    told = reported("llama_train_bf16_eager.json.gz")
    (note,) = [n for n in told["notes"] if n["code"] == "profiler-slows-host"]
    assert f"{told['unprofiled_us'] / 1e3:.2f} of the recorded" in note["message"]
    assert told["unprofiled_us"] < 0.8 * told["step_time_us"]
    assert told["gain"]["all"]["step_time_us"]["mid"] < told["unprofiled_us"]
    again = with_actions(told)  # advised anew it is said once
    assert [n["code"] for n in again["notes"]] == [n["code"] for n in told["notes"]]


@pytest.mark.parametrize(("pair", "action"), [
    (("gpt2_train_autocast_eager.json.gz", "gpt2_train_autocast_eager_stack.json.gz"), "gemm-"),
    (("llama_prefill_bf16_eager.json.gz", "llama_prefill_bf16_eager_stack.json.gz"), "compile-model"),
])  # fmt: skip
def test_one_step_recorded_with_stacks_and_without_has_the_same_savings(pair: tuple[str, str], action: str) -> None:
    plain, stacks = (next(a for a in reported(name)["actions"] if a["id"].startswith(action)) for name in pair)
    assert stacks["saves_us"]["mid"] == pytest.approx(plain["saves_us"]["mid"], rel=0.05)
