"""Figures: the whole benchmark as one JSON object, as committed in figures.json, as printed and as the page shows it.

They hold nothing that changes from run to run (no day, no host): the same Archive and the same rule give the same file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import cast

from app.accuracy import totals
from app.accuracy.case import cases
from app.accuracy.claims import claims
from app.accuracy.evaluation import Fit, Oracle, evaluate, leave_one_out, policies
from app.accuracy.question import Question, asked_for, question
from app.accuracy.rounding import DIGITS, rounded
from app.accuracy.score import ADVISED, NEXT, SHARE, Score, from_json
from app.accuracy.split import FIT, TEST
from app.estimate.rates import Rates, load_shipped
from app.objects.accuracy import (
    AccuracyFigures,
    AdviceTotals,
    FitFigures,
    KernelTable,
    PolicyTotals,
    TotalsFigures,
)
from app.objects.record import ArchiveRecord
from kernels.measure.model import to_json

COMMITTED = Path(__file__).resolve().parent / "figures.json"

TARGETS: Mapping[str, Mapping[str, float]] = {
    "all": {"regret_geomean": 1.03, "regret_worst": 1.25, "right": 0.95, "within": 0.80},
    "test": {"regret_geomean": 1.06, "right": 0.90},
}
"""What the benchmark asks for: of all regions, and of the half that nothing is tuned on."""


def figures(
    records: Sequence[ArchiveRecord],
    kernels: KernelTable | None,
    fit: Fit | None = None,
    oracle: Oracle | None = None,
    asked: Sequence[Question] | None = None,
    rates: Rates | None = None,
) -> AccuracyFigures:
    """Ask and score every record. Needs torch; a second or two, and some hundredths for each record.

    fit: adds leave-one-out. kernels: as `claims` takes them. asked: the records' questions, where they are made. rates:
    in place of the shipped ones.
    """
    questions = [question(case) for case in cases(records)] if asked is None else list(asked)
    scores = evaluate(questions, rates, oracle)
    left_out = leave_one_out(questions, fit, oracle) if fit else None
    compared = {q.case.record for q in questions}
    alone = sorted(str(r["id"]) for r in records if r["id"] not in compared)
    by_bytes = evaluate(for_memory(questions, records), rates)
    return {"alone": alone, **body(questions, scores, left_out, kernels, by_bytes)}


def for_memory(questions: Sequence[Question], records: Sequence[ArchiveRecord]) -> list[Question]:
    """Every record asked about once more with the objective memory, where its peaks were kept."""
    by_record = {case.record: case for case in cases(records, "memory")}
    return [asked_for(q, by_record[q.case.record]) for q in questions if q.case.record in by_record]


def body(
    questions: Sequence[Question],
    scores: Sequence[Score],
    left_out: Sequence[Score] | None,
    kernels: KernelTable | None,
    by_bytes: Sequence[Score] = (),
) -> AccuracyFigures:
    """The object, of scores that are there. by_bytes: of the same records with the objective memory."""
    asked = [q.case for q in questions]
    counted = [s for s in scores if s.column != SHARE]
    groups: dict[str, Sequence[Score]] = {"all": counted, FIT: _half(counted, FIT), TEST: _half(counted, TEST)}
    if left_out is not None:
        groups["leave-one-out"] = [s for s in left_out if s.column != SHARE]
    columns: dict[str, Sequence[Score]] = {
        ADVISED: [s for s in scores if s.column == ADVISED],
        NEXT: [s for s in scores if s.column == NEXT],
        SHARE: [s for s in scores if s.column == SHARE],
        "memory": [s for s in by_bytes if s.column != SHARE],
    }
    compared: dict[str, PolicyTotals] = {
        c.policy: {
            "all": to_json(totals.totals(c.followed)),
            "fit": to_json(totals.totals(f for f in c.followed if f.half == FIT)),
            "test": to_json(totals.totals(f for f in c.followed if f.half == TEST)),
            "regrets": sorted(f.regret for f in c.followed),
        }
        for c in policies(questions, scores)
    }
    labelled = [s for s in counted if s.labelled]
    result: AccuracyFigures = {
        "schema": 1,
        "records": len(asked),
        "programs": len({c.program for c in asked}),
        "devices": sorted({c.validation.device or "" for c in asked}),
        "torch": sorted({str(c.validation.software.get("torch", "")) for c in asked}),
        "unscored": sorted({c.record for c in asked} - {s.record for s in scores}),
        "advice": {name: _totals(group) for name, group in groups.items()},
        "advice_where_labelled": _totals(labelled),
        "columns": {name: _totals(group) for name, group in columns.items()},
        "policies": compared,
        "targets": {name: dict(wanted) for name, wanted in TARGETS.items()},
        "met": {name: _compare_targets(_totals(groups[name]), wanted) for name, wanted in TARGETS.items()},
        "claims": to_json(claims(asked, kernels)),
        "scores": to_json(list(scores)),
        "memory_scores": to_json([replace(s, calibration=()) for s in by_bytes]),
        "fit": cast("FitFigures", {k: v for k, v in load_shipped().items() if k != "rates"}),
    }
    kept: AccuracyFigures = rounded(result)
    return kept


def _half(scores: Iterable[Score], half: str) -> list[Score]:
    return [s for s in scores if s.half == half]


def _totals(scores: Sequence[Score]) -> AdviceTotals:
    """Totals, with the calibration of the advised candidates and of all that were predicted."""
    advised = totals.calibration(totals.of_advised(scores))
    every = totals.calibration(totals.of_all(scores))
    regrets: TotalsFigures = to_json(totals.totals(scores))
    return {
        **regrets,
        "within": advised.within,
        "predictions": advised.predictions,
        "error_geomean": advised.error_geomean,
        "within_all": every.within,
        "predictions_all": every.predictions,
    }


AT_MOST = ("regret_geomean", "regret_worst")
WATCHED = (*AT_MOST, "right", "within", "within_all")


def _compare_targets(advice: AdviceTotals, wanted: Mapping[str, float]) -> dict[str, bool | None]:
    return {name: meets(name, totals.figure_of(advice, name), bound) for name, bound in wanted.items()}


def meets(name: str, value: float | None, bound: float) -> bool | None:
    """Whether a figure is as good as asked for; None where there is none."""
    if value is None:
        return None
    return value <= bound if name in AT_MOST else value >= bound


TOLERANCE = 1e-4
"""Figures this near are the same: they are kept to `rounding.DIGITS`."""


def worse(current: AccuracyFigures, held: AccuracyFigures) -> list[str]:
    """What got worse since `held`, on the records that both have: "all, right: 0.9 and was 0.95", one for each figure.

    A record that is new, or gone, says nothing of whether the rule got worse.
    """
    now, before = (_by_record(body) for body in (current, held))
    common = now.keys() & before.keys()
    said = []
    for half in ("all", FIT, TEST):
        new, old = (
            _totals([scores[r] for r in common if half in ("all", scores[r].half) and scores[r].column != SHARE])
            for scores in (now, before)
        )
        for name in WATCHED:
            value, was = totals.figure_of(new, name), totals.figure_of(old, name)
            if value is None or was is None:
                continue
            if (value > was + TOLERANCE) if name in AT_MOST else (value < was - TOLERANCE):
                said.append(f"{half}, {name}: {value:.{DIGITS}g} and was {was:.{DIGITS}g}")
    return said


def _by_record(body: AccuracyFigures) -> dict[str, Score]:
    return {s["record"]: from_json(s) for s in body["scores"]}


def text_of(current: AccuracyFigures) -> str:
    """As it is committed."""
    return json.dumps(current, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


@lru_cache(maxsize=1)
def _read(_mtime_ns: int) -> AccuracyFigures:
    committed: AccuracyFigures = json.loads(COMMITTED.read_text(encoding="utf-8"))
    return committed


def load_committed() -> AccuracyFigures:
    """The committed figures, not to be changed. Read once for each version of the file."""
    return _read(COMMITTED.stat().st_mtime_ns)
