"""Thresholds that a verdict did not read: any other number leaves it as it is."""

from __future__ import annotations

from dataclasses import fields, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from app.advice import sensitivity
from app.advice.rule import OBJECTIVES, decision_inputs, verdict
from app.advice.thresholds_read import ThresholdsRead, thresholds_read
from app.thresholds import DEFAULTS, Thresholds
from profiler.hardware import DEVICES
from profiler.region.model import Workload
from tests.app.advice.cases import H200, chain, region
from tests.app.advice.test_rule_properties import FACTS
from tests.app.advice.test_sensitivity import WORKLOADS

NAMES = tuple(f.name for f in fields(Thresholds))


@settings(max_examples=40, deadline=None)
@given(FACTS, WORKLOADS, st.sampled_from(DEVICES), st.sampled_from(OBJECTIVES), st.floats(1e-6, 1e6))
def test_a_verdict_is_the_same_whatever_a_threshold_is_that_it_did_not_read(facts, workload, device, objective, value):
    on = decision_inputs(facts, workload, device)
    now = verdict(on, objective)
    read = thresholds_read(replace(on, standing=now.criteria), objective)
    for name in NAMES:
        if name in read.beyond or read.by_criteria(name):
            continue
        moved = verdict(replace(on, settings=replace(on.settings, **{name: value})), objective)
        assert (moved.criteria, moved.options, moved.chosen, moved.why) == (
            now.criteria, now.options, now.chosen, now.why
        ), name  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(FACTS, WORKLOADS, st.sampled_from(DEVICES), st.sampled_from(OBJECTIVES))
def test_what_would_change_an_advice_is_what_trying_every_threshold_in_full_finds(facts, workload, device, objective):
    on = decision_inputs(facts, workload, device)
    everything = ThresholdsRead({}, frozenset(NAMES))  # all are tried, and every criterion is judged again

    def judged_anew(moved):
        return verdict(replace(moved, standing=()), objective).chosen.tool

    real = sensitivity.thresholds_read
    sensitivity.thresholds_read = lambda *_: everything
    try:
        slow = sensitivity.nearest(sensitivity.drivers(on, objective), judged_anew, on)
    finally:
        sensitivity.thresholds_read = real
    assert sensitivity.would_change(facts, workload, device, objective=objective) == slow


def test_what_is_read_is_told_by_who_reads_it() -> None:
    on = decision_inputs(region(chain()), Workload(share_of_step=0.2), H200)
    read = thresholds_read(replace(on, standing=verdict(on).criteria), "time")
    assert read.by_criteria("fused_near_ideal") == {"compile-fuses", "bandwidth-bound-or-custom"}
    assert "near_best" in read.beyond and not read.by_criteria("near_best")
    assert on.settings is DEFAULTS
