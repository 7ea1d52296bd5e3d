"""Traces that were deleted and may still be brought back. Every function takes the database.

A deleted trace leaves all tables at once, so that nothing has to look past it; its rows wait here as they were, and its
files stay among the uploads, until `remove` says for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from app.objects.job import DeletedTrace
from app.storage import job_table
from app.storage.database import Database, is_id, now
from app.storage.tables import events, jobs, regions, traces, trash, validations

SHOWN = 20
"""Deleted traces that are listed, the newest."""

_ORDER = (traces, jobs, events, regions)
"""As rows are put back: what is referred to comes first."""


def put(database: Database, trace_id: str) -> bool:
    """Move a trace, its regions and its job out of the way; False for an unknown id. Its measurements stay."""
    if not is_id(trace_id):
        return False
    with database.write() as connection:
        # The job first, as whoever ends it locks them: two in different orders would wait for each other.
        job = connection.execute(sa.select(jobs).where(jobs.c.id == trace_id).with_for_update()).mappings().first()
        trace = connection.execute(sa.select(traces).where(traces.c.id == trace_id)).mappings().first()
        if trace is None or job is None:
            return False
        of_trace = sa.select(regions.c.id).where(regions.c.trace_id == trace_id)
        rows = {
            "traces": [dict(trace)],
            "jobs": [_ended(dict(job))],
            "events": _rows(connection, events, events.c.job_id == trace_id),
            "regions": _rows(connection, regions, regions.c.trace_id == trace_id),
            "measured": [
                [row.id, row.region_id]
                for row in connection.execute(
                    sa.select(validations.c.id, validations.c.region_id).where(validations.c.region_id.in_(of_trace))
                )
            ],
        }
        row = {"id": trace_id, "deleted_at": now(), "name": trace["name"], "file": trace["file"], "kept": rows}
        connection.execute(trash.insert().values(**row))
        connection.execute(jobs.delete().where(jobs.c.id == trace_id))
        connection.execute(traces.delete().where(traces.c.id == trace_id))
    return True


def restore(database: Database, trace_id: str) -> bool:
    """Put a deleted trace back as it was; False where it is not to be had any more.

    What measured one of its regions belongs to it again. A reading that was under way stays cancelled.
    """
    if not is_id(trace_id):
        return False
    with database.write() as connection:
        kept = connection.scalar(sa.select(trash.c.kept).where(trash.c.id == trace_id).with_for_update())
        if kept is None:
            return False
        _put_back(connection, trace_id, kept)
    return True


def restore_same(connection: sa.Connection, digest: str | None) -> str | None:
    """Put back the trace of that digest which was deleted last, if it was read; its id, None without one.

    For whoever holds the digest by `job_table.same`.
    """
    if digest is None:
        return None
    alike = sa.select(trash.c.id, trash.c.kept).where(trash.c.kept[("traces", 0, "digest")].as_string() == digest)
    read = alike.where(trash.c.kept[("jobs", 0, "state")].as_string() == "done")
    newest = read.order_by(trash.c.deleted_at.desc(), trash.c.id).limit(1).with_for_update()
    row = connection.execute(newest).first()
    if row is None:
        return None
    _put_back(connection, row.id, row.kept)
    return str(row.id)


def remove(database: Database, trace_id: str) -> str | None:
    """Forget a deleted trace for good; the name of its file, None where there is none such."""
    if not is_id(trace_id):
        return None
    with database.write() as connection:
        file: str | None = connection.scalar(sa.select(trash.c.file).where(trash.c.id == trace_id).with_for_update())
        if file is not None:
            connection.execute(trash.delete().where(trash.c.id == trace_id))
    return file


def deleted(database: Database) -> list[DeletedTrace]:
    """What can still be brought back, the last deleted first."""
    query = sa.select(trash.c.id, trash.c.name, trash.c.deleted_at).order_by(trash.c.deleted_at.desc(), trash.c.id)
    with database.read() as connection:
        return [
            {"id": row.id, "name": row.name, "deleted_at": row.deleted_at}
            for row in connection.execute(query.limit(SHOWN))
        ]


def deleted_before(database: Database, before: str | None = None) -> dict[str, str]:
    """Those deleted before that time, all without one, the oldest first: id -> the name of its file."""
    query = sa.select(trash.c.id, trash.c.file).order_by(trash.c.deleted_at, trash.c.id)
    with database.read() as connection:
        rows = connection.execute(query if before is None else query.where(trash.c.deleted_at < before))
        return {row.id: row.file for row in rows}


def _put_back(connection: sa.Connection, trace_id: str, kept: Mapping[str, Any]) -> None:
    for table in _ORDER:
        if kept[table.name]:
            connection.execute(table.insert(), kept[table.name])
    for validation_id, region_id in kept["measured"]:
        place = validations.update().where(validations.c.id == validation_id)
        connection.execute(place.values(region_id=region_id))
    connection.execute(trash.delete().where(trash.c.id == trace_id))


def _rows(connection: sa.Connection, table: sa.Table, which: sa.ColumnElement[bool]) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(sa.select(table).where(which)).mappings()]


def _ended(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job's row with nobody at work on it."""
    if job["state"] in job_table.FINAL:
        return {**job}
    return {**job, "state": "cancelled", "owner": None, "lease_until": None, "finished_at": now()}
