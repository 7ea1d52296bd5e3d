"""Why the GPU idles: known causes in made traces, and the figures of real ones by a plain loop over the JSON."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.trace import read_trace
from profiler.trace.analyze.gpu_utilization import gpu_window, merge_intervals, work_intervals
from profiler.trace.analyze.idle_breakdown import (
    CAUSES,
    PAUSE_US,
    StepParts,
    critical_resource,
    idle_gaps,
    step_parts,
)
from profiler.trace.analyze.steps import measured_steps, steady_step
from tests.profiler.trace.files import EXPECTED, TRACES, annotation, kernel, launch, loaded, op, real, written

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def sync(ts: float, dur: float) -> dict[str, object]:
    return {**launch(ts, 99, name="cudaStreamSynchronize"), "dur": dur}


def parts(tmp_path: Path, events: list[dict[str, object]]) -> StepParts:
    trace = read_trace(written(tmp_path, json.dumps([annotation("ProfilerStep#0", 0, 1000), *events])))
    breakdown = step_parts(trace, trace.steps)
    assert breakdown is not None
    assert breakdown.wall_us == 1000.0
    assert breakdown.busy_us + breakdown.idle_us == pytest.approx(1000.0, abs=1e-6)
    return breakdown


def test_short_kernels_behind_slow_launches_are_launch_bound(tmp_path: Path) -> None:
    events: list[dict[str, object]] = []
    for i in range(19):
        at = 50.0 * i
        events += [op("aten::mul", at, 30), launch(at + 10, i + 1), kernel(at + 15, 5, i + 1)]
    events += [op("aten::mul", 950, 30), launch(960, 20), kernel(965, 35, 20)]
    breakdown = parts(tmp_path, events)
    # 15 before the first, 45 between each two: 15 + 19 * 45.
    assert breakdown.idle_launch_us == pytest.approx(870.0)
    assert (breakdown.idle_host_us, breakdown.idle_communication_us, breakdown.idle_device_us) == (0.0, 0.0, 0.0)
    critical = critical_resource(breakdown)
    assert critical is not None
    assert (critical.name, critical.share) == ("launches", pytest.approx(0.87))


def test_a_synchronising_call_and_a_long_pause_are_the_hosts(tmp_path: Path) -> None:
    waited = [
        op("aten::mm", 0, 20), launch(5, 1), kernel(10, 90, 1), sync(30, 80), op("aten::mm", 112, 20), launch(120, 2),
        kernel(130, 870, 2),
    ]  # fmt: skip
    breakdown = parts(tmp_path, waited)
    assert (breakdown.idle_host_us, breakdown.idle_launch_us) == (30.0, 10.0)
    # No sync, but nothing that the profiler sees for 400 µs: a data loader.
    loading = [
        op("aten::mm", 0, 20), launch(5, 1), kernel(10, 90, 1), op("aten::mm", 420, 20), launch(430, 2),
        kernel(435, 565, 2),
    ]  # fmt: skip
    assert parts(tmp_path, loading).idle_host_us == 335.0
    # The same time filled with operations that launch nothing is slow launching.
    busy = [op("aten::view", float(at), PAUSE_US / 4) for at in range(20, 420, int(PAUSE_US / 2))]
    assert parts(tmp_path, [*loading, *busy]).idle_host_us == 0.0


def test_what_follows_the_last_work_is_the_hosts_and_queued_work_the_devices(tmp_path: Path) -> None:
    events = [op("a", 0, 20), launch(1, 1), launch(2, 2), kernel(10, 90, 1), kernel(103, 97, 2)]
    breakdown = parts(tmp_path, events)
    assert (breakdown.idle_launch_us, breakdown.idle_device_us, breakdown.idle_host_us) == (10.0, 3.0, 800.0)


def test_work_that_starts_long_after_its_launch_was_queued(tmp_path: Path) -> None:
    breakdown = parts(tmp_path, [op("a", 0, 20), launch(10, 1), kernel(510, 490, 1)])
    # 10 up to the call, 1 in it.
    assert (breakdown.idle_launch_us, breakdown.idle_device_us) == (11.0, 499.0)


@pytest.mark.parametrize(
    "call",
    ["hipMemcpyWithStream", "hipMemcpy", "cudaMemcpy", "cuMemcpyDtoH_v2", "hipStreamSynchronize",
     "cudaEventSynchronize", "cuCtxSynchronize"],
)  # fmt: skip
def test_a_host_that_stands_in_a_synchronous_copy_is_no_dependency_between_streams(tmp_path: Path, call: str) -> None:
    # The kernel was handed over at 10, the host stood in the call until 510 and could hand over nothing else.
    waiting = {**launch(20, 99, name=call), "dur": 490}
    breakdown = parts(tmp_path, [op("a", 0, 20), launch(10, 1), waiting, kernel(510, 490, 1)])
    assert (breakdown.idle_host_us, breakdown.idle_device_us) == (499.0, 0.0)


@pytest.mark.parametrize("call", ["cudaMemcpyAsync", "hipMemcpyAsync", "hipMallocAsync", "cudaMemcpyPeerAsync"])
def test_an_asynchronous_copy_holds_the_host_up_no_more_than_a_launch(tmp_path: Path, call: str) -> None:
    copying = {**launch(20, 99, name=call), "dur": 490}
    breakdown = parts(tmp_path, [op("a", 0, 20), launch(10, 1), copying, kernel(510, 490, 1)])
    assert (breakdown.idle_host_us, breakdown.idle_device_us) == (0.0, 499.0)


def test_gaps_of_some_us_between_queued_kernels_stay_the_devices_while_the_host_synchronises(tmp_path: Path) -> None:
    events = [op("a", 0, 20), launch(1, 1), launch(2, 2), sync(20, 970), kernel(10, 90, 1), kernel(103, 897, 2)]
    assert parts(tmp_path, events).idle_device_us == 3.0


def test_the_half_second_that_sglang_stood_in_a_copy_is_the_batch_before_and_no_time_of_this_one() -> None:
    """A host that stands in a copy waits for the GPU; nothing recorded ran there, so what ran was not recorded:
    the batch before, which SGLang's scheduler launches ahead."""
    trace = real("tl_sglang_prefilldecode.json.gz")
    document = loaded("tl_sglang_prefilldecode.json.gz")
    stood = max(e["dur"] for e in document["traceEvents"] if e.get("name") == "hipMemcpyWithStream")
    breakdown = step_parts(trace, trace.steps)
    (step,) = trace.steps
    assert breakdown is not None
    assert breakdown.idle_us < 0.01 * breakdown.wall_us
    last = max(trace.kernels.start_us[step.kernels] + trace.kernels.duration_us[step.kernels])
    assert breakdown.wall_us == pytest.approx(last - step.start_us - stood, rel=0.01)
    critical = critical_resource(breakdown)
    assert critical is not None and critical.name == "gpu"


