"""What a trace lacks is said, under a stable code, with what to do about it."""

from __future__ import annotations

import ast
import json
import pickle
from pathlib import Path

import pytest

from profiler.trace import TraceError, read_trace
from profiler.trace.model import Note
from profiler.trace.notes import RECIPE
from tests.profiler.trace.files import EXPECTED, kernel, launch, op, real, written

BY_PROPERTIES = {
    "tl_vllm_decode_full_capture.json.gz": "AMD Instinct MI300X",
    "tl_vllm_decode_full_exec.json.gz": "AMD Instinct MI300X",
    "hta_mi250_minitoy.json.gz": "AMD Instinct MI210",
}
"""Traces whose header has no name of a GPU, or AMD's general one, but its processors, warps and memory."""


def notes_of(name: str) -> dict[str, Note]:
    return {note.code: note for note in real(name).notes}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_notes_follow_from_the_figures_of_the_plain_script(name: str) -> None:
    want = EXPECTED[name]
    trace = real(name)
    codes = [note.code for note in trace.notes]
    assert len(set(codes)) == len(codes)
    assert ("no-kernels" in codes) == (want["kernels"] == 0)
    assert ("no-profiler-steps" in codes) == (want["profiler_steps"] == 0)
    assert ("no-shapes" in codes) == (not want["has_shapes"] and len(trace.ops.name) > 0)
    assert ("no-device" in codes) == (not want["gpu"] and want["kernels"] > 0 and name not in BY_PROPERTIES)
    assert ("device-by-properties" in codes) == (name in BY_PROPERTIES)
    assert not {"truncated", "dropped-events"} & set(codes)


def test_no_kernels_is_no_error_and_says_how_to_record() -> None:
    for name in ("hta_cpu_only.json.gz", "hta_cupti_profiler.json.gz"):
        trace = real(name)
        note = next(note for note in trace.notes if note.code == "no-kernels")
        assert note.level == "error"
        assert "record_shapes=True" in note.remedy
        assert trace.linked_share is None


def test_the_recipe_is_python_that_records_what_is_read_here() -> None:
    ast.parse(RECIPE)
    for needed in ("ProfilerActivity.CUDA", "record_shapes=True", "export_chrome_trace", "prof.step()"):
        assert needed in RECIPE


def test_graph_replay_says_how_much_time_it_hides() -> None:
    note = notes_of("handrolled_blocks_bf16_cudagraph.json.gz")["graph-launches"]
    assert note.level == "warning"
    assert "100%" in note.message
    assert "408 kernels" in note.message
    assert "record_shapes" in note.remedy
    assert "97%" in notes_of("tl_vllm_decode_full_exec.json.gz")["graph-launches"].message


def test_kernels_launched_before_the_window_are_counted_by_time() -> None:
    message = notes_of("tl_h100_qwen15.json.gz")["launched-before-window"].message
    assert "30%" in message  # expected.json: 69.91 % of kernel time is linked
    assert "436 kernels" in message  # 1465 - 1029


def test_external_ids_that_name_other_ops_are_told() -> None:
    for name in ("hta_alexnet.json.gz", "param_resnet_kineto.json.gz"):
        assert "external-id-disagrees" in notes_of(name)
    # One of its 79 kernels has an id that any operator has.
    assert "1 of the 1 linked kernel " in notes_of("hta_alexnet.json.gz")["external-id-disagrees"].message
    for name in ("handrolled_blocks_bf16_eager.json.gz", "tl_h100_owlv2.json.gz", "kineto_resnet50_workers0.json.gz"):
        assert "external-id-disagrees" not in notes_of(name)


def test_communication_hidden_behind_compute_is_counted_by_union(tmp_path: Path) -> None:
    events = [
        op("a", 0, 5),
        launch(1, 1),
        launch(2, 2),
        kernel(0, 60, 1, stream=7),
        kernel(50, 40, 2, stream=9, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
    ]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    message = next(note.message for note in trace.notes if note.code == "communication")
    assert "44%" in message  # 40 of 90 µs
    assert "25% of that is hidden" in message  # 10 of 40 µs


def test_worse_notes_come_first(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, '[{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}, {"ph": "X'))
    levels = [note.level for note in trace.notes]
    assert levels == sorted(levels, key=["error", "warning", "info"].index)
    assert {"no-kernels", "truncated", "no-shapes"} <= {note.code for note in trace.notes}


def test_an_error_survives_the_way_out_of_a_child_process() -> None:
    back = pickle.loads(pickle.dumps(TraceError("trace-empty", "The file is empty.", "Copy it again.")))  # noqa: S301
    assert (back.code, back.message, back.remedy, str(back)) == (
        "trace-empty",
        "The file is empty.",
        "Copy it again.",
        "The file is empty.",
    )


def test_a_sample_of_a_trace_is_told_by_the_numbers_that_are_missing(tmp_path: Path) -> None:
    assert "99% are missing" in notes_of("hta_sampled_rank0.json.gz")["sampled"].message
    for name in ("hta_mi250_minitoy.json.gz", "tl_xdit_sd35_graph.json.gz", "llama_train_bf16_eager.json.gz"):
        assert "sampled" not in notes_of(name)

    def numbered(step: int) -> tuple[Note, ...]:
        events = [{**op("aten::mm", 10.0 * i, 5), "args": {"External id": 1 + step * i}} for i in range(300)]
        path = written(tmp_path, json.dumps([*events, launch(1, 1), kernel(5, 5, 1)]))
        return read_trace(path).notes

    assert "sampled" in {n.code for n in numbered(3)}
    assert "sampled" not in {n.code for n in numbered(1)}


def test_a_trace_without_kernels_says_what_it_has_instead() -> None:
    counters = notes_of("hta_cupti_profiler.json.gz")["no-kernels"]
    assert "profiler_metrics" in counters.message and "profiler_metrics" in counters.remedy
    on_cpu = notes_of("hta_cpu_only.json.gz")["no-kernels"].message
    assert "gloo:all_reduce 10 times" in on_cpu and "no GPU is named" in on_cpu
