"""A record of the Archive: what it holds, how an older one is read, and what is wrong with one that cannot be.

A record is the API's validation with `schema` and `name`. Schema 1 (unwritten) did not say which version of this app
measured; schema 2 has it in `software`. Nothing is made up for an older record: what it lacks, `lacking` names.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeAlias, cast

import msgspec

from app.objects.evidence import Candidate, CandidateShape, Figures
from app.objects.record import RecordBody, ValidationBody
from kernels.measure.model import (
    INTERVALS,
    OUTCOMES,
    STATUSES,
    CandidateResult,
    Interval,
    Validation,
    validation_from_json,
)
from profiler.region.language.text import parse, to_text
from profiler.region.model import Region, RegionError

SCHEMA = 2
MAX_BYTES = 16 * 1024 * 1024
"""Largest record: a shipped one has 61 kB."""
OF_THE_API = frozenset(
    {
        "id", "state", "created_at", "region_id", "error", "progress", "ahead", "archived", "archive", "elsewhere",
        "kernel_verdict",
    }
)  # fmt: skip
"""What the API's validation, and the command line's, has in addition to a Validation; not recorded."""
SAID = 3
"""Problems named in one message."""

Shape: TypeAlias = tuple[tuple[tuple[str, int], ...], float]
"""A binding, sorted by symbol, with its calls."""

Subject: TypeAlias = tuple[str, tuple[Shape, ...], str | None, tuple[str, ...]]
"""What was measured: region, sizes, device and candidates."""


class RecordError(ValueError):
    """A record that cannot be taken. remedy says what to do about it."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}. {remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


def loads(data: bytes) -> Any:
    """JSON from outside. RecordError for anything else, NaN and Infinity included."""
    if len(data) > MAX_BYTES:
        raise RecordError(f"larger than a record may be ({MAX_BYTES >> 20} MiB)")
    try:
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        remedy = "Give what `tritonworthy validate --json` printed or `--record` wrote"
        raise RecordError("not JSON", remedy) from None


def read(body: Any) -> RecordBody:
    """The record in today's schema, without what only the API adds. RecordError where it is not one."""
    if not isinstance(body, dict) or not {"outcome", "region", "candidates"} <= body.keys():
        remedy = "Give what `tritonworthy validate --json` printed or `--record` wrote"
        raise RecordError("not a validation: outcome, region and candidates are missing", remedy)
    version = body.get("schema", 1)
    if type(version) is not int or version < 1:
        raise RecordError(f"its schema is {str(version)[:20]!r}, which there never was", "Correct the file")
    if version > SCHEMA:
        remedy = "Update tritonworthy on this host"
        raise RecordError(f"written by a newer tritonworthy (schema {version}; this one reads up to {SCHEMA})", remedy)
    if body["outcome"] is None or not body.get("device") or not _timed(body["candidates"]):
        remedy = "Run `tritonworthy validate` on a GPU host and record what it prints"
        raise RecordError("only what was measured on a GPU belongs into the archive", remedy)
    held = {k: v for k, v in body.items() if k not in OF_THE_API and k not in ("schema", "name")}
    validation = _as_validation(held)
    problems = list(_problems(validation))
    if problems:
        more = f", and {len(problems) - SAID} more" if len(problems) > SAID else ""
        raise RecordError("; ".join(problems[:SAID]) + more, "Measure again, or correct the file")
    return cast("RecordBody", {"schema": SCHEMA, "name": str(body.get("name") or "region"), **held})


def _timed(candidates: Any) -> bool:
    """Something was measured: the outcome is `unmeasured` too where only the advised candidate could not be."""
    if not isinstance(candidates, list):
        return True  # what else is wrong with it is for others to say
    return any(isinstance(c, dict) and c.get("status") == "ok" and c.get("time_us") for c in candidates)


def _as_validation(held: dict[str, Any]) -> Validation:
    unknown = sorted(held.keys() - {f.name for f in fields(Validation)})
    if unknown:
        raise RecordError(f"it has what no validation has: {', '.join(unknown)[:200]}", "Take that out")
    try:
        msgspec.convert(held, Validation)
        return validation_from_json(held)
    except msgspec.ValidationError as fault:
        raise RecordError(f"not as a validation is: {fault}", "Measure again, or correct the file") from None
    except (TypeError, KeyError) as fault:
        raise RecordError(f"not as a validation is: {fault}", "Measure again, or correct the file") from None