def test_the_time_inside_a_long_launch_is_the_launchs(tmp_path: Path) -> None:
    # Lazy loading: the kernel starts when the call is nearly over.
    loading = {**launch(10, 1), "dur": 505}
    breakdown = parts(tmp_path, [op("a", 0, 520), loading, kernel(510, 490, 1)])
    assert (breakdown.idle_launch_us, breakdown.idle_device_us, breakdown.idle_host_us) == (510.0, 0.0, 0.0)
    # It was begun before the GPU fell idle at 100, and lasts to 400; from then on the GPU has the kernel.
    before = [op("a", 0, 420), launch(1, 1), kernel(10, 90, 1), {**launch(50, 2), "dur": 350}]
    breakdown = parts(tmp_path, [*before, kernel(450, 550, 2)])
    assert (breakdown.idle_launch_us, breakdown.idle_device_us) == (10.0 + 300.0, 50.0)
    # After a wait of the host the call is still the launch's.
    waited = [sync(10, 90), op("a", 100, 500), {**launch(110, 1), "dur": 400}, kernel(500, 500, 1)]
    breakdown = parts(tmp_path, waited)
    assert (breakdown.idle_host_us, breakdown.idle_launch_us) == (110.0, 390.0)


def test_only_the_first_kernel_of_a_graph_waits_for_its_launch(tmp_path: Path) -> None:
    replay = {**launch(10, 1, name="cudaGraphLaunch"), "dur": 300}
    events = [op("a", 0, 320), replay, kernel(20, 30, 1), kernel(55, 45, 1), kernel(120, 880, 1)]
    breakdown = parts(tmp_path, events)
    assert (breakdown.idle_launch_us, breakdown.idle_device_us) == (20.0, 5.0 + 20.0)


