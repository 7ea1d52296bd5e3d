"""A run from a report: what its traces measured and its contracts counted, and nothing that was predicted."""

from __future__ import annotations

from typing import Any

from app.check.config import from_mapping
from app.check.judge import judge
from app.check.subject import Subject
from app.history.from_report import RunContext, entry_from
from app.history.model import Measure
from tests.app.check.subjects import region, trace

CONTEXT = RunContext("2026-01-01T12:00:00+01:00", "abc", "main", software={"torch": "2.11.0"}, parents=("aaa",))


def report(*subjects: Subject) -> Any:
    return judge(from_mapping({"check": {"name": "nightly"}}), subjects)


def test_the_step_and_its_regions_are_kept_with_what_the_steps_differ_by() -> None:
    entry = entry_from(report(trace(region("chain"), region("left", "skip"))), CONTEXT)
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
    entry = entry_from(report(trace(region("chain"), other)), CONTEXT)
    assert [m.subject for m in entry.measures[1:]] == ["step.json: chain", "step.json: chain in Net/Block_1"]


def test_what_was_predicted_or_unreadable_is_not_kept() -> None:
    predicted = trace(region(), origin={"kind": "module"})
    text = Subject("region.txt", "region", {"device": "H200", "regions": [region()]})
    unread = Subject("bad.json", "trace", error="not JSON")
    assert entry_from(report(predicted, text, unread), CONTEXT).measures == ()


def test_a_method_that_was_named_is_a_part_of_the_environment() -> None:
    context = RunContext("2026-01-01", method="clocks locked")
    assert entry_from(report(trace()), context).environment.method == "clocks locked; median of 10 recorded steps"


def test_contracts_are_counted_where_the_report_has_some() -> None:
    made = report(trace())
    made["contracts"] = [
        {"name": "norm", "of": "RMSNorm", "kernels": 3, "bytes_over_minimum": 1.5},
        {"name": "norm", "of": "RMSNorm_2", "kernels": 1, "bytes_over_minimum": None},
        {"name": "new", "of": "new.txt", "kernels": None},
    ]
    assert entry_from(made, CONTEXT).measures[1:] == (
        Measure("contract norm: RMSNorm", "kernels", "kernels", 3.0),
        Measure("contract norm: RMSNorm", "bytes over the minimum", "bytes/byte", 1.5),
        Measure("contract norm: RMSNorm_2", "kernels", "kernels", 1.0),
    )


def test_the_same_run_has_the_same_id() -> None:
    one, two = (entry_from(report(trace()), CONTEXT) for _ in range(2))
    assert one.id == two.id
    assert one.id != entry_from(report(trace(step_us=9000.0)), CONTEXT).id
