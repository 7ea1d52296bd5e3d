"""docs/module.md and docs/capture.md show what was recorded."""

from __future__ import annotations

import json

from tools.docs.module_page import CAPTURE, PAGE, RECORD, capture_page, page, step_error, step_records, steps_table


def test_the_page_has_the_records() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, json.loads(RECORD.read_text(encoding="utf-8")), step_records()) == text


def test_the_page_on_capture_has_what_it_costs() -> None:
    text = CAPTURE.read_text(encoding="utf-8")
    assert capture_page(text, step_records()) == text


def test_a_record_without_unread_models_has_a_table() -> None:
    record = step_records()[0]
    rows = [row for row in record["rows"] if not row["unread"]]
    assert rows
    assert "(0 of 0 unread)" in steps_table([{**record, "rows": rows}])


def test_a_step_is_near_only_where_each_measurement_says_so() -> None:
    record = step_records()[0]
    (vit,) = [row for row in record["rows"] if row["name"] == "vit_inference_f16"]
    assert abs(step_error(vit, "events")) <= 0.2 < abs(step_error(vit, "waited"))
    said = steps_table([{**record, "rows": [vit]}])
    assert "of the first in 1 of 1 (1 of 1 unread), of the first and of the second in 0 of 1 (0 of 1 unread)" in said
