"""What the validations in the database have measured: evidence for other regions of the same program, duplicates.

Every validation that timed something on a GPU grows the archive by itself: all servers of a database see it, with its
device and versions. Files of the archive (app.archive.shelf) are what outlives the database.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from app.archive.likeness import likeness
from app.jobs import ledger
from app.schema import jobs, validations

if TYPE_CHECKING:
    from app.store import Store

Json = dict[str, Any]

MOST = 200
"""Newest validations that are looked at; older ones of the same programs are in the history."""


def same(connection: sa.Connection, digest: str | None) -> str | None:
    """The validation of that digest that waits, runs, or has measured something; the oldest. None for no digest."""
    timed = sa.and_(jobs.c.state == "done", validations.c.device.is_not(None), validations.c.outcome != "unmeasured")
    return ledger.same(connection, validations, digest, sa.or_(timed, ledger.in_state(ledger.GOING_ON)))


def records(store: Store, texts: Collection[str]) -> tuple[Json, ...]:
    """Validations of the same programs as these regions', at any sizes, newest first, as the archive's records are.

    `archived.here` tells them from files. Only those that timed something on a GPU.
    """
    programs = sorted({likeness(text, "other-sizes") for text in texts})
    wanted = sa.and_(validations.c.program.in_(programs), validations.c.device.is_not(None))
    newest = (
        sa.select(*(validations.c[name] for name in ("id", "name", "region", "created_at", "body")))
        .where(wanted, validations.c.outcome.is_not(None))
        .order_by(validations.c.created_at.desc(), validations.c.id.desc())
        .limit(MOST)
    )
    with store.database.read() as connection:
        rows = connection.execute(newest).all()
    return tuple(_record(*row) for row in rows if _timed(row.body))


def _timed(body: Json | None) -> bool:
    return any(c.get("status") == "ok" and c.get("time_us") for c in (body or {}).get("candidates") or ())


def _record(validation_id: str, name: str, region: str, created_at: str, body: Json) -> Json:
    own = {"id": validation_id, "name": name, "region": region, "created_at": created_at}
    return {**body, **own, "state": "done", "archived": {"here": True}}
