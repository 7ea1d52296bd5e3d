"""The jobs table: who waits, who runs, who is lost. Every function takes the caller's transaction."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, cast

import sqlalchemy as sa

from app.objects.common import Error, Progress, State
from app.objects.job import ClaimedJob, JobEnd, JobEvent, JobKind
from app.objects.task import Task
from app.rate_limit import CLIENT
from app.storage.database import iso, now, one_at_a_time
from app.storage.tables import events, jobs

KINDS: tuple[JobKind, ...] = ("read", "validate", "landscape", "check")
FINAL = frozenset({"done", "failed", "cancelled"})
GOING_ON = frozenset({"queued", "running"})
GOING_WELL = GOING_ON | {"done"}
MAX_ATTEMPTS = 2
"""A job whose server died is run once more, then given up: a job that kills its server must not do so for ever."""

LOST: Error = {
    "code": "worker-lost",
    "message": "The server stopped twice while this job ran.",
    "remedy": "Look at the server's log, then start the job again.",
}

WAITED: Error = {
    "code": "queue-timeout",
    "message": "The job waited for longer than jobs may (TRITONWORTHY_QUEUE_TIMEOUT_S).",
    "remedy": "Start it again when less waits, or ask for a kind of GPU that is free.",
}


class Lease(NamedTuple):
    """A running job as seen at one moment. until: what the last heartbeat wrote; only that it changes matters."""

    job_id: str
    owner: str
    attempt: int
    until: float


class QueueFullError(Exception):
    """No room for another job of this kind."""


def add(connection: sa.Connection, *, job_id: str, kind: JobKind, request: Task, cap: int) -> None:
    """Queue a job; QueueFullError when `cap` jobs of its kind wait already, or one client's share of them."""
    one_at_a_time(connection, f"add {kind}")  # or several servers count the same waiting jobs
    if room(connection, kind, cap)[1] <= 0:
        raise QueueFullError(kind)
    client = CLIENT.get()
    if client is not None:
        request = cast("Task", {**request, "client": client.name})
    connection.execute(
        jobs.insert().values(
            id=job_id,
            kind=kind,
            state="queued",
            request=request,
            accelerator=request.get("on"),
            client=client and client.name,
            created_at=now(),
            attempt=0,
        )
    )
    add_event(connection, job_id, "progress", progress("queued"))


def same(connection: sa.Connection, table: sa.Table, digest: str | None, states: Collection[str]) -> str | None:
    """The id of the row of that digest whose job is in one of the states, the oldest; None for no digest.

    Nobody else looks for this digest until the transaction ends, so that of two who ask at once one finds the other's.
    """
    if digest is None:
        return None
    one_at_a_time(connection, f"{table.name} {digest}")
    alike = sa.select(table.c.id).join(jobs, jobs.c.id == table.c.id)
    alike = alike.where(table.c.digest == digest, in_state(states))
    known: str | None = connection.scalar(alike.order_by(table.c.created_at, table.c.id).limit(1))
    return known


def in_state(states: Collection[str]) -> sa.ColumnElement[bool]:
    """Jobs in one of these states."""
    return jobs.c.state.in_(sorted(states))


def room(connection: sa.Connection, kind: JobKind, cap: int) -> tuple[int, int]:
    """Places in the queue of a kind for whoever asks now: how many, and how many of them are free."""
    waiting = sa.select(sa.func.count()).select_from(jobs).where(jobs.c.kind == kind, jobs.c.state == "queued")
    free = cap - (connection.scalar(waiting) or 0)
    client = CLIENT.get()
    if client is None or client.most_waiting >= cap:
        return cap, free
    own = connection.scalar(waiting.where(jobs.c.client == client.name)) or 0
    return client.most_waiting, min(free, client.most_waiting - own)


def ahead(connection: sa.Connection, job_id: str) -> int | None:
    """How many waiting jobs of its kind, for the same kind of GPU, stand before this one; None unless it waits."""
    other = jobs.alias()
    older = sa.or_(
        other.c.created_at < jobs.c.created_at,
        sa.and_(other.c.created_at == jobs.c.created_at, other.c.id < jobs.c.id),
    )
    before = sa.and_(
        other.c.kind == jobs.c.kind,
        other.c.state == "queued",
        other.c.accelerator.is_not_distinct_from(jobs.c.accelerator),
        older,
    )
    count = sa.select(sa.func.count()).select_from(other).where(before).scalar_subquery()
    waits: int | None = connection.scalar(sa.select(count).where(jobs.c.id == job_id, jobs.c.state == "queued"))
    return waits


