"""The database connection: engine, what SQLite and PostgreSQL need told, ids and times. All other SQL is portable."""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from app.storage import migrations
from app.storage.damage import Integrity, Presence, damage_error, is_damage, read_json
from app.storage.migrations import SchemaError

__all__ = ["Database", "SchemaError", "finite", "is_id", "iso", "make_engine", "new_id", "now", "one_at_a_time"]

T = TypeVar("T")

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


def finite(value: T) -> T:
    """The same JSON with null in place of NaN and infinities, which JSON cannot say; tuples become lists."""
    made: T = _finite(value)
    return made


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def make_engine(url: str) -> sa.Engine:
    """An engine for SQLite or PostgreSQL; nothing is opened yet. ValueError for another database."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise ValueError("the database's URL is none that SQLAlchemy can read") from None
    kind = parsed.get_backend_name()
    if kind == "sqlite":
        engine = sa.create_engine(parsed, json_serializer=_json, json_deserializer=read_json)
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        sa.event.listen(engine, "handle_error", _tell_damage)
        return engine
    if kind not in ("postgresql", "postgres"):
        raise ValueError(f"the database is SQLite or PostgreSQL, not {kind}")
    options = " ".join(f"-c {name}={value}" for name, value in POSTGRESQL.items())
    given = parsed.query.get("options", "")
    try:
        engine = sa.create_engine(
            parsed.set(drivername="postgresql+psycopg").difference_update_query(["options"]),
            json_serializer=_json,
            pool_pre_ping=True,  # the database may be restarted under us
            connect_args={"options": f"{options} {given}".strip(), "connect_timeout": CONNECT_S, **KEEPALIVE},
        )
    except ModuleNotFoundError:
        raise ValueError("PostgreSQL needs its driver: pip install 'tritonworthy[postgres]'") from None
    sa.event.listen(engine, "handle_error", _tell_damage)
    return engine


class Database:
    """An engine with its schema in place. Thread-safe; `read` and `write` are the only ways in.

    A file that is damaged or gone is LostError, for whoever asks (app.storage.damage). Nothing is written to it any
    more.
    """

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
        self.damaged = False
        self.file = _file_of(self.engine)
        self.presence = Presence(self.file) if self.file else None
        self.integrity = Integrity(self.file) if self.file else None
        sa.event.listen(self.engine, "begin", self._check, insert=True)
        sa.event.listen(self.engine, "do_connect", self._check_before_connecting)
        sa.event.listen(self.engine, "handle_error", self._remember, insert=True)

    def check(self, *, thoroughly: bool = False) -> None:
        """LostError where the file is gone or known to be damaged. thoroughly: read it as well (see Integrity)."""
        if self.presence is not None:
            self.presence()
        if thoroughly and self.integrity is not None:
            self.damaged = not self.integrity()
        if self.damaged:
            raise damage_error()

    def _check(self, connection: sa.Connection) -> None:
        if self.presence is not None:
            self.presence()
        if self.damaged and connection.get_execution_options().get("tritonworthy_write", False):
            raise damage_error()

    def _check_before_connecting(self, *_: Any) -> None:
        """SQLite would make an empty file."""
        if self.presence is not None:
            self.presence()

    def _remember(self, context: sa.engine.ExceptionContext) -> None:
        """Damage is remembered where a look at the whole file can take it back; a server of its own tells it again."""
        if self.integrity is not None and is_damage(context.original_exception):
            self.damaged = True
            self.integrity.doubt()

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


def _file_of(engine: sa.Engine) -> Path | None:
    """SQLite's file; None for a database in memory, or of another kind."""
    name = engine.url.database
    sqlite = engine.dialect.name == "sqlite" and name and name != ":memory:" and not name.startswith("file:")
    return Path(str(name)).absolute() if sqlite else None


def _tell_damage(context: sa.engine.ExceptionContext) -> None:
    """One kind of error for what nobody can try again, in the place of the drivers' many."""
    if is_damage(context.original_exception):
        raise damage_error() from context.original_exception


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # The driver's own BEGIN comes too late for a read that becomes a write (SQLITE_BUSY at once): we say BEGIN.
    connection.isolation_level = None
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    except sqlite3.DatabaseError as error:  # here SQLAlchemy does not look
        if is_damage(error):
            raise damage_error() from error
        raise


def _begin_sqlite(connection: sa.Connection) -> None:
    write = connection.get_execution_options().get("tritonworthy_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
