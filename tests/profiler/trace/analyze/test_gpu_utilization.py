"""Who keeps the GPU busy: unions, even splits of overlaps, and shares that add up to the step."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.region.mining.mine import COPIES
from profiler.trace import read_trace
from profiler.trace.analyze.gpu_utilization import even_split, gaps, gpu_window, merge_intervals, shares, union_us
from profiler.trace.read.columns import MEMORY
from tests.profiler.region.mined import mined
from tests.profiler.trace.files import EXPECTED, annotation, kernel, launch, loaded, op, real, written

UNITS = 40
INTERVALS = st.lists(st.tuples(st.integers(-5, UNITS), st.integers(0, 15), st.integers(0, 4)), max_size=25)


def columns(intervals: list[tuple[int, int, int]]):  # type: ignore[no-untyped-def]
    start = np.array([float(s) for s, _, _ in intervals])
    length = np.array([float(n) for _, n, _ in intervals])
    return start, start + length, np.array([g for _, _, g in intervals], np.int64)


@given(INTERVALS)
def test_each_unit_of_time_is_split_evenly_between_the_groups_that_run_in_it(
    intervals: list[tuple[int, int, int]],
) -> None:
    window = (0.0, 30.0)
    expected = [Fraction(0)] * 5
    for unit in range(30):
        running = {g for s, n, g in intervals if s <= unit < s + n}
        for g in running:
            expected[g] += Fraction(1, len(running))
    floats = even_split(*columns(intervals), 5, window)
    assert floats == pytest.approx([float(e) for e in expected], abs=1e-9)


@given(INTERVALS)
def test_gaps_and_merged_intervals_tile_the_window(intervals: list[tuple[int, int, int]]) -> None:
    start, end, _ = columns(intervals)
    free = {unit for unit in range(30) if not any(s <= unit < s + n for s, n, _ in intervals)}
    free_from, free_to = gaps(start, end, (0.0, 30.0))
    assert {unit for a, b in zip(free_from, free_to, strict=True) for unit in range(int(a), int(b))} == free
    starts, ends = merge_intervals(start, end)
    assert (starts[1:] > ends[:-1]).all(), "disjoint, and touching ones are one"
    assert union_us(start, end) == len({u for s, n, _ in intervals for u in range(s, s + n)})


def test_two_streams_share_the_time_in_which_both_run(tmp_path: Path) -> None:
    events = [
        annotation("ProfilerStep#0", 0, 100), op("a", 0, 50), launch(1, 1), launch(2, 2), launch(3, 3),
        kernel(10, 40, 1, stream=7), kernel(30, 40, 2, stream=9), kernel(80, 10, 3),
    ]  # fmt: skip
    trace = read_trace(written(tmp_path, json.dumps(events)))
    found = shares(trace, trace.steps, [[0], [1]])
    # 20 alone + half of 20 together, twice; the third kernel is in no group; 30 of 100 µs nothing runs.
    assert found.groups_us == (30.0, 30.0)
    assert (found.other_us, found.idle_us, found.wall_us) == (10.0, 30.0, 100.0)
    assert found.shares == (0.3, 0.3, 0.0, 0.1, 0.3)


def test_a_host_that_runs_ahead_does_not_make_steps_overlap(tmp_path: Path) -> None:
    # The host needs 100 µs a step, the GPU 300: windows lie side by side, and the first waits 10 µs for its launch.
    events = [e for i in range(3) for e in (annotation(f"ProfilerStep#{i}", 100 * i, 100), launch(100 * i + 1, i + 1))]
    events += [kernel(10 + 300 * i, 300, i + 1) for i in range(3)]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    assert [gpu_window(trace, step) for step in trace.steps] == [(0.0, 310.0), (310.0, 610.0), (610.0, 910.0)]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_regions_and_rests_add_up_to_the_step_and_idle_is_what_the_json_leaves_free(name: str) -> None:
    trace, mining = mined(name)
    found = mining.shares
    assert found is not None
    assert sum(found.shares) == pytest.approx(1.0, abs=1e-6)
    kernel_rests = [r for r in mining.rests if r.name != COPIES]
    assert len(found.groups_us) == len(mining.regions) + len(kernel_rests)
    for part, summed in zip(found.groups_us, [*mining.regions, *kernel_rests], strict=True):
        assert -1e-9 <= part <= sum(trace.kernels.duration_us[list(summed.kernels)]) + 1e-6
    busy = 0.0
    spans = sorted(gpu_spans(name, trace.origin_us))
    for step in mining.mined:
        start, end = gpu_window(trace, step)
        reached = start
        for a, b in spans:
            if b > reached and a < end:
                busy += min(b, end) - max(a, reached)
                reached = min(b, end)
    # The reader rounds times to whole nanoseconds; some thousand edges of them.
    assert found.wall_us - found.idle_us == pytest.approx(busy, rel=1e-5, abs=0.1)


def gpu_spans(name: str, origin_us: float) -> list[tuple[float, float]]:
    """Kernels, copies and sets as the file has them: a loop over json.load."""
    document = loaded(name)
    events = document["traceEvents"] if isinstance(document, dict) else document
    return [
        (float(e["ts"]) - origin_us, float(e["ts"]) - origin_us + float(e.get("dur", 0)))
        for e in events
        if e.get("ph") == "X" and str(e.get("cat", "")).lower() in {"kernel", *MEMORY}
    ]


def test_the_first_step_begins_behind_work_that_was_not_recorded(tmp_path: Path) -> None:
    """Launched at 20 and 30 µs and run from 9 ms on, though nothing recorded kept the GPU busy: a server ran ahead."""
    small = [op("aten::fill_", 0, 5), launch(2, 1), kernel(5, 3, 1)]
    events = [
        annotation("ProfilerStep#0", 0, 400), *small, op("aten::mm", 15, 20), launch(20, 2), launch(30, 3),
        kernel(9_000, 500, 2), kernel(9_501, 500, 3),
    ]  # fmt: skip
    trace = read_trace(written(tmp_path, json.dumps(events)))
    assert gpu_window(trace, trace.steps[0]) == (9_000.0, 10_001.0)
    # As much work before it is the step's own, and what waited may wait for that.
    large = [{**e, "dur": 300} if e["cat"] == "kernel" else e for e in small]
    trace = read_trace(written(tmp_path, json.dumps([*events, *large])))
    assert gpu_window(trace, trace.steps[0])[0] == 0.0


def test_work_of_a_launch_that_is_not_in_the_window_moves_no_step(tmp_path: Path) -> None:
    events = [annotation("ProfilerStep#0", 0, 400), kernel(9_000, 500, 2), kernel(9_501, 500, 3)]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    assert gpu_window(trace, trace.steps[0])[0] == 0.0


def test_work_from_before_the_recording_is_no_steps_and_steps_lie_side_by_side() -> None:
    """The GPU runs two steps behind the host: what it does at first has no launch in the trace."""
    trace = real("tl_mi300_resnet_actckpt.json.gz")
    lengths = [b - a for a, b in (gpu_window(trace, step) for step in trace.steps)]
    ends = [gpu_window(trace, step)[1] for step in trace.steps]
    assert lengths[1:] == pytest.approx([18_983.0, 18_554.0], abs=300.0)
    assert lengths[1:] == pytest.approx([ends[1] - ends[0], ends[2] - ends[1]], abs=1.0)
    assert not any(np.isnan(trace.kernels.launch_us[step.kernels]).any() for step in trace.steps)
