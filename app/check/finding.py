"""What an assertion found, and what it could not judge."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.check.config import Assertion, Evidence, Level
from app.check.subject import Subject, evidence_of


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
    region_speedup: Mapping[str, float] | None = None
    step_speedup: Mapping[str, float] | None = None
    evidence: Evidence | None = None
    new: bool | None = None
    fingerprints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """An assertion that could not be judged at one place, and why. Never a failure."""

    assertion: str
    level: Level
    subject: str
    region: str
    reason: str


def at_region(
    assertion: Assertion, subject: Subject, region: Mapping[str, Any], message: str, new: bool | None
) -> Finding:
    """A finding about a region, with all that its advice says."""
    advice, source = region.get("advice") or {}, region.get("source") or {}
    name, module = str(region.get("name") or "region"), str(source.get("module") or "")
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
        source=str(source.get("line") or ""),
        action=str(advice.get("action") or ""),
        call=str(advice.get("call") or ""),
        tool=str(advice.get("tool") or ""),
        mode=str(advice.get("mode") or ""),
        share_of_step=region.get("share_of_step"),
        time_us_per_step=region.get("time_us_per_step"),
        region_speedup=advice.get("region_speedup"),
        step_speedup=advice.get("step_speedup"),
        evidence=evidence_of(region),
        new=new,
        fingerprints={"place": digest(*place), "region": digest(*place, str(region.get("key") or region.get("text")))},
    )


def at_step(assertion: Assertion, subject: Subject, message: str, **more: Any) -> Finding:
    """A finding about the whole step, or about one named part of it (`region`)."""
    place = (assertion.name, more.get("region", ""), more.get("module", ""))
    given = {"fingerprints": {"place": digest(*place), "region": digest(*place)}, **more}
    return Finding(assertion.name, assertion.check, assertion.level, subject.name, message, **given)


def digest(*parts: str) -> str:
    """32 hex digits of the parts."""
    joined = "\x00".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:32]
