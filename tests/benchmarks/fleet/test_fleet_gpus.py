"""What was measured of two validations on two GPUs of one host, held to what the documentation says of it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.conftest import ROOT

RECORD: dict[str, Any] = json.loads((ROOT / "tests" / "records" / "fleet-gpus.json").read_text())
TEXT = (ROOT / "docs" / "fleet.md").read_text()
NAMES = {"memory": "RMSNorm", "arithmetic": "product with ReLU"}


def runs(arrangement: str) -> list[list[dict[str, Any]]]:
    """The pairs of validations in one arrangement."""
    found: list[list[dict[str, Any]]] = RECORD["runs"][arrangement]
    return found


def test_two_at_once_each_had_a_gpu_of_its_own_and_with_one_slot_they_took_turns() -> None:
    assert len(runs("both")) == len(runs("turns")) == RECORD["repeats"] >= 3
    assert all(len({run["gpu"] for run in pair}) == 2 for pair in runs("both"))
    assert all(seconds > 5 for seconds in RECORD["overlap_s"]["both"])
    assert all(seconds == 0 for seconds in RECORD["overlap_s"]["turns"])
    assert not [run["error"] for pairs in RECORD["runs"].values() for pair in pairs for run in pair if run["error"]]


@pytest.mark.parametrize("region", NAMES)
@pytest.mark.parametrize("candidate", ["eager", "compile"])
def test_the_page_says_what_was_measured(region: str, candidate: str) -> None:
    cells = []
    for arrangement in ("neighbour", "turns"):
        (row,) = (r for r in RECORD[arrangement] if (r["region"], r["candidate"]) == (region, candidate))
        cells.append(f"{row['ratio']:.3f} ({row['ratio_low']:.3f} to {row['ratio_high']:.3f})")
    named = f"{NAMES[region]}, {'torch.compile' if candidate == 'compile' else candidate}"
    assert f"| {named} | {cells[0]} | {cells[1]} |" in TEXT


def test_the_ratios_are_those_of_the_runs() -> None:
    for row in RECORD["neighbour"]:
        alone, both = (
            sorted(
                run["times_us"][row["candidate"]]
                for pair in runs(arrangement)
                for run in pair
                if run["region"] == row["region"]
            )
            for arrangement in ("alone", "both")
        )
        assert row["ratio"] == pytest.approx(both[len(both) // 2] / alone[len(alone) // 2], abs=2e-4)
        assert row["ratio_high"] == pytest.approx(both[-1] / alone[0], abs=2e-4)


def test_the_day_and_the_device_are_named() -> None:
    assert RECORD["accelerator"] == "NVIDIA H200"
    assert re.search(rf"Two H200s of one host, {RECORD['date']}", TEXT)
