"""Which steps a trace has, which one is looked at, and how busy the GPU is in it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.trace import read_trace, steady_step
from profiler.trace.busy import union_us
from profiler.trace.steps import gpu_busy_share, idle_us, kernel_busy_us, step_time_us
from tests.profiler.trace.files import annotation, kernel, launch, op, real, written


def steps_of(durations: list[float], name: str = "ProfilerStep#{}", launched: bool = True) -> list[dict[str, object]]:
    """Annotated steps one after another; each launches one kernel of a tenth of its time that runs late."""
    events: list[dict[str, object]] = []
    at = 1000.0
    for i, duration in enumerate(durations):
        events.append(annotation(name.format(i), at, duration))
        events.append(op("aten::mm", at + 1, duration / 4))
        if launched:
            events += [launch(at + 2, 10 + i), kernel(at + duration + 5, duration / 10, 10 + i)]
        at += duration
    return events


def read(tmp_path: Path, events: list[dict[str, object]]):  # type: ignore[no-untyped-def]
    return read_trace(written(tmp_path, json.dumps({"traceEvents": events})))


def test_a_kernel_belongs_to_the_step_that_launched_it_not_to_the_one_it_ran_in(tmp_path: Path) -> None:
    trace = read(tmp_path, steps_of([100.0, 100.0, 100.0]))
    assert [step.kernels.tolist() for step in trace.steps] == [[0], [1], [2]]
    assert [step.ops.tolist() for step in trace.steps] == [[0], [1], [2]]
    assert (trace.profiler_steps, trace.step_source) == (3, "profiler")


def test_the_steady_step_is_the_median_without_the_warm_up(tmp_path: Path) -> None:
    assert steady_step(read(tmp_path, steps_of([900.0, 100.0, 130.0, 110.0]))).name == "ProfilerStep#3"
    # No warm-up here, so the first counts; of an even number the lower median.
    assert steady_step(read(tmp_path, steps_of([120.0, 100.0, 130.0, 110.0]))).name == "ProfilerStep#3"
    # Two steps are too few to tell a warm-up.
    assert steady_step(read(tmp_path, steps_of([900.0, 100.0]))).name == "ProfilerStep#1"


def test_a_step_whose_kernels_are_lost_is_not_the_steady_one(tmp_path: Path) -> None:
    events = [*steps_of([100.0]), annotation("ProfilerStep#1", 5000, 50), annotation("ProfilerStep#2", 5050, 60)]
    assert steady_step(read(tmp_path, events)).name == "ProfilerStep#0"


def test_numbered_annotations_that_repeat_are_the_steps_where_the_profiler_marks_none(tmp_path: Path) -> None:
    trace = read(tmp_path, steps_of([100.0, 110.0, 105.0], "execute_{}_tokens"))
    assert (trace.profiler_steps, trace.step_source) == (0, "annotation")
    assert [step.name for step in trace.steps] == ["execute_0_tokens", "execute_1_tokens", "execute_2_tokens"]


def test_repetitions_inside_one_outer_annotation_are_the_steps(tmp_path: Path) -> None:
    events = [annotation("training", 900, 2000), *steps_of([100.0, 110.0, 105.0], "step")]
    trace = read(tmp_path, events)
    assert [step.duration_us for step in trace.steps] == [100.0, 110.0, 105.0]


def test_annotations_that_pytorch_writes_inside_a_step_are_no_steps(tmp_path: Path) -> None:
    trace = read(tmp_path, steps_of([100.0, 110.0], "nccl:all_reduce"))
    assert (trace.step_source, len(trace.steps)) == ("window", 1)


def test_an_optimizer_marks_steps_from_one_to_the_next() -> None:
    # 30 training iterations, each with DataLoader, zero_grad and step annotations and nothing around them.
    trace = real("param_resnet_kineto.json.gz")
    assert (trace.step_source, len(trace.steps)) == ("annotation", 30)
    assert {len(step.kernels) for step in trace.steps[1:-1]} == {len(trace.steps[5].kernels)}


def test_without_any_annotation_the_window_is_the_step_and_holds_everything() -> None:
    trace = real("tl_mi210_gpu_only.json.gz")
    assert trace.step_source == "window"
    assert len(trace.steps[0].kernels) == 562


def test_steps_written_as_operators_are_annotations_and_no_ops() -> None:
    trace = real("kineto_resnet50_workers0.json.gz")  # torch 1.9
    assert len(trace.steps) == 6
    assert not any(trace.names[i].startswith("ProfilerStep") for i in set(trace.ops.name.tolist()))


def test_gpu_share_counts_overlapping_streams_once_and_waits_for_late_kernels(tmp_path: Path) -> None:
    events = [
        annotation("ProfilerStep#0", 0, 100),
        op("a", 0, 50),
        launch(1, 1),
        launch(2, 2),
        kernel(10, 40, 1, stream=7),
        kernel(30, 40, 2, stream=9),
    ]
    trace = read(tmp_path, events)
    step = trace.steps[0]
    assert kernel_busy_us(trace, step) == 60.0
    assert gpu_busy_share(trace, step) == 0.6
    assert idle_us(trace, step) == 40.0
    # The host is done after 100 µs, the GPU needs 300: the step takes 300 and the GPU never idles.
    late = read(tmp_path, [*events, launch(3, 3), kernel(70, 240, 3)])
    assert step_time_us(late, late.steps[0]) == 300.0
    assert gpu_busy_share(late, late.steps[0]) == 1.0


def test_decoding_token_by_token_leaves_the_gpu_idle_and_prefill_does_not() -> None:
    decode = real("llama_decode_bf16_eager.json.gz")  # FINDINGS.md: launch-bound, GPU mostly idle
    prefill = real("llama_prefill_bf16_compiled.json.gz")
    idle, busy = (gpu_busy_share(t, steady_step(t)) for t in (decode, prefill))
    assert idle is not None
    assert busy is not None
    assert idle < 0.15
    assert busy > 0.85


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=20))
def test_the_union_is_the_number_of_unit_intervals_covered(intervals: list[tuple[int, int]]) -> None:
    covered = {unit for start, length in intervals for unit in range(start, start + length)}
    start = np.array([float(s) for s, _ in intervals])
    assert union_us(start, start + np.array([float(n) for _, n in intervals])) == len(covered)


def test_a_trace_of_nothing_has_no_steady_step(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no step"):
        steady_step(read(tmp_path, []))
