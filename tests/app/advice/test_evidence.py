from __future__ import annotations

from dataclasses import replace

import pytest

from app.advice.evidence import advice_from_json, reissue, reissue_json
from app.advice.rule import advise
from kernels.measure.model import CandidateResult, Interval, Validation, to_json
from profiler.region.model import Workload
from tests.app.advice.cases import H200, broken_chain, chain, region

SHARE = 0.5


def result(name: str, time_us: float, eager_us: float, others_us: float, **more) -> CandidateResult:
    """A timed candidate whose intervals are a per cent wide."""
    tool = name.split(":")[0].split("-")[0]
    span = Interval(time_us, time_us * 0.995, time_us * 1.005)
    ratio, other = (Interval(r, r * 0.995, r * 1.005) for r in (time_us / eager_us, time_us / others_us))
    return replace(
        CandidateResult(name, tool, "ok", time_us=span, ratio_to_eager=ratio, ratio_to_best_other=other), **more
    )


def validation(*results: CandidateResult, device: str | None = "NVIDIA H200") -> Validation:
    return Validation("confirmed", "as measured", "x", tuple(results), device=device, advice_before={"tool": "compile"})


def advised(facts=None):
    return advise(facts or region(chain()), Workload(share_of_step=SHARE), H200)


def test_confirmed_keeps_the_tool_and_takes_the_measured_speedup():
    before = advised()
    after = reissue(before, validation(result("eager", 300, 300, 60), result("compile", 60, 300, 300)))
    assert (after.tool, after.mode) == ("compile", "default")
    assert after.region_speedup.mid == pytest.approx(5.0)
    assert after.step_speedup.mid == pytest.approx(1 / (0.5 + 0.1))
    assert "confirmed" in after.headline
    assert after.validation["outcome"] == "confirmed"


def test_measurement_overrules_the_prediction():
    before = advised()
    after = reissue(before, validation(result("eager", 100, 100, 140), result("compile", 140, 100, 100)))
    assert after.tool == "skip"
    assert after.call == ""
    assert after.validation["outcome"] == "overturned"
    assert "overturned" in after.headline


def test_triton_wins_only_by_its_margin():
    before = advised()
    eager = result("eager", 300, 300, 60)
    fast = validation(eager, result("compile", 100, 300, 60), result("triton:generated", 60, 300, 100))
    slight = validation(eager, result("compile", 62, 300, 60), result("triton:generated", 60, 300, 62))
    assert reissue(before, fast).tool == "triton"
    assert reissue(before, slight).tool == "compile"


def test_nothing_timed_stays_a_prediction_and_says_so():
    before = advised()
    untimed = validation(CandidateResult("compile", "compile", "correct"), device=None)
    after = reissue(before, replace(untimed, outcome="unmeasured"))
    assert after.tool == before.tool
    assert after.region_speedup == before.region_speedup
    assert "not measured" in after.headline
    assert after.validation["outcome"] == "unmeasured"


def test_advised_kernel_that_nobody_wrote_is_not_disproved():
    before = advised(region(broken_chain(), kind="sort", title="router", externs=("topk",), not_generated="topk"))
    assert before.tool == "triton"
    after = reissue(before, validation(result("eager", 145, 145, 130), result("compile", 130, 145, 145)))
    assert after.tool == "triton"
    assert after.validation["outcome"] == "unmeasured"
    assert "compile is to be preferred" in after.headline


def test_step_that_meets_its_target_is_left_whatever_was_measured():
    facts, workload = region(chain()), Workload(share_of_step=0.5, step_time_us=9.0, target_step_time_us=10.0)
    before = advise(facts, workload, H200)
    after = reissue(before, validation(result("eager", 300, 300, 60), result("compile", 60, 300, 300)))
    assert after.tool == "skip"


def test_measured_times_replace_predicted_ones_and_others_are_added():
    after = reissue(
        advised(),
        validation(
            result("eager", 300, 300, 60), result("compile", 60, 300, 70), result("triton:softmax", 70, 300, 60)
        ),
    )
    by_name = {a.candidate: a for a in after.alternatives}
    assert by_name["compile"].time_us.mid == 60
    assert by_name["triton:softmax"].tool == "triton"
    assert "measured" in by_name["eager"].note


def test_validation_is_embedded_without_advice_inside_advice():
    after = reissue(advised(), validation(result("eager", 300, 300, 60), result("compile", 60, 300, 300)))
    assert {"candidates", "device", "reason"} <= set(after.validation)
    assert not {"advice_before", "advice_after"} & set(after.validation)


def test_json_both_ways():
    before = advised()
    assert advice_from_json(to_json(before)) == before
    measured = validation(result("eager", 300, 300, 60), result("compile", 60, 300, 300))
    assert reissue_json(to_json(before), to_json(measured)) == to_json(reissue(before, measured))


def test_issued_twice_says_it_once():
    measured = validation(result("eager", 100, 100, 140), result("compile", 140, 100, 100))
    once = reissue(advised(), measured)
    twice = reissue(once, measured)
    assert twice.headline.count("Measured otherwise") <= 1
    assert twice.tool == "skip"


def test_helion_is_named_only_where_a_kernel_is_to_be_written():
    lines = {"helion:generated": "a = 1\n" * 4, "triton:generated": "a = 1\n" * 40}
    kernels = [
        replace(result(name, 60, 300, 100), tool="triton", source=source) for name, source in lines.items()
    ]  # at equal speed
    won = reissue(advised(), validation(result("eager", 300, 300, 60), result("compile", 100, 300, 60), *kernels))
    assert won.tool == "triton"
    assert sum("write it in Helion: 4 lines instead of 40" in n for n in won.notes) == 1
    assert reissue(won, validation(result("eager", 300, 300, 60), *kernels)).notes == won.notes
    lost = validation(result("eager", 300, 300, 20), result("compile", 20, 300, 60), *kernels)
    for before in (advised(), won):
        after = reissue(before, lost)
        assert after.tool == "compile"
        assert not any("Helion" in n for n in after.notes)


def test_an_advised_mode_that_was_not_measured_stays_a_prediction():
    before = replace(advised(), tool="compile", mode="reduce-overhead")
    measured = validation(result("eager", 100, 100, 140), result("compile", 140, 100, 100))
    after = reissue(before, measured)
    assert (after.tool, after.mode) == ("compile", "reduce-overhead")
    assert after.validation["outcome"] == "unmeasured"


def test_another_mode_of_the_same_tool_overturns_and_is_named():
    before = replace(advised(), tool="compile", mode="reduce-overhead")
    graphs = replace(result("compile-reduce-overhead", 90, 100, 50))
    after = reissue(before, validation(result("eager", 100, 100, 50), result("compile", 50, 100, 90), graphs))
    assert (after.tool, after.mode, after.validation["outcome"]) == ("compile", "default", "overturned")
    assert "the prediction (compile-reduce-overhead) is overturned" in after.headline
    assert after.action != before.action


def test_no_advice_rests_on_a_kernel_that_the_user_alone_has():
    """Five times as fast as all others, it is in the measurement and in nothing else."""
    eager, compiled = result("eager", 300, 300, 100), result("compile", 100, 300, 300)
    mine = replace(result("kernel:mine", 20, 300, 100), tool="triton")
    alone, together = (reissue(advised(), validation(eager, compiled, *more)) for more in ((), (mine,)))
    assert [c["name"] for c in together.validation["candidates"]] == ["eager", "compile", "kernel:mine"]
    assert replace(together, validation=None) == replace(alone, validation=None)
    assert together.tool == "compile"
    assert together.validation["reason"] == alone.validation["reason"]
