"""An nsys export of a run gives the figures that torch.profiler's own trace of that run gives."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from profiler.trace import Limits, Trace, TraceError, read_trace, steady_step
from profiler.trace.analyze.gpu_utilization import union_us, work_intervals
from profiler.trace.model import NONE
from profiler.trace.read.formats.nsys import STRINGS
from tests.profiler.trace.files import annotation, kernel, launch, loaded, op, real, written
from tests.profiler.trace.nsys_export import MODERN, OLDER, Export, export

OF_ONE_RUN = (
    "llama_prefill_bf16_eager.json.gz", "gpt2_train_autocast_eager.json.gz", "handrolled_blocks_bf16_cudagraph.json.gz",
    "llama_decode_bf16_eager.json.gz", "timm_convnext_train_channels_last.json.gz",
    "handrolled_blocks_bf16_compiled.json.gz",
)  # fmt: skip


def kernel_times(trace: Trace) -> dict[tuple[str, str], float]:
    """Time of each pair of kernel and operation that launched it, over the whole trace, in nanoseconds."""
    times: Counter[tuple[str, str]] = Counter()
    kernels = trace.kernels
    for name, owner, duration_us in zip(kernels.name, kernels.op, kernels.duration_us, strict=True):
        operation = trace.names[trace.ops.name[owner]] if owner != NONE else ""
        times[trace.names[name], operation] += round(duration_us * 1000)
    return dict(times)


def step_figures(trace: Trace) -> dict[str, Any]:
    step = steady_step(trace)
    return {
        "steps": [(s.name, round(s.duration_us, 3)) for s in trace.steps],
        "source": trace.step_source,
        "kernels": len(step.kernels),
        "copies": len(step.memory),
        "busy_ns": round(union_us(*work_intervals(trace, step)) * 1000),
        "launched": int(trace.kernels.launched[step.kernels].sum()),
        "graph": int(trace.kernels.graph.sum()),
        "waits": [(trace.names[n], round(e - s, 3)) for n, s, e in _syncs(trace)],
        "device": trace.device,
        "capability": trace.capability,
    }


def _syncs(trace: Trace) -> list[tuple[int, float, float]]:
    syncs = trace.syncs
    return [] if syncs is None else list(zip(syncs.name, syncs.start_us, syncs.end_us, strict=True))


@pytest.mark.parametrize("schema", [MODERN, OLDER], ids=["modern", "of 2021"])
@pytest.mark.parametrize("name", OF_ONE_RUN)
def test_an_export_of_a_run_gives_the_figures_of_its_torch_trace(
    name: str, schema: dict[str, str], tmp_path: Path
) -> None:
    exported, recorded = read_trace(export(loaded(name), tmp_path / "run.sqlite", schema)), real(name)
    figures = step_figures(exported)
    if schema is OLDER:
        assert exported.device == recorded.device
        figures["capability"] = recorded.capability  # not among the columns of 2021
    assert figures == step_figures(recorded)
    assert kernel_times(exported) == kernel_times(recorded)
    assert exported.linked_share == pytest.approx(recorded.linked_share, abs=1e-12)
    assert exported.dropped == 0


def test_shapes_and_forward_backward_pairs_come_from_the_ranges_of_emit_nvtx(tmp_path: Path) -> None:
    name = "gpt2_train_autocast_eager.json.gz"
    exported, recorded = read_trace(export(loaded(name), tmp_path / "run.sqlite")), real(name)
    assert _numbered(exported) == _numbered(recorded)
    assert sum(_products(exported).values()) > 100
    assert _products(exported) == _products(recorded)


def _products(trace: Trace) -> Counter[tuple[object, ...]]:
    """Sizes of both operands of each matrix product."""
    ops = trace.ops
    rows = [i for i in range(len(ops.name)) if trace.names[ops.name[i]] == "aten::mm"]
    return Counter(trace.details[ops.detail[i]].dims[:2] for i in rows)


def _numbered(trace: Trace) -> list[tuple[int, str, int]]:
    """Start in nanoseconds, name and sequence number of each operation that has one."""
    ops = trace.ops
    origin = min(ops.start_us)
    rows = zip(ops.start_us - origin, ops.name, ops.sequence, strict=True)
    return sorted((round(at * 1000), trace.names[name], number) for at, name, number in rows if number != NONE)


def test_ranges_of_users_are_annotations_and_those_of_libraries_are_not_there(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    made = Export(path)
    for step in range(3):
        at = step * 10_000
        made.push_pop(at, at + 9_000, f"iteration {step}", 5)
        made.push_pop(at + 100, at + 8_000, "ncclAllReduce", 5, domainId=9)
        made.insert("NVTX_EVENTS", start=at, end=at + 500, eventType=60, text="load", globalTid=made.global_id(6))
        made.insert("NVTX_EVENTS", start=at, end=None, eventType=34, text="mark", globalTid=made.global_id(5))
        made.call(at + 200, at + 300, step + 1, "cudaLaunchKernel", 5)
        made.kernel(at + 1_000, at + 5_000, step + 1, "k")
    made.push_pop(29_000, None, "never closed", 5)
    made.insert("NVTX_EVENTS", start=0, end=None, eventType=75, text="NCCL", domainId=9, globalTid=made.global_id(5))
    made.close()
    trace = read_trace(path)
    assert Counter(trace.names[n] for n in trace.annotations.name) == Counter(
        {"load": 3, "iteration 0": 1, "iteration 1": 1, "iteration 2": 1}
    )
    assert [(s.name, s.duration_us) for s in trace.steps] == [(f"iteration {n}", 9.0) for n in range(3)]
    assert trace.step_source == "annotation"
    assert len(trace.ops.name) == 0
    assert trace.threads  # each range on the thread that pushed it


def test_a_text_and_a_reference_to_one_are_both_a_range_s_name(tmp_path: Path) -> None:
    made = Export(tmp_path / "run.sqlite")
    for start, text, reference in (
        (0, "aten::a", None),
        (10, None, made.string("aten::b")),
        (20, "", made.string("aten::c")),
    ):
        made.insert("NVTX_EVENTS", start=start, end=start + 5, eventType=59, text=text, textId=reference,
                    globalTid=made.global_id(5))  # fmt: skip
    made.close()
    trace = read_trace(tmp_path / "run.sqlite")
    assert [trace.names[n] for n in trace.ops.name] == ["aten::a", "aten::b", "aten::c"]


def test_the_process_that_works_most_is_read_and_the_file_says_how_many_there_are(tmp_path: Path) -> None:
    path = tmp_path / "job.sqlite"
    made = Export(path)
    for pid, length in ((100, 1_000), (200, 9_000)):
        made.pid = pid
        made.push_pop(0, 50_000, f"aten::of_{pid}", 7)
        for correlation in (1, 2):  # ids are a process's own
            made.call(correlation * 100, correlation * 100 + 10, correlation, "cudaLaunchKernel", 7)
            made.kernel(correlation * 10_000, correlation * 10_000 + length, correlation, f"k{pid}")
    made.close()
    trace = read_trace(path)
    assert {trace.names[n] for n in trace.kernels.name} == {"k200"}
    assert {trace.names[n] for n in trace.ops.name} == {"aten::of_200"}
    assert trace.kernels.op.tolist() == [0, 0]
    (note,) = [n for n in trace.notes if n.code == "several-processes"]
    assert "2 processes: process 200" in note.message


def test_a_graph_recorded_whole_is_gpu_work_and_the_file_says_what_is_hidden(tmp_path: Path) -> None:
    schema = {**MODERN, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, streamId INTEGER, "
        "correlationId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER")}  # fmt: skip
    made = Export(tmp_path / "run.sqlite", schema)
    made.call(0, 100, 1, "cudaGraphLaunch", 5)
    made.insert("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=1_000, end=6_000, streamId=7, correlationId=1,
                globalPid=made.global_id(), graphId=3)  # fmt: skip
    made.close()
    trace = read_trace(tmp_path / "run.sqlite")
    assert [trace.names[n] for n in trace.kernels.name] == ["CUDA graph 3"]
    assert trace.kernels.graph.tolist() == [True]
    assert trace.kernel_time_us == 5.0
    assert "node by node" in next(n for n in trace.notes if n.code == "graphs-recorded-whole").remedy


def test_the_device_is_the_one_that_worked(tmp_path: Path) -> None:
    made = Export(tmp_path / "run.sqlite")
    for number, name in enumerate(("NVIDIA T4", "NVIDIA H200")):
        made.insert("TARGET_INFO_GPU", id=number, name=name, computeMajor=9, computeMinor=0, threadsPerWarp=32)
        # the program sees them in another order
        made.insert("TARGET_INFO_CUDA_DEVICE", gpuId=number, cudaId=1 - number, pid=made.pid)
    made.kernel(0, 10, 1, "k", deviceId=0)
    made.close()
    assert read_trace(tmp_path / "run.sqlite").device == "NVIDIA H200"


def test_rows_of_wrong_types_and_times_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE StringIds (id, value)")
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, demangledName, streamId, correlationId)")
        db.execute("INSERT INTO StringIds VALUES (1, 'k'), ('x', 'y'), (2, x'00')")
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?)",
                       [(0, 10, 1, 7, 1), ("a", 10, 1, 7, 1), (5, None, 1, 7, 1), (9, 3, 1, 7, 1),
                        (20, 30, b"1", b"", 1e9),
                        (40, 50, 2, -3, -1), (60, 2**63 - 1, 1, 7, 2**62)])  # fmt: skip
    trace = read_trace(path)
    assert sorted({trace.names[n] for n in trace.kernels.name}) == ["k", "kernel without a name"]
    assert trace.kernels.duration_us.tolist() == [0.01, 0.01, 0.01]
    assert trace.dropped == 4


def test_without_kernels_the_trace_says_so_as_any_other_does(tmp_path: Path) -> None:
    made = Export(tmp_path / "run.sqlite")
    made.push_pop(0, 100, "aten::add, seq = 1", 5)
    made.close()
    assert "no-kernels" in [n.code for n in read_trace(tmp_path / "run.sqlite").notes]


def test_more_rows_than_a_trace_may_have_are_refused(tmp_path: Path) -> None:
    made = Export(tmp_path / "run.sqlite")
    for number in range(50):
        made.kernel(number * 10, number * 10 + 5, number + 1, "k")
    made.close()
    with pytest.raises(TraceError) as refused:
        read_trace(tmp_path / "run.sqlite", Limits(max_events=49))
    assert refused.value.code == "trace-too-large"
    assert len(read_trace(tmp_path / "run.sqlite", Limits(max_events=60)).kernels.name) == 50


def test_a_made_run_links_as_its_torch_trace_does(tmp_path: Path) -> None:
    """Two threads, nested operations, a step: made here, so that the figures can be told by hand."""
    events = [
        annotation("ProfilerStep#1", 0, 100), op("aten::linear", 1, 20, **{"External id": 3}),
        op("aten::addmm", 2, 10, **{"Sequence number": 4, "Input Dims": [[8], [2, 4], [4, 8]]}), launch(3, 1),
        op("AddmmBackward0", 50, 10, tid=2, **{"Sequence number": 4}), launch(52, 2, tid=2),
        kernel(30, 5, 1, name="gemm"), kernel(60, 7, 2, name="gemm"),
    ]  # fmt: skip
    document = {"traceEvents": events}
    torch_trace = read_trace(written(tmp_path, json.dumps(document)))
    trace = read_trace(export(document, tmp_path / "run.sqlite"))
    assert kernel_times(trace) == kernel_times(torch_trace) == {
        ("gemm", "aten::addmm"): 5_000, ("gemm", "AddmmBackward0"): 7_000
    }  # fmt: skip
    assert trace.ops.sequence.tolist() == torch_trace.ops.sequence.tolist() == [NONE, 4, 4]
    assert trace.details[0].dims == ((8,), (2, 4), (4, 8))


def test_another_programs_database_says_whose_it_is_and_what_is_read(tmp_path: Path) -> None:
    for tables, words, remedy in (
        ({"rocpd_string_0001": "id INTEGER"}, "rocpd", "rocprofv3 --hip-trace"),
        ({"moz_places": "id INTEGER"}, "another program, no nsys export", "the JSON of rocprofv3"),
        ({STRINGS: "id INTEGER, value TEXT"}, "no kernels, no calls", "nsys profile"),
    ):
        path = tmp_path / f"{next(iter(tables))}.sqlite"
        made = sqlite3.connect(path)
        for name, columns in tables.items():
            made.execute(f"CREATE TABLE {name} ({columns})")
        made.close()
        with pytest.raises(TraceError) as refused:
            read_trace(path)
        assert words in refused.value.message
        assert remedy in refused.value.remedy
