"""Rows of the store as the objects that the API answers with, and a region as its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import sqlalchemy as sa

from app.objects.common import Error
from app.objects.record import Validation
from app.objects.region import PredictedBy, Region, RegionBody, StoredInputs
from app.objects.trace import TraceSummary
from app.storage.database import finite, new_id, now
from app.storage.tables import jobs, regions, validations

STATUS: Mapping[str, Literal["reading", "ready", "failed"]] = {
    "queued": "reading", "running": "reading", "done": "ready", "failed": "failed", "cancelled": "failed",
}  # fmt: skip
"""A trace's status by its job's state."""

CANCELLED: Error = {"code": "cancelled", "message": "Reading was cancelled.", "remedy": "Upload the trace again."}

TRACE: Mapping[str, object] = {
    "events": None,
    "kernels": None,
    "profiler_steps": None,
    "steps": None,
    "step_time_us": None,
    "kernel_time_us": None,
    "gpu_busy_share": None,
    "linked_share": None,
    "device": None,
    "notes": [],
}
"""A trace whose parts are not known yet."""

VALIDATION: Mapping[str, object] = {
    "outcome": None,
    "reason": "",
    "device": None,
    "software": {},
    "conditions": {},
    "candidates": [],
    "best": None,
    "floor_us": None,
    "date": "",
    "coverage": "",
    "advice_before": None,
    "advice_after": None,
}
"""A validation that is not done yet."""

TRACE_OWN = frozenset(
    {
        "id", "name", "status", "regions", "advice_inputs", "gain", "actions", "created_at", "bytes", "sha256",
        "error", "job",
    }
)  # fmt: skip
REGION_OWN = frozenset({"id", "created_at", "validations"})
"""Fields that the store itself gives. advice_inputs: those of `regions`, which the store keeps with each."""

SHOWN = tuple(column for column in regions.c if column.name != "inputs")
"""The columns that a region is answered from."""


def trace_of(row: sa.RowMapping) -> TraceSummary:
    """A trace with the state of its job."""
    error = row["error"] or (CANCELLED if row["state"] == "cancelled" else None)
    trace = {
        "id": row["id"],
        "name": row["name"],
        "status": STATUS[row["state"]],
        "created_at": row["created_at"],
        "bytes": row["bytes"],
        "sha256": row["sha256"],
        "error": error,
        "job": row["id"],
        **TRACE,
        **(row["body"] or {}),
    }
    return cast("TraceSummary", trace)


def insert_region(
    connection: sa.Connection,
    region: RegionBody,
    *,
    trace_id: str | None,
    position: int,
    inputs: StoredInputs | None = None,
) -> str:
    """A new row; its id. inputs: what the advice is issued on."""
    region_id = new_id()
    connection.execute(
        regions.insert().values(
            id=region_id,
            trace_id=trace_id,
            position=position,
            created_at=now(),
            inputs=finite(inputs),
            **_columns(region, trace_id),
        )
    )
    return region_id


def update_region(
    connection: sa.Connection, region: RegionBody, *, trace_id: str, position: int, inputs: StoredInputs | None = None
) -> None:
    """What is known now of the region at that place of a trace. inputs: None leaves those that are kept."""
    place = sa.and_(regions.c.trace_id == trace_id, regions.c.position == position)
    more = {} if inputs is None else {"inputs": finite(inputs)}
    connection.execute(regions.update().where(place).values(**_columns(region, trace_id), **more))


def _columns(region: RegionBody, trace_id: str | None) -> dict[str, object]:
    body: dict[str, Any] = finite({k: v for k, v in region.items() if k not in REGION_OWN})
    if trace_id is not None:
        body["source"] = {**(body.get("source") or {}), "trace": trace_id}
    return {"name": region["name"], "text": region["text"] or "", "body": body}


def region_of(row: sa.RowMapping, measured: Sequence[sa.RowMapping]) -> Region:
    """A region; its advice is the one issued again with the newest evidence, where there is any.

    What was measured makes no advice where there is none: not come yet, or not to be had.
    """
    body = row["body"]
    advice = body.get("advice")
    done = next((m for m in measured if m["body"]), None)
    if done is not None:
        evidence = {k: v for k, v in done["body"].items() if k not in ("advice_before", "advice_after")}
        issued = done["body"].get("advice_after") or advice
        advice = issued and issued | {"validation": {"id": done["id"], **evidence}}
    region = {
        "id": row["id"],
        "prediction": _predicted_by(body),
        **body,
        "created_at": row["created_at"],
        "advice": advice,
        "validations": [m["id"] for m in measured],
    }
    return cast("Region", region)


def _predicted_by(body: Mapping[str, Any]) -> PredictedBy:
    """Of a row of before `prediction` was kept: whether Inductor had answered."""
    answered = any(p.get("mode") == "default" and not p.get("unavailable") for p in body.get("oracle") or ())
    return "oracle" if answered else "rules"


def all_validations() -> sa.Select[Any]:
    """Validations with what `validation_of` takes of their jobs."""
    job = (jobs.c.state, jobs.c.progress, jobs.c.error)
    return sa.select(validations, *job).join(jobs, jobs.c.id == validations.c.id)


def validation_of(row: sa.RowMapping) -> Validation:
    """A validation with the state of its job."""
    own = ("id", "name", "state", "created_at", "region_id", "region", "error", "progress")
    return cast("Validation", {**VALIDATION, **(row["body"] or {}), **{key: row[key] for key in own}})
