"""The history of checks in the database: runs, series, and the values of both. Every function takes the database.

What changed in a series, and why, is app.history's to say: here are the values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa

from app.objects.common import Page
from app.objects.history import HistoryEntry, HistoryKey, HistoryMeasure
from app.storage.database import ID_ALPHABET, ID_LENGTH, Database, is_id, now, one_at_a_time
from app.storage.paging import page_of
from app.storage.tables import checks, history_runs, history_series, history_values

T = TypeVar("T")

MOST_NAMES = 200
"""Of what lists can be narrowed to: the names of one kind."""

MEASURES_AT_ONCE = 2_000
"""That are added in one transaction, so that it is short."""

PARAMETERS_AT_ONCE = 500
"""Ids in one statement: databases bound the parameters of one."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One value of a series with its run. entry: without its measures. check_id: of the check made here, None where the
    run was sent or its check is gone. came: when it came here."""

    entry: HistoryEntry
    measure: HistoryMeasure
    check_id: str | None
    came: str


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """A series without its values. updated_at: when its newest run came."""

    id: str
    key: HistoryKey
    unit: str
    runs: int
    updated_at: str


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Which series, and which of their runs; "" for all. check: the check's name."""

    check: str = ""
    branch: str = ""
    device: str = ""


@dataclass(frozen=True, slots=True)
class Names:
    """What the lists can be narrowed to."""

    checks: list[str]
    branches: list[str]
    devices: list[str]


def series_id(key: HistoryKey, unit: str) -> str:
    """The same for the same series on every server, as our other ids are."""
    text = json.dumps([key["check"], key["branch"], key["subject"], key["metric"], unit])
    rest, characters = int.from_bytes(hashlib.sha256(text.encode()).digest()), ""
    for _ in range(ID_LENGTH):
        rest, digit = divmod(rest, len(ID_ALPHABET))
        characters += ID_ALPHABET[digit]
    return characters


def append(database: Database, entries: Sequence[HistoryEntry]) -> tuple[int, list[str]]:
    """Add runs, oldest first; how many were new, and the ids of known ones that have other values here, which stay.

    Some at a time: on SQLite nobody else writes meanwhile, and a run that is sent again does no harm.
    """
    added: int = 0
    other: list[str] = []
    for some in _portions(entries):
        rows = [_rows(entry) for entry in some]
        with database.write() as connection:
            new, differing = _add(connection, rows)
        added += new
        other += differing
    return added, other


def append_one(connection: sa.Connection, entry: HistoryEntry, check_id: str | None = None) -> bool:
    """Add one run within a transaction; False where a run of its id is here. check_id: the check that measured it.

    The entry has been checked: its time is written as all of ours are, its id has at most 64 characters.
    """
    if check_id is not None and connection.scalar(sa.select(checks.c.id).where(checks.c.id == check_id)) is None:
        check_id = None
    added = _add(connection, [_rows(entry, check_id)])[0] == 1
    if not added and check_id is not None:  # the check that measured it first may be gone
        known = sa.and_(history_runs.c.id == entry["id"], history_runs.c.check_id.is_(None))
        connection.execute(history_runs.update().where(known).values(check_id=check_id))
    return added


@dataclass(frozen=True, slots=True)
class _Rows:
    """A run's rows. series: by their ids; values: the same."""

    run: Mapping[str, object]
    series: dict[str, dict[str, object]]
    values: dict[str, dict[str, object]]


def _portions(entries: Sequence[HistoryEntry]) -> Iterator[list[HistoryEntry]]:
    """Runs of so many measures together as one transaction may add."""
    some: list[HistoryEntry] = []
    measures = 0
    for entry in entries:
        if some and measures + len(entry["measures"]) > MEASURES_AT_ONCE:
            yield some
            some, measures = [], 0
        some.append(entry)
        measures += 1 + len(entry["measures"])
    if some:
        yield some


def _rows(entry: HistoryEntry, check_id: str | None = None) -> _Rows:
    at, came = entry["at"], now()
    run = {
        "id": entry["id"], "created_at": came, "at": at, "device": entry["environment"]["device"],
        "check_id": check_id, "body": {**entry, "measures": []},
    }  # fmt: skip
    rows = _Rows(run, {}, {})
    for measure in entry["measures"]:
        key: HistoryKey = {
            "check": entry["check"], "branch": entry["branch"], "subject": measure["subject"],
            "metric": measure["metric"],
        }  # fmt: skip
        of = series_id(key, measure["unit"])
        rows.series[of] = {
            "id": of, "created_at": came, "check_name": key["check"], "branch": key["branch"],
            "subject": key["subject"], "metric": key["metric"], "unit": measure["unit"],
        }  # fmt: skip
        number = {name: measure[name] for name in ("value", "samples", "spread")}
        rows.values[of] = {"series_id": of, "run_id": entry["id"], "at": at, **number}
    return rows


