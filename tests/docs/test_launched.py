"""What the record of launched regions bears out, and what of the generator's reductions."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from benchmarks.validation.launched_regions import FULL_CARD_BYTES, LARGE_BYTES
from profiler.region.language.text import parse
from profiler.region.model import ITEMSIZE
from tools.docs.measured_page import load
from tools.records.launched_record import timed

FLEX = "library:torch.nn.attention.flex_attention"


def region(name: str) -> dict[str, Any]:
    return dict(load("launched")["regions"][name])


@pytest.mark.parametrize("name", ["soft-cap", "window", "alibi", "documents", "of-a-trace"])
def test_attention_with_its_own_scores_is_fastest_by_the_call_that_is_advised(name: str) -> None:
    times = timed(region(f"attention-{name}"))
    assert times[FLEX] <= 1.3 * min(times.values())
    assert len(times) >= 3


def test_the_attention_of_a_traced_block_is_advised_the_call_that_won() -> None:
    record = load("launched")
    assert f"library:{record['block']['advice']['mode']}" == FLEX
    assert record["block"]["text"] == region("attention-of-a-trace")["text"]
    assert next(iter(timed(region("attention-of-a-trace")))) == FLEX


def test_a_cross_entropy_by_hand_is_ours_within_its_time() -> None:
    times = timed(region("loss-nll"))
    assert next(iter(times)) == "triton:cross_entropy"
    assert times["triton:cross_entropy"] <= 1350
    refused = region("loss-nll")["candidates"]["library:liger_kernel.cross_entropy_narrow"]
    assert refused["status"] == "mismatch"  # its loss is rounded to bf16, where the text's is f32


def test_of_a_region_of_thirty_gigabytes_every_candidate_was_timed() -> None:
    large = region("large")
    x = parse(large["text"]).inputs[0]
    touched = 2 * ITEMSIZE[x.dtype] * int(x.shape[0]) * int(x.shape[1])
    assert touched >= 0.99 * LARGE_BYTES == 0.99 * 30e9
    assert FULL_CARD_BYTES == 141e9
    assert {n for n, c in large["candidates"].items() if "time_us" not in c} == {"library:torch.nn.functional.rms_norm"}
    assert len(timed(large)) == 6


def test_generated_reductions_are_right_and_no_longer_many_times_slower() -> None:
    record = load("rows")
    assert {p["status"] for p in record["programs"]} == {"right"}
    ratios = [p["generated_us"] / p["compiled_us"] for p in record["programs"]]
    before = [p["before_generated_us"] / p["before_compiled_us"] for p in record["programs"]]
    assert len(ratios) == 40
    assert statistics.median(ratios) < 1.0 < max(before) / max(ratios)
    assert sorted(n for n, r in enumerate(ratios) if r > 1.1) == [4, 10, 21]


def test_lost_programs_of_the_newer_operations_were_run_again_and_are_right() -> None:
    programs = load("launched")["programs"]
    assert {p["status"] for p in programs} == {"right"}
    assert {(p["family"], p["seed"]) for p in programs} >= {("arg", 20), ("quantised", 19), ("scan", 30)}
    lost = {(p["family"], p["seed"]) for p in programs if p["ratio"] > 1.1}
    assert lost == {("quantised", 19), ("quantised", 14), ("scan", 30), ("arg", 25)}
