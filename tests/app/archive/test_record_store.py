"""What the repository claims was measured on an H200 is in the Archive, complete, and shown on a host without a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from app.archive import record_store
from kernels.measure.model import OUTCOMES, validation_from_json
from profiler.region.language.text import parse, to_text
from tests.conftest import ROOT

EXAMPLES = ROOT / "app" / "examples"
EXTRA = {"schema", "name", "id", "state", "archived"}


def record_of(example: str) -> dict[str, Any]:
    nearest_record = record_store.nearest((EXAMPLES / f"{example}.txt").read_text())
    assert nearest_record is not None
    assert nearest_record["archived"]["match"] == "same"
    return nearest_record


@pytest.mark.parametrize("record", record_store.records(), ids=lambda r: r["id"])
def test_record_is_a_whole_validation(record: dict[str, Any]) -> None:
    validation = validation_from_json({k: v for k, v in record.items() if k not in EXTRA})
    assert validation.device == "NVIDIA H200"
    assert validation.outcome in OUTCOMES
    assert {"torch", "triton", "cuda", "driver"} <= set(validation.software)
    assert validation.date
    assert to_text(parse(validation.region)) == validation.region
    timed = {c.name: c for c in validation.candidates if c.status == "ok"}
    statuses = {c.name: c.status for c in validation.candidates}
    assert "eager" in timed or statuses["eager"] == "out_of_memory"
    for candidate in timed.values():
        assert candidate.time_us is not None
        assert candidate.time_us.low <= candidate.time_us.median <= candidate.time_us.high
        assert candidate.error_vs_eager is not None
        assert candidate.error_vs_eager <= 2.0
        assert candidate.share_of_limit is None or candidate.share_of_limit < 1 / 0.9
    by_wall = str(validation.conditions["decided_by"]).startswith("wall")
    deciding = {n: c.wall_us if by_wall else c.time_us.median for n, c in timed.items() if c.time_us and c.wall_us}
    assert validation.best == min(deciding, key=lambda n: deciding[n] or float("inf"))


def test_example_was_measured_with_every_candidate() -> None:
    record = record_of("gemm_gelu_mask")
    status = {c["name"]: c["status"] for c in record["candidates"]}
    for name in ("eager", "compile", "compile-max-autotune", "triton:generated"):
        assert status[name] == "ok"
    assert record["coverage"].startswith("no library covers it")


def test_rms_norm_by_hand_was_measured_against_the_library() -> None:
    status = {c["name"]: c["status"] for c in record_of("rms_norm_by_hand")["candidates"]}
    for name in ("eager", "compile", "library:torch.nn.functional.rms_norm", "triton:rms_norm", "triton:generated"):
        assert status[name] == "ok"


def test_every_region_of_the_handrolled_trace_has_a_record() -> None:
    from app.trace_report.report import report

    regions = report(EXAMPLES / "handrolled_blocks.json.gz", "handrolled")["regions"]

    regions = report(EXAMPLES / "handrolled_blocks.json.gz", "handrolled", strict=False)["regions"]
    assert len(regions) == 8
    for region in regions:
        nearest_record = record_store.nearest(region["text"])
        assert nearest_record is not None, region["name"]
        assert nearest_record["archived"]["match"] == "same", region["name"]
