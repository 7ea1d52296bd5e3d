"""What is kept, listed: everything once, in the order that is asked for, found by its words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.storage.history import SORTS, Wanted, find_entries, finding_of, rename
from app.storage.store import Store
from tests.app.storage.test_store import measure, read_trace, region


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = Store(database_url)
    yield store
    store.close()


def test_the_first_thing_to_do_counts_where_no_time_is_predicted_of_it(store: Store) -> None:
    trace = store.trace(read_trace(store, "r")["id"])
    assert trace is not None
    record: Any = {"title": "Record again with what the CPU does", "saves_us": None, "instead_of": ""}
    saving: Any = {"title": "Compile", "saves_us": {"low": 1.0, "mid": 2.0, "high": 3.0}, "instead_of": ""}
    finding = finding_of({**trace, "actions": [record, saving]})
    assert finding is not None
    assert (finding["action"], finding["saves_us"]) == (record["title"], None)


def names(store: Store, **wanted: Any) -> list[str]:
    return [entry["name"] for entry in find_entries(store, Wanted(**wanted))["items"]]


def test_all_kinds_are_mixed_newest_first_and_a_traces_own_regions_are_not_among_them(store: Store) -> None:
    trace = read_trace(store, "r")
    written = store.add_region(region("written"))
    made = measure(store, None)
    items = find_entries(store, Wanted())["items"]
    assert [(r["kind"], r["id"]) for r in items] == [
        ("validation", made), ("region", written), ("trace", trace["id"]),
    ]  # fmt: skip
    assert [r["id"] for r in find_entries(store, Wanted(), 1)["items"]] == [made]
    assert names(store, kind="region") == ["written"]


@pytest.mark.parametrize("sort", SORTS)
def test_paging_meets_every_row_once_in_every_order(store: Store, sort: Any) -> None:
    for name in ("b~1", "A", "c", "a", "B", "A"):
        store.add_region(region(name))
    read_trace(store)
    wanted = Wanted(sort=sort)
    whole = [r["id"] for r in find_entries(store, wanted)["items"]]
    assert len(whole) == len(set(whole)) == 7
    seen: list[str] = []
    after: str | None = None
    while True:
        page = find_entries(store, wanted, 2, after)
        seen += [r["id"] for r in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert seen == whole
    if sort == "name":
        assert [n.lower() for n in names(store, sort="name")] == ["a", "a", "a", "b", "b~1", "c", "t"]


def test_a_search_takes_every_word_in_any_case_from_name_or_device_and_no_wildcard(store: Store) -> None:
    for name in ("Llama prefill", "llama decode", "ViT 100%", "under_score"):
        store.add_region(region(name))
    measure(store, None, device="NVIDIA H200")
    assert names(store, q="LLAMA") == ["llama decode", "Llama prefill"]
    assert names(store, q="fill llama") == ["Llama prefill"]
    assert names(store, q="h200") == ["v"]
    assert names(store, q="100%") == ["ViT 100%"]
    assert names(store, q="%") == ["ViT 100%"]
    assert names(store, q="_") == ["under_score"]
    assert names(store, q="llama", kind="trace") == []


def test_a_new_name_is_the_name_everywhere_and_nothing_else_changes(store: Store) -> None:
    trace = read_trace(store, "r", "s")
    written = store.add_region(region("written"))
    assert rename(store.database, "trace", trace["id"], "after")
    assert rename(store.database, "region", written, "é")
    assert rename(store.database, "region", trace["regions"][0]["id"], "first")
    found = store.trace(trace["id"])
    assert found is not None
    assert found["name"] == "after"
    assert [r["name"] for r in found["regions"]] == ["first", "s"]
    assert {**found, "name": "t", "regions": [{**found["regions"][0], "name": "r"}, found["regions"][1]]} == trace
    assert names(store) == ["é", "after"]
    assert not rename(store.database, "trace", written, "x")
    assert not rename(store.database, "region", "a" * 26, "x")
    assert not rename(store.database, "trace", "no id", "x")
