"""The jobs table: who waits, who runs, who is lost. Every function takes the caller's transaction."""

from __future__ import annotations

import time
from typing import Any, Literal

import sqlalchemy as sa

from app.database import now
from app.schema import events, jobs

Kind = Literal["read", "validate", "landscape", "check"]
Json = dict[str, Any]

KINDS: tuple[Kind, ...] = ("read", "validate", "landscape", "check")
FINAL = frozenset({"done", "failed", "cancelled"})
MAX_ATTEMPTS = 2
"""A job whose server died is run once more, then given up: a job that kills its server must not do so for ever."""

LOST = {
    "code": "worker-lost",
    "message": "The server stopped twice while this job ran.",
    "remedy": "Look at the server's log, then start the job again.",
}


class QueueFullError(Exception):
    """No room for another job of this kind."""


def add(connection: sa.Connection, *, job_id: str, kind: Kind, request: Json, cap: int) -> None:
    """Queue a job; QueueFullError when `cap` jobs of its kind wait already."""
    waiting = connection.scalar(
        sa.select(sa.func.count()).select_from(jobs).where(jobs.c.kind == kind, jobs.c.state == "queued")
    )
    if (waiting or 0) >= cap:
        raise QueueFullError(kind)
    connection.execute(
        jobs.insert().values(id=job_id, kind=kind, state="queued", request=request, created_at=now(), attempt=0)
    )
    add_event(connection, job_id, "progress", progress("queued"))


def claim(connection: sa.Connection, *, kind: Kind, owner: str, lease_s: float) -> Json | None:
    """Take the oldest waiting job of this kind, or None. Two claimers never get the same one."""
    found = (
        connection.execute(
            sa.select(jobs)
            .where(jobs.c.kind == kind, jobs.c.state == "queued")
            .order_by(jobs.c.created_at, jobs.c.id)
            .limit(1)
        )
        .mappings()
        .first()
    )
    if found is None:
        return None
    taken = connection.execute(
        jobs.update()
        .where(jobs.c.id == found["id"], jobs.c.state == "queued")
        .values(
            state="running",
            owner=owner,
            attempt=found["attempt"] + 1,
            lease_until=time.time() + lease_s,
            started_at=now(),
        )
    )
    if taken.rowcount != 1:
        return None
    return {**found, "state": "running", "owner": owner, "attempt": found["attempt"] + 1}


def heartbeat(connection: sa.Connection, *, job_id: str, owner: str, attempt: int, lease_s: float) -> str:
    """Renew the lease. Answers "ok", "cancel" (somebody asked for it) or "lost" (the job is no longer ours)."""
    held = sa.and_(jobs.c.id == job_id, jobs.c.owner == owner, jobs.c.attempt == attempt, jobs.c.state == "running")
    if connection.execute(jobs.update().where(held).values(lease_until=time.time() + lease_s)).rowcount != 1:
        return "lost"
    return "cancel" if connection.scalar(sa.select(jobs.c.cancel_requested).where(jobs.c.id == job_id)) else "ok"


def finish(
    connection: sa.Connection, *, job_id: str, owner: str, attempt: int, state: str, error: Json | None = None
) -> bool:
    """Record how the job ended; False when it is no longer ours, and then nothing may be stored for it."""
    held = sa.and_(jobs.c.id == job_id, jobs.c.owner == owner, jobs.c.attempt == attempt, jobs.c.state == "running")
    return _end(connection, held, job_id, state, error)


def cancel(connection: sa.Connection, job_id: str) -> str | None:
    """A waiting job ends now, a running one is asked to. The state afterwards; None for an unknown id."""
    waiting = sa.and_(jobs.c.id == job_id, jobs.c.state == "queued")
    if _end(connection, waiting, job_id, "cancelled", None):
        return "cancelled"
    connection.execute(
        jobs.update().where(jobs.c.id == job_id, jobs.c.state == "running").values(cancel_requested=True)
    )
    return connection.scalar(sa.select(jobs.c.state).where(jobs.c.id == job_id))


def take_back(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> tuple[list[str], list[str]]:
    """Running jobs whose server is gone: ids queued once more, and ids given up after the second attempt."""
    lost = connection.execute(
        sa.select(jobs.c.id, jobs.c.attempt, jobs.c.cancel_requested).where(jobs.c.state == "running", condition)
    ).all()
    again, given_up = [], []
    for job_id, attempt, cancelled in lost:
        mine = sa.and_(jobs.c.id == job_id, jobs.c.state == "running", jobs.c.attempt == attempt)
        if cancelled:
            _end(connection, mine, job_id, "cancelled", None)
        elif attempt >= MAX_ATTEMPTS:
            if _end(connection, mine, job_id, "failed", LOST):
                given_up.append(job_id)
        elif connection.execute(jobs.update().where(mine).values(state="queued", owner=None)).rowcount == 1:
            add_event(connection, job_id, "progress", progress("queued", "the server was restarted"))
            again.append(job_id)
    return again, given_up


def lease_over() -> sa.ColumnElement[bool]:
    """Running jobs whose server has not been heard of for a whole lease."""
    return jobs.c.lease_until < time.time()


def progress(phase: str, message: str = "", *, candidate: str = "", fraction: float | None = None) -> Json:
    """Progress as the API shows it."""
    return {"phase": phase, "candidate": candidate, "fraction": fraction, "message": message}


def add_event(connection: sa.Connection, job_id: str, event: str, data: Json) -> int:
    """Append to the job's stream; progress is kept on the job's row too."""
    last = connection.scalar(sa.select(sa.func.max(events.c.seq)).where(events.c.job_id == job_id)) or 0
    connection.execute(events.insert().values(job_id=job_id, seq=last + 1, event=event, data=data))
    if event == "progress":
        connection.execute(jobs.update().where(jobs.c.id == job_id).values(progress=data))
    return int(last) + 1


def events_after(connection: sa.Connection, job_id: str, after: int) -> list[Json]:
    """The job's stream from the event that follows number `after`."""
    found = connection.execute(
        sa.select(events.c.seq, events.c.event, events.c.data)
        .where(events.c.job_id == job_id, events.c.seq > after)
        .order_by(events.c.seq)
    )
    return [dict(row) for row in found.mappings()]


def counts(connection: sa.Connection) -> dict[tuple[str, str], int]:
    """(kind, state) -> number of jobs."""
    found = connection.execute(
        sa.select(jobs.c.kind, jobs.c.state, sa.func.count()).group_by(jobs.c.kind, jobs.c.state)
    )
    return {(kind, state): count for kind, state, count in found}


def _end(
    connection: sa.Connection, condition: sa.ColumnElement[bool], job_id: str, state: str, error: Json | None
) -> bool:
    ended = connection.execute(
        jobs.update().where(condition).values(state=state, error=error, finished_at=now(), lease_until=None, owner=None)
    )
    if ended.rowcount != 1:
        return False
    add_event(connection, job_id, "done", {"state": state, "error": error})
    return True
