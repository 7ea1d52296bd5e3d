"""Assertions on regions: on the advice's tool, on its criteria, on what beats what. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from app.check.config import CRITERIA, EVIDENCE, TOOLS, Assertion
from app.check.finding import Finding, Unmeasured, at_region
from app.check.subject import Subject, evidence_of

Json = Mapping[str, Any]
Judged = Finding | Unmeasured

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


def may_fire(assertion: Assertion, region: Json) -> bool:
    """Whether measuring the region could make or break the assertion: what --validate has to measure."""
    if assertion.check == "beats":
        return bool(region.get("advice")) and _looked_at(assertion, region)
    return assertion.check in KINDS and assertion.evidence == "measured" and _fires(assertion, region) is not None


def _find_fired(assertion: Assertion, baseline: Subject) -> frozenset[Any]:
    """The regions of the baseline on which the assertion fires, by every name they can be known again by."""
    return frozenset(n for r in baseline.regions if _fires(assertion, r) is not None for n in _names(r))


def _names(region: Json) -> frozenset[Any]:
    module = (region.get("source") or {}).get("module") or ""
    key = region.get("key") or region.get("text")
    return frozenset({("key", key)} if key else ()) | {("place", region.get("name"), module)}


def _fires(assertion: Assertion, region: Json) -> tuple[str, str] | None:
    """(message, why it cannot be judged or ""); None where it does not fire, for all that is known."""
    if not _looked_at(assertion, region) or not region.get("advice"):
        return None
    return KINDS[assertion.check](assertion, region)


def _looked_at(assertion: Assertion, region: Json) -> bool:
    names = (str(region.get("name") or ""), str(region.get("key") or ""))
    share = region.get("share_of_step")
    return any(fnmatchcase(n, assertion.region) for n in names) and (share is None or share >= assertion.min_share)


def _tool(assertion: Assertion, region: Json) -> tuple[str, str] | None:
    advice = region["advice"]
    if advice.get("tool") != assertion.check:
        return None
    return _gains(assertion, region, f"{advice.get('headline') or assertion.check}{_share_words(region)}")


def _criterion(assertion: Assertion, region: Json) -> tuple[str, str] | None:
    advice = region["advice"]
    found = next((c for c in advice.get("criteria") or () if c.get("name") == assertion.check), None)
    fires_at, only_active = CRITERIA[assertion.check]
    wanted = fires_at if assertion.holds is None else assertion.holds
    active = advice.get("tool") != "skip"
    if found is None or (only_active and not active):
        return None
    if assertion.check == "fast-enough" and found.get("threshold") is None:
        return None  # no target step time was given
    if assertion.check == "worth-it" and found.get("holds") is None:
        found = {**found, "holds": True}  # the rule: an unknown share counts as worth it
    message = f"{region.get('name')}: {found.get('because') or assertion.check}{_share_words(region)}"
    if found.get("holds") is None:
        return message, f"{assertion.check} could not be judged: {found.get('because')}"
    return _gains(assertion, region, message) if found["holds"] is wanted else None


def _gains(assertion: Assertion, region: Json, message: str) -> tuple[str, str] | None:
    """None where following the advice gains less than is asked for."""
    for least, name in ((assertion.min_speedup, "region_speedup"), (assertion.min_step_speedup, "step_speedup")):
        if least is None:
            continue
        found = region["advice"].get(name)
        if found is None:
            return message, f"a speed-up of {least:g} is asked for, and none is predicted for this region"
        if found["mid"] < least:
            return None
    return message, ""


def _beats(assertion: Assertion, region: Json) -> tuple[str, str] | None:
    """Fires where the candidate was measured and does not beat the other by as much as is asked for."""
    if evidence_of(region) == "predicted":
        return "", NOT_VALIDATED
    timed = {c["name"]: c for c in region["advice"]["validation"].get("candidates") or ()}
    mine = timed.get(assertion.candidate)
    if mine is None:
        return "", f"{assertion.candidate} was not among the candidates that were measured"
    if mine.get("status") == "mismatch":
        return f"{assertion.candidate} gives a wrong result: {mine.get('message') or 'mismatch'}", ""
    if not mine.get("time_us"):
        return "", f"{assertion.candidate} was not timed: {mine.get('message') or mine.get('status')}"
    others = {n: c for n, c in timed.items() if n != assertion.candidate and c.get("time_us")}
    over = others.get(assertion.over) if assertion.over else min(
        others.values(), key=lambda c: float(c["time_us"]["median"]), default=None
    )  # fmt: skip
    if over is None:
        return "", f"{assertion.over or 'no other candidate'} was not timed"
    ours, theirs = mine["time_us"], over["time_us"]
    least = assertion.min_speedup or 1.0
    # Only where the whole interval says so: noise is no regression.
    if theirs["high"] / ours["low"] >= least:
        return None
    return (
        f"{assertion.candidate} takes {_interval(ours)}, {over['name']} {_interval(theirs)}: "
        f"{theirs['median'] / ours['median']:.3g} times as fast, {least:g} is asked for"
    ), ""


def _interval(time_us: Json) -> str:
    return f"{time_us['median']:.4g} µs [{time_us['low']:.4g}, {time_us['high']:.4g}]"


def _lacks_evidence(assertion: Assertion, subject: Subject, place: int, region: Json) -> str:
    """Why the region's evidence is weaker than asked for, or ""."""
    wanted, found = assertion.evidence, evidence_of(region)
    if EVIDENCE.index(found) >= EVIDENCE.index(wanted):
        return ""
    if why := subject.unmeasured.get(place) or _reason(region):
        return why
    return NOT_RECORDED if wanted == "recorded" else NOT_VALIDATED


def _reason(region: Json) -> str:
    """What a validation that measured nothing says of it."""
    validation = (region.get("advice") or {}).get("validation") or {}
    return str(validation.get("reason") or "") if validation.get("outcome") == "unmeasured" else ""


def _share_words(region: Json) -> str:
    share = region.get("share_of_step")
    return "" if share is None else f"; {share:.1%} of the step"


KINDS: Mapping[str, Callable[[Assertion, Json], tuple[str, str] | None]] = {
    **dict.fromkeys(TOOLS, _tool),
    **dict.fromkeys(CRITERIA, _criterion),
    "beats": _beats,
}
