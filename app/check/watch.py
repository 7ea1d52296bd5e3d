"""Watch: what an upgrade of torch, triton or the driver does to advice that was measured before it. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.archive.nearness import same_device
from app.objects.advice import Advice
from app.objects.evidence import Figures
from app.objects.record import ArchiveRecord, Regression, RegressionSide, ValidationBody

Action = Literal["validate", "unchanged", "no-record"]
Weight: TypeAlias = tuple[tuple[tuple[str, int], ...], float | None]
"""A binding, sorted by symbol, with its calls."""

SOFTWARE = ("torch", "triton", "cuda", "hip", "driver")
"""Upgrades of these change times, and what torch.compile makes."""

COMPILE_MODES = frozenset({"default", "max-autotune"})
"""One piece of advice: which of both is the measurement's to say."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done about one region. record: the measurement of before; changed: names of SOFTWARE.

    action: "validate"; "unchanged" where nothing was upgraded; "no-record" where there is nothing to compare with.
    """

    name: str
    text: str
    record: ArchiveRecord | None
    action: Action
    changed: tuple[str, ...]
    because: str


def plan(
    name: str, text: str, record: ArchiveRecord | None, now: Mapping[str, str], device: str | None, force: bool = False
) -> Plan:
    """record: the archive's nearest, of `record_store.nearest`; now: this host's versions, driver where it is known.

    device: this host's GPU; None without one: then a record of any device will do, for nothing can be measured anyway.
    """
    if record is None or record["archived"].get("match", "same") != "same":
        because = "the archive has no measurement of this region"
        return Plan(name, text, None, "no-record", (), f"{because}: `tritonworthy archive record` keeps one")
    if device is not None and not same_device(device, str(record["device"])):
        because = f"the archive has this region on {record['device']} only, and this host has {device}"
        return Plan(name, text, None, "no-record", (), because)
    changed = tuple(part for part in SOFTWARE if _differs(record, now, part))
    words = ", ".join(f"{part} {_was(record, part)} is now {now[part]}" for part in changed)
    where = f"recorded on {record['device']}, {record['date']}"
    if changed:
        return Plan(name, text, record, "validate", changed, f"{words}; {where}")
    if force:
        return Plan(name, text, record, "validate", (), f"nothing was upgraded, --force; {where}")
    return Plan(name, text, record, "unchanged", (), f"nothing was upgraded since; {where}")


def _was(record: ArchiveRecord, part: str) -> str:
    return str((record.get("software") or {}).get(part) or "")


def _differs(record: ArchiveRecord, now: Mapping[str, str], part: str) -> bool:
    """Whether both versions are known and differ."""
    before, today = _was(record, part), now.get(part)
    return bool(before and today) and before != today


def plan_json(made: Plan, now: Mapping[str, str]) -> Regression:
    """A plan as the API says it; outcome is None until it was measured."""
    record = made.record
    known = [part for part in SOFTWARE if now.get(part)]
    return {
        "name": made.name,
        "record": record["id"] if record else None,
        "device": record["device"] if record else None,
        "action": made.action,
        "because": made.because,
        "changed": list(made.changed),
        "was": {part: _was(record, part) for part in known if _was(record, part)} if record else {},
        "now": {part: now[part] for part in known},
        "outcome": None,
        "before": None,
        "after": None,
    }


def judgement_json(planned: Regression, record: Figures, before: Advice, validation: ValidationBody) -> Regression:
    """The same after a measurement. before: today's advice issued with the old measurement, so that only times differ.

    outcome: "flipped" where another tool or mode is advised now, "kept", or "unmeasured".
    """
    if validation["outcome"] == "unmeasured":
        return {**planned, "outcome": "unmeasured", "because": f"{planned['because']}; {validation['reason']}"}
    after = validation["advice_after"]
    assert after is not None  # advice was issued again with what was measured
    was, now = _side(before, record), _side(after, validation)
    flipped = was["tool"] != now["tool"] or (
        was["mode"] != now["mode"] and not {was["mode"], now["mode"]} <= COMPILE_MODES
    )
    return {**planned, "outcome": "flipped" if flipped else "kept", "before": was, "after": now}


def _side(advice: Advice, validation: Figures) -> RegressionSide:
    best = next((c for c in validation["candidates"] if c["name"] == validation["best"]), None)
    return {
        "tool": advice["tool"],
        "mode": advice["mode"],
        "headline": advice["headline"],
        "best": validation["best"],
        "time_us": best["time_us"] if best else None,
    }


def weights(record: Figures) -> list[Weight]:
    """The bindings that were measured, each as its sorted sizes, with its calls; [] where the record does not tell."""
    shapes = next((c["shapes"] for c in record.get("candidates") or () if c.get("shapes")), [])
    return sorted((tuple(sorted((s.get("binding") or {}).items())), s.get("calls")) for s in shapes)


def line(row: Regression) -> str:
    """One region in words."""
    was, now = row["before"], row["after"]
    if was and now and row["outcome"] in ("flipped", "kept"):
        flipped = row["outcome"] == "flipped"
        change = f"{_advice_text(was)} -> {_advice_text(now)}" if flipped else f"still {_advice_text(now)}"
        return f"{row['outcome']}: {row['name']}: {change} ({row['because']})"
    word = {"validate": "to validate", "unchanged": "unchanged", "no-record": "no record"}[row["action"]]
    return f"{row['outcome'] or word}: {row['name']}: {row['because']}"


def _advice_text(side: RegressionSide) -> str:
    mode = f" {side['mode']}" if side["mode"] not in ("", "default") else ""
    took = f", {side['best']} {side['time_us']['median']:.4g} µs" if side["time_us"] else ""
    return f"{side['tool']}{mode}{took}"
