"""Connections: what each database is told, what is refused, and text that a database would choke on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.storage import job_table
from app.storage.database import Database, make_engine, new_id
from app.storage.store import Store
from tests.app.storage.validations import add_validation
from tests.postgres import Postgres

SECRET = "hunter2-of-the-database"


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = Store(database_url)
    yield store
    store.close()


def test_sqlite_is_in_wal_with_foreign_keys(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'a.db'}")
    with database.read() as connection:
        found = {p: connection.exec_driver_sql(f"PRAGMA {p}").scalar() for p in ("journal_mode", "foreign_keys")}
    database.close()
    assert found == {"journal_mode": "wal", "foreign_keys": 1}


def test_postgresql_lets_nobody_hold_a_lock_for_ever_and_keeps_the_users_options(postgres_url: str) -> None:
    database = Database(f"{postgres_url}&options=-c%20work_mem=7MB")
    with database.read() as connection:
        names = ("lock_timeout", "idle_in_transaction_session_timeout", "work_mem")
        found = {name: connection.exec_driver_sql(f"SHOW {name}").scalar() for name in names}
    database.close()
    assert found == {"lock_timeout": "10s", "idle_in_transaction_session_timeout": "1min", "work_mem": "7MB"}


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+psycopg2"])
def test_every_spelling_of_postgresql_takes_the_driver_that_is_installed(scheme: str) -> None:
    engine = make_engine(f"{scheme}://u:{SECRET}@h/n")
    assert (engine.dialect.name, engine.dialect.driver) == ("postgresql", "psycopg")
    assert SECRET not in repr(engine)


@pytest.mark.parametrize(
    ("url", "said"),
    [(f"mysql://u:{SECRET}@h/n", "SQLite or PostgreSQL, not mysql"), (f"{SECRET} nothing", "none that SQLAlchemy")],
)
def test_other_databases_are_refused_without_showing_the_password(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        make_engine(url)
    assert SECRET not in str(caught.value)


def test_several_selects_see_one_moment(store: Store) -> None:
    with store.database.read() as connection:
        assert job_table.counts(connection) == {}
        add_validation(store, name="v", region="x", region_id=None, request={}, cap=9)[0]
        assert job_table.counts(connection) == {}
    with store.database.read() as connection:
        assert job_table.counts(connection) == {("validate", "queued"): 1}


def test_text_that_no_database_takes_is_stored_legibly(store: Store) -> None:
    evil = "a\0b\ud800c"
    advice = {"headline": evil}
    region_id = store.add_region({"name": evil, "text": evil, "advice": advice, "share": math.nan})
    found = store.region(region_id)
    assert found is not None
    assert (found["name"], found["advice"], found["share"]) == (evil, advice, None)  # JSON can say it
    asked = {"x": evil, "y": math.inf}
    made, _ = add_validation(store, name=evil, region=evil, region_id=region_id, request=asked, cap=9)
    assert store.validation(made)["name"] == "a\N{REPLACEMENT CHARACTER}b?c"  # type: ignore[index]
    assert store.job_request(made) == {"x": evil, "y": None}
    trace_id = new_id()
    store.add_trace(trace_id=trace_id, name=evil, sha256="", size=1, file="f", request={"on": evil}, cap=9)
    with store.database.write() as connection:
        assert job_table.claim(connection, kind="read", owner="o", lease_s=9, full=[evil, "H200"]) is None
        assert job_table.claim(connection, kind="read", owner="o", lease_s=9, full=["H200"])
    assert store.finish_read(job_id=trace_id, owner="o", attempt=1, trace={"group": evil, "regions": []})
    assert [t["id"] for t in store.trace_group(evil)] == [trace_id]


def test_ids_and_cursors_that_are_none_find_nothing(store: Store) -> None:
    for evil in ("\0", "\ud800", "~", "a~\0", "é" * 3000):
        assert store.job_state(evil) is None
        assert store.job_request(evil) is None
        assert store.validations(5, evil, evil) == {"items": [], "next": None}
        assert store.events(evil) == []


def test_a_database_that_was_restarted_is_found_again(postgres: Postgres, postgres_url: str) -> None:
    asked, idle = Store(postgres_url), Store(postgres_url)
    made = add_validation(asked, name="v", region="x", region_id=None, request={}, cap=9)[0]
    assert idle.job_state(made) == "queued"
    postgres.stop()
    with pytest.raises(sa.exc.OperationalError):
        asked.job_state(made)
    postgres.start()
    assert asked.job_state(made) == "queued"
    assert idle.job_state(made) == "queued"
    asked.close()
    idle.close()
