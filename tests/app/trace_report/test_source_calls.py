"""What functions call, against the file's own frames and call stacks."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from app.trace_report.called_from import called_from
from app.trace_report.source_calls import _Stacks, source_calls
from profiler.region.mining.mine import mine
from profiler.trace.read.frames import Frame
from profiler.trace.read.reader import read_trace
from profiler.trace.read.source import Limits
from tests.app.trace_report.reports import reported
from tests.profiler.trace.files import TRACES

STACKS = ["handrolled_blocks_bf16_eager_stack", "llama_prefill_bf16_eager_stack", "gpt2_train_autocast_eager_stack"]
RESNET = "kineto_resnet50_workers0.json.gz"


def rows(trace: dict[str, Any]) -> list[tuple[str, list[str], int, int, bool, int, float]]:
    calls = trace["call_trees"]["calls"]
    columns = [calls[name] for name in ("function", "callee", "turn", "turns", "own", "region", "time_us")]
    return [
        (calls["functions"][f], calls["callees"][c], turn, turns, own, region, us)
        for f, c, turn, turns, own, region, us in zip(*columns, strict=True)
    ]


@pytest.mark.parametrize("name", STACKS)
def test_the_calls_of_a_function_add_up_to_its_time(name: str) -> None:
    trace = reported(f"{name}.json.gz")
    tree, inclusive = trace["call_trees"]["functions"], defaultdict[str, float](float)
    for place, region in enumerate(tree["region"]):
        if region is not None:
            way, at = set(), tree["parent"][place]
            while at >= 0:
                way.add(tree["names"][tree["name"][at]])
                at = tree["parent"][at]
            for function in way:
                inclusive[function] += tree["time_us"][place]
    sums = defaultdict[str, float](float)
    for function, _, _, _, _, _, us in rows(trace):
        sums[function] += us
    heavy = [f for f, us in inclusive.items() if us > 0.05 * max(inclusive.values())]
    assert len(heavy) > 2
    for function in heavy:
        assert sums[function] == pytest.approx(inclusive[function], rel=0.02), function


@pytest.mark.parametrize("name", STACKS)
def test_what_is_launched_by_no_other_function_is_told_of_one_alone(name: str) -> None:
    trace = reported(f"{name}.json.gz")
    kernels_us = sum(row["time_us"] for row in trace["where"]["kernels"])
    assert sum(us for *_, own, _, us in rows(trace) if own) == pytest.approx(kernels_us, rel=0.02)
    told = trace["call_trees"]["told"]
    assert sum(told.values()) == pytest.approx(kernels_us, rel=1e-3) and told["line_us"] == 0


def test_a_module_is_called_by_its_class_and_in_its_turn() -> None:
    """Norms of a layer, counted in the file: two in each call of the layer."""
    trace = reported("llama_prefill_bf16_eager_stack.json.gz")
    norms = {
        (turn, turns)
        for function, names, turn, turns, *_ in rows(trace)
        if function.endswith("modeling_llama.py:295 forward") and names[0] == "module LlamaRMSNorm"
    }
    with gzip.open(TRACES / "llama_prefill_bf16_eager_stack.json.gz") as file:
        frames = {
            e["args"]["Python id"]: e
            for e in json.load(file)["traceEvents"]
            if e.get("cat") == "python_function"
        }  # fmt: skip
    parents = Counter(
        e["args"]["Python parent id"]
        for e in frames.values()
        if e["name"].startswith("nn.Module: LlamaRMSNorm")
        and frames[e["args"]["Python parent id"]]["name"].endswith("modeling_llama.py(295): forward")
    )
    assert set(parents.values()) == {2}
    assert norms == {(0, 2), (1, 2)}


def test_call_stacks_tell_the_lines_of_the_calls() -> None:
    trees = reported(RESNET)["call_trees"]
    assert trees["lines"] == "call" and trees["calls"] is None
    with gzip.open(TRACES / RESNET) as file:
        stacks = {(e.get("args") or {}).get("Call stack", "") for e in json.load(file)["traceEvents"]}
    lines = {
        f"{file.rpartition('site-packages/')[2]}:{line} {name}"
        for stack in stacks
        for file, line, name in re.findall(r"([^;]+?)\((\d+)\): ([^;]+)", stack)
    }
    named = {n for n in trees["functions"]["names"] if n}
    assert named <= lines
    assert {f"torchvision/models/resnet.py:{n} forward" for n in (124, 128, 132)} <= named
    told = trees["told"]
    assert told["line_us"] > 0.9 * sum(told.values()) and told["function_us"] == 0


def test_without_stacks_nothing_is_told() -> None:
    trees = reported("handrolled_blocks_bf16_eager.json.gz")["call_trees"]
    assert trees["calls"] is None and trees["told"]["none_us"] > 0 and trees["told"]["function_us"] == 0


def test_an_operation_below_a_frame_without_a_name_is_no_operators(tmp_path: Path) -> None:
    """`x + y` has no frame between the function and its operation; what an object's `__call__` adds has one."""
    events: list[dict[str, Any]] = [{"cat": "python_function", "name": "m/a.py(3): f", "ts": 0, "dur": 100}]
    for i, inner in enumerate((None, "torch/_ops.py(9): __call__")):
        at, link = 10 + 40 * i, {"External id": i + 1, "correlation": i + 1}
        if inner:
            events.append({"cat": "python_function", "name": inner, "ts": at - 2, "dur": 30})
        events += [
            {"cat": "cpu_op", "name": "aten::add", "ts": at, "dur": 20, "args": {"External id": i + 1}},
            {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 2, "dur": 3, "args": link},
            {"cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": at + 6, "dur": 8,
             "args": {**link, "device": 0, "stream": 7}},
        ]  # fmt: skip
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **event} for event in events]}))
    trace = read_trace(path)
    called = called_from(path, Limits(), trace, mine(trace))
    calls = source_calls(trace, called, [0, 0], [8.0, 8.0], 1)
    assert calls is not None and calls["functions"] == ["m/a.py:3 f"]
    assert sorted(calls["callees"]) == [["add"], ["aten::add"]]


def test_what_deep_stacks_share_is_worked_out_once() -> None:
    depth, leaves, frame = 150, 300, None
    for n in range(depth):
        frame = Frame(f"m.py({n}): f{n}", f"m.py:{n} f{n}", float(n), frame)
    stacks = _Stacks()
    for n in range(leaves):
        inner = Frame("torch/a.py(1): wrapper", "", 1000.0 + n, frame)
        link = stacks.calls(Frame("<built-in method relu of Tensor>", "", 1000.0 + n, inner))
        functions = []
        while link is not None:
            functions.append(link.call)
            link = link.around
        assert [call.of.text for call in functions] == [f"m.py:{n} f{n}" for n in reversed(range(depth))]
        assert functions[0].names == ("relu",) and functions[0].own and functions[1].names == (f"f{depth - 1}",)
    assert len(stacks.links) == depth - 1 + leaves
