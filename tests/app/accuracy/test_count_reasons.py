"""Every count of the in-sample figures is accounted for: what is counted and what is left out add up."""

from __future__ import annotations

import re

import pytest

from app.accuracy import count_reasons
from app.accuracy.figures import load_committed

ROWS = count_reasons.rows(load_committed())[1:]


@pytest.mark.parametrize(("name", "counts", "left_out"), ROWS, ids=[row[0] for row in ROWS])
def test_what_counts_and_what_is_left_out_add_up(name: str, counts: str, left_out: str) -> None:
    counted, of = (int(n) for n in counts.split(" of "))
    told = [int(n) for n in re.findall(r"(?:^|; )(\d+): ", left_out)]
    assert counted + sum(told) == of
    assert (left_out == "none") is (counted == of)


def test_every_count_of_the_tables_stands_there() -> None:
    figures = load_committed()
    counts = {row[0].lower(): int(row[1].split(" of ")[0]) for row in ROWS}
    assert counts["the advice"] == figures["advice"]["all"]["cases"]
    assert counts["leave-one-out"] == figures["advice"]["leave-one-out"]["cases"]
    assert {name: p["all"]["cases"] for name, p in figures["policies"].items()} == {
        name: counts[name.lower()] for name in figures["policies"]
    }
