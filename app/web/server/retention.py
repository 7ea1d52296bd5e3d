"""Retention: what is kept only for so long is removed, and files that nothing refers to any more.

Validations stay: they are measurements, and small. Their trace may go.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from stat import S_ISDIR

import sqlalchemy as sa

from app.background import Background
from app.errors import Problem
from app.jobs.ray.model import JOB_FOLDER
from app.requests import traces as submit_trace
from app.requests.state import ServerState
from app.storage import check_history, job_table
from app.storage.database import iso
from app.storage.tables import checks, events, jobs, links, regions, traces, trash
from kernels.measure.request import WORK_FOLDER

log = logging.getLogger("tritonworthy.retention")

DAY_S = 24 * 3600.0
EVERY_S = 3600.0
BATCH = 500
"""Jobs whose progress is removed in one transaction."""

ORPHAN_S = DAY_S
"""A file that nothing refers to is no upload that is still coming when it has not grown for so long."""


UNDO_S = 3600.0
"""For how long a deleted trace can be brought back, at least: it goes with the first sweep after that."""

LEFT_FOLDERS = (WORK_FOLDER, JOB_FOLDER)
"""Of the system's temporary files: what a validation or a fleet's job works in, and removes unless it is killed."""


@dataclass(frozen=True, slots=True)
class Swept:
    """How many of each were removed.

    runs are of the history of checks, logs and orphans are files, progress is what ended jobs reported, folders are
    temporary ones that killed validations left, deleted are traces whose deletion could be undone until now.
    """

    traces: int = 0
    regions: int = 0
    checks: int = 0
    links: int = 0
    runs: int = 0
    logs: int = 0
    progress: int = 0
    orphans: int = 0
    folders: int = 0
    deleted: int = 0


class Retention(Background):
    """start() and stop() once: a sweep at the start and every hour after it. state: the server's."""

    def __init__(self, state: ServerState, wall: Callable[[], float] = time.time) -> None:
        super().__init__("retention")
        self.state = state
        self.wall = wall
        self.clocks = (wall(), time.monotonic())

    def serve(self) -> None:
        while not self.stopping.is_set():
            try:
                if self.clock_is_steady():
                    sweep(self.state, self.wall())
            except OSError as fault:  # a folder is gone or cannot be written: /readyz says so, with the remedy
                log.error("the sweep ended early: %s", fault)
            except Exception:
                # Nothing else depends on it; the next sweep tries again.
                log.exception("the sweep failed")
            self.stopping.wait(EVERY_S)

    def clock_is_steady(self) -> bool:
        """Whether the wall clock has gone as fast as time since it was asked last: after a jump nothing is too old."""
        before, self.clocks = self.clocks, (self.wall(), time.monotonic())
        jumped_s = (self.clocks[0] - before[0]) - (self.clocks[1] - before[1])
        if abs(jumped_s) > EVERY_S:
            log.warning("the clock jumped by %.0f s: nothing is removed before the next sweep", jumped_s)
            return False
        return True


def sweep(state: ServerState, now_s: float) -> Swept:
    """Remove what is older than the settings keep. now_s: Unix time."""
    settings = state.settings
    swept = Swept(
        **(_rows(state, iso(_utc(now_s - settings.keep_days * DAY_S))) if settings.keep_days else {}),
        logs=_old_files(settings.logs_dir, now_s - settings.keep_logs_days * DAY_S) if settings.keep_logs_days else 0,
        progress=_progress(state, iso(_utc(now_s - settings.keep_logs_days * DAY_S))) if settings.keep_logs_days else 0,
        runs=_runs(state, iso(_utc(now_s - settings.keep_history_days * DAY_S))) if settings.keep_history_days else 0,
        orphans=remove_orphans(state, now_s - ORPHAN_S),
        folders=remove_left_folders(Path(tempfile.gettempdir()), now_s - ORPHAN_S),
        deleted=submit_trace.forget_deleted(state, iso(_utc(now_s - UNDO_S))),
    )
    if swept != Swept():
        log.info("removed %s", swept)
    return swept


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=max(0.0, seconds))


