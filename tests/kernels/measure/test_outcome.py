"""The outcome is a pure function: each row is a situation and what must be said about it."""

from __future__ import annotations

import pytest

from kernels.measure.model import CandidateResult, Interval
from kernels.measure.outcome import Contender, decide, winner


def field(**times):
    """Contenders from NAME=time, with a ratio to the best of the rest whose interval is 2 % to either side."""
    tools = {n: n.split("_")[0] for n in times}
    made = []
    for name, time in times.items():
        others = [t for n, t in times.items() if n != name and not (tools[n] == tools[name] == "triton")]
        ratio = time / min(others) if others else None
        span = Interval(ratio, ratio * 0.98, ratio * 1.02) if ratio else None
        made.append(Contender(name, tools[name], time, span))
    return made


def results(contenders, **failed):
    found = [CandidateResult(c.name, c.tool, "ok") for c in contenders]
    return [*found, *(CandidateResult(n, n.split("_")[0], s) for n, s in failed.items())]


@pytest.mark.parametrize(
    ("advised", "times", "outcome", "named"),
    [
        ("library", {"eager": 700, "library": 223, "compile": 134, "triton": 132}, "overturned", "compile"),
        ("compile", {"eager": 700, "library": 223, "compile": 134, "triton": 132}, "confirmed", "compile"),
        ("compile", {"eager": 700, "compile": 134, "triton": 100}, "overturned", "triton"),
        ("triton", {"eager": 700, "compile": 134, "triton": 100}, "confirmed", "triton"),
        # 8 % is under the bar of 10 %
        ("triton", {"eager": 700, "compile": 108, "triton": 100}, "overturned", "compile"),
        ("skip", {"eager": 100, "compile": 99, "triton": 98}, "confirmed", "eager"),
        ("compile", {"eager": 100, "compile": 99}, "tie", "eager"),
        ("library", {"eager": 500, "library": 102, "compile": 100}, "confirmed", "library"),
        ("compile", {"eager": 500, "library": 102, "compile": 100}, "tie", "library"),
        ("skip", {"eager": 100, "compile": 50}, "overturned", "compile"),
        ("triton", {"eager": 100, "compile": 50}, "unmeasured", "compile"),
        ("cuda", {"eager": 100, "compile": 50}, "unmeasured", "compile"),
    ],
)
def test_the_outcome_names_what_won(advised, times, outcome, named):
    contenders = field(**times)
    decided = decide(results(contenders), contenders, {"tool": advised})
    assert decided.outcome == outcome
    assert decided.winner == named
    assert named in decided.reason
    assert decided.best == min(times, key=times.get)


def test_an_overturned_advice_says_by_how_much():
    contenders = field(eager=700, library=223, compile=134)
    reason = decide(results(contenders), contenders, {"tool": "library"}).reason
    assert "134" in reason
    assert "223" in reason
    assert "1.66" in reason  # 223 / 134


def test_a_wide_interval_keeps_triton_from_winning():
    sure = Contender("triton", "triton", 80, Interval(0.8, 0.78, 0.85))
    unsure = Contender("triton", "triton", 80, Interval(0.8, 0.65, 0.95))
    compiled = Contender("compile", "compile", 100)
    assert winner([compiled, sure]).name == "triton"
    assert winner([compiled, unsure]).name == "compile"


def test_a_gain_under_one_per_cent_of_the_step_is_not_worth_it():
    contenders = field(eager=100, compile=50)
    small = decide(results(contenders), contenders, {"tool": "skip"}, share_of_step=0.01)
    assert (small.outcome, small.winner) == ("confirmed", "eager")  # 0.5 % of the step
    large = decide(results(contenders), contenders, {"tool": "skip"}, share_of_step=0.5)
    assert (large.outcome, large.winner) == ("overturned", "compile")


def test_an_advised_candidate_that_failed_is_overturned_and_one_not_installed_is_not():
    contenders = field(eager=100, compile=50)
    wrong = decide(results(contenders, library="mismatch"), contenders, {"tool": "library"})
    assert wrong.outcome == "overturned"
    absent = decide(results(contenders, library="not_installed"), contenders, {"tool": "library"})
    assert absent.outcome == "unmeasured"
    assert "not installed" in absent.reason


def test_nothing_timed_is_unmeasured_with_each_reason():
    failed = results([], eager="error", compile="out_of_memory")
    decided = decide(failed, [], {"tool": "compile"})
    assert decided.outcome == "unmeasured"
    assert "out of memory" in decided.reason


