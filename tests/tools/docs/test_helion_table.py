"""The table of a Helion run: what was wrong or did not run has no time, and runs of two kinds are not one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.docs.helion_table import gather, measured, ratio, time_of

SHARED = {"device": "GPU", "torch": "2.11.0", "triton_version": "3.6.0", "helion_version": "1.5.1",
          "tuning_budget_s": 12}  # fmt: skip


def way(time_us: float, error: float = 1e-3) -> dict[str, float]:
    return {"first_s": 20.0, "time_us": time_us, "error": error}


def region(**ways: Any) -> dict[str, Any]:
    return {**SHARED, "region": "return x\n", "helion_lines": 10, "triton_lines": 40, **ways, "done": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    runs = {
        "fast": region(eager=way(90.0), triton=way(20.0), max_autotune=way(40.0), helion=way(10.0)),
        "wrong": region(eager=way(90.0), triton=way(20.0), max_autotune=way(40.0), helion=way(1.0, error=0.5)),
        "refused": region(eager=way(90.0), triton=way(20.0), helion={"failed": "ValueError: a | of\nits own"}),
    }
    for name, told in runs.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(told))
    return tmp_path


def test_a_wrong_result_and_one_that_failed_have_no_time(folder: Path) -> None:
    fast, refused, wrong = gather(folder, "2026-11-27")["regions"]
    assert (ratio(fast, "helion", "triton"), ratio(fast, "helion", "max_autotune")) == (0.5, 0.25)
    assert time_of(wrong, "helion") is None
    assert ratio(refused, "helion", "triton") is None
    assert ratio(refused, "triton", "max_autotune") is None


def test_the_table_names_why_a_time_is_missing(folder: Path) -> None:
    text = measured(gather(folder, "2026-11-27"))
    assert "| fast | 10 / 40 | 20 | 90 | 40 | 20 | 10 | 0.50 | 0.25 |" in text
    assert "Helion ran and was right on 1: geometric mean 0.50 of generated Triton's time" in text
    assert "- refused: ValueError: a / of its own" in text
    assert "- wrong: its result is off by 5.0e-01, eager's by 1.0e-03" in text


def test_regions_of_two_cards_are_no_one_run(folder: Path) -> None:
    (folder / "other.json").write_text(json.dumps(region() | {"device": "another GPU"}))
    with pytest.raises(ValueError, match="the others of"):
        gather(folder, "2026-11-27")
