"""Entries, series and changes as `app.objects.history` has them, and entries back from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from app.history.model import Change, Entry, Environment, Measure, Point, Series, SeriesKey
from app.objects import history as objects

SCHEMA: Literal[1] = 1
"""Of a line of the file and of what is sent; a reader refuses a newer one."""


def entry_id(entry: Entry) -> str:
    """32 hex digits of what was measured, how and of what, whenever: a trace that is judged again is no second run."""
    body = {**entry_json(entry), "id": "", "at": ""}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:32]


def entry_json(entry: Entry) -> objects.HistoryEntry:
    """A run as a line of the file has it."""
    return {
        "schema": SCHEMA,
        "id": entry.id,
        "check": entry.check,
        "at": entry.at,
        "commit": entry.commit,
        "branch": entry.branch,
        "environment": environment_json(entry.environment),
        "measures": [measure_json(measure) for measure in entry.measures],
        "parents": list(entry.parents),
        "dirty": entry.dirty,
    }


def entry_of(body: objects.HistoryEntry) -> Entry:
    """The run of a line that was checked already."""
    environment = body["environment"]
    return Entry(
        check=body["check"],
        at=body["at"],
        commit=body["commit"],
        branch=body["branch"],
        environment=Environment(environment["device"], dict(environment["software"]), environment["method"]),
        measures=tuple(
            Measure(m["subject"], m["metric"], m["unit"], m["value"], m["samples"], m["spread"])
            for m in body["measures"]
        ),
        id=body["id"],
        parents=tuple(body["parents"]),
        dirty=body["dirty"],
    )


def utc(text: str) -> str:
    """An ISO time as `2026-11-26T11:30:00.250000Z`, so that texts sort as times do. ValueError.

    A time without a zone is UTC.
    """
    moment = datetime.fromisoformat(text)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def environment_json(environment: Environment) -> objects.HistoryEnvironment:
    """The API's object."""
    software: Mapping[str, str] = environment.software
    return {"device": environment.device, "software": dict(sorted(software.items())), "method": environment.method}


def measure_json(measure: Measure) -> objects.HistoryMeasure:
    """The API's object."""
    return {
        "subject": measure.subject,
        "metric": measure.metric,
        "unit": measure.unit,
        "value": measure.value,
        "samples": measure.samples,
        "spread": measure.spread,
    }


def key_json(key: SeriesKey) -> objects.HistoryKey:
    """The API's object."""
    return {"check": key.check, "branch": key.branch, "subject": key.subject, "metric": key.metric}


def run_json(entry: Entry) -> objects.HistoryRun:
    """The API's object."""
    return {
        "id": entry.id,
        "at": entry.at,
        "commit": entry.commit,
        "dirty": entry.dirty,
        "environment": environment_json(entry.environment),
    }


def change_json(change: Change) -> objects.HistoryChange:
    """The API's object."""
    return {
        "key": key_json(change.key),
        "before": run_json(change.before),
        "after": run_json(change.after),
        "ratio": change.ratio,
        "cause": change.cause,
        "confidence": change.confidence,
        "because": change.because,
        "commits_between": list(change.commits_between),
        "also": list(change.also),
        "how_to_separate": change.how_to_separate,
    }


def point_json(point: Point) -> objects.HistoryPoint:
    """The API's object."""
    return {
        "run": run_json(point.entry),
        "value": point.value,
        "samples": point.samples,
        "spread": point.spread,
        "segment": point.segment,
        "outlier": point.outlier,
        "level": point.level,
        "low": point.low,
        "high": point.high,
    }


def series_json(series: Series) -> objects.HistorySeries:
    """The API's object."""
    return {
        "key": key_json(series.key),
        "unit": series.unit,
        "points": [point_json(point) for point in series.points],
        "changes": [change_json(change) for change in series.changes],
    }
