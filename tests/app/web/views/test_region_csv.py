"""The regions as CSV: read back they are the list, and no name of a trace is a formula to a spreadsheet."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from app.thresholds import DEFAULTS
from app.units import factor
from app.web.server.csv_response import csv_response
from app.web.templating import environment
from app.web.views.region.verdict import verdict_section
from app.web.views.region_csv import COLUMNS, region_rows
from app.web.views.trace.regions import with_record
from tests.app import samples

Json = dict[str, Any]


def read(regions: list[Json]) -> list[dict[str, str]]:
    answer = csv_response("regions", COLUMNS, region_rows(regions))  # type: ignore[arg-type]
    return list(csv.DictReader(io.StringIO(bytes(answer.body).decode())))


def listed(name: str, tool: str, **more: Any) -> Json:
    return {**samples.region(name, tool), "distinct_name": name, "id": name, "level": "predicted", **more}


def test_a_line_is_a_region_with_its_figures_unrounded() -> None:
    source = {"module": "Net_0", "line": 'a, "b".py:3', "ops": [], "trace": "t"}
    region = listed("GELU tail", "triton", saves_us=301.25, streams=[7, 20], source=source)
    (row,) = read([region])
    assert tuple(row) == COLUMNS
    assert (row["region"], row["module"], row["source"], row["advice"]) == (
        "GELU tail",
        "Net_0",
        'a, "b".py:3',
        "Triton",
    )
    assert float(row["saves_us_per_step"]) == 301.25
    assert float(row["time_us_per_step"]) == region["time_us_per_step"]
    assert float(row["region_speedup"]) == region["advice"]["region_speedup"]["mid"]
    assert (row["evidence"], row["streams"]) == ("predicted", "7 20")


def test_what_is_left_as_it_is_has_no_speedup_and_what_is_not_known_is_empty() -> None:
    (left,) = read([listed("GEMM", "skip")])
    assert (left["advice"], left["region_speedup"], left["step_speedup"]) == ("Leave it", "", "")
    (coming,) = read([listed("GEMM", "skip", advice=None, level="")])
    assert (coming["advice"], coming["evidence"]) == ("", "")


@pytest.mark.parametrize("device", ["NVIDIA H200", "NVIDIA A100-SXM4-80GB"])
def test_a_record_of_this_device_and_text_outranks_the_prediction_in_row_and_csv_as_on_the_regions_page(
    device: str,
) -> None:
    region = listed("GELU tail", "compile", text="the text")
    record = samples.validation(archived={"file": "x.json", "match": "same"}, date="2026-11-21", device=device)
    row = with_record(region, {"the text": record}, DEFAULTS)  # type: ignore[arg-type, dict-item]
    (line,) = read([row])
    section = verdict_section(region, record)  # type: ignore[arg-type]
    assert section is not None and section["advice"]["region_speedup"]
    cells = environment().get_template("partials/regions/cells.html").module
    shown = cells.speedup_cells(row) + cells.evidence_cell(row)  # type: ignore[attr-defined]
    factors = (section["advice"]["region_speedup"]["mid"], 2200 / 1800)
    if device == "NVIDIA H200":
        assert (row["level"], line["evidence"], section["basis"]) == ("measured", "measured", "measured")
        assert "measured: confirmed" in shown
        assert factors[0] == pytest.approx(factors[1])
    else:
        assert (row["level"], line["evidence"], section["basis"]) == ("recorded", "recorded elsewhere", "predicted")
        assert "recorded elsewhere" in shown
    assert float(line["region_speedup"]) == pytest.approx(factors[0])
    assert factor(factors[0]) in shown


def test_a_name_that_begins_like_a_formula_is_text() -> None:
    for name in ("=1+1", "+A1", "-2", "@SUM(A1)", "\tx", "\rx"):
        (row,) = read([listed(name, "skip")])
        assert row["region"].startswith("'")
