"""Every real trace against figures that a plain json.load script worked out."""

from __future__ import annotations

from collections import defaultdict

import pytest

from benchmarks.traces.trace_rows import kernel_table
from profiler.trace import steady_step
from profiler.trace.analyze.steps import kernel_busy_us
from profiler.trace.model import NONE
from tests.profiler.trace.files import EXPECTED, LARGER, loaded, real
from tests.profiler.trace.test_notes import BY_PROPERTIES


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
    assert trace.device == BY_PROPERTIES.get(name, want["gpu"] or None)


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


@pytest.mark.parametrize("name", [LARGER, "tl_h100_bert_small.json.gz"])
def test_rows_are_those_of_the_plain_script(name: str) -> None:
    events = [e for e in loaded(name)["traceEvents"] if e.get("ph") == "X"]
    ops = [e for e in events if e["cat"] == "cpu_op"]
    launches = {
        e["args"]["correlation"]: e
        for e in reversed(events)
        if e["cat"] in {"cuda_runtime", "cuda_driver"} and e.get("args", {}).get("correlation")
    }
    want: defaultdict[tuple[object, ...], list[float]] = defaultdict(list)
    for kernel in (e for e in events if e["cat"] == "kernel"):
        launch = launches[kernel["args"]["correlation"]]
        around = [
            e
            for e in ops
            if (e["pid"], e["tid"]) == (launch["pid"], launch["tid"]) and e["ts"] <= launch["ts"] <= e["ts"] + e["dur"]
        ]
        op = max(around, key=lambda e: (e["ts"], -e["dur"])) if around else None
        dims = str(op["args"].get("Input Dims")) if op else "None"
        want[op["name"] if op else None, dims, kernel["name"]].append(kernel["dur"])
    got: defaultdict[tuple[object, ...], list[float]] = defaultdict(lambda: [0, 0.0])
    for row in kernel_table(real(name)):
        dims = "None" if row.detail is None else str([_plain(sizes) for sizes in row.detail.dims])
        entry = got[row.op, dims, row.kernel]  # rows apart by types or scalars are one here
        entry[0] += row.calls
        entry[1] += row.time_us
    assert {key: entry[0] for key, entry in got.items()} == {key: len(times) for key, times in want.items()}
    for key, entry in got.items():
        assert entry[1] == pytest.approx(sum(want[key]), rel=1e-9)


@pytest.mark.parametrize("name", [n for n in sorted(EXPECTED) if not n.startswith("large")])
def test_the_table_leaves_no_kernel_out(name: str) -> None:
    trace = real(name)
    table = kernel_table(trace)
    assert sum(row.calls for row in table) == len(trace.kernels.name)
    assert sum(row.time_us for row in table) == pytest.approx(trace.kernel_time_us, rel=1e-9)
    assert [row.time_us for row in table] == sorted((row.time_us for row in table), reverse=True)
    unlinked = sum(row.calls for row in table if row.op is None)
    assert unlinked == int((trace.kernels.op == NONE).sum())


def _plain(sizes: object) -> object:
    return [_plain(size) for size in sizes] if isinstance(sizes, tuple) else sizes
