"""Figures of a third of the corpus, by device: of all its programs, by family, by mode; policies; who is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.accuracy import totals
from app.accuracy.corpus.measured import load_measured
from app.accuracy.corpus.outcome import FIGURES, Outcome, TimePoint, outcome_of
from app.accuracy.corpus.programs import Program, load_programs
from app.accuracy.policies import POLICIES, Followed, follow
from app.accuracy.rounding import rounded
from app.accuracy.score import NEXT
from app.atlas.shipped import Basis, basis_of
from app.estimate.rates import FITTED, SCALED_ATLAS, WITHOUT_ATLAS, Rates
from app.objects.accuracy import TotalsFigures
from app.objects.corpus import (
    CorpusFigures,
    CorpusRun,
    DeviceFigures,
    GroupFigures,
    LeftOut,
    PredictedTime,
    ProgramFigures,
    TimeFigures,
)
from app.objects.record import ArchiveRecord
from kernels.measure.model import to_json
from profiler.hardware import find_device

if TYPE_CHECKING:
    from app.accuracy.evaluation import Oracle
    from app.accuracy.question import Question
    from app.analysis.analyze import CompilePrediction

FAMILIES = (
    "convolution", "matmul", "attention", "norm", "reduction", "scan", "gather/scatter", "pointwise", "mixed",
)  # fmt: skip
"""As the corpus was built by: `Program.label`."""
MODES = ("forward", "training")


@dataclass(frozen=True, slots=True)
class Prediction:
    """A way of predicting. oracle: Inductor is asked for its kernels."""

    name: str
    rates: Rates
    oracle: bool = True


INDUCTOR, RULES = "Inductor's kernels", "fusion rules"

ATLAS = Prediction(f"own atlas, {INDUCTOR}", FITTED)
SCALED = Prediction(f"another's atlas, {INDUCTOR}", SCALED_ATLAS)
LOOKED_AT = (ATLAS, SCALED)
"""What a look at the blind third has: as advice is given, and what measuring a device buys."""
COMPARED = (
    ATLAS, SCALED,
    Prediction(f"own atlas, {RULES}", FITTED, oracle=False),
    Prediction(f"rates, {RULES}", WITHOUT_ATLAS, oracle=False),
)  # fmt: skip
"""What the development third is predicted by: what each part buys."""


def prediction_of(rates: Rates, oracle: bool) -> Prediction:
    """The one of that name, or one that has none in COMPARED."""
    known = next((p for p in COMPARED if p.rates is rates and p.oracle is oracle), None)
    if known is not None:
        return known
    whose = "another's atlas" if rates.scaled else "own atlas" if rates.atlas else "rates"
    return Prediction(f"{whose}, {INDUCTOR if oracle else RULES}", rates, oracle)


def third_figures(
    third: str,
    prediction: Prediction,
    oracle: Oracle | None,
    records: Sequence[ArchiveRecord] | None = None,
    done: Callable[[int, int], None] | None = None,
) -> CorpusRun:
    """Every measured program of the third, put to today's rule. Needs torch.

    records: in place of what was measured of it. done: told how many of how many there are.
    """
    programs = {p.name: p for p in load_programs(third)}
    newest = newest_records(load_measured(third) if records is None else records)
    outcomes = []
    for number, record in enumerate(newest, 1):
        outcomes.append(
            outcome_of(record, programs[record["name"]], prediction.rates, oracle if prediction.oracle else None)
        )
        if done is not None:
            done(number, len(newest))
    return run_of(third, prediction, list(programs.values()), outcomes)


def newest_records(records: Iterable[ArchiveRecord]) -> list[ArchiveRecord]:
    """One for each program and device: the last that was measured."""
    newest: dict[tuple[str, str], ArchiveRecord] = {}
    for record in sorted(records, key=lambda r: (r["date"], r["id"])):
        newest[record["name"], str(record["device"])] = record
    return [newest[key] for key in sorted(newest)]


def run_of(third: str, prediction: Prediction, programs: Sequence[Program], outcomes: Sequence[Outcome]) -> CorpusRun:
    """The object, of outcomes that are there."""
    devices = sorted({o.device for o in outcomes})
    run: CorpusRun = rounded(
        {
            "third": third,
            "prediction": prediction.name,
            "programs": len(programs),
            "devices": [
                device_figures([o for o in outcomes if o.device == device], len(programs), prediction.rates)
                for device in devices
            ],
            "outcomes": [_program(o) for o in outcomes],
        }
    )
    return run


def without_programs(run: CorpusRun) -> CorpusFigures:
    """What may be published of the blind third: nothing of a single program."""
    return {
        "third": run["third"],
        "prediction": run["prediction"],
        "programs": run["programs"],
        "devices": run["devices"],
    }


def device_figures(outcomes: Sequence[Outcome], programs: int, rates: Rates) -> DeviceFigures:
    """All figures of one device. programs: that the third has."""
    device = find_device(outcomes[0].device)
    basis: Basis | None = basis_of(device, rates.scaled) if device is not None and rates.atlas else None
    scores = [o.score for o in outcomes if o.score is not None]
    return {
        "device": outcomes[0].device,
        "torch": sorted({o.torch for o in outcomes}),
        "dates": sorted({o.date for o in outcomes}),
        "atlas": basis.atlas.device if basis is not None else None,
        "own": basis is not None and basis.own,
        "measured": len(outcomes),
        "by_wall_time": sum(s.by == "wall time" for s in scores),
        "next_runnable": sum(s.column == NEXT for s in scores),
        "unanswered": sum(o.answered is False for o in outcomes),
        "all": group_figures(outcomes),
        "families": {f: group_figures(of) for f in FAMILIES if (of := [o for o in outcomes if o.program.label == f])},
        "modes": {m: group_figures(of) for m in MODES if (of := [o for o in outcomes if o.program.mode == m])},
        "policies": {name: _policy(name, outcomes) for name in POLICIES if "label" not in name},
        "left_out": _left_out(outcomes, programs - len(outcomes)),
    }


def group_figures(outcomes: Sequence[Outcome]) -> GroupFigures:
    """Figures of some programs of one device."""
    scores = [o.score for o in outcomes if o.score is not None]
    advised = totals.calibration(totals.of_advised(scores))
    regrets: TotalsFigures = to_json(totals.totals(scores))
    return {
        **regrets,
        "speedups": advised.predictions,
        "within": advised.within,
        "eager": time_figures([o.eager for o in outcomes if o.eager is not None]),
        "compiled": time_figures([o.compiled for o in outcomes if o.compiled is not None]),
    }


def time_figures(points: Sequence[TimePoint]) -> TimeFigures:
    """Predicted device times against measured ones."""
    known = totals.calibration([(p.predicted.mid, p.measured_us) for p in points])
    return {
        "predictions": known.predictions,
        "within": known.within,
        "inside": sum(p.inside for p in points) / len(points) if points else None,
        "error_geomean": known.error_geomean,
    }


def _policy(name: str, outcomes: Sequence[Outcome]) -> TotalsFigures:
    """A policy on those programs that the advice is counted on."""
    cases = [o.case for o in outcomes if o.score is not None and o.case is not None]
    followed: list[Followed] = [f for case in cases if (f := follow(case, POLICIES[name])) is not None]
    compared: TotalsFigures = to_json(totals.totals(followed))
    return compared


def _left_out(outcomes: Sequence[Outcome], not_measured: int) -> list[LeftOut]:
    """By figure and reason, the most frequent first."""
    rows: list[LeftOut] = []
    for figure in FIGURES:
        reasons = Counter(reason for o in outcomes if (reason := o.left_out.get(figure)))
        if not_measured > 0:
            reasons["not measured on this device yet"] = not_measured
        ordered = sorted(reasons.items(), key=lambda r: (-r[1], r[0]))
        rows += [{"figure": figure, "reason": reason, "programs": count} for reason, count in ordered]
    return rows


def _program(outcome: Outcome) -> ProgramFigures:
    return {
        "program": outcome.program.name,
        "device": outcome.device,
        "family": outcome.program.label,
        "mode": outcome.program.mode,
        "score": to_json(outcome.score) if outcome.score is not None else None,
        "eager": _time(outcome.eager),
        "compiled": _time(outcome.compiled),
        "left_out": dict(outcome.left_out),
    }


def _time(point: TimePoint | None) -> PredictedTime | None:
    if point is None:
        return None
    low, mid, high = point.predicted.low, point.predicted.mid, point.predicted.high
    return {"low": low, "mid": mid, "high": high, "measured": point.measured_us}


def remembering(oracle: Oracle) -> Oracle:
    """Asked once a record: other rates price the same kernels."""
    known: dict[str, CompilePrediction] = {}

    def ask(asked: Question) -> CompilePrediction:
        if asked.case.record not in known:
            known[asked.case.record] = oracle(asked)
        return known[asked.case.record]

    return ask
