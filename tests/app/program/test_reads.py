"""What would break: a step that waits for its own values is told as one that the GPU keeps busy."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from app.objects.trace import Trace
from app.program.reads import COPY_US, LINK, copy_us
from app.program.service import write_predicted
from app.trace_report.report import report
from profiler.program.request import Request
from profiler.trace import read_trace
from tests.app.program.test_layout import PROGRAMS, device

LAYERS = 12
RECORDED = Path(__file__).parents[2] / "data" / "traces" / "llama_decode_bf16_eager.json.gz"


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "step.json.gz"
    write_predicted(Request(f"{PROGRAMS}:reads_each_layer"), device("H100"), path)
    return path


@pytest.fixture(scope="module")
def told(reading: Path) -> Trace:
    return report(reading, "step")


def test_the_host_goes_on_when_the_value_has_come(reading: Path) -> None:
    events = json.loads(gzip.decompress(reading.read_bytes()))["traceEvents"]
    copies = [e for e in events if e["cat"] == "gpu_memcpy"]
    reads = [e for e in events if e["name"] == "aten::_local_scalar_dense"]
    assert len(copies) == len(reads) == LAYERS
    for copy, read in zip(copies, reads, strict=True):
        before = [e for e in events if e["cat"] == "kernel" and e["ts"] < copy["ts"]]
        assert all(e["ts"] + e["dur"] <= copy["ts"] + 0.01 for e in before)
        assert copy["ts"] + copy["dur"] < read["ts"] + read["dur"]


def test_the_events_are_those_of_a_recorded_read(reading: Path) -> None:
    def seen(path: Path) -> set[tuple[str, str]]:
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        reads = [e for e in events if e.get("name") == "aten::_local_scalar_dense"]
        return {
            (e["cat"], e["name"])
            for read in reads
            for e in events
            if e.get("cat") == "cuda_runtime" and read["ts"] <= e["ts"] <= read["ts"] + read["dur"]
        }

    assert seen(reading) == seen(RECORDED) == {
        ("cuda_runtime", "cudaMemcpyAsync"), ("cuda_runtime", "cudaStreamSynchronize")
    }  # fmt: skip


def test_a_value_that_is_read_is_no_kernel_and_no_region(reading: Path, told: Trace) -> None:
    trace = read_trace(reading)
    assert not [n for n in trace.kernels.name if "scalar" in trace.names[n] or "item" in trace.names[n]]
    assert not [r["title"] for r in told["regions"] if "item" in r["title"]]


def test_the_step_waits_for_the_host_and_its_line_is_named(told: Trace) -> None:
    parts = told["step_parts"]
    assert parts is not None
    assert parts["idle_host_us"] > 0.2 * parts["wall_us"]
    (wait,) = (a for a in told["actions"] if a["title"] == "Find what the host waits for")
    assert "aten::item" in wait["because"]
    assert wait["where"] is not None
    assert wait["where"]["file"].endswith("programs.py")


def test_a_large_copy_takes_its_bytes_over_the_link() -> None:
    assert copy_us(1) == COPY_US
    assert copy_us(int(LINK)) == pytest.approx(1e6)
