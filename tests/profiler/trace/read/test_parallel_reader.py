"""Two processes that read one file find what one finds, in the same order, or say that they cannot."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.traces.repeated import LONG_BYTES, TRAINING, repeat
from profiler.trace import Limits, TraceError, read_trace
from profiler.trace.model import Trace
from profiler.trace.read.assemble import assemble
from profiler.trace.read.columns import Columns, GpuColumns, LaunchColumns, OpColumns, Spans
from profiler.trace.read.parallel_reader import GROUPS, pays, read_in_two
from tests.profiler.trace.files import LARGER, TRACES, loaded, op, plain, real, written

SEGMENT_BYTES = 150_000
LIMITS = Limits(max_bytes=1024**3)  # a segment is at least 1/15,000 of it: there are no more numbers to claim


def in_two(path: Path, segment_bytes: int = SEGMENT_BYTES) -> Trace | None:
    """What two processes read; None where they ask for one."""
    found = read_in_two(path, LIMITS, segment_bytes)
    return None if found is None else assemble(*found)


def assert_equal(trace: Trace | None, alone: Trace) -> None:
    """Every column and every fact; numbers of names and details are compared by what they stand for."""
    assert trace is not None
    for table in (
        "threads",
        "modules",
        "steps_",
        "events",
        "dropped",
        "device",
        "origin_us",
        "truncated",
        "has_stacks",
    ):
        if not table.endswith("_"):
            assert getattr(trace, table) == getattr(alone, table), table
    assert sorted(trace.names) == sorted(alone.names)
    for group in ("ops", "kernels", "memory", "annotations", "syncs"):
        mine, theirs = getattr(trace, group), getattr(alone, group)
        for field in mine.__dataclass_fields__:
            a, b = getattr(mine, field), getattr(theirs, field)
            if field == "name":
                assert [trace.names[i] for i in a] == [alone.names[i] for i in b]
            elif field == "detail":
                texts = [(*trace.details, None), (*alone.details, None)]
                assert [texts[0][i] for i in a] == [texts[1][i] for i in b]
            else:
                assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), (group, field)
    assert [n.code for n in trace.notes] == [n.code for n in alone.notes]
    assert len(trace.steps) == len(alone.steps)


@pytest.mark.parametrize(
    "name",
    [
        LARGER,
        "kineto_resnet50_workers0.json.gz",  # capitals, keys after the events
        "hta_trace_diff_control.json.gz",
        "gpt2_train_autocast_eager_stack.json.gz",  # frames
        "tl_xdit_sd35_graph.json.gz",
        "hta_rank-70.Mar_25_20_48_12.2861.pt.trace.json.gz",  # one segment
    ],
)
def test_two_processes_find_what_one_finds(name: str) -> None:
    alone = real(name) if name == LARGER else read_trace(TRACES / name, processes=1)
    assert_equal(in_two(TRACES / name, 700_000 if name.startswith("tl_xdit") else SEGMENT_BYTES), alone)


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """215 MB of JSON: two steps of training again and again."""
    path = tmp_path_factory.mktemp("long") / "long.json.gz"
    repeat(TRAINING, path, LONG_BYTES)
    return path


def test_a_large_file_is_read_by_two_and_a_small_one_by_one(long_trace: Path) -> None:
    assert pays(long_trace, 2)
    assert not pays(long_trace, 1)
    assert not pays(TRACES / LARGER, 2)


@pytest.mark.parametrize("segment_bytes", [70_000, 262_144, 3_000_000])
def test_where_the_cuts_fall_changes_nothing(tmp_path: Path, segment_bytes: int) -> None:
    document = loaded(LARGER)
    events = document.pop("traceEvents")
    for text in (
        json.dumps({"traceEvents": events, **document}, separators=(",", ":")),
        json.dumps(events),
        json.dumps({**document, "traceEvents": events}, indent=1).replace('"cbid"', '"note": NaN, "cbid"'),
    ):
        path = written(tmp_path, text)
        assert_equal(in_two(path, segment_bytes), read_trace(path, processes=1))


def test_events_longer_than_a_segment_are_read_once(tmp_path: Path) -> None:
    events = [op(f"op {i}", 10 * i, 5, note="x" * (400_000 if i % 3 == 0 else 10)) for i in range(12)]
    path = written(tmp_path, json.dumps({"traceEvents": events}))
    trace = in_two(path, 100_000)
    assert trace is not None
    assert [trace.names[i] for i in trace.ops.name] == [f"op {i}" for i in range(12)]
    assert not trace.truncated


def test_a_boundary_inside_an_event_sends_the_file_back_to_one_process(tmp_path: Path) -> None:
    # The first `}, {` after every cut stands in a string: no cut is right.
    events = [op(f"op {i}", 10 * i, 5, note="}, {" * 30_000) for i in range(12)]
    path = written(tmp_path, json.dumps({"traceEvents": events}))
    assert in_two(path, 100_000) is None
    trace = read_trace(path)
    assert (trace.events, trace.dropped) == (12, 0)


def test_an_event_beyond_repair_is_counted_by_one_process(tmp_path: Path) -> None:
    data = plain(LARGER)
    at = data.index(b'"cudaLaunchKernel"', len(data) // 2)
    path = written(tmp_path, data[:at] + b'"cuda' + data[at + len(b'"cudaLaunchKernel"') :])
    assert in_two(path) is None
    assert read_trace(path).dropped == 1


def test_a_header_longer_than_a_segment_is_no_error(tmp_path: Path) -> None:
    document = {"more": [{"a": i} for i in range(30_000)], "traceEvents": [op("a", 1, 2)]}
    path = written(tmp_path, json.dumps(document))
    assert in_two(path, 100_000) is None
    assert read_trace(path).events == 1


@pytest.mark.parametrize("share", [0.3, 0.77, 0.999])
def test_a_truncated_file_is_flagged_by_two_as_by_one(tmp_path: Path, share: float) -> None:
    packed = (TRACES / LARGER).read_bytes()
    path = written(tmp_path, packed[: int(len(packed) * share)], "cut.json.gz")
    alone = read_trace(path, processes=1)
    assert alone.truncated
    assert_equal(in_two(path), alone)
    data = plain(LARGER)
    path = written(tmp_path, data[: int(len(data) * share)])
    assert_equal(in_two(path), read_trace(path, processes=1))


def test_an_object_that_ends_with_its_list_is_truncated_and_a_list_is_not(tmp_path: Path) -> None:
    events = json.dumps(loaded(LARGER)["traceEvents"])
    trace = in_two(written(tmp_path, events))
    assert trace is not None
    assert not trace.truncated
    trace = in_two(written(tmp_path, '{"traceEvents": ' + events))
    assert trace is not None
    assert trace.truncated


def test_limits_hold_for_two_as_for_one(tmp_path: Path) -> None:
    path = written(tmp_path, plain(LARGER) + b" " * 9_000_000)
    for limits in (Limits(max_events=1000), Limits(max_bytes=1_000_000)):
        with pytest.raises(TraceError) as refused:
            read_in_two(path, limits, SEGMENT_BYTES)
        assert refused.value.code == "trace-too-large"


def test_what_is_no_trace_is_refused_by_two_as_by_one(tmp_path: Path) -> None:
    for data in (b"", b"[1, 2]", b"{}", gzip.compress(b"")):
        path = written(tmp_path, data)
        with pytest.raises(TraceError) as alone:
            read_trace(path, processes=1)
        try:
            found = read_in_two(path, LIMITS, SEGMENT_BYTES)
        except TraceError as refused:
            assert refused.code == alone.value.code
        else:
            assert found is None


def test_reading_imports_no_torch() -> None:
    code = "import sys; from profiler.trace import read_trace; read_trace(sys.argv[1]); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(TRACES / LARGER)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_memory_is_that_of_the_columns_not_of_the_file(long_trace: Path) -> None:
    # 215 MB of JSON. Measured: 79 MB, 34 of them before a byte is read.
    code = (
        "import sys; from profiler.child.peak_memory import peak_bytes; from profiler.trace import read_trace; "
        "read_trace(sys.argv[1], processes=1); print(peak_bytes())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(long_trace)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 130 * 1024 * 1024


def test_every_group_of_columns_comes_over_from_the_other_process() -> None:
    groups = OpColumns | GpuColumns | LaunchColumns | Spans
    assert list(GROUPS) == [name for name, value in vars(Columns()).items() if isinstance(value, groups)]
