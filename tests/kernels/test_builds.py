"""Kernels compile for five targets as they did when it was recorded: one that begins to spill shows here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import triton

from kernels.builds import TARGETS, build
from kernels.operations import operations
from kernels.spec import Operation

RECORD = json.loads((Path(__file__).resolve().parents[1] / "records" / "kernel-builds.json").read_text())
BUILDS = {(r["operation"], r["variant"], r["target"]): r for r in RECORD["builds"]}

ALL = [pytest.param(o, id=o.name) for o in operations()]


@pytest.mark.parametrize("found", ALL)
def test_every_build_is_on_record_for_every_target(found: Operation) -> None:
    for item in found.builds:
        for target in TARGETS:
            row = BUILDS[found.name, str(item.variant), target]
            assert (row["registers"] is None) == bool(row["refused"]), row
            assert row["refused"] == item.without.get(target, ""), "a refusal is said in the kernel's file"


def test_no_build_is_on_record_that_no_operation_has() -> None:
    there = {(o.name, str(b.variant), t) for o in operations() for b in o.builds for t in TARGETS}
    assert set(BUILDS) == there


def test_what_spills_on_hopper_says_so_in_its_file() -> None:
    for o in operations():
        text = __import__(o.run.__module__, fromlist=["x"]).__doc__ or ""
        spilled = [
            r for r in RECORD["builds"] if r["operation"] == o.name and r["target"] == "sm_90" and r["spill_bytes"]
        ]
        assert not spilled or "spill" in text, spilled


@pytest.mark.skipif(triton.__version__ != RECORD["triton"], reason="recorded with another Triton")
@pytest.mark.parametrize("found", ALL)
def test_the_first_build_compiles_as_recorded(found: Operation) -> None:
    item = found.builds[0]
    for target in TARGETS:
        made, row = build(found, item, target), BUILDS[found.name, str(item.variant), target]
        assert made.refused == row["refused"]
        assert made.spill_bytes == row["spill_bytes"]
        assert made.registers == row["registers"]
