"""Assertions on a step as a whole: its time, its change against a baseline, its idle GPU, what stops torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from app.check.config import Assertion
from app.check.finding import Finding, Unmeasured, at_step
from app.check.subject import Subject
from app.trace_report.compare import SLOWER, compare_traces
from app.units import duration

Json = Mapping[str, Any]
Judged = Finding | Unmeasured

NO_BASELINE = "there is no baseline to compare with"
SIDES = ("the baseline", "this trace")
"""What words of a comparison call the two; `judge` takes the same."""


def _unknown(assertion: Assertion, subject: Subject, reason: str) -> Unmeasured:
    return Unmeasured(assertion.name, assertion.level, subject.name, "", reason)


def _regression(assertion: Assertion, subject: Subject, baseline: Subject | None) -> Iterator[Judged]:
    """The step got slower by more than max_increase, beyond the spread of both."""
    compared = _compare(assertion, subject, baseline)
    if isinstance(compared, Unmeasured):
        yield compared
        return
    step = compared["step"]
    if step is None or not step["ratio"]:
        yield _unknown(assertion, subject, "a trace does not tell the time of its steps")
    elif step["verdict"] == SLOWER and step["ratio"] > 1 + assertion.max_increase:
        now, then = step["b"]["median_us"], step["a"]["median_us"]
        message = f"The step takes {duration(now)}, {step['ratio'] - 1:.1%} longer than the baseline's {duration(then)}"
        yield at_step(assertion, subject, message, time_us_per_step=now, new=True)


def _region_regression(assertion: Assertion, subject: Subject, baseline: Subject | None) -> Iterator[Judged]:
    """A region got slower by more than max_increase, beyond what the steps differ by themselves."""
    compared = _compare(assertion, subject, baseline)
    if isinstance(compared, Unmeasured):
        yield compared
        return
    step = subject.body.get("step_time_us")
    for row in compared["rows"]:
        share = row["b"] / step if row["b"] is not None and step else None
        if row["kind"] != "region" or row["verdict"] != SLOWER or not fnmatchcase(row["name"], assertion.region):
            continue
        if row["ratio"] <= 1 + assertion.max_increase or (share is not None and share < assertion.min_share):
            continue
        region = next((r for r in subject.regions if r.get("id") == row["b_id"] and r.get("id")), None) or next(
            (r for r in subject.regions if r.get("name") == row["name"]), {}
        )
        message = (
            f"{row['name']} takes {duration(row['b'])} of a step, {row['ratio'] - 1:.1%} longer than the baseline's "
            f"{duration(row['a'])}"
        )
        yield at_step(
            assertion, subject, message, region=row["name"], module=row["module"] or "", new=True,
            source=str((region.get("source") or {}).get("line") or ""), region_id=row["b_id"], share_of_step=share,
            time_us_per_step=row["b"],
        )  # fmt: skip


def _compare(assertion: Assertion, subject: Subject, baseline: Subject | None) -> dict[str, Any] | Unmeasured:
    if baseline is None:
        return _unknown(assertion, subject, NO_BASELINE)
    if baseline.error:
        return _unknown(assertion, subject, f"the baseline cannot be read: {baseline.error}")
    found = compare_traces(baseline.body, subject.body, SIDES)
    return _unknown(assertion, subject, found["because"]) if found["refused"] else found


def _step_time(assertion: Assertion, subject: Subject, baseline: Subject | None) -> Iterator[Judged]:
    """The step takes longer than max_us."""
    found = (subject.body.get("step_times") or {}).get("median_us") or subject.body.get("step_time_us")
    if not found:
        yield _unknown(assertion, subject, "the trace does not tell the time of its steps")
    elif assertion.max_us is not None and found > assertion.max_us:
        message = f"The step takes {duration(found)}, more than {duration(assertion.max_us)}"
        yield at_step(assertion, subject, message, time_us_per_step=found)


def _gpu_idle(assertion: Assertion, subject: Subject, baseline: Subject | None) -> Iterator[Judged]:
    """The GPU idles for more than max_share of the step."""
    parts = subject.body.get("step_parts")
    if not parts:
        yield _unknown(assertion, subject, "the trace does not tell what the GPU waits for")
        return
    share, most = parts["idle_share"], assertion.max_share
    if most is None or share <= most:
        return
    waits = [r for r in subject.body.get("rests") or () if r.get("kind") == "idle" and r.get("time_us")]
    worst = max(waits, key=lambda r: float(r["time_us"]), default=None)
    message = f"The GPU idles for {share:.1%} of the step, more than {most:.1%}"
    message += f"; most of it {worst['name'].removeprefix('idle: ')}" if worst else ""
    yield at_step(assertion, subject, message, action=str(worst["remedy"]) if worst else "", share_of_step=share)


def _obstacle(assertion: Assertion, subject: Subject, baseline: Subject | None) -> Iterator[Judged]:
    """Something stops torch.compile."""
    if assertion.new_only and baseline is None:
        yield _unknown(assertion, subject, "new_only needs a baseline")
        return
    before = None if baseline is None else {_obstacle_name(o) for o in baseline.body.get("compile_obstacles") or ()}
    for found in subject.body.get("compile_obstacles") or ():
        new = None if before is None else _obstacle_name(found) not in before
        if not fnmatchcase(str(found.get("kind") or ""), assertion.kind) or (assertion.new_only and new is False):
            continue
        message = (
            f"{found.get('title')}: {found.get('op')} {found.get('does')}, {found.get('calls_per_step'):.3g} a step"
        )
        yield at_step(
            assertion, subject, message, region=str(found.get("op") or ""), action=str(found.get("remedy") or ""),
            module=str((found.get("modules") or [""])[0]), source=str((found.get("sources") or [""])[0]), new=new,
        )  # fmt: skip


def _obstacle_name(found: Json) -> tuple[str, str, str]:
    return str(found.get("kind")), str(found.get("op")), str((found.get("modules") or [""])[0])


KINDS: Mapping[str, Callable[[Assertion, Subject, Subject | None], Iterator[Judged]]] = {
    "regression": _regression,
    "region-regression": _region_regression,
    "step-time": _step_time,
    "gpu-idle": _gpu_idle,
    "obstacle": _obstacle,
}
