"""What the host does in the GPU's gaps: made traces with one known cause each, and real ones as a reader reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler.trace import read_trace
from profiler.trace.analyze.host_activity import HostTime, host_times
from profiler.trace.analyze.idle_breakdown import step_parts
from tests.profiler.trace.files import TRACES, annotation, kernel, launch, op, written

Events = list[dict[str, object]]
BEFORE: Events = [op("aten::mm", 0, 20), launch(5, 1), kernel(10, 90, 1)]


def told(tmp_path: Path, events: Events) -> list[HostTime]:
    trace = read_trace(written(tmp_path, json.dumps([annotation("ProfilerStep#0", 0, 100_000), *events])))
    return host_times(trace, trace.steps)


def until(ts: float, name: str = "aten::mm") -> Events:
    """The next operation and its kernel, which keeps the GPU busy to the end of the step."""
    return [op(name, ts, 20), launch(ts + 5, 2), kernel(ts + 10, 100_000 - ts - 10, 2)]


def test_a_loader_of_the_process_has_its_operations_time_too(tmp_path: Path) -> None:
    loading = [op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 200, 9_000)]
    short = [op("aten::stack", float(at), 50) for at in range(300, 9_000, 100)]
    (one,) = [t for t in told(tmp_path, [*BEFORE, *loading, *short, *until(9_300)]) if t.time_us > 300]
    assert (one.kind, one.time_us) == ("loader", pytest.approx(9_000))
    assert "SingleProcess" in one.name


def test_python_has_the_name_of_its_annotation_and_of_what_follows(tmp_path: Path) -> None:
    (one,) = told(tmp_path, [*BEFORE, annotation("augment", 30, 5_000), *until(5_100, "aten::relu")])
    assert (one.kind, one.name, one.following) == ("python", "augment", "aten::relu")
    assert one.time_us == pytest.approx(5_100 - 100)  # from the kernel's end to the next operation


def test_of_annotations_around_python_the_shortest_names_it_then_the_first_by_name(tmp_path: Path) -> None:
    around = [annotation("epoch", 20, 60_000), annotation("mixup", 30, 5_000), annotation("augment", 30, 5_000)]
    (one,) = told(tmp_path, [*BEFORE, *around, *until(5_100)])
    assert (one.kind, one.name) == ("python", "augment")


def test_what_ends_with_a_copy_to_the_gpu_prepares_inputs(tmp_path: Path) -> None:
    copy = {**kernel(5_110, 40, 9, name="Memcpy HtoD (Pageable -> Device)"), "cat": "gpu_memcpy"}
    events = [*BEFORE, op("aten::to", 5_000, 150), launch(5_105, 9, name="cudaMemcpyAsync"), copy, *until(5_200)]
    (one,) = told(tmp_path, events)
    assert (one.kind, one.following) == ("inputs", "aten::to")


def test_an_operation_that_launches_is_a_librarys_and_one_that_does_not_the_cpus(tmp_path: Path) -> None:
    planned = [op("aten::_cudnn_attention_forward", 200, 12_000), launch(12_100, 2), kernel(12_110, 87_890, 2)]
    (one,) = told(tmp_path, [*BEFORE, *planned])
    assert (one.kind, one.name) == ("library", "aten::_cudnn_attention_forward")
    on_cpu = [op("aten::sort", 200, 8_000), op("aten::gather", 300, 7_000), *until(8_300)]
    (other,) = told(tmp_path, [*BEFORE, *on_cpu])
    assert (other.kind, other.name) == ("cpu", "aten::sort")


def test_a_launch_of_milliseconds_loads_a_module(tmp_path: Path) -> None:
    slow = {**launch(300, 2), "dur": 6_500}
    (one,) = told(tmp_path, [*BEFORE, op("aten::add", 250, 6_600), slow, kernel(6_801, 93_199, 2, name="add_kernel")])
    assert (one.kind, one.name) == ("start_up", "add_kernel")


def test_one_long_first_call_is_a_start_and_the_same_in_every_step_is_not(tmp_path: Path) -> None:
    def step(number: int, takes: float) -> Events:
        at = 100_000.0 * number
        return [
            annotation(f"ProfilerStep#{number}", at, 100_000), op("aten::mm", at, 20), launch(at + 5, 10 * number + 1),
            kernel(at + 10, 90, 10 * number + 1), op("aten::cudnn_convolution", at + 200, takes),
            launch(at + 150 + takes, 10 * number + 2), kernel(at + 160 + takes, 99_840 - takes, 10 * number + 2),
        ]  # fmt: skip

    def kinds(takes: list[float]) -> set[str]:
        events = [event for number, length in enumerate(takes) for event in step(number, length)]
        trace = read_trace(written(tmp_path, json.dumps(events)))
        return {one.kind for one in host_times(trace, trace.steps)}

    assert kinds([80_000, 90, 90, 90]) == {"start_up"}
    assert kinds([80_000, 80_000, 80_000, 90]) == {"library"}


def test_what_is_captured_runs_nothing(tmp_path: Path) -> None:
    short = [op("vllm::moe_forward", float(at), 50) for at in range(300, 9_000, 100)]
    (one,) = told(tmp_path, [*BEFORE, annotation("capture_32_FULL", 110, 9_000), *short, *until(9_200)])
    assert (one.kind, one.name) == ("capturing", "capture_32_FULL")


def test_a_step_whose_gpu_never_waits_for_the_host_tells_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, [op("aten::mm", 0, 20), launch(5, 1), kernel(6, 99_994, 1)]) == []


READ_OFF = {
    "bert_train_varlen_fp16_eager.json.gz": ("library", "_cudnn_attention", 0.60),
    "kineto_resnet50_workers0.json.gz": ("loader", "SingleProcess", 0.25),
    "tl_h100_owlv2.json.gz": ("loader", "SingleProcess", 0.45),
    "tl_h100_timesformer.json.gz": ("inputs", "", 0.50),
    "hta_alexnet.json.gz": ("start_up", "", 0.90),
    "hta_mi250_minitoy.json.gz": ("start_up", "vectorized_elementwise", 0.60),
    "tl_vllm_decode_full_capture.json.gz": ("capturing", "capture", 0.90),
}
"""Trace -> what most of its idle time is, by a reading of its events, and the least share of the step that it takes."""


@pytest.mark.parametrize("name", READ_OFF)
def test_the_cause_that_a_reader_finds_is_told(name: str) -> None:
    trace = read_trace(TRACES / name)
    parts = step_parts(trace, trace.steps)
    assert parts is not None
    times = host_times(trace, trace.steps)
    kind, part, share = READ_OFF[name]
    assert times[0].kind == kind
    assert sum(t.time_us for t in times if t.kind == kind and part in t.name) >= share * parts.wall_us


@pytest.mark.parametrize("name", sorted(READ_OFF))
def test_no_more_is_told_than_the_gpu_is_idle_for_the_host_and_for_launches(name: str) -> None:
    trace = read_trace(TRACES / name)
    parts = step_parts(trace, trace.steps)
    assert parts is not None
    spent = sum(t.time_us for t in host_times(trace, trace.steps))
    assert spent <= parts.idle_host_us + parts.idle_launch_us + 1e-6


def test_short_operations_of_one_long_call_are_told_together(tmp_path: Path) -> None:
    """DDP puts a model's buffers back one by one: views of 20 µs, none of which is a pause."""
    views = [op("aten::narrow", float(at), 20) for at in range(260, 6_000, 100)]
    whole = [op("aten::unflatten_dense_tensors", 250, 5_800), *views]
    pause = [op("aten::view", 100, 140)]
    events = [*BEFORE, *pause, *whole, {**launch(120, 99, name="cudaStreamSynchronize"), "dur": 10}, *until(6_100)]
    (one,) = [t for t in told(tmp_path, events) if t.time_us > 300]
    assert (one.kind, one.name) == ("cpu", "aten::unflatten_dense_tensors")
    assert one.time_us == pytest.approx(5_800, rel=0.02)
