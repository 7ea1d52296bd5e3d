"""What would change an advice is true: the rule itself says the old tool just before and the new one from there on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from app.advice.model import Change
from app.advice.rule import DecisionInputs, advise, decision_inputs, verdict
from app.advice.sensitivity import NEVER, SHOWN, would_change
from app.estimate.range import Range
from app.thresholds import DEFAULTS
from profiler.hardware import DEVICES
from profiler.region.model import Binding, Workload
from tests.app.advice.cases import H200, broken_chain, chain, cover, region
from tests.app.advice.test_rule_properties import FACTS
from tests.effort import calls_of

SECOND = 1e5

WORKLOADS = st.one_of(
    st.builds(Workload, share_of_step=st.one_of(st.none(), st.floats(0, 1))),
    st.builds(
        lambda step, target, calls: Workload(
            (Binding((), calls),), step_time_us=step, target_step_time_us=target
        ),
        st.floats(10, SECOND), st.one_of(st.none(), st.floats(10, SECOND)), st.floats(1, 100),
    ),
    st.builds(
        lambda share, step, us: Workload(
            (Binding((), 4.0, us),), step_time_us=step, share_of_step=share, launches_per_step=12.0, observed=True
        ),
        st.floats(0, 1), st.floats(10, SECOND), st.floats(1, SECOND),
    ),
)  # fmt: skip


def moved(on: DecisionInputs, change: Change, value: float) -> str:
    """The tool with that number at `value`, all else as it was: from the facts up, except for a predicted time."""
    facts, use, limits = on.facts, on.workload, on.settings
    if change.of in ("share_of_step", "step_time_us", "target_step_time_us"):
        use = replace(use, **{change.of: value})
    elif change.of == "calls_per_step":
        times = value / sum(b.calls_per_step for b in use.bindings)
        use = replace(use, bindings=tuple(
            Binding(b.sizes, b.calls_per_step * times, b.time_us_per_step and b.time_us_per_step * times)
            for b in use.bindings
        ))  # fmt: skip
    elif change.of == "irregularity":
        facts = replace(facts, irregularity=value)
    elif change.of == "rows":
        facts = replace(facts, gemm_rows=int(value))
    elif hasattr(limits, change.of):
        limits = replace(limits, **{change.of: value})
    else:
        return _with_time(on, change, value)
    return advise(facts, use, on.device, limits, rates=on.rates).tool


def _with_time(on: DecisionInputs, change: Change, value: float) -> str:
    candidate = change.of
    # One call can be several options: for a part of the region, and for its whole. Its time now tells which is meant.
    option = next(o for o in on.options if (o.alternative.candidate, o.mid) == (candidate, change.now))
    factor = value / option.mid
    scaled = tuple(
        replace(o, alternative=replace(o.alternative, time_us=_times(o.alternative.time_us, factor)))
        if o is option else o
        for o in on.options
    )  # fmt: skip
    current = _times(on.current, factor) if candidate == "eager" and on.current else on.current
    return verdict(replace(on, options=scaled, current=current)).chosen.tool


def _times(span: Range, factor: float) -> Range:
    return Range(span.low * factor, span.mid * factor, span.high * factor)


def before(change: Change) -> float:
    """A value nearer to now than `at`, by more than the three figures that it is told in."""
    near = change.at + (change.now - change.at) * 0.012
    rounding = change.at * (0.988 if change.at > change.now else 1.012)
    inside = max(near, rounding) if change.at < change.now else min(near, rounding)
    return change.now if abs(inside - change.at) > abs(change.now - change.at) else inside


def check(on: DecisionInputs, changes: tuple[Change, ...]) -> None:
    tool = verdict(on).chosen.tool
    for change in changes:
        assert change.tool != tool
        assert moved(on, change, change.at) == change.tool, change
        value = float(round(before(change))) if change.of == "rows" else before(change)
        if change.of == "rows" and value == change.at:
            value += 1.0 if change.at < change.now else -1.0
        assert moved(on, change, value) == tool, (change, value)


@settings(max_examples=60, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(FACTS, WORKLOADS, st.sampled_from(DEVICES))
def test_every_change_is_true_just_before_and_from_there_on(facts, workload, device):
    changes = would_change(facts, workload, device)
    assert len(changes) <= SHOWN
    assert len({c.of for c in changes}) == len(changes)
    check(decision_inputs(facts, workload, device), changes)


CASES = {
    # what stands: (facts, workload, number that has to be told, tool that it leads to)
    "a share over its threshold": (region(chain()), Workload(share_of_step=0.05), "share_of_step", "skip"),
    "a share under its threshold": (region(chain()), Workload(share_of_step=0.004), "share_of_step", "compile"),
    "a step above its target": (
        region(chain()), Workload(step_time_us=900.0, target_step_time_us=800.0), "target_step_time_us", "skip",
    ),
    "a step within its target": (
        region(chain()), Workload(step_time_us=700.0, target_step_time_us=800.0), "step_time_us", "compile",
    ),
    "few calls": (region(chain(40)), Workload((Binding((), 1.0),), step_time_us=36e3), "calls_per_step", "compile"),
    "sizes unknown, one shape": (
        region(kind="other", irregularity=0.2, fuses=False), Workload(share_of_step=0.5), "irregularity", "triton",
    ),
    "a call about as fast": (
        region(chain(operations=80), covers=(cover(),)), Workload(share_of_step=0.5),
        "library:torch.nn.functional.rms_norm", "library",
    ),
    "weights to unpack, many rows": (
        region(quantised="u8", gemm_rows=80, by_hand=True, kind="gemm"),
        Workload(share_of_step=0.5), "rows", "library",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_the_advice_turns_on_is_told(name):
    facts, workload, of, tool = CASES[name]
    changes = would_change(facts, workload, H200)
    check(decision_inputs(facts, workload, H200), changes)
    found = {c.of: c.tool for c in changes}
    assert found.get(of) == tool, changes


def test_the_place_of_a_change_is_where_arithmetic_puts_it():
    facts, workload = region(irregularity=0.2, fuses=False), Workload(share_of_step=0.5)
    by_number = {c.of: c for c in would_change(facts, workload, H200)}
    assert by_number["irregularity"].at == pytest.approx(DEFAULTS.irregular, rel=0.01)
    assert by_number["share_of_step"].at == pytest.approx(DEFAULTS.worth_share, rel=0.01)
    assert "of at least 0.34" in by_number["irregularity"].because
    assert by_number["irregularity"].because.endswith("Triton")


def test_changes_are_told_nearest_first():
    for facts in (region(chain()), region(broken_chain(), irregularity=0.5)):
        changes = would_change(facts, Workload(share_of_step=0.2), H200)
        far = [abs(c.at - c.now) / max(c.at, c.now) for c in changes]
        assert far == sorted(far)
        assert changes


@settings(max_examples=40, deadline=None)
@given(FACTS, st.floats(0, 1), st.sampled_from(sorted(NEVER)), st.floats(0, 1000))
def test_thresholds_that_are_left_out_change_no_tool(facts, share, name, value):
    workload = Workload(share_of_step=share)
    changed = replace(DEFAULTS, **{name: value})
    assert advise(facts, workload, H200).tool == advise(facts, workload, H200, changed).tool


def test_looking_for_changes_asks_the_rule_a_bounded_number_of_times():
    facts, workload = region(chain(operations=80), covers=(cover(),)), Workload(share_of_step=0.2)
    would_change(facts, workload, H200)
    calls_of(lambda: would_change(facts, workload, H200), most=150_000)  # 73,730, some 15 ms
