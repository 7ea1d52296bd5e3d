"""What functions call, against the file's own frames and call stacks."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from typing import Any

import pytest

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
