"""What a page shows of a validation, its conditions in words, and two validations side by side. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypedDict

from app.check.watch import weights
from app.objects.common import Interval
from app.objects.evidence import Candidate, Conditions, Figures, MeasuredGpu, Reading
from app.objects.record import ArchiveRecord, Validation
from app.units import amount, count, digits, plain
from app.web.charts import plotly
from app.web.charts.figure import Chart
from app.web.charts.timed import CandidateRow, candidate_rows
from app.web.labels import Choice, format_time

AnyValidation = Validation | ArchiveRecord


class ValidationSummary(TypedDict):
    """Context of partials/validation/summary.html. condition_rows: (name, value)."""

    validation: AnyValidation
    candidates_chart: Chart | None
    candidate_rows: list[CandidateRow]
    condition_rows: list[tuple[str, str]]
    condition_warnings: list[str]


class CompiledMode(TypedDict):
    """What torch.compile's candidate of a mode launched. kernels: those that the profiler saw in one call."""

    mode: str
    device: str | None
    launches: int
    generated: int
    library: int
    kernels: list[str]


class ComparedCandidate(TypedDict):
    """A candidate in two validations. a, b: times in µs, None where it was not timed; ratio: B's median over A's."""

    name: str
    tool: str | None
    a: Interval | None
    b: Interval | None
    a_status: str
    b_status: str
    ratio: float | None
    verdict: str


class Difference(TypedDict):
    """Software whose version is not the same on both sides, which is what a difference may be due to."""

    name: str
    a: str
    b: str


class ValidationComparison(TypedDict):
    """Two validations side by side. verdict: in words; refused: nothing may be called faster."""

    rows: list[ComparedCandidate]
    verdict: str
    refused: bool
    differences: list[Difference]


def summarize_validation(validation: AnyValidation) -> ValidationSummary:
    """What was measured, as chart and table, and under which conditions."""
    conditions = validation.get("conditions")
    return {
        "validation": validation,
        "candidates_chart": plotly.candidates(validation) if validation.get("candidates") else None,
        "candidate_rows": candidate_rows(validation),
        "condition_rows": condition_rows(conditions),
        "condition_warnings": condition_warnings(conditions),
    }


def measured_at_same_sizes(validation: AnyValidation | None) -> bool:
    """Whether a validation is of the sizes that it is shown for: records of the archive may be of others."""
    archived = validation.get("archived") if validation else None
    return not archived or archived.get("match") != "other-sizes"


def measured_compilations(validation: AnyValidation | None) -> list[CompiledMode]:
    """What torch.compile's candidates launched when they were measured, by mode: the real compile and its kernels.

    Only for the same program at the same sizes.
    """
    if validation is None or not measured_at_same_sizes(validation):
        return []
    names = {"compile": "default", "compile-max-autotune": "max-autotune"}
    rows: list[CompiledMode] = []
    for candidate in validation.get("candidates") or ():
        kernels = candidate.get("kernels") or ()
        if candidate["name"] in names and kernels:
            generated = sum(k.startswith("triton_") for k in kernels)
            rows.append(
                {
                    "mode": names[candidate["name"]],
                    "device": validation.get("device"),
                    "launches": len(kernels),
                    "generated": generated,
                    "library": len(kernels) - generated,
                    "kernels": list(kernels),
                }
            )
    return rows


def validation_choices(validations: Sequence[AnyValidation]) -> list[Choice]:
    """Finished validations as options of /compare."""
    return [{"id": v["id"], "label": _describe(v)} for v in validations if v["state"] == "done"]


def _describe(validation: AnyValidation) -> str:
    created = validation.get("created_at")
    parts = (
        validation.get("name") or "region", _first_sizes(validation.get("region") or ""),
        validation.get("outcome") or validation["state"], validation.get("device") or "no GPU",
        format_time(created) if created else validation.get("date"),
    )  # fmt: skip
    return " · ".join(str(p) for p in parts if p)


def _first_sizes(text: str) -> str:
    """The first input of a region's text, in which regions of one name differ."""
    return next((line.partition(":")[2].strip() for line in text.splitlines() if re.match(r"\s*\w+\s*:", line)), "")


