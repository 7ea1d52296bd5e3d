"""The assertion `history`: a finding with its cause, a warning for another environment, unmeasured for too few runs."""

from __future__ import annotations

from typing import Any

import pytest

from app.check.config import Config, ConfigError, from_mapping, read_toml
from app.check.contracts.judge import JudgedContract, judge_contract
from app.check.contracts.lock import Lock
from app.check.contracts.model import Answer, Asked
from app.check.formats import FORMATS
from app.check.history import Past, runs_of
from app.check.judge import judge
from app.check.subject import Subject
from app.history.from_report import RunContext, entries_from
from app.history.model import Entry
from tests.app.check.subjects import region, trace
from tests.app.check.validators import VALIDATORS
from tests.app.history.runs import noisy

Json = dict[str, Any]


def config(**options: Any) -> Config:
    return from_mapping({"check": {"name": "nightly"}, "assertions": {"history": {"level": "error", **options}}})


def context(number: int, **more: Any) -> RunContext:
    at = f"2026-01-{1 + number // 24:02}T{number % 24:02}:00:00Z"
    return RunContext(at, f"c{number:03}", "main", **{"software": {"torch": "2.11.0"}, **more})


def earlier(count: int = 20) -> tuple[Entry, ...]:
    runs = [trace(region("chain", time_us_per_step=us / 10), step_us=us) for us in noisy([10_000.0] * count)]
    return tuple(entry for n, run in enumerate(runs) for entry in entries_from(judge(config(), [run]), context(n)))


def report(subject: Subject, past: Past | None, **options: Any) -> Any:
    return judge(config(**options), [subject], past=past)


SLOWER = trace(region("chain", time_us_per_step=1000.0), step_us=10_600.0)


def test_a_slower_step_is_an_error_with_its_cause_and_commit() -> None:
    made = report(SLOWER, Past(earlier(), context(20)))
    assert (made["outcome"], made["exit_code"]) == ("failed", 1)
    (finding,) = made["errors"]
    assert finding["message"].startswith("Regression: step, step time 6.1% more from c020 on, after c019")
    assert finding["time_us_per_step"] == 10_600.0
    assert report(SLOWER, Past(earlier(), context(20)), min_increase=0.07)["outcome"] == "passed"


def test_a_slower_region_is_named_with_its_line() -> None:
    subject = trace(region("chain", time_us_per_step=1100.0), step_us=10_000.0)
    (finding,) = report(subject, Past(earlier(), context(20)))["errors"]
    assert (finding["region"], finding["source"]) == ("chain", "models/net.py:42 forward")
    assert report(subject, Past(earlier(), context(20)), region="other*")["outcome"] == "passed"
    assert report(subject, Past(earlier(), context(20)), metric="step*")["outcome"] == "passed"


def test_another_torch_is_a_warning_and_says_how_to_tell() -> None:
    made = report(SLOWER, Past(earlier(), context(20, software={"torch": "2.12.0"})), metric="step time")
    assert (made["outcome"], made["exit_code"]) == ("passed", 0)
    (finding,) = made["warnings"]
    assert finding["message"].startswith("Software: step, step time 6.1% more with torch 2.12.0 instead of 2.11.0")
    assert "git checkout c019" in finding["action"]
    assert made["assertions"][0]["outcome"] == "warned"


def test_a_short_history_and_none_are_unmeasured_with_the_reason() -> None:
    made = report(SLOWER, Past(earlier(2), context(2)), metric="step time")
    assert (made["outcome"], made["exit_code"]) == ("unmeasured", 2)
    assert "2 earlier runs in this environment of the 5 needed" in made["unmeasured"][0]["reason"]
    (unmeasured,) = report(SLOWER, None)["unmeasured"]
    assert unmeasured["reason"] == "there is no history to compare with: --history FILE names it"
    text = Subject("region.txt", "region", {"device": "H200", "regions": [region()]})
    (nothing,) = report(text, Past(earlier(), context(20)))["unmeasured"]
    assert nothing["reason"] == "nothing was measured that a history could keep"