def _add(connection: sa.Connection, rows: Sequence[_Rows]) -> tuple[int, list[str]]:
    """A few statements for all of them, whatever they measured."""
    one_at_a_time(connection, "history")
    ids = [str(row.run["id"]) for row in rows]
    known = set(_each(ids, lambda some: connection.scalars(
        sa.select(history_runs.c.id).where(history_runs.c.id.in_(some))
    )))  # fmt: skip
    new: dict[str, _Rows] = {}
    again: list[_Rows] = []
    for identity, row in zip(ids, rows, strict=True):
        if identity in known or new.setdefault(identity, row) is not row:
            again.append(row)
    if new:
        connection.execute(history_runs.insert(), [row.run for row in new.values()])
    series = {of: one for row in new.values() for of, one in row.series.items()}
    here = set(_each(list(series), lambda some: connection.scalars(
        sa.select(history_series.c.id).where(history_series.c.id.in_(some))
    )))  # fmt: skip
    if missing := [one for of, one in series.items() if of not in here]:
        connection.execute(history_series.insert(), missing)
    if here:
        newer = history_series.update().where(history_series.c.id == sa.bindparam("of"))
        newer = newer.values(created_at=sa.bindparam("came"))
        connection.execute(newer, [{"of": of, "came": series[of]["created_at"]} for of in here])
    if values := [value for row in new.values() for value in row.values.values()]:
        connection.execute(history_values.insert(), values)
    return len(new), _with_other_values(connection, again)


def _with_other_values(connection: sa.Connection, known: Sequence[_Rows]) -> list[str]:
    """The ids of runs that have another value here, or none of the same series. A deleted series lacks its values."""
    columns = (history_values.c.series_id, history_values.c.run_id, history_values.c.value)
    ids = list(dict.fromkeys(str(row.run["id"]) for row in known))
    here = {
        (of, run): value
        for of, run, value in _each(ids, lambda some: connection.execute(
            sa.select(*columns).where(history_values.c.run_id.in_(some))
        ))
    }  # fmt: skip
    differing = []
    for row in known:
        run = str(row.run["id"])
        common = [(one["value"], here[of, run]) for of, one in row.values.items() if (of, run) in here]
        if any(sent != kept for sent, kept in common) or (row.values and not common):
            differing.append(run)
    return list(dict.fromkeys(differing))


def series_page(database: Database, limit: int, after: str | None, wanted: Narrowed) -> Page[StoredSeries]:
    """Series by their newest run, the newest first."""
    runs = _runs_here(wanted.device)
    query = _series(runs)
    if wanted.check:
        query = query.where(history_series.c.check_name == wanted.check)
    if wanted.branch:
        query = query.where(history_series.c.branch == wanted.branch)
    if wanted.device:
        query = query.where(runs > 0)
    return page_of(database, query, history_series, limit, after, _read_series)


def one_series(database: Database, wanted_id: str, device: str = "") -> StoredSeries | None:
    """One series; None for an unknown id. device: whose runs alone are counted, "" for all."""
    if not is_id(wanted_id):
        return None
    with database.read() as connection:
        counted = _series(_runs_here(device)).where(history_series.c.id == wanted_id)
        row = connection.execute(counted).mappings().first()
    return None if row is None else _read_series(row)


def runs_of(
    database: Database, series: Collection[StoredSeries], most: int, device: str = ""
) -> Mapping[str, list[StoredRun]]:
    """By the series' ids: the newest `most` runs of each, oldest first. device: only those on it, "" for all."""
    ids = [one.id for one in series]
    newest = (history_values.c.at.desc(), history_values.c.run_id.desc())
    place = sa.func.row_number().over(partition_by=history_values.c.series_id, order_by=newest).label("place")
    query = sa.select(history_values, place).where(history_values.c.series_id.in_(ids))
    if device:
        query = query.join(history_runs, history_runs.c.id == history_values.c.run_id)
        query = query.where(history_runs.c.device == device)
    ranked = query.subquery()
    wanted = sa.select(ranked).where(ranked.c.place <= most).order_by(ranked.c.at, ranked.c.run_id)
    of_series = {one.id: one for one in series}
    lists: dict[str, list[StoredRun]] = {one: [] for one in ids}
    if not ids:
        return lists
    with database.read() as connection:
        rows = connection.execute(wanted).mappings().all()
        # A body is read once, however many of its run's values are wanted.
        runs = {run.id: run for run in _each(
            list({row["run_id"] for row in rows}),
            lambda some: connection.execute(sa.select(history_runs).where(history_runs.c.id.in_(some))),
        )}  # fmt: skip
        for row in rows:
            run = runs[row["run_id"]]
            one = of_series[row["series_id"]]
            measure: HistoryMeasure = {
                "subject": one.key["subject"], "metric": one.key["metric"], "unit": one.unit, "value": row["value"],
                "samples": row["samples"], "spread": row["spread"],
            }  # fmt: skip
            lists[one.id].append(StoredRun(run.body, measure, run.check_id, run.created_at))
    return lists


