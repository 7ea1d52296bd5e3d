"""Which steps of a trace are mined."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from profiler.region.mining.steps import chosen_steps
from profiler.trace import read_trace
from profiler.trace.execution_trace import Execution, read_execution
from profiler.trace.model import Trace
from tests.profiler.trace.files import annotation, kernel, launch, op, written

LENGTHS_US = [800.0, 100.0, 400.0, 500.0, 520.0, 540.0, 530.0]
"""The first is a warm-up, over one and a half times the median; of the others 500 and 520 are in the middle."""


def trace_of(folder: Path, lengths: list[float]) -> Trace:
    """A step of each length, with one operation, numbered as the step, and its kernel."""
    events: list[dict[str, object]] = []
    at = 1000.0
    for i, length in enumerate(lengths):
        events += [
            annotation(f"ProfilerStep#{i}", at, length),
            op("aten::mm", at + 1, length / 4, **{"Record function id": i + 1}),
            launch(at + 2, 10 + i),
            kernel(at + 5, length - 10, 10 + i),
        ]
        at += length
    return read_trace(written(folder, json.dumps({"traceEvents": events})))


def execution_of(folder: Path, steps: Collection[int]) -> Execution:
    """What an observer that ran in these steps wrote."""
    nodes = [{"name": "aten::mm", "attrs": [{"name": "rf_id", "value": i + 1}]} for i in steps]
    return read_execution(written(folder, json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}), "et.json"))


def names(trace: Trace, execution: Execution | None) -> list[str]:
    return [step.name for step in chosen_steps(trace, execution)]


def test_a_warm_up_is_not_mined_where_a_measured_step_is_covered_as_well(tmp_path: Path) -> None:
    # Of those covered the warm-up is nearest in time to the ones in the middle.
    trace = trace_of(tmp_path, LENGTHS_US)
    assert names(trace, None) == ["ProfilerStep#3", "ProfilerStep#4"]
    assert names(trace, execution_of(tmp_path, [0, 1])) == ["ProfilerStep#1"]


def test_a_warm_up_is_mined_where_nothing_else_is_covered(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, LENGTHS_US)
    assert names(trace, execution_of(tmp_path, [0])) == ["ProfilerStep#0"]


def test_the_middle_ones_stay_where_all_or_none_are_covered(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, LENGTHS_US)
    for covered in (range(7), [90]):  # and a number that no step has
        assert names(trace, execution_of(tmp_path, covered)) == ["ProfilerStep#3", "ProfilerStep#4"]
