"""The soak's record holds its claims, and a record that does not would be told."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import pytest

from benchmarks.server.soak import PAGE, PARTS, RECORD, failed_claims, table
from benchmarks.server.soak_mixed import Samples, trace

Json = dict[str, Any]


LOAD: Json = {"answered_per_s": 999.0, "p99_ms": 20.0, "lost": 0, "statuses": {"200": 60000}}
MIXED: Json = {
    "minutes": 30.0, "mb_per_minute": 0.2, "descriptors_first": 40, "descriptors_last": 41, "lost": 0, "ended_twice": 0,
    "silent": 0, "unexpected": [], "jobs": {"read": 180, "check": 90, "validate": 60},
}  # fmt: skip
GOOD: Json = {
    "widget": {**LOAD, "rate": 1000.0},
    "regions": {**LOAD, "rate": 50.0, "answered_per_s": 50.0, "p99_ms": 200.0},
    "mixed": MIXED,
}


recorded = pytest.mark.skipif(not RECORD.is_file(), reason="not measured on a quiet machine yet: make soak")


@recorded
def test_record_holds_every_claim() -> None:
    record = json.loads(RECORD.read_text())
    assert set(PARTS) <= set(record)
    assert failed_claims(record) == []


@recorded
def test_page_says_what_the_record_says() -> None:
    assert PAGE.read_text() == table(json.loads(RECORD.read_text()))


@pytest.mark.parametrize(
    ("part", "key", "value", "said"),
    [
        ("widget", "p99_ms", 50.0, "99 % within"),
        ("widget", "answered_per_s", 980.0, "were answered"),
        ("widget", "rate", 500.0, "were answered"),
        ("regions", "p99_ms", 301.0, "99 % within"),
        ("regions", "statuses", {"200": 2990, "503": 10}, "statuses"),
        ("regions", "lost", 1, "1 lost"),
        ("mixed", "minutes", 29.0, "29.0 minutes"),
        ("mixed", "mb_per_minute", 1.01, "memory grows"),
        ("mixed", "descriptors_last", 1000, "descriptors"),
        ("mixed", "lost", 1, "lost"),
        ("mixed", "ended_twice", 1, "ended_twice"),
        ("mixed", "silent", 1, "silent"),
        ("mixed", "unexpected", ["GET /: 500"], "unexpected"),
        ("mixed", "jobs", {"read": 1, "check": 1}, "no validate was done"),
    ],
)
def test_a_record_that_does_not_hold_is_told(part: str, key: str, value: object, said: str) -> None:
    assert failed_claims(GOOD) == []
    worse = copy.deepcopy(GOOD)
    worse[part][key] = value
    assert len(found := failed_claims(worse)) == 1
    assert said in found[0]


def test_slope_is_of_the_memory_after_the_warm_up() -> None:
    samples = Samples(os.getpid())
    samples.take()
    assert samples.rows[0][1] > 10 and samples.rows[0][2] > 2
    assert samples.rows[0][3] > 10
    samples.rows = [
        (60.0 * i, 100.0 + (50.0 * i if i < 10 else 500.0 + 2.0 * i), 10 + i // 30, 900.0 + i // 30) for i in range(61)
    ]
    found = samples.summary()
    assert found["mb_per_minute"] == pytest.approx(2.0)
    assert found["samples"] == 51
    assert (found["descriptors_first"], found["descriptors_last"]) == (10, 11)
    assert (found["all_mb_first"], found["all_mb_last"]) == (900, 901)


def test_no_two_uploads_have_the_same_content() -> None:
    assert len({trace(n) for n in range(5)}) == 5