def claim(
    connection: sa.Connection, *, kind: JobKind, owner: str, lease_s: float, full: Collection[str] = ()
) -> ClaimedJob | None:
    """Take the oldest waiting job of this kind, or None. Two claimers never get the same one.

    full: kinds of GPU that take no more now; jobs whose request is `on` one of them stay waiting.
    """
    waiting = jobs.alias()
    oldest = (
        sa.select(waiting.c.id)
        .where(waiting.c.kind == kind, waiting.c.state == "queued", can_start(full, waiting))
        .order_by(waiting.c.created_at, waiting.c.id)
        .limit(1)
        # PostgreSQL: what another server is about to take is no reason to wait. SQLite: one writes at a time.
        .with_for_update(skip_locked=True)
    )
    taken = connection.execute(
        jobs.update()
        .where(jobs.c.id == oldest.scalar_subquery())
        .values(
            state="running",
            owner=owner,
            attempt=jobs.c.attempt + 1,
            lease_until=time.time() + lease_s,
            started_at=now(),
        )
        .returning(jobs)
    )
    row = taken.mappings().first()
    return None if row is None else cast("ClaimedJob", dict(row))


def can_start(full: Collection[str], table: sa.FromClause = jobs) -> sa.ColumnElement[bool]:
    """Jobs that need none of these kinds of GPU."""
    wanted = table.c.accelerator
    return sa.or_(wanted.is_(None), wanted.not_in(full)) if full else sa.true()


def expire(connection: sa.Connection, waiting_s: float, now_s: float) -> list[str]:
    """End the jobs that have waited for longer than that; their ids. now_s: Unix time.

    One that was given back waits since it was last begun: its first attempt was no waiting.
    """
    latest = datetime.fromtimestamp(now_s, UTC) - timedelta(seconds=waiting_s)
    began = sa.func.coalesce(jobs.c.started_at, jobs.c.created_at)
    late = sa.and_(jobs.c.state == "queued", began < iso(latest))
    ids = connection.scalars(sa.select(jobs.c.id).where(late)).all()
    return [i for i in ids if _end(connection, sa.and_(jobs.c.id == i, late), i, "failed", WAITED)]


def heartbeat(connection: sa.Connection, *, job_id: str, owner: str, attempt: int, lease_s: float) -> str:
    """Renew the lease. Answers "ok", "cancel" (somebody asked for it) or "lost" (the job is no longer ours)."""
    mine = held_by_attempt(job_id=job_id, owner=owner, attempt=attempt)
    if connection.execute(jobs.update().where(mine).values(lease_until=time.time() + lease_s)).rowcount != 1:
        return "lost"
    return "cancel" if connection.scalar(sa.select(jobs.c.cancel_requested).where(jobs.c.id == job_id)) else "ok"


def finish(
    connection: sa.Connection, *, job_id: str, owner: str, attempt: int, state: State, error: Error | None = None
) -> bool:
    """Record how the job ended; False when it is no longer ours, and then nothing may be stored for it."""
    return _end(connection, held_by_attempt(job_id=job_id, owner=owner, attempt=attempt), job_id, state, error)


def cancel(connection: sa.Connection, job_id: str) -> str | None:
    """A waiting job ends now, a running one is asked to. The state afterwards; None for an unknown id."""
    # Locked, or it could begin, or be given back, between the two questions, and nobody would be asked.
    connection.execute(sa.select(jobs.c.id).where(jobs.c.id == job_id).with_for_update())
    waiting = sa.and_(jobs.c.id == job_id, jobs.c.state == "queued")
    if _end(connection, waiting, job_id, "cancelled", None):
        return "cancelled"
    connection.execute(
        jobs.update().where(jobs.c.id == job_id, jobs.c.state == "running").values(cancel_requested=True)
    )
    return connection.scalar(sa.select(jobs.c.state).where(jobs.c.id == job_id))


def cancel_is_asked(connection: sa.Connection, job_id: str) -> bool:
    """Whether somebody wants this running job to stop."""
    return bool(connection.scalar(sa.select(jobs.c.cancel_requested).where(jobs.c.id == job_id)))


def running(connection: sa.Connection) -> list[Lease]:
    """The leases of all running jobs, ours too."""
    held = sa.select(jobs.c.id, jobs.c.owner, jobs.c.attempt, jobs.c.lease_until).where(jobs.c.state == "running")
    return [Lease(*row) for row in connection.execute(held)]


def leases_unchanged(leases: Iterable[Lease]) -> sa.ColumnElement[bool]:
    """Jobs whose leases are still the same: nobody renewed them since they were looked at."""
    same = (
        sa.and_(held_by_attempt(job_id=i.job_id, owner=i.owner, attempt=i.attempt), jobs.c.lease_until == i.until)
        for i in leases
    )
    return sa.or_(sa.false(), *same)


def held_by_attempt(*, job_id: str, owner: str, attempt: int) -> sa.ColumnElement[bool]:
    """That job, while that attempt of that owner runs it."""
    return sa.and_(jobs.c.id == job_id, jobs.c.owner == owner, jobs.c.attempt == attempt, jobs.c.state == "running")


