"""The assertion `history`: the newest run against those before it, with the cause of what changed. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from app.check.config import Assertion
from app.check.finding import Finding, Unmeasured, at_step
from app.check.measures import measures_of, method_of
from app.check.subject import Subject
from app.history.from_report import RunContext, entry_made
from app.history.model import ENVIRONMENT_CAUSES, Entry, Measure
from app.history.newest import Newest, judge_newest
from app.history.shifts import Sensitivity

CHECK = "history"
NO_HISTORY = "there is no history to compare with: --history FILE names it"
NOTHING_MEASURED = "nothing was measured that a history could keep"


@dataclass(frozen=True, slots=True)
class Past:
    """The runs before this one, and what this one is of."""

    entries: tuple[Entry, ...]
    run: RunContext


def judge_history(
    assertion: Assertion, check: str, subjects: Sequence[Subject], past: Past | None
) -> Iterator[Finding | Unmeasured]:  # fmt: skip
    """What got slower by at least min_increase, at the run that shows it. A slower environment is a warning: the
    program cannot be judged by it. Nothing to go by is unmeasured."""
    traces = [subject for subject in subjects if measures_of(subject)]
    if past is None or not traces:
        for subject in traces or subjects:
            reason = NO_HISTORY if past is None else NOTHING_MEASURED
            yield Unmeasured(assertion.name, assertion.level, subject.name, "", reason)
        return
    sensitivity = Sensitivity(assertion.confidence, min_runs=int(assertion.min_runs))
    entry = run_of(check, subjects, past.run)
    for subject in traces:
        own = {(m["subject"], m["metric"]) for m in measures_of(subject)}
        measures = [m for m in entry.measures if (m.subject, m.metric) in own and _is_wanted(assertion, subject, m)]
        run = replace(entry, measures=tuple(measures))
        for newest in judge_newest(past.entries, run, sensitivity, past.run.commits, past.run.base):
            yield from _judged(assertion, subject, newest)


def run_of(check: str, subjects: Sequence[Subject], run: RunContext) -> Entry:
    """This run, as `app.history.from_report` makes it of the report."""
    traces = [subject for subject in subjects if measures_of(subject)]
    measures = [
        Measure(m["subject"], m["metric"], m["unit"], m["value"], m["samples"], m["spread"])
        for subject in traces for m in measures_of(subject)
    ]  # fmt: skip
    devices = dict.fromkeys(device for subject in traces if (device := subject.body.get("device")))
    methods = dict.fromkeys(method for subject in traces if (method := method_of(subject)))
    return entry_made(check, measures, list(devices), list(methods), run)


def _is_wanted(assertion: Assertion, subject: Subject, measure: Measure) -> bool:
    return fnmatchcase(measure.metric, assertion.metric) and fnmatchcase(_part(subject, measure), assertion.region)


def _part(subject: Subject, measure: Measure) -> str:
    """The region's name; "step" for the whole."""
    return measure.subject.removeprefix(f"{subject.name}: ") if measure.subject != subject.name else "step"


def _judged(assertion: Assertion, subject: Subject, newest: Newest) -> Iterator[Finding | Unmeasured]:
    measure, change = newest.measure, newest.change
    part = _part(subject, measure)
    region = "" if part == "step" else part
    if newest.lacks:
        yield Unmeasured(assertion.name, assertion.level, subject.name, region, f"{measure.metric}: {newest.lacks}")
        return
    if change is None or change.ratio["mid"] < 1 + assertion.min_increase:
        return
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
        region_id=of.get("id") if of else None, action=action, time_us_per_step=measure.value, new=True,
    )  # fmt: skip
