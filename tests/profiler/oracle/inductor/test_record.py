"""The record of the oracle on an H200 (`make check-oracle`), held to what is claimed of it; and the CPU build to the
record.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from profiler.oracle.inductor.answer import predict
from profiler.oracle.inductor.pipeline import PADDED
from profiler.region.language.text import parse
from tests.profiler.oracle.asking import device
from tools.gpu.check_oracle import VERSIONS, compare, summary, texts

RECORDS = Path(__file__).resolve().parents[3] / "records"


@cache
def record(mode: str = "default") -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((RECORDS / f"oracle-h200-{mode}.json").read_text())
    return answer


def rows(training: bool) -> dict[str, Any]:
    return {n: r for n, r in record()["regions"].items() if r["training"] == training}


def test_every_region_of_today_is_in_the_record() -> None:
    assert set(record()["regions"]) == set(texts())
    assert record()["device"] == "NVIDIA H200"


def test_equal_means_equal_kernels_and_calls() -> None:
    for name, row in record()["regions"].items():
        assert row["equal"] == compare(row["predicted"], row["real"]), name


def test_every_forward_region_to_decide_is_predicted_as_compiled() -> None:
    different = [n for n, r in rows(training=False).items() if "/" not in n and not r["equal"]]
    assert different == []
    assert sum("/" not in n for n in rows(training=False)) >= 38


def test_every_difference_has_its_reason() -> None:
    for mode in ("default", "max-autotune"):
        assert [n for n, r in record(mode)["regions"].items() if not r["equal"] and not r["reason"]] == []


def test_nine_of_ten_training_regions_are_predicted_as_compiled() -> None:
    answer = rows(training=True)
    assert len(answer) >= 20
    assert sum(r["equal"] for r in answer.values()) >= 0.9 * len(answer)


def test_max_autotune_is_predicted_as_compiled_where_nothing_is_decided_by_timing() -> None:
    found = [r for r in record("max-autotune")["regions"].values() if not r["predicted"]["assumed"]]
    assert len(found) >= 50
    assert all(r["equal"] for r in found)


@pytest.mark.parametrize("name", sorted(n for n in texts() if n != "linear_recurrence_loop"))
def test_this_build_predicts_what_the_gpu_compiled(name: str) -> None:
    """Without a GPU and with another torch: only the differences between the versions are left, each listed."""
    answer = summary(predict(parse(texts()[name], name), None, device()))
    assert not answer["unavailable"]
    real = record()["regions"][name]["real"]
    same = (answer["kinds"], answer["externs"]) == (real["kinds"], real["externs"])
    if PADDED in answer["assumed"]:
        return  # decided by timing: both were seen on one H200
    listed = name in VERSIONS and not torch.__version__.startswith(record()["torch"].split("+")[0])
    here, there = (f"{found['kinds']} {found['externs']}" for found in (answer, real))
    assert same != listed, f"{name}: {here} here, {there} there"
