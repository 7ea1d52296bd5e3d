"""Comparison of two validations: no verdict where there is no ground for one."""

from __future__ import annotations

from app.web.compare import compare
from tests.app import samples


def verdicts(left: samples.Json, right: samples.Json) -> dict[str, str]:
    return {row["name"]: row["verdict"] for row in compare(left, right)["rows"]}


def test_overlapping_intervals_are_no_difference() -> None:
    a = samples.validation(candidates=[samples.candidate("eager", "eager", 1000.0)])
    b = samples.validation(candidates=[samples.candidate("eager", "eager", 1015.0)])
    found = compare(a, b)
    assert not found["refused"]
    assert found["rows"][0]["verdict"] == "no difference: the intervals overlap"
    assert found["verdict"].startswith("No difference")


def test_intervals_apart_are_a_difference_with_its_direction() -> None:
    a = samples.validation(candidates=[samples.candidate("eager", "eager", 1000.0)])
    b = samples.validation(candidates=[samples.candidate("eager", "eager", 900.0)])
    assert verdicts(a, b) == {"eager": "B is faster"}
    assert verdicts(b, a) == {"eager": "B is slower"}
    assert compare(a, b)["rows"][0]["ratio"] == 0.9


def test_other_devices_regions_or_no_gpu_refuse_every_verdict() -> None:
    a = samples.validation()
    for other in (
        samples.validation(device="NVIDIA A100"),
        samples.validation(device=None),
        samples.validation(region="x: f32[1]\nreturn x"),
    ):
        found = compare(a, other)
        assert found["refused"]
        assert found["verdict"].startswith("No verdict")
        assert {row["verdict"] for row in found["rows"]} <= {"not comparable", "timed in neither"}


def test_a_candidate_of_one_side_is_shown_and_not_judged() -> None:
    a = samples.validation(candidates=[samples.candidate("eager", "eager", 1000.0)])
    b = samples.validation(
        candidates=[samples.candidate("eager", "eager", 1000.0), samples.candidate("compile", "compile", 500.0)]
    )
    assert verdicts(a, b)["compile"] == "timed only in B"
    assert verdicts(b, a)["compile"] == "timed only in A"
