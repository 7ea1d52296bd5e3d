"""docs/module.md and docs/capture.md show what was recorded."""

from __future__ import annotations

import json

from tools.docs.module_page import CAPTURE, PAGE, RECORD, capture_page, page, step_records


def test_the_page_has_the_records() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, json.loads(RECORD.read_text(encoding="utf-8")), step_records()) == text


def test_the_page_on_capture_has_what_it_costs() -> None:
    text = CAPTURE.read_text(encoding="utf-8")
    assert capture_page(text, step_records()) == text
