"""Assertions on a step as a whole: its time, its change against a baseline, its idle GPU, what stops torch.compile, and
what it could be run with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase

from app.check.config import Assertion
from app.check.finding import Finding, Unmeasured, at_step
from app.check.subject import Subject
from app.objects.obstacle import Obstacle
from app.objects.trace import ComparedPart, Comparison
from app.trace_report.actions.listed import before_us, line, saving_words
from app.trace_report.comparison.compare import RECORD_SEVERAL, SLOWER, compare_traces
from app.units import duration

Judged = Finding | Unmeasured

NO_BASELINE = "there is no baseline to compare with"
OLD_BASELINE = "the baseline was read by a version that made no actions: read it again"
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
        before, after, ratio = row["a"], row["b"], row["ratio"]
        if row["kind"] != "region" or row["verdict"] != SLOWER or not fnmatchcase(row["name"], assertion.region):
            continue
        if before is None or after is None or ratio is None or ratio <= 1 + assertion.max_increase:
            continue
        share = after / step if step else None
        if share is not None and share < assertion.min_share:
            continue
        message = (
            f"{row['name']} takes {duration(after)} of a step, {ratio - 1:.1%} longer than the baseline's "
            f"{duration(before)}"
        )
        yield at_step(
            assertion, subject, message, region=row["name"], module=row["module"], new=True,
            source=_line_of(subject, row), region_id=row["b_id"], share_of_step=share, time_us_per_step=after,
        )  # fmt: skip


def _line_of(subject: Subject, row: ComparedPart) -> str:
    """Where the region of a row is written, as the stacks tell it; "" where they do not."""
    by_id = next((r for r in subject.regions if r.get("id") == row["b_id"] and r.get("id")), None)
    region = by_id or next((r for r in subject.regions if r.get("name") == row["name"]), None)
    source = region.get("source") if region else None
    return source["line"] if source else ""


def _compare(assertion: Assertion, subject: Subject, baseline: Subject | None) -> Comparison | Unmeasured:
    if baseline is None:
        return _unknown(assertion, subject, NO_BASELINE)
    if baseline.error:
        return _unknown(assertion, subject, f"the baseline cannot be read: {baseline.error}")
    compared = compare_traces(baseline.body, subject.body, SIDES)
    if compared["refused"]:
        return _unknown(assertion, subject, compared["because"])
    step, single = compared["step"], SIDES[0 if _steps(baseline) < 2 else 1]
    if step is not None and min(_steps(baseline), _steps(subject)) < 2:
        reason = f"{single} has one step, so how much its steps differ by themselves is not known: {RECORD_SEVERAL}"
        return _unknown(assertion, subject, reason)
    return compared


def _steps(subject: Subject) -> int:
    times = subject.body.get("step_times")
    return times["count"] if times else 0


def _step_time(assertion: Assertion, subject: Subject, baseline: Subject | None) -> Iterator[Judged]:
    """The step takes longer than max_us."""
    step_us = subject.body.get("step_time_us")
    if not step_us:
        yield _unknown(assertion, subject, "the trace does not tell the time of its steps")
    elif assertion.max_us is not None and step_us > assertion.max_us:
        message = f"The step takes {duration(step_us)}, more than {duration(assertion.max_us)}"
        yield at_step(assertion, subject, message, time_us_per_step=step_us)


def _gpu_idle(assertion: Assertion, subject: Subject, baseline: Subject | None) -> Iterator[Judged]:
    """The GPU idles for more than max_share of the step."""
    parts = subject.body.get("step_parts")
    if not parts:
        yield _unknown(assertion, subject, "the trace does not tell what the GPU waits for")
        return
    share, most = parts["idle_share"], assertion.max_share
    if most is None or share is None or share <= most:
        return
    waits = [r for r in subject.body.get("rests") or () if r["kind"] == "idle" and r["time_us"]]
    worst = max(waits, key=lambda r: r["time_us"], default=None)
    message = f"The GPU idles for {share:.1%} of the step, more than {most:.1%}"
    message += f"; most of it {worst['name'].removeprefix('idle: ')}" if worst else ""
    yield at_step(assertion, subject, message, action=worst["remedy"] if worst else "", share_of_step=share)


def _compile_blocker(assertion: Assertion, subject: Subject, baseline: Subject | None) -> Iterator[Judged]:
    """Something stops torch.compile."""
    if assertion.new_only and baseline is None:
        yield _unknown(assertion, subject, "new_only needs a baseline")
        return
    before = None if baseline is None else {_blocker_name(o) for o in baseline.body.get("compile_obstacles") or ()}
    for blocker in subject.body.get("compile_obstacles") or ():
        new = None if before is None else _blocker_name(blocker) not in before
        if not fnmatchcase(blocker["kind"], assertion.kind) or (assertion.new_only and new is False):
            continue
        message = f"{blocker['title']}: {blocker['op']} {blocker['does']}, {blocker['calls_per_step']:.3g} a step"
        yield at_step(
            assertion, subject, message, region=blocker["op"], action=blocker["remedy"],
            module=_first(blocker["modules"]), source=_first(blocker["sources"]), new=new,
        )  # fmt: skip


def _step_option(assertion: Assertion, subject: Subject, baseline: Subject | None) -> Iterator[Judged]:
    """Something can be done about the step as a whole: an option among the trace's actions, and not one of the
    regions' own, which the assertions on regions find, nor one that stands in another's place."""
    if assertion.new_only and baseline is None:
        yield _unknown(assertion, subject, "new_only needs a baseline")
        return
    if assertion.new_only and baseline is not None and (baseline.error or "actions" not in baseline.body):
        reason = f"the baseline cannot be read: {baseline.error}" if baseline.error else OLD_BASELINE
        yield _unknown(assertion, subject, reason)
        return
    before = None if baseline is None else {a["id"] for a in baseline.body.get("actions") or ()}
    step_us = before_us(subject.body)
    for option in subject.body.get("actions") or ():
        new = None if before is None else option["id"] not in before
        whole = option["scope"] == "step" and not option["instead_of"]
        if not whole or not fnmatchcase(option["tool"], assertion.tool):
            continue
        saves = option["saves_us"]
        saving = saves["mid"] / step_us if saves is not None and step_us else None
        if (saving or 0.0) < assertion.min_saving or (assertion.new_only and new is False):
            continue
        where = option["where"]
        yield at_step(
            assertion, subject, f"{option['title']}: {saving_words(option)}", region=option["title"], key=option["id"],
            module=where["module"] if where else "", source=line(where) if where else "", action=option["because"],
            call=option["call"], mode=option["mode"], new=new,
        )  # fmt: skip


def _blocker_name(blocker: Obstacle) -> tuple[str, str, str]:
    return blocker["kind"], blocker["op"], _first(blocker["modules"])


def _first(texts: list[str]) -> str:
    return texts[0] if texts else ""


KINDS: Mapping[str, Callable[[Assertion, Subject, Subject | None], Iterator[Judged]]] = {
    "regression": _regression,
    "region-regression": _region_regression,
    "step-time": _step_time,
    "gpu-idle": _gpu_idle,
    "obstacle": _compile_blocker,
    "step-option": _step_option,
}
