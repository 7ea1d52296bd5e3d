"""What a validation without a GPU keeps: whether a candidate is right, and no time that a CPU took."""

from __future__ import annotations

from dataclasses import fields

from app.analysis.validate import _without_times
from kernels.measure.model import CandidateResult, Interval, ShapeResult

SPAN = Interval(2.0, 1.0, 3.0)
SHAPE = ShapeResult({"N": 3}, 2.0, 0.5, SPAN, 7.0, SPAN, SPAN, 0.25, 1024)
TIMED = CandidateResult(
    "triton:generated", "triton", "correct", "checked", "call", 0.5, SPAN, 7.0, SPAN, SPAN, 0.25, 1024, 1.5, ("k",),
    (SHAPE,), "source",
)  # fmt: skip


def test_no_time_and_no_ratio_of_a_cpu_is_told() -> None:
    bare = _without_times(TIMED)
    for figures, made in ((CandidateResult, bare), (ShapeResult, bare.shapes[0])):
        optional = {f.name for f in fields(figures) if str(f.type) in ("Interval | None", "float | None")}
        assert {n for n in optional if getattr(made, n) is not None} == {"error_vs_eager"}


def test_what_was_checked_is_kept() -> None:
    bare = _without_times(TIMED)
    assert (bare.name, bare.status, bare.message, bare.source) == ("triton:generated", "correct", "checked", "source")
    assert (bare.peak_bytes, bare.kernels, bare.shapes[0].binding, bare.shapes[0].calls) == (1024, ("k",), {"N": 3}, 2)
