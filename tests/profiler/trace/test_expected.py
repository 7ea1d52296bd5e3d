"""Every real trace against figures that a plain json.load script worked out."""

from __future__ import annotations

import pytest

from profiler.trace import steady_step
from profiler.trace.analyze.steps import kernel_busy_us
from profiler.trace.model import NONE
from tests.profiler.trace.files import EXPECTED, real


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_events_kernels_times_links_and_steps_are_those_of_the_plain_script(name: str) -> None:
    want = EXPECTED[name]
    trace = real(name)
    assert trace.events == want["events"]
    assert trace.dropped == 0
    assert not trace.truncated
    assert len(trace.kernels.op) == want["kernels"]
    assert len(trace.memory.op) == want["memory_events"]
    # The script rounds its sums to 0.1 µs.
    assert trace.kernel_time_us == pytest.approx(want["kernel_time_us"], abs=0.06)
    assert kernel_busy_us(trace) == pytest.approx(want["kernel_busy_us"], abs=0.11)
    assert int((trace.kernels.op != NONE).sum()) == want["linked_kernels"]
    if want["linked_time_share"] is None:
        assert trace.linked_share is None
    else:
        assert trace.linked_share == pytest.approx(want["linked_time_share"], abs=0.00006)
    assert trace.profiler_steps == want["profiler_steps"]
    assert trace.has_shapes == want["has_shapes"]
    assert trace.has_stacks == want["has_stacks"]
    assert trace.device == (want["gpu"] or None)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_kernel_time_by_op_is_that_of_the_plain_script(name: str) -> None:
    trace = real(name)
    by_op: dict[str, float] = {}
    for op, duration in zip(trace.kernels.op.tolist(), trace.kernels.duration_us.tolist(), strict=True):
        if op != NONE:
            label = trace.names[trace.ops.name[op]]
            by_op[label] = by_op.get(label, 0.0) + duration
    for label, time_us in EXPECTED[name]["top_ops"]:
        assert by_op[label] == pytest.approx(time_us, abs=0.06)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_trace_with_kernels_has_a_step_and_its_indices_point_into_the_columns(name: str) -> None:
    trace = real(name)
    assert trace.steps
    step = steady_step(trace)
    assert step.duration_us > 0.0 or len(trace.kernels.op) <= 1
    for each in trace.steps:
        assert (trace.ops.parent[each.ops] == NONE).all()
        assert len(set(each.kernels.tolist())) == len(each.kernels)
        assert each.kernels.max(initial=-1) < len(trace.kernels.op)
        assert each.memory.max(initial=-1) < len(trace.memory.op)
