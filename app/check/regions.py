"""Assertions on regions: on the advice's tool, on its criteria, on what beats what. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TypeAlias

from app.check.config import CRITERIA, EVIDENCE, TOOLS, Assertion
from app.check.finding import Finding, Unmeasured, at_region
from app.check.subject import Subject, evidence_of
from app.objects.advice import Advice
from app.objects.common import Interval
from app.objects.region import SlimRegion

Judged = Finding | Unmeasured
Name: TypeAlias = tuple[str | None, ...]
"""What a region can be known again by."""

NOT_VALIDATED = "measured evidence is asked for and there is none: check with --validate on a host with a GPU"
WITHOUT_ADVICE = "advising on this region failed: the trace's notes say how"
NOT_RECORDED = "recorded evidence is asked for, and the archive has no record of this region on this device"


def on_regions(assertion: Assertion, subject: Subject, baseline: Subject | None) -> Iterator[Judged]:
    """What the assertion finds on a subject's regions. The baseline is a trace's: a region by itself is neither new
    nor old, and new_only does not concern it."""
    if subject.kind == "region":
        baseline = None
        if assertion.new_only:
            return
    if assertion.new_only and baseline is None:
        yield Unmeasured(assertion.name, assertion.level, subject.name, "", "new_only needs a baseline")
        return
    before = None if baseline is None else _find_fired(assertion, baseline)
    for place, region in enumerate(subject.regions):
        if not region.get("advice") and _looked_at(assertion, region):
            name = str(region.get("name") or "")
            yield Unmeasured(assertion.name, assertion.level, subject.name, name, WITHOUT_ADVICE)
            continue
        fired = _fires(assertion, region)
        if fired is None:
            continue
        message, unknown = fired
        unknown = _lacks_evidence(assertion, subject, place, region) or unknown
        new = None if before is None else not _names(region) & before
        if new is False and assertion.new_only:
            continue
        if unknown:
            yield Unmeasured(assertion.name, assertion.level, subject.name, str(region.get("name") or ""), unknown)
        else:
            yield at_region(assertion, subject, region, message, new)


def may_fire(assertion: Assertion, region: SlimRegion) -> bool:
    """Whether measuring the region could make or break the assertion: what --validate has to measure."""
    if assertion.check == "beats":
        return bool(region.get("advice")) and _looked_at(assertion, region)
    return assertion.check in KINDS and assertion.evidence == "measured" and _fires(assertion, region) is not None


def _find_fired(assertion: Assertion, baseline: Subject) -> frozenset[Name]:
    """The regions of the baseline on which the assertion fires, by every name they can be known again by."""
    return frozenset(n for r in baseline.regions if _fires(assertion, r) is not None for n in _names(r))


def _names(region: SlimRegion) -> frozenset[Name]:
    source = region.get("source")
    key = region.get("key") or region.get("text")
    names: list[Name] = [("place", region.get("name"), source["module"] if source else "")]
    return frozenset([*names, ("key", key)] if key else names)


def _fires(assertion: Assertion, region: SlimRegion) -> tuple[str, str] | None:
    """(message, why it cannot be judged or ""); None where it does not fire, for all that is known."""
    advice = region.get("advice")
    if not advice or not _looked_at(assertion, region):
        return None
    return KINDS[assertion.check](assertion, region, advice)


def _looked_at(assertion: Assertion, region: SlimRegion) -> bool:
    names = (str(region.get("name") or ""), str(region.get("key") or ""))
    share = region.get("share_of_step")
    return any(fnmatchcase(n, assertion.region) for n in names) and (share is None or share >= assertion.min_share)


def _tool(assertion: Assertion, region: SlimRegion, advice: Advice) -> tuple[str, str] | None:
    if advice["tool"] != assertion.check:
        return None
    return _gains(assertion, advice, f"{advice['headline'] or assertion.check}{_share_words(region)}")


def _criterion(assertion: Assertion, region: SlimRegion, advice: Advice) -> tuple[str, str] | None:
    criterion = next((c for c in advice["criteria"] if c["name"] == assertion.check), None)
    fires_at, only_active = CRITERIA[assertion.check]
    wanted = fires_at if assertion.holds is None else assertion.holds
    active = advice["tool"] != "skip"
    if criterion is None or (only_active and not active):
        return None
    if assertion.check == "fast-enough" and criterion["threshold"] is None:
        return None  # no target step time was given
    holds = criterion["holds"]
    if assertion.check == "worth-it" and holds is None:
        holds = True  # the rule: an unknown share counts as worth it
    message = f"{region.get('name')}: {criterion['because'] or assertion.check}{_share_words(region)}"
    if holds is None:
        return message, f"{assertion.check} could not be judged: {criterion['because']}"
    return _gains(assertion, advice, message) if holds is wanted else None


def _gains(assertion: Assertion, advice: Advice, message: str) -> tuple[str, str] | None:
    """None where following the advice gains less than is asked for."""
    for least, speedup in (
        (assertion.min_speedup, advice["region_speedup"]),
        (assertion.min_step_speedup, advice["step_speedup"]),
    ):
        if least is None:
            continue
        if speedup is None:
            return message, f"a speed-up of {least:g} is asked for, and none is predicted for this region"
        if speedup["mid"] < least:
            return None
    return message, ""


def _beats(assertion: Assertion, region: SlimRegion, advice: Advice) -> tuple[str, str] | None:
    """Fires where the candidate was measured and does not beat the other by as much as is asked for."""
    validation = advice["validation"]
    if validation is None or evidence_of(region) == "predicted":
        return "", NOT_VALIDATED
    measured = {c["name"]: c for c in validation["candidates"]}
    mine = measured.get(assertion.candidate)
    if mine is None:
        return "", f"{assertion.candidate} was not among the candidates that were measured"
    if mine["status"] == "mismatch":
        return f"{assertion.candidate} gives a wrong result: {mine['message'] or 'mismatch'}", ""
    ours = mine["time_us"]
    if not ours:
        return "", f"{assertion.candidate} was not timed: {mine['message'] or mine['status']}"
    others = {n: t for n, c in measured.items() if n != assertion.candidate and (t := c["time_us"])}
    over = assertion.over or min(others, key=lambda n: others[n]["median"], default="")
    theirs = others.get(over)
    if theirs is None:
        return "", f"{assertion.over or 'no other candidate'} was not timed"
    least = assertion.min_speedup or 1.0
    # Only where the whole interval says so: noise is no regression.
    if theirs["high"] / ours["low"] >= least:
        return None
    return (
        f"{assertion.candidate} takes {_interval(ours)}, {over} {_interval(theirs)}: "
        f"{theirs['median'] / ours['median']:.3g} times as fast, {least:g} is asked for"
    ), ""


def _interval(time_us: Interval) -> str:
    return f"{time_us['median']:.4g} µs [{time_us['low']:.4g}, {time_us['high']:.4g}]"


def _lacks_evidence(assertion: Assertion, subject: Subject, place: int, region: SlimRegion) -> str:
    """Why the region's evidence is weaker than asked for, or ""."""
    wanted = assertion.evidence
    if EVIDENCE.index(evidence_of(region)) >= EVIDENCE.index(wanted):
        return ""
    if why := subject.unmeasured.get(place) or _reason(region):
        return why
    return NOT_RECORDED if wanted == "recorded" else NOT_VALIDATED


def _reason(region: SlimRegion) -> str:
    """What a validation that measured nothing says of it."""
    advice = region.get("advice")
    validation = advice["validation"] if advice else None
    return validation["reason"] if validation and validation["outcome"] == "unmeasured" else ""


def _share_words(region: SlimRegion) -> str:
    share = region.get("share_of_step")
    return "" if share is None else f"; {share:.1%} of the step"


KINDS: Mapping[str, Callable[[Assertion, SlimRegion, Advice], tuple[str, str] | None]] = {
    **dict.fromkeys(TOOLS, _tool),
    **dict.fromkeys(CRITERIA, _criterion),
    "beats": _beats,
}
