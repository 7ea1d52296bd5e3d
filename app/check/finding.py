"""What an assertion found, and what it could not judge."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from app.check.config import Assertion
from app.check.subject import Subject, evidence_of
from app.objects.check import CheckEvidence as Evidence
from app.objects.check import CheckFinding, Fingerprints, FiredSeverity
from app.objects.check import Severity as Level
from app.objects.check import Unmeasured as UnmeasuredObject
from app.objects.common import Range
from app.objects.region import SlimRegion


@dataclass(frozen=True, slots=True)
class Finding:
    """One assertion that does not hold, at one place. Speed-ups are ranges low, mid, high; times µs of one step.

    source: as the trace's stacks tell it, "models/bert.py:429 forward"; "" without stacks. new: whether the baseline
    has it not; None without a baseline. fingerprint: the same for the same assertion on the same part, whatever its
    times; region: of its shapes too.
    """

    assertion: str
    check: str
    level: Level
    subject: str
    message: str
    region: str = ""
    region_id: str | None = None
    module: str = ""
    source: str = ""
    action: str = ""
    call: str = ""
    tool: str = ""
    mode: str = ""
    share_of_step: float | None = None
    time_us_per_step: float | None = None
    region_speedup: Range | None = None
    step_speedup: Range | None = None
    evidence: Evidence | None = None
    new: bool | None = None
    fingerprints: Fingerprints = field(default_factory=lambda: Fingerprints(place="", region=""))


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """An assertion that could not be judged at one place, and why. Never a failure."""

    assertion: str
    level: Level
    subject: str
    region: str
    reason: str


def at_region(assertion: Assertion, subject: Subject, region: SlimRegion, message: str, new: bool | None) -> Finding:
    """A finding about a region, with all that its advice says."""
    advice, source = region.get("advice"), region.get("source")
    name, module = region.get("name") or "region", source["module"] if source else ""
    place = (assertion.name, name, module)
    return Finding(
        assertion=assertion.name,
        check=assertion.check,
        level=assertion.level,
        subject=subject.name,
        message=message,
        region=name,
        region_id=region.get("id"),
        module=module,
        source=source["line"] if source else "",
        action=advice["action"] if advice else "",
        call=advice["call"] if advice else "",
        tool=advice["tool"] if advice else "",
        mode=advice["mode"] if advice else "",
        share_of_step=region.get("share_of_step"),
        time_us_per_step=region.get("time_us_per_step"),
        region_speedup=advice["region_speedup"] if advice else None,
        step_speedup=advice["step_speedup"] if advice else None,
        evidence=evidence_of(region),
        new=new,
        fingerprints={"place": digest(*place), "region": digest(*place, str(region.get("key") or region.get("text")))},
    )


def at_step(
    assertion: Assertion, subject: Subject, message: str, *, region: str = "", region_id: str | None = None,
    module: str = "", source: str = "", action: str = "", call: str = "", mode: str = "", key: str = "",
    share_of_step: float | None = None,
    time_us_per_step: float | None = None, new: bool | None = None,
) -> Finding:  # fmt: skip
    """A finding about the whole step, or about one named part of it (`region`). key: its name for the fingerprint where
    the shown one has figures that change."""
    place = digest(assertion.name, key or region, module)
    return Finding(
        assertion.name, assertion.check, assertion.level, subject.name, message, region=region, region_id=region_id,
        module=module, source=source, action=action, call=call, mode=mode, share_of_step=share_of_step,
        time_us_per_step=time_us_per_step,
        new=new, fingerprints={"place": place, "region": place},
    )  # fmt: skip


def finding_json(finding: Finding) -> CheckFinding:
    """The API's object."""
    return {
        "assertion": finding.assertion,
        "check": finding.check,
        "level": _fired(finding.level),
        "subject": finding.subject,
        "message": finding.message,
        "region": finding.region,
        "region_id": finding.region_id,
        "module": finding.module,
        "source": finding.source,
        "action": finding.action,
        "call": finding.call,
        "tool": finding.tool,
        "mode": finding.mode,
        "share_of_step": finding.share_of_step,
        "time_us_per_step": finding.time_us_per_step,
        "region_speedup": finding.region_speedup,
        "step_speedup": finding.step_speedup,
        "evidence": finding.evidence,
        "new": finding.new,
        "fingerprints": finding.fingerprints,
    }


def _fired(level: Level) -> FiredSeverity:
    """What is off is not judged."""
    return "error" if level == "error" else "warn"


def unmeasured_json(unmeasured: Unmeasured) -> UnmeasuredObject:
    """The API's object."""
    return {
        "assertion": unmeasured.assertion,
        "level": _fired(unmeasured.level),
        "subject": unmeasured.subject,
        "region": unmeasured.region,
        "reason": unmeasured.reason,
    }


def digest(*parts: str) -> str:
    """32 hex digits of the parts."""
    joined = "\x00".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:32]
