"""The history of checks in the database: runs, series, and the values of both. Every function takes the database.

What changed in a series, and why, is app.history's to say: here are the values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from app.objects.common import Page
from app.objects.history import HistoryEntry, HistoryKey, HistoryMeasure
from app.storage.database import ID_ALPHABET, ID_LENGTH, Database, is_id, now, one_at_a_time
from app.storage.paging import page_of
from app.storage.tables import checks, history_runs, history_series, history_values

MOST_NAMES = 200
"""Of what lists can be narrowed to: the names of one kind."""

ADDED_AT_ONCE = 50
"""Runs that are added in one transaction."""

DELETED_AT_ONCE = 500
"""Runs that are removed in one statement: databases bound the parameters of one."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One value of a series with its run. entry: without its measures. check_id: of the check made here, None where the
    run was sent or its check is gone."""

    entry: HistoryEntry
    measure: HistoryMeasure
    check_id: str | None


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


def append(database: Database, entries: Sequence[HistoryEntry]) -> int:
    """Add runs, oldest first; how many were new. One of an id that is here already changes nothing.

    Some at a time: on SQLite nobody else writes meanwhile, and a run that is sent again does no harm.
    """
    added = 0
    for start in range(0, len(entries), ADDED_AT_ONCE):
        with database.write() as connection:
            added += sum(append_one(connection, entry) for entry in entries[start : start + ADDED_AT_ONCE])
    return added


def append_one(connection: sa.Connection, entry: HistoryEntry, check_id: str | None = None) -> bool:
    """Add one run within a transaction; False where a run of its id is here. check_id: the check that measured it.

    The entry has been checked: its time is written as all of ours are, its id has at most 64 characters.
    """
    one_at_a_time(connection, "history")
    if connection.scalar(sa.select(history_runs.c.id).where(history_runs.c.id == entry["id"])) is not None:
        return False
    at, came = entry["at"], now()
    if check_id is not None and connection.scalar(sa.select(checks.c.id).where(checks.c.id == check_id)) is None:
        check_id = None
    run = {"id": entry["id"], "created_at": came, "at": at, "device": entry["environment"]["device"]}
    body = {**entry, "measures": []}
    connection.execute(history_runs.insert().values({**run, "check_id": check_id, "body": body}))
    values = {}
    for measure in entry["measures"]:
        key: HistoryKey = {
            "check": entry["check"], "branch": entry["branch"], "subject": measure["subject"],
            "metric": measure["metric"],
        }  # fmt: skip
        of = series_id(key, measure["unit"])
        _touch(connection, of, key, measure["unit"], came)
        number = {name: measure[name] for name in ("value", "samples", "spread")}
        values[of] = {"series_id": of, "run_id": entry["id"], "at": at, **number}
    if values:
        connection.execute(history_values.insert(), list(values.values()))
    return True


def series_page(database: Database, limit: int, after: str | None, wanted: Narrowed) -> Page[StoredSeries]:
    """Series by their newest run, the newest first."""
    return page_of(database, _series(wanted), history_series, limit, after, _read_series)


def one_series(database: Database, wanted_id: str) -> StoredSeries | None:
    """One series; None for an unknown id."""
    if not is_id(wanted_id):
        return None
    with database.read() as connection:
        row = connection.execute(_series(Narrowed()).where(history_series.c.id == wanted_id)).mappings().first()
    return None if row is None else _read_series(row)


def runs_of(
    database: Database, series: Collection[StoredSeries], most: int, device: str = ""
) -> Mapping[str, list[StoredRun]]:
    """By the series' ids: the newest `most` runs of each, oldest first. device: only those on it, "" for all."""
    ids = [one.id for one in series]
    newest = (history_values.c.at.desc(), history_values.c.run_id.desc())
    place = sa.func.row_number().over(partition_by=history_values.c.series_id, order_by=newest).label("place")
    query = sa.select(history_values, history_runs.c.body, history_runs.c.check_id, place)
    query = query.join(history_runs, history_runs.c.id == history_values.c.run_id)
    query = query.where(history_values.c.series_id.in_(ids))
    if device:
        query = query.where(history_runs.c.device == device)
    ranked = query.subquery()
    wanted = sa.select(ranked).where(ranked.c.place <= most).order_by(ranked.c.at, ranked.c.run_id)
    of_series = {one.id: one for one in series}
    lists: dict[str, list[StoredRun]] = {one: [] for one in ids}
    with database.read() as connection:
        for row in connection.execute(wanted).mappings() if ids else ():
            one = of_series[row["series_id"]]
            measure: HistoryMeasure = {
                "subject": one.key["subject"], "metric": one.key["metric"], "unit": one.unit, "value": row["value"],
                "samples": row["samples"], "spread": row["spread"],
            }  # fmt: skip
            lists[one.id].append(StoredRun(row["body"], measure, row["check_id"]))
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
    query = _series(Narrowed()).where(alike).order_by(history_series.c.branch).limit(MOST_NAMES)
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
        _each(runs, lambda some: connection.execute(_without_values(some)))
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


def _each(items: Sequence[str], do: Callable[[Sequence[str]], object]) -> None:
    for start in range(0, len(items), DELETED_AT_ONCE):
        do(items[start : start + DELETED_AT_ONCE])


def _touch(connection: sa.Connection, of: str, key: HistoryKey, unit: str, came: str) -> None:
    known = history_series.update().where(history_series.c.id == of).values(created_at=came)
    if not connection.execute(known).rowcount:
        named = {"check_name": key["check"], **{name: key[name] for name in ("branch", "subject", "metric")}}
        connection.execute(history_series.insert().values(id=of, created_at=came, unit=unit, **named))


def _series(wanted: Narrowed) -> sa.Select[Any]:
    own = history_values.c.series_id == history_series.c.id
    count = sa.select(sa.func.count()).select_from(history_values).where(own)
    if wanted.device:
        runs = history_runs.c.id == history_values.c.run_id
        on_device = sa.and_(runs, history_runs.c.device == wanted.device)
        count = count.where(sa.select(history_runs.c.id).where(on_device).exists())
    runs_here = count.scalar_subquery()
    query = sa.select(history_series, runs_here.label("runs"))
    if wanted.check:
        query = query.where(history_series.c.check_name == wanted.check)
    if wanted.branch:
        query = query.where(history_series.c.branch == wanted.branch)
    return query.where(runs_here > 0) if wanted.device else query


def _read_series(row: sa.RowMapping) -> StoredSeries:
    key: HistoryKey = {
        "check": row["check_name"], "branch": row["branch"], "subject": row["subject"], "metric": row["metric"],
    }  # fmt: skip
    return StoredSeries(row["id"], key, row["unit"], row["runs"], row["created_at"])
