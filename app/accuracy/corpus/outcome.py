"""Outcome: one validation of a corpus program, put to today's rule and held against what was measured."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.accuracy.case import Case, case_of
from app.accuracy.corpus.programs import Program
from app.accuracy.question import Question, answer_in_full, question
from app.accuracy.score import SHARE, Score, score
from app.accuracy.totals import within
from app.objects.record import ArchiveRecord
from profiler.region.model import RegionError

if TYPE_CHECKING:
    from app.accuracy.evaluation import Oracle
    from app.analysis.analyze import Evaluated
    from app.estimate.predict import Prediction
    from app.estimate.range import Range
    from app.estimate.rates import Rates

ADVICE, SPEED_UP, EAGER, COMPILE = FIGURES = ("advice", "speed-up", "eager", "torch.compile")
"""What is counted, each for itself."""


@dataclass(frozen=True, slots=True)
class TimePoint:
    """A device time in µs, predicted with its 80 % interval, and measured."""

    predicted: Range
    measured_us: float

    @property
    def within(self) -> bool:
        """Within 20 %."""
        return within(self.predicted.mid, self.measured_us)

    @property
    def inside(self) -> bool:
        """The measured time is in the interval."""
        return self.predicted.low <= self.measured_us <= self.predicted.high


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one program on one device. left_out: reason by figure, of FIGURES, for those it is not in.

    answered: the oracle had an answer; None where it was not asked.
    """

    program: Program
    device: str
    torch: str
    date: str
    case: Case | None = None
    score: Score | None = None
    eager: TimePoint | None = None
    compiled: TimePoint | None = None
    answered: bool | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)


log = logging.getLogger(__name__)

FEW = "fewer than two candidates could be timed"
UNREAD = "the reader refuses its text today"


def outcome_of(
    record: ArchiveRecord, program: Program, rates: Rates | None = None, oracle: Oracle | None = None
) -> Outcome:
    """Ask and compare. rates: in place of the shipped ones."""
    device, date = str(record["device"]), record["date"]
    torch = str(record["software"].get("torch", ""))
    case = case_of(record)
    if case is None:
        return Outcome(program, device, torch, date, left_out=dict.fromkeys(FIGURES, FEW))
    try:
        return _compared(question(case), program, torch, rates, oracle)
    except RegionError:
        reason = UNREAD
    except Exception as fault:  # a program that the advice fails on is counted as one, and ends no run over hundreds
        log.debug("no advice for %s", program.name, exc_info=True)
        reason = f"the advice failed: {type(fault).__name__}"
    return Outcome(program, device, torch, date, case, left_out=dict.fromkeys(FIGURES, reason))


def _compared(asked: Question, program: Program, torch: str, rates: Rates | None, oracle: Oracle | None) -> Outcome:
    case = asked.case
    prediction = oracle(asked) if oracle is not None else None
    answered = None if prediction is None else any(not p.unavailable for p in prediction.predictions)
    evaluated = answer_in_full(asked, rates, prediction)
    scored = score(case, evaluated.advice)
    eager, compiled = time_points(case, evaluated, rates)
    left_out: dict[str, str] = {}
    if scored is None:
        left_out[ADVICE] = left_out[SPEED_UP] = f"advised {evaluated.advice.tool}, and nothing of it was measured"
    elif scored.column == SHARE:
        left_out[ADVICE] = left_out[SPEED_UP] = "left alone for its share of the step"
    elif scored.predicted is None or scored.measured is None:
        left_out[SPEED_UP] = _no_speed_up(scored)
    for figure, name, point in ((EAGER, "eager", eager), (COMPILE, "compile", compiled)):
        if point is None:
            left_out[figure] = _no_time(case, name)
    validation = case.validation
    return Outcome(
        program, validation.device or "", torch, validation.date, case,
        None if scored is not None and scored.column == SHARE else scored, eager, compiled, answered, left_out,
    )  # fmt: skip


def time_points(
    case: Case, evaluated: Evaluated, rates: Rates | None = None
) -> tuple[TimePoint | None, TimePoint | None]:
    """Device times of eager and of torch.compile in its default mode, whatever decides the case."""
    from app.estimate import predict
    from app.estimate.rates import FITTED
    from profiler.hardware import find_device

    device, used = find_device(case.validation.device), rates or FITTED
    assert device is not None  # the question was asked for it
    eager = predict.eager(evaluated.facts, device, used)
    compiled = predict.torch_compile(evaluated.facts, device, "default", used)
    return _point(case, "eager", eager), _point(case, "compile", compiled)


def _point(case: Case, name: str, prediction: Prediction | None) -> TimePoint | None:
    candidate = case.candidate(name)
    if prediction is None or candidate is None or candidate.status != "ok" or candidate.time_us is None:
        return None
    return TimePoint(prediction.time_us, candidate.time_us.median)


def _no_speed_up(scored: Score) -> str:
    if scored.counted == "eager":
        return "eager is advised, against which there is nothing to gain"
    return "no speed-up of the advised candidate was predicted and measured"


def _no_time(case: Case, name: str) -> str:
    candidate = case.candidate(name)
    if candidate is None:
        return "was not tried"
    return "no time was predicted" if candidate.status == "ok" else f"was not timed: {candidate.status}"
