"""Graph launches: kept together, what they hide, and operations borrowed from another trace of the same model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from profiler.region.mining.mine import mine
from profiler.trace import read_trace
from profiler.trace.analyze.companion_trace import Lender, borrow, lender_of_launches, lender_of_step, match
from profiler.trace.analyze.gpu_graphs import find_graphs
from profiler.trace.analyze.kernel_links import nesting
from profiler.trace.analyze.kernel_provenance import compiled_kernels, hand_written_triton
from profiler.trace.model import NONE, Trace
from profiler.trace.read.capture import captured_launches
from tests.profiler.trace.files import TRACES, annotation, kernel, launch, loaded, op, real, written

GRAPH, EAGER = "handrolled_blocks_bf16_cudagraph.json.gz", "handrolled_blocks_bf16_eager.json.gz"
VLLM, CAPTURE = "tl_vllm_decode_full_exec.json.gz", "tl_vllm_decode_full_capture.json.gz"


def lender(name: str) -> Lender:
    found = lender_of_step(real(name))
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "vendor"), [(GRAPH, "CUDA graph"), (VLLM, "HIP graph")])
def test_kernels_of_one_launch_stay_together(name: str, vendor: str) -> None:
    by_correlation: dict[int, int] = {}
    events = loaded(name)["traceEvents"]
    launches = {e["args"]["correlation"] for e in events if "GraphLaunch" in e.get("name", "")}
    for e in events:
        if e.get("cat") == "kernel" and e["args"]["correlation"] in launches:
            by_correlation[e["args"]["correlation"]] = by_correlation.get(e["args"]["correlation"], 0) + 1
    (graph,) = find_graphs(real(name))
    assert graph.name == vendor
    assert [len(r.kernels) for r in graph.replays] == list(by_correlation.values())
    assert graph.hidden_share == 1.0
    assert graph.kernels_per_replay == {GRAPH: 136, VLLM: 421}[name]


def test_share_of_time_that_a_graph_hides_is_by_time(tmp_path: Path) -> None:
    events = [
        op("a", 0, 5), launch(1, 1), kernel(5, 10, 1), launch(20, 2, name="cudaGraphLaunch"), kernel(25, 20, 2),
        kernel(45, 10, 2), launch(70, 3, name="cudaGraphLaunch"), kernel(75, 20, 3, name="other"),
        *(kernel(100 + i, 1, 44, name="early") for i in range(2)),
    ]  # fmt: skip
    graphs = find_graphs(read_trace(written(tmp_path, json.dumps(events))))
    # Two kernels under one correlation whose launch is before the window are a graph as well.
    assert [(g.name, len(g.replays), g.kernels_per_replay) for g in graphs] == [
        ("CUDA graph 1", 1, 2), ("CUDA graph 2", 1, 1), ("CUDA graph 3", 1, 2),
    ]  # fmt: skip
    assert [g.share_of_kernel_time for g in graphs] == pytest.approx([30 / 62, 20 / 62, 2 / 62])


def test_an_eager_trace_lends_its_operations_to_every_replay() -> None:
    trace, eager = real(GRAPH), real(EAGER)
    trace_read = borrow(trace, lender(EAGER), EAGER)
    assert (trace.linked_share, trace_read.linked_share) == (0.0, 1.0)
    for replay in find_graphs(trace_read)[0].replays:
        ops = trace_read.ops.name[trace_read.kernels.op[replay.kernels]]
        of_eager = lender(EAGER)
        assert [trace_read.names[i] for i in ops] == [eager.names[i] for i in eager.ops.name[of_eager.ops]]
        details = trace_read.ops.detail[trace_read.kernels.op[replay.kernels]]
        assert [trace_read.details[i] for i in details] == [eager.details[i] for i in eager.ops.detail[of_eager.ops]]
    assert_ordered(trace_read)
    codes = {n.code for n in trace_read.notes}
    assert "borrowed" in codes
    assert not {"graph-launches", "no-shapes", "no-ops"} & codes


def test_regions_of_the_graph_are_those_of_the_eager_trace() -> None:
    def titles(trace: Trace) -> list[tuple[str, float, str | None]]:
        return sorted((r.title, r.calls_per_step, r.text) for r in mine(trace).regions)

    borrowed = borrow(real(GRAPH), lender(EAGER), EAGER)
    assert titles(borrowed) == titles(real(EAGER))
    # The times are the graph's own.
    time = sum(r.time_us_per_step for r in mine(borrowed).regions)
    assert time == pytest.approx(real(GRAPH).kernel_time_us / 3, rel=0.01)


def test_a_capture_lends_by_the_kernel_names_of_its_launches() -> None:
    capture = real(CAPTURE)
    launches = captured_launches(TRACES / CAPTURE, capture)
    assert len(launches) == 428  # hipModuleLaunchKernel 252, hipLaunchKernel 104, hipExtModuleLaunchKernel 72
    found_lender = lender_of_launches(capture, launches)
    assert found_lender is not None
    trace = borrow(real(VLLM), found_lender, CAPTURE)
    assert real(VLLM).linked_share == pytest.approx(0.0268, abs=0.0001)
    assert trace.linked_share == pytest.approx(1.0)
    graph = find_graphs(trace)[0]
    for row in graph.replays[0].kernels.tolist():
        name = trace.names[trace.kernels.name[row]]
        op_name = trace.names[trace.ops.name[trace.kernels.op[row]]]
        if name == "kernel_unified_attention_2d":
            assert op_name == "vllm::unified_attention_with_output"
    assert_ordered(trace)
    assert captured_launches(TRACES / EAGER, real(EAGER)) == [], "CUDA names no kernel at its launch"


def assert_ordered(trace: Trace) -> None:
    """Operations are in the order that Ops promises, with the parents that their times give."""
    order, parent = nesting(trace.ops.thread, trace.ops.start_us, trace.ops.end_us)
    assert (order == np.arange(len(order))).all()
    assert (parent == trace.ops.parent).all()


@pytest.mark.parametrize(
    "name", ["llama_eager_attention_prefill", "mixtral_prefill_bf16_eager", "t5_train_autocast_eager"]
)
def test_another_model_lends_nothing_and_that_is_said(name: str) -> None:
    trace = real(GRAPH)
    trace_read = borrow(trace, lender(f"{name}.json.gz"), name)
    assert (trace_read.kernels.op == NONE).all()
    note = next(n for n in trace_read.notes if n.code == "nothing-borrowed")
    assert name in note.message
    assert "graph-launches" in {n.code for n in trace_read.notes}


def test_a_trace_without_graphs_borrows_nothing() -> None:
    assert borrow(real(EAGER), lender(GRAPH.replace("cudagraph", "eager")), EAGER) is real(EAGER)


def test_kernels_match_by_name_and_order() -> None:
    kinds = list(range(8))
    assert match("abcab", "abxcab", kinds) == [0, 1, 3, 4, 5]
    assert match("abqd", "abcd", kinds) == [0, 1, NONE, 3], "a kernel that the lender lacks stays alone"
    assert match("abcdd", "abcd", kinds) == [0, 1, 2, 3, 3], "one more of a name that is always of one operation"
    assert match("abcdda", "abcdea", [0, 1, 2, 3, 4, 9]) == [0, 1, 2, 3, 3, 5]
    assert match("abcd", "dcba", kinds) == [NONE] * 4, "the same names in another order are another model"
    assert match("abc", ["", "", ""], kinds) == [0, 1, 2], "no names at all, as many launches: by place"
    assert match("abc", ["", ""], kinds) == [NONE] * 3


def test_compiled_kernels_are_known_by_name_in_every_spelling_and_by_the_region_round_them(tmp_path: Path) -> None:
    names = ["triton_poi_fused_add_0", "triton_red_fused_1", "triton_per_fused_2", "triton__0d1d2d", "triton_0",
             "triton_tem_fused_mm_3", "nvjet_tst", "my_triton_kernel", "triton_attention_of_mine"]  # fmt: skip
    events = [
        op("Torch-Compiled Region: 0/0", 0, 75),
        op("mylib::attention", 76, 30),
        annotation("ProfilerStep#0", 0, 200),
    ]
    for i, name in enumerate(names):
        events += [launch(10.0 * i + 5, i + 1), kernel(10.0 * i + 8, 1, i + 1, name=name)]
    trace = read_trace(written(tmp_path, json.dumps(events)))
    own, inside = compiled_kernels(trace)
    by_name = {trace.names[n]: k for k, n in enumerate(trace.kernels.name.tolist())}
    assert [own[by_name[n]] for n in names] == [True] * 6 + [False] * 3
    assert [inside[by_name[n]] for n in names] == [True] * 7 + [bool(inside[by_name[names[7]]]), False]
    assert hand_written_triton(trace)[by_name["triton_attention_of_mine"]]
    assert not hand_written_triton(trace)[by_name["nvjet_tst"]]


def test_triton_by_hand_is_said_with_its_names_and_libraries_are_not() -> None:
    said = {n.code: n.message for n in real(VLLM).notes}
    assert "hand-written-triton" not in said and "triton_kernels 72%" in said["library-kernels"]
    for name in (
        "tl_mi210_gpu_only",
        "kineto_resnet50_workers0",
        "timm_convnext_train_channels_last",
        "param_resnet_kineto",
    ):
        assert not hand_written_triton(real(f"{name}.json.gz")).any()
    compiled = {n.code: n.message for n in real("handrolled_blocks_bf16_compiled.json.gz").notes}["compiled"]
    assert "72 kernels" in compiled
