"""CI on a machine that has nothing takes less than two minutes, by the record; a record that says otherwise is told."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ci.empty_machine import CONFIG, CONTRACT, ENVIRONMENT, RECORD, failed_claims, table
from tests.ci.steps import load
from tests.conftest import ROOT

MEASURED: Any = json.loads(RECORD.read_text())


def test_the_record_bears_out_every_claim() -> None:
    assert failed_claims(MEASURED) == []


def test_the_record_is_of_the_actions_steps_one_by_one() -> None:
    steps = [step["name"] for step in load(ROOT / "action.yml")["runs"]["steps"]]
    for one in MEASURED["rounds"]:
        assert list(one["seconds"]) == [ENVIRONMENT, *steps]
        assert abs(one["total_s"] - sum(one["seconds"].values())) < 2


def test_the_page_shows_the_record() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    assert table(MEASURED) in page
    assert MEASURED["date"] in page
    assert all(f"{name} {version}" in page for name, version in MEASURED["rounds"][0]["versions"].items())


def test_what_is_checked_is_a_trace_against_a_baseline_and_a_contract() -> None:
    config = tomllib.loads(Path(CONFIG).read_text(encoding="utf-8"))
    assert [contract["name"] for contract in config["contracts"]] == [CONTRACT]
    assert "regression" in config["assertions"]
    assert all("regression" in one["sarif_rules"] for one in MEASURED["rounds"])


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("total_s", 120.0, "120.0 s"),
        ("exit_code", "2", "exit 2"),
        ("comments", 0, "0 comments"),
        ("sarif_rules", [], "no rule"),
        ("contracts", [f"{CONTRACT}: unmeasured"], "contract"),
    ],
)
def test_a_record_that_bears_a_claim_not_out_is_told(name: str, value: object, said: str) -> None:
    record = copy.deepcopy(MEASURED)
    record["rounds"][1][name] = value
    (line,) = failed_claims(record)
    assert line.startswith("round 2: ") and said in line


def test_other_cores_and_too_few_rounds_are_told() -> None:
    record = copy.deepcopy(MEASURED) | {"cores": 8}
    del record["rounds"][1:]
    assert len(failed_claims(record)) == 2
