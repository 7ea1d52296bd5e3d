"""Shares of the table of bounds are joined to one record: nothing twice, nothing left out without a name."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.validation.bounds import implementations
from benchmarks.validation.bounds_record import joined, ranges

ABOUT = {"device": "NVIDIA H200", "software": {"torch": "2.11.0"}}
REGION = "softmax bf16"
NAMES = implementations(REGION, "cuda", with_compile=True)


def share(*numbers: int) -> dict[str, Any]:
    chosen = [NAMES[n] for n in numbers]
    return ABOUT | {
        "rows": [
            {"region": REGION, "implementation": name, "right": right, "verdict": "correct", "error": 1.0,
             "message": "", "seconds": 2.0}
            for name, right, _ in chosen
        ],
    }  # fmt: skip


def chains(*numbers: int, refused: int = 0) -> dict[str, Any]:
    return ABOUT | {"chains": [*numbers], "accepted": 2 * len(numbers) - refused, "refusals": [{}] * refused}


def test_rows_come_in_the_tables_order_and_what_no_share_ran_is_named() -> None:
    record = joined([share(2), share(0, 1)], [chains(4, 5, refused=1), chains(0, 1, 2)], "2026-11-27")
    assert [r["implementation"] for r in record["rows"]] == [NAMES[n][0] for n in range(3)]
    assert "seconds" not in record["rows"][0]
    assert [name for region, name in record["not_run"] if region == REGION] == [name for name, _, _ in NAMES[3:]]
    assert record["chains"]["ranges"] == [[0, 2], [4, 5]]
    assert (record["chains"]["computations"], len(record["chains"]["refusals"])) == (10, 1)


@pytest.mark.parametrize(
    ("shares", "drawn", "said"),
    [
        ([share(0), share(0)], [], "rows that several shares have"),
        ([share(0)], [chains(1, 2), chains(2)], r"chains that several shares have: \[2\]"),
        ([share(0), share(1) | {"device": "NVIDIA H100"}], [], "several devices"),
        ([], [chains(1)], "no shares"),
    ],
)
def test_what_cannot_be_one_run_is_joined(shares: list[dict[str, Any]], drawn: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        joined(shares, drawn, "2026-11-27")


def test_a_row_of_another_table_is_taken() -> None:
    body = share(0)
    body["rows"][0]["implementation"] = "of an earlier table"
    with pytest.raises(ValueError, match=r"no longer has.*of an earlier table"):
        joined([body], [], "2026-11-27")


def test_ranges_are_joined_over_a_gap() -> None:
    assert ranges([]) == []
    assert ranges([7, 1, 2, 3, 9]) == [[1, 3], [7, 7], [9, 9]]
