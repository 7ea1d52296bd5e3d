"""Frames around instants: what call stacks share is kept once, and a deep or a long file stays small."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from profiler.trace.read import frames
from profiler.trace.read.frames import NO_FRAME, Frame, open_frames
from profiler.trace.read.reader import read_trace


def written(path: Path, stacks: list[list[str]]) -> Path:
    """A trace with one operation, with a kernel of its own, for each stack, the outermost first."""
    events: list[dict[str, Any]] = []
    for i, stack in enumerate(stacks):
        at, link = i * 20.0, {"External id": i + 1}
        calls = {**link, "Call stack": ";".join(reversed(stack))}
        launch = {**link, "correlation": i + 1}
        events += [
            {"cat": "cpu_op", "name": "aten::relu", "pid": 1, "tid": 1, "ts": at, "dur": 10, "args": calls},
            {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at + 2, "dur": 3,
             "args": launch},
            {"cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": at + 6, "dur": 8,
             "args": {**launch, "device": 0, "stream": 7}},
        ]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", **event} for event in events]}))
    return path


def answered(path: Path) -> list[Frame]:
    trace = read_trace(path)
    starts = zip(trace.ops.thread.tolist(), trace.ops.start_us.tolist(), strict=True)
    return open_frames(path, trace, sorted(starts, key=lambda instant: instant[1]))


def distinct(answers: list[Frame]) -> int:
    return len({frame for answer in answers for frame in answer.outwards()})


def test_the_frames_of_call_stacks_are_one_object_for_every_common_beginning(tmp_path: Path) -> None:
    stacks = [[f"m/a.py({n}): f{n}" for n in range(40)] + [f"m/b.py({i % 7}): g"] for i in range(60)]
    answers = answered(written(tmp_path / "t.json", stacks))
    assert [a.stack for a in answers] == [
        (*(f"m/a.py:{n} f{n}" for n in range(40)), f"m/b.py:{i % 7} g") for i in range(60)
    ]
    assert [a.innermost for a in answers] == [a.stack[-1] for a in answers]
    assert distinct(answers) == len({tuple(stack[:n]) for stack in stacks for n in range(1, 42)})


def test_calls_inside_of_torch_are_in_no_stack(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", [["m/a.py(3): f", "torch/nn/modules/module.py(9): _call_impl"], ["<built-in>"]])
    assert [a.stack for a in answered(path)] == [("m/a.py:3 f",), ()]


def test_deep_stacks_with_nothing_in_common_take_memory_by_their_length(tmp_path: Path) -> None:
    count, depth = 400, 200
    path = written(tmp_path / "t.json", [[f"m/{i}.py({n}): f" for n in range(depth)] for i in range(count)])
    tracemalloc.start()
    try:
        answers = answered(path)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert distinct(answers) == count * depth
    assert kept < 500 * count * depth  # each with its own tuple: 800 more


def test_past_the_most_frames_a_stack_is_its_innermost_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "MAX_CALL_FRAMES", 50)
    path = written(tmp_path / "t.json", [[f"m/{i}.py({n}): f" for n in range(20)] for i in range(9)])
    answers = answered(path)
    assert [len(a.stack) for a in answers] == [20, 20, *[1] * 7]
    assert [a.innermost for a in answers] == [f"m/{i}.py:19 f" for i in range(9)]


def test_a_nest_without_end_is_read_to_the_most_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_NESTED", 5)
    frame: Frame | None = None
    for n in range(12):
        frame = Frame(f"m.py({n}): f", f"m.py:{n} f", float(n), frame)
    assert frame is not None and frame.stack == tuple(f"m.py:{n} f" for n in range(7, 12))
    assert NO_FRAME.stack == () and NO_FRAME.innermost == ""
