"""Store: traces, regions, validations and their jobs, as the objects that the API answers with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import sqlalchemy as sa

from app.archive.program_fingerprint import fingerprint
from app.objects.check import Check
from app.objects.common import Page, Progress, State
from app.objects.job import Job, JobEvent, JobKind
from app.objects.landscape import Landscape
from app.objects.record import Validation, ValidationBody
from app.objects.region import Region, RegionAdvised, RegionBody, StoredInputs
from app.objects.task import ReadTask, Task, ValidateTask
from app.objects.trace import AskedRegion, Trace, TraceBody, TraceProgress, TraceSummary
from app.storage import checks, job_table, landscapes, measurements, trash
from app.storage.database import Database, finite, is_id, new_id, now
from app.storage.paging import page_of
from app.storage.rows import (
    SHOWN,
    STATUS,
    TRACE,
    TRACE_OWN,
    all_validations,
    insert_region,
    region_of,
    trace_of,
    update_region,
    validation_of,
)
from app.storage.tables import jobs, regions, traces, validations
from app.trace_report.speedup import gain_and_actions

__all__ = ["Store", "finite"]

MAX_RANKS = 256
"""Traces of one group that are compared."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A validation that is asked for. region: its text; digest: of all that was asked, None where it cannot be told."""

    name: str
    region: str
    region_id: str | None
    request: ValidateTask
    digest: str | None = None


