"""The schema's steps on each database: old data is kept, two that start at once do it once, a newer one is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from app.storage import migrations
from app.storage import tables as schema
from app.storage.database import Database, SchemaError, make_engine
from app.storage.store import Store
from tests.conftest import ROOT

VERSION_1 = Path(__file__).with_name("version_1.sql").read_text(encoding="utf-8")
TRACE = "t0000000000000000000000001"


@contextmanager
def connected(url: str) -> Iterator[sa.Connection]:
    engine = make_engine(url)
    try:
        with engine.connect().execution_options(tritonworthy_write=True) as connection, connection.begin():
            yield connection
    finally:
        engine.dispose()


def make_version_1(url: str) -> None:
    with connected(url) as connection:
        for statement in VERSION_1.split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)


def rows(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every table's rows, of the columns that version 1 had."""
    with connected(url) as connection:
        return {
            table: sorted(map(tuple, connection.exec_driver_sql(f"SELECT {columns} FROM {table}")), key=repr)
            for table, columns in COLUMNS.items()
        }


COLUMNS = {
    "traces": "id, created_at, name, sha256, bytes, file, body",
    "regions": "id, trace_id, position, created_at, name, text, body",
    "validations": "id, created_at, region_id, name, region, outcome, device, body",
    "landscapes": "id, created_at, validation_id, candidate, binding, body",
    "checks": "id, created_at, name, outcome, body",
    "jobs": "id, kind, state, request, progress, error, attempt, cancel_requested, created_at, started_at, finished_at",
    "events": "job_id, seq, event, data",
}


def version(url: str) -> tuple[str, int]:
    with connected(url) as connection:
        found = connection.execute(sa.text("SELECT version_num, version FROM alembic_version, schema_version")).all()
    assert len(found) == 1
    return found[0].version_num, found[0].version


def test_a_database_of_before_alembic_is_taken_over_with_every_row(database_url: str) -> None:
    make_version_1(database_url)
    before = rows(database_url)
    assert all(before.values())
    store = Store(database_url)
    assert rows(database_url) == before
    assert version(database_url) == (schema.REVISION, schema.VERSION)
    assert [t["name"] for t in store.trace_group("é")] == ["rank 0", "rank 1"]
    trace = store.trace(TRACE)
    assert trace is not None
    assert (trace["bytes"], trace["regions"][0]["name"]) == (5_000_000_000, "mlp")
    assert store.job_request("t0000000000000000000000004") == {"path": "/old/data/uploads/x"}
    # The rows still belong together: a step that copies tables could have lost that.
    assert store.delete_trace(TRACE) == TRACE
    assert store.validation("v0000000000000000000000001")["region_id"] is None  # type: ignore[index]
    store.close()


def test_a_program_of_before_alembic_refuses_what_this_one_made(database_url: str) -> None:
    """It compares `schema_version` with its own 1, and nothing else."""
    Store(database_url).close()
    with connected(database_url) as connection:
        assert connection.scalar(sa.text("SELECT version FROM schema_version")) > 1


@pytest.mark.parametrize(
    ("statement", "said"),
    [("UPDATE schema_version SET version = 99", "99"), ("UPDATE alembic_version SET version_num = '0999'", "0999")],
)
def test_a_database_of_a_newer_program_is_refused_untouched(database_url: str, statement: str, said: str) -> None:
    Database(database_url).close()
    with connected(database_url) as connection:
        connection.exec_driver_sql(statement)
    before = version(database_url)
    with pytest.raises(SchemaError, match=f"schema version {said}, this program knows {schema.REVISION}"):
        Database(database_url)
    assert version(database_url) == before


def test_opened_again_it_stays_as_it_is(database_url: str) -> None:
    Database(database_url).close()
    Database(database_url).close()
    assert version(database_url) == (schema.REVISION, schema.VERSION)


def test_the_steps_make_what_the_tables_say(database_url: str) -> None:
    Database(database_url).close()
    with connected(database_url) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
        # The comparison does find what differs.
        other = sa.MetaData()
        for table in schema.metadata.tables.values():
            table.to_metadata(other)
        other.tables["jobs"].append_column(sa.Column("more", sa.Integer))
        other.tables["jobs"].c.owner.type = sa.Integer()
        found = compare_metadata(context, other)
        assert {change[0][0] if isinstance(change, list) else change[0] for change in found} == {
            "add_column",
            "modify_type",
        }


def test_the_revision_that_the_tables_name_is_the_newest_step_and_all_are_numbered() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrations.FOLDER))
    script = ScriptDirectory.from_config(config)
    assert script.get_current_head() == schema.REVISION
    found = sorted(step.revision for step in script.walk_revisions())
    assert found == [f"{n:04}" for n in range(1, len(found) + 1)]


OPEN = """
import sys
from app.storage.database import Database
sys.stdin.readline()
with Database(sys.argv[1]).read() as connection:
    print(connection.exec_driver_sql("SELECT count(*) FROM traces").scalar())
"""


@pytest.mark.parametrize("old", [False, True])
def test_several_that_start_at_once_upgrade_once(database_url: str, old: bool) -> None:
    if old:
        make_version_1(database_url)
    begun = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, database_url],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    with ThreadPoolExecutor(len(begun)) as together:
        ended = list(together.map(lambda process: process.communicate("\n", timeout=60), begun))
    assert [(process.returncode, said) for process, (said, _) in zip(begun, ended, strict=True)] == [
        (0, "4\n" if old else "0\n")
    ] * 3, ended
    assert version(database_url) == (schema.REVISION, schema.VERSION)


DIE = """
import os, signal, sys
import sqlalchemy as sa
from app.storage.database import Database

@sa.event.listens_for(sa.Engine, "after_cursor_execute")
def die(connection, cursor, statement, *rest):
    if "INDEX jobs_by_state" in statement:
        os.kill(os.getpid(), signal.SIGKILL)

Database(sys.argv[1])
"""


def test_one_that_is_killed_in_the_middle_leaves_it_as_it_was(database_url: str) -> None:
    make_version_1(database_url)
    before = rows(database_url)
    ended = subprocess.run([sys.executable, "-c", DIE, database_url], cwd=ROOT, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    with connected(database_url) as connection:
        inspector = sa.inspect(connection)
        assert not inspector.has_table("alembic_version")
        assert "group_name" not in {column["name"] for column in inspector.get_columns("traces")}
    Store(database_url).close()
    assert rows(database_url) == before
    assert version(database_url) == (schema.REVISION, schema.VERSION)