def select_options(choices: Sequence[Choice], a: str, b: str) -> dict[str, str]:
    """Which options of /compare stand selected: what was asked for, else the newest two, never the same one twice."""
    ids = [choice["id"] for choice in choices]
    first = a or next((i for i in ids if i != b), "")
    return {"a": first, "b": b or next((i for i in ids if i != first), "")}


# ------------------------------------------------------------------------------------------------------------- compare

FASTER, SLOWER, SAME = "B is faster", "B is slower", "no difference: the intervals overlap"
NEW, GONE = "new in B", "gone from B"
ONLY_A, ONLY_B, NEITHER, UNSURE = "timed only in A", "timed only in B", "timed in neither", "not comparable"


def compare(left: Figures, right: Figures) -> ValidationComparison:
    """What may be called faster, and what may not. A is the left one."""
    in_a, in_b = _by_name(left), _by_name(right)
    reasons = _refuse(left, right)
    rows: list[ComparedCandidate] = []
    for name in [*in_a, *(n for n in in_b if n not in in_a)]:
        one, other = in_a.get(name), in_b.get(name)
        candidate = one or other
        a, b = _time_us(one), _time_us(other)
        rows.append(
            {
                "name": name,
                "tool": candidate.get("tool") if candidate else None,
                "a": a,
                "b": b,
                "a_status": one["status"] if one else "absent",
                "b_status": other["status"] if other else "absent",
                "ratio": b["median"] / a["median"] if a and b and a["median"] else None,
                "verdict": _judge(one, other, comparable=not reasons),
            }
        )
    return {
        "rows": rows,
        "verdict": _describe_refusal(reasons) if reasons else _describe_verdict(rows, left, right),
        "refused": bool(reasons),
        "differences": _differences(left, right),
    }


def _by_name(validation: Figures) -> dict[str, Candidate]:
    return {c["name"]: c for c in validation.get("candidates") or ()}


def _time_us(candidate: Candidate | None) -> Interval | None:
    return candidate.get("time_us") if candidate else None


def _refuse(left: Figures, right: Figures) -> list[str]:
    """Why nothing may be called faster; [] where both were measured on one kind of device, at the same sizes."""
    reasons = []
    if not left.get("device") or not right.get("device"):
        reasons.append("at least one of them was not measured on a GPU")
    elif left["device"] != right["device"]:
        reasons.append(f"the devices differ ({left['device']}, {right['device']})")
    if (left.get("region") or "").split() != (right.get("region") or "").split():
        reasons.append("the regions differ")
    elif weights(left) != weights(right):
        reasons.append("they were measured at other sizes, or with other calls of each")
    return reasons


def _judge(one: Candidate | None, other: Candidate | None, *, comparable: bool) -> str:
    """Faster or slower only where both were timed on one kind of device and the intervals are apart."""
    a, b = _time_us(one), _time_us(other)
    if a is None and b is None:
        return NEITHER
    if a is None:
        return NEW if one is None else ONLY_B
    if b is None:
        return GONE if other is None else ONLY_A
    if not comparable:
        return UNSURE
    if a["low"] <= b["high"] and b["low"] <= a["high"]:
        return SAME
    return FASTER if b["median"] < a["median"] else SLOWER


def _describe_refusal(reasons: Sequence[str]) -> str:
    return f"No verdict: {', and '.join(reasons)}. The numbers stand next to each other for reading only."


def _describe_verdict(rows: Sequence[ComparedCandidate], left: Figures, right: Figures) -> str:
    """The verdict in a sentence or two."""
    names = {verdict: [r["name"] for r in rows if r["verdict"] == verdict] for verdict in (FASTER, SLOWER, NEW, GONE)}
    words = {FASTER: "faster in B", SLOWER: "slower in B", NEW: "new", GONE: "gone"}
    counts = "; ".join(f"{len(of)} {words[verdict]} ({', '.join(of)})" for verdict, of in names.items() if of)
    same = sum(r["verdict"] == SAME for r in rows)
    if not names[FASTER] and not names[SLOWER]:
        text = "No difference: every pair of intervals overlaps, or was timed on one side only."
        text += f" Also: {counts}." if counts else ""
    else:
        rest = f"; {same} whose intervals overlap" if same else ""
        text = f"Of {count(len(rows), 'candidate')}: {counts}{rest}."
    best = [v.get("best") for v in (left, right)]
    if all(best) and best[0] != best[1]:
        text += f" The fastest changed from {best[0]} to {best[1]}."
    return text


