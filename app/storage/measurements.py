"""What the validations in the database have measured: evidence for other regions of the same program, duplicates.

Every validation that timed something on a GPU grows the archive by itself: all servers of a database see it, with its
device and versions. Files of the archive (app.archive.record_store) are what outlives the database.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import sqlalchemy as sa

from app.archive.program_fingerprint import fingerprint
from app.archive.schema import timed_candidates
from app.objects.record import ArchiveRecord, Validation
from app.storage import job_table
from app.storage.database import Database, one_at_a_time
from app.storage.tables import jobs, validations

EACH = 3
"""Newest validations of one region on one device that are looked at: one may have measured a part of the candidates."""
MOST = 60
"""Validations that are loaded for one question, some tens of kilobytes each."""


def same(connection: sa.Connection, digest: str | None) -> str | None:
    """The newest validation of that digest that waits, runs, or has measured something; None for no digest.

    One that somebody wants to stop is none. Nobody else looks for this digest until the transaction ends.
    """
    if digest is None:
        return None
    one_at_a_time(connection, f"validations {digest}")
    timed = sa.and_(jobs.c.state == "done", validations.c.device.is_not(None), validations.c.outcome != "unmeasured")
    going_on = sa.and_(job_table.in_state(job_table.GOING_ON), jobs.c.cancel_requested.is_(False))
    alike = sa.select(validations.c.id).join(jobs, jobs.c.id == validations.c.id)
    alike = alike.where(validations.c.digest == digest, sa.or_(timed, going_on))
    known: str | None = connection.scalar(alike.order_by(validations.c.created_at.desc(), validations.c.id).limit(1))
    return known


def records(database: Database, texts: Collection[str], excluded: str | None = None) -> tuple[ArchiveRecord, ...]:
    """Validations of the same programs as these regions', at any sizes, newest first, as the archive's records are.

    The newest EACH of a region on a device, of those that timed something on a GPU. `archived.here` tells them from
    files. excluded: the one that is asked for, which is no evidence for itself.
    """
    programs = sorted({fingerprint(text, "other-sizes") for text in texts})
    measured = sa.and_(validations.c.device.is_not(None), validations.c.outcome.is_not(None))
    own = sa.and_(validations.c.program.in_(programs), measured, validations.c.id != (excluded or ""))
    alike = (validations.c.program, validations.c.region, validations.c.device)
    newest_first = (validations.c.created_at.desc(), validations.c.id.desc())
    place = sa.func.row_number().over(partition_by=alike, order_by=newest_first).label("place")
    # Without the bodies: they are loaded for the few that are left.
    ranked = sa.select(validations.c.id, validations.c.created_at, place).where(own).subquery()
    wanted = sa.select(ranked.c.id).where(ranked.c.place <= EACH).order_by(ranked.c.created_at.desc()).limit(MOST)
    return _load(database, wanted)


def earlier(database: Database, validation: Validation | ArchiveRecord) -> tuple[ArchiveRecord, ...]:
    """Validations of the same program on the same device from before one, newest first, as records."""
    of_program = validations.c.program == fingerprint(validation["region"], "other-sizes")
    before = validations.c.created_at < validation["created_at"]
    alike = sa.and_(of_program, before, validations.c.device == validation["device"])
    wanted = sa.select(validations.c.id).where(alike).order_by(validations.c.created_at.desc()).limit(MOST)
    return _load(database, wanted)


def _load(database: Database, wanted: sa.Select[Any]) -> tuple[ArchiveRecord, ...]:
    columns = (validations.c[name] for name in ("id", "name", "region", "created_at", "body"))
    with database.read() as connection:
        ids = connection.scalars(wanted).all()
        wanted_rows = sa.select(*columns).where(validations.c.id.in_(ids))
        rows = connection.execute(wanted_rows).mappings().all() if ids else []
    known = [_record(row) for row in rows if row["body"] and timed_candidates(row["body"])]
    return tuple(sorted(known, key=lambda record: (record["created_at"], record["id"]), reverse=True))


def _record(row: sa.RowMapping) -> ArchiveRecord:
    own = {key: row[key] for key in ("id", "name", "region", "created_at")}
    return cast("ArchiveRecord", {**row["body"], **own, "state": "done", "archived": {"here": True}})
