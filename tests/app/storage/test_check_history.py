"""The history of checks on each database: a run is kept once and read back as it was, and nothing is left over."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from app.objects.history import HistoryEntry, HistoryKey
from app.storage import check_history
from app.storage.check_history import Narrowed
from app.storage.database import Database, is_id
from app.storage.tables import checks, history_runs, history_series, history_values

STEP: HistoryKey = {"check": "nightly", "branch": "main", "subject": "step", "metric": "time"}


def entry(number: int, *, branch: str = "main", device: str = "H200", **values: float) -> HistoryEntry:
    """Run of that number: a step of 1000 + number µs, unless values say another."""
    measured = values or {"step": 1000.0 + number}
    return {
        "schema": 1, "id": f"{branch}-{device}-{number:04}", "check": "nightly", "commit": f"{number:040x}",
        "at": f"2026-11-{1 + number // 24:02}T{number % 24:02}:00:00.000000Z", "branch": branch, "parents": [],
        "dirty": False, "environment": {"device": device, "software": {"torch": "2.13.0"}, "method": ""},
        "measures": [
            {"subject": subject, "metric": "time", "unit": "µs", "value": value, "samples": 5, "spread": 0.01}
            for subject, value in measured.items()
        ],
    }  # fmt: skip


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    yield opened
    opened.close()


def count(database: Database) -> tuple[int, int, int]:
    with database.read() as connection:
        return tuple(  # type: ignore[return-value]
            connection.scalar(sa.select(sa.func.count()).select_from(table))
            for table in (history_runs, history_series, history_values)
        )


def values(database: Database, key: HistoryKey = STEP, most: int = 100, device: str = "") -> list[float]:
    series = check_history.one_series(database, check_history.series_id(key, "µs"))
    assert series is not None
    return [run.measure["value"] for run in check_history.runs_of(database, [series], most, device)[series.id]]


def test_a_run_that_comes_again_is_counted_once(database: Database) -> None:
    runs = [entry(n) for n in range(5)]
    assert check_history.append(database, runs[:3]) == (3, [])
    assert check_history.append(database, [*runs, runs[4]]) == (2, [])
    assert values(database) == [1000.0, 1001.0, 1002.0, 1003.0, 1004.0]
    assert count(database) == (5, 1, 5)


def test_runs_are_read_by_time_whatever_the_order_in_which_they_came(database: Database) -> None:
    check_history.append(database, [entry(n) for n in (3, 0, 4, 1, 2)])
    assert values(database) == [1000.0, 1001.0, 1002.0, 1003.0, 1004.0]
    assert values(database, most=2) == [1003.0, 1004.0]


def test_a_run_is_read_back_as_it_was_but_for_other_series_measures(database: Database) -> None:
    sent = entry(7, step=5.0, **{"RMSNorm é": 2.5})
    check_history.append(database, [sent])
    key: HistoryKey = {**STEP, "subject": "RMSNorm é"}
    series = check_history.one_series(database, check_history.series_id(key, "µs"))
    assert series is not None and (series.key, series.unit, series.runs) == (key, "µs", 1)
    (run,) = check_history.runs_of(database, [series], 10)[series.id]
    assert run.entry == {**sent, "measures": []}
    assert run.measure == sent["measures"][1]
    assert run.check_id is None


def test_another_unit_is_another_series(database: Database) -> None:
    other = entry(1)
    other["measures"][0]["unit"] = "ms"
    check_history.append(database, [entry(0), other])
    assert values(database) == [1000.0]
    assert is_id(check_history.series_id(STEP, "ms"))
    assert check_history.series_id(STEP, "ms") != check_history.series_id(STEP, "µs")


def test_lists_are_narrowed_and_cut_into_pages(database: Database) -> None:
    check_history.append(database, [entry(n, branch=b) for b in ("main", "topic") for n in range(2)])
    check_history.append(database, [entry(0, device="A100", other=3.0)])
    whole = check_history.series_page(database, 10, None, Narrowed())
    assert [(s.key["branch"], s.key["subject"], s.runs) for s in whole["items"]] == [
        ("main", "other", 1), ("topic", "step", 2), ("main", "step", 2)
    ]  # fmt: skip
    first = check_history.series_page(database, 2, None, Narrowed())
    second = check_history.series_page(database, 2, first["next"], Narrowed())
    assert first["items"] + second["items"] == whole["items"] and second["next"] is None

    def subjects(wanted: Narrowed) -> list[tuple[str, str]]:
        page = check_history.series_page(database, 10, None, wanted)
        return [(s.key["branch"], s.key["subject"]) for s in page["items"]]

    assert subjects(Narrowed(branch="topic")) == [("topic", "step")]
    assert subjects(Narrowed(device="A100")) == [("main", "other")]
    assert subjects(Narrowed(check="nightly", branch="main", device="H200")) == [("main", "step")]
    assert subjects(Narrowed(check="no such")) == []
    names = check_history.names(database)
    assert (names.checks, names.branches, names.devices) == (["nightly"], ["main", "topic"], ["A100", "H200"])
    assert check_history.names(database, whole["items"][0].id).devices == ["A100"]
    assert [s.key["branch"] for s in check_history.siblings(database, STEP, "µs")] == ["main", "topic"]


def test_a_series_is_narrowed_to_a_device(database: Database) -> None:
    check_history.append(database, [entry(n, device=("H200", "A100")[n % 2]) for n in range(4)])
    assert values(database, device="A100") == [1001.0, 1003.0]
    assert values(database, device="no such") == []
    page = check_history.series_page(database, 10, None, Narrowed(device="A100"))
    assert [s.runs for s in page["items"]] == [2]


def test_a_deleted_series_takes_the_runs_that_are_in_no_other(database: Database) -> None:
    check_history.append(database, [entry(0, step=1.0, other=2.0), entry(1)])
    step = check_history.series_id(STEP, "µs")
    assert check_history.delete_series(database, step)
    assert count(database) == (1, 1, 1)
    assert not check_history.delete_series(database, step)
    assert check_history.one_series(database, step) is None
    assert check_history.delete_series(database, check_history.series_id({**STEP, "subject": "other"}, "µs"))
    assert count(database) == (0, 0, 0)


def test_what_came_before_a_time_is_forgotten_with_the_series_that_it_leaves_empty(database: Database) -> None:
    check_history.append(database, [entry(0, old=1.0, step=2.0)])
    with database.write() as connection:
        connection.execute(history_runs.update().values(created_at="2020-01-01T00:00:00.000000Z"))
    check_history.append(database, [entry(1)])
    with database.write() as connection:
        assert check_history.forget(connection, "2021-01-01T00:00:00.000000Z") == 1
        assert check_history.forget(connection, "2021-01-01T00:00:00.000000Z") == 0
    assert values(database) == [1001.0]
    assert count(database) == (1, 1, 1)


def test_a_check_that_is_removed_leaves_its_run(database: Database) -> None:
    made = {"id": "c" * 26, "created_at": "2026-11-26T00:00:00.000000Z", "name": "nightly"}
    with database.write() as connection:
        connection.execute(checks.insert().values(made))
        assert check_history.append_one(connection, entry(0), "c" * 26)
        assert check_history.append_one(connection, entry(1), "d" * 26)  # which is gone already
    step = check_history.series_id(STEP, "µs")
    assert check_history.series_of_check(database, "c" * 26) == step
    assert check_history.series_of_check(database, "d" * 26) is None
    with database.write() as connection:
        connection.execute(checks.delete())
    assert check_history.series_of_check(database, "c" * 26) is None
    assert values(database) == [1000.0, 1001.0]
    with database.write() as connection:  # the same measurement is checked again
        connection.execute(checks.insert().values({**made, "id": "e" * 26}))
        assert not check_history.append_one(connection, entry(0), "e" * 26)
    assert check_history.series_of_check(database, "e" * 26) == step


def test_two_that_begin_a_series_at_once_make_one(database: Database) -> None:
    with ThreadPoolExecutor(4) as together:
        added = list(together.map(lambda n: check_history.append(database, [entry(n), entry(0)]), range(4)))
    assert sum(new for new, _ in added) == 4
    assert count(database) == (4, 1, 4)


@pytest.mark.parametrize("unknown", ["", "x", "a" * 26, "'; DROP --", "é" * 26, "a\0" * 13])
def test_an_unknown_id_is_no_series(database: Database, unknown: str) -> None:
    assert check_history.one_series(database, unknown) is None
    assert not check_history.delete_series(database, unknown)
    assert check_history.series_of_check(database, unknown) is None


def test_names_that_no_database_takes_are_kept_readable(database: Database) -> None:
    hostile = entry(0, **{"a\0b\ud800": 1.0})
    hostile["branch"] = "x\0"
    check_history.append(database, [hostile])
    check_history.append(database, [hostile])
    (series,) = check_history.series_page(database, 10, None, Narrowed())["items"]
    assert series.key["subject"].startswith("a\N{REPLACEMENT CHARACTER}b")
    assert len(check_history.runs_of(database, [series], 10)[series.id]) == 1


def test_runs_of_an_id_that_have_other_values_are_told(database: Database) -> None:
    check_history.append(database, [entry(0, step=1.0, gone=5.0), entry(1)])
    check_history.delete_series(database, check_history.series_id({**STEP, "subject": "gone"}, "µs"))
    other = {**entry(2), "measures": entry(2, step=7.0)["measures"]}
    sent = [entry(0, step=1.0, gone=5.0), entry(1, step=2.0), entry(2), other]
    assert check_history.append(database, sent) == (1, [entry(1)["id"], entry(2)["id"]])  # type: ignore[list-item]
    assert values(database) == [1.0, 1001.0, 1002.0]
    elsewhere: HistoryEntry = {**entry(1), "check": "weekly"}
    assert check_history.append(database, [elsewhere]) == (0, [elsewhere["id"]])


def test_many_measures_take_few_statements_and_let_others_write_in_between(database: Database) -> None:
    names = {f"s{n}": 1.0 for n in range(1500)}
    statements: list[str] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda *told: statements.append(told[2]))
    transactions: list[object] = []
    sa.event.listen(database.engine, "commit", transactions.append)
    assert check_history.append(database, [entry(n, **names) for n in range(6)]) == (6, [])
    assert len(transactions) == 6
    assert len(statements) < 6 * 12
    assert count(database) == (6, 1500, 9000)


def test_the_body_of_a_run_is_read_once_for_all_its_series(database: Database) -> None:
    names = {f"s{n}": 1.0 for n in range(30)}
    check_history.append(database, [entry(n, **names) for n in range(4)])
    series = check_history.series_page(database, 30, None, Narrowed())["items"]
    of = check_history.runs_of(database, series, 3)
    assert {len(runs) for runs in of.values()} == {3}
    assert len({id(run.entry) for runs in of.values() for run in runs}) == 3


def test_a_series_counts_the_runs_of_one_device(database: Database) -> None:
    check_history.append(database, [entry(n, device=("H200", "A100", "A100")[n % 3]) for n in range(6)])
    for device, runs in (("", 6), ("A100", 4), ("no such", 0)):
        series = check_history.one_series(database, check_history.series_id(STEP, "µs"), device)
        assert series is not None and series.runs == runs
