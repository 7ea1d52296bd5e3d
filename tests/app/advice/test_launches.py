from __future__ import annotations

from dataclasses import replace

import pytest

from app.advice.launches import launch_bound_alone, other_clock_chance
from app.advice.rule import decision_inputs, verdict
from app.estimate.predict import Prediction
from app.estimate.range import Range
from app.thresholds import DEFAULTS
from kernels.measure.records import LAUNCH_BOUND
from profiler.region.model import Workload
from tests.app.advice.cases import H200, chain, region

ALONE = Workload(share_of_step=0.5)
FACTS = region(chain())


def chance(host_us: float, workload: Workload = ALONE) -> float:
    eager = Prediction("eager", Range(90.0, 100.0, 110.0), 0.0, 0, host_us)
    return other_clock_chance(FACTS, workload, eager, launch_bound_alone(FACTS, workload, eager, DEFAULTS))


def test_the_other_clock_is_as_likely_where_the_ratio_is_the_one_that_decides():
    assert chance(LAUNCH_BOUND * 100.0) == pytest.approx(0.5)
    assert 0.1 < chance(1.2 * 100.0) < 0.5
    assert 0.1 < chance(1.9 * 100.0) < 0.5  # there wall time is what the rule takes, and the device's is the other
    assert chance(20.0) < 0.001
    assert chance(1000.0) < 0.001


def test_what_a_trace_observed_has_one_clock():
    observed = replace(ALONE, observed=True)
    assert chance(LAUNCH_BOUND * 100.0, observed) == 0.0


def test_an_unsure_clock_makes_what_the_host_is_slow_with_a_risk():
    on = decision_inputs(FACTS, ALONE, H200)
    assert on.eager is not None
    assert not launch_bound_alone(FACTS, ALONE, on.eager, DEFAULTS)
    times = {o.alternative.candidate: o for o in on.options}
    # By device time torch.compile is the fastest; by wall time it takes a hundred times as long as what runs now.
    slow = replace(
        on,
        options=tuple(
            replace(o, other_us=Range(90.0, 100.0, 110.0) if o.tool == "skip" else Range(9e3, 1e4, 1.1e4))
            for o in on.options
        ),
    )
    assert times["compile"].mid < times["eager"].mid
    assert verdict(replace(slow, other_clock=0.0)).chosen.tool == "compile"
    assert verdict(replace(slow, other_clock=0.5)).chosen.tool == "skip"
