"""What would break: the host's times read of another step or thread, and figures of layout.py unrecorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.program import layout
from benchmarks.program.host_times import Record, Spent, main, threads_of
from benchmarks.program.recorded_models import HOST_TIMES_FROM

RECORD = Path(__file__).resolve().parents[3] / "tests" / "records" / "host-times-h200.json"


def event(name: str, start_us: float, duration_us: float, category: str = "cpu_op", thread: int = 1) -> dict[str, Any]:
    return {"name": name, "ts": start_us, "dur": duration_us, "cat": category, "tid": thread}


def test_a_thread_has_what_is_between_its_calls_and_what_their_launches_take() -> None:
    events = [
        event("ProfilerStep#1", 0.0, 50.0, "user_annotation"),
        event("ProfilerStep#2", 100.0, 100.0, "user_annotation"),
        event("ProfilerStep#2", 150.0, 100.0, "gpu_user_annotation", thread=7),
        event("aten::mul", 10.0, 30.0),  # of another step
        event("aten::add", 100.0, 10.0),
        event("cudaLaunchKernel", 105.0, 3.0, "cuda_runtime"),
        event("aten::linear", 114.0, 40.0),
        event("aten::addmm", 116.0, 35.0),
        event("cudaLaunchKernel", 140.0, 3.0, "cuda_runtime"),
        event("aten::view", 160.0, 2.0),
        event("aten::neg", 170.0, 8.0, thread=2),
        event("cudaLaunchKernel", 172.0, 3.0, "cuda_runtime", thread=2),
    ]
    program, engine = threads_of(events)
    assert not program.engine
    assert program.between == Spent(2, 5.0, 5.0)
    assert program.launch == Spent(1, 10.0, 10.0)
    assert program.library_launch == Spent(1, 35.0, 35.0)
    assert engine.engine
    assert engine.launch == Spent(1, 8.0, 8.0)
    assert engine.between is None


def test_the_figures_that_layout_tells_are_the_records() -> None:
    rows = {row.name: row for row in msgspec.json.decode(RECORD.read_bytes(), type=Record).rows}
    assert set(rows) >= HOST_TIMES_FROM
    launches, more = [], []
    for name in sorted(HOST_TIMES_FROM):
        for thread in sorted(rows[name].threads, key=lambda t: t.engine):
            assert thread.launch is not None
            assert thread.library_launch is not None
            launches.append(round(thread.launch.median_us / rows[name].slowdown, 1))
            more.append(round(thread.library_launch.median_us / rows[name].slowdown - launches[-1], 1))
    assert launches == [12.7, 12.0, 8.1]
    assert more == pytest.approx([21.3, 17.1, 9.0], abs=0.05)
    assert min(launches) < layout.LAUNCH_US < max(launches)
    assert min(more) < layout.LIBRARY_US < max(more)


def test_too_few_arguments_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1
    assert "DIR FILE" in capsys.readouterr().err
