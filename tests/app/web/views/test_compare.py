"""Comparison of two validations: no verdict where there is no ground for one."""

from __future__ import annotations

from app.web.views.validation_page import compare
from tests.app import samples


def verdicts(left: samples.Json, right: samples.Json) -> dict[str, str]:
    return {row["name"]: row["verdict"] for row in compare(left, right)["rows"]}


def test_overlapping_intervals_are_no_difference() -> None:
    a = samples.validation(candidates=[samples.candidate("eager", "eager", 1000.0)])
    b = samples.validation(candidates=[samples.candidate("eager", "eager", 1015.0)])
    comparison = compare(a, b)
    assert not comparison["refused"]
    assert comparison["rows"][0]["verdict"] == "no difference: the intervals overlap"
    assert comparison["verdict"].startswith("No difference")


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
        comparison = compare(a, other)
        assert comparison["refused"]
        assert comparison["verdict"].startswith("No verdict")
        assert {row["verdict"] for row in comparison["rows"]} <= {"not comparable", "timed in neither"}


def test_what_only_one_side_has_is_new_or_gone_and_what_failed_there_is_neither() -> None:
    eager = samples.candidate("eager", "eager", 1000.0)
    compiled = samples.candidate("compile", "compile", 500.0)
    broken = samples.candidate("compile", "compile", None, status="error")
    a, b = samples.validation(candidates=[eager]), samples.validation(candidates=[eager, compiled])
    assert verdicts(a, b)["compile"] == "new in B"
    assert verdicts(b, a)["compile"] == "gone from B"
    assert "1 new (compile)" in compare(a, b)["verdict"]
    assert "1 gone (compile)" in compare(b, a)["verdict"]
    failed = samples.validation(candidates=[eager, broken])
    assert verdicts(failed, b)["compile"] == "timed only in B"
    assert verdicts(b, failed)["compile"] == "timed only in A"
    assert "new" not in compare(failed, b)["verdict"]


def test_the_sentence_counts_what_is_faster_slower_and_overlaps() -> None:
    names = (("eager", "eager"), ("compile", "compile"), ("triton:generated", "triton"))
    a = samples.validation(candidates=[samples.candidate(n, t, 1000.0) for n, t in names])
    times = (1005.0, 500.0, 2000.0)
    b = samples.validation(candidates=[samples.candidate(n, t, us) for (n, t), us in zip(names, times, strict=True)])
    said = compare(a, b)["verdict"]
    assert "1 faster in B (compile); 1 slower in B (triton:generated); 1 whose intervals overlap" in said


def test_the_same_region_at_other_sizes_or_calls_has_no_verdict() -> None:
    def at(size: int, calls: float) -> samples.Json:
        shape = {"binding": {"N": size}, "calls": calls}
        return samples.validation(candidates=[{**samples.candidate("eager", "eager", 1000.0), "shapes": [shape]}])

    assert not compare(at(64, 1), at(64, 1))["refused"]
    assert compare(at(64, 1), at(128, 1))["refused"]
    assert compare(at(64, 1), at(64, 8))["refused"]


def test_software_that_differs_is_named() -> None:
    a = samples.validation(software={"torch": "2.11.0", "triton": "3.6.0"})
    b = samples.validation(software={"torch": "2.13.0", "triton": "3.6.0"})
    assert compare(a, b)["differences"] == [{"name": "torch", "a": "2.11.0", "b": "2.13.0"}]
    assert compare(a, a)["differences"] == []
