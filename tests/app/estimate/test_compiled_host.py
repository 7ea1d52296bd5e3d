"""The host's least time for a compiled model is what compiled models took of it."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from app.estimate.compiled_host import LAUNCH_US, OF_EAGER, compiled_host_us
from app.estimate.rates import FITTED
from app.trace_report.profiler_cost import SLOWS
from app.trace_report.step_model import step_of

Json = dict[str, Any]
RECORD = Path(__file__).resolve().parent.parent.parent / "records" / "applied-h200.json"
COMPILED = {m["model"]: m for m in json.loads(RECORD.read_text(encoding="utf-8"))["models"] if "compiled" in m}


def backward_launch_us(model: Json) -> float:
    """Time in which the thread that launches forward stood still, over the launches of the backward."""
    told = model["compiled"]
    each_us: float = (1.0 - told["processor_share"]) * told["mean_us"] / told["backward_launches"]
    return each_us


def eager_launch_us(model: Json) -> float:
    told: Json = {"step_parts": model["parts"], "pace": model["pace"], "regions": [], "profiler_slows": SLOWS}
    step = step_of(told)  # type: ignore[arg-type]
    assert step is not None
    each_us: float = (step.pace["gpu_us"] - step.pace["lead_us"] + step.host_needs_us) / step.pace["launches"]
    return each_us


def test_a_launch_takes_what_the_backwards_of_compiled_models_took() -> None:
    found = sorted(map(backward_launch_us, COMPILED.values()))
    assert len(found) == 6
    assert LAUNCH_US["high"] <= found[0] < LAUNCH_US["high"] + 1.0
    assert LAUNCH_US["low"] - 1.0 < found[-1] <= LAUNCH_US["low"]
    assert statistics.median(found) == pytest.approx(LAUNCH_US["mid"], abs=0.5)


def test_it_takes_no_more_than_so_many_eager_launches() -> None:
    times = [backward_launch_us(m) / eager_launch_us(m) for m in COMPILED.values()]
    assert max(times) == pytest.approx(OF_EAGER, abs=0.1)
    assert min(times) > 0.7


@pytest.mark.parametrize("name", sorted(COMPILED))
def test_no_step_was_found_to_be_shorter_than_the_least(name: str) -> None:
    """By the launches that were recorded of the compiled model, and at least an eighth of the time is accounted for."""
    model = COMPILED[name]
    launches = model["compiled"]["forward_launches"] + model["compiled"]["backward_launches"]
    least_us = compiled_host_us(launches, True, eager_launch_us(model), "mid")
    assert model["found_us"] / 8 < least_us < model["found_us"]


@pytest.mark.parametrize(("eager_us", "end", "launches_us"), [
    (50.0, "low", 3400.0), (50.0, "mid", 2600.0), (50.0, "high", 2100.0),  # a slow host takes what those took
    (5.0, "low", 1000.0), (5.0, "mid", 1000.0), (5.0, "high", 1000.0),  # a fast one twice an eager launch
    (-3.0, "mid", 0.0),  # a host that was never seen launching
])  # fmt: skip
def test_a_hundred_launches(eager_us: float, end: Any, launches_us: float) -> None:
    assert compiled_host_us(100.0, False, eager_us, end) == pytest.approx(FITTED.host.compiled + launches_us)
    assert compiled_host_us(100.0, True, eager_us, end) == pytest.approx(FITTED.host.trained + launches_us)
