"""Keep or delete, from times that were measured: recorded validations of an H200 with one of their kernels as the
user's own, and times made up at the borders."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kernels.measure.kernel_verdict import judge_ratio, kernel_verdict, name_gradient
from kernels.measure.model import CandidateResult, Interval, ShapeResult, Validation, validation_from_json
from kernels.measure.outcome import Thresholds, fastest_of
from tests.conftest import ROOT

RECORDS = ROOT / "app" / "archive" / "records"
LINES = ("eager", "compile", "library")


def recorded(name: str) -> Validation:
    data = json.loads((RECORDS / name).read_text())
    return validation_from_json({k: v for k, v in data.items() if k not in ("name", "schema")})


def as_users(validation: Validation, name: str) -> Validation:
    """The same measurement, with this candidate as the user's own."""
    return replace(
        validation,
        candidates=tuple(replace(c, name="kernel:mine") if c.name == name else c for c in validation.candidates),
    )


def everything_timed():
    """(record's name, candidate) of every Triton kernel that was timed on record."""
    for path in sorted(RECORDS.glob("*.json")):
        validation = recorded(path.name)
        for c in validation.candidates:
            if c.tool == "triton" and c.status == "ok" and c.ratio_to_best_other is not None:
                yield validation, c.name


def test_on_every_recorded_kernel_the_verdict_is_what_the_times_say() -> None:
    """Held against the plain times of the record, without intervals: it differs only where they are near each other."""
    count = {"keep": 0, "delete": 0}
    for validation, name in everything_timed():
        verdict = kernel_verdict(as_users(validation, name))
        assert verdict is not None
        by_wall = str(validation.conditions.get("decided_by", "")).startswith("wall")
        times = {c.name: (c.wall_us if by_wall else c.time_us.median) for c in validation.candidates if c.time_us}
        best = min((n for n in times if n.startswith(LINES)), key=lambda n: times[n])
        assert verdict.against == best
        ratio = times[name] / times[best]
        if abs(ratio - 1) > 0.06:
            assert verdict.verdict == ("keep" if ratio < 1 else "delete"), (validation.region, name, verdict)
        assert verdict.speedup is not None
        assert verdict.speedup.median == pytest.approx(1 / ratio, rel=0.02)
        count[verdict.verdict] += 1
    assert min(count.values()) >= 10, f"both verdicts are on record: {count}"


def test_the_fastest_of_every_record_is_its_best() -> None:
    for path in sorted(RECORDS.glob("*.json")):
        validation = recorded(path.name)
        by = str(validation.conditions.get("decided_by", "device time"))
        assert fastest_of(validation.candidates, by) == validation.best, path.name


THRESHOLDS = Thresholds()


@pytest.mark.parametrize(
    ("low", "median", "high", "verdict"),
    [
        (0.79, 0.80, 0.81, "keep"),
        (0.93, 0.94, 0.95, "keep"),
        (0.970, 0.975, 0.98, "delete"),  # sure, and less than what counts as equal
        (0.80, 0.90, 1.01, "delete"),  # noise: the interval holds 1
        (0.99, 1.00, 1.01, "delete"),
        (1.20, 1.25, 1.30, "delete"),
    ],
)
def test_it_is_kept_only_where_it_is_surely_and_noticeably_faster(low, median, high, verdict) -> None:
    assert judge_ratio(Interval(median, low, high), THRESHOLDS) == verdict


def timed(name: str, tool: str, time_us: float, ratio: float | None = None, **more) -> CandidateResult:
    span = None if ratio is None else Interval(ratio, ratio * 0.99, ratio * 1.01)
    around = Interval(time_us, time_us * 0.99, time_us * 1.01)
    more = {"wall_us": time_us, **more}
    return CandidateResult(name, tool, "ok", time_us=around, ratio_to_best_other=span, **more)


def validated(*candidates: CandidateResult, **more) -> Validation:
    return Validation("confirmed", "why", "x: f32[8]\nreturn x * 2\n", candidates, device="NVIDIA H200", **more)


EAGER, COMPILE = timed("eager", "eager", 40.0), timed("compile", "compile", 12.0)


