"""One attempt at one job: its lease, its progress, its end. A database that fails for a while costs it nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypedDict, cast

import sqlalchemy as sa

from app.jobs.check_history import runs_of
from app.jobs.exit_reason import Ended, ExitReason, failure
from app.jobs.local_runner import Message, Verdict
from app.objects.check import Report
from app.objects.common import Error, Progress
from app.objects.job import ClaimedJob, JobKind
from app.objects.landscape import LandscapeBody
from app.objects.record import ValidationBody
from app.objects.region import RegionBody
from app.objects.trace import TraceBody
from app.storage import checks, job_table, landscapes
from app.storage.store import Store, finite

log = logging.getLogger("tritonworthy.queue")

EVENTS_PER_S = 10.0
CANCEL_POLL_S = 1.0
"""How often a cancel that another server was asked for is looked for; one of this server is seen at the next tick."""

PARTS_EVERY_S = 0.25
"""Between two transactions that store what a reading trace has new."""

RETRY_S = 1.0
"""Until a heartbeat that could not be written is tried again."""

STORE_PAUSE_S = (0.1, 5.0)
"""Shortest and longest time between two attempts to store a result."""


class AttemptKey(TypedDict):
    """Which attempt of which server at which job."""

    job_id: str
    owner: str
    attempt: int


class Attempt:
    """From the claim to the end. `trouble` is told what is wrong with the database, "" when it works again."""

    def __init__(
        self,
        store: Store,
        job: ClaimedJob,
        *,
        owner: str,
        lease_s: float,
        stopping: threading.Event,
        cancels: set[str],
        trouble: Callable[[str], None],
    ) -> None:
        self.store = store
        self.job = job
        self.key: AttemptKey = {"job_id": job["id"], "owner": owner, "attempt": job["attempt"]}
        self.lease_s = lease_s
        self.stopping = stopping
        self.cancels = cancels
        self.trouble = trouble
        self.renewed = time.monotonic()  # the claim is a renewal
        self.next_beat = 0.0
        self.next_look = 0.0
        self.next_event = 0.0
        self.pending: Progress | None = None
        self.parts: dict[int, RegionBody] = {}  # regions that are advised on and not stored yet
        self.next_parts = 0.0
        self.verdict: Verdict = "go"

    def progress(self, said: Message) -> None:
        """What the child says of itself, or a part of its result."""
        if self.verdict != "go":
            return  # what a child says of its end after it was told to stop is no progress
        if said.get("type") == "part":
            self._take_part(said)
            return
        fraction = said.get("fraction")
        number = isinstance(fraction, int | float) and not isinstance(fraction, bool) and 0 <= fraction <= 1
        self.pending = job_table.progress(
            str(said.get("phase") or "")[:64],
            str(said.get("message") or "")[:2000],
            candidate=str(said.get("candidate") or "")[:200],
            fraction=float(fraction) if number and fraction is not None else None,
        )

    def _take_part(self, said: Message) -> None:
        """Parts of a trace are shown as they come. One that cannot be stored is no loss: the whole comes at the end."""
        if self.job["kind"] != "read":
            return
        if isinstance(said.get("trace"), dict):
            self.parts = {}
            self._keep_part(lambda: self.store.put_parts(**self.key, trace=said["trace"]))
        elif isinstance(said.get("position"), int) and isinstance(said.get("region"), dict):
            self.parts[said["position"]] = said["region"]

    def _store_parts(self) -> None:
        if self.parts:
            parts, self.parts = self.parts, {}
            self._keep_part(lambda: self.store.put_regions(**self.key, regions=parts))

    def _keep_part(self, step: Callable[[], bool]) -> None:
        try:
            step()
        except sa.exc.DBAPIError as error:
            log.warning("a part of job %s was not stored: %s", self.job["id"], error.orig)
        except Exception:
            log.exception("a part of job %s makes no sense", self.job["id"])

    def tick(self) -> Verdict:
        """Keep the lease, write progress, look for a cancel: whether to go on."""
        if self.stopping.is_set():
            return "drop"
        if self.job["id"] in self.cancels:
            self._cancel()
        try:
            self._keep_up(time.monotonic())
        except sa.exc.DBAPIError as error:
            self.trouble(_words(error))
            self.next_beat = time.monotonic() + RETRY_S
            if self._fenced():
                log.error("the lease of job %s could not be renewed in time: it is given up here", self.job["id"])
                self.verdict = "drop"
        return self.verdict

    def _keep_up(self, clock: float) -> None:
        if self.parts and clock >= self.next_parts:
            self.next_parts = clock + PARTS_EVERY_S
            self._store_parts()
        if self.pending is not None and clock >= self.next_event:
            self.next_event = clock + 1 / EVENTS_PER_S
            self._write_progress()
        if clock >= self.next_beat:
            with self.store.database.write() as connection:
                answer = job_table.heartbeat(connection, **self.key, lease_s=self.lease_s)
            self.renewed = clock
            self.next_beat = clock + self.lease_s / 3
            self.next_look = clock + CANCEL_POLL_S
            self.trouble("")
            if answer == "lost":
                self.verdict = "drop"
            elif answer == "cancel":
                self._cancel()
        elif clock >= self.next_look:
            self.next_look = clock + CANCEL_POLL_S
            with self.store.database.read() as connection:
                if job_table.cancel_is_asked(connection, self.job["id"]):
                    self._cancel()

    def _fenced(self) -> bool:
        """Whether another server may have taken the job by now.

        Not with SQLite: all servers share its one file, and while we cannot write to it nobody can take anything.
        """
        if self.store.database.engine.dialect.name == "sqlite":
            return False
        return time.monotonic() - self.renewed > self.lease_s

    def _cancel(self) -> None:
        if self.verdict == "go":
            self.verdict = "cancel"
            self.pending = job_table.progress("cancelling")

    def _write_progress(self) -> None:
        with self.store.database.write() as connection:
            if self.pending is not None and job_table.is_held(connection, **self.key):
                job_table.add_event(connection, self.job["id"], "progress", self.pending)
        self.pending = None

    def again(self, ended: Ended, why: str) -> bool:
        """Have the job done once more; False where that was tried: it is given up, with the error of this end."""
        told: Error = ended.error or {"code": ended.reason.value, "message": ""}
        error: Error = {**told, "message": f"{told['message']} It was tried {job_table.MAX_ATTEMPTS} times."}

        def give_back() -> bool:
            with self.store.database.write() as connection:
                again, _ = job_table.take_back(connection, job_table.held_by_attempt(**self.key), why=why, error=error)
            return bool(again)

        return bool(self._persist(give_back))

    def finish(self, kind: JobKind, ended: Ended, check: Callable[[Any], str]) -> ExitReason | None:
        """Record the end, once; how the job ended, None where it is no longer ours or the server stops."""
        if ended.reason is ExitReason.OK:
            wrong = check(ended.value)
            if wrong:
                log.error("job %s answered nonsense: %s", self.job["id"], wrong)
                ended = failure(ExitReason.BAD_OUTPUT, f"({wrong})")
        try:
            stored = self._persist(lambda: self._store(kind, ended))
        except Exception:
            log.exception("the result of job %s cannot be stored", self.job["id"])
            ended = failure(ExitReason.BAD_OUTPUT, "(it cannot be stored)")
            stored = self._persist(lambda: self._store(kind, ended))
        return ended.reason if stored else None

    def _persist(self, step: Callable[[], bool]) -> bool | None:
        """Do it until the database takes it: a full disk or a locked database must not cost what was measured."""
        pause, longest = STORE_PAUSE_S
        while True:
            try:
                done = step()
            except sa.exc.OperationalError as error:
                log.error("%s; trying again", _words(error))
                self.trouble(_words(error))
                if self.stopping.wait(pause):
                    return None
                pause = min(longest, pause * 2)
            else:
                self.trouble("")
                return done

    def _store(self, kind: JobKind, ended: Ended) -> bool:
        if ended.reason is ExitReason.OK:
            if self.pending is not None:
                self._write_progress()
            return self._store_result(kind, ended.value)
        cancelled = ended.reason is ExitReason.CANCELLED
        if cancelled:
            self.pending = job_table.progress("cancelled")
        if self.pending is not None:
            self._write_progress()
        self._store_parts()  # what was said before it failed is worth keeping
        with self.store.database.write() as connection:
            return job_table.finish(
                connection,
                **self.key,
                state="cancelled" if cancelled else "failed",
                error=None if cancelled else ended.error,
            )

    def _store_result(self, kind: JobKind, value: Any) -> bool:
        """value: what the child answered, once it has been checked."""
        if kind == "read":
            return self.store.finish_read(**self.key, trace=cast("TraceBody", value))
        if kind == "landscape":
            landscape = cast("LandscapeBody", finite(value))
            return landscapes.finish(self.store.database, **self.key, landscape=landscape)
        if kind == "check":
            report = cast("Report", finite(value))
            return checks.finish(self.store.database, **self.key, report=report, runs=runs_of(self.job, report))
        return self.store.finish_validation(**self.key, validation=cast("ValidationBody", value))


def _words(error: sa.exc.DBAPIError) -> str:
    """What the database said, without the statement and its values."""
    return f"the database cannot be written: {error.orig}"
