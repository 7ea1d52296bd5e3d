"""A step's kernel time by modules and by Python functions, against the file's own frames and the table by module."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from app.objects.trace import CallTree
from app.trace_report.call_trees import MAX_NODES
from tests.app.trace_report.reports import reported
from tests.profiler.trace.files import TRACES

STACKS = ["handrolled_blocks_bf16_eager_stack", "llama_prefill_bf16_eager_stack", "gpt2_train_autocast_eager_stack"]


def paths(tree: CallTree) -> Iterator[tuple[tuple[str, ...], int | None, float, float]]:
    """Of every node: the names on its way, its region, its time and that of the nodes right below it."""
    below = defaultdict(float)
    for place, parent in enumerate(tree["parent"]):
        below[parent] += tree["time_us"][place]
    for place, region in enumerate(tree["region"]):
        way, at = [], place
        while at >= 0:
            way.append(tree["names"][tree["name"][at]])
            at = tree["parent"][at]
        yield tuple(reversed(way)), region, tree["time_us"][place], below[place]


@pytest.mark.parametrize("name", STACKS)
def test_parts_never_exceed_the_whole_and_the_whole_is_the_steps_kernel_time(name: str) -> None:
    trace = reported(f"{name}.json.gz")
    kernels_us = sum(row["time_us"] for row in trace["where"]["kernels"])
    for tree in (trace["call_trees"][by] for by in ("modules", "functions")):
        assert tree is not None and len(tree["parent"]) <= MAX_NODES
        assert all(parent < place for place, parent in enumerate(tree["parent"]))
        assert all(below <= time + 0.01 for _, _, time, below in paths(tree))
        roots = sum(t for t, parent in zip(tree["time_us"], tree["parent"], strict=True) if parent < 0)
        assert roots == pytest.approx(kernels_us, rel=1e-3)


@pytest.mark.parametrize("name", STACKS)
def test_a_module_has_in_the_tree_what_the_table_by_module_gives_it(name: str) -> None:
    trace = reported(f"{name}.json.gz")
    tree = trace["call_trees"]["modules"]
    own: dict[str, float] = defaultdict(float)
    for way, region, time, _ in paths(tree):
        if region is not None:
            own["/".join(way[:-1])] += time
    largest = [row for row in trace["where"]["modules"] if row["path"]][:6]
    assert largest
    for row in largest:
        assert own[row["path"]] == pytest.approx(row["time_us"], rel=0.02), row["path"]


def test_functions_are_those_open_when_a_kernel_was_launched() -> None:
    """The same sums from the file's events alone: the kernel's launch, and the frames around it."""
    name = "handrolled_blocks_bf16_eager_stack.json.gz"
    with gzip.open(TRACES / name) as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    frames = [e for e in events if e.get("cat") == "python_function" and re.match(r"traces\.py\(", e["name"])]
    launches = {
        e["args"]["correlation"]: e
        for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e["args"]
    }
    wanted: dict[str, float] = defaultdict(float)
    for kernel in (e for e in events if e.get("cat") == "kernel"):
        launch = launches[kernel["args"]["correlation"]]
        around = {
            f["name"] for f in frames if f["ts"] <= launch["ts"] <= f["ts"] + f["dur"] and f["tid"] == launch["tid"]
        }
        for frame in around:
            wanted[re.sub(r"\((\d+)\): ", r":\1 ", frame)] += kernel["dur"]
    told: dict[str, float] = defaultdict(float)
    for way, region, time, _ in paths(reported(name)["call_trees"]["functions"]):
        if region is None:
            told[way[-1]] += time
    assert set(wanted) == set(told)
    for function, time_us in wanted.items():
        assert told[function] == pytest.approx(time_us, rel=1e-3), function


def test_without_stacks_there_is_no_tree() -> None:
    trees = reported("handrolled_blocks_bf16_eager.json.gz")["call_trees"]
    assert (trees["modules"], trees["functions"]) == (None, None)