def test_min_runs_and_confidence_decide() -> None:
    past = Past(earlier(5), context(5))
    assert report(SLOWER, past, metric="step time", confidence=0.999999)["outcome"] == "passed"
    assert report(SLOWER, past, metric="step time", confidence=0.9)["outcome"] == "failed"
    assert report(SLOWER, past, metric="step time", min_runs=10)["outcome"] == "unmeasured"


def test_the_run_that_is_judged_is_the_run_that_is_kept() -> None:
    past = Past(earlier(), context(20))
    (entry,) = entries_from(report(SLOWER, past), past.run)
    assert entry.environment == past.entries[0].environment
    assert (entry,) == tuple(runs_of("nightly", [SLOWER], [], past.run))


def test_a_new_region_among_others_that_were_judged_does_not_make_the_check_unmeasured() -> None:
    subject = trace(region("chain"), region("new"), step_us=10_000.0)
    made = report(subject, Past(earlier(), context(20)))
    assert (made["outcome"], made["unmeasured"]) == ("passed", [])
    alone = report(subject, Past(earlier(), context(20)), region="new")
    assert [(u["region"], u["reason"]) for u in alone["unmeasured"]] == [
        ("new", "region time: the history has no run of it yet")
    ]


KEPT = """
[check]
name = "nightly"
[assertions]
history = "error"
[[contracts]]
name = "norm"
region = "norm.txt"
max_kernels = 9
"""


def counted(kernels: int, *more: str, torch: str = "2.13.0", device: str = "H200") -> JudgedContract:
    (contract,) = CONTRACTS.contracts
    answers = tuple(
        Answer(of, "", device, "default", False, torch, "3.7", kernels, 100, 100) for of in ("norm.txt", *more)
    )  # fmt: skip
    return judge_contract(Asked(contract, answers, torch, "3.7"), Lock())


CONTRACTS = read_toml(KEPT, "kept.toml", runs_kernels=True)


def with_contracts(now: JudgedContract, runs: int = 6, subjects: tuple[Subject, ...] = ()) -> Any:
    entries = [
        e for n in range(runs)
        for e in entries_from(judge(CONTRACTS, [], contracts=[counted(2)]), context(n))
    ]  # fmt: skip
    return judge(CONTRACTS, subjects, contracts=[now], past=Past(tuple(entries), context(runs)))


def test_contracts_without_a_trace_are_judged() -> None:
    made = with_contracts(counted(3))
    (finding,) = made["errors"]
    assert (finding["subject"], finding["region"], finding["time_us_per_step"]) == ("norm", "norm.txt", None)
    assert finding["message"].startswith("Regression: norm.txt, kernels 50.0% more from c006 on, after c005")
    assert with_contracts(counted(2))["outcome"] == "passed"
    assert with_contracts(counted(2), runs=0)["outcome"] == "unmeasured"
    assert with_contracts(counted(2, "other.txt"))["outcome"] == "passed"  # a new one among others


def test_another_torch_of_a_contract_is_no_regression_of_the_commit() -> None:
    made = with_contracts(counted(3, torch="2.14.0"))
    assert (made["errors"], made["outcome"]) == ([], "passed")
    assert (
        "Software: norm.txt, kernels 50.0% more with torch 2.14.0 instead of 2.13.0" in made["warnings"][0]["message"]
    )
    assert with_contracts(counted(3, device="A100"))["warnings"][0]["message"].startswith("Hardware: norm.txt")


def test_the_runners_gpu_is_no_cause_of_a_contracts_count() -> None:
    made = with_contracts(counted(3), subjects=(trace(device="NVIDIA A100"),))
    assert [f["message"].split(":")[0] for f in made["errors"]] == ["Regression"]


def test_a_history_of_nothing_that_it_could_keep_says_so() -> None:
    (unmeasured,) = judge(config(), [], past=Past((), context(0)))["unmeasured"]
    assert unmeasured["reason"] == "nothing was measured that a history could keep"


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_format_has_the_cause_and_is_valid(name: str) -> None:
    text = FORMATS[name].render(report(SLOWER, Past(earlier(), context(20))))
    assert "Regression: step, step time" in text
    if name in VALIDATORS:
        VALIDATORS[name](text)


@pytest.mark.parametrize(("key", "value"), [("min_runs", 1), ("confidence", 1.0), ("min_share", 0.1)])
def test_options_that_are_none_are_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError):
        config(**{key: value})