@pytest.mark.parametrize(
    ("time_us", "verdict", "said"),
    [
        (9.0, "keep", "it is 1.33 × [1.32, 1.35] as fast as torch.compile: 9 µs against 12 µs by device time"),
        (11.9, "delete", "torch.compile takes as long: 11.9 µs against 12 µs by device time"),
        (15.0, "delete", "torch.compile is faster: 15 µs against 12 µs"),
        (11.2, "keep", "the advice asks for 10%"),
    ],
)
def test_what_is_said_of_it(time_us, verdict, said) -> None:
    mine = timed("kernel:mine", "triton", time_us, time_us / 12.0)
    found = kernel_verdict(validated(EAGER, COMPILE, mine))
    assert found is not None
    assert (found.verdict, found.against) == (verdict, "compile")
    assert said in found.because


def test_another_kernel_is_named_where_it_is_faster_and_decides_nothing() -> None:
    mine = timed("kernel:mine", "triton", 9.0, 0.75)
    found = kernel_verdict(validated(EAGER, COMPILE, mine, timed("triton:generated", "triton", 6.0, 0.5)))
    assert found is not None
    assert (found.verdict, found.against) == ("keep", "compile")
    assert "triton:generated, a kernel as yours is, takes 6 µs" in found.because


def test_wall_time_decides_where_it_decided_the_validation() -> None:
    mine = timed("kernel:mine", "triton", 3.0, 2.5, wall_us=30.0)
    found = kernel_verdict(validated(EAGER, COMPILE, mine, conditions={"decided_by": "wall time"}))
    assert found is not None
    assert found.verdict == "delete"
    assert "30 µs against 12 µs by wall time" in found.because


def test_that_the_host_sets_its_pace_is_said() -> None:
    mine = timed("kernel:mine", "triton", 3.0, 0.25, wall_us=30.0)
    found = kernel_verdict(validated(EAGER, COMPILE, mine))
    assert found is not None
    assert found.verdict == "keep"
    assert "called alone, the host sets its pace" in found.because


def test_sizes_at_which_it_is_otherwise_are_named() -> None:
    shapes = tuple(ShapeResult({"N": n}, ratio_to_best_other=Interval(r, r * 0.99, r * 1.01))
                   for n, r in ((37, 1.2), (911, 0.6), (2048, 0.7)))  # fmt: skip
    found = kernel_verdict(validated(EAGER, COMPILE, timed("kernel:mine", "triton", 9.0, 0.75, shapes=shapes)))
    assert found is not None
    assert "it does not pay at N = 37" in found.because


STATUSES = {
    "mismatch": "wrong", "unsupported": "crashed", "not_installed": "crashed", "error": "crashed", "fault": "crashed",
    "timeout": "hung", "out_of_memory": "crashed", "bad_output": "cheats", "impossible": "cheats",
    "cancelled": "unmeasured", "not_run": "unmeasured", "correct": "unmeasured",
}  # fmt: skip


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_has_a_verdict(status) -> None:
    found = kernel_verdict(validated(EAGER, COMPILE, CandidateResult("kernel:mine", "triton", status, "so it is")))
    assert found is not None
    assert found.verdict == STATUSES[status]
    assert "so it is" in found.because


def test_without_anything_to_hold_it_against_it_is_unmeasured() -> None:
    failed = replace(EAGER, status="error", time_us=None)
    found = kernel_verdict(validated(failed, timed("kernel:mine", "triton", 9.0)))
    assert found is not None
    assert found.verdict == "unmeasured"


def test_a_validation_without_a_users_kernel_has_no_verdict() -> None:
    assert kernel_verdict(validated(EAGER, COMPILE)) is None


def test_gradients_are_named_by_their_input() -> None:
    text = "x: f32[8, 4].requires_grad\ni: i64[8].below(4)\nw: f32[4].requires_grad\nreturn x * w, i\n"
    assert name_gradient("output 3 (f32), normal inputs", text) == "output 3, the gradient of w (f32), normal inputs"
    assert name_gradient("output 1 (i64), normal inputs", text) == "output 1 (i64), normal inputs"