def _rows(state: ServerState, before: str) -> dict[str, int]:
    """Traces, written regions, checks and short links from before then; jobs that still run keep theirs."""
    database = state.store.database
    ended = jobs.c.state.in_(sorted(job_table.FINAL))
    with database.read() as connection:
        old_traces = connection.scalars(
            sa.select(traces.c.id).join(jobs, jobs.c.id == traces.c.id).where(traces.c.created_at < before, ended)
        ).all()
        old_checks = connection.scalars(
            sa.select(checks.c.id).join(jobs, jobs.c.id == checks.c.id).where(checks.c.created_at < before, ended)
        ).all()
    for trace_id in old_traces:
        try:
            submit_trace.delete_trace(state, trace_id)
        except Problem:  # somebody else was faster
            continue
    with database.write() as connection:
        for check_id in old_checks:
            connection.execute(checks.delete().where(checks.c.id == check_id))
            connection.execute(jobs.delete().where(jobs.c.id == check_id))
        written = sa.and_(regions.c.trace_id.is_(None), regions.c.created_at < before)
        gone = connection.execute(regions.delete().where(written)).rowcount
        unlinked = connection.execute(links.delete().where(links.c.created_at < before)).rowcount
    return {"traces": len(old_traces), "regions": gone, "checks": len(old_checks), "links": unlinked}


def _runs(state: ServerState, before: str) -> int:
    with state.store.database.write() as connection:
        return check_history.forget(connection, before)


def _progress(state: ServerState, before: str) -> int:
    """Progress that jobs which ended before then have reported; how they ended stays, so their streams still end.

    Some jobs at a time: SQLite has one writer, and heartbeats are waiting behind it.
    """
    ended = sa.and_(jobs.c.state.in_(sorted(job_table.FINAL)), jobs.c.finished_at < before)
    talkative = sa.select(events.c.job_id).join(jobs, jobs.c.id == events.c.job_id)
    talkative = talkative.where(ended, events.c.event == "progress").distinct().limit(BATCH)
    removed = 0
    while True:
        with state.store.database.read() as connection:
            old = connection.scalars(talkative).all()
        if not old:
            return removed
        with state.store.database.write() as connection:
            gone = events.delete().where(events.c.event == "progress", events.c.job_id.in_(old))
            removed += connection.execute(gone).rowcount


def _old_files(folder: Path, before_s: float) -> int:
    return sum(_remove_if_older(path, before_s) for path in folder.glob("*.log"))


def remove_orphans(state: ServerState, before_s: float) -> int:
    """How many were removed: uploads without a change since then that belong to no trace and to no job that has not
    ended. A server died between file and row."""
    with state.store.database.read() as connection:
        files = set(connection.scalars(sa.select(traces.c.file)).all())
        files |= set(connection.scalars(sa.select(trash.c.file)).all())
        open_jobs = jobs.c.state.not_in(sorted(job_table.FINAL))
        wanted = str(connection.scalars(sa.select(jobs.c.request).where(open_jobs)).all())
    unknown = [p for p in state.settings.uploads_dir.iterdir() if p.name.partition(".")[0] not in files]
    return sum(_remove_if_older(path, before_s) for path in unknown if path.name not in wanted)


def remove_left_folders(temporary: Path, before_s: float) -> int:
    """How many of this user's were removed that have not changed since then."""
    removed = 0
    for path in (p for prefix in LEFT_FOLDERS for p in temporary.glob(f"{prefix}*")):
        with suppress(OSError):
            status = path.lstat()
            if S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and status.st_mtime < before_s:
                shutil.rmtree(path)
                removed += 1
    return removed


def _remove_if_older(path: Path, before_s: float) -> bool:
    try:
        status = path.stat()
        # A second name of an old file (os.link) is new, and only its inode's ctime says so.
        if max(status.st_mtime, status.st_ctime) >= before_s:
            return False
        path.unlink()
    except FileNotFoundError:
        return False
    return True
