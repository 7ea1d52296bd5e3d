"""What is kept, in one list: searched, sorted and cut into pages by the database; and renamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import sqlalchemy as sa

from app.objects.common import Page
from app.objects.job import Finding, HistoryEntry
from app.objects.record import Validation
from app.objects.region import Region
from app.objects.trace import Trace
from app.storage.database import Database, is_id
from app.storage.store import Store
from app.storage.tables import regions, traces, validations
from app.units import count

Kind = Literal["trace", "region", "validation"]
Sort = Literal["newest", "oldest", "name"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SORTS: tuple[Sort, ...] = get_args(Sort)

MAX_WORDS = 8
"""Words of a search that are looked for."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a list shows. kind: None for all. q: words that name or device have, all of them, in any case."""

    kind: Kind | None = None
    q: str = ""
    sort: Sort = "newest"


def find_entries(store: Store, wanted: Wanted, limit: int = 50, after: str | None = None) -> Page[HistoryEntry]:
    """One page of the list. after: `next` of the page before."""
    rows = _listed(wanted.kind).subquery()
    query = sa.select(rows.c.kind, rows.c.id, rows.c.created_at, rows.c.sorted_name)
    for word in wanted.q.split()[:MAX_WORDS]:
        anywhere = (rows.c.name.icontains(word, autoescape=True), rows.c.device.icontains(word, autoescape=True))
        query = query.where(sa.or_(*anywhere))
    place = rows.c.sorted_name if wanted.sort == "name" else rows.c.created_at
    down = wanted.sort == "newest"
    if after is not None:
        value, _, row_id = after.rpartition("~")
        beyond = place < value if down else place > value
        behind = rows.c.id < row_id if down else rows.c.id > row_id
        query = query.where(sa.or_(beyond, sa.and_(place == value, behind)))
    order = (place.desc(), rows.c.id.desc()) if down else (place, rows.c.id)
    # One row more than asked tells whether there is a next page.
    with store.database.read() as connection:
        listed = connection.execute(query.order_by(*order).limit(limit + 1)).mappings().all()
    last = listed[limit - 1] if len(listed) > limit else None
    entries = [_ENTRIES[row["kind"]](store, row["id"]) for row in listed[:limit]]
    mark = None if last is None else f"{last['sorted_name' if wanted.sort == 'name' else 'created_at']}~{last['id']}"
    return {"items": [entry for entry in entries if entry is not None], "next": mark}  # None: deleted meanwhile


def rename(database: Database, kind: Literal["trace", "region"], row_id: str, name: str) -> bool:
    """Give a trace or a region another name; False for an unknown id."""
    if not is_id(row_id):
        return False
    with database.write() as connection:
        if kind == "trace":
            changed = traces.update().where(traces.c.id == row_id).values(name=name)
            return connection.execute(changed).rowcount == 1
        body = connection.scalar(sa.select(regions.c.body).where(regions.c.id == row_id).with_for_update())
        if body is None:
            return False
        renamed = regions.update().where(regions.c.id == row_id)
        connection.execute(renamed.values(name=name, body={**body, "name": name}))
        return True


def _listed(kind: Kind | None) -> sa.CompoundSelect[Any]:
    """Kind, id, time, name and device of all rows of a kind, or of every kind."""
    devices = {
        "trace": (traces, traces.c.body["device"].as_string()),
        "region": (regions, regions.c.body[("cost", "device")].as_string()),
        "validation": (validations, validations.c.device),
    }
    every = []
    for name, (table, device) in devices.items():
        columns = (table.c.id, table.c.created_at, table.c.name, sa.func.lower(table.c.name).label("sorted_name"))
        query = sa.select(sa.literal(name).label("kind"), *columns, sa.func.coalesce(device, "").label("device"))
        every.append(query.where(regions.c.trace_id.is_(None)) if table is regions else query)
    return sa.union_all(*(query for name, query in zip(devices, every, strict=True) if kind in (None, name)))


def _trace(store: Store, trace_id: str) -> HistoryEntry | None:
    trace = store.trace(trace_id)
    if trace is None:
        return None
    wrong = trace["error"]["message"] if trace["error"] else ""
    summary = wrong or ("" if trace["kernels"] is None else count(trace["kernels"], "kernel"))
    finding = finding_of(trace) if trace["status"] == "ready" else None
    return _entry("trace", trace, trace["status"], summary, trace["device"], finding)


def finding_of(trace: Trace) -> Finding | None:
    """A trace's bottleneck and the first thing to do about it; None where neither is known."""
    critical = trace.get("critical")
    first = next((action for action in trace["actions"] if not action["instead_of"]), None)
    if critical is None and first is None:
        return None
    return {
        "critical": critical["resource"] if critical else None,
        "share": critical["share"] if critical else None,
        "action": first["title"] if first else "",
        "saves_us": first["saves_us"] if first else None,
        "step_time_us": trace["step_time_us"],
    }


def _region(store: Store, region_id: str) -> HistoryEntry | None:
    region = store.region(region_id)
    if region is None:
        return None
    advice = region["advice"]
    cost = region["cost"]
    return _entry("region", region, "ready", advice["headline"] if advice else "", cost["device"] if cost else None)


def _validation(store: Store, validation_id: str) -> HistoryEntry | None:
    validation = store.validation(validation_id)
    if validation is None:
        return None
    status = validation["outcome"] or validation["state"]
    return _entry("validation", validation, status, validation["reason"], validation["device"])


_ENTRIES: Mapping[str, Callable[[Store, str], HistoryEntry | None]] = {
    "trace": _trace, "region": _region, "validation": _validation,
}  # fmt: skip


def _entry(
    kind: Kind, item: Trace | Region | Validation, status: str, summary: str, device: str | None,
    finding: Finding | None = None,
) -> HistoryEntry:  # fmt: skip
    return {
        "kind": kind,
        "id": item["id"],
        "name": item["name"],
        "status": status,
        "created_at": item["created_at"],
        "summary": summary,
        "device": device,
        "finding": finding,
    }
