"""What becomes of one validation: its score, its device times, and why it is in no figure where it is in none."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from app.accuracy.corpus.outcome import FEW, FIGURES, UNREAD, TimePoint, outcome_of
from app.accuracy.corpus.programs import Program, load_corpus
from app.estimate.range import Range
from app.estimate.rates import FITTED, SCALED_ATLAS, WITHOUT_ATLAS
from app.objects.record import ArchiveRecord
from tests.app.accuracy.corpus.made import H100, H200, development_records


def program_of(record: ArchiveRecord) -> Program:
    return next(p for p in load_corpus().programs if p.name == record["name"])


def product_on(device: str) -> Any:
    """A program of which eager and torch.compile were timed, and whose operations every atlas knows."""
    return next(
        r
        for r in development_records(40, device)
        if {"eager", "compile"} <= {c["name"] for c in r["candidates"] if c["status"] == "ok"}
        and program_of(r).label == "matmul"
    )


@pytest.fixture(scope="module")
def record() -> Any:
    return product_on(H200)


def timed(record: Any, name: str) -> Any:
    return next(c for c in record["candidates"] if c["name"] == name)


def test_times_are_the_device_times_that_were_measured_whatever_decides(record: Any) -> None:
    outcome = outcome_of(record, program_of(record))
    assert outcome.eager is not None and outcome.compiled is not None
    assert outcome.eager.measured_us == timed(record, "eager")["time_us"]["median"]
    assert outcome.compiled.measured_us == timed(record, "compile")["time_us"]["median"]
    assert not {"eager", "torch.compile", "advice"} & set(outcome.left_out)


@pytest.mark.parametrize(
    ("measured", "within", "inside"), [(100, True, True), (79, False, False), (84, True, False), (131, False, False)]
)
def test_a_time_is_within_by_the_middle_and_inside_by_the_interval(measured: float, within: bool, inside: bool) -> None:
    point = TimePoint(Range(90.0, 100.0, 130.0), measured)
    assert (point.within, point.inside) == (within, inside)


def test_what_was_not_timed_has_its_status_for_a_reason(record: Any) -> None:
    broken = deepcopy(record)
    for key in ("time_us", "ratio_to_eager", "ratio_to_best_other"):
        timed(broken, "compile")[key] = None
    timed(broken, "compile")["status"] = "mismatch"
    outcome = outcome_of(broken, program_of(record))
    assert outcome.compiled is None and outcome.eager is not None
    assert outcome.left_out["torch.compile"] == "was not timed: mismatch"


def test_one_candidate_is_no_choice(record: Any) -> None:
    alone = record | {"candidates": [timed(record, "eager")]}
    outcome = outcome_of(alone, program_of(record))
    assert outcome.score is None and outcome.case is None
    assert outcome.left_out == dict.fromkeys(FIGURES, FEW)


def test_an_oracle_without_an_answer_is_told(record: Any) -> None:
    from app.analysis.analyze import NO_COMPILE_PREDICTION

    assert outcome_of(record, program_of(record)).answered is None
    assert outcome_of(record, program_of(record), oracle=lambda _: NO_COMPILE_PREDICTION).answered is False


def test_rates_alone_the_atlas_and_another_devices_say_different_times(record: Any) -> None:
    said = []
    for rates in (FITTED, SCALED_ATLAS, WITHOUT_ATLAS):
        point = outcome_of(record, program_of(record), rates).eager
        assert point is not None
        said.append(point.predicted)
    assert len({s.mid for s in said}) == 3
    own, scaled = said[0], said[1]
    assert scaled.high / scaled.low > own.high / own.low  # it is less sure


def test_on_a_device_that_is_not_the_reference_the_references_atlas_is_scaled() -> None:
    record = product_on(H100)
    own, scaled = (outcome_of(record, program_of(record), rates).eager for rates in (FITTED, SCALED_ATLAS))
    assert own is not None and scaled is not None
    assert own.predicted != scaled.predicted and own.measured_us == scaled.measured_us


def test_a_program_that_the_advice_fails_on_is_counted_with_its_fault_and_the_run_goes_on(record: Any) -> None:
    def broken(_: Any) -> Any:
        raise ZeroDivisionError("x: f32[3]")  # what a message holds may be a program

    outcome = outcome_of(record, program_of(record), oracle=broken)
    assert outcome.left_out == dict.fromkeys(FIGURES, "the advice failed: ZeroDivisionError")
    unreadable = record | {"region": record["region"].replace("return ", "return not_there + ")}
    assert outcome_of(unreadable, program_of(record)).left_out == dict.fromkeys(FIGURES, UNREAD)