class Store:
    """All queries of pages, API and jobs. Thread-safe. Unknown ids answer None.

    uploads: the folder of the files whose names it keeps. by_records: the regions of a trace with their advice by what
    was measured of the same programs, on which its actions then rest; the server sets it, by its archive.
    """

    def __init__(self, url: str, uploads: Path = Path()) -> None:
        self.database = Database(url)
        self.uploads = uploads
        self.by_records: Callable[[list[Region]], list[Region]] = list

    def close(self) -> None:
        self.database.close()

    # --- traces

    def add_trace(
        self, *, trace_id: str, name: str, sha256: str, size: int, file: str, request: ReadTask, cap: int,
        digest: str | None = None, share: bool = False,
    ) -> str:  # fmt: skip
        """A trace and the job that reads it, of the same id, which is answered; QueueFullError leaves nothing behind.

        share: answer the id of the trace of that digest which is here already, unless it failed, and add nothing. One
        that was deleted and can be brought back is brought back.
        """
        with self.database.write() as connection:
            if share and (known := job_table.same(connection, traces, digest, job_table.GOING_WELL)):
                return known
            if share and (back := trash.restore_same(connection, digest)):
                return back
            values = {"name": name, "sha256": sha256, "bytes": size, "file": file, "digest": digest}
            connection.execute(traces.insert().values(id=trace_id, created_at=now(), **values))
            job_table.add(connection, job_id=trace_id, kind="read", request=request, cap=cap)
        return trace_id

    def traces(self, limit: int = 50, after: str | None = None) -> Page[TraceSummary]:
        """Newest first, without their regions."""
        query = sa.select(traces, jobs.c.state, jobs.c.error).join(jobs, jobs.c.id == traces.c.id)
        return page_of(self.database, query, traces, limit, after, trace_of)

    def trace(self, trace_id: str) -> Trace | None:
        """One trace with its regions, and what following their newest advice gains; `oracle` is the server's to say."""
        if not is_id(trace_id):
            return None
        query = sa.select(traces, jobs.c.state, jobs.c.error).join(jobs, jobs.c.id == traces.c.id)
        with self.database.read() as connection:
            row = connection.execute(query.where(traces.c.id == trace_id)).mappings().first()
            if row is None:
                return None
            of_trace = self._regions(connection, regions.c.trace_id == trace_id)
        trace: Trace = {**trace_of(row), "regions": of_trace, "gain": None, "actions": [], "oracle": None}
        if trace["status"] == "ready":
            trace["regions"] = self.by_records(of_trace)
            trace["gain"], trace["actions"] = gain_and_actions(trace)
        return trace

    def reading(self, trace_id: str) -> TraceProgress | None:
        """How far a trace is, without what it holds: what its page asks again and again while it is being read."""
        if not is_id(trace_id):
            return None
        step_us = traces.c.body["step_time_us"].as_float()
        columns = (
            jobs.c.state,
            jobs.c.progress,
            traces.c.body.is_not(sa.null()).label("parts"),
            step_us.label("step_time_us"),
        )
        query = sa.select(*columns).join(jobs, jobs.c.id == traces.c.id).where(traces.c.id == trace_id)
        has_advice = regions.c.body["advice"].as_string().is_not(None)
        of_trace = sa.select(regions.c.position, has_advice.label("advised")).where(regions.c.trace_id == trace_id)
        with self.database.read() as connection:
            row = connection.execute(query).mappings().first()
            if row is None:
                return None
            known = connection.execute(of_trace.order_by(regions.c.position)).all() if row["parts"] else []
            waits = job_table.ahead(connection, trace_id) if row["state"] == "queued" else None
        said: Progress | None = row["progress"]
        return {
            "status": STATUS[row["state"]],
            "ahead": waits,
            "stage": said["phase"] if said else "",
            "fraction": said["fraction"] if said else None,
            "parts": bool(row["parts"]),
            "step_time_us": row["step_time_us"],
            "regions": len(known),
            "advised": [region.position for region in known if region.advised],
        }

    def trace_head(self, trace_id: str) -> TraceSummary | None:
        """One trace without its regions."""
        if not is_id(trace_id):
            return None
        query = sa.select(traces, jobs.c.state, jobs.c.error).join(jobs, jobs.c.id == traces.c.id)
        with self.database.read() as connection:
            row = connection.execute(query.where(traces.c.id == trace_id)).mappings().first()
        return None if row is None else trace_of(row)

    def trace_file(self, trace_id: str) -> str | None:
        """The name of a trace's file among the uploads; None for an unknown id."""
        if not is_id(trace_id):
            return None
        with self.database.read() as connection:
            file: str | None = connection.scalar(sa.select(traces.c.file).where(traces.c.id == trace_id))
            return file

    def trace_group(self, group: str | None) -> list[TraceSummary]:
        """The read traces of one group, oldest first, without their regions; [] for None."""
        if not group:
            return []
        query = sa.select(traces, jobs.c.state, jobs.c.error).join(jobs, jobs.c.id == traces.c.id)
        of_group = query.where(traces.c.group_name == group)
        with self.database.read() as connection:
            rows = connection.execute(of_group.order_by(traces.c.created_at, traces.c.id).limit(MAX_RANKS)).mappings()
            return [trace_of(row) for row in rows]

    def delete_trace(self, trace_id: str) -> str | None:
        """Forget a trace, its regions and its job; the name of its file, or None for an unknown id."""
        if not is_id(trace_id):
            return None
        with self.database.write() as connection:
            file = connection.scalar(sa.select(traces.c.file).where(traces.c.id == trace_id))
            if file is not None:
                # The job first, as whoever ends it locks them: two in different orders would wait for each other.
                connection.execute(jobs.delete().where(jobs.c.id == trace_id))
                connection.execute(traces.delete().where(traces.c.id == trace_id))
            return file

    # --- regions

    def add_region(self, region: RegionBody, inputs: StoredInputs | None = None) -> str:
        """A region that somebody wrote down; its new id. inputs: what its advice was issued on."""
        with self.database.write() as connection:
            return insert_region(connection, region, trace_id=None, position=0, inputs=inputs)

    def region(self, region_id: str) -> Region | None:
        if not is_id(region_id):
            return None
        with self.database.read() as connection:
            known = self._regions(connection, regions.c.id == region_id)
        return known[0] if known else None

    def region_as_advised(self, region_id: str) -> Region | None:
        """A region with the advice of before any measurement: what `put_oracle` replaces."""
        if not is_id(region_id):
            return None
        with self.database.read() as connection:
            row = connection.execute(sa.select(*SHOWN).where(regions.c.id == region_id)).mappings().first()
        return None if row is None else region_of(row, [])

    def regions_asked(self, trace_id: str) -> list[AskedRegion]:
        """What decides which regions of a trace Inductor is asked about, in the report's order, without what they
        hold: its page asks again and again while answers come."""
        said = regions.c.body[("oracle", 0, "unavailable")].as_string()
        time_us = regions.c.body["time_us_per_step"].as_float()
        advised = regions.c.body["advice"].as_string().is_not(None)
        columns = (regions.c.text, time_us.label("time_us"), advised.label("advised"), said.label("said"))
        of_trace = sa.select(*columns).where(regions.c.trace_id == trace_id).order_by(regions.c.position)
        with self.database.read() as connection:
            rows = connection.execute(of_trace).all()
        return [
            {"text": row.text, "time_us": row.time_us, "advised": bool(row.advised), "unavailable": row.said}
            for row in rows
        ]

    def region_at(self, trace_id: str, position: int) -> Region | None:
        """The region at that place of a trace, as `region_as_advised` has it."""
        place = sa.and_(regions.c.trace_id == trace_id, regions.c.position == position)
        with self.database.read() as connection:
            row = connection.execute(sa.select(*SHOWN).where(place)).mappings().first()
        return None if row is None else region_of(row, [])

    def advice_inputs(self, region_id: str) -> StoredInputs | None:
        """What a region's advice was issued on, as it was stored; None where nothing was, or for an unknown id."""
        if not is_id(region_id):
            return None
        with self.database.read() as connection:
            inputs: StoredInputs | None = connection.scalar(
                sa.select(regions.c.inputs).where(regions.c.id == region_id)
            )
            return inputs

    def put_oracle(self, region_id: str, advised: RegionAdvised) -> None:
        """Keep what the oracle said of a region (`oracle`, `recompiles`) and the `advice` issued again with it.

        A validation made before keeps its own advice. A region that is gone stays gone.
        """
        with self.database.write() as connection:
            body = connection.scalar(sa.select(regions.c.body).where(regions.c.id == region_id).with_for_update())
            if body is not None:
                kept = {**body, **finite(advised)}
                connection.execute(regions.update().where(regions.c.id == region_id).values(body=kept))

    def regions(self, trace_id: str, positions: Collection[int] | None = None) -> list[Region]:
        """The regions of a trace, in the report's order; only those at some positions where they are given."""
        wanted = regions.c.trace_id == trace_id
        if positions is not None:
            wanted = sa.and_(wanted, regions.c.position.in_(sorted(positions)))
        with self.database.read() as connection:
            return self._regions(connection, wanted)

    def region_list(self, limit: int = 50, after: str | None = None) -> Page[Region]:
        """Regions that were written down, newest first."""
        query = sa.select(*SHOWN).where(regions.c.trace_id.is_(None))
        page = page_of(self.database, query, regions, limit, after, _id_of)
        with self.database.read() as connection:
            by_id = {r["id"]: r for r in self._regions(connection, regions.c.id.in_(page["items"]))}
        return {"items": [by_id[i] for i in page["items"] if i in by_id], "next": page["next"]}

    def _regions(self, connection: sa.Connection, condition: sa.ColumnElement[bool]) -> list[Region]:
        rows = connection.execute(sa.select(*SHOWN).where(condition).order_by(regions.c.position)).mappings().all()
        ids = [row["id"] for row in rows]
        measured: dict[str, list[sa.RowMapping]] = {region_id: [] for region_id in ids}
        newest = (
            sa.select(validations)
            .where(validations.c.region_id.in_(ids))
            .order_by(validations.c.created_at.desc(), validations.c.id.desc())
        )
        for row in connection.execute(newest).mappings():
            measured[row["region_id"]].append(row)
        return [region_of(row, measured[row["id"]]) for row in rows]

    # --- validations

    def add_validations(self, asked: Sequence[Asked], *, cap: int, reuse: bool = False) -> list[tuple[str, bool]]:
        """Validations and the jobs that measure them, of the same ids, and whether each is new; QueueFullError leaves
        nothing behind of any.

        reuse: answer the one of its digest that waits, runs or has measured something, and add nothing for it.
        """
        ids = []
        programs = {item.region: fingerprint(item.region, "other-sizes") for item in asked}  # nobody waits for it
        with self.database.write() as connection:
            # All that is looked for is looked for first, in one order: two that ask for the same wait for each other.
            digests = sorted({a.digest for a in asked if reuse and a.digest})
            known = {digest: measurements.same(connection, digest) for digest in digests}
            for item in asked:
                old = known.get(item.digest) if item.digest else None
                ids.append((old, False) if old else (self._add(connection, item, programs[item.region], cap), True))
        return ids

    def _add(self, connection: sa.Connection, asked: Asked, program: str, cap: int) -> str:
        validation_id = new_id()
        connection.execute(
            validations.insert().values(
                id=validation_id,
                created_at=now(),
                region_id=asked.region_id,
                name=asked.name,
                region=asked.region,
                digest=asked.digest,
                program=program,
            )
        )
        job_table.add(connection, job_id=validation_id, kind="validate", request=asked.request, cap=cap)
        return validation_id

    def validation(self, validation_id: str) -> Validation | None:
        if not is_id(validation_id):
            return None
        with self.database.read() as connection:
            row = connection.execute(all_validations().where(validations.c.id == validation_id)).mappings().first()
            ahead = job_table.ahead(connection, validation_id) if row is not None else None
        return None if row is None else {**validation_of(row), "ahead": ahead}

    def validations(self, limit: int = 50, after: str | None = None, region_id: str | None = None) -> Page[Validation]:
        """Newest first; of one region where its id is given."""
        query = all_validations()
        if region_id is not None:
            query = query.where(validations.c.region_id == region_id)
        return page_of(self.database, query, validations, limit, after, validation_of)

    # --- jobs

    def job(self, job_id: str) -> Job | None:
        """One job, with what it made once it is done."""
        if not is_id(job_id):
            return None
        with self.database.read() as connection:
            row = connection.execute(sa.select(jobs).where(jobs.c.id == job_id)).mappings().first()
            if row is None:
                return None
            ahead = job_table.ahead(connection, job_id) if row["state"] == "queued" else None
        result = None
        if row["state"] == "done":
            result = self._result(row["kind"], job_id)
        shown = ("id", "kind", "state", "progress", "error", "attempt", "created_at", "started_at", "finished_at")
        return cast("Job", {**{key: row[key] for key in shown}, "ahead": ahead, "result": result})

    def _result(self, kind: JobKind, job_id: str) -> Trace | Validation | Landscape | Check | None:
        if kind == "landscape":
            return landscapes.by_id(self.database, job_id)
        if kind == "check":
            return checks.by_id(self.database, job_id)
        return self.trace(job_id) if kind == "read" else self.validation(job_id)

    def job_request(self, job_id: str) -> Task | None:
        """What a job was asked to do; None for an unknown id."""
        with self.database.read() as connection:
            request: Task | None = connection.scalar(sa.select(jobs.c.request).where(jobs.c.id == job_id))
            return request

    def job_state(self, job_id: str) -> State | None:
        """Only the state: what a waiting client asks again and again."""
        with self.database.read() as connection:
            state: State | None = connection.scalar(sa.select(jobs.c.state).where(jobs.c.id == job_id))
            return state

    def events(self, job_id: str, after: int = 0) -> list[JobEvent]:
        """The job's stream after number `after`."""
        with self.database.read() as connection:
            return job_table.events_after(connection, job_id, after)

    def put_parts(self, *, job_id: str, owner: str, attempt: int, trace: TraceBody) -> bool:
        """Show what is known of a trace while it is still read; False when the job is no longer ours.

        trace: with `advice_inputs`, one for each of its regions, where these are known; they are kept with the regions.
        """
        with self.database.write() as connection:
            if not job_table.is_held(connection, job_id=job_id, owner=owner, attempt=attempt):
                return False
            self._put_trace(connection, job_id, trace)
        return True

    def put_regions(self, *, job_id: str, owner: str, attempt: int, regions: Mapping[int, RegionBody]) -> bool:
        """Advice on regions that `put_parts` has shown, by position; False when the job is no longer ours."""
        with self.database.write() as connection:
            if not job_table.is_held(connection, job_id=job_id, owner=owner, attempt=attempt):
                return False
            for position, region in regions.items():
                update_region(connection, region, trace_id=job_id, position=position)
        return True

    def finish_read(self, *, job_id: str, owner: str, attempt: int, trace: TraceBody) -> bool:
        """Store what was read and end its job, both or neither; False when the job is no longer ours.

        trace: as in `put_parts`. Regions that were shown before keep their ids: somebody may look at one, or have asked
        for its validation.
        """
        with self.database.write() as connection:
            if not job_table.finish(connection, job_id=job_id, owner=owner, attempt=attempt, state="done"):
                return False
            self._put_trace(connection, job_id, trace)
        return True

    def _put_trace(self, connection: sa.Connection, trace_id: str, trace: TraceBody) -> None:
        body = finite({k: v for k, v in trace.items() if k in TRACE or k not in TRACE_OWN})
        connection.execute(
            traces.update().where(traces.c.id == trace_id).values(body=body, group_name=body.get("group"))
        )
        new = trace.get("regions", [])
        inputs: Sequence[StoredInputs | None] = trace.get("advice_inputs") or [None] * len(new)
        columns = (regions.c.position, regions.c.name, regions.c.body)
        wanted = sa.select(*columns).where(regions.c.trace_id == trace_id).order_by(regions.c.position)
        shown = connection.execute(wanted).all()
        if [(row.position, row.name) for row in shown] == [(i, region["name"]) for i, region in enumerate(new)]:
            for row, region, own in zip(shown, new, inputs, strict=True):
                if row.body.get("advice") is None:  # what has its advice may have been asked about since
                    update_region(connection, region, trace_id=trace_id, position=row.position, inputs=own)
            return
        connection.execute(regions.delete().where(regions.c.trace_id == trace_id))
        for position, (region, own) in enumerate(zip(new, inputs, strict=True)):
            insert_region(connection, region, trace_id=trace_id, position=position, inputs=own)

    def finish_validation(self, *, job_id: str, owner: str, attempt: int, validation: ValidationBody) -> bool:
        """Store what was measured and end its job, both or neither; False when the job is no longer ours."""
        with self.database.write() as connection:
            if not job_table.finish(connection, job_id=job_id, owner=owner, attempt=attempt, state="done"):
                return False
            connection.execute(
                validations.update()
                .where(validations.c.id == job_id)
                .values(body=finite(validation), outcome=validation.get("outcome"), device=validation.get("device"))
            )
        return True


def _id_of(row: sa.RowMapping) -> str:
    row_id: str = row["id"]
    return row_id
