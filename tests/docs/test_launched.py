"""What the record of launched regions bears out, and what of the generator's reductions."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from benchmarks.validation.launched_regions import FULL_CARD_BYTES, LARGE_BYTES, REGIONS
from profiler.region.language.text import parse
from profiler.region.model import ITEMSIZE
from tools.docs.measured_page import load
from tools.records.launched_record import FASTER, SLOWER, launched, lines, own_change, timed

FLEX = "library:torch.nn.attention.flex_attention"


def region(name: str) -> dict[str, Any]:
    return dict(load("launched")["regions"][name])


@pytest.mark.parametrize("name", ["soft-cap", "window", "alibi", "documents", "of-a-trace", "gemma-grouped"])
def test_attention_with_its_own_scores_is_fastest_by_the_call_that_is_advised(name: str) -> None:
    times = timed(region(f"attention-{name}"))
    assert times[FLEX] <= 1.3 * min(times.values())
    assert len(times) >= 3


def test_the_attention_of_a_traced_block_is_advised_the_call_that_won() -> None:
    record = load("launched")
    assert f"library:{record['block']['advice']['mode']}" == FLEX
    assert record["block"]["text"] == region("attention-of-a-trace")["text"]
    assert next(iter(timed(region("attention-of-a-trace")))) == FLEX


@pytest.mark.parametrize("name", ["loss-nll", "loss-cross-entropy", "loss-by-hand"])
def test_the_loss_is_fastest_by_ours_in_each_spelling(name: str) -> None:
    """8192 x 128256, forward and backward."""
    found = region(name)
    times = timed(found)
    assert next(iter(times)) == "triton:cross_entropy"
    assert times["triton:cross_entropy"] <= 1350
    refused = found["candidates"]["library:liger_kernel.cross_entropy_narrow"]
    assert refused["status"] == "mismatch"  # its loss is rounded to bf16, where the text's is f32
    assert {"library:quack.cross_entropy", "library:liger_kernel.cross_entropy"} <= set(times)


NOT_INSTALLED = {"flag_gems": "rms_norm", "quack": "rmsnorm", "flashinfer": "rmsnorm"}


def test_a_region_of_thirty_gigabytes_was_timed_by_all_that_was_installed_and_is_not_the_region_itself() -> None:
    large = region("large")
    x = parse(large["text"]).inputs[0]
    touched = 2 * ITEMSIZE[x.dtype] * int(x.shape[0]) * int(x.shape[1])
    assert touched >= 0.99 * LARGE_BYTES == 0.99 * 30e9
    assert FULL_CARD_BYTES == 141e9
    assert not large["without"]
    untimed = {n: c["status"] for n, c in large["candidates"].items() if "time_us" not in c}
    assert untimed.pop("library:torch.nn.functional.rms_norm") == "not_run"
    assert set(untimed.values()) == {"not_installed"}
    assert set(untimed) == {f"library:{n}.{c}" for n, c in NOT_INSTALLED.items()}
    assert len(timed(large)) == 6


def test_generated_reductions_are_right_and_more_became_faster_than_slower_by_their_own_time() -> None:
    record = load("rows")
    assert {p["status"] for p in record["programs"]} == {"right"}
    ratios = [p["generated_us"] / p["compiled_us"] for p in record["programs"]]
    own = own_change(record["programs"])
    assert len(ratios) == len(own) == 40
    assert statistics.median(ratios) < 1.0
    assert statistics.median(own) < 1.0
    assert sum(c < FASTER for c in own) == 15 and min(own) < 0.01
    assert sorted(n for n, c in enumerate(own) if c > SLOWER) == [11, 38]
    assert sorted(n for n, r in enumerate(ratios) if r > 1.1) == [4, 10, 21]


def test_what_was_not_timed_is_on_the_page() -> None:
    """Candidates left out for time, or whose kernels were not built in time."""
    record = load("launched")
    assert {name for name, r in record["regions"].items() if not timed(r)} == set()
    page = "\n".join(lines(record))
    assert "timeout: `triton:banded_attention`" in page
    (loss,) = [line for line in page.splitlines() if line.startswith("- loss nll")]
    for left_out in REGIONS["loss-nll"].without:
        assert f"`{left_out}`" in loss.partition("left out for time")[2]
    (large,) = [line for line in page.splitlines() if line.startswith("- large")]
    assert "forward alone" in large and "not installed: `flag_gems.rms_norm`" in large
    (traced,) = [line for line in page.splitlines() if line.startswith("- attention of a trace")]
    assert "forward alone" in traced


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
def test_norms_in_training_are_fastest_by_our_own_kernels(name: str) -> None:
    """8192 x 16384; with gradients of the rows and of the weight."""
    times = timed(load("launched")["regions"][f"{name.replace('_', '-')}-training"])
    first, second = list(times)[:2]
    assert first == f"triton:{name}"
    assert times[first] < 0.75 * times[second]


def test_a_region_keeps_the_date_and_software_of_its_own_run(tmp_path: Path) -> None:
    """A later folder's do not take their place."""
    region = {"part": "norm", "text": "x: f32[8]\nreturn x + 1\n", "candidates": {}}
    for name, torch in (("early", "2.10"), ("late", "2.11")):
        body = {"device": "NVIDIA H200", "date": name, "software": {"torch": torch}, "regions": {name: region}}
        (tmp_path / name).mkdir()
        (tmp_path / name / "validations.json").write_text(json.dumps(body))
    kept = launched([tmp_path / "early", tmp_path / "late"])["regions"]
    assert {n: (r["date"], r["software"]["torch"]) for n, r in kept.items()} == {
        "early": ("early", "2.10"), "late": ("late", "2.11"),
    }  # fmt: skip


def test_lost_programs_of_the_newer_operations_were_run_again_and_are_right() -> None:
    programs = load("launched")["programs"]
    assert {p["status"] for p in programs} == {"right"}
    assert {(p["family"], p["seed"]) for p in programs} >= {("arg", 20), ("quantised", 19), ("scan", 30)}
    lost = {(p["family"], p["seed"]) for p in programs if p["ratio"] > 1.1}
    assert lost == {("quantised", 19), ("quantised", 14), ("scan", 30), ("arg", 25)}
