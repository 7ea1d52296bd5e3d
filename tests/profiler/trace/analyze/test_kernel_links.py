"""Links against a search that tries everything, and the cases in which links go wrong elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.trace import read_trace
from profiler.trace.analyze import kernel_links
from profiler.trace.analyze.kernel_links import Launches, innermost, launch_of, nesting
from profiler.trace.model import NONE
from tests.profiler.trace.files import kernel, launch, loaded, op, real, written


def brute_force(events: list[dict[str, Any]]) -> list[tuple[float, str | None]]:
    """(start, name of the innermost op) of each kernel, by trying every op for every kernel."""
    ops = [e for e in events if str(e.get("cat")).lower() in {"cpu_op", "operator"}]
    ops = [e for e in ops if not e["name"].startswith("ProfilerStep")]
    runtime: dict[int, dict[str, Any]] = {}
    for event in events:
        correlation = (event.get("args") or {}).get("correlation")
        if correlation and str(event.get("cat")).lower() in {"cuda_runtime", "cuda_driver", "runtime"}:
            runtime.setdefault(correlation, event)
    collected = []
    for event in events:
        if str(event.get("cat")).lower() != "kernel":
            continue
        start = runtime.get((event.get("args") or {}).get("correlation", 0))
        around = []
        if start is not None:
            around = [
                o
                for o in ops
                if (o["pid"], o["tid"]) == (start["pid"], start["tid"]) and o["ts"] <= start["ts"] <= o["ts"] + o["dur"]
            ]
        # Of two with the same times the later one in the file is the inner one.
        inner = max(around, key=lambda o: (o["ts"], -o["dur"], ops.index(o)), default=None)
        collected.append((float(event["ts"]), str(inner["name"]) if inner else None))
    return sorted(collected, key=lambda pair: pair[0])


@pytest.mark.parametrize(
    "name",
    [
        "handrolled_blocks_bf16_eager_stack.json.gz",
        "hta_mi250_minitoy.json.gz",
        "hta_alexnet.json.gz",
        "hta_sampled_rank0.json.gz",
        "tl_vllm_decode_full_exec.json.gz",
        "tl_moe_01_many_experts_few_tokens.json.gz",
    ],
)
def test_links_are_those_of_trying_every_op_for_every_kernel(name: str) -> None:
    want = brute_force(loaded(name)["traceEvents"])
    trace = real(name)
    got = [trace.names[trace.ops.name[i]] if i != NONE else None for i in trace.kernels.op]
    assert got == [label for _, label in want]


def test_parents_are_those_of_trying_every_pair() -> None:
    trace = real("hta_mi250_minitoy.json.gz")
    ops = trace.ops
    for i, parent in enumerate(ops.parent.tolist()):
        around = [
            j
            for j in range(i)
            if ops.thread[j] == ops.thread[i] and ops.start_us[j] <= ops.start_us[i] and ops.end_us[j] >= ops.end_us[i]
        ]
        assert parent == max(around, default=NONE)


_SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 8)), max_size=24)


@settings(max_examples=300, deadline=None)
@given(_SPANS, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 21)), max_size=12), st.booleans())
def test_overlapping_spans_link_like_a_search_of_all(
    spans: list[tuple[int, int, int]], instants: list[tuple[int, int]], hostile: bool
) -> None:
    thread = np.array([t for t, _, _ in spans], dtype=np.int32)
    start = np.array([s for _, s, _ in spans], dtype=np.float64)
    end = np.array([s + d for _, s, d in spans], dtype=np.float64)
    at_thread = np.array([t for t, _ in instants], dtype=np.int32)
    at = np.array([a for _, a in instants], dtype=np.float64)
    with pytest.MonkeyPatch.context() as patch:
        if hostile:
            patch.setattr(kernel_links, "_ROUNDS", 0)  # the sweep that takes over when a nesting is too deep
        order, parent = nesting(thread, start, end)
        thread, start, end = thread[order], start[order], end[order]
        found = innermost(at_thread, at, thread, start, end, parent)
    rows = range(len(thread))
    for i in rows:
        around = [j for j in range(i) if thread[j] == thread[i] and end[j] >= end[i]]
        assert parent[i] == max(around, default=NONE)
    for row, (of, instant) in zip(found.tolist(), instants, strict=True):
        around = [j for j in rows if thread[j] == of and start[j] <= instant <= end[j]]
        assert row == max(around, default=NONE)


def test_a_nesting_too_deep_for_steps_up_is_swept_in_linear_time() -> None:
    depth = 200_000
    start = np.arange(depth, dtype=np.float64)
    end = 2.0 * depth - start
    thread = np.zeros(depth, dtype=np.int32)
    order, parent = nesting(thread, start, end)
    assert parent.tolist() == list(range(-1, depth - 1))
    at = np.arange(1.5 * depth, 2.0 * depth, 1000.0)
    found = innermost(np.zeros(len(at), np.int32), at, thread[order], start[order], end[order], parent)
    assert found.tolist() == [int(2 * depth - a) for a in at]


def test_any_event_with_the_correlation_is_the_launch_whatever_its_name(tmp_path: Path) -> None:
    names = ["INVALID", "hipExtModuleLaunchKernel", "urEnqueueKernelLaunch", "cuLaunchKernelEx"]
    events: list[dict[str, object]] = []
    for i, name in enumerate(names):
        events += [op(f"op{i}", 10 * i, 8), launch(10 * i + 2, 100 + i, name=name), kernel(100 + i, 1, 100 + i)]
    events[4]["cat"] = "xpu_runtime"
    trace = read_trace(written(tmp_path, json.dumps(events)))
    assert [trace.names[trace.ops.name[i]] for i in trace.kernels.op] == ["op0", "op1", "op2", "op3"]
    assert trace.kernels.launch_us.tolist() == [2.0, 12.0, 22.0, 32.0]


def test_neither_another_thread_nor_external_id_makes_a_link(tmp_path: Path) -> None:
    events = [
        op("elsewhere", 0, 100, tid=2, **{"External id": 7}),
        launch(5, 50, tid=1),
        kernel(20, 4, 50, **{"External id": 7}),
        op("here", 40, 10, tid=1, **{"External id": 8}),
        launch(45, 51, tid=1),
        kernel(60, 4, 51, **{"External id": 7}),
    ]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    assert trace.kernels.op[0] == NONE
    assert trace.names[trace.ops.name[trace.kernels.op[1]]] == "here"
    assert trace.kernels.launched.tolist() == [True, True]
    assert trace.linked_share == 0.5
    assert "external-id-disagrees" in {note.code for note in trace.notes}


def test_correlation_zero_and_absent_link_nothing(tmp_path: Path) -> None:
    bare = kernel(20, 4, 0)
    del bare["args"]
    trace = read_trace(written(tmp_path, json.dumps([op("a", 0, 9), launch(1, 0), kernel(10, 4, 0), bare])))
    assert trace.kernels.op.tolist() == [NONE, NONE]
    assert trace.kernels.correlation.tolist() == [NONE, NONE]
    assert not trace.kernels.launched.any()


def test_graph_kernels_are_flagged_and_only_those() -> None:
    trace = real("handrolled_blocks_bf16_cudagraph.json.gz")
    assert trace.kernels.graph.sum() == 408  # the whole step is replayed
    assert not real("handrolled_blocks_bf16_eager.json.gz").kernels.graph.any()
    name = "tl_vllm_decode_full_exec.json.gz"
    events = loaded(name)["traceEvents"]
    replays = {e["args"]["correlation"] for e in events if e["name"] == "hipGraphLaunch"}
    replayed = sum(e.get("cat") == "kernel" and e["args"]["correlation"] in replays for e in events)
    assert replayed >= 420  # MANIFEST.md: so many share one launch
    assert real(name).kernels.graph.sum() == replayed


@settings(max_examples=200, deadline=None)
@given(
    launched=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50)), max_size=12),
    ran=st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 50)), max_size=12),
)
def test_a_correlation_that_is_used_again_goes_to_the_last_launch_before(
    launched: list[tuple[int, int]], ran: list[tuple[int, int]]
) -> None:
    number = np.array([c for c, _ in launched], np.int64)
    start = np.array([t for _, t in launched], np.float64)
    nothing = np.full(len(launched), NONE, np.int64)
    launches = Launches(start, start, nothing.astype(np.int32), number, nothing, nothing == 0)
    got = launch_of(
        np.array([c for c, _ in ran], np.int64), np.array([t for _, t in ran], np.float64), launches
    ).tolist()
    for (correlation, at), found in zip(ran, got, strict=True):
        same = [i for i, (c, _) in enumerate(launched) if c == correlation and c > 0]
        before = [launched[i][1] for i in same if launched[i][1] <= at]
        if not same:
            assert found == NONE
        elif before:
            assert launched[found] == (correlation, max(before))
        else:
            assert found == same[0]


def test_two_processes_in_one_file_keep_their_own_kernels(tmp_path: Path) -> None:
    first = [op("a", 0, 10), launch(2, 5), kernel(20, 5, 5)]
    second = [op("b", 100, 10, tid=2), launch(102, 5, tid=2), kernel(120, 5, 5)]
    trace = read_trace(written(tmp_path, json.dumps([*first, *second])))
    assert [trace.names[trace.ops.name[i]] for i in trace.kernels.op] == ["a", "b"]