def is_held(connection: sa.Connection, *, job_id: str, owner: str, attempt: int) -> bool:
    """Whether that attempt of that owner runs the job; until the transaction ends nobody takes it."""
    wanted = sa.select(jobs.c.id).where(held_by_attempt(job_id=job_id, owner=owner, attempt=attempt))
    return connection.scalar(wanted.with_for_update()) is not None


def take_back(
    connection: sa.Connection,
    condition: sa.ColumnElement[bool],
    *,
    why: str = "the server was restarted",
    error: Error = LOST,
) -> tuple[list[str], list[str]]:
    """Running jobs that did not end: ids queued once more, and ids given up with that error after the second attempt.

    One that somebody wants to stop is cancelled instead. why: what a reader of the job's progress is told.
    """
    lost = connection.execute(
        sa.select(jobs.c.id, jobs.c.attempt, jobs.c.cancel_requested)
        .where(jobs.c.state == "running", condition)
        .order_by(jobs.c.id)  # all servers lock them in one order
        .with_for_update()
    ).all()
    again, given_up = [], []
    for job_id, attempt, cancelled in lost:
        mine = sa.and_(jobs.c.id == job_id, jobs.c.attempt == attempt, condition)
        if cancelled:
            _end(connection, mine, job_id, "cancelled", None)
        elif attempt >= MAX_ATTEMPTS:
            if _end(connection, mine, job_id, "failed", error):
                given_up.append(job_id)
        elif connection.execute(jobs.update().where(mine).values(state="queued", owner=None)).rowcount == 1:
            add_event(connection, job_id, "progress", progress("queued", why))
            again.append(job_id)
    return again, given_up


def release(connection: sa.Connection, owner: str) -> None:
    """What a server that stops was running waits again. Not the jobs' fault: the attempt does not count."""
    mine = sa.and_(jobs.c.owner == owner, jobs.c.state == "running")
    held_now = sa.select(jobs.c.id, jobs.c.cancel_requested).where(mine).order_by(jobs.c.id).with_for_update()
    for job_id, cancelled in connection.execute(held_now).all():
        if cancelled:
            _end(connection, sa.and_(mine, jobs.c.id == job_id), job_id, "cancelled", None)
            continue
        again = jobs.update().where(sa.and_(mine, jobs.c.id == job_id))
        if connection.execute(again.values(state="queued", owner=None, attempt=jobs.c.attempt - 1)).rowcount == 1:
            add_event(connection, job_id, "progress", progress("queued", "the server that ran it stopped"))


def oldest_waiting(connection: sa.Connection) -> dict[str, str]:
    """kind -> when its oldest waiting job was queued (ISO 8601, UTC)."""
    oldest = sa.select(jobs.c.kind, sa.func.min(jobs.c.created_at)).where(jobs.c.state == "queued")
    return {row.kind: row[1] for row in connection.execute(oldest.group_by(jobs.c.kind))}


def progress(phase: str, message: str = "", *, candidate: str = "", fraction: float | None = None) -> Progress:
    """Progress as the API shows it."""
    return {"phase": phase, "candidate": candidate, "fraction": fraction, "message": message}


def add_event(
    connection: sa.Connection, job_id: str, event: Literal["progress", "done"], data: Progress | JobEnd
) -> int:
    """Append to the job's stream; progress is kept on the job's row too.

    The row is locked first: two writers would take the same number, and a reader miss the one that commits late.
    """
    connection.execute(sa.select(jobs.c.id).where(jobs.c.id == job_id).with_for_update())
    last = connection.scalar(sa.select(sa.func.max(events.c.seq)).where(events.c.job_id == job_id)) or 0
    connection.execute(events.insert().values(job_id=job_id, seq=last + 1, event=event, data=data))
    if event == "progress":
        connection.execute(jobs.update().where(jobs.c.id == job_id).values(progress=data))
    return int(last) + 1


def events_after(connection: sa.Connection, job_id: str, after: int) -> list[JobEvent]:
    """The job's stream from the event that follows number `after`."""
    stream = connection.execute(
        sa.select(events.c.seq, events.c.event, events.c.data)
        .where(events.c.job_id == job_id, events.c.seq > after)
        .order_by(events.c.seq)
    )
    return [cast("JobEvent", dict(row)) for row in stream.mappings()]


def counts(connection: sa.Connection) -> dict[tuple[str, str], int]:
    """(kind, state) -> number of jobs."""
    counted = connection.execute(
        sa.select(jobs.c.kind, jobs.c.state, sa.func.count()).group_by(jobs.c.kind, jobs.c.state)
    )
    return {(kind, state): count for kind, state, count in counted}


def _end(
    connection: sa.Connection, condition: sa.ColumnElement[bool], job_id: str, state: State, error: Error | None
) -> bool:
    ended = connection.execute(
        jobs.update().where(condition).values(state=state, error=error, finished_at=now(), lease_until=None, owner=None)
    )
    if ended.rowcount != 1:
        return False
    add_event(connection, job_id, "done", {"state": state, "error": error})
    return True
