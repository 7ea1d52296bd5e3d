"""The database connection: engine, what SQLite and PostgreSQL need told, ids and times. All other SQL is portable."""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from app import migrations
from app.migrations import SchemaError

__all__ = ["Database", "SchemaError", "finite", "is_id", "iso", "make_engine", "new_id", "now", "one_at_a_time"]

BUSY_TIMEOUT_MS = 10_000
ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_LENGTH = 26  # 36**26 > 2**134: cannot be guessed

POSTGRESQL = {
    "lock_timeout": f"{BUSY_TIMEOUT_MS}ms",
    # A server that is stopped in the middle of a transaction (SIGSTOP, a laptop's lid) must not stop the others.
    "idle_in_transaction_session_timeout": "60s",
}
"""Settings of each of our sessions."""

ADVISORY = 7402
"""The first half of our advisory locks' numbers: PostgreSQL has one space of them for each database."""

KEEPALIVE = {"keepalives_idle": 3, "keepalives_interval": 1, "keepalives_count": 3, "tcp_user_timeout": 5_000}
"""libpq's: a database host that vanished is noticed in seconds, not in two hours. Well under a lease (15 s): whoever
guards a child writes to the database, and has to be free to end the child before another server takes its job."""
CONNECT_S = 3


def new_id() -> str:
    """26 characters of [a-z0-9], at least 128 bits of the system's randomness."""
    return "".join(secrets.choice(ID_ALPHABET) for _ in range(ID_LENGTH))


def is_id(value: object) -> bool:
    """Whether this could be one of ours; anything else is answered like an unknown id."""
    return isinstance(value, str) and len(value) == ID_LENGTH and all(c in ID_ALPHABET for c in value)


def now() -> str:
    """The time as `iso` writes it."""
    return iso(datetime.now(UTC))


def iso(time: datetime) -> str:
    """A time in UTC as ISO 8601 with microseconds: text that sorts by time in every database."""
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def finite(value: Any) -> Any:
    """The same JSON with null in place of NaN and infinities, which JSON cannot say."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def make_engine(url: str) -> sa.Engine:
    """An engine for SQLite or PostgreSQL; nothing is opened yet. ValueError for another database."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise ValueError("the database's URL is none that SQLAlchemy can read") from None
    kind = parsed.get_backend_name()
    if kind == "sqlite":
        engine = sa.create_engine(parsed, json_serializer=_json)
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    if kind not in ("postgresql", "postgres"):
        raise ValueError(f"the database is SQLite or PostgreSQL, not {kind}")
    options = " ".join(f"-c {name}={value}" for name, value in POSTGRESQL.items())
    given = parsed.query.get("options", "")
    try:
        return sa.create_engine(
            parsed.set(drivername="postgresql+psycopg").difference_update_query(["options"]),
            json_serializer=_json,
            pool_pre_ping=True,  # the database may be restarted under us
            connect_args={"options": f"{options} {given}".strip(), "connect_timeout": CONNECT_S, **KEEPALIVE},
        )
    except ModuleNotFoundError:
        raise ValueError("PostgreSQL needs its driver: pip install 'tritonworthy[postgres]'") from None


class Database:
    """An engine with its schema in place. Thread-safe; `read` and `write` are the only ways in."""

    def __init__(self, url: str) -> None:
        self.engine = make_engine(url)
        # A view of one moment for several selects is what SQLite gives by itself.
        moment = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._read = moment if self.engine.dialect.name == "postgresql" else {}
        try:
            migrations.upgrade(self.engine)
        except BaseException:
            self.engine.dispose()
            raise

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A consistent view for several selects."""
        with self.engine.connect().execution_options(**self._read) as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """One transaction: all of it or nothing.

        On PostgreSQL several write at once, each statement seeing what others committed before it (READ COMMITTED):
        who reads a row to change it selects it `with_for_update()`, which SQLite ignores, where one writes at a time.
        """
        with self.engine.connect().execution_options(tritonworthy_write=True) as connection, connection.begin():
            yield connection

    def close(self) -> None:
        self.engine.dispose()


def one_at_a_time(connection: sa.Connection, name: str) -> None:
    """Until this transaction ends, nobody else goes on from here with the same name. SQLite's writes wait anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY, sa.func.hashtext(name))))


def _json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value))


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
