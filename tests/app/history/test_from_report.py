"""A run from a report: what its traces measured and its contracts counted, and nothing that was predicted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.check.config import from_mapping
from app.check.judge import judge
from app.check.subject import Subject
from app.history.from_report import RunContext, entries_from
from app.history.model import Environment, Measure
from tests.app.check.subjects import region, trace

CONTEXT = RunContext("2026-01-01T12:00:00+01:00", "abc", "main", software={"torch": "2.11.0"}, parents=("aaa",))


def report(*subjects: Subject) -> Any:
    return judge(from_mapping({"check": {"name": "nightly"}}), subjects)


def test_the_step_and_its_regions_are_kept_with_what_the_steps_differ_by() -> None:
    (entry,) = entries_from(report(trace(region("chain"), region("left", "skip"))), CONTEXT)
    assert entry.check == "nightly"
    assert entry.at == "2026-01-01T11:00:00.000000Z"
    assert (entry.commit, entry.branch, entry.parents) == ("abc", "main", ("aaa",))
    assert entry.environment.device == "NVIDIA H200"
    assert entry.environment.software == {"torch": "2.11.0"}
    assert entry.environment.method == "median of 10 recorded steps, with stacks"
    step, *regions = entry.measures
    assert (step.subject, step.metric, step.unit, step.value, step.samples) == (
        "step.json", "step time", "µs", 10_000.0, 10,
    )  # fmt: skip
    # The middle half is 2 % wide; of a normal distribution it is 1.349 standard deviations.
    assert step.spread is not None
    assert round(step.spread, 4) == 0.0148
    assert [(m.subject, m.metric, m.value) for m in regions] == [
        ("step.json: chain", "region time", 1000.0), ("step.json: left", "region time", 1000.0),
    ]  # fmt: skip


def test_regions_of_one_name_are_told_apart_by_their_module() -> None:
    other = region("chain", source={"module": "Net/Block_1", "line": "", "ops": []})
    (entry,) = entries_from(report(trace(region("chain"), other)), CONTEXT)
    assert [m.subject for m in entry.measures[1:]] == ["step.json: chain", "step.json: chain in Net/Block_1"]


def test_what_was_predicted_or_unreadable_is_not_kept() -> None:
    predicted = trace(region(), origin={"kind": "module"})
    text = Subject("region.txt", "region", {"device": "H200", "regions": [region()]})
    unread = Subject("bad.json", "trace", error="not JSON")
    assert entries_from(report(predicted, text, unread), CONTEXT) == []


def test_a_method_that_was_named_is_a_part_of_the_environment() -> None:
    context = RunContext("2026-01-01", method="clocks locked")
    (entry,) = entries_from(report(trace()), context)
    assert entry.environment.method == "clocks locked; median of 10 recorded steps"


def row(name: str, of: str, kernels: int | None, torch: str = "2.13.0", ratio: float | None = None) -> Any:
    return {
        "name": name, "of": of, "device": "H200", "torch": torch, "triton": "3.7", "kernels": kernels,
        "bytes_over_minimum": ratio,
    }  # fmt: skip


def test_contracts_are_counted_in_the_environment_that_they_were_asked_for() -> None:
    made = report(trace(device="NVIDIA A100"))
    made["contracts"] = [
        row("norm", "RMSNorm", 3, ratio=1.5), row("norm", "RMSNorm_2", 1), row("new", "new.txt", None),
        row("old", "old.txt", 2, torch="2.12.0"),
    ]  # fmt: skip
    timed, counted, older = entries_from(made, replace(CONTEXT, software={"torch": "2.11.0", "driver": "580.1"}))
    assert timed.environment.device == "NVIDIA A100"
    assert counted.environment == Environment("H200", {"torch": "2.13.0", "triton": "3.7"}, "oracle")
    assert counted.measures == (
        Measure("contract norm: RMSNorm", "kernels", "kernels", 3.0),
        Measure("contract norm: RMSNorm", "bytes over the minimum", "bytes/byte", 1.5),
        Measure("contract norm: RMSNorm_2", "kernels", "kernels", 1.0),
    )
    assert older.environment.software == {"torch": "2.12.0", "triton": "3.7"}
    assert len({timed.id, counted.id, older.id}) == 3


def test_a_release_of_this_tool_is_no_other_environment_of_step_times() -> None:
    context = replace(CONTEXT, software={"torch": "2.11.0", "tritonworthy": "1.0"})
    made = report(trace(region("chain")))
    made["contracts"] = [row("norm", "RMSNorm", 3)]
    steps, regions, counted = entries_from(made, context)
    assert [m.metric for m in (*steps.measures, *regions.measures)] == ["step time", "region time"]
    assert steps.environment.software == {"torch": "2.11.0"}
    assert regions.environment.software == context.software
    assert counted.environment.software["tritonworthy"] == "1.0"


def test_the_same_run_has_the_same_id() -> None:
    one, two, other = (entries_from(report(trace(step_us=us)), CONTEXT)[0] for us in (1e4, 1e4, 9e3))
    assert one.id == two.id
    assert one.id != other.id
