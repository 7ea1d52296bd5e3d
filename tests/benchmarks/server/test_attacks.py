"""Under attack the server stays within its memory and answers others; a record that says otherwise would be told."""

from __future__ import annotations

import copy
import json
from collections import Counter
from math import gcd
from pathlib import Path
from typing import Any

import pytest

from benchmarks.server.attacks import (
    RECORD,
    WIDGET_P99_MS,
    Attack,
    answers,
    attacks,
    choose_attack,
    failed_claims,
    stride,
)

Json = dict[str, Any]

LOAD: Json = {"p99_ms": 40.0, "requests": 1200, "lost": 0, "statuses": {"200": 1200}}
HERE: Json = {
    "seconds": 60.0, "at_once": 10, "killed_by_watchdog": False, "server_ended": False, "peak_mb": 3000,
    "widget": LOAD, "healthz": LOAD, "plain_advice_after": {"status": "200"}, "readyz_after": "200",
    "answers": {"200": 10, "201": 4, "422": 90}, "statuses": {"diff n": {"page": {"422": 3}}},
}  # fmt: skip
GOOD: Json = {
    "limit_mb": 6000, "host_mb": 24000, "address_space_mb": 0, "attacks": ["diff n"], "here": HERE,
    "commits": {"here": {"commit": "b", "changed": False}},
}  # fmt: skip

recorded = pytest.mark.skipif(
    not RECORD.is_file(), reason="not measured on a quiet machine yet: benchmarks.server.attacks"
)


@recorded
def test_record_holds_every_claim() -> None:
    assert failed_claims(json.loads(RECORD.read_text())) == []


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("seconds", 30.0, "for 30 s"),
        ("at_once", 5, "5 at once"),
        ("peak_mb", 6001, "memory: 6001 MB"),
        ("killed_by_watchdog", True, "did not survive"),
        ("server_ended", True, "did not survive"),
        ("widget", {**LOAD, "p99_ms": WIDGET_P99_MS}, "99 % within"),
        ("widget", {**LOAD, "requests": 900}, "900 answers"),
        ("widget", {**LOAD, "statuses": {"200": 1199, "503": 1}}, "statuses"),
        ("healthz", {**LOAD, "lost": 1}, "1 lost"),
        ("answers", {"200": 1, "500": 2}, "2 attacks ended: 500"),
        ("answers", {"unanswered": 1}, "1 attacks ended: unanswered"),
        ("answers", {"no server": 1}, "1 attacks ended: no server"),
        ("statuses", {}, "never sent: diff n"),
        ("plain_advice_after", {"status": "503"}, "afterwards: advice 503"),
        ("readyz_after", "503", "readyz 503"),
    ],
)
def test_a_record_that_does_not_hold_is_told(key: str, value: object, said: str) -> None:
    assert failed_claims(GOOD) == []
    worse = copy.deepcopy(GOOD)
    worse["here"][key] = value
    (told,) = failed_claims(worse)
    assert said in told


@pytest.mark.parametrize(("key", "value"), [("limit_mb", 20000), ("address_space_mb", 6000)])
def test_a_bound_that_is_none_of_the_server_is_told(key: str, value: int) -> None:
    assert len(failed_claims({**GOOD, key: value})) == 1


def test_uncommitted_changes_are_told() -> None:
    assert len(failed_claims({**GOOD, "commits": {"here": {"commit": "b", "changed": True}}})) == 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {"answered_500": {"a": "return a", "b": "return b"}, "memory_or_hang": {"c": "return c", "d": "return d"}}
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "w.json.gz").write_bytes(
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    )
    return tmp_path


def test_every_text_and_trace_is_an_attack_in_each_of_its_ways(folder: Path) -> None:
    assert {a.name: list(a.ways) for a in attacks(folder)} == {
        **{name: ["oracle off", "oracle auto", "page"] for name in "abcd"}, "w.json.gz": ["upload"],
    }  # fmt: skip


def test_each_attack_comes_once_before_one_comes_again_and_then_in_another_way(folder: Path) -> None:
    listed = attacks(folder)
    first, second, third = ([choose_attack(listed, 5 * p + n) for n in range(5)] for p in range(3))
    for passed in (first, second, third):
        assert Counter(attack.name for attack, _ in passed) == {**dict.fromkeys("abcd", 1), "w.json.gz": 1}
    ways = {(attack.name, way) for attack, way in first + second + third}
    assert ways == {(attack.name, way) for attack in listed for way in attack.ways}


@pytest.mark.parametrize("count", [1, 2, 3, 6, 26, 30, 47, 64])
def test_stride_comes_by_everybody(count: int) -> None:
    assert gcd(stride(count), count) == 1
    listed = [Attack(str(n), {"upload": lambda client, number: client.get("/")}) for n in range(count)]
    assert len({choose_attack(listed, n)[0].name for n in range(count)}) == count


def test_answers_are_summed_over_attacks_and_ways() -> None:
    statuses = {
        "a": {"page": Counter({"200": 2, "422": 1})},
        "b": {"page": Counter({"422": 4}), "upload": Counter({"201": 1})},
    }
    assert answers(statuses) == {"200": 2, "201": 1, "422": 5}
