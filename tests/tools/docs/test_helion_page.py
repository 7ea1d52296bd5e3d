"""docs/helion.md has what the record of its run says, of regions that the benchmark has."""

from __future__ import annotations

import json

from benchmarks.operations.helion_regions import REGIONS
from tools.docs.helion_table import PAGE, RECORD, current, time_of

RUN = json.loads(RECORD.read_text(encoding="utf-8"))


def test_the_page_has_the_record() -> None:
    assert PAGE.read_text(encoding="utf-8") == current(), "python -m tools.docs.helion_table"


def test_regions_are_the_benchmarks_and_those_that_are_missing_are_named() -> None:
    told = {r["name"]: r["region"] for r in RUN["regions"]}
    assert told.items() <= REGIONS.items()
    assert len(told) == 20
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in REGIONS.keys() - told.keys())


def test_every_way_ran_and_was_right() -> None:
    for region in RUN["regions"]:
        assert all(time_of(region, way) for way in ("eager", "max_autotune", "triton", "helion")), region["name"]
