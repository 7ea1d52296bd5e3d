from __future__ import annotations

from app.accuracy.rounding import rounded


def test_floats_keep_five_digits_wherever_they_stand_and_nothing_else_changes() -> None:
    body = {"a": 1.2345678, "b": [123456.7, (0.000123456, 7)], "c": "1.2345678", "d": None, "e": True, "n": 1234567}
    assert rounded(body) == {
        "a": 1.2346, "b": [123460.0, [0.00012346, 7]], "c": "1.2345678", "d": None, "e": True, "n": 1234567,
    }  # fmt: skip