def _problems(validation: Validation) -> Iterator[str]:
    """What is wrong although every type is right."""
    if validation.outcome not in OUTCOMES:
        yield f"outcome {validation.outcome!r} is none of {', '.join(OUTCOMES)}"
    try:
        datetime.date.fromisoformat(validation.date)
    except ValueError:
        yield f"date {validation.date[:40]!r} is no day (YYYY-MM-DD)"
    try:
        region = parse(validation.region)
    except RegionError as fault:
        yield f"its region cannot be read: {fault.message}"
        return
    names = [c.name for c in validation.candidates]
    yield from (f"candidate {n} is there twice" for n in sorted({n for n in names if names.count(n) > 1}))
    for candidate in validation.candidates:
        yield from (f"{candidate.name}: {p}" for p in _candidate_problems(candidate, region))
    best = next((c for c in validation.candidates if c.name == validation.best), None)
    if validation.best is not None and (best is None or best.status != "ok" or best.time_us is None):
        yield f"best is {validation.best}, which was not timed"


def _candidate_problems(candidate: CandidateResult, region: Region) -> Iterator[str]:
    if candidate.status not in STATUSES:
        yield f"status {candidate.status!r} is unknown"
    symbols = {s.name for s in region.symbols}
    for part in (candidate, *candidate.shapes):
        yield from (
            f"{name} is no interval of positive figures" for name in INTERVALS if not _sound(getattr(part, name))
        )
    for shape in candidate.shapes:
        if shape.binding.keys() != symbols:
            yield f"sizes {sorted(shape.binding)} are not those of the region ({', '.join(sorted(symbols)) or 'none'})"
    if candidate.status != "ok" and candidate.time_us is not None:
        yield f"timed, though its status is {candidate.status}"


def _sound(span: Interval | None) -> bool:
    return span is None or (0 < span.low <= span.median <= span.high and math.isfinite(span.high))


def _no_constant(name: str) -> float:
    raise ValueError(name)


# ---------------------------------------------------------------------------------------------------- what it tells


SOFTWARE = ("torch", "triton", "python", "driver", "tritonworthy")
READINGS: Mapping[str, str] = {"sm_clock_mhz": "clocks", "power_w": "power", "temperature_c": "temperature"}
NEEDED = frozenset({"torch", "times"})
"""Without these a record is no evidence: it is not taken."""


def timed_candidates(record: Figures) -> list[Candidate]:
    """The candidates that were right and have a time."""
    return [c for c in record.get("candidates") or () if c.get("status") == "ok" and c.get("time_us")]


def lacking(record: ValidationBody) -> tuple[str, ...]:
    """What a record does not tell of what it should: versions, conditions, times per shape."""
    software, conditions = record.get("software") or {}, record.get("conditions") or {}
    missing = [name for name in SOFTWARE if not software.get(name)]
    readings: list[Mapping[str, object]] = [conditions.get("before") or {}, conditions.get("after") or {}]
    missing += [said for key, said in READINGS.items() if any(reading.get(key) is None for reading in readings)]
    with_times = timed_candidates(record)
    if not with_times:
        missing.append("times")
    elif not all(c.get("shapes") and all(s.get("time_us") for s in c["shapes"]) for c in with_times):
        missing.append("times per shape")
    return tuple(missing)


def require(record: RecordBody) -> RecordBody:
    """The record, where it is evidence: RecordError where it lacks what NEEDED names."""
    missing = [m for m in lacking(record) if m in NEEDED]
    if missing:
        said = {"torch": "the version of torch", "times": "a candidate's time"}
        raise RecordError(f"it does not tell {' and '.join(said[m] for m in missing)}", "Measure again")
    return record


def region_of(record: Figures) -> Region:
    """The record's region, parsed."""
    return parse(record["region"])


def shapes_of(record: Figures) -> tuple[Shape, ...]:
    """Bindings measured with their calls, sorted: of the candidate that has most of them."""
    most: list[CandidateShape] = max((c.get("shapes") or [] for c in record["candidates"]), key=len, default=[])
    return tuple(sorted((tuple(sorted(s["binding"].items())), float(s.get("calls", 1.0))) for s in most))


def subject(record: Figures) -> Subject:
    """What was measured: region, sizes, device and candidates. Two records of one subject differ in how and when."""
    names = tuple(sorted(c["name"] for c in record["candidates"]))
    return to_text(region_of(record)), shapes_of(record), record["device"], names


def fingerprint(record: ValidationBody) -> str:
    """16 hex digits, equal for identical records: neither the name nor the schema that it was written in counts."""
    held = {k: v for k, v in record.items() if k not in ("name", "schema")}
    return hashlib.sha256(json.dumps(held, sort_keys=True, allow_nan=False).encode()).hexdigest()[:16]
