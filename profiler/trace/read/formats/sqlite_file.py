"""An SQLite file of unknown origin, read as data alone.

A database may hold views, triggers, generated columns and virtual tables, whose code runs where they are queried. Here
only columns that are stored in ordinary tables are, by statements that are written here, and the authorizer refuses
everything else. Values come as they were stored, of any type in any column: whoever takes them checks.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from profiler.trace.errors import TraceError

Value = int | float | str | bytes | None
"""What a column of a row may hold."""

MOST_VALUE_BYTES = 1024 * 1024
"""Of one text, and of one table's definition: a longer one is refused. The longest kernel names have some 20 KB."""

MOST_OTHERS = 100
"""Tables that are not asked for, whose names are told."""

MOST_READ_S = 600.0
"""Processor time for one file: 30 million rows take a tenth of it."""

_STEPS = 20_000
"""Instructions of SQLite's machine between two looks at the clock."""

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MOST_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: MOST_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_COLUMN: 200,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 20,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 4,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}

_SETTINGS = ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0", "temp_store=MEMORY",
             "cache_size=-16384")  # fmt: skip

_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})

_AGAIN = "Copy it again, or export it again: nsys export --type sqlite REPORT.nsys-rep."


class Database:
    """The ordinary tables of an open file: names, and their stored columns. other_names: of its first other tables."""

    def __init__(
        self, connection: sqlite3.Connection, tables: Mapping[str, tuple[str, ...]], other_names: Sequence[str]
    ) -> None:
        self._connection = connection
        self.tables = tables
        self.other_names = other_names

    def rows(self, table: str, columns: Sequence[str], most: int) -> Iterator[tuple[Value, ...]]:
        """The rows of a table in the order in which they are stored; a column that it lacks is None in each.

        Nothing for a table that there is not. Raises TraceError for more rows than `most`, and where the file is
        damaged.
        """
        stored = self.tables.get(table, ())
        asked = [column for column in columns if column in stored]
        if not asked:
            return
        picked = ", ".join(_quoted(column) if column in stored else "NULL" for column in columns)
        with _errors():
            cursor = self._connection.execute(f"SELECT {picked} FROM main.{_quoted(table)} LIMIT {most + 1}")
            for number, row in enumerate(cursor):
                if number == most:
                    raise TraceError(
                        "trace-too-large",
                        f"The table {table} has more than {most} rows.",
                        "Record fewer steps: nsys profile --capture-range=cudaProfilerApi.",
                    )
                yield row


@contextmanager
def open_database(path: Path, wanted: Sequence[str]) -> Iterator[Database]:
    """The file, with those of its ordinary tables that are called as wanted.

    Opened read-only and as unchanging: no lock, no journal, nothing written beside it. Raises TraceError for what is no
    database or a damaged one.
    """
    with _errors():
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True, isolation_level=None,
            cached_statements=0,
        )  # fmt: skip
    try:
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        deadline = time.process_time() + MOST_READ_S
        connection.set_progress_handler(lambda: time.process_time() > deadline, _STEPS)
        with _errors():
            for setting in _SETTINGS:
                connection.execute(f"PRAGMA {setting}")
            tables = {name: _columns(connection, name) for name in _ordinary(connection, wanted)}
            other_names = _others(connection, wanted)
            connection.set_authorizer(_authorize)
        yield Database(connection, tables, other_names)
    finally:
        connection.close()


def _ordinary(connection: sqlite3.Connection, wanted: Sequence[str]) -> list[str]:
    """Of the wanted names those of tables with pages of their own: no views, no virtual tables."""
    marks = ", ".join("?" * len(wanted))
    rows = connection.execute(
        f"SELECT name FROM main.sqlite_master WHERE type = 'table' AND rootpage > 0 AND name IN ({marks})",
        tuple(wanted),
    )
    return [name for (name,) in rows if name in wanted]


def _others(connection: sqlite3.Connection, wanted: Sequence[str]) -> list[str]:
    """What else there is, of any kind, as far as it tells whose file it is."""
    rows = connection.execute(f"SELECT name FROM main.sqlite_master LIMIT {MOST_OTHERS + len(wanted)}")
    return [name for (name,) in rows if isinstance(name, str) and name not in wanted]


def _columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    """The columns that are stored: a generated one is computed where it is read."""
    rows = connection.execute(f"PRAGMA main.table_xinfo({_quoted(table)})")
    return tuple(str(row[1]) for row in rows if row[6] == 0)


def _authorize(action: int, first: str | None, second: str | None, schema: str | None, inner: str | None) -> int:
    """Allows reading columns by the statements here alone: `inner` names a view or a trigger that would read."""
    return sqlite3.SQLITE_OK if action in _ALLOWED and inner is None else sqlite3.SQLITE_DENY


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _errors() -> Iterator[None]:
    """What SQLite raises, in words."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_INTERRUPT:
            raise TraceError(
                "trace-too-large", f"The database takes longer than {MOST_READ_S:.0f} s to read.", "Record fewer steps."
            ) from error
        if code == sqlite3.SQLITE_TOOBIG:
            raise TraceError(
                "trace-too-large", f"The database holds a text of more than {MOST_VALUE_BYTES // 1024**2} MiB.", _AGAIN
            ) from error
        if code == sqlite3.SQLITE_NOTADB:
            message = "The file begins like an SQLite database and is none, or it is encrypted."
            raise TraceError("trace-bad-sqlite", message, _AGAIN) from error
        raise TraceError("trace-bad-sqlite", f"The database is damaged or cut off: {error}.", _AGAIN) from error
    except (sqlite3.Warning, ValueError, OverflowError) as error:
        raise TraceError("trace-bad-sqlite", f"The database cannot be read: {error}.", _AGAIN) from error