def test_a_launch_that_goes_on_is_no_pause_of_the_host(tmp_path: Path) -> None:
    slow = {**launch(20, 1), "dur": 400}
    events = [op("a", 0, 421), slow, kernel(25, 75, 1), op("b", 422, 20), launch(430, 2), kernel(435, 565, 2)]
    breakdown = parts(tmp_path, events)
    assert (breakdown.idle_host_us, breakdown.idle_launch_us) == (0.0, 25.0 + 335.0)
    quick = [{**event, "dur": 1} if event is slow else event for event in events]
    assert parts(tmp_path, quick).idle_host_us == 335.0


def test_a_blocking_copy_waits_for_the_gpu_not_the_gpu_for_it(tmp_path: Path) -> None:
    copy = {**kernel(103, 97, 2, name="Memcpy DtoH"), "cat": "gpu_memcpy"}
    blocking = {**launch(20, 2, name="cudaMemcpyAsync"), "dur": 190}
    breakdown = parts(tmp_path, [op("a", 0, 220), launch(1, 1), kernel(10, 90, 1), blocking, copy])
    assert (breakdown.idle_launch_us, breakdown.idle_device_us) == (10.0, 3.0)


def test_communication_counts_where_nothing_hides_it_and_so_do_the_gaps_round_it(tmp_path: Path) -> None:
    events = [
        op("a", 0, 20), launch(1, 1), launch(2, 2), launch(3, 3), kernel(10, 190, 1),
        kernel(100, 300, 2, stream=9, name=NCCL), kernel(420, 580, 3),
    ]  # fmt: skip
    breakdown = parts(tmp_path, events)
    assert (breakdown.kernels_us, breakdown.communication_us) == (770.0, 200.0)
    assert breakdown.idle_communication_us == 20.0


def test_copies_count_where_nothing_else_runs(tmp_path: Path) -> None:
    copy = {**kernel(90, 60, 2, stream=11, name="Memcpy HtoD"), "cat": "gpu_memcpy"}
    breakdown = parts(tmp_path, [op("a", 0, 20), launch(1, 1), launch(2, 2), kernel(0, 100, 1), copy])
    assert (breakdown.kernels_us, breakdown.copies_us) == (100.0, 50.0)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_parts_are_the_step_in_every_real_trace(name: str) -> None:
    trace = real(name)
    breakdown = step_parts(trace, measured_steps(trace))
    assert breakdown is not None
    assert breakdown.busy_us + breakdown.idle_us == pytest.approx(breakdown.wall_us, rel=1e-9, abs=1e-6)
    assert min(getattr(breakdown, field) for field in StepParts.__slots__) >= -1e-6
    assert (critical_resource(breakdown) is None) == (breakdown.wall_us == 0.0)


RESOURCES = {
    "llama_decode_bf16_eager.json.gz": "launches",  # FINDINGS.md: launch-bound
    "t5_train_autocast_eager.json.gz": "launches",
    "llama_prefill_bf16_compiled.json.gz": "gpu",
    "handrolled_blocks_bf16_eager.json.gz": "gpu",
    "tl_mi300_resnet_actckpt.json.gz": "communication",
}


@pytest.mark.parametrize("name", sorted(RESOURCES))
def test_the_critical_resource_is_the_one_an_engineer_names(name: str) -> None:
    trace = real(name)
    breakdown = step_parts(trace, measured_steps(trace))
    assert breakdown is not None
    critical = critical_resource(breakdown)
    assert critical is not None
    assert critical.name == RESOURCES[name]


@pytest.mark.parametrize("name", ["llama_decode_bf16_eager.json.gz", "gpt2_train_autocast_eager_stack.json.gz"])
def test_the_split_of_one_step_is_that_of_a_plain_loop_over_the_json(name: str) -> None:
    trace = real(name)
    (step,) = measured_steps(trace)
    breakdown = step_parts(trace, [step])
    assert breakdown is not None
    want = plain_split(loaded(name)["traceEvents"])
    assert breakdown.idle_launch_us == pytest.approx(want["launch"], abs=1.0)
    assert breakdown.idle_host_us == pytest.approx(want["host"], abs=1.0)
    assert breakdown.idle_device_us == pytest.approx(want["device"], abs=1.0)
    assert breakdown.idle_us > 5000.0


