"""The assertion `history`: the newest run against those before it, with the cause of what changed. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TypeAlias

from app.check.config import Assertion
from app.check.contracts.judge import CHECK as CONTRACT
from app.check.contracts.judge import JudgedContract, contract_rows
from app.check.finding import Finding, Unmeasured, at_step
from app.check.measures import measures_of, method_of
from app.check.subject import Subject
from app.history.from_report import CONTRACT_METRICS, Recorded, RunContext, contract_subject, entries_made
from app.history.model import ENVIRONMENT_CAUSES, Entry, Measure
from app.history.newest import Newest, judge_newest
from app.history.shifts import Sensitivity

CHECK = "history"
NO_HISTORY = "there is no history to compare with: --history FILE names it"
NOTHING_MEASURED = "nothing was measured that a history could keep"

_Key: TypeAlias = tuple[str, str]
"""A measure's subject and metric."""


@dataclass(frozen=True, slots=True)
class Past:
    """The runs before this one, and what this one is of."""

    entries: tuple[Entry, ...]
    run: RunContext


def judge_history(
    assertion: Assertion, check: str, subjects: Sequence[Subject], contracts: Sequence[JudgedContract],
    past: Past | None,
) -> Iterator[Finding | Unmeasured]:  # fmt: skip
    """What got slower, or more, by at least min_increase, at the run that shows it. Another environment is a warning:
    the program cannot be judged by it. Nothing to go by is unmeasured; one new region among others is not."""
    every = [(subject, _kept_of(subject)) for subject in (*subjects, *(contract.subject for contract in contracts))]
    run = RunContext("0001-01-01") if past is None else past.run
    entries = runs_of(check, subjects, contracts, run)
    measured = {_key(measure) for entry in entries for measure in entry.measures}
    kept = [(subject, keys) for subject, keys in every if keys & measured]
    if past is None or not kept:
        reason = NO_HISTORY if past is None else NOTHING_MEASURED
        names = [subject.name for subject, _ in kept or every] or [""]
        yield from (Unmeasured(assertion.name, assertion.level, name, "", reason) for name in names)
        return
    of_contracts = [one for one in kept if one[0].kind == CONTRACT]
    for together in (*([one] for one in kept if one[0].kind != CONTRACT), of_contracts):
        judged = list(_newest(assertion, together, entries, past))
        for subject, newest in judged:
            if not newest.lacks:
                yield from _judged(assertion, subject, newest)
            elif all(other.lacks for _, other in judged):
                reason = f"{newest.measure.metric}: {newest.lacks}"
                region = _region(subject, newest.measure)
                yield Unmeasured(assertion.name, assertion.level, subject.name, region, reason)


def runs_of(
    check: str, subjects: Sequence[Subject], contracts: Sequence[JudgedContract], run: RunContext
) -> list[Entry]:  # fmt: skip
    """This check's runs, as `app.history.from_report` makes them of the report."""
    recorded = [
        Recorded(subject.body.get("device") or "", method_of(subject), measures_of(subject)) for subject in subjects
    ]
    return entries_made(check, recorded, contract_rows(contracts), run)


def _newest(
    assertion: Assertion, kept: Sequence[tuple[Subject, frozenset[_Key]]], entries: Sequence[Entry], past: Past
) -> Iterator[tuple[Subject, Newest]]:  # fmt: skip
    sensitivity = Sensitivity(assertion.confidence, min_runs=int(assertion.min_runs))
    for subject, keys in kept:
        for entry in entries:
            measures = tuple(m for m in entry.measures if _key(m) in keys and _is_wanted(assertion, subject, m))
            run = replace(entry, measures=measures)
            for newest in judge_newest(past.entries, run, sensitivity, past.run.commits, past.run.base):
                yield subject, newest


def _key(measure: Measure) -> _Key:
    return measure.subject, measure.metric


def _kept_of(subject: Subject) -> frozenset[_Key]:
    """What a history keeps of a subject."""
    if subject.kind != CONTRACT:
        return frozenset((m["subject"], m["metric"]) for m in measures_of(subject))
    names = [contract_subject(subject.name, of.get("name") or "") for of in subject.regions]
    return frozenset((name, metric) for name in names for _, metric, _ in CONTRACT_METRICS)


def _is_wanted(assertion: Assertion, subject: Subject, measure: Measure) -> bool:
    return fnmatchcase(measure.metric, assertion.metric) and fnmatchcase(_part(subject, measure), assertion.region)


def _part(subject: Subject, measure: Measure) -> str:
    """The region's name; "step" for the whole."""
    if subject.kind == CONTRACT:
        return measure.subject.removeprefix(contract_subject(subject.name, ""))
    return measure.subject.removeprefix(f"{subject.name}: ") if measure.subject != subject.name else "step"


def _region(subject: Subject, measure: Measure) -> str:
    part = _part(subject, measure)
    return "" if part == "step" and subject.kind != CONTRACT else part


def _judged(assertion: Assertion, subject: Subject, newest: Newest) -> Iterator[Finding]:
    measure, change = newest.measure, newest.change
    if change is None or change.ratio["mid"] < 1 + assertion.min_increase:
        return
    part, region = _part(subject, measure), _region(subject, measure)
    told = assertion
    if change.cause in ENVIRONMENT_CAUSES or change.cause == "noise":
        told = replace(assertion, level="warn")
    of = next((r for r in subject.regions if r.get("name") == region), None) if region else None
    source = of.get("source") if of else None
    message = f"{change.cause.capitalize()}: {part}, {measure.metric} {change.because}"
    action = change.how_to_separate.replace("\n# ", ", ").replace("\n", ", ")
    yield at_step(
        told, subject, message, region=region, key=f"{measure.subject} {measure.metric}",
        module=source["module"] if source else "", source=source["line"] if source else "",
        region_id=of.get("id") if of else None, action=action, new=True,
        time_us_per_step=None if subject.kind == CONTRACT else measure.value,
    )  # fmt: skip
