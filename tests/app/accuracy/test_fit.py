"""The fit finds what was planted, leaves out what it may not see, and the shipped rates are its."""

from __future__ import annotations

import dataclasses
import json

import pytest

from app.accuracy import fitting
from app.accuracy.fit import calls, fit, left_over, refit, touched_by
from app.accuracy.question import Question
from app.accuracy.samples import BOUND, Call, Samples, Timed, at_least, lower_text, program_of, repeated_program
from app.accuracy.split import TEST, half
from app.accuracy.tables import LATER, Row, fitted_rows, rows
from app.archive import record_store
from app.archive.program_fingerprint import fingerprint
from app.cli import accuracy as accuracy_cli
from app.estimate import predict as estimate
from app.estimate.rates import (
    FITTED,
    SHIPPED,
    WITHOUT_ATLAS,
    Rates,
    interpolate,
    load_shipped,
    rates_from_json,
    rates_to_json,
)
from kernels.operations import operations
from tests.app.advice.cases import H200, chain, region

TABLE = json.loads(accuracy_cli.KERNELS.read_text())


@pytest.fixture(scope="module")
def everything() -> tuple[list[Question], Samples]:
    return accuracy_cli.read_samples(record_store.records(record_store.FOLDER), TABLE)


def compiled(megabytes: float, true: Rates, program: str = "") -> Timed:
    """A chain as torch.compile runs it, measured where these rates are true."""
    facts = region(chain(megabytes))

    def predict(rates: Rates) -> float:
        prediction = estimate.torch_compile(facts, H200, rates=rates)
        assert prediction is not None
        return prediction.time_us.mid

    return Timed(program, "chain", "compile", predict(true), predict)


def with_pointwise(share: float) -> Rates:
    return dataclasses.replace(Rates(), default=dataclasses.replace(Rates().default, pointwise=share))


def test_the_shipped_rates_are_the_commands_output(everything: tuple[list[Question], Samples]) -> None:
    asked, found = everything
    text = fitting.text_of(fitting.rates_json(asked, TABLE, found))
    assert text == SHIPPED.read_text(), "run `tritonworthy accuracy fit` and commit what it writes"


def test_no_rate_is_fitted_on_the_second_set_and_all_of_it_are_operations() -> None:
    """What is left out by name has to be there under that name."""
    assert {o.name for o in operations()} >= LATER
    fitted = {row["operation"] for row in fitted_rows(TABLE)}
    assert fitted and not fitted & LATER
    assert {row["operation"] for row in TABLE["rows"]} - fitted <= LATER
    known = {**FITTED.rows, **FITTED.flops}
    assert not any(f"triton:{name}" in known for name in LATER)


def test_a_planted_rate_is_found_again() -> None:
    samples = Samples(H200, tuple(compiled(mb, with_pointwise(0.62)) for mb in (50, 100, 200, 400)), ())
    assert fit(samples).default.pointwise == pytest.approx(0.62, rel=0.03)


def test_what_no_sample_touches_stays_where_it_began() -> None:
    samples = Samples(H200, tuple(compiled(mb, with_pointwise(0.62)) for mb in (50, 100)), ())
    fitted = fit(samples)
    assert fitted.eager == Rates().eager
    assert fitted.generated == Rates().generated


def test_one_odd_region_does_not_pull_a_rate() -> None:
    good = tuple(compiled(mb, with_pointwise(0.9)) for mb in (50, 100, 150, 200, 400))
    odd = dataclasses.replace(compiled(100, with_pointwise(0.9)), measured_us=40 * good[1].measured_us)
    assert fit(Samples(H200, (*good, odd), ())).default.pointwise == pytest.approx(0.9, rel=0.06)


def test_a_wall_time_that_the_gpu_sets_bounds_the_hosts_part_from_above() -> None:
    """Measured alone, slow hosts are all there is: a call that the GPU hides says that this one was not as slow."""
    facts = region(chain(1.0, 20))

    def host_us(rates: Rates) -> float:
        prediction = estimate.triton(facts, H200, whole=True, rates=rates)
        assert prediction is not None
        return prediction.host_us

    begun = host_us(Rates())
    slow = Timed("slow", "chain", "host triton", 1.5 * begun, host_us)
    loose, tight = (
        Timed(f"{wall}", "chain", f"{BOUND} triton", wall, at_least(wall, host_us)) for wall in (9 * begun, 0.8 * begun)
    )
    alone, loosened, under = (host_us(fit(Samples(H200, (slow, *more), ()))) for more in ((), (loose,), (tight,) * 3))
    assert alone == loosened > begun
    assert under < begun
    assert not [name for name in left_over(Samples(H200, (slow, tight), ()), Rates()) if name.startswith(BOUND)]


def test_a_call_is_solved_for_its_share() -> None:
    rates = Rates()
    fixed = rates.times.event + rates.times.fused_kernel
    half_rate = fixed + 1e6 * 860e6 / (0.5 * H200.copy_rate)  # 860 MB at half of the copy rate
    found = calls(Samples(H200, (), (Call("", "quack.softmax", 8192.0, 860e6, 0.0, half_rate),)), rates)
    assert found.rows["quack.softmax"] == ((8192.0, pytest.approx(0.5, rel=1e-3)),)


