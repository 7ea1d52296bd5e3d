"""rocprofv3's JSON of a run gives the figures that torch.profiler's own trace of that run gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profiler.trace import Limits, TraceError, read_trace
from profiler.trace.read.formats import open as opened
from tests.fuzz.mutate import mutate
from tests.profiler.trace.files import annotation, kernel, launch, loaded, op, real, written
from tests.profiler.trace.read.formats.test_nsys import kernel_times, step_figures
from tests.profiler.trace.rocprofv3_file import recorded

OF_ONE_RUN = ("tl_mi300_resnet_actckpt.json.gz", "hta_mi250_minitoy.json.gz", "tl_sglang_prefilldecode.json.gz")

SMALL: dict[str, Any] = {
    "traceEvents": [
        annotation("step 1", 1000, 100), op("aten::mm", 1001, 20, **{"Input Dims": [[2, 3], [3, 4]]}),
        launch(1003, 1, name="hipLaunchKernel"), kernel(1030, 5, 1, name="gemm"),
    ]
}  # fmt: skip


def file(tmp_path: Path, document: object) -> Path:
    return written(tmp_path, json.dumps(document), "results.json")


@pytest.mark.parametrize("name", OF_ONE_RUN)
def test_a_recording_of_a_run_gives_the_figures_of_its_torch_trace(name: str, tmp_path: Path) -> None:
    theirs, ours = read_trace(file(tmp_path, recorded(loaded(name)))), real(name)
    assert kernel_times(theirs) == kernel_times(ours)
    left_out = {"copies", "busy_ns"}  # sets on the GPU are kernels of the runtime there
    figures = [{k: v for k, v in step_figures(t).items() if k not in left_out} for t in (theirs, ours)]
    assert figures[0] == figures[1]
    assert theirs.linked_share == ours.linked_share
    assert theirs.dropped == 0


def test_one_process_is_an_object_too_as_older_versions_write_it(tmp_path: Path) -> None:
    trace = read_trace(file(tmp_path, recorded(SMALL)))
    assert kernel_times(trace) == {("gemm", "aten::mm"): 5_000}
    assert trace.details[0].dims == ((2, 3), (3, 4))
    assert [s.name for s in trace.steps] == ["step 1"]


def test_records_behind_another_key_are_read_and_a_trace_that_names_them_stays_one(tmp_path: Path) -> None:
    whole = read_trace(file(tmp_path, {"version": {"major": 1}, **recorded(SMALL)}))
    assert kernel_times(whole) == {("gemm", "aten::mm"): 5_000}
    document = {**SMALL, "rocprofiler-sdk-tool": []}
    assert kernel_times(read_trace(file(tmp_path, document))) == {("gemm", "aten::mm"): 5_000}


def test_the_process_that_works_most_is_read(tmp_path: Path) -> None:
    document = recorded(SMALL)
    other = json.loads(json.dumps(document["rocprofiler-sdk-tool"][0]))
    other["metadata"]["pid"] = 77
    other["buffer_records"]["kernel_dispatch"][0]["end_timestamp"] += 10_000
    document["rocprofiler-sdk-tool"].append(other)
    trace = read_trace(file(tmp_path, document))
    assert trace.kernel_time_us == 15.0
    assert "process 77" in next(n.message for n in trace.notes if n.code == "several-processes")


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (lambda text: text[: len(text) // 2], "trace-not-json", "ends before its records do"),
        (lambda text: text.replace('"kernel_id": 1', '"kernel_id": "one"'), "trace-not-json", "kernel_id"),
        (lambda text: text.replace('"kernel_dispatch": [', '"kernel_dispatch": 7, "x": ['), "trace-not-json", "array"),
        (lambda text: text[: text.rindex("}", 0, -3) + 1], "trace-not-json", "ends before its records do"),
        (
            lambda text: text.replace('"end_timestamp": ', '"end_timestamp": ' + "9" * 400, 1),
            "trace-not-json",
            "end_timestamp",
        ),
        (lambda text: '{"rocprofiler-sdk-tool": []}', "trace-not-a-trace", "no process"),
        (lambda text: '{"rocprofiler-sdk-tool": 3}', "trace-not-json", "array"),
        (lambda text: text.replace('"gemm"', '"\\ud800"'), "trace-not-json", "not as rocprofv3 writes it"),
    ],
)
def test_a_damaged_file_is_refused_in_words(damage: Any, code: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError) as refused:
        read_trace(written(tmp_path, damage(json.dumps(recorded(SMALL)))))
    assert refused.value.code == code
    assert words in refused.value.message
    assert "rocprofv3 --hip-trace" in refused.value.remedy


def test_records_of_no_time_and_of_no_name_are_no_hindrance(tmp_path: Path) -> None:
    document = recorded(SMALL)
    process = document["rocprofiler-sdk-tool"][0]
    (dispatch,) = process["buffer_records"]["kernel_dispatch"]
    for change in (
        {"start_timestamp": 0},
        {"end_timestamp": 1},
        {"dispatch_info": None},
        {"kind": 99},
        {"operation": 99},
    ):
        process["buffer_records"]["kernel_dispatch"].append({**dispatch, **change})
    process["buffer_records"]["hip_api"][0]["operation"] = 2**40
    process["strings"]["marker_api"][1]["value"] = ""
    trace = read_trace(file(tmp_path, document))
    assert len(trace.kernels.name) == 4
    assert trace.dropped == 2
    assert "kernel without a name" in trace.names


def test_more_records_or_bytes_than_a_trace_may_have_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path, recorded(SMALL))
    with pytest.raises(TraceError, match="more than 2 events"):
        read_trace(path, Limits(max_events=2))
    document = recorded(SMALL)
    document["rocprofiler-sdk-tool"][0]["padding"] = "x" * 3_000_000
    monkeypatch.setattr(opened, "MOST_BYTES", 1_000_000)
    with pytest.raises(TraceError) as refused:
        read_trace(file(tmp_path, document))
    assert refused.value.code == "trace-too-large"


def test_whatever_a_writer_does_to_it_a_file_is_answered_or_refused(tmp_path: Path) -> None:
    """300 documents changed as the fuzzer changes traces: a value, a key, a record more or less, bytes."""
    text = json.dumps(recorded(SMALL)).encode()
    codes: dict[str, int] = {}
    answered = 0
    for seed in range(300):
        data = mutate("trace", text, 16_384, seed, lambda data, most: data[: len(data) * 2 // 3] or b"0")
        try:
            trace = read_trace(written(tmp_path, data))
            assert (trace.kernels.duration_us >= 0).all()
            answered += 1
        except TraceError as error:
            assert error.message
            codes[error.code] = codes.get(error.code, 0) + 1
    assert answered > 50
    assert set(codes) <= {"trace-not-json", "trace-not-a-trace", "trace-empty"}
    assert codes["trace-not-json"] > 50
