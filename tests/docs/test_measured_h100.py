"""docs/measured-h100.md says what the records say, and the records bear out what is claimed of them."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from tools.docs import h100_page
from tools.docs.generated_programs import by_family
from tools.docs.h100_page import load, predicted


def test_the_page_is_what_the_records_say() -> None:
    assert h100_page.PAGE.read_text(encoding="utf-8") == h100_page.page(), "python -m tools.docs.h100_page"


def test_forty_right_ones_are_accepted_and_forty_wrong_ones_refused() -> None:
    record = load("bounds")
    rows = [r for r in record["rows"] if r["verdict"] != "not here"]
    assert "H100" in record["device"]
    assert sum(r["right"] for r in rows) >= 40
    assert sum(not r["right"] for r in rows) >= 40
    assert [r for r in rows if (r["verdict"] == "correct") != r["right"]] == []
    assert record["chains"]["refusals"] == []


def test_every_own_kernel_has_the_verdict_that_it_was_written_for() -> None:
    found = {r["function"]: r["exit_status"] for r in load("own-kernel")["runs"]}
    assert found == {
        "right": 3, "slow": 3, "wrong": 4, "caching": 5, "crashing": 6, "faulting": 6, "hanging": 7, "spinning": 7,
    }  # fmt: skip


def test_no_family_of_generated_programs_is_slower_than_the_compiler_in_the_median() -> None:
    families = by_family(load("new-operations"))
    assert len(families) == 11
    for family, programs in families.items():
        right = [p for p in programs if p["status"] == "right"]
        assert statistics.median(p["ratio"] for p in right) <= 1.1, family
    wrong = [(p["family"], p["seed"]) for programs in families.values() for p in programs if p["status"] != "right"]
    assert wrong == [("arg", 20)]


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
def test_our_norms_lead_in_training(name: str) -> None:
    times: dict[str, Any] = next(r for r in load("training")["regions"] if r["name"].startswith(name))["times_us"]
    assert min(times, key=lambda n: times[n]) == f"triton:{name}"


def test_where_the_gpu_sets_the_pace_what_was_promised_for_the_step_was_found() -> None:
    model = next(m for m in load("applied")["models"] if m["model"] == "diffusion transformer")
    eager = model["found"]["eager"]["wall_us"]
    for what, told in model["found"].items():
        if what == "eager":
            continue
        step = predicted(model, what)
        assert step is not None
        promised, found = model["profiled_us"] / step["mid"], eager / told["wall_us"]
        assert promised == pytest.approx(found, rel=0.15), what