def _differences(left: Figures, right: Figures) -> list[Difference]:
    one, other = (v.get("software") or {} for v in (left, right))
    names = dict.fromkeys([*one, *other])
    return [
        {"name": n, "a": str(one.get(n) or "not known"), "b": str(other.get(n) or "not known")}
        for n in names
        if one.get(n) != other.get(n)
    ]


# ---------------------------------------------------------------------------------------------------------- conditions

NAMES = {
    "before": "GPU before", "after": "GPU after", "phases_s": "Time it took", "rounds": "Rounds",
    "prepare_s": "Preparing took",
    "order_seed": "Seed of the order", "decided_by": "Decided by", "launch_bound": "Launch-bound",
    "device": "GPU", "warnings": "Warnings",
}  # fmt: skip
READINGS = (
    ("sm_clock_mhz", "clock", "MHz", "sm_clock_max_mhz"), ("memory_clock_mhz", "memory clock", "MHz", ""),
    ("temperature_c", "", "°C", ""), ("power_w", "", "W", "power_limit_w"),
)  # fmt: skip
"""What the driver reads, in the order of a row: key, word before, unit after, key of its limit."""


def condition_rows(conditions: Conditions | None) -> list[tuple[str, str]]:
    """(name, value) of what was recorded; warnings are for the page to say first."""
    rows = []
    for key, value in (conditions or Conditions()).items():
        if key == "warnings":
            continue
        name = NAMES.get(key, key.replace("_", " ").capitalize())
        text = _condition_text(key, value)
        if text:
            rows.append((name, text))
    return rows


def condition_warnings(conditions: Conditions | None) -> list[str]:
    """What makes the figures less certain."""
    return [str(w) for w in conditions.get("warnings") or ()] if conditions else []


def _condition_text(key: str, value: object) -> str:
    if key in ("before", "after") and isinstance(value, Mapping):
        return describe_reading(value)
    if key == "phases_s" and isinstance(value, Mapping):
        return ", ".join(f"{name} {digits(seconds)} s" for name, seconds in value.items())
    if key == "prepare_s" and isinstance(value, Mapping):
        return ", ".join(f"{name} {digits(sum(parts.values()))} s" for name, parts in value.items())
    if key == "device" and isinstance(value, Mapping):
        return _describe_gpu(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{k.replace('_', ' ')} {plain(v)}" for k, v in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return plain(value)


def describe_reading(reading: Reading | Mapping[str, object]) -> str:
    """Clocks, temperature and power of a GPU at one moment, and what held it back."""
    parts = []
    for key, word, unit, limit in READINGS:
        if reading.get(key) is not None:
            most = f"of at most {plain(reading.get(limit))}" if reading.get(limit) is not None else ""
            parts.append(" ".join(p for p in (word, plain(reading.get(key)), most, unit) if p))
    used_mib = reading.get("memory_used_mib")
    if isinstance(used_mib, float | int):
        parts.append(f"{amount(used_mib * 2**20)} in use")
    throttle = reading.get("throttle")
    if isinstance(throttle, Sequence):
        parts.append(f"slowed by {', '.join(map(str, throttle))}" if throttle else "not slowed")
    others = reading.get("other_processes")
    if isinstance(others, int):
        parts.append(f"{count(others, 'other process', 'other processes')}" if others else "no other process")
    return ", ".join(parts)


def _describe_gpu(device: MeasuredGpu | Mapping[str, object]) -> str:
    parts = [str(device.get("name"))] if device.get("name") else []
    if device.get("index") is not None:
        parts.append(f"number {device.get('index')}")
    if device.get("capability"):
        parts.append(f"capability {device.get('capability')}")
    processors = device.get("processors")
    if isinstance(processors, int) and processors:
        parts.append(count(processors, "processor"))
    for key, word in (("memory_bytes", "of memory"), ("free_bytes", "free"), ("l2_bytes", "of L2")):
        size = device.get(key)
        if isinstance(size, float | int) and size:
            parts.append(f"{amount(size)} {word}")
    return ", ".join(parts)
