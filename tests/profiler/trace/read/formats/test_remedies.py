"""Notes on another tool's file say what that tool does, not what torch.profiler would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler.trace import Trace, read_trace
from profiler.trace.read.formats.recording import Tool
from tests.profiler.trace.files import written
from tests.profiler.trace.nsys_export import Export
from tests.profiler.trace.read.formats.test_rocprofv3 import SMALL
from tests.profiler.trace.rocprofv3_file import recorded

OF_TORCH = ("prof.step()", "torch.profiler import", "export_chrome_trace", "PyTorch, or say")


def steps(tmp_path: Path, name: str) -> Trace:
    """Five steps of a kernel each, in ranges of a name."""
    made = Export(tmp_path / "run.sqlite")
    for number in range(5):
        at = number * 10_000_000
        if name:
            made.push_pop(at, at + 9_900_000, name, 1)
        made.push_pop(at + 1000, at + 9_000_000, "aten::mm, seq = 5, op_id = 12, sizes = [[2, 3], [3, 4]]", 1)
        made.call(at + 2000, at + 3000, number + 1, "cudaLaunchKernel", 1)
        made.kernel(at + 4000, at + 5000, number + 1, "sgemm_float")
    made.close()
    return read_trace(tmp_path / "run.sqlite")


def told(trace: Trace) -> dict[str, str]:
    return {note.code: note.remedy for note in trace.notes}


def test_a_recording_whose_ranges_mark_its_steps_is_not_told_to_mark_them(tmp_path: Path) -> None:
    trace = steps(tmp_path, "step")
    assert trace.step_source == "annotation"
    assert "no-profiler-steps" not in told(trace)


def test_a_recording_without_marks_is_told_to_push_ranges(tmp_path: Path) -> None:
    assert 'torch.cuda.nvtx.range_push("step")' in told(steps(tmp_path, ""))["no-profiler-steps"]


def _bare(tmp_path: Path, tool: Tool) -> Trace:
    """A kernel that no operator launched."""
    if tool == "nsys":
        made = Export(tmp_path / "bare.sqlite")
        made.kernel(100, 200, 1, "k")
        made.close()
        return read_trace(tmp_path / "bare.sqlite")
    document = recorded(SMALL)
    records = document["rocprofiler-sdk-tool"][0]["buffer_records"]
    records["marker_api"], records["hip_api"] = [], []
    return read_trace(written(tmp_path, json.dumps(document), "results.json"))


@pytest.mark.parametrize(("tool", "command"), [("nsys", "nsys profile"), ("rocprofv3", "rocprofv3 --hip-trace")])
def test_no_remedy_sends_a_tools_user_to_the_profiler_of_torch(tool: Tool, command: str, tmp_path: Path) -> None:
    remedies = told(_bare(tmp_path, tool))
    assert command in remedies["no-ops"]
    assert "emit_nvtx" in remedies["no-ops"]
    for remedy in (*remedies.values(), *told(steps(tmp_path, "")).values()):
        assert not any(words in remedy for words in OF_TORCH), remedy
