"""The store on each database: what belongs together is kept or dropped together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from app.objects.job import JobKind
from app.storage import job_table
from app.storage.database import ID_ALPHABET, is_id, new_id
from app.storage.store import Store, finite
from app.trace_report.oracle_regions import asked_region
from tests.app.storage.validations import add_validation

OWNER = "host/1/boot"
ADVICE = {"tool": "compile", "headline": "compile it", "validation": None}


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = Store(database_url)
    yield store
    store.close()


def region(name: str) -> dict[str, Any]:
    return {"name": name, "text": f"x: f32[4]\nreturn x  # {name}\n", "advice": ADVICE, "shapes": [], "cost": None}


def run(store: Store, kind: JobKind) -> dict[str, Any]:
    with store.database.write() as connection:
        job = job_table.claim(connection, kind=kind, owner=OWNER, lease_s=60)
    assert job is not None
    return {"job_id": job["id"], "owner": OWNER, "attempt": job["attempt"]}


def read_trace(store: Store, *names: str) -> dict[str, Any]:
    trace_id = new_id()
    store.add_trace(trace_id=trace_id, name="t", sha256="s", size=1, file=trace_id, request={}, cap=9)
    body = {"name": "other", "events": 1, "linked_share": math.nan, "regions": [region(n) for n in names]}
    assert store.finish_read(**run(store, "read"), trace=body)
    found = store.trace(trace_id)
    assert found is not None
    return found


def measure(store: Store, region_id: str | None, **body: Any) -> str:
    made = add_validation(store, name="v", region="x", region_id=region_id, request={}, cap=9)[0]
    assert store.finish_validation(**run(store, "validate"), validation={"outcome": "confirmed", **body})
    return made


def test_a_trace_keeps_its_name_its_order_and_no_nan(store: Store) -> None:
    trace = read_trace(store, "b", "a", "c")
    assert (trace["name"], trace["status"], trace["linked_share"]) == ("t", "ready", None)
    assert [r["name"] for r in trace["regions"]] == ["b", "a", "c"]
    assert trace["regions"] == store.regions(trace["id"])


def test_measuring_issues_the_advice_again(store: Store) -> None:
    target = read_trace(store, "r")["regions"][0]["id"]
    after = ADVICE | {"tool": "triton", "headline": "measured"}
    first = measure(store, target, reason="old")
    second = measure(store, target, reason="new", advice_before=ADVICE, advice_after=after)
    found = store.region(target)
    assert found is not None
    assert found["validations"] == [second, first]
    assert (found["advice"]["tool"], found["advice"]["validation"]["reason"]) == ("triton", "new")
    assert "advice_after" not in found["advice"]["validation"]


def test_what_decides_who_inductor_is_asked_about_is_what_the_regions_say(store: Store) -> None:
    """By a query that reads none of what they hold, on each database."""
    trace = read_trace(store, "a", "b", "c", "d")
    ids = [r["id"] for r in trace["regions"]]
    silent = {"mode": "default", "unavailable": "no answer within 20 s"}
    for region_id, oracle, time_us, advice in (
        (ids[0], [{"mode": "default", "unavailable": ""}, silent], 4.5, ADVICE),
        (ids[1], [silent], 3.0, ADVICE),
        (ids[2], [], None, ADVICE),
        (ids[3], [], 1.0, None),
    ):
        store.put_oracle(region_id, {"oracle": oracle, "advice": advice, "time_us_per_step": time_us})  # type: ignore[typeddict-unknown-key, typeddict-item]
    known = store.regions_asked(trace["id"])
    assert known == [asked_region(r) for r in store.regions(trace["id"])]
    assert [(r["time_us"], r["advised"], r["unavailable"]) for r in known] == [
        (4.5, True, ""),
        (3.0, True, silent["unavailable"]),
        (None, True, None),
        (1.0, False, None),
    ]
    assert [r["prediction"] for r in store.regions(trace["id"])] == ["oracle", "rules", "rules", "rules"]
    third = store.region_at(trace["id"], 2)
    assert third is not None and third["id"] == ids[2]
    assert store.region_at(trace["id"], 4) is None
    assert store.regions_asked("a" * 26) == []


def test_what_the_oracle_said_is_kept_and_measured_advice_stays(store: Store) -> None:
    target = read_trace(store, "r", "other")["regions"][0]["id"]
    again = ADVICE | {"headline": "again"}
    store.put_oracle(target, {"oracle": [{"mode": "default", "took_s": math.nan}], "recompiles": None, "advice": again})
    found = store.region(target)
    assert found is not None
    assert (found["oracle"], found["advice"]["headline"]) == ([{"mode": "default", "took_s": None}], "again")
    assert found["name"] == "r"
    measure(store, target, advice_before=again, advice_after=ADVICE | {"headline": "measured"})
    store.put_oracle(target, {"oracle": [], "recompiles": None, "advice": ADVICE | {"headline": "third"}})
    assert store.region(target)["advice"]["headline"] == "measured"  # type: ignore[index]
    assert store.region_as_advised(target)["advice"]["headline"] == "third"  # type: ignore[index]
    assert store.region_as_advised("a" * 26) is None
    assert store.region_as_advised("no id") is None
    store.put_oracle("a" * 26, {"oracle": [], "recompiles": None, "advice": ADVICE})
    assert store.region("a" * 26) is None


def test_a_measurement_outlives_its_trace(store: Store) -> None:
    trace = read_trace(store, "r")
    made = measure(store, trace["regions"][0]["id"], candidates=[])
    assert store.delete_trace(trace["id"]) == trace["id"]
    assert store.trace(trace["id"]) is None
    assert store.job(trace["id"]) is None
    assert store.region(trace["regions"][0]["id"]) is None
    kept = store.validation(made)
    assert kept is not None
    assert (kept["outcome"], kept["region_id"]) == ("confirmed", None)
    assert store.delete_trace(trace["id"]) is None


def test_a_result_is_stored_once_and_only_by_its_owner(store: Store) -> None:
    made = add_validation(store, name="v", region="x", region_id=None, request={}, cap=9)[0]
    key = run(store, "validate")
    assert not store.finish_validation(**{**key, "owner": "other"}, validation={"outcome": "tie"})
    assert not store.finish_validation(**{**key, "attempt": 2}, validation={"outcome": "tie"})
    assert store.finish_validation(**key, validation={"outcome": "confirmed"})
    assert not store.finish_validation(**key, validation={"outcome": "overturned"})
    assert store.validation(made)["outcome"] == "confirmed"  # type: ignore[index]


def test_paging_meets_every_row_once(store: Store) -> None:
    made = [store.add_region(region(str(i))) for i in range(7)]
    seen, after = [], None
    while True:
        page = store.region_list(3, after)
        seen += [r["id"] for r in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert seen == made[::-1]


def test_ids_are_unguessable_and_recognised() -> None:
    made = {new_id() for _ in range(1000)}
    assert len(made) == 1000
    assert all(is_id(i) for i in made)
    assert math.log2(len(ID_ALPHABET)) * 26 >= 128
    assert set("".join(made)) == set(ID_ALPHABET)
    assert not any(map(is_id, ["", "a" * 25, "a" * 27, "A" * 26, "é" * 26, "../" + "a" * 23, None, 5, b"a" * 26]))


def test_finite_leaves_everything_else_alone() -> None:
    value = {"a": [1, 2.5, math.inf, (math.nan, "x")], "b": None, "c": True}
    assert finite(value) == {"a": [1, 2.5, None, [None, "x"]], "b": None, "c": True}
