"""Who sets the step's pace: made traces with known answers; real ones against a replay of every launch and kernel."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from profiler.trace import read_trace
from profiler.trace.analyze.gpu_utilization import gpu_window
from profiler.trace.analyze.pacing import Pace, optimizer_us, pace, stretches
from profiler.trace.model import Step, Trace
from tests.profiler.trace.files import annotation, kernel, launch, op, real, written


def sync(ts: float, dur: float) -> dict[str, object]:
    return {**launch(ts, 99, name="cudaStreamSynchronize"), "dur": dur}


def made(tmp_path: Path, events: list[dict[str, object]], groups: tuple[tuple[int, ...], ...] = ()) -> Pace:
    trace = read_trace(written(tmp_path, json.dumps([annotation("ProfilerStep#0", 0, 1000), *events])))
    return pace(trace, trace.steps, groups)


def test_kernels_that_wait_for_their_launch_are_the_hosts_pace(tmp_path: Path) -> None:
    events: list[dict[str, object]] = []
    for i in range(10):
        at = 100.0 * i
        events += [op("aten::mul", at, 30), launch(at + 10, i + 1), kernel(at + 15, 5, i + 1)]
    assert made(tmp_path, events, (tuple(range(10)),)) == Pace(0.0, 0.0, (0.0,))


def test_a_stretch_that_the_host_waits_for_is_the_gpus_and_the_host_was_ahead_by_its_wait(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 0, 30), launch(5, 1), launch(10, 2), kernel(10, 300, 1), kernel(312, 300, 2), sync(50, 570),
        op("aten::mm", 650, 20), launch(655, 3), kernel(660, 40, 3),
    ]  # fmt: skip
    # From 10 to 612, 2 of it between two queued kernels; the host arrived at 50. What follows is launched too late.
    found = made(tmp_path, events, ((0,), (1, 2)))
    assert found == Pace(602.0, 562.0, (300.0, 300.0))


def test_a_step_that_ends_with_its_work_is_the_gpus_from_the_last_gap_on(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 0, 30), launch(5, 1), kernel(10, 50, 1),
        op("aten::mm", 80, 30), launch(100, 2), kernel(105, 1200, 2), op("aten::mm", 120, 30), launch(130, 3),
        kernel(1310, 90, 3),
    ]  # fmt: skip
    # The host's window ends at 1000, the work at 1400.
    assert made(tmp_path, events, ((0,), (1,), (2,))) == Pace(1295.0, 400.0, (0.0, 1200.0, 90.0))


def test_no_work_is_nobodys_pace(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, json.dumps([annotation("ProfilerStep#0", 0, 10), op("aten::mm", 0, 5)])))
    assert pace(trace, trace.steps) == Pace(0.0, 0.0, ())


def test_the_optimizers_host_time_is_its_annotations_without_what_waits_for_the_gpu(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 0, 30), launch(5, 1), kernel(10, 300, 1),
        annotation("Optimizer.zero_grad#Adam.zero_grad", 320, 30),
        annotation("Optimizer.step#Adam.step", 400, 500), annotation("Optimizer.step#Adam.step", 420, 450),
        launch(450, 2), kernel(460, 200, 2), sync(500, 165), op("aten::mm", 950, 10),
    ]  # fmt: skip
    trace = read_trace(written(tmp_path, json.dumps([annotation("ProfilerStep#0", 0, 1000), *events])))
    assert optimizer_us(trace, trace.steps) == 30 + 500 - 165


def test_where_nothing_is_an_optimizers_its_time_is_not_told(tmp_path: Path) -> None:
    events = [annotation("ProfilerStep#0", 0, 10), op("aten::mm", 0, 5), launch(1, 1), kernel(2, 3, 1)]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    assert optimizer_us(trace, trace.steps) is None


def replay(trace: Trace, step: Step, factor: float) -> float:
    """A step's length with every kernel `factor` as long, on one stream: event by event.

    The host launches what it launched, as far apart as it did; a synchronising call ends when the GPU is done with what
    was launched before, as much later as it did then.
    """
    kernels, memory = trace.kernels, trace.memory
    assert memory.launch_us is not None
    work = [(float(kernels.start_us[i]), float(kernels.duration_us[i]), float(kernels.launch_us[i]), factor)
            for i in step.kernels]  # fmt: skip
    work += [(float(memory.start_us[i]), float(memory.duration_us[i]), float(memory.launch_us[i]), 1.0)
             for i in step.memory]  # fmt: skip
    work.sort()
    syncs = [] if trace.syncs is None else list(zip(trace.syncs.start_us, trace.syncs.end_us, strict=True))
    begin, _ = gpu_window(trace, step)
    events = sorted([(w[2], 0, i) for i, w in enumerate(work)] + [(float(a), 1, i) for i, (a, _) in enumerate(syncs)])
    shift = 0.0  # by how much earlier the host is
    was = now = begin
    for at, waits, i in events:
        if waits:
            end = float(syncs[i][1])
            held = max(at, was)  # in this call the host cannot leave before
            if end >= was > at:
                shift = max(0.0, end - (max(at - shift, now) + (end - held)))
            continue
        start, length, launched, scale = work[i]
        ready = launched - shift
        now = max(now + (start - was), ready) if launched <= was else max(now, ready + (start - launched))
        now += length * scale
        was = start + length
    return max(now, step.end_us - shift) - begin


ONE_STREAM = [
    "handrolled_blocks_bf16_eager.json.gz", "llama_prefill_bf16_eager.json.gz", "gpt2_train_autocast_eager.json.gz",
    "timm_vit_base_bf16_eager.json.gz", "timm_convnext_train_channels_last.json.gz", "llama_train_bf16_eager.json.gz",
    "mixtral_prefill_bf16_eager.json.gz", "pyg_gcn_gat_train_fp32.json.gz",
]  # fmt: skip


# At half the time the host becomes the later one in the middle of a stretch already, which the lead at its end misses.
@pytest.mark.parametrize(("factor", "off"), [(0.95, 0.01), (0.8, 0.01), (0.5, 0.04)])
@pytest.mark.parametrize("name", ONE_STREAM)
def test_shorter_kernels_shorten_a_real_step_by_what_a_replay_says(name: str, factor: float, off: float) -> None:
    trace = real(name)
    step = trace.steps[-1]
    begin, end = gpu_window(trace, step)
    before = replay(trace, step, 1.0)
    assert before == pytest.approx(end - begin, abs=1.0)  # as recorded
    found = pace(trace, [step], [step.kernels.tolist()])
    predicted = min((1 - factor) * found.groups_us[0], found.lead_us)
    assert predicted == pytest.approx(before - replay(trace, step, factor), abs=off * (end - begin))


@pytest.mark.parametrize("name", ONE_STREAM)
def test_a_stretch_lies_in_its_step_and_no_two_overlap(name: str) -> None:
    trace = real(name)
    for step in trace.steps:
        window, found = gpu_window(trace, step), stretches(trace, step)
        edges = [edge for a, b, _ in found for edge in (a, b)]
        assert edges == sorted(edges)
        assert all(window[0] <= edge <= window[1] for edge in edges)
        assert all(0.0 <= lead <= b - a for a, b, lead in found)
        whole = pace(trace, [step], [step.kernels.tolist()])
        assert whole.groups_us[0] <= whole.gpu_us + 1e-6
        assert np.isclose(whole.gpu_us, sum(b - a for a, b, _ in found))


def test_a_copy_to_memory_that_is_not_pinned_is_a_wait_from_its_call_on(tmp_path: Path) -> None:
    """cudaMemcpyAsync returns once the copy is done: what the host did before is all that it needs."""
    copied = {**kernel(800, 10, 3), "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pageable)"}
    events = [
        op("aten::mm", 0, 30), launch(5, 1), launch(10, 2), kernel(10, 400, 1), kernel(412, 380, 2),
        op("aten::copy_", 45, 770), {**launch(50, 3, name="cudaMemcpyAsync"), "dur": 765}, copied,
        op("aten::mm", 850, 20), launch(855, 4), kernel(860, 40, 4),
    ]  # fmt: skip
    found = made(tmp_path, events, ((0,), (1,), (2,)))
    assert found.gpu_us == pytest.approx(800.0)  # from 10 to 810
    assert found.lead_us == pytest.approx(760.0)  # the host came to the copy at 50
    assert (
        made(tmp_path, [*events[:-4], {**copied, "name": "Memcpy DtoH (Device -> Pinned)"}, *events[-3:]]).gpu_us < 1.0
    )


def test_a_step_that_ends_in_such_a_copy_has_a_host_that_was_ahead() -> None:
    trace = real("tl_h100_timesformer.json.gz")
    found = pace(trace, trace.steps)
    assert found.gpu_us > 150_000.0 and found.lead_us > 100_000.0  # launched in 30 ms, 158 ms of work
