"""A run's pieces of advice go into the record as listed, and what was applied separately gets rows of its own."""

from __future__ import annotations

from typing import Any

from tools.docs.measured_page import applied_separately, not_applied
from tools.records.applied_record import first_advised, merge, separate_rows

Json = dict[str, Any]


def span(mid: float) -> Json:
    return {"low": mid, "mid": mid, "high": mid}


def action(name: str, title: str, adds: float | None, instead_of: str = "") -> Json:
    return {"id": name, "title": title, "option": name, "adds_us": adds, "instead_of": instead_of,
            "saves_us": span(2_000.0)}  # fmt: skip


def answer(predicted_us: float = 8_000.0) -> Json:
    return {
        "model": "vgg training", "group": "new", "profiled_us": 12_000.0, "pace": {}, "parts": {},
        "eager": {"wall_us": 10_000.0, "host": {"processor": "p", "processors": 4, "load": 0.0}, "profiled": {}},
        "actions": [
            action("bf16", "Run the model in bf16", None), action("compile-model", "Compile the whole model", 2_000.0),
            action("channels-last", "Keep images channels-last", None, "compile-model"),
            action("fp8", "Run large linear layers in fp8", None),
        ],
        "followed": ["compile-model"], "predicted_us": span(predicted_us),
        "alternatives": [
            {"what": "bf16", "titles": ["Run the model in bf16"], "predicted_us": span(5_000.0)},
            {"what": "channels-last", "titles": ["Keep images channels-last"], "predicted_us": span(7_000.0)},
        ],
        "found": {"compile-model": {"wall_us": 8_100.0}, "bf16": {"wall_us": 4_000.0},
                  "channels-last": {"why": "no time was left"}},
    }  # fmt: skip


def test_a_new_model_is_a_row_with_its_first_three_pieces_of_advice_and_what_each_saves() -> None:
    record: Json = {"models": []}
    merge(record, {"models": [answer()]}, "2026-11-27")
    (row,) = record["models"]
    assert (row["found_us"], row["advised"][0]) == (8_100.0, "Run the model in bf16")
    assert [(a["saves_us"]["mid"], a["instead_of"]) for a in row["listed"]] == [
        (2_000.0, ""), (2_000.0, ""), (2_000.0, "Compile the whole model"),
    ]  # fmt: skip
    assert not_applied(row) == [
        "Run the model in bf16 (2.00 ms; changes numerics: counted with nothing)",
        "Keep images channels-last (2.00 ms; in the place of: Compile the whole model)",
    ]


def test_a_row_that_was_predicted_in_another_run_is_kept_and_the_same_one_gets_its_list() -> None:
    kept: Json = {"model": "vgg training", "predicted_us": span(9_000.0), "found_us": 1.0}
    record: Json = {"models": [kept]}
    merge(record, {"models": [answer()]}, "2026-11-27")
    assert record["models"] == [{"model": "vgg training", "predicted_us": span(9_000.0), "found_us": 1.0}]
    merge(record, {"models": [answer(9_000.0)]}, "2026-11-27")
    assert kept["listed"] == first_advised(answer()) and kept["found_us"] == 1.0


def test_what_was_applied_separately_is_a_row_once_and_what_was_not_timed_is_none() -> None:
    record: Json = {"models": []}
    for _ in range(2):
        merge(record, {"models": [answer()]}, "2026-11-27")
    assert record["separate"] == separate_rows(answer(), "2026-11-27")
    assert [(r["applied"], r["found_us"], r["predicted_us"]["mid"]) for r in record["separate"]] == [
        (["bf16"], 4_000.0, 5_000.0)
    ]
    page = "\n".join(applied_separately(record["separate"]))
    assert "| vgg training | 2026-11-27 | bf16 | 10.00 | 5.00 (5.00 to 5.00) | 4.00 | +25% |" in page
    assert "0 of 1 within 15%" in page and list(applied_separately([])) == []


def test_a_model_that_was_not_advised_is_left_out_with_the_reason() -> None:
    record: Json = {"models": []}
    assert merge(record, {"models": [{"model": "m", "found": {}, "why": "no time was left"}]}, "d") == [
        "m: left out, no time was left"
    ]
    assert record == {"models": []}
