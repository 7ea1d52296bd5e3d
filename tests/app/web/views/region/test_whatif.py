"""The what-if of a step: held to a step that is added up part by part."""

from __future__ import annotations

import math

import pytest

from app.advice.amdahl import amdahl
from app.web.views.region import whatif
from tests.app import samples


def of_parts(region_us: float, rest_us: float, faster: float) -> float:
    return (region_us + rest_us) / (region_us / faster + rest_us)


@pytest.mark.parametrize(("region", "rest", "faster"), [(100.0, 900.0, 2.0), (500.0, 500.0, 1.0), (1.0, 9999.0, 50.0)])
def test_the_steps_speedup_is_what_its_parts_add_up_to(region: float, rest: float, faster: float) -> None:
    share = region / (region + rest)
    assert amdahl(share, faster) == pytest.approx(of_parts(region, rest, faster))
    answer = whatif.answer(share, faster, region + rest)
    assert answer["then_us"] == pytest.approx(region / faster + rest)
    assert answer["saved_us"] == pytest.approx(region - region / faster)
    assert answer["then"] + answer["rest"] + answer["saved"] == pytest.approx(1.0)


def test_no_speedup_of_a_tenth_can_pass_ten_ninths() -> None:
    answer = whatif.answer(0.1, 1000.0, None)
    assert answer["step_speedup"] < answer["limit"] == pytest.approx(10 / 9)
    assert whatif.answer(1.0, 2.0, None)["limit"] == math.inf


def test_the_region_says_where_the_sliders_stand_and_the_address_may_say_otherwise() -> None:
    region = samples.region("a", share=0.2)
    own = whatif.make_section(region)
    assert own is not None and (own["share"], own["assumed"]) == (0.2, False)
    assert own["step_us"] == pytest.approx(region["time_us_per_step"] / 0.2)
    moved = whatif.make_section(region, None, 0.5, 3.0)
    assert moved is not None and (moved["share"], moved["faster"]) == (0.5, 3.0)
    unknown = whatif.make_section(samples.region("a", share=None))
    assert unknown is not None and unknown["assumed"]


def test_a_measured_way_stands_beside_its_prediction() -> None:
    rows = whatif.make_rows(samples.region("a")["advice"], samples.validation(), 0.3)
    sources = {(r["name"], r["source"]) for r in rows}
    assert ("compile", "predicted") in sources and ("compile", "measured") in sources
    measured = next(r for r in rows if r["source"] == "measured" and r["name"] == "compile")
    times = {c["name"]: c["time_us"]["median"] for c in samples.validation()["candidates"] if c["time_us"]}
    assert measured["faster"] == pytest.approx(times["eager"] / times["compile"], rel=1e-6)
    assert [r["faster"] for r in rows] == sorted(r["faster"] for r in rows)