def plain_split(events: list[dict[str, Any]]) -> dict[str, float]:
    """The definitions of profiler.trace.analyze.idle_breakdown for one ProfilerStep on one stream without
    communication, by loops."""
    spans = [e for e in events if e.get("ph") == "X"]
    (step,) = [e for e in spans if e["name"].startswith("ProfilerStep") and e["cat"] == "user_annotation"]
    begin, end = step["ts"], step["ts"] + step["dur"]
    runtime = [e for e in spans if e["cat"] in ("cuda_runtime", "cuda_driver")]
    by_id = {e["args"]["correlation"]: e for e in reversed(runtime) if e["args"].get("correlation")}
    called = {number: e["ts"] for number, e in by_id.items()}
    kernels = [e for e in spans if e["cat"] == "kernel"]
    returned = {e["ts"]: by_id[e["args"]["correlation"]]["ts"] + by_id[e["args"]["correlation"]]["dur"]
                for e in kernels}  # fmt: skip
    syncs = [(e["ts"], e["ts"] + e["dur"]) for e in runtime if "Synchronize" in e["name"]]
    work = sorted((e["ts"], e["ts"] + e["dur"], called[e["args"]["correlation"]]) for e in spans
                  if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"))  # fmt: skip
    end = max(end, *(b for _, b, _ in work))
    launching = {e["tid"] for e in runtime if "LaunchKernel" in e["name"]}
    ticks = {t for _, _, t in work}
    for e in spans:
        if e["cat"] == "cpu_op" and e["tid"] in launching:
            ticks |= {e["ts"], e["ts"] + e["dur"]}
    calls = [(by_id[e["args"]["correlation"]]["ts"], returned[e["ts"]]) for e in kernels]
    ordered = sorted(ticks | {t for _, t in calls})
    pauses = [(a, b) for a, b in pairwise(ordered) if b - a > 200 and not any(c <= a and b <= d for c, d in calls)]
    total = {"launch": 0.0, "host": 0.0, "device": 0.0}
    reached = begin
    for start, stop, launched in work:
        if start > reached:
            back = returned.get(start, launched)
            if launched <= reached:
                calling = max(0.0, min(start, back) - reached)
                total["launch"] += calling
                total["device"] += start - reached - calling
            else:
                queued = start - back if start - back > 200 else 0.0
                calling = min(start, back) - launched if back - launched > 200 else 0.0
                late = any(a < launched and b > reached for a, b in syncs) or any(
                    min(b, launched, start) - max(a, reached) > 200 for a, b in pauses
                )
                total["host" if late else "launch"] += start - reached - queued - calling
                total["launch"] += calling
                total["device"] += queued
        reached = max(reached, stop)
    total["host"] += end - reached
    return total


@pytest.mark.parametrize(
    "name", ["hta_nccl", "gpt2_train_autocast_eager", "llama_decode_bf16_eager", "hta_event_sync_multistream"]
)
def test_gaps_are_where_nothing_runs_and_add_up_by_cause(name: str) -> None:
    trace = read_trace(TRACES / f"{name}.json.gz")
    step = steady_step(trace)
    gaps = idle_gaps(trace, step)
    parts = step_parts(trace, [step])
    assert parts is not None
    for cause in CAUSES:
        assert sum(g.length_us for g in gaps if g.cause == cause) == pytest.approx(
            getattr(parts, f"idle_{cause}_us"), abs=1e-6
        )
    starts, ends = np.array([g.start_us for g in gaps]), np.array([g.start_us + g.length_us for g in gaps])
    assert (starts[1:] >= ends[:-1] - 1e-6).all()
    low, high = gpu_window(trace, step)
    assert starts.min() >= low - 1e-6
    assert ends.max() <= high + 1e-6
    busy_from, busy_to = merge_intervals(*work_intervals(trace))
    middle = (starts + ends) / 2
    after = np.searchsorted(busy_from, middle, side="right") - 1
    assert not ((after >= 0) & (busy_to[np.maximum(after, 0)] > middle + 1e-6)).any()
