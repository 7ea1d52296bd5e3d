"""What would break: a predicted trace that reads as a recorded one, or whose regions are not the program's."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from app.program.layout import KERNEL
from app.program.service import write_predicted
from app.trace_report.report import report
from profiler.hardware import Device, find_device
from profiler.program.request import Request
from profiler.trace import read_trace

PROGRAMS = Path(__file__).parents[2] / "profiler" / "program" / "programs.py"


def device(name: str) -> Device:
    named = find_device(name)
    assert named is not None
    return named


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "step.json.gz"
    write_predicted(Request(f"{PROGRAMS}:blocks", training=True), device("H100"), path)
    return path


def test_every_kernel_is_linked_and_none_overlaps_another(training: Path) -> None:
    trace = read_trace(training)
    assert trace.linked_share == 1.0
    ends = (trace.kernels.start_us + trace.kernels.duration_us)[:-1]
    assert (trace.kernels.start_us[1:] >= ends - 0.01).all()
    assert {trace.names[n].startswith(KERNEL) for n in trace.kernels.name} == {True}


def test_functions_and_modules_nest(training: Path) -> None:
    events = json.loads(gzip.decompress(training.read_bytes()))["traceEvents"]
    frames = sorted(
        ((e["ts"], e["ts"] + e["dur"]) for e in events if e["cat"] == "python_function"), key=lambda p: (p[0], -p[1])
    )
    nested: list[float] = []
    for start, end in frames:
        while nested and nested[-1] <= start:
            nested.pop()
        assert not nested or end <= nested[-1] + 0.01
        nested.append(end)


def test_layers_fold_into_one_region_each_with_backward(training: Path) -> None:
    told = report(training, "step")
    calls = {r["title"]: r["calls_per_step"] for r in told["regions"]}
    assert calls["SDPA attention"] == 3
    assert any(r["backward"] and r["text"] for r in told["regions"])
    assert told["paired_backward_share"] is not None
    assert told["paired_backward_share"] > 0.9


def test_it_is_told_as_predicted_and_nothing_of_it_as_measured(training: Path) -> None:
    told = report(training, "step")
    origin = told.get("origin")
    assert origin is not None
    assert (origin["kind"], origin["device"], origin["training"]) == ("module", "NVIDIA H100", True)
    assert told["estimates_for"] == "NVIDIA H100"
    assert "predicted" in {n["code"] for n in told["notes"]}
    for region in told["regions"]:
        assert "(measured)" not in json.dumps(region["advice"])


def test_a_recorded_trace_has_no_origin() -> None:
    recorded = Path(__file__).parents[2] / "data" / "traces" / "kineto_docs_before_fix.json"
    assert report(recorded, "recorded").get("origin", "absent") is None


def test_a_slower_device_takes_longer(tmp_path: Path) -> None:
    times = []
    for name in ("H200", "L4"):
        path = tmp_path / f"{name}.json.gz"
        write_predicted(Request(f"{PROGRAMS}:blocks"), device(name), path)
        times.append(read_trace(path).kernel_time_us)
    assert times[0] < times[1]


def test_nobody_is_told_to_record_again_what_was_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "small.json.gz"
    write_predicted(Request(f"{PROGRAMS}:reads"), device("H100"), path)
    told = report(path, "small")
    assert (told["pace"] or {})["launches"] < 8
    assert [a["tool"] for a in told["actions"] or () if a["tool"] == "record"] == []


WAITING = """
import torch

def make():
    def step(x):
        for _ in range(3):
            x = x @ x
        torch.cuda.synchronize()
        return x @ x
    return step, torch.randn(4096, 4096)
"""


def test_the_gpu_is_idle_behind_a_wait_for_it(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(WAITING)
    path = tmp_path / "step.json"
    write_predicted(Request(f"{tmp_path / 'model.py'}:make"), device("H100"), path)
    events = json.loads(path.read_bytes())["traceEvents"]
    (wait,) = (e for e in events if e["name"] == "cudaDeviceSynchronize")
    kernels = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["cat"] == "kernel"]
    assert len(kernels) == 4
    assert kernels[2][1] <= wait["ts"] + wait["dur"] <= kernels[3][0], "three before it, one behind"
    told = report(path, "step")
    origin = told.get("origin")
    assert origin is not None
    assert [g["what"] for g in origin["gaps"]] == ["the host waits for the GPU (synchronize)"]
    assert "model.py:8" in origin["gaps"][0]["where"]
