"""Assertions: when they fire, what they take as evidence, and that a lack of it is never a failure."""

from __future__ import annotations

from typing import Any

import pytest

from app.check.config import DEFAULTS, Config, from_mapping
from app.check.judge import judge
from app.check.subject import Subject
from tests.app.check.subjects import action, criterion, region, timed, trace, with_validation

Json = dict[str, Any]


def config(**assertions: Any) -> Config:
    return from_mapping(
        {"assertions": {name.replace("__", ":").replace("_", "-"): v for name, v in assertions.items()}}
    )


def verdict(report: Json) -> tuple[str, int, int, int]:
    counts = report["counts"]
    return report["outcome"], counts["errors"], counts["warnings"], counts["unmeasured"]


def test_a_tool_fires_as_error_as_warning_and_not_when_off() -> None:
    subject = trace(region("chain", "compile"), region("left", "skip"))
    assert verdict(judge(config(compile="error"), [subject])) == ("failed", 1, 0, 0)
    assert verdict(judge(config(compile="warn"), [subject])) == ("passed", 0, 1, 0)
    assert verdict(judge(config(compile="off"), [subject])) == ("passed", 0, 0, 0)
    assert verdict(judge(config(triton="error"), [subject])) == ("passed", 0, 0, 0)
    report = judge(config(compile="error"), [subject])
    assert (report["exit_code"], report["passed"]) == (1, False)
    (finding,) = report["errors"]
    assert (finding["region"], finding["source"], finding["evidence"]) == (
        "chain", "models/net.py:42 forward", "predicted",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "fires"),
    [
        ({"min_share": 0.1}, True),
        ({"min_share": 0.11}, False),
        ({"min_speedup": 1.25}, True),
        ({"min_speedup": 1.26}, False),
        ({"min_step_speedup": 1.05}, True),
        ({"min_step_speedup": 1.06}, False),
        ({"region": "ch*"}, True),
        ({"region": "chain-key"}, True),
        ({"region": "other*"}, False),
    ],
)
def test_thresholds_are_met_at_their_own_value(options: Json, fires: bool) -> None:
    report = judge(config(compile={"level": "error", **options}), [trace(region())])
    assert report["exit_code"] == int(fires)
    assert report["assertions"][0]["options"] == options


def test_a_share_that_is_not_known_counts_and_a_speed_up_that_is_not_predicted_is_unmeasured() -> None:
    report = judge(config(compile={"level": "error", "min_share": 0.5}), [trace(region(share=None))])
    assert report["outcome"] == "failed"
    blind = region()
    blind["advice"]["region_speedup"] = None
    report = judge(config(compile={"level": "error", "min_speedup": 1.1}), [trace(blind)])
    assert verdict(report) == ("unmeasured", 0, 0, 1)
    assert report["exit_code"] == 2


@pytest.mark.parametrize(("level", "outcome"), [("error", "unmeasured"), ("warn", "passed")])
@pytest.mark.parametrize("evidence", ["recorded", "measured"])
def test_without_the_evidence_asked_for_nothing_fails(level: str, outcome: str, evidence: str) -> None:
    report = judge(config(compile={"level": level, "evidence": evidence}), [trace(region())])
    assert verdict(report) == (outcome, 0, 0, 1)
    assert report["assertions"][0]["outcome"] == "unmeasured"


def test_stronger_evidence_than_asked_for_counts() -> None:
    measured = with_validation(region(), timed(compile=80.0))
    for wanted in ("predicted", "recorded", "measured"):
        report = judge(config(compile={"level": "error", "evidence": wanted}), [trace(measured)])
        assert (report["outcome"], report["errors"][0]["evidence"]) == ("failed", "measured")
    recorded = with_validation(region(), timed(compile=80.0) | {"archived": {"id": "r"}})
    report = judge(config(compile={"level": "error", "evidence": "recorded"}), [trace(recorded)])
    assert (report["outcome"], report["errors"][0]["evidence"]) == ("failed", "recorded")
    report = judge(config(compile={"level": "error", "evidence": "measured"}), [trace(recorded)])
    assert report["outcome"] == "unmeasured"


def test_an_error_outweighs_what_could_not_be_measured() -> None:
    report = judge(config(compile="error", beats={"level": "error", "candidate": "compile"}), [trace(region())])
    assert verdict(report) == ("failed", 1, 0, 1)


