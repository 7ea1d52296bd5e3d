"""What a database cannot recover from by itself: pages that are damaged, a file that is gone. How each is noticed.

SQLite tells of a damaged page only when it reads it. So the whole file is read now and then (`Integrity`), and what any
request or job meets is remembered (app.storage.database). Nobody tells of a file that was removed or replaced: SQLite
goes on
with what it has open, and what it is given is lost. So the file is looked for before each transaction (`Presence`).
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

WAIT_S = 0.25
"""Who asks for the state of a large file is told what the look before this one saw."""

SHARE = 0.05
"""Of the time, for reading a large file again and again."""

LEAST_S = 1.0


class LostError(sa.exc.OperationalError):
    """The database is of no use until somebody does what `remedy` says. code: the problem's."""

    def __init__(self, code: str, detail: str, remedy: str) -> None:
        super().__init__(None, None, sqlite3.DatabaseError(detail))
        self.problem_code = code
        self.words = detail
        self.remedy = remedy


def damage_error() -> LostError:
    """Pages of the file are not what was written."""
    return LostError(
        "storage-corrupt",
        "The database is damaged.",
        "Stop the server, put the newest backup in the place of the database (docs/operations.md, Backup), and start it"
        " again. Uploaded files are not touched by this.",
    )


def removal_error(what: str = "The data folder, or the database in it,") -> LostError:
    """It was removed or replaced under the running server."""
    return LostError(
        "storage-failed",
        f"{what} is gone: it was removed or replaced while the server ran.",
        "Stop the server, bring the folder back or restore the newest backup (docs/operations.md, Backup), and start it"
        " again. Nothing is made anew meanwhile.",
    )


def is_damage(error: BaseException) -> bool:
    """Whether an error of a driver says that what is stored is not what was written."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    if code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return True
    if isinstance(error, sqlite3.Error):
        return "Could not decode to UTF-8" in str(error)
    return getattr(error, "sqlstate", None) in ("XX001", "XX002")  # PostgreSQL's corrupt data and corrupt index


def read_json(text: str) -> Any:
    """A column's JSON. It was valid when it was written."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise damage_error() from error


class Presence:
    """Call it before each use of a SQLite file: LostError where it is not the one that was opened. Two microseconds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        status = os.stat(path)
        self.file = (status.st_dev, status.st_ino)

    def __call__(self) -> None:
        try:
            status = os.stat(self.path)
        except OSError:
            raise removal_error() from None
        if (status.st_dev, status.st_ino) != self.file:
            raise removal_error()


@dataclass
class Integrity:
    """Call it for whether a SQLite file is whole, as far as is known; it is read again in a thread of its own.

    A file of some megabytes is read while who asks waits; a larger one now and then, a twentieth of the time.
    """

    path: Path
    clock: Callable[[], float] = time.monotonic
    wait_s: float = WAIT_S
    whole: bool = True
    again: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)
    looked: threading.Event = field(default_factory=threading.Event)
    looking: bool = False

    def __call__(self) -> bool:
        with self.lock:
            if not self.looking and self.clock() >= self.again:
                self.looking = True
                self.looked.clear()
                threading.Thread(target=self._look, name="integrity", daemon=True).start()
        self.looked.wait(self.wait_s)
        return self.whole

    def doubt(self) -> None:
        """Somebody met damage: so it stands until the file has been read once more."""
        with self.lock:
            self.whole = False
            self.again = float("-inf")

    def _look(self) -> None:
        began = self.clock()
        try:
            self.whole = is_whole(self.path, self.whole)
        finally:
            with self.lock:
                self.again = self.clock() + max(LEAST_S, (self.clock() - began) / SHARE)
                self.looking = False
            self.looked.set()


def is_whole(path: Path, unknown: bool = True) -> bool:
    """Whether all pages of a SQLite file are in order, read from the disk anew; `unknown` where it cannot be read."""
    try:
        with_mode = f"file:{quote(str(path))}?mode=ro"
        connection = sqlite3.connect(with_mode, uri=True, timeout=1.0)
    except sqlite3.Error:
        return unknown
    try:
        return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.Error as error:
        return False if is_damage(error) else unknown
    finally:
        connection.close()
