"""The recorded calls on a GPU: enough of them, of all operations, and no fault but those that are explained."""

from __future__ import annotations

import json
import re

from app.accuracy.tables import LATER
from kernels.operations import operations
from tests.conftest import ROOT

RECORD = json.loads((ROOT / "tests" / "records" / "checks-h200.json").read_text())
PARTS = ("soak", "checks", "sanitize")
NOT_FINISHED = {"flash_attention"}
"""Under way when that run's time was over."""
RECORDED = set(RECORD["sanitize"])
"""Operations that were there on the record's day; newer ones wait for the next run of `make check-kernels`."""


def test_random_calls_are_at_least_two_thousand_over_all_operations() -> None:
    assert sum(r["calls"] for r in RECORD["soak"].values()) >= 2000
    assert set(RECORD["soak"]) == RECORDED - NOT_FINISHED


def test_every_operation_ran_under_the_sanitizer_and_none_left_its_memory() -> None:
    assert len(RECORDED) >= 41
    assert {o.name for o in operations()} >= RECORDED
    assert all(r["calls"] == 4 for r in RECORD["sanitize"].values())
    assert not [f for r in RECORD["sanitize"].values() for f in r.get("faults", ()) if f.startswith("sanitizer")]


def test_the_only_faults_are_within_what_a_mean_in_f32_costs() -> None:
    """layer_norm of rows whose mean is 1000 deviations, beyond twice eager's error: see `layer_norm.rounded_mean`."""
    faults = [(name, f) for part in PARTS for name, r in RECORD[part].items() for f in r.get("faults", ())]
    assert len(faults) == sum(r["wrong"] for part in PARTS for r in RECORD[part].values()) == 4
    for name, fault in faults:
        assert name == "layer_norm"
        assert "mean=1000.0" in fault
        (error,) = re.findall(r"error (\S+) of", fault)
        assert float(error) < 1000 * 2**-24


LATER_RECORD = json.loads((ROOT / "tests" / "records" / "checks-later-h200.json").read_text())


def test_the_second_set_ran_at_random_and_under_the_sanitizer_and_nothing_was_wrong() -> None:
    assert "H200" in LATER_RECORD["device"]
    for part in PARTS:
        assert set(LATER_RECORD[part]) >= LATER, part
        assert [name for name, r in LATER_RECORD[part].items() if r["wrong"] or not r["calls"]] == [], part
    assert sum(r["calls"] for r in LATER_RECORD["sanitize"].values()) >= 400
    assert sum(r["calls"] for r in LATER_RECORD["soak"].values()) >= 500


def test_sizes_beyond_32_bits_ran_of_the_second_set_wherever_it_has_such_a_case() -> None:
    beyond = {o.name for o in operations() if o.beyond is not None} & LATER
    assert set(LATER_RECORD["beyond"]) == beyond
    assert [name for name, r in LATER_RECORD["beyond"].items() if r["wrong"]] == []


def test_products_of_f32_by_parts_ran_at_random_under_the_sanitizer_and_beyond_32_bits() -> None:
    again = RECORD["again"]["matmul"]
    assert [part for part, r in again.items() if r["wrong"]] == []
    assert again["soak"]["calls"] >= 200 and again["sanitize"]["calls"] >= 24
    matmul = next(o for o in operations() if o.name == "matmul")
    assert again["beyond"]["calls"] == 1 + len(matmul.also_beyond)
    assert {c.get("precision") for c in matmul.also_beyond} == {"bf16x6"}