def test_a_trace_that_cannot_be_read_is_unmeasured_whatever_the_levels() -> None:
    broken = Subject("step.json", "trace", error="The trace has no GPU kernels.")
    report = judge(config(compile="warn"), [broken])
    assert verdict(report) == ("unmeasured", 0, 0, 1)
    assert "no GPU kernels" in report["unmeasured"][0]["reason"]
    assert judge(config(compile="error"), [broken, trace(region())])["outcome"] == "failed"


# ------------------------------------------------------------------------------------------------------------ criteria


def of(*criteria: Json, tool: str = "compile") -> Subject:
    answer = region("chain", tool)
    answer["advice"]["criteria"] = list(criteria)
    return trace(answer)


@pytest.mark.parametrize(
    ("name", "holds", "tool", "outcome"),
    [
        ("compile-fuses", True, "compile", "failed"),
        ("compile-fuses", True, "skip", "passed"),
        ("compile-fuses", False, "compile", "passed"),
        ("compile-fuses", None, "compile", "unmeasured"),
        ("library-covers", True, "library", "failed"),
        ("kernel-problem", False, "skip", "failed"),
        ("kernel-problem", True, "compile", "passed"),
        ("fast-enough", False, "skip", "failed"),
        ("portable", False, "triton", "failed"),
        ("needs-cuda", True, "cuda", "failed"),
        ("worth-it", None, "compile", "failed"),
    ],
)
def test_a_criterion_fires_where_something_is_left_to_do(name: str, holds: bool, tool: str, outcome: str) -> None:
    report = judge(config(**{name.replace("-", "_"): "error"}), [of(criterion(name, holds), tool=tool)])
    assert report["outcome"] == outcome


def test_fast_enough_without_a_target_finds_nothing() -> None:
    assert judge(config(fast_enough="error"), [of(criterion("fast-enough", False, threshold=None))])["passed"]


def test_holds_turns_a_criterion_round() -> None:
    subject = of(criterion("compile-fuses", False))
    assert judge(config(compile_fuses={"level": "error", "holds": False}), [subject])["outcome"] == "failed"
    assert judge(config(compile_fuses={"level": "error", "holds": True}), [subject])["outcome"] == "passed"


# --------------------------------------------------------------------------------------------------------------- beats


def beats(subject: Json, **options: Any) -> Json:
    return judge(config(beats={"level": "error", "candidate": "triton:norm", **options}), [trace(subject)])


def test_a_kernel_that_no_longer_beats_the_others_fails() -> None:
    slower = with_validation(region(), timed(triton_norm=80.0, compile=60.0))
    report = beats(slower)
    assert report["outcome"] == "failed"
    assert "triton:norm takes 80" in report["errors"][0]["message"]
    assert beats(slower, over="eager")["passed"]
    assert beats(slower, over="eager", min_speedup=1.2)["passed"]
    assert beats(slower, over="eager", min_speedup=1.3)["outcome"] == "failed"


def test_within_the_intervals_nothing_is_lost() -> None:
    # Medians say 1 % slower; the intervals of ± 1 % overlap.
    assert beats(with_validation(region(), timed(triton_norm=80.8, compile=80.0)))["passed"]


def test_a_wrong_result_fails_and_an_absent_one_is_unmeasured() -> None:
    wrong = timed(triton_norm=80.0)
    wrong["candidates"][1] |= {"status": "mismatch", "time_us": None, "message": "off by 3"}
    report = beats(with_validation(region(), wrong))
    assert report["outcome"] == "failed"
    assert "off by 3" in report["errors"][0]["message"]
    missing = timed(compile=80.0)
    assert beats(with_validation(region(), missing))["outcome"] == "unmeasured"
    faulty = timed(triton_norm=80.0)
    faulty["candidates"][1] |= {"status": "fault", "time_us": None}
    assert beats(with_validation(region(), faulty))["outcome"] == "unmeasured"
    assert beats(with_validation(region(), timed(triton_norm=80.0)), over="compile")["outcome"] == "unmeasured"


