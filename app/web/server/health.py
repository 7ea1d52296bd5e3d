"""Whether this server can do its work now: what /readyz answers. Asked often, by anybody: answers live for a second."""

from __future__ import annotations

import logging
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from app.errors import Problem
from app.requests.state import ServerState
from app.requests.uploads import check_disk
from app.settings import Settings
from app.storage.damage import LostError
from app.storage.database import BUSY_TIMEOUT_MS, Database

log = logging.getLogger("tritonworthy")

KEPT_S = 1.0
LOCK_MS = 2000
"""A database that is locked for longer than this answers nobody in time."""

PROBE_BYTES = 64 * 1024

STOPPING = "the server is stopping"
NO_QUEUE = "the queue does not run"
RESULT_WAITS = "a result waits to be stored"
ALL_STUCK = "every process that advises on regions is stuck"
NO_CHILD = "no process that advises on regions can be started"
CHILD_S = 180.0
"""Until that is said: the template that they are forked from takes 4 s to start, on a busy host a minute."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """wrong: why it cannot work, in words; nothing when it can. warnings: what it does not do at present."""

    wrong: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is looked at. name: for the log. look: what is wrong with it, in words for an operator; "" where
    nothing is. It has to answer within a fraction of a second. fatal: whether the server is not ready then, or only
    warns."""

    name: str
    look: Callable[[], str]
    fatal: bool = True


class Health:
    """Call it for the Readiness of the server whose app.state it was given. Thread-safe.

    `checks` are looked at in their order; parts of the server add their own with `add`.
    """

    def __init__(self, state: ServerState, clock: Callable[[], float] = time.monotonic) -> None:
        self.state = state
        self.clock = clock
        self.lock = threading.Lock()
        self.readiness = Readiness()
        self.until = float("-inf")
        self.checks: list[Check] = [
            Check("database", lambda: _database(state.store.database)),
            Check("data folder", lambda: _folder(state.settings.data_dir)),
            Check("queue", lambda: _queue(state)),
            Check("results", lambda: _results(state)),
            Check("room for uploads", lambda: _room(state.settings)),
            Check("advice", lambda: _advice(state)),
            Check("processes that advise", lambda: _some_stuck(state), fatal=False),
            Check("oracle", lambda: _stuck_oracle(state), fatal=False),
            Check("jobs", lambda: _stuck_jobs(state), fatal=False),
            Check("GPU", lambda: _gpu(state), fatal=False),
        ]

    def add(self, check: Check) -> None:
        """Look at this too from now on."""
        with self.lock:
            self.checks.append(check)

    def __call__(self) -> Readiness:
        with self.lock:
            if self.clock() >= self.until:
                self.readiness = self._look()
                self.until = self.clock() + KEPT_S
            return self.readiness

    def _look(self) -> Readiness:
        answers = [(check, _run(check)) for check in self.checks]
        wrong = dict.fromkeys(words for check, words in answers if words and check.fatal)
        warnings = dict.fromkeys(words for check, words in answers if words and not check.fatal)
        return Readiness(tuple(wrong), tuple(warnings))


def _run(check: Check) -> str:
    """A check that fails itself is no reason to say that all is well, nor to answer nobody."""
    try:
        return check.look()
    except Exception:
        log.exception("the check of %s failed", check.name)
        return f"the check of {check.name} failed: the log says why"


def _queue(state: ServerState) -> str:
    if state.closing.is_set():
        return STOPPING
    return "" if state.queue.alive else NO_QUEUE


def _results(state: ServerState) -> str:
    return RESULT_WAITS if state.queue.trouble else ""


def _room(settings: Settings) -> str:
    try:
        check_disk(settings)
    except Problem as problem:
        return problem.detail
    return ""


def _gpu(state: ServerState) -> str:
    suspicion = state.queue.gpu.suspicion
    return f"the GPU is suspect since {suspicion.since}, measurements wait: {suspicion.reason}" if suspicion else ""


def _stuck_jobs(state: ServerState) -> str:
    return "; ".join(
        f"process {pid} does not end: no {kind} jobs until it does" for kind, pid in state.queue.stuck.items()
    )


def _stuck_oracle(state: ServerState) -> str:
    oracle = state.service.oracle
    pids = [*(oracle.stuck() if oracle is not None else []), *state.trace_oracle.stuck()]
    return f"of the oracle's processes {', '.join(map(str, pids))} do not end; it answers by others" if pids else ""


def _some_stuck(state: ServerState) -> str:
    number = state.service.pool.stuck()
    return f"{number} of {state.service.pool.size} processes that advise are stuck" if number else ""


def _advice(state: ServerState) -> str:
    pool = state.service.pool
    if pool.stuck() >= pool.size:
        return ALL_STUCK
    return NO_CHILD if pool.missing_s > CHILD_S else ""


def _database(database: Database) -> str:
    """Why nothing can be read from the database or written to it; "" where it can."""
    try:
        database.check(thoroughly=True)
        if database.engine.dialect.name == "sqlite":
            _begin_sqlite(database)
        else:
            with database.write() as connection:
                connection.execute(sa.text("SELECT 1"))
    except LostError as lost:
        log.error("%s %s", lost.words, lost.remedy)
        return f"{lost.words} {lost.remedy}"
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        log.warning("the database cannot be written: %s", getattr(error, "orig", None) or error)
        return f"the database {describe_database_error(error)}"
    return ""


def _begin_sqlite(database: Database) -> None:
    """Take the lock for writing and give it back, with less patience than a transaction has."""
    raw = database.engine.raw_connection()
    try:
        cursor = raw.cursor()
        cursor.execute(f"PRAGMA busy_timeout={LOCK_MS}")
        try:
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute("ROLLBACK")
        finally:
            cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    finally:
        raw.close()


def describe_database_error(error: Exception) -> str:
    """What a database's error means, in words of ours: its own may name hosts and files."""
    text = str(getattr(error, "orig", None) or error)
    known = {"locked": "is locked", "full": "has no room: the disk is full", "readonly": "cannot be written: read-only"}
    return next((words for part, words in known.items() if part in text), "does not answer")


def _folder(folder: Path) -> str:
    """Why nothing can be written to the data folder; "" where it can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * PROBE_BYTES)
            file.flush()
    except OSError as error:
        return f"the data folder cannot be written: {error.strerror}"
    return ""
