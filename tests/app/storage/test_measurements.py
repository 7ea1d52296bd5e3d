"""What was measured grows the archive by itself, and is not measured twice where nobody wants that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.archive import record_store
from app.archive.by_device import by_device, candidates, disagreement
from app.storage import job_table, measurements
from app.storage.store import Asked, Store
from tests.app.storage.test_store import run
from tests.app.storage.validations import add_validation

Json = dict[str, Any]

SHIPPED: Json = json.loads(
    next(s.path for s in record_store.list_record_files() if "swiglu" in s.path.name).read_text()
)
BODY = {k: v for k, v in SHIPPED.items() if k not in ("schema", "name", "region")}
REGION = SHIPPED["region"]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = Store(database_url)
    yield store
    store.close()


def add(store: Store, region: str = REGION, cap: int = 99, **more: Any) -> tuple[str, bool]:
    request = {"on": more.pop("on", None)}
    return add_validation(store, name="v", region=region, region_id=None, request=request, cap=cap, **more)


def finish(store: Store, **body: Any) -> None:
    assert store.finish_validation(**run(store, "validate"), validation={**BODY, **body})


def test_a_measurement_is_evidence_for_other_regions_of_the_same_program(store: Store) -> None:
    made, _ = add(store)
    assert measurements.records(store.database, [REGION]) == (), "it only waits"
    finish(store)
    renamed = REGION.replace("8192", "4096").replace("y", "z")
    (found,) = measurements.records(store.database, [renamed, "x: f32[4]\nreturn x + 1\n"])
    assert (found["id"], found["archived"], found["region"]) == (made, {"here": True}, REGION)
    assert measurements.records(store.database, ["x: f32[4]\nreturn x + 1\n"]) == ()
    assert measurements.records(store.database, [REGION], excluded=made) == (), "it is no evidence for itself"
    chosen = record_store.nearest(renamed, Path("/nowhere"), device="H200", torch="9.9", more=(found,))
    assert chosen is not None and chosen["archived"] == {"here": True, "match": "other-sizes"}
    assert chosen["elsewhere"]["because"].startswith("Measured by this server: the same program at other sizes")


def test_of_one_region_on_one_device_the_newest_three_are_looked_at_whatever_else_was_measured(store: Store) -> None:
    other = "x: f32[4]\nreturn x + 1\n"
    rare, _ = add(store, other)
    finish(store)
    often = [add(store)[0] for _ in range(5)]
    for _ in often:
        finish(store)
    records = measurements.records(store.database, [REGION, other])
    assert [r["id"] for r in records] == [*reversed(often[2:]), rare]
    newest = store.validation(often[4])
    assert newest is not None
    assert [r["id"] for r in measurements.earlier(store.database, newest)] == [*reversed(often[:4])]


@pytest.mark.parametrize("lacking", [{"device": None}, {"candidates": []}, {"outcome": None}])
def test_what_timed_nothing_is_no_evidence(store: Store, lacking: Json) -> None:
    add(store)
    finish(store, **lacking)
    assert measurements.records(store.database, [REGION]) == ()


def test_of_one_digest_one_is_measured_until_its_end_and_after_it_where_it_timed_something(store: Store) -> None:
    first, new = add(store, digest="d", reuse=True)
    assert new
    assert add(store, digest="d", reuse=True) == (first, False), "it waits"
    assert add(store, digest="e", reuse=True)[1]
    assert add(store, digest=None, reuse=True)[1]
    own, new = add(store, digest="d")
    assert new and own != first, "who does not ask for reuse gets a measurement"
    for _ in range(3):
        finish(store)
    assert add(store, digest="d", reuse=True) == (own, False), "the newest that was measured"


@pytest.mark.parametrize("end", ["failed", "cancelled", "unmeasured"])
def test_what_came_to_nothing_is_measured_again(store: Store, end: str) -> None:
    first, _ = add(store, digest="d", reuse=True)
    if end == "unmeasured":
        finish(store, outcome="unmeasured", device=None)
    else:
        with store.database.write() as connection:
            assert job_table.finish(connection, **ledger_key(store, connection), state=end)
    again, new = add(store, digest="d", reuse=True)
    assert new and again != first


def test_a_job_that_somebody_stops_is_not_joined(store: Store) -> None:
    first, _ = add(store, digest="d", reuse=True)
    run(store, "validate")
    assert add(store, digest="d", reuse=True) == (first, False)
    with store.database.write() as connection:
        assert job_table.cancel(connection, first) == "running"
    again, new = add(store, digest="d", reuse=True)
    assert new and again != first


def test_of_several_that_are_asked_for_none_is_queued_where_one_finds_no_room(store: Store) -> None:
    joined, _ = add(store, digest="d")
    asked = [Asked("v", REGION, None, {}, digest) for digest in ("d", "e", "f")]
    with pytest.raises(job_table.QueueFullError):
        store.add_validations(asked, cap=2, reuse=True)
    assert [v["id"] for v in store.validations()["items"]] == [joined]
    assert store.job_state(joined) == "queued", "and the one that somebody else asked for goes on"
    found = store.add_validations(asked, cap=3, reuse=True)
    assert [new for _, new in found] == [False, True, True]


def ledger_key(store: Store, connection: Any) -> Json:
    job = job_table.claim(connection, kind="validate", owner="o", lease_s=60)
    assert job is not None
    return {"job_id": job["id"], "owner": "o", "attempt": job["attempt"]}


def test_a_waiting_job_says_how_many_of_its_kind_stand_before_it(store: Store) -> None:
    h200 = [add(store, on="NVIDIA H200")[0] for _ in range(3)]
    other = [add(store, on="AMD Instinct MI300X")[0] for _ in range(2)]
    here = add(store)[0]

    def ahead() -> list[int | None]:
        jobs = [store.job(i) for i in (*h200, *other, here)]
        assert [store.validation(i)["ahead"] for i in (*h200, *other, here)] == [j and j["ahead"] for j in jobs]  # type: ignore[index]
        return [j and j["ahead"] for j in jobs]

    assert ahead() == [0, 1, 2, 0, 1, 0]
    run(store, "validate")
    assert ahead() == [None, 0, 1, 0, 1, 0]
    with store.database.write() as connection:
        assert job_table.cancel(connection, h200[1]) == "cancelled"
    assert ahead() == [None, None, 0, 0, 1, 0]


# --------------------------------------------------------------------------------------------------- side by side


def record(device: str, best: str, date: str = "2026-11-21", **more: Any) -> Json:
    return {
        **SHIPPED,
        "archived": {"file": "swiglu.json"},
        "id": f"{device} {best} {date}",
        "device": device,
        "best": best,
        "date": date,
        **more,
    }


def test_each_device_has_its_newest_record_of_this_very_region() -> None:
    known = [
        record("NVIDIA H200", "compile", "2026-11-20"),
        record("H200", "triton", "2026-11-22"),
        record("AMD Instinct MI300X", "compile"),
        record("NVIDIA H100 80GB HBM3", "compile", region=REGION.replace("8192", "4096")),
        record("NVIDIA L40S", "compile", region="x: f32[4]\nreturn x + 1\n"),
        {**record("NVIDIA B200", "compile"), "device": None},
    ]
    items = by_device(REGION, known)
    assert {i["device"] for i in items} == {"NVIDIA H200", "AMD Instinct MI300X"}
    assert {i["id"] for i in items} == {"H200 triton 2026-11-22", "AMD Instinct MI300X compile 2026-11-21"}
    assert [i["device"] for i in by_device(REGION, known, ["mi300x"])] == ["AMD Instinct MI300X"]
    timed = [c["name"] for c in SHIPPED["candidates"] if c["time_us"]]
    assert candidates(items) == timed


def test_a_launch_bound_kind_is_placed_by_the_wall_time_that_decided() -> None:
    waits = [{**c, "wall_us": 1e6} for c in SHIPPED["candidates"]]
    known = [
        record("NVIDIA H200", "compile", candidates=waits, conditions={"decided_by": "wall time"}),
        record("AMD Instinct MI300X", "compile"),
    ]
    items = by_device(REGION, known)
    assert [i["device"] for i in items] == ["AMD Instinct MI300X", "NVIDIA H200"]
    assert [i["decided_by"] for i in items] == ["device time", "wall time"]


def test_of_one_day_what_this_server_measured_is_the_newer() -> None:
    made = {"archived": {"here": True}, "created_at": "2026-11-21T10:00:00.000000Z"}
    here = record("NVIDIA H200", "triton", **made)
    for known in ([here, record("NVIDIA H200", "compile")], [record("NVIDIA H200", "compile"), here]):
        (item,) = by_device(REGION, known)
        assert (item["here"], item["best"]) == (True, "triton")


def test_it_is_said_whether_the_advice_is_one_on_every_kind_by_the_rule_and_not_by_the_fastest() -> None:
    triton = {"advice_after": {"tool": "triton"}}
    both = [record("NVIDIA H200", "compile", **triton), record("AMD Instinct MI300X", "compile-max-autotune")]
    said = disagreement(by_device(REGION, both))
    assert said.startswith("The advice differs: ") and "torch.compile on AMD Instinct MI300X" in said
    same = [record("NVIDIA H200", "compile"), record("AMD Instinct MI300X", "compile-max-autotune")]
    assert disagreement(by_device(REGION, same)) == "The advice is the same on all 2 kinds of GPU: torch.compile."
    assert disagreement(by_device(REGION, same[:1])) == ""
    nobody = [record(device, "compile", advice_after=None) for device in ("NVIDIA H200", "NVIDIA L40S")]
    assert disagreement(by_device(REGION, nobody)) == ""


def test_one_candidate_alone_replaces_no_measurement_of_several() -> None:
    alone = [c for c in SHIPPED["candidates"] if c["name"] == "eager"]
    known = [record("NVIDIA H200", "compile", "2026-11-20"), record("NVIDIA H200", "eager", candidates=alone)]
    (item,) = by_device(REGION, known)
    assert item["date"] == "2026-11-20"