def test_a_program_that_is_left_out_is_not_in_the_rates_it_is_scored_with() -> None:
    """Alone with its number: with it the fit finds 0.4, without it the number is where it began."""
    own = tuple(compiled(mb, with_pointwise(0.4), "own") for mb in (50, 100, 200))
    samples = Samples(H200, own, (Call("own", "triton:softmax", 8192.0, 1e9, 0.0, 900.0),))
    fitted = fit(samples)
    assert fitted.default.pointwise == pytest.approx(0.4, rel=0.05)
    without = refit(samples, "own", fitted, touched_by(samples.timed, Rates()))
    assert without.default.pointwise == Rates().default.pointwise
    assert "triton:softmax" in fitted.rows
    assert "triton:softmax" not in without.rows


def test_nothing_of_the_other_half_is_fitted_on(everything: tuple[list[Question], Samples]) -> None:
    _, found = everything
    kept = fitting.tunable(found)
    assert {half(t.program) for t in kept.timed if t.program} == {"fit"}
    assert {half(c.program) for c in kept.calls if c.program} == {"fit"}
    owners = {row.region: program_of(row.region) for row in rows(TABLE) if row.region}
    assert any(half(program) == TEST for program in owners.values() if program)  # such rows are there, and left out
    assert len(kept.calls) < len(found.calls)


def test_a_row_at_a_records_sizes_is_its_programs_whatever_the_row_says(
    everything: tuple[list[Question], Samples],
) -> None:
    """In the other type of 16 bits too; at other sizes it is nobody's."""
    asked, _ = everything
    measured = {fingerprint(q.case.validation.region, "same"): q.case.program for q in asked}
    sizes = {"m": 262144, "k": 32, "h": 128, "n": 32, "activation": "silu"}
    row = Row("fused_mlp", "bf16", sizes, "", 0, 0, {})
    owner = repeated_program(row, measured)
    assert half(owner) == TEST
    assert repeated_program(dataclasses.replace(row, dtype="f16"), measured) == owner
    assert repeated_program(dataclasses.replace(row, sizes={**sizes, "m": 4096}), measured) == ""
    assert repeated_program(dataclasses.replace(row, dtype="f32"), measured) == ""


def test_leave_one_out_wants_one_program_missing(everything: tuple[list[Question], Samples]) -> None:
    asked, found = everything
    left = fitting.LeaveOneOut.__new__(fitting.LeaveOneOut)
    left.everything, left.programs = found, {t.program for t in found.timed} - {""}
    with pytest.raises(ValueError, match="0 programs"):
        left([q.case for q in asked])


def test_every_text_of_the_table_is_a_region_that_moves_the_rows_bytes() -> None:
    """A text that were another operation would move other bytes than the row was counted at."""
    counted = 0
    for row in rows(TABLE):
        if row.text is None or row.flops or row.operation in GATHERS:
            continue
        moved = lower_text(row.text).shapes[0].cost.ideal.bytes_moved
        assert 0.6 < moved / row.bytes < 1.7, (row.operation, dict(row.sizes))
        counted += 1
    assert counted > 50


GATHERS = {"index_add", "jagged_mean", "router", "top_k", "vector_add"}
"""Indices, offsets and results of another type are counted in other ways."""


def test_a_row_has_its_sizes_and_rows() -> None:
    row = Row("softmax_axis", "bf16", {"shape": (64, 512, 4096), "dim": 1}, "", 1, 0, {})
    assert row.rows == 64 * 4096
    assert row.text == "x: bf16[64, 512, 4096]\nreturn F.softmax(x, 1)\n"
    assert row.own == "triton:softmax_axis over another axis"


def test_a_curve_between_its_points() -> None:
    rising, falling = ((1000.0, 0.2), (8000.0, 0.8)), ((1000.0, 0.8), (16000.0, 0.4))
    assert interpolate(rising, 2000) == pytest.approx(0.4)  # a program's own cost holds short rows up
    assert interpolate(rising, 7000) == 0.8
    assert interpolate(falling, 4000) == pytest.approx(0.6)  # half way in the logarithm
    assert interpolate(falling, 1) == 0.8
    assert interpolate(falling, 1e9) == 0.4


def test_rates_survive_json() -> None:
    assert rates_from_json(json.loads(json.dumps(rates_to_json(WITHOUT_ATLAS)))) == WITHOUT_ATLAS


def test_ranges_hold_most_of_what_is_left_over(everything: tuple[list[Question], Samples]) -> None:
    _, found = everything
    chosen = fitting.tunable(found)
    inside = [
        low <= item.measured_us / item.predict(WITHOUT_ATLAS) <= high
        for item in chosen.timed
        if not item.family.startswith("host")
        for low, high in [WITHOUT_ATLAS.spread[item.family]]
    ]
    assert sum(inside) / len(inside) >= 0.75


def test_what_is_published_is_what_the_shipped_rates_leave_over(everything: tuple[list[Question], Samples]) -> None:
    _, found = everything
    now = left_over(fitting.tunable(found), WITHOUT_ATLAS)
    held = load_shipped()["left_over"]
    assert held.keys() == now.keys()
    assert held["eager"]["within"] == pytest.approx(now["eager"].within, rel=1e-3)
