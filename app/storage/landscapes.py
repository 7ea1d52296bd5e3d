"""The landscapes of validations in the database: queued, stored, read again. Every function takes the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import sqlalchemy as sa

from app.objects.common import Binding
from app.objects.landscape import Landscape, LandscapeBody
from app.objects.task import LandscapeTask
from app.storage import job_table
from app.storage.database import Database, is_id, new_id, now
from app.storage.tables import jobs, landscapes

NOT_DONE: Mapping[str, object] = {
    "outcome": None,
    "reason": "",
    "kernel": "",
    "beside": [],
    "points": [],
    "axes": {"tiles": [], "warps": [], "stages": []},
    "chosen": None,
    "best": None,
    "worst_to_best": None,
    "chosen_to_best": None,
    "order": None,
    "device": None,
    "software": {},
    "conditions": {},
    "budget_s": None,
    "seconds": None,
    "date": "",
}
"""A landscape that is not done yet."""

_OWN = ("id", "validation_id", "candidate", "binding", "state", "progress", "error", "created_at")


def add(
    database: Database, *, validation_id: str, candidate: str, binding: Binding, request: LandscapeTask, cap: int
) -> str:
    """A landscape and the job that measures it, of the same new id; QueueFullError leaves nothing behind."""
    landscape_id = new_id()
    with database.write() as connection:
        connection.execute(
            landscapes.insert().values(
                id=landscape_id, created_at=now(), validation_id=validation_id, candidate=candidate, binding=binding
            )
        )
        job_table.add(connection, job_id=landscape_id, kind="landscape", request=request, cap=cap)
    return landscape_id


def newest(database: Database, validation_id: str, candidate: str | None = None) -> Landscape | None:
    """The newest landscape of a validation, of that candidate where one is named; None where there is none."""
    if not is_id(validation_id):
        return None
    query = _all().where(landscapes.c.validation_id == validation_id)
    if candidate is not None:
        query = query.where(landscapes.c.candidate == candidate)
    return _first(database, query.order_by(landscapes.c.created_at.desc(), landscapes.c.id.desc()))


def by_id(database: Database, landscape_id: str) -> Landscape | None:
    """One landscape; None for an unknown id."""
    return _first(database, _all().where(landscapes.c.id == landscape_id)) if is_id(landscape_id) else None


def finish(database: Database, *, job_id: str, owner: str, attempt: int, landscape: LandscapeBody) -> bool:
    """Store finite numbers that were measured and end the job, both or neither; False when it is no longer ours."""
    with database.write() as connection:
        if not job_table.finish(connection, job_id=job_id, owner=owner, attempt=attempt, state="done"):
            return False
        connection.execute(landscapes.update().where(landscapes.c.id == job_id).values(body=landscape))
    return True


def _all() -> sa.Select[Any]:
    job = (jobs.c.state, jobs.c.progress, jobs.c.error)
    return sa.select(landscapes, *job).join(jobs, jobs.c.id == landscapes.c.id)


def _first(database: Database, query: sa.Select[Any]) -> Landscape | None:
    with database.read() as connection:
        row = connection.execute(query.limit(1)).mappings().first()
    return None if row is None else _landscape(row)


def _landscape(row: sa.RowMapping) -> Landscape:
    return cast("Landscape", {**NOT_DONE, **(row["body"] or {}), **{key: row[key] for key in _OWN}})