def test_an_unfit_machine_is_no_failure_and_says_why() -> None:
    unfit = timed(triton_norm=80.0) | {"outcome": "unmeasured", "reason": "this machine is not fit to measure"}
    report = beats(with_validation(region(), unfit))
    assert report["exit_code"] == 2
    assert "not fit" in report["unmeasured"][0]["reason"]


# ------------------------------------------------------------------------------------------------------------ baseline


def against(before: Subject | None, after: Subject, **assertions: Any) -> Json:
    return judge(config(**assertions), [after], before)


def test_new_only_lets_pass_what_the_baseline_has() -> None:
    new_only = {"level": "error", "new_only": True}
    before, after = trace(region("old")), trace(region("old"), region("new"))
    report = against(before, after, compile=new_only)
    assert [f["region"] for f in report["errors"]] == ["new"]
    assert report["errors"][0]["new"] is True
    assert against(after, after, compile=new_only)["passed"]
    assert against(None, after, compile=new_only)["exit_code"] == 2
    # The same place with other shapes is no new place.
    moved = trace(region("old", key="other-key"))
    assert against(before, moved, compile=new_only)["passed"]
    # It was there, and under the share that counts.
    small = trace(region("old", share=0.01))
    grown = against(small, before, compile={**new_only, "min_share": 0.05})
    assert [f["region"] for f in grown["errors"]] == ["old"]


def test_new_only_does_not_concern_a_region_by_itself() -> None:
    alone, new_only = Subject("chain.txt", "region", {"regions": [region()]}), {"level": "error", "new_only": True}
    assert against(trace(), alone, compile=new_only)["passed"]
    assert against(None, alone, compile=new_only)["passed"]
    assert against(trace(), alone, compile="error")["errors"][0]["new"] is None


def test_without_new_only_a_baseline_only_tells_old_from_new() -> None:
    report = against(trace(region("old")), trace(region("old"), region("new")), compile="error")
    assert [(f["region"], f["new"]) for f in report["errors"]] == [("old", False), ("new", True)]


@pytest.mark.parametrize(("step_us", "spread", "outcome"), [
    (10_400.0, 0.01, "passed"),  # under 5 %
    (10_600.0, 0.01, "failed"),
    (10_600.0, 0.10, "passed"),  # the steps differ by more than that by themselves
    (9_000.0, 0.01, "passed"),
])  # fmt: skip
def test_a_slower_step_fails_beyond_its_noise(step_us: float, spread: float, outcome: str) -> None:
    report = against(trace(region()), trace(region(), step_us=step_us, spread=spread), regression="error")
    assert report["outcome"] == outcome


def test_a_regression_that_cannot_be_told_is_unmeasured() -> None:
    single = {"count": 1, "median_us": 10_000.0, "low_us": 10_000.0, "high_us": 10_000.0}
    cases = [
        (None, trace(region())),
        (trace(region(), device="NVIDIA A100"), trace(region())),
        (trace(region(), step_times=single), trace(region(), step_us=20_000.0)),
        (Subject("main.json", "trace", error="cut off"), trace(region(), step_us=20_000.0)),
    ]
    for before, after in cases:
        report = against(before, after, regression="error", region_regression="error")
        assert (report["outcome"], report["exit_code"]) == ("unmeasured", 2)


def test_a_slower_region_is_named() -> None:
    before = trace(region("a", time_us_per_step=1000.0), region("b", time_us_per_step=1000.0))
    after = trace(region("a", time_us_per_step=1200.0), region("b", time_us_per_step=1000.0))
    report = against(before, after, region_regression="error")
    assert [f["region"] for f in report["errors"]] == ["a"]
    assert report["errors"][0]["source"] == "models/net.py:42 forward"
    assert against(before, after, region_regression={"level": "error", "max_increase": 0.25})["passed"]
    assert against(before, after, region_regression={"level": "error", "min_share": 0.2})["passed"]
    assert against(before, after, region_regression={"level": "error", "region": "b"})["passed"]


# ---------------------------------------------------------------------------------------------------------------- step


