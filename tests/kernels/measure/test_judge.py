"""The bound on errors: relative to eager's own, with floors from the types."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.measure.candidate.correctness import compare
from kernels.measure.candidate.reference import Reference
from kernels.measure.judge import EPS, SHORT, floor_error, judge, pooled
from kernels.measure.messages import Case, InRoom, OutputError
from kernels.measure.records import Record, judge_record
from profiler.region.language.vocabulary import DTYPES


def case(error, outlier=None, misfits=0, dtype="bf16", distribution="normal", precision="float64"):
    output = OutputError("float", dtype, 1000, error, 3 * error if outlier is None else outlier, misfits)
    return Case(distribution, precision, [output])


def test_the_table_of_types_is_torchs():
    floats = {n: d for n, d in DTYPES.items() if d.is_floating_point and n not in ("f8e8m0", "f4e2m1x2")}
    # the two of block formats are no results that are judged: torch.finfo has no epsilon of the packed one
    assert {n: torch.finfo(d).eps for n, d in floats.items()} == EPS
    assert {n for n, d in floats.items() if d.itemsize <= 2} == SHORT


def test_twice_eagers_error_passes_and_more_does_not():
    eager = [case(0.01)]
    assert judge([case(0.02)], eager).ok
    refused = judge([case(0.0201)], eager)
    assert not refused.ok
    assert refused.error_vs_eager == pytest.approx(2.01)
    assert "0.01" in refused.message


def test_rounding_once_passes_where_eager_is_exact():
    rounded = torch.randn(10_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for name in ("bf16", "f16", "f8e4m3"):
        out = rounded.to(DTYPES[name])
        (error,) = compare([out], Reference((rounded,), {}, "float64"))
        assert error.error < floor_error(name)
        assert judge([case(error.error, error.outlier, dtype=name)], [case(0.0, dtype=name)]).ok


def test_a_lower_precision_inside_f32_does_not_pass():
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    exact = x.double() @ x.double()
    (own,) = compare([x @ x], Reference((exact,), {}, "float64"))
    (short,) = compare([(x.bfloat16() @ x.bfloat16()).float()], Reference((exact,), {}, "float64"))
    assert not judge([case(short.error, dtype="f32")], [case(own.error, dtype="f32")]).ok


def test_one_wrong_element_among_millions_does_not_pass():
    exact = torch.randn(1_000_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    out = exact.float()
    out[777] += 1.0
    (error,) = compare([out], Reference((exact,), {}, "float64"))
    assert error.outlier > 0.5
    assert not judge([case(error.error, error.outlier, dtype="f32")], [case(5e-8, dtype="f32")]).ok


def test_nan_passes_only_where_the_reference_has_it():
    exact = torch.tensor([1.0, math.nan, math.inf, -math.inf], dtype=torch.float64)
    (right,) = compare([exact.float()], Reference((exact,), {}, "float64"))
    assert right.misfits == 0
    for wrong in ([math.nan, math.nan, math.inf, -math.inf], [1, 2, math.inf, -math.inf], [1, math.nan, -math.inf, 0]):
        (error_of_output,) = compare([torch.tensor(wrong)], Reference((exact,), {}, "float64"))
        assert error_of_output.misfits > 0
        assert not judge([case(0, 0, error_of_output.misfits)], [case(0, 0, 0)]).ok


def test_what_the_type_cannot_hold_counts_as_infinite():
    exact = torch.tensor([1.0, 1e6, -1e6], dtype=torch.float64)
    (error_of_output,) = compare([exact.half()], Reference((exact,), {}, "float64"))
    assert error_of_output.misfits == 0


def test_a_distribution_in_which_eager_overflows_is_passed_over_but_the_normal_one_never():
    eager = [case(0.01), case(0.01, misfits=5, distribution="large")]
    assert judge([case(0.01), case(0.5, misfits=90, distribution="large")], eager).ok
    assert not judge([case(0.01, misfits=11)], [case(0.01, misfits=5)]).ok


def test_without_eager_the_floor_decides():
    assert judge([case(0.003)], None).ok
    assert not judge([case(0.005)], None).ok


def test_nothing_that_could_be_judged_is_no_pass():
    eager = [case(0.01, misfits=5, distribution="large")]
    assert not judge([case(0.01, misfits=5, distribution="large")], eager).ok


def test_a_nan_error_fails():
    assert not judge([case(math.nan, 0.0)], [case(0.01)]).ok


def test_integers_are_exact_or_as_inexact_as_eager():
    def integers(share):
        return [Case("normal", "float64", [OutputError("exact", "i32", 1000, share, 0.0, 0)])]

    assert judge(integers(0.0), integers(0.0)).ok
    assert not judge(integers(1e-6), integers(0.0)).ok
    assert judge(integers(0.002), integers(0.001)).ok


def test_comparing_takes_chunks_as_it_takes_the_whole(monkeypatch):
    from kernels.measure.candidate import correctness

    exact = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    out = exact.float() * 1.001
    (whole,) = compare([out], Reference((exact,), {}, "float64"))
    monkeypatch.setattr(correctness, "STEP", 64)
    (parts,) = compare([out], Reference((exact,), {}, "float64"))
    assert parts.error == pytest.approx(whole.error, rel=1e-12)
    assert parts.outlier == pytest.approx(whole.outlier, rel=1e-12)
    assert whole.error == pytest.approx(1e-3, rel=1e-3)


def special(misfits):
    usual, odd = (OutputError("float", "bf16", 64, 0.0, 0.0, n) for n in (0, misfits))
    return [Case("normal", "float64", [usual]), Case("special", "float64", [odd])]


def test_nan_in_other_places_is_told_where_eager_has_them_right():
    lost = judge(special(3), special(0))
    assert lost.ok
    assert "3 of 64" in lost.special
    assert judge(special(0), special(0)).special == ""
    assert judge(special(3), special(1)).special == ""


@pytest.mark.parametrize(("tool", "status"), [("triton", "mismatch"), ("library", "correct")])
def test_a_kernel_of_ours_that_loses_nan_is_wrong(tool, status):
    record = Record("it", tool, cases=[special(3)], mutated=[[]])
    judge_record(record, [special(0)], [[]], [""])
    assert record.status == status
    assert "NaN" in record.message


def in_room(figures=(), error=0.02, distribution="normal", **output):
    made = OutputError("float", "bf16", 4096, error, 3 * error, 0, in_room=InRoom(*figures), **output)
    return [Case(distribution, "float64", [made])]


def test_what_roundings_explain_passes_however_lucky_eager_was():
    lucky = [case(0.001)]
    assert judge(in_room((1.9, 1.9, 8.0)), lucky).ok
    assert judge(in_room((1.9, 1.9, 8.0)), lucky).error_vs_eager <= 2.0
    assert not judge(in_room((2.2, 2.2, 8.0)), lucky).ok
    assert not judge([case(0.02)], lucky).ok  # without a room eager's own error is all there is


@pytest.mark.parametrize(
    ("figures", "output", "words"),
    [((0.9, 6.0, 8.0), {"row": 0.5}, "in one row"), ((0.9, 2.0, 8.0), {"slope": 0.01}, "+1 % off as a whole")],
)
def test_a_row_and_a_result_as_a_whole_are_judged_next_to_the_norm(figures, output, words):
    refused = judge(in_room(figures, **output), [case(0.001)])
    assert not refused.ok
    assert words in refused.message
    assert judge(in_room((*figures[:1], 2.0, 8.0, 0.002), **output), [case(0.001)]).ok


def test_eagers_errors_over_all_distributions_widen_the_room_and_one_of_them_does_not():
    def eager(*errors):
        return [in_room((e,), error=1e-4, distribution=str(n))[0] for n, e in enumerate(errors)]

    mine = in_room((2.6,), distribution="0")
    assert judge(mine, eager(1.6, 1.4, 1.5)).ok
    assert not judge(mine, eager(1.6, 0.1, 0.1)).ok
    assert pooled(eager(100.0)) == {0: 4.0}


def test_steps_that_no_rounding_reaches_fail_unless_eager_takes_as_many():
    def steps(outside, share=0.01, times=1.0):
        made = OutputError("exact", "i8", 4096, share, 0.0, 0, in_room=InRoom(times, outside=outside))
        return [Case("normal", "float64", [made])]

    assert judge(steps(0.0), [*steps(0.0, 0.0)]).ok
    assert not judge(steps(0.001), steps(0.0, 0.0)).ok
    assert judge(steps(0.001), steps(0.001)).ok
    assert "times as many as by roundings" in judge(steps(0.0, 0.3, 5.0), steps(0.0, 0.0)).message


def few(slopes, room=0.003, dtype="bf16", elements=1, own=0.001):
    """Cases of an output of few elements, each off by that share as a whole, and eager's, of either sign."""
    names = ["normal", *(f"changed {n}" for n in range(len(slopes) - 1))]

    def output(slope):
        explained = InRoom(1.0, slope=room)
        return OutputError("float", dtype, elements, abs(slope), abs(slope), 0, slope=slope, in_room=explained)

    def cases(each):
        return [Case(n, "float64", [output(s)]) for n, s in zip(names, each, strict=True)]

    return judge(cases(slopes), cases([own * (-1) ** n for n in range(len(slopes))]))


