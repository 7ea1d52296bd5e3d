"""Score: advice compared with the measurement of its case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.accuracy.case import Case
from app.advice.model import Advice, Alternative
from app.objects.accuracy import ScoreFigures
from app.thresholds import DEFAULTS
from kernels.measure import outcome as measured
from kernels.measure.model import Interval

ADVISED, NEXT, SHARE = "advised", "next", "share"
COLUMNS: Mapping[str, str] = {
    ADVISED: "the advised candidate was measured",
    NEXT: "the advised candidate was not measured, the next runnable counts",
    SHARE: "left alone for its share of the step",
}

WRITTEN = "triton:custom"
"""The advice to write a kernel: a kernel of this project's own, measured under its name, is what it would be."""

Point = tuple[str, float, float]


@dataclass(frozen=True, slots=True)
class Score:
    """One case, scored.

    tool, mode: as advised. advised: the candidate that means; counted: the one whose figure counts (see column). best:
    the fastest measured; winner: what DESIGN's rule picks from the measured figures. regret: counted over best, 1 is
    perfect. right: the winner's tool was counted; outcome: the same with ties, as a validation would say it.
    predicted, measured: speed-up of the counted candidate over eager, None for eager itself or where either is not
    known. calibration: (candidate, predicted, measured) of every candidate with both.
    """

    record: str
    name: str
    program: str
    half: str
    labelled: bool
    device: str
    date: str
    by: str
    share_of_step: float | None
    tool: str
    mode: str
    advised: str
    column: str
    counted: str
    counted_tool: str
    best: str
    winner: str
    winner_tool: str
    regret: float
    right: bool
    outcome: str
    predicted: float | None
    measured: float | None
    calibration: tuple[Point, ...]


def score(case: Case, advice: Advice) -> Score | None:
    """None where neither the advised candidate nor any other of the advice was measured."""
    meant = alternative_of(advice)
    names = _names(case, meant)
    advised = next((n for n in names if case.contender(n)), None)
    counted = advised or _next_runnable(case, advice, advice.tool)
    chosen = case.contender(counted) if counted else None
    if chosen is None:
        return None
    column = SHARE if _for_its_share(case, advice) else ADVISED if advised else NEXT
    mode = advice.mode if column != NEXT else chosen.name.removeprefix("compile-")
    outcome = case.decided({"tool": _tool(chosen.tool), "mode": mode})
    assert outcome.winner is not None and outcome.best is not None  # two contenders at least
    won = case.contender(outcome.winner)
    assert won is not None
    calibration = _calibration(case, advice)
    point = next(((p, m) for n, p, m in calibration if n == chosen.name), (None, None))
    validation = case.validation
    return Score(
        record=case.record, name=case.name, program=case.program, half=case.half, labelled=case.label is not None,
        device=validation.device or "", date=validation.date, by=case.by, share_of_step=case.share_of_step,
        tool=advice.tool, mode=advice.mode, advised=advised or meant.candidate, column=column,
        counted=chosen.name, counted_tool=chosen.tool, best=outcome.best, winner=outcome.winner, winner_tool=won.tool,
        regret=chosen.time_us / case.least, right=won.tool == chosen.tool, outcome=outcome.outcome,
        predicted=point[0], measured=point[1], calibration=calibration,
    )  # fmt: skip


def alternative_of(advice: Advice) -> Alternative:
    """The alternative that the advice took: of its tool and mode, the fastest where several are alike."""
    alike = [a for a in advice.alternatives if a.tool == advice.tool and a.mode == advice.mode]
    # Under `skip` the mode is torch.compile's word for nothing.
    alike = alike or [a for a in advice.alternatives if a.tool == advice.tool]
    same_call = [a for a in alike if a.call == advice.call] or alike
    return min(same_call, key=_mid)


def _mid(alternative: Alternative) -> float:
    return alternative.time_us.mid if alternative.time_us else float("inf")


def _tool(tool: str) -> str:
    """A candidate's tool as advice says it."""
    return "skip" if tool == "eager" else tool


def _names(case: Case, alternative: Alternative) -> tuple[str, ...]:
    """The candidates that an alternative means."""
    if alternative.candidate != WRITTEN:
        return (alternative.candidate,)
    return tuple(n for n in case.of_tool("triton") if n != "triton:generated")


def _next_runnable(case: Case, advice: Advice, tool: str) -> str | None:
    """What the decision rule takes from the predictions of those admitted candidates that were measured.

    For an advised library the next of any tool; for any other tool what was measured of that tool: advice to write
    Triton is wrong where torch.compile was right, whichever kernel was measured.
    """
    predicted: dict[str, tuple[str, float]] = {}
    for alternative in advice.alternatives:
        if alternative.admitted and alternative.time_us is not None:
            for name in _names(case, alternative):
                if contender := case.contender(name):
                    predicted.setdefault(name, (contender.tool, alternative.time_us.mid))
    if tool != "library":
        predicted = {n: v for n, v in predicted.items() if _tool(v[0]) == tool}
    if not predicted:
        return None
    easier = [t for tool, t in predicted.values() if tool != "triton"]
    contenders = []
    for name, (tool, time_us) in predicted.items():
        ratio = time_us / min(easier) if tool == "triton" and easier else None
        span = Interval(ratio, ratio, ratio) if ratio is not None else None
        contenders.append(measured.Contender(name, tool, time_us, span))
    return measured.winner(contenders).name


def _for_its_share(case: Case, advice: Advice) -> bool:
    """Left alone because its share of the step is too small, whatever could be gained of it.

    A region that is left alone because too little was predicted to be gained is scored with the others.
    """
    share = case.share_of_step
    return advice.tool == "skip" and share is not None and share < DEFAULTS.worth_share


def _calibration(case: Case, advice: Advice) -> tuple[Point, ...]:
    predicted = {n: a.time_us.mid for a in advice.alternatives if a.time_us for n in _names(case, a)}
    base = predicted.get("eager")
    if not base:
        return ()
    points: list[Point] = []
    for candidate in case.validation.candidates:
        ratio, time_us = candidate.ratio_to_eager, predicted.get(candidate.name)
        if candidate.tool != "eager" and candidate.status == "ok" and ratio and time_us:
            points.append((candidate.name, base / time_us, 1 / ratio.median))
    return tuple(points)


def from_json(body: ScoreFigures) -> Score:
    """Inverse of `to_json`."""
    calibration = tuple((name, predicted, measured) for name, predicted, measured in body["calibration"])
    fields: dict[str, Any] = {**body, "calibration": calibration}
    return Score(**fields)
