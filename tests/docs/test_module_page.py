"""docs/module.md shows what was recorded."""

from __future__ import annotations

import json

from tools.docs.module_page import PAGE, RECORD, page


def test_the_page_has_the_record() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, json.loads(RECORD.read_text(encoding="utf-8"))) == text
