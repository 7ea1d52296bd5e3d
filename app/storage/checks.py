"""The checks in the database: queued, stored, read again. Every function takes the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import sqlalchemy as sa

from app.exit_status import UNMEASURED
from app.objects.check import Check, CheckSummary, Report
from app.objects.common import Page
from app.objects.history import HistoryEntry
from app.objects.task import CheckTask
from app.storage import check_history, job_table
from app.storage.database import Database, is_id, now
from app.storage.paging import page_of
from app.storage.tables import checks, jobs
from app.storage.upload_paths import files

NOT_DONE: Mapping[str, object] = {
    "outcome": None,
    "passed": None,
    "exit_code": None,
    "because": "",
    "counts": {"errors": 0, "warnings": 0, "unmeasured": 0},
    "errors": [],
    "warnings": [],
    "unmeasured": [],
    "assertions": [],
    "subjects": [],
    "contracts": [],
    "baseline": None,
}
"""A check that is not done yet."""

_OWN = ("id", "name", "state", "progress", "error", "created_at")


def add(
    database: Database,
    *,
    check_id: str,
    name: str,
    request: CheckTask,
    cap: int,
    digest: str | None = None,
    keep: bool = True,
) -> str:
    """A check and the job that does it, of the same id, which is answered; QueueFullError leaves nothing behind.

    Where a check of that digest is here already, its id is answered and nothing is added. keep: also one that has
    ended; else, for what is measured anew each time, only one that waits or runs.
    """
    with database.write() as connection:
        states = job_table.GOING_WELL if keep else job_table.GOING_ON
        if known := job_table.same(connection, checks, digest, states):
            return known
        connection.execute(checks.insert().values(id=check_id, created_at=now(), name=name, digest=digest))
        job_table.add(connection, job_id=check_id, kind="check", request=request, cap=cap)
    return check_id


def by_id(database: Database, check_id: str) -> Check | None:
    """One check; None for an unknown id."""
    if not is_id(check_id):
        return None
    with database.read() as connection:
        row = connection.execute(_all().where(checks.c.id == check_id)).mappings().first()
    return None if row is None else _check(row)


def page(database: Database, limit: int, after: str | None) -> Page[CheckSummary]:
    """Newest first, without their findings."""
    return page_of(database, _all(), checks, limit, after, _summary)


def finish(
    database: Database, *, job_id: str, owner: str, attempt: int, report: Report, runs: Sequence[HistoryEntry] = ()
) -> bool:
    """Store a report and end its job, both or neither; False when it is no longer ours.

    runs: what it measured, where that is kept in the history.
    """
    with database.write() as connection:
        if not job_table.finish(connection, job_id=job_id, owner=owner, attempt=attempt, state="done"):
            return False
        values = {"body": report, "outcome": report["outcome"]}
        connection.execute(checks.update().where(checks.c.id == job_id).values(values))
        for run in runs:
            check_history.append_one(connection, run, job_id)
    return True


def forget_files(database: Database, uploads: Path, job_id: str) -> None:
    """Remove what was uploaded for a check that has ended; nothing for a job that may still run, or is no check.

    uploads: the folder of uploaded files.
    """
    with database.read() as connection:
        ended = jobs.c.state.in_(sorted(job_table.FINAL))
        query = sa.select(jobs.c.request).where(jobs.c.id == job_id, jobs.c.kind == "check", ended)
        request: CheckTask | None = connection.scalar(query)
    for path in files(request, uploads) if request else ():
        path.unlink(missing_ok=True)


def _all() -> sa.Select[Any]:
    return sa.select(checks, jobs.c.state, jobs.c.progress, jobs.c.error).join(jobs, jobs.c.id == checks.c.id)


def _check(row: sa.RowMapping) -> Check:
    check = {**NOT_DONE, **(row["body"] or {}), **{key: row[key] for key in _OWN}}
    if row["state"] in ("failed", "cancelled"):
        because = (row["error"] or {}).get("message") or "The check was cancelled"
        check |= {"outcome": "unmeasured", "passed": False, "exit_code": UNMEASURED, "because": because.rstrip(".")}
    return cast("Check", check)


def _summary(row: sa.RowMapping) -> CheckSummary:
    check = _check(row)
    return {
        "outcome": check["outcome"],
        "passed": check["passed"],
        "exit_code": check["exit_code"],
        "because": check["because"],
        "counts": check["counts"],
        "id": check["id"],
        "name": check["name"],
        "state": check["state"],
        "progress": check["progress"],
        "error": check["error"],
        "created_at": check["created_at"],
    }
