"""Several servers on one store, on each database: what two of them do at the same moment is done once and in order."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from app.storage import job_table
from app.storage.database import iso, new_id
from app.storage.store import Store
from app.storage.tables import jobs
from tests.app.storage.validations import add_validation

SERVERS = 4


@pytest.fixture
def servers(database_url: str) -> Iterator[list[Store]]:
    """Stores with connections of their own, as processes would have."""
    found = [Store(database_url) for _ in range(SERVERS)]
    yield found
    for store in found:
        store.close()


def add(store: Store, cap: int = 999, **request: Any) -> str:
    return add_validation(store, name="v", region="x", region_id=None, request=request, cap=cap)[0]


def claim(store: Store, owner: str = "o") -> dict[str, Any] | None:
    with store.database.write() as connection:
        return job_table.claim(connection, kind="validate", owner=owner, lease_s=60)


def at_once(servers: list[Store], work: Callable[[Store], Any]) -> list[Any]:
    """The same work by all servers, begun together."""
    together = threading.Barrier(len(servers))

    def begin(store: Store) -> Any:
        together.wait()
        return work(store)

    with ThreadPoolExecutor(len(servers)) as pool:
        return list(pool.map(begin, servers))


def test_every_job_is_claimed_once_and_the_oldest_first(servers: list[Store]) -> None:
    wanted = [add(servers[0]) for _ in range(60)]

    def work(store: Store) -> list[str]:
        mine = []
        while (job := claim(store, f"{id(store)}")) is not None:
            assert (job["attempt"], job["owner"], job["state"]) == (1, f"{id(store)}", "running")
            mine.append(job["id"])
        return mine

    taken = at_once(servers, work)
    assert sorted(itertools.chain(*taken)) == sorted(wanted)
    order = {job_id: place for place, job_id in enumerate(wanted)}
    for mine in taken:
        assert mine == sorted(mine, key=order.__getitem__)


def test_a_claim_that_is_not_over_yet_keeps_nobody_waiting(postgres_url: str) -> None:
    """SKIP LOCKED. SQLite has no such thing: there one transaction writes at a time."""
    one, two = Store(postgres_url), Store(postgres_url)
    first, second = add(one), add(one)
    with one.database.write() as connection:
        taken = job_table.claim(connection, kind="validate", owner="one", lease_s=60)
        began = time.monotonic()
        other = claim(two)
        assert time.monotonic() - began < 2
        assert claim(two) is None
    assert taken is not None
    assert other is not None
    assert [taken["id"], other["id"]] == [first, second]
    one.close()
    two.close()


def test_the_cap_holds_when_all_add_at_once(servers: list[Store]) -> None:
    def work(store: Store) -> int:
        added = 0
        for _ in range(8):
            try:
                add(store, cap=10)
                added += 1
            except job_table.QueueFullError:
                pass
        return added

    assert sum(at_once(servers, work)) == 10
    assert len(servers[0].validations()["items"]) == 10


def test_events_are_numbered_without_gap_and_a_reader_misses_none(servers: list[Store]) -> None:
    job_id = add(servers[0])
    reader, *writers = servers
    over = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while True:
            last = over.is_set()
            seen.extend(e["seq"] for e in reader.events(job_id, seen[-1] if seen else 0))
            if last:
                return

    def work(store: Store) -> None:
        for n in range(15):
            with store.database.write() as connection:
                job_table.add_event(connection, job_id, "progress", job_table.progress("x", str(n)))

    following = threading.Thread(target=read)
    following.start()
    at_once(writers, work)
    over.set()
    following.join()
    assert seen == list(range(1, 2 + 15 * len(writers)))


def test_a_cancel_that_meets_a_claim_or_a_server_that_stops_is_never_lost(servers: list[Store]) -> None:
    wanted = [add(servers[0]) for _ in range(40)]
    claimer, canceller = servers[:2]
    over = threading.Event()

    def work(store: Store) -> list[str | None]:
        said = []
        if store is claimer:
            while not over.is_set():
                claim(store)
                with store.database.write() as connection:
                    job_table.release(connection, "o")
        else:
            for job_id in wanted:
                with store.database.write() as connection:
                    said.append(job_table.cancel(connection, job_id))
            over.set()
        return said

    assert set(at_once([claimer, canceller], work)[1]) <= {"cancelled", "running"}
    assert {claimer.job_state(job_id) for job_id in wanted} == {"cancelled"}


def test_one_end_is_recorded_when_all_record_one(servers: list[Store]) -> None:
    job_id = add(servers[0])
    job = claim(servers[0])
    assert job is not None
    key = {"job_id": job_id, "owner": "o", "attempt": 1}
    stored = at_once(servers, lambda s: s.finish_validation(**key, validation={"outcome": "tie", "reason": str(id(s))}))
    assert stored.count(True) == 1
    winner = servers[stored.index(True)]
    assert servers[0].validation(job_id)["reason"] == str(id(winner))  # type: ignore[index]
    assert [e["event"] for e in servers[0].events(job_id)] == ["progress", "done"]


def test_lost_jobs_are_taken_back_by_one_server(servers: list[Store]) -> None:
    wanted = [add(servers[0]) for _ in range(12)]
    while claim(servers[0], "dead"):
        pass

    def work(store: Store) -> list[str]:
        with store.database.write() as connection:
            lost = job_table.leases_unchanged(job_table.running(connection))
            return job_table.take_back(connection, lost)[0]

    assert sorted(itertools.chain(*at_once(servers, work))) == sorted(wanted)
    assert {servers[0].job(i)["attempt"] for i in wanted} == {1}  # type: ignore[index]
    assert all(len(servers[0].events(i)) == 2 for i in wanted)


def test_deleting_a_trace_while_its_reading_ends_leaves_all_of_it_or_nothing(servers: list[Store]) -> None:
    region = {"name": "r", "text": "x", "advice": {}}
    for _ in range(6):
        trace_id = new_id()
        servers[0].add_trace(trace_id=trace_id, name="t", sha256="", size=1, file="f", request={}, cap=99)
        with servers[0].database.write() as connection:
            assert job_table.claim(connection, kind="read", owner="o", lease_s=60)
        reader, deleter = servers[:2]

        def work(store: Store, reader: Store = reader, trace_id: str = trace_id) -> object:
            if store is reader:
                return store.finish_read(job_id=trace_id, owner="o", attempt=1, trace={"regions": [region] * 9})
            return store.delete_trace(trace_id)

        _, deleted = at_once([reader, deleter], work)
        assert deleted == "f"
        assert reader.trace(trace_id) is None
        assert reader.regions(trace_id) == []
        assert reader.job(trace_id) is None


def test_a_job_expires_by_how_long_it_waits_and_not_by_how_long_it_ran(servers: list[Store]) -> None:
    store, hour, now = servers[0], 3600.0, time.time()

    def expire(now_s: float) -> list[str]:
        with store.database.write() as connection:
            return job_table.expire(connection, hour, now_s)

    waiting, again, running = add(store), add(store), add(store)
    with store.database.write() as connection:
        long_ago = iso(datetime.fromtimestamp(now - 2 * hour, UTC))
        connection.execute(jobs.update().where(jobs.c.id != waiting).values(created_at=long_ago))
    for _ in (again, running):
        assert claim(store, "o") is not None
    with store.database.write() as connection:  # the host that ran it died
        assert job_table.take_back(connection, job_table.held_by_attempt(job_id=again, owner="o", attempt=1)) == (
            [again],
            [],
        )
    assert expire(now) == []
    assert sorted(expire(now + 2 * hour)) == sorted([waiting, again])
    job = store.job(waiting)
    assert job is not None
    assert (job["state"], job["error"]["code"]) == ("failed", "queue-timeout")
    assert store.job_state(running) == "running"