@pytest.mark.parametrize("elements", [1, 8, 16])
@pytest.mark.parametrize("scale", [0.01, 0.02, -0.02])
def test_one_per_cent_in_every_case_does_not_pass_however_few_the_elements(elements, scale):
    roundings = (0.003, -0.003, 0.001, -0.002, 0.0)
    refused = few([scale + r for r in roundings], elements=elements)
    assert not refused.ok
    assert refused.error_vs_eager >= 2.0
    assert "5 sets of inputs together" in refused.message
    assert f"{100 * (scale - 0.0002):+.2g} % off as a whole" in refused.message


def test_roundings_of_few_elements_have_either_sign_and_pass():
    assert few((0.009, -0.007, 0.008, -0.006, 0.001)).ok
    assert few((0.0038,) * 5).ok  # one number in every case, rounded once
    assert few((0.01,) * 5, room=0.006).ok  # as large as what roundings on the way explain
    assert few((0.01,) * 5, own=0.006).ok  # or as what eager has
    assert few((0.004, 0.0045), own=0.0).ok  # two cases may agree by chance
    assert few((1e-3,) * 5, dtype="f32", room=1e-3).ok  # sums of wide types are judged case by case


def test_errors_of_few_elements_may_add_up_as_eagers_may_where_no_room_is_known():
    def unexplained(slope):
        output = OutputError("float", "bf16", 9, 0.03, 0.04, 0, slope=slope)
        return [Case(n, "float64", [output]) for n in ("normal", "normal again")]

    assert judge(unexplained(0.028), unexplained(0.0)).ok  # 4 / sqrt(2) times a third of eager's, of nine
    assert not judge(unexplained(0.029), unexplained(0.0)).ok
    assert judge(unexplained(0.029)[:1], unexplained(0.0)).ok  # one case is judged by itself


def test_a_case_in_which_much_cancels_hides_no_wrong_scale_in_the_others():
    def cases(scale):
        figures = [(-3.0, 5.0), *((scale + r, 0.003) for r in (0.002, -0.002, 0.001, -0.001))]
        rooms = [(s, InRoom(1.0, slope=room)) for s, room in figures]
        outputs = [OutputError("float", "bf16", 1, abs(s), abs(s), 0, slope=s, in_room=room) for s, room in rooms]
        return [Case(str(n), "float64", [output]) for n, output in enumerate(outputs)]

    assert judge(cases(0.0), cases(0.0)).ok
    assert "5 sets of inputs together: +1 % off" in judge(cases(0.01), cases(0.0)[:1]).message
