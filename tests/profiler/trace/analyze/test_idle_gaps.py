"""The gaps one by one: together the idle times that are told, and never while anything runs."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.trace import read_trace
from profiler.trace.analyze.gpu_utilization import gpu_window, merge_intervals, work_intervals
from profiler.trace.analyze.idle_breakdown import CAUSES, idle_gaps, step_parts
from profiler.trace.analyze.steps import steady_step
from tests.profiler.trace.files import TRACES


@pytest.mark.parametrize(
    "name", ["hta_nccl", "gpt2_train_autocast_eager", "llama_decode_bf16_eager", "hta_event_sync_multistream"]
)
def test_gaps_are_where_nothing_runs_and_add_up_by_cause(name: str) -> None:
    trace = read_trace(TRACES / f"{name}.json.gz")
    step = steady_step(trace)
    found = idle_gaps(trace, step)
    parts = step_parts(trace, [step])
    assert parts is not None
    for cause in CAUSES:
        assert sum(g.length_us for g in found if g.cause == cause) == pytest.approx(
            getattr(parts, f"idle_{cause}_us"), abs=1e-6
        )
    starts, ends = np.array([g.start_us for g in found]), np.array([g.start_us + g.length_us for g in found])
    assert (starts[1:] >= ends[:-1] - 1e-6).all()
    low, high = gpu_window(trace, step)
    assert starts.min() >= low - 1e-6
    assert ends.max() <= high + 1e-6
    busy_from, busy_to = merge_intervals(*work_intervals(trace))
    middle = (starts + ends) / 2
    after = np.searchsorted(busy_from, middle, side="right") - 1
    assert not ((after >= 0) & (busy_to[np.maximum(after, 0)] > middle + 1e-6)).any()
