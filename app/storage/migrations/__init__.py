"""The schema's steps, run by Alembic when a store is opened: `upgrade`. docs/store.md tells how a step is added."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from app.storage import tables

FOLDER = Path(__file__).resolve().parent

FIRST = "0001"
"""What programs made before there was Alembic: their databases have `schema_version` 1 and no `alembic_version`."""

LOCK = 7_402_011_530_412_297
"""Of PostgreSQL's advisory locks, one that no other program is likely to take: who holds it changes the schema."""

_in_this_process = threading.Lock()  # Alembic's context is a module: one upgrade at a time


class SchemaError(Exception):
    """The database belongs to a newer version of this program, or to another one."""


def upgrade(engine: sa.Engine) -> None:
    """Bring the database to `schema.REVISION`, all of the way or not at all; SchemaError for one that is newer.

    Any number of processes may begin at once: one does it, the others wait and find it done.
    """
    with engine.connect() as connection, connection.begin():
        if _current_revision(connection) == tables.REVISION:
            return
    with _in_this_process, _alone(engine) as connection:
        found = _current_revision(connection)
        if found != tables.REVISION:
            _run(connection, adopt=found == FIRST and not _has(connection, "alembic_version"))


def _has(connection: sa.Connection, table: str) -> bool:
    return sa.inspect(connection).has_table(table)


def _current_revision(connection: sa.Connection) -> str | None:
    """The revision that the database is at; None for an empty one. SchemaError for one that this program lacks."""
    before = connection.scalar(sa.select(tables.schema_version)) if _has(connection, "schema_version") else None
    found: str | None = None
    if _has(connection, "alembic_version"):
        found = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    elif before is not None:
        found = FIRST
    known = {f"{number:04}" for number in range(1, int(tables.REVISION) + 1)}
    if (found is not None and found not in known) or (before or 0) > tables.VERSION:
        newer = found if found is not None and found not in known else before
        raise SchemaError(
            f"the database has schema version {newer}, this program knows {tables.REVISION}: "
            "run the newer program, or use another data folder or database"
        )
    return found


@contextmanager
def _alone(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One transaction in which nobody else changes the schema."""
    with engine.connect().execution_options(tritonworthy_write=True) as connection:
        sqlite = connection.dialect.name == "sqlite"
        if sqlite:
            # A step that copies a table drops the old one: with foreign keys on, the rows that refer to it would go
            # with it. SQLite takes this pragma only outside of a transaction, so not through SQLAlchemy.
            _pragma(connection, "foreign_keys=OFF")
        try:
            with connection.begin():
                if not sqlite:
                    connection.execute(sa.text("SET LOCAL lock_timeout = '10min'"))
                    connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
                    connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
                yield connection
                if sqlite and (broken := connection.exec_driver_sql("PRAGMA foreign_key_check").all()):
                    raise SchemaError(f"the upgrade would leave rows that refer to nothing: {broken[:5]}")
        finally:
            if sqlite:
                _pragma(connection, "foreign_keys=ON")


def _pragma(connection: sa.Connection, pragma: str) -> None:
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.execute(f"PRAGMA {pragma}")


def _run(connection: sa.Connection, adopt: bool) -> None:
    from alembic import command  # 0.13 s that a server at the newest revision need not spend
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    if adopt:
        command.stamp(config, FIRST)
    command.upgrade(config, tables.REVISION)
