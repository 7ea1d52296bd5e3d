"""A deleted trace comes back as it was, until it is removed for good; on each database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.storage import job_table, trash
from app.storage.database import new_id
from app.storage.store import Store
from tests.app.storage.test_store import measure, read_trace, run


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = Store(database_url)
    yield store
    store.close()


def test_what_is_brought_back_is_what_was_deleted(store: Store) -> None:
    trace = read_trace(store, "a", "b")
    other = read_trace(store, "c")
    made = measure(store, trace["regions"][1]["id"], device="H200")
    before, job = store.trace(trace["id"]), store.job(trace["id"])
    stream = store.events(trace["id"])
    assert stream
    assert trash.put(store.database, trace["id"])
    assert store.trace(trace["id"]) is None
    assert store.job(trace["id"]) is None
    assert store.validation(made)["region_id"] is None  # type: ignore[index]
    assert [row["name"] for row in trash.deleted(store.database)] == ["t"]
    assert trash.restore(store.database, trace["id"])
    assert (store.trace(trace["id"]), store.job(trace["id"])) == (before, job)
    assert store.events(trace["id"]) == stream
    assert store.validation(made)["region_id"] == trace["regions"][1]["id"]  # type: ignore[index]
    assert trash.deleted(store.database) == []
    assert store.trace(other["id"]) == other


def test_a_reading_that_was_under_way_comes_back_cancelled_and_nobody_takes_it(store: Store) -> None:
    for begun in (False, True):
        trace_id = new_id()
        store.add_trace(trace_id=trace_id, name="t", sha256="s", size=1, file=trace_id, request={}, cap=9)
        if begun:
            run(store, "read")
        assert trash.put(store.database, trace_id)
        assert trash.restore(store.database, trace_id)
        found = store.trace(trace_id)
        assert found is not None
        assert (found["status"], found["error"]["code"]) == ("failed", "cancelled")  # type: ignore[index]
        with store.database.write() as connection:
            assert job_table.claim(connection, kind="read", owner="host/2/boot", lease_s=60) is None


def test_removed_for_good_it_does_not_come_back(store: Store) -> None:
    trace = read_trace(store, "a")
    assert trash.put(store.database, trace["id"])
    assert trash.deleted_before(store.database, "2000-01-01T00:00:00.000000Z") == {}
    assert trash.deleted_before(store.database) == {trace["id"]: trace["id"]}
    assert trash.remove(store.database, trace["id"]) == trace["id"]
    assert trash.remove(store.database, trace["id"]) is None
    assert not trash.restore(store.database, trace["id"])
    assert store.trace(trace["id"]) is None


@pytest.mark.parametrize("unknown", ["a" * 26, "no id"])
def test_nothing_happens_to_what_is_not_there(store: Store, unknown: str) -> None:
    assert not trash.put(store.database, unknown)
    assert not trash.restore(store.database, unknown)
    assert trash.remove(store.database, unknown) is None