def names(database: Database, of: str = "") -> Names:
    """What there is to narrow to, in alphabetical order. of: the id of a series, whose devices alone are listed."""
    devices = sa.select(history_runs.c.device).distinct()
    if of:
        values = sa.select(history_values.c.run_id).where(history_values.c.series_id == of)
        devices = devices.where(history_runs.c.id.in_(values))
    with database.read() as connection:

        def listed(query: sa.Select[Any]) -> list[str]:
            return sorted(connection.scalars(query.limit(MOST_NAMES)))

        return Names(
            listed(sa.select(history_series.c.check_name).distinct()),
            listed(sa.select(history_series.c.branch).distinct()),
            listed(devices),
        )


def siblings(database: Database, key: HistoryKey, unit: str) -> list[StoredSeries]:
    """The same measure on every branch, its own among them, by the branch's name."""
    alike = sa.and_(
        history_series.c.check_name == key["check"], history_series.c.subject == key["subject"],
        history_series.c.metric == key["metric"], history_series.c.unit == unit,
    )  # fmt: skip
    query = _series(_runs_here()).where(alike).order_by(history_series.c.branch).limit(MOST_NAMES)
    with database.read() as connection:
        return [_read_series(row) for row in connection.execute(query).mappings()]


def series_of_check(database: Database, check_id: str) -> str | None:
    """The series that a check's page leads to: the first of its run's; None where the check appended to none."""
    if not is_id(check_id):
        return None
    query = sa.select(history_series.c.id)
    query = query.join(history_values, history_values.c.series_id == history_series.c.id)
    query = query.join(history_runs, history_runs.c.id == history_values.c.run_id)
    query = query.where(history_runs.c.check_id == check_id)
    # The step before its parts: it is what a check is about.
    with database.read() as connection:
        known: str | None = connection.scalar(query.order_by(history_series.c.subject, history_series.c.id).limit(1))
    return known


def delete_series(database: Database, wanted_id: str) -> bool:
    """Forget a series, and the runs that have a value in no other; False for an unknown id."""
    if not is_id(wanted_id):
        return False
    with database.write() as connection:
        one_at_a_time(connection, "history")
        of = history_values.c.series_id == wanted_id
        runs = connection.scalars(sa.select(history_values.c.run_id).where(of)).all()
        gone = connection.execute(history_series.delete().where(history_series.c.id == wanted_id)).rowcount
        for start in range(0, len(runs), PARAMETERS_AT_ONCE):
            connection.execute(_without_values(runs[start : start + PARAMETERS_AT_ONCE]))
    return gone == 1


def forget(connection: sa.Connection, before: str) -> int:
    """Remove the runs that came before then, and series that have none left; how many runs."""
    one_at_a_time(connection, "history")
    removed = connection.execute(history_runs.delete().where(history_runs.c.created_at < before)).rowcount
    if removed:
        values = sa.select(history_values.c.series_id).where(history_values.c.series_id == history_series.c.id)
        connection.execute(history_series.delete().where(~values.exists()))
    return removed


def _without_values(runs: Sequence[str]) -> sa.Delete:
    values = sa.select(history_values.c.run_id).where(history_values.c.run_id == history_runs.c.id)
    return history_runs.delete().where(history_runs.c.id.in_(runs), ~values.exists())


def _each(items: Sequence[str], ask: Callable[[Sequence[str]], Iterable[T]]) -> Iterator[T]:
    """What is answered for all of them, some at a time."""
    for start in range(0, len(items), PARAMETERS_AT_ONCE):
        yield from ask(items[start : start + PARAMETERS_AT_ONCE])


def _runs_here(device: str = "") -> sa.ScalarSelect[int]:
    """How many runs a series has, on a device where one is named."""
    own = history_values.c.series_id == history_series.c.id
    count = sa.select(sa.func.count()).select_from(history_values).where(own)
    if device:
        runs = history_runs.c.id == history_values.c.run_id
        count = count.where(sa.select(history_runs.c.id).where(sa.and_(runs, history_runs.c.device == device)).exists())
    return count.scalar_subquery()


def _series(runs: sa.ScalarSelect[int]) -> sa.Select[Any]:
    return sa.select(history_series, runs.label("runs"))


def _read_series(row: sa.RowMapping) -> StoredSeries:
    key: HistoryKey = {
        "check": row["check_name"], "branch": row["branch"], "subject": row["subject"], "metric": row["metric"],
    }  # fmt: skip
    return StoredSeries(row["id"], key, row["unit"], row["runs"], row["created_at"])
