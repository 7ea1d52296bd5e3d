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
from typing import Any

import sqlalchemy as sa

from app.database import BUSY_TIMEOUT_MS, Database
from app.uploads import check_disk
from app.web.problems import Problem

log = logging.getLogger("tritonworthy")

KEPT_S = 1.0
LOCK_MS = 2000
"""A database that is locked for longer than this answers nobody in time."""

PROBE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Readiness:
    """wrong: why it cannot work, in words; nothing when it can. warnings: what it does not do at present."""

    wrong: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Health:
    """Call it for the Readiness of the server whose app.state it was given. Thread-safe."""

    def __init__(self, state: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self.state = state
        self.clock = clock
        self.lock = threading.Lock()
        self.found = Readiness()
        self.until = float("-inf")

    def __call__(self) -> Readiness:
        with self.lock:
            if self.clock() >= self.until:
                self.found = _look(self.state)
                self.until = self.clock() + KEPT_S
            return self.found


def _look(state: Any) -> Readiness:
    wrong = [why for why in (_database(state.store.database), _folder(state.settings.data_dir)) if why]
    if state.closing.is_set():
        wrong.append("the server is stopping")
    elif not state.queue.alive:
        wrong.append("the queue does not run")
    if state.service.pool.stuck() >= state.service.pool.size:
        wrong.append("every process that advises on regions is stuck")
    if state.queue.trouble:
        wrong.append("a result waits to be stored")
    try:
        check_disk(state.settings)
    except Problem as problem:
        wrong.append(problem.detail)
    return Readiness(tuple(wrong), tuple(_warnings(state)))


def _warnings(state: Any) -> list[str]:
    suspicion = state.queue.gpu.suspicion
    warnings = [f"process {pid} does not end: no {kind} jobs until it does" for kind, pid in state.queue.stuck.items()]
    if number := state.service.pool.stuck():
        warnings.append(f"{number} of {state.service.pool.size} processes that advise are stuck")
    if suspicion:
        warnings.append(f"the GPU is suspect since {suspicion.since}, measurements wait: {suspicion.reason}")
    return warnings


def _database(database: Database) -> str:
    """Why nothing can be written to the database; "" where it can."""
    try:
        if database.engine.dialect.name == "sqlite":
            _begin_sqlite(database)
        else:
            with database.write() as connection:
                connection.execute(sa.text("SELECT 1"))
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        log.warning("the database cannot be written: %s", getattr(error, "orig", None) or error)
        return f"the database {said(error)}"
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


def said(error: Exception) -> str:
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