def test_the_steps_time_and_idle_share_have_limits() -> None:
    subject = trace(region())
    assert judge(config(step_time={"level": "error", "max_us": 10_000}), [subject])["passed"]
    assert judge(config(step_time={"level": "error", "max_us": 9_999}), [subject])["outcome"] == "failed"
    assert judge(config(gpu_idle={"level": "error", "max_share": 0.2}), [subject])["passed"]
    assert judge(config(gpu_idle={"level": "error", "max_share": 0.19}), [subject])["outcome"] == "failed"
    unknown = trace(region(), step_parts=None, step_times=None, step_time_us=None)
    both = config(gpu_idle={"level": "error", "max_share": 0}, step_time={"level": "error", "max_us": 1})
    report = judge(both, [unknown])
    assert verdict(report) == ("unmeasured", 0, 0, 2)


def test_what_stops_torch_compile_is_found_where_it_is_called() -> None:
    obstacle = {"kind": "graph-break", "title": "A graph break", "op": "aten::item", "does": "breaks the graph",
                "calls_per_step": 2.0, "modules": ["Net"], "sources": ["models/net.py:7 mask"],
                "remedy": "Keep it."}  # fmt: skip
    subject = trace(region(), compile_obstacles=[obstacle])
    report = judge(config(obstacle="error"), [subject])
    assert (report["errors"][0]["source"], report["errors"][0]["action"]) == ("models/net.py:7 mask", "Keep it.")
    assert judge(config(obstacle={"level": "error", "kind": "sync*"}), [subject])["passed"]
    assert against(subject, subject, obstacle={"level": "error", "new_only": True})["passed"]
    assert against(trace(region()), subject, obstacle={"level": "error", "new_only": True})["outcome"] == "failed"


def test_an_option_for_the_whole_step_is_found_once_and_by_what_it_saves() -> None:
    options = [
        action(),
        action("graphs", 3_000.0, instead_of="compile-model"),
        action("one-region", scope="region", region="chain-key"),
        action("bf16", 400.0, tool="precision", where=None),
        action("sync", None, tool="host"),
    ]
    subject = trace(region(), actions=options)
    every = judge(config(step_option="error"), [subject])
    assert [f["region"] for f in every["errors"]] == ["Do compile-model", "Do bf16", "Do sync"]
    first = every["errors"][0]
    assert first["message"] == "Do compile-model: saves 2.00 ms (1.00 to 3.00) of a step, which then takes 8.00"
    assert (first["source"], first["call"]) == ("models/net.py:42", "model = torch.compile(model)")
    five = judge(config(step_option={"level": "error", "min_saving": 0.05}), [subject])
    assert [f["region"] for f in five["errors"]] == ["Do compile-model"]
    precise = judge(config(step_option={"level": "error", "tool": "prec*"}), [subject])
    assert [f["region"] for f in precise["errors"]] == ["Do bf16"]
    before = trace(region(), actions=options[:1])
    new = against(before, subject, step_option={"level": "error", "new_only": True})
    assert [f["region"] for f in new["errors"]] == ["Do bf16", "Do sync"]


def test_what_a_baseline_does_not_tell_is_not_new() -> None:
    subject = trace(region(), actions=[action()])
    only = {"level": "error", "new_only": True}
    old = trace(region())
    assert against(old, subject, step_option=only)["outcome"] == "unmeasured"
    unread = Subject("before.json", "trace", error="cut off")
    assert against(unread, subject, step_option=only)["outcome"] == "unmeasured"
    assert against(trace(region(), actions=[]), subject, step_option=only)["outcome"] == "failed"


def test_an_option_keeps_its_fingerprint_while_its_title_counts_otherwise() -> None:
    reports = [judge(config(step_option="error"), [trace(actions=[action(title=t)])]) for t in ("2 waits", "3 waits")]
    first, second = (report["errors"][0]["fingerprints"] for report in reports)
    assert first == second


def test_without_a_configuration_what_the_whole_step_could_save_is_a_warning() -> None:
    report = judge(DEFAULTS, [trace(region("chain", "skip"), actions=[action(), action("trifle", 50.0)])])
    assert [w["region"] for w in report["warnings"]] == ["Do compile-model"]
    assert [a["id"] for a in report["subjects"][0]["actions"]] == ["compile-model", "trifle"], "the report has all"


def test_assertions_on_steps_do_not_concern_a_region_by_itself() -> None:
    alone = Subject("chain.txt", "region", {"regions": [region()]})
    assert judge(config(regression="error", step_time={"level": "error", "max_us": 1}), [alone])["passed"]
