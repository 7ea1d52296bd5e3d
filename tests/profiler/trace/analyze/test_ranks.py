"""Ranks side by side: which is slowest, and how long the others wait for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler.trace import read_trace
from profiler.trace.analyze.idle_breakdown import step_parts
from profiler.trace.analyze.ranks import rank_numbers, rank_spread
from tests.profiler.trace.files import annotation, kernel, launch, op, real, written

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def rank_file(folder: Path, rank: int, compute_us: float) -> Path:
    """A step of 1000 µs: compute from 10 on, then an all-reduce that begins when it is done and ends at 990 for all."""
    events = [
        annotation("ProfilerStep#0", 0, 1000), op("aten::mm", 0, 8), op("c10d::allreduce_", 8, 2), launch(5, 1),
        launch(9, 2), kernel(10, compute_us, 1), kernel(10 + compute_us, 980 - compute_us, 2, stream=9, name=NCCL),
    ]  # fmt: skip
    body = {"traceEvents": events, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 3}}
    return written(folder, json.dumps(body), f"r{rank}.json")


def test_the_slowest_rank_is_the_one_that_waits_least(tmp_path: Path) -> None:
    parts = []
    for rank, compute in ((2, 500.0), (0, 600.0), (1, 880.0)):
        trace = read_trace(rank_file(tmp_path, rank, compute))
        assert trace.rank == rank
        breakdown = step_parts(trace, trace.steps)
        assert breakdown is not None
        parts.append((rank, breakdown))
    spread = rank_spread(parts)
    assert spread is not None
    assert [r.rank for r in spread.ranks] == [0, 1, 2]
    assert [r.communication_us for r in spread.ranks] == [380.0, 100.0, 480.0]
    assert [r.wait_us for r in spread.ranks] == [280.0, 0.0, 380.0]
    assert [r.own_us for r in spread.ranks] == [620.0, 900.0, 520.0]
    assert spread.slowest == 1
    assert spread.spread == pytest.approx(0.38)
    assert spread.waiting_share == pytest.approx((0.28 + 0.0 + 0.38) / 3)


def test_one_rank_has_no_spread(tmp_path: Path) -> None:
    trace = read_trace(rank_file(tmp_path, 0, 100.0))
    parts = step_parts(trace, trace.steps)
    assert parts is not None
    assert rank_spread([(0, parts)]) is None


def test_a_rank_is_the_one_in_the_file_else_in_its_name_else_its_place() -> None:
    assert rank_numbers(["a", "b"], [5, 3]) == (5, 3)
    assert rank_numbers(["rank-70.Mar_25.json", "x.rank_2.json"], [None, None]) == (70, 2)
    assert rank_numbers(["a", "b"], [None, None]) == (0, 1)
    assert rank_numbers(["a", "b", "c"], [0, 0, 1]) == (0, 1, 2), "two of one number: by place"


def test_real_traces_of_a_job_name_their_rank() -> None:
    assert real("hta_trace_diff_control.json.gz").rank == 3
    assert real("hta_nccl.json.gz").rank == 0
    assert real("llama_decode_bf16_eager.json.gz").rank is None


@pytest.mark.parametrize("info", [None, [], "rank 1", {"rank": "1"}, {"rank": -1}, {"rank": True}, {}])
def test_an_odd_rank_is_none(tmp_path: Path, info: object) -> None:
    assert (
        read_trace(written(tmp_path, json.dumps({"traceEvents": [op("a", 0, 1)], "distributedInfo": info}))).rank
        is None
    )