def test_eager_alone_proves_nothing():
    contenders = field(eager=100)
    assert decide(results(contenders, compile="timeout"), contenders, {"tool": "skip"}).outcome == "unmeasured"


def test_without_advice_the_fastest_is_named():
    contenders = field(eager=100, compile=50)
    decided = decide(results(contenders), contenders, None)
    assert (decided.outcome, decided.winner) == ("confirmed", "compile")
    assert "advised" in decided.reason


GRAPHS = {"tool": "compile", "mode": "reduce-overhead"}


def modes(**times):
    names = {
        "eager": "eager",
        "default": "compile",
        "tuned": "compile-max-autotune",
        "graphs": "compile-reduce-overhead",
    }
    return [Contender(names[n], "eager" if n == "eager" else "compile", t) for n, t in times.items()]


def test_an_advised_mode_that_was_not_measured_is_neither_confirmed_nor_overturned():
    contenders = modes(eager=100, default=50)
    decided = decide(results(contenders), contenders, GRAPHS)
    assert decided.outcome == "unmeasured"
    assert "compile-reduce-overhead was not measured" in decided.reason
    slow = modes(eager=100, default=140)
    assert decide(results(slow), slow, GRAPHS).outcome == "unmeasured"


@pytest.mark.parametrize(
    ("advice", "times", "outcome", "named"),
    [
        (GRAPHS, {"eager": 100, "default": 80, "graphs": 20}, "confirmed", "compile-reduce-overhead"),
        (GRAPHS, {"eager": 100, "default": 20, "graphs": 40}, "overturned", "compile"),
        (GRAPHS, {"eager": 100, "default": 20, "graphs": 20.2}, "tie", "compile"),
        ({"tool": "compile", "mode": "default"}, {"eager": 100, "default": 50, "tuned": 30}, "confirmed",
         "compile-max-autotune"),
        ({"tool": "compile", "mode": "default"}, {"eager": 100, "default": 50, "tuned": 48}, "confirmed", "compile"),
    ],
)  # fmt: skip
def test_the_mode_of_the_advice_counts(advice, times, outcome, named):
    contenders = modes(**times)
    decided = decide(results(contenders), contenders, advice)
    assert (decided.outcome, decided.winner) == (outcome, named)


def test_a_call_that_was_not_tried_disproves_nothing():
    contenders = field(eager=100, compile=50)
    decided = decide(results(contenders, library="not_run"), contenders, {"tool": "library"})
    assert decided.outcome == "unmeasured"


def test_a_winner_that_the_host_holds_up_is_said_with_both_times():
    contenders = field(eager=178, compile=132)
    times = {"eager": (178, 178), "compile": (132, 243)}
    found = [
        CandidateResult(n, n, "ok", time_us=Interval(device, device, device), wall_us=wall)
        for n, (device, wall) in times.items()
    ]
    reason = decide(found, contenders, {"tool": "compile"}).reason
    assert "243" in reason.split("; ")[-1]
    assert "132" in reason.split("; ")[-1]
    assert "pace" not in decide(found, contenders, {"tool": "compile"}, by="wall time").reason


def test_what_the_paired_rounds_do_not_tell_apart_is_a_tie():
    noisy = [
        Contender("eager", "eager", 100, Interval(1.05, 0.97, 1.12)),
        Contender("compile", "compile", 95, Interval(0.95, 0.89, 1.03)),
        Contender("library", "library", 120, Interval(1.26, 1.2, 1.3)),
    ]
    assert decide(results(noisy), noisy, {"tool": "compile"}).outcome == "tie"
    wide = [
        Contender("compile", "compile", 112, Interval(1.12, 0.98, 1.2)),
        Contender("eager", "eager", 100, Interval(0.89, 0.83, 1.02)),
    ]
    decided = decide(results(wide), wide, {"tool": "compile"})
    assert (decided.outcome, decided.winner) == ("tie", "eager")
    assert "holds 1" in decided.reason


def test_a_users_kernel_that_is_wrong_disproves_no_advice():
    """Else a broken function of somebody's file would overturn that a kernel is worth writing."""
    contenders = field(eager=100, compile=50)
    mine = CandidateResult("kernel:mine", "triton", "mismatch", "relative error 0.01")
    decided = decide([*results(contenders), mine], contenders, {"tool": "triton"})
    assert decided.outcome == "unmeasured"
    assert "mine" not in decided.reason
