"""The models that no run had before run in small form on a CPU, and were predicted before anybody measured them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from app.trace_report.step_model import GRAPH_GAP_US
from benchmarks.traces import applied, applied_programs
from benchmarks.traces.applied_later import LATER
from benchmarks.traces.applied_latest import LATEST
from benchmarks.traces.applied_models import ALL, OPTIMIZERS
from benchmarks.traces.applied_newest import NEWEST
from benchmarks.traces.predicted import PROGRAMS, RECORD
from profiler.trace import read_trace

Json = dict[str, Any]
KNOWN = {**LATER, **LATEST, **NEWEST}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    OPTIMIZERS.clear()
    yield
    OPTIMIZERS.clear()
    torch.set_num_threads(before)


def test_no_run_had_them_before_and_a_run_without_names_begins_with_them() -> None:
    assert len({*ALL, *KNOWN}) == len(ALL) + 15 and len(NEWEST) == 5
    assert list(applied.RUN)[:5] == list(NEWEST) and set(KNOWN) <= set(applied.ALL)
    assert {applied._group(m) for m in NEWEST} == {"new"}


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")  # transformers 5.17 has no other
@pytest.mark.parametrize("name", KNOWN)
def test_a_small_one_takes_its_step_on_a_cpu(name: str) -> None:
    model, step = KNOWN[name](True, "cpu")
    before = [p.detach().clone() for p in model.parameters()]
    result = step(model)
    changed = sum(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    if OPTIMIZERS:
        assert name.endswith("training") and changed > 0.5 * len(before)
        assert all(bool(p.isfinite().all()) for p in model.parameters())
    else:
        assert not name.endswith("training") and result is None and changed == 0


def test_the_runs_own_command_records_a_small_one(tmp_path: Path) -> None:
    out = tmp_path / "m.json"
    command = [sys.executable, applied.__file__, "factorization machine training", "--child", "record", "--small",
               "--device", "cpu", "--out", str(out)]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    told = json.loads(out.read_text())
    assert told["wall_us"] > 0.0 and set(told["profiled"]) == {"plain", "shapes", "stacks"}
    trace = read_trace(out.with_suffix(".trace.json"))
    assert trace.has_shapes and len(trace.kernels.name) > 50


def test_each_was_predicted_and_is_a_program_that_can_be() -> None:
    record: Json = json.loads(RECORD.read_text(encoding="utf-8"))
    assert record["measured"] is False and [m["model"] for m in record["models"]] == list(KNOWN)
    for one in record["models"]:
        assert callable(getattr(applied_programs, one["model"].replace(" ", "_"))), PROGRAMS
        step = one["predicted_us"]
        assert one["followed"] and step["low"] <= step["mid"] <= step["high"]
        gaps_us = GRAPH_GAP_US * one["launches"]  # where nothing gets faster a graph still has them
        assert step["high"] <= one["eager_us"] + (gaps_us if "cuda-graphs" in one["followed"] else 0.0)


def test_what_has_no_time_left_is_said(tmp_path: Path) -> None:
    arguments = Namespace(device="cpu", small=True, until=time.time() - 10.0)
    assert applied.start("olmo training", "record", tmp_path / "m.json", arguments, "0") == "no time was left"
