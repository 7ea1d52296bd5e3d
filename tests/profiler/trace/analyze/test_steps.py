"""Which steps a trace has, which one is looked at, and how busy the GPU is in it."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.trace import read_trace, steady_step
from profiler.trace.analyze.gpu_utilization import shares
from profiler.trace.analyze.step_detection import find_repetition, repeated_windows
from profiler.trace.analyze.steps import kernel_busy_us, middle_steps, step_time_us, step_times
from profiler.trace.model import Trace
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
    assert steady_step(read(tmp_path, steps_of([900.0, 100.0]))).name == "ProfilerStep#1"


@pytest.mark.parametrize(
    ("lengths", "middle"),
    [
        ([100.0], [0]),
        ([100.0, 110.0], [0, 1]),
        ([900.0, 100.0], [1]),  # a warm-up and one step
        ([130.0, 100.0, 110.0], [2]),
        ([120.0, 100.0, 130.0, 110.0], "two"),
        ([900.0, 120.0, 100.0, 130.0, 110.0], "two"),
    ],
)
def test_the_mean_over_the_steps_in_the_middle_is_the_median(
    tmp_path: Path, lengths: list[float], middle: list[int] | str
) -> None:
    trace = read(tmp_path, steps_of(lengths))
    chosen = middle_steps(trace)
    if middle == "two":
        assert len(chosen) == 2  # which, their kernels decide: each ends in the next step
    else:
        assert [step.name for step in chosen] == [f"ProfilerStep#{n}" for n in middle]
    counted = [step_time_us(trace, s) for s, length in zip(trace.steps, lengths, strict=True) if length < 900.0]
    assert sum(step_time_us(trace, step) for step in chosen) / len(chosen) == pytest.approx(statistics.median(counted))


def two_steps(
    lengths: tuple[float, float], rows: tuple[int | None, int | None], names: tuple[str, str] = ("k", "k")
) -> list[dict[str, object]]:
    """Steps one after the other: each an operation of so many rows (None: shapes not recorded) and its kernel."""
    events: list[dict[str, object]] = []
    at = 1000.0
    for i, (length, count) in enumerate(zip(lengths, rows, strict=True)):
        of = {} if count is None else {"Input Dims": [[count, 64], [64, 64]], "Input type": ["float", "float"]}
        events += [annotation(f"ProfilerStep#{i}", at, length), op("aten::mm", at + 1, length / 4, **of)]
        events += [launch(at + 2, 10 + i), kernel(at + 5, length - 10, 10 + i, name=names[i])]
        at += length
    return events


def unlike(trace: Trace) -> list[str]:
    return [note.message for note in trace.notes if note.code == "steps-unlike"]


@pytest.mark.parametrize(
    ("rows", "names"), [((512, 1), ("k", "k")), ((None, None), ("gemm", "gemv"))], ids=["by shapes", "by kernels"]
)
@pytest.mark.parametrize("lengths", [(900.0, 100.0), (100.0, 900.0)])
def test_of_a_prefill_and_a_decode_neither_is_a_warm_up(
    tmp_path: Path, lengths: tuple[float, float], rows: tuple[int | None, int | None], names: tuple[str, str]
) -> None:
    trace = read(tmp_path, two_steps(lengths, rows, names))
    assert [step.name for step in middle_steps(trace)] == ["ProfilerStep#0", "ProfilerStep#1"]
    times = step_times(trace)
    assert times is not None
    assert (times.count, times.left_out) == (2, 0)
    assert times.longest_us > 8 * times.shortest_us
    assert unlike(trace) == [
        "The two steps do different work and take different times: the step's figures are the mean of both."
    ]


@pytest.mark.parametrize("rows", [(512, 512), (None, None)])
def test_of_two_steps_that_do_the_same_the_longer_first_is_a_warm_up(
    tmp_path: Path, rows: tuple[int | None, int | None]
) -> None:
    tuning = [op("aten::empty", 1500, 5, **{"Input Dims": [[7]], "Input type": ["float"]}), launch(1501, 90),
              kernel(1600, 5, 90, name="tuned")]  # fmt: skip
    for more in ([], tuning):  # what only the first does is its warm-up
        trace = read(tmp_path, two_steps((900.0, 100.0), rows) + more)
        times = step_times(trace)
        assert times is not None
        assert (times.count, times.left_out) == (1, 1)
        assert unlike(trace) == []


def test_two_steps_of_different_work_and_about_the_same_time_are_told_nothing_of(tmp_path: Path) -> None:
    assert unlike(read(tmp_path, two_steps((100.0, 120.0), (512, 1)))) == []


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


def test_a_marker_behind_all_work_opens_a_step_of_no_length(tmp_path: Path) -> None:
    events = [annotation("Optimizer.step#AdamW.step", at, 1) for at in (0, 500)]
    trace = read(tmp_path, [*events, op("a", 10, 50)])
    assert trace.step_source == "annotation"
    assert [step.duration_us for step in trace.steps] == [500.0, 0.0]


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
    assert shares(trace, [step], []).idle_us == 40.0
    # The host is done after 100 µs, the GPU at 310: the step takes 310, and the GPU idles until its first kernel.
    late = read(tmp_path, [*events, launch(3, 3), kernel(70, 240, 3)])
    assert step_time_us(late, late.steps[0]) == 310.0
    assert shares(late, late.steps[:1], []).idle_us == 10.0


def test_decoding_token_by_token_leaves_the_gpu_idle_and_prefill_does_not() -> None:
    decode = real("llama_decode_bf16_eager.json.gz")  # FINDINGS.md: launch-bound, GPU mostly idle
    prefill = real("llama_prefill_bf16_compiled.json.gz")
    idle, busy = (1 - shares(t, [steady_step(t)], []).shares[-1] for t in (decode, prefill))
    assert idle < 0.15
    assert busy > 0.85


def test_the_time_of_a_step_is_the_median_with_its_spread_and_says_what_it_left_out(tmp_path: Path) -> None:
    durations = [900.0, 800.0, 100.0, 130.0, 110.0, 120.0, 140.0]
    found = step_times(read(tmp_path, steps_of(durations)))
    assert found is not None
    # Each kernel runs 5 µs after its step, for a tenth of its time, so one step's end is the next one's begin.
    ends = np.cumsum(durations) + 5 + np.array(durations) / 10
    want = np.diff(ends)[1:]
    assert (found.count, found.left_out) == (5, 2)
    assert found.median_us == pytest.approx(float(np.median(want)))
    assert (found.shortest_us, found.longest_us) == pytest.approx((float(want.min()), float(want.max())))
    low, high = sorted(want)[1], sorted(want)[3]  # quartiles of five values
    assert (found.low_us, found.high_us) == pytest.approx((low, high))


def test_of_few_steps_the_spread_is_shortest_and_longest(tmp_path: Path) -> None:
    found = step_times(read(tmp_path, steps_of([100.0, 150.0])))
    assert found is not None
    assert (found.low_us, found.high_us) == (found.shortest_us, found.longest_us)
    assert step_times(read(tmp_path, [])) is None


def sequence(names: str, pause: dict[int, float] | None = None) -> list[dict[str, object]]:
    """A kernel for each letter, 20 µs apart, launched in an operation; with longer pauses before some."""
    events: list[dict[str, object]] = []
    at = 100.0
    for i, name in enumerate(names):
        at += 20.0 + (pause or {}).get(i, 0.0)
        events += [op(f"aten::{name}", at - 2, 6), launch(at, i + 1), kernel(at + 5, 8, i + 1, name=f"void {name}()")]
    return events


def test_without_marks_the_steps_are_the_repetitions_of_the_kernels(tmp_path: Path) -> None:
    # A warm-up that differs, then three times the same, cut off in a fourth.
    trace = read(tmp_path, sequence("ea" + "abcbdbe" * 3 + "ab", {2: 50.0, 9: 50.0, 16: 50.0, 23: 50.0}))
    assert trace.step_source == "repetition"
    assert [[trace.names[trace.kernels.name[k]][5] for k in step.kernels] for step in trace.steps] == [
        list("abcbdbe")
    ] * 3
    assert [len(step.ops) for step in trace.steps] == [7, 7, 7]
    assert "repeats" in next(n.message for n in trace.notes if n.code == "no-profiler-steps")


def test_layers_inside_one_step_are_not_taken_for_steps(tmp_path: Path) -> None:
    # An embedding, 12 equal layers, a head: the layers repeat, the step does not.
    trace = read(tmp_path, sequence("pq" + "abcbdbe" * 12 + "rst"))
    assert (trace.step_source, len(trace.steps)) == ("window", 1)
    twice = read(tmp_path, sequence(("pq" + "abcbdbe" * 12 + "rst") * 2))
    assert (twice.step_source, [len(s.kernels) for s in twice.steps]) == ("repetition", [89, 89])


def test_equal_layers_are_one_step_where_the_host_pauses_between_steps(tmp_path: Path) -> None:
    trace = read(tmp_path, sequence("abcbdbe" * 12, {28: 5000.0, 56: 5000.0}))
    assert [len(s.kernels) for s in trace.steps] == [28, 28, 28]


MARKED = ["gpt2_train_autocast_eager", "llama_prefill_bf16_compiled", "mixtral_prefill_bf16_eager",
          "pyg_gcn_gat_train_fp32", "t5_train_autocast_eager", "timm_vit_base_bf16_eager",
          "kineto_resnet50_workers0", "hta_trace_diff_control", "handrolled_blocks_bf16_eager"]  # fmt: skip


@pytest.mark.parametrize("name", MARKED)
def test_repetition_finds_the_steps_that_the_profiler_marked(name: str) -> None:
    trace = real(f"{name}.json.gz")
    marked = [set(step.kernels.tolist()) for step in trace.steps]
    windows = repeated_windows(trace.kernels, trace.ops)
    assert len(windows) in (len(marked), len(marked) - 1)
    at = np.where(np.isnan(trace.kernels.launch_us), trace.kernels.start_us, trace.kernels.launch_us)
    for _, start, end in windows:
        inside = set(np.flatnonzero((at >= start) & (at < end)).tolist())
        # One of the marked steps, shifted by what the host does between two of them at most.
        assert max(len(inside & step) / len(step) for step in marked) > 0.9


@given(st.lists(st.integers(0, 3), max_size=60))
def test_a_repetition_repeats(names: list[int]) -> None:
    name = np.array(names, np.int32)
    repetition = find_repetition(name, np.arange(len(names), dtype=np.float64), np.ones(len(names)))
    if repetition is None:
        return
    assert repetition.count >= 2
    tiles = name[repetition.first : repetition.first + repetition.count * repetition.period].reshape(
        repetition.count, repetition.period
    )
    assert (tiles[:-1] == tiles[1:]).mean() >= 0.9


def test_a_repeated_sequence_is_always_found() -> None:
    rng = np.random.default_rng(0)
    for period in (5, 17, 120):
        tile = rng.integers(0, 12, period)
        tile[0] = 99  # its own, so that no shorter period exists
        repetition = find_repetition(np.tile(tile, 4).astype(np.int32), np.arange(4.0 * period), np.ones(4 * period))
        assert repetition is not None
        assert repetition.period == period


def test_a_trace_of_nothing_has_no_steady_step(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no step"):
        steady_step(read(tmp_path, []))
