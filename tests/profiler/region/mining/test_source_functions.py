"""Module and source line of mined regions, against a plain look at the frames of the trace's JSON."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from profiler.region.mining.mine import Mining, mine
from profiler.region.mining.source_functions import instants, with_sources
from profiler.trace.model import Trace
from profiler.trace.read.frames import open_frames
from profiler.trace.read.reader import read_trace
from tests.conftest import DATA

TRACES = DATA / "traces"


def located(path: Path) -> tuple[Trace, Mining]:
    trace = read_trace(path)
    mining = mine(trace)
    return trace, with_sources(mining, [f.innermost for f in open_frames(path, trace, instants(mining))])


@pytest.mark.parametrize("name", ["llama_prefill_bf16_eager_stack", "gpt2_train_autocast_eager_stack"])
def test_a_region_knows_its_function_and_line(name: str) -> None:
    path = TRACES / f"{name}.json.gz"
    trace, mining = located(path)
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    frames = [e for e in events if e.get("cat") == "python_function" and ".py(" in e["name"]]
    asked = [r for r in mining.regions if r.source][:8]
    assert len(asked) == 8
    for region in asked:
        candidates = []
        for thread, start_us, _ in region.spans[:3]:
            at = start_us + trace.origin_us
            around = [
                e for e in frames
                if str(e["tid"]) == trace.threads[thread][1] and e["ts"] <= at <= e["ts"] + e["dur"]
                and not re.search(r"(packages/|^)torch/", e["name"])
            ]  # fmt: skip
            candidates.append(max(around, key=lambda e: e["ts"])["name"])
        match = re.fullmatch(r"(?P<file>.*):(?P<line>\d+) (?P<function>.+)", region.source)
        assert match is not None
        wanted = f"{match['file']}({match['line']}): {match['function']}"
        assert any(c.endswith(wanted) for c in candidates), (region.title, region.source, candidates)


def test_a_region_over_several_modules_is_in_the_one_that_holds_them() -> None:
    mining = mine(read_trace(TRACES / "llama_prefill_bf16_eager_stack.json.gz"))
    gated = next(r for r in mining.regions if r.title == "SwiGLU")
    assert gated.module.endswith("LlamaMLP_0")  # SiLU runs in a module of its own, the product does not


def test_without_stacks_nothing_is_claimed() -> None:
    _, mining = located(TRACES / "llama_prefill_bf16_eager.json.gz")
    assert all(r.source == "" and r.module == "" for r in mining.regions)
