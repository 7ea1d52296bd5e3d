"""Shares of one run over generated programs are one run of the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.records.launched_record import new_operations, with_run, written


def share(seed: int, torch: str = "2.11.0") -> dict[str, Any]:
    program = {
        "family": "pool",
        "seed": seed,
        "text": f"{seed}",
        "status": "right",
        "ratio": 0.5,
        "seconds": {"time": 1.0},
    }
    return {"gpu": "NVIDIA H200", "torch": torch, "triton": "3.6.0", "programs": [program]}


def test_a_share_is_lost(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"new-operations-{number}.json").write_text(json.dumps(share(number)))
    ((name, record),) = written([tmp_path], "2026-11-27")
    assert name == "new-operations-h200"
    (run,) = record["runs"]
    assert run["date"] == "2026-11-27"
    assert run["software"] == {"torch": "2.11.0", "triton": "3.6.0"}
    assert [p["seed"] for p in run["programs"]] == [0, 1]
    assert "seconds" not in run["programs"][0]


def test_shares_under_different_software_are_one_run() -> None:
    with pytest.raises(ValueError, match="different software"):
        new_operations([share(0), share(1, "2.12.0")], "2026-11-27")


def test_an_earlier_run_is_lost_and_a_program_that_is_run_again_is_there_twice() -> None:
    earlier = with_run(new_operations([share(0)], "2026-11-26"), new_operations([share(1)], "2026-11-27"))
    assert [[p["seed"] for p in run["programs"]] for run in earlier["runs"]] == [[0], [1]]
    anew = with_run(earlier, new_operations([share(0)], "2026-11-28"))
    assert [(run["date"], [p["seed"] for p in run["programs"]]) for run in anew["runs"]] == [
        ("2026-11-27", [1]), ("2026-11-28", [0]),
    ]  # fmt: skip
