"""Evaluation: every case asked and scored; with one set of rates, or with rates fitted on all the other programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.accuracy.case import Case
from app.accuracy.policies import POLICIES, Followed, follow
from app.accuracy.question import Question, answer
from app.accuracy.score import SHARE, Score, score

if TYPE_CHECKING:
    from app.analysis.analyze import CompilePrediction
    from app.estimate.rates import Rates

Fit = Callable[[Sequence[Case]], "Rates"]
"""Rates fitted on measured cases."""
Oracle = Callable[[Question], "CompilePrediction"]
"""What the oracle says of a question."""


def evaluate(questions: Sequence[Question], rates: Rates | None = None, oracle: Oracle | None = None) -> list[Score]:
    """A score for every question whose advice names something that was measured. rates: None for the shipped ones."""
    asked = ((q, answer(q, rates, oracle(q) if oracle else None)) for q in questions)
    return [scored for q, advice in asked if (scored := score(q.case, advice)) is not None]


def leave_one_out(questions: Sequence[Question], fit: Fit, oracle: Oracle | None = None) -> list[Score]:
    """Each program scored with rates fitted on all the others: a program's own figures never predict it.

    Records of one program (other sizes, another day) are left out together.
    """
    scores = []
    for left_out in dict.fromkeys(q.case.program for q in questions):
        rates = fit([q.case for q in questions if q.case.program != left_out])
        scores += evaluate([q for q in questions if q.case.program == left_out], rates, oracle)
    return sorted(scores, key=lambda s: (s.name, s.record))


@dataclass(frozen=True, slots=True)
class Compared:
    """A policy on the cases that the advice is counted on."""

    policy: str
    followed: tuple[Followed, ...]


def policies(questions: Sequence[Question], scores: Sequence[Score]) -> list[Compared]:
    """Every policy on those cases that were scored and not left alone for their share of the step."""
    counted = {s.record for s in scores if s.column != SHARE}
    chosen = [q.case for q in questions if q.case.record in counted]
    return [
        Compared(name, tuple(f for case in chosen if (f := follow(case, policy)) is not None))
        for name, policy in POLICIES.items()
    ]
