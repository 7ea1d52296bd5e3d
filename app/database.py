"""The database connection: engine, SQLite's pragmas, schema version, ids and times. All other SQL is portable."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from app import schema

BUSY_TIMEOUT_MS = 10_000
ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_LENGTH = 26  # 36**26 > 2**134: cannot be guessed

Migration = Callable[[sa.Connection], None]

MIGRATIONS: dict[int, Migration] = {}
"""version -> the step that makes it from the version before; empty while there is only version 1."""


class SchemaError(Exception):
    """The database belongs to a newer version of this program."""


def new_id() -> str:
    """26 characters of [a-z0-9], at least 128 bits of the system's randomness."""
    return "".join(secrets.choice(ID_ALPHABET) for _ in range(ID_LENGTH))


def is_id(value: object) -> bool:
    """Whether this could be one of ours; anything else is answered like an unknown id."""
    return isinstance(value, str) and len(value) == ID_LENGTH and all(c in ID_ALPHABET for c in value)


def now() -> str:
    """The time as ISO 8601 in UTC with microseconds: text that sorts by time in every database."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Database:
    """An engine with its schema in place. Thread-safe; `read` and `write` are the only ways in."""

    def __init__(self, url: str) -> None:
        self.engine = sa.create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
        if self.engine.dialect.name == "sqlite":
            sa.event.listen(self.engine, "connect", _prepare_sqlite)
            sa.event.listen(self.engine, "begin", _begin_sqlite)
        self._migrate()

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A consistent view for several selects."""
        with self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """One transaction: all of it or nothing."""
        with self.engine.connect().execution_options(tritonworthy_write=True) as connection, connection.begin():
            yield connection

    def close(self) -> None:
        self.engine.dispose()

    def _migrate(self) -> None:
        with self.write() as connection:
            schema.metadata.create_all(connection)
            found = connection.scalar(sa.select(schema.schema_version.c.version))
            if found is None:
                connection.execute(schema.schema_version.insert().values(version=schema.VERSION))
                return
            if found > schema.VERSION:
                raise SchemaError(
                    f"the database has schema version {found}, this program knows {schema.VERSION}: "
                    "run the newer program, or use another data folder"
                )
            for version in range(found + 1, schema.VERSION + 1):
                MIGRATIONS[version](connection)
            connection.execute(schema.schema_version.update().values(version=schema.VERSION))


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # The driver's own BEGIN comes too late for a read that becomes a write (SQLITE_BUSY at once): we say BEGIN.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")


def _begin_sqlite(connection: sa.Connection) -> None:
    write = connection.get_execution_options().get("tritonworthy_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
