"""Real traces damaged in one way each: read as far as they go, and say so."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from profiler.trace import Limits, TraceError, read_trace
from profiler.trace.analyze.steps import step_time_us
from profiler.trace.model import NONE, Trace
from profiler.trace.read.limits import CHUNK_BYTES
from tests.profiler.trace.files import (
    LARGER,
    SMALL,
    TRACES,
    annotation,
    kernel,
    launch,
    loaded,
    op,
    plain,
    real,
    written,
)


def codes(trace: Trace) -> set[str]:
    return {note.code for note in trace.notes}


def assert_same(trace: Trace, whole: Trace) -> None:
    """Nothing that the advice rests on differs."""
    assert (trace.events, trace.dropped, trace.truncated) == (whole.events, 0, False)
    assert trace.kernel_time_us == pytest.approx(whole.kernel_time_us, rel=1e-12)
    assert trace.kernels.op.tolist() == whole.kernels.op.tolist()
    assert trace.ops.parent.tolist() == whole.ops.parent.tolist()
    assert trace.threads == whole.threads
    assert [trace.details[i] for i in trace.ops.detail[:200] if i != NONE] == [
        whole.details[i] for i in whole.ops.detail[:200] if i != NONE
    ]
    assert trace.profiler_steps == whole.profiler_steps


@pytest.fixture(scope="module")
def whole() -> Trace:
    return real(LARGER)


def test_layouts_that_other_writers_use_read_the_same(tmp_path: Path, whole: Trace) -> None:
    document = loaded(LARGER)
    events = document.pop("traceEvents")
    layouts = {
        "compact": json.dumps({**document, "traceEvents": events}, separators=(",", ":")),
        "indented": json.dumps({**document, "traceEvents": events}, indent=3),
        "keys after": json.dumps({"traceEvents": events, **document}),
        "many keys after": json.dumps({"traceEvents": events, "more": [{"a": [{}, {}]}, {"b": 1}] * 9, **document}),
        "nested namesake": json.dumps({"metadata": {"traceEvents": [{"ph": "X"}]}, **document, "traceEvents": events}),
        "byte order mark": "\ufeff" + json.dumps({**document, "traceEvents": events}),
    }
    for layout, text in layouts.items():
        trace = read_trace(written(tmp_path, text))
        assert_same(trace, whole)
        assert trace.device == "NVIDIA H200", layout
    assert_same(read_trace(written(tmp_path, json.dumps(events))), whole)


def test_a_gzip_member_that_begins_at_the_end_of_a_read_is_read(tmp_path: Path, whole: Trace) -> None:
    data = plain(LARGER)
    # The magic number of the second member is cut in two by the reader's chunks. Stored, not compressed: any length.
    first = gzip.compress(data[: CHUNK_BYTES - 200], compresslevel=0)
    name = b"n" * (CHUNK_BYTES - 1 - len(first) - 1)
    first = first[:3] + b"\x08" + first[4:10] + name + b"\0" + first[10:]
    assert len(first) == CHUNK_BYTES - 1
    assert_same(read_trace(written(tmp_path, first + gzip.compress(data[CHUNK_BYTES - 200 :]), "t.json.gz")), whole)


def test_gzip_in_several_members_reads_whole(tmp_path: Path, whole: Trace) -> None:
    data = plain(LARGER)
    members = gzip.compress(data[:1_000_000]) + gzip.compress(data[1_000_000:]) + b"\0" * 512
    assert_same(read_trace(written(tmp_path, members, "trace.json.gz")), whole)


@pytest.mark.parametrize(
    ("what", "pattern", "replacement"),
    [
        ("NaN", rb'"est\. achieved occupancy %": \d+', b'"est. achieved occupancy %": NaN'),
        ("inf", rb'"warps per SM": [\d.]+', b'"warps per SM": -inf'),
        ("unquoted N/A", rb'"blocks per SM": [\d.]+', b'"blocks per SM": N/A'),
        ("control character", rb'"cbid": (\d+)', b'"cbid": \\1, "note": "a\tb\nc"'),
        ("Windows path", rb'"cbid": (\d+)', rb'"cbid": \1, "note": "C:\\temp\\user\\new"'),
        ("bad UTF-8 in args", rb'"cbid": (\d+)', b'"cbid": \\1, "note": "\xff\xfe"'),
        ("string times", rb'"ts": ([\d.]+)', rb'"ts": "\1"'),
        ("string ids", rb'"correlation": (\d+)', rb'"correlation": "\1"'),
        ("integer above 2^63", rb'"cbid": (\d+)', b'"cbid": \\1, "Comms Id": 10159970886766084423'),
        ("integer above 2^64", rb'"cbid": (\d+)', b'"cbid": 1015997088676608442310159970886766084423'),
        ("duplicate keys", rb'"cbid": (\d+)', rb'"cbid": \1, "cbid": \1'),
        ("event boundary in a string", rb'"cbid": (\d+)', rb'"cbid": \1, "note": "}, {"'),
        ("objects inside args", rb'"cbid": (\d+)', rb'"cbid": \1, "list": [{"a": 1}, {"b": 2}]'),
    ],
)
def test_what_writers_get_wrong_costs_no_event(
    tmp_path: Path, whole: Trace, what: str, pattern: bytes, replacement: bytes
) -> None:
    damaged, count = re.subn(pattern, replacement, plain(LARGER))
    assert count > 100, what
    assert_same(read_trace(written(tmp_path, damaged)), whole)


def test_one_event_beyond_repair_is_dropped_alone_and_counted(tmp_path: Path, whole: Trace) -> None:
    data = plain(LARGER)
    at = data.index(b'"cudaLaunchKernel"', len(data) // 2)
    trace = read_trace(written(tmp_path, data[:at] + b'"cuda' + data[at + len(b'"cudaLaunchKernel"') :]))
    assert trace.dropped == 1
    assert trace.events == whole.events
    assert not trace.truncated
    assert len(trace.kernels.op) == len(whole.kernels.op)
    assert "dropped-events" in codes(trace)


def test_bad_utf8_in_names_keeps_the_kernels(tmp_path: Path, whole: Trace) -> None:
    trace = read_trace(written(tmp_path, plain(LARGER).replace(b"void at::native", b"void \xff\xc3::native")))
    assert (trace.events, trace.dropped) == (whole.events, 0)
    assert trace.kernel_time_us == pytest.approx(whole.kernel_time_us)
    assert any("�" in name for name in trace.names)


def test_a_truncated_file_reads_to_its_last_whole_event(tmp_path: Path) -> None:
    data = plain(LARGER)
    starts = [m.start() for m in re.finditer(rb'\{\s*"(?:ph|name)": "', data)]
    cut = starts[4321] + 40
    trace = read_trace(written(tmp_path, data[:cut]))
    assert (trace.events, trace.dropped, trace.truncated) == (4321, 0, True)
    assert trace.device == "NVIDIA H200"
    assert "truncated" in codes(trace)


def test_a_truncated_gzip_reads_to_its_last_whole_event(tmp_path: Path) -> None:
    packed = (TRACES / LARGER).read_bytes()
    trace = read_trace(written(tmp_path, packed[: len(packed) * 2 // 3], "trace.json.gz"))
    assert trace.truncated
    assert 5_000 < trace.events < 13_463
    assert trace.dropped == 0


def test_a_gzip_broken_inside_reads_to_the_break(tmp_path: Path) -> None:
    packed = bytearray((TRACES / LARGER).read_bytes())
    middle = len(packed) // 2
    packed[middle : middle + 64] = b"\xff" * 64
    trace = read_trace(written(tmp_path, bytes(packed), "trace.json.gz"))
    assert trace.truncated or trace.dropped
    assert trace.events > 1000


def test_events_without_a_time_are_dropped_and_counted(tmp_path: Path) -> None:
    events = [op("a", 0, 10), {**op("b", 1, 2), "ts": "soon"}, {**op("c", 3, 1), "dur": None}, kernel(5, 1, 9)]
    infinite = json.dumps([*events, op("d", 7, 1)]).replace('"ts": 7,', '"ts": 1e999,')
    assert "1e999" in infinite
    trace = read_trace(written(tmp_path, infinite))
    assert trace.events == 5
    assert trace.dropped == 2
    assert [trace.names[i] for i in trace.ops.name] == ["a", "c"]
    assert "dropped-events" in codes(trace)


DAY_US = 86_400e6


@pytest.mark.parametrize(
    ("what", "dur"), [("below zero", -1e12), ("of days", 2 * DAY_US), ("no number", "NaN"), ("none", None)]
)
def test_a_kernel_with_a_duration_that_cannot_be_is_dropped_and_counted(tmp_path: Path, what: str, dur: object) -> None:
    bad = {**kernel(30, 5, 2), "dur": dur}
    events = [op("a", 0, 20), launch(1, 1), launch(3, 2), kernel(10, 5, 1), bad]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    assert (trace.events, trace.dropped) == (5, 1), what
    assert trace.kernel_time_us == 5.0
    assert "dropped-events" in codes(trace)


def test_a_step_whose_length_was_lost_is_no_step_of_length_zero(tmp_path: Path) -> None:
    lost = annotation("ProfilerStep#1", 0, "DUR")  # type: ignore[arg-type]
    text = json.dumps([lost, op("a", 1, 20), launch(2, 1), kernel(10, 5, 1)]).replace('"DUR"', "NaN")
    trace = read_trace(written(tmp_path, text))
    assert (trace.profiler_steps, trace.dropped) == (0, 1)
    assert [len(step.kernels) for step in trace.steps] == [1]


def test_an_operator_without_a_readable_duration_keeps_its_place(tmp_path: Path) -> None:
    text = json.dumps([op("a", 0, 20), op("b", 5, "DUR"), kernel(10, 5, 1)]).replace('"DUR"', "Infinity")  # type: ignore[arg-type]
    trace = read_trace(written(tmp_path, text))
    assert [trace.names[i] for i in trace.ops.name] == ["a", "b"]
    assert trace.ops.parent.tolist() == [NONE, 0]


@pytest.mark.parametrize("far", [0.0, 1e300, -1e15])
@pytest.mark.parametrize("cat", ["kernel", "cpu_op", "cuda_runtime"])
def test_an_event_far_from_the_recording_does_not_stretch_its_step(tmp_path: Path, cat: str, far: float) -> None:
    # CUPTI: start and end of a kernel are 0 where its times could not be collected.
    document = loaded(SMALL)
    chosen = [e for e in document["traceEvents"] if e.get("cat") == cat][7]
    chosen["ts"] = far
    trace, whole = read_trace(written(tmp_path, json.dumps(document))), real(SMALL)
    assert (trace.events, trace.dropped) == (whole.events, 1)
    assert len(trace.kernels.op) == len(whole.kernels.op) - (cat == "kernel")
    assert len(trace.ops.name) == len(whole.ops.name) - (cat == "cpu_op")
    assert [step_time_us(trace, s) for s in trace.steps] == pytest.approx([step_time_us(whole, s) for s in whole.steps])
    assert "dropped-events" in codes(trace)


@pytest.mark.parametrize("others", [[], [op("a", 0, 10)], [annotation("ProfilerStep#1", 0, 10), op("a", 0, 10)]])
def test_a_time_that_no_clock_has_is_dropped_however_few_there_are_of_it(
    tmp_path: Path, others: list[dict[str, object]]
) -> None:
    trace = read_trace(written(tmp_path, json.dumps([*others, op("b", 1e308, 1e9), annotation("r", 1e308, 1)])))
    assert trace.dropped == 2
    assert [trace.names[i] for i in trace.ops.name] == ["a"] * bool(others)
    assert all(0.0 <= step.duration_us <= 10.0 for step in trace.steps)


def test_half_a_surrogate_pair_costs_a_character(tmp_path: Path) -> None:
    texts = {"Input Dims": [[8], []], "Input type": ["float", "Scalar"], "Concrete Inputs": ["", "\ud800x\udc00"]}
    whole = "\U0001f600"
    document = [
        {**op("\ud800a", 0, 10), "args": texts},
        op(whole, 2, 1),
        op("\\ud800", 4, 1),
        launch(5, 1),
        kernel(6, 1, 1),
    ]
    trace = read_trace(written(tmp_path, json.dumps(document)))
    assert (trace.events, trace.dropped) == (5, 0)
    assert [trace.names[i] for i in trace.ops.name] == ["\ufffda", whole, "\\ud800"]
    assert trace.details[0].concrete == ("", "\ufffdx\ufffd")


def test_a_gpu_whose_clock_is_another_keeps_its_kernels(tmp_path: Path) -> None:
    document = loaded(SMALL)
    for event in document["traceEvents"]:
        if event.get("cat") == "kernel":
            event["ts"] -= 30 * DAY_US
    trace = read_trace(written(tmp_path, json.dumps(document)))
    assert trace.dropped == 0
    assert trace.linked_share == 1.0


def test_a_repaired_event_stays_on_its_thread(tmp_path: Path) -> None:
    # The launch has a field of a wrong type: it is repaired one by one, and must still meet its op.
    events = [op("a", 0, 10), {**launch(1, 5), "cat": "cuda_runtime", "dur": None}, kernel(20, 2, 5)]
    trace = read_trace(written(tmp_path, json.dumps({"traceEvents": events})))
    assert trace.kernels.op.tolist() == [0]
    assert trace.threads == (("1", "1"),)


REFUSED = [
    ("trace-empty", b""),
    ("trace-empty", b" \n\t "),
    ("trace-not-json", b"\x7fELF\x02\x01\x01" + bytes(range(256))),
    ("trace-truncated", b"PK\x03\x04" + bytes(300)),
    ("trace-bad-sqlite", b"SQLite format 3\0" + bytes(300)),
    ("trace-bad-zstd", b"\x28\xb5\x2f\xfd" + bytes(300)),
    ("trace-not-json", b"ph,ts,dur\n1,2,3\n"),
    ("trace-not-json", b'{"schemaVersion": 1, "deviceProp'),
    ("trace-not-json", b'{"schemaVersion": 1, }'),
    ("trace-not-json", "{}".encode("utf-16")),
    ("trace-not-a-trace", b"{}"),
    ("trace-not-a-trace", b'{"nodes": [{"id": 1}], "schema": "1.1.1"}'),
    ("trace-not-a-trace", b'{"traceEvents": null}'),
    ("trace-not-a-trace", b'{"x": {"traceEvents": 3}}'),
    ("trace-not-a-trace", b"[1, 2, 3]"),
    ("trace-not-a-trace", b'[{"id": 1}, {"id": 2}]'),
    ("trace-bad-gzip", b"\x1f\x8b"),
    ("trace-bad-gzip", b"\x1f\x8b" + b"\xff" * 100),
    ("trace-empty", gzip.compress(b"", mtime=0)),
    ("trace-not-json", gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0)),
]


@pytest.mark.parametrize(("code", "data"), REFUSED)
def test_what_is_no_trace_is_refused_by_a_stable_code_with_a_remedy(tmp_path: Path, code: str, data: bytes) -> None:
    with pytest.raises(TraceError) as refused:
        read_trace(written(tmp_path, data))
    assert refused.value.code == code
    assert refused.value.message
    assert refused.value.remedy


def test_an_execution_trace_is_no_trace() -> None:
    with pytest.raises(TraceError, match="no traceEvents") as refused:
        real("llama_eager_attention_prefill.et.json.gz")
    assert refused.value.code == "trace-not-a-trace"


def test_limits_stop_a_file_that_is_too_large_or_a_bomb(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as refused:
        read_trace(TRACES / LARGER, Limits(max_bytes=1_000_000))
    assert refused.value.code == "trace-too-large"
    with pytest.raises(TraceError) as refused:
        read_trace(TRACES / LARGER, Limits(max_events=1000))
    assert refused.value.code == "trace-too-large"
    bomb = gzip.compress(b'{"traceEvents": [' + b" " * 80_000_000)
    with pytest.raises(TraceError) as refused:
        read_trace(written(tmp_path, bomb, "bomb.json.gz"))
    assert refused.value.code == "trace-too-large"


def test_one_endless_event_stops_at_its_limit(tmp_path: Path) -> None:
    data = b'{"traceEvents": [{"ph": "X", "name": "' + b"a" * 9_000_000
    with pytest.raises(TraceError) as refused:
        read_trace(written(tmp_path, data), Limits(max_event_bytes=4 * 1024**2))
    assert refused.value.code == "trace-too-large"


def test_an_empty_list_is_a_trace_without_kernels(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, '{"traceEvents": [ ], "deviceProperties": [{"name": "NVIDIA H200"}]}'))
    assert (trace.events, trace.steps, trace.truncated) == (0, (), False)
    assert trace.device == "NVIDIA H200"
    assert "no-kernels" in codes(trace)


def test_the_small_trace_reads_the_same_from_plain_json(tmp_path: Path) -> None:
    assert_same(read_trace(written(tmp_path, plain(SMALL))), real(SMALL))
