"""The queue: one thread per kind of job leases the oldest waiting one and sees it through, one at a time.

Reading traces (CPU) and measuring (GPU) are lanes of their own: a validation of a minute keeps no upload waiting.
Validations and landscapes take turns by the GPU's own lock (kernels.measure.session).
The database is the source of truth; what is here may die at any moment, and the jobs are taken up again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from starlette.concurrency import run_in_threadpool

from app import checks, landscapes
from app.jobs import ledger
from app.jobs.exits import Ended, ExitReason, failed
from app.jobs.ledger import Json, Kind
from app.jobs.runner import Limits, LocalRunner, Verdict
from app.schema import jobs
from app.store import Store, finite

log = logging.getLogger("tritonworthy.queue")

IDLE_S = 1.0
"""How often a lane looks for jobs that another server process queued; its own wake it at once."""

EVENTS_PER_S = 10.0
SPARE_PAUSE_S = 60.0
"""Until another spare is started where one died."""

Check = Callable[[Any], str]
"""What is wrong with a child's answer, or "" """


class Queue:
    """start() and stop() once. `command` is the child's command line by kind; tests put their own there.

    `context` is asked when a job starts: what its child is told beside the request. `spare` says whether a child of
    that kind is kept waiting for a request; it is asked with the context.
    """

    def __init__(
        self,
        store: Store,
        *,
        command: Callable[[Kind], list[str]],
        limits: dict[Kind, Limits],
        checks: dict[Kind, Check],
        logs: Path,
        lease_s: float,
        cwd: Path | None = None,
        context: Callable[[], Json] = dict,
        spare: Callable[[Kind, Json], bool] = lambda kind, context: False,
    ) -> None:
        self.store = store
        self.runner = LocalRunner()
        self.spare = spare
        self.spare_again: dict[Kind, float] = {}
        self.command = command
        self.limits = limits
        self.checks = checks
        self.logs = logs
        self.lease_s = lease_s
        self.cwd = cwd
        self.context = context
        self.owner = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(8)}"
        self.stopping = threading.Event()
        self.wakeups: dict[Kind, threading.Event] = {kind: threading.Event() for kind in ledger.KINDS}
        self.cancels: set[str] = set()
        self.threads: list[threading.Thread] = []

    def start(self) -> None:
        """Take back what a dead server of this host was doing, then begin."""
        self._take_back(jobs.c.owner.in_(self._dead_owners()))
        for kind in ledger.KINDS:
            thread = threading.Thread(target=self._serve, args=(kind,), name=f"jobs-{kind}", daemon=True)
            thread.start()
            self.threads.append(thread)

    def stop(self) -> None:
        """Kill what runs and give it back to the queue: the next server does it again."""
        self.stopping.set()
        for event in self.wakeups.values():
            event.set()
        for thread in self.threads:
            thread.join(timeout=15)
        self.runner.close()
        with self.store.database.write() as connection:
            connection.execute(
                jobs.update()
                .where(jobs.c.state == "running", jobs.c.owner == self.owner)
                # Not the job's fault: the attempt does not count.
                .values(state="queued", owner=None, attempt=jobs.c.attempt - 1)
            )

    @property
    def alive(self) -> bool:
        return bool(self.threads) and all(thread.is_alive() for thread in self.threads)

    def wake(self, kind: Kind) -> None:
        """A job was queued."""
        self.wakeups[kind].set()

    def cancel(self, job_id: str) -> Json | None:
        """Cancel a waiting or running job; the job as it then is, None for an unknown id."""
        with self.store.database.write() as connection:
            state = ledger.cancel(connection, job_id)
        if state == "running":
            self.cancels.add(job_id)
        checks.forget_files(self.store, job_id)
        return self.store.job(job_id)

    async def wait(self, job_id: str, seconds: float) -> None:
        """Return when the job has ended, or after so many seconds."""
        deadline = time.monotonic() + seconds
        pause = 0.02
        while time.monotonic() < deadline and not self.stopping.is_set():
            state = await run_in_threadpool(self.store.job_state, job_id)
            if state is None or state in ledger.FINAL:
                return
            await asyncio.sleep(pause)
            pause = min(0.25, pause * 1.5)

    def _serve(self, kind: Kind) -> None:
        stuck: int | None = None
        while not self.stopping.is_set():
            self.wakeups[kind].clear()
            try:
                if stuck is not None and Path(f"/proc/{stuck}").exists():
                    log.critical("process %d does not end: no more %s jobs until it does", stuck, kind)
                else:
                    stuck = None
                    # Before the job is claimed: this may wait, and a claimed job has a lease to keep.
                    context = self.context()
                    self._take_back(ledger.lease_over())
                    job = self._claim(kind)
                    if job is not None:
                        stuck = self._do(kind, job, context)
                        continue
                    if self.spare(kind, context):
                        self._keep_spare(kind)
            except Exception:
                # A lane that dies silently stops the product; the error is logged and the job's lease runs out.
                log.exception("the %s lane failed", kind)
            self.wakeups[kind].wait(IDLE_S)

    def _command(self, kind: Kind, spare: bool) -> list[str]:
        return [*self.command(kind), "spare"] if spare else self.command(kind)

    def _keep_spare(self, kind: Kind) -> None:
        """A child for the next job. One that dies while it waits is no reason to start another each second."""
        if time.monotonic() < self.spare_again.get(kind, 0.0):
            return
        try:
            lived = self.runner.keep(self._command(kind, True), logs=self.logs, cwd=self.cwd)
        except OSError as error:
            log.warning("no spare for %s jobs: %s", kind, error)
            lived = False
        if not lived:
            self.spare_again[kind] = time.monotonic() + SPARE_PAUSE_S

    def _claim(self, kind: Kind) -> Json | None:
        with self.store.database.read() as connection:
            waiting = connection.scalar(
                sa.select(jobs.c.id).where(jobs.c.kind == kind, jobs.c.state == "queued").limit(1)
            )
        if waiting is None:
            return None
        with self.store.database.write() as connection:
            return ledger.claim(connection, kind=kind, owner=self.owner, lease_s=self.lease_s)

    def _take_back(self, condition: sa.ColumnElement[bool]) -> None:
        with self.store.database.read() as connection:
            lost = connection.scalar(sa.select(jobs.c.id).where(jobs.c.state == "running", condition).limit(1))
        if lost is None:
            return
        with self.store.database.write() as connection:
            again, given_up = ledger.take_back(connection, condition)
        for job_id in given_up:
            checks.forget_files(self.store, job_id)
        if again or given_up:
            log.warning("jobs of a dead server: %s queued again, %s given up", again, given_up)

    def _dead_owners(self) -> list[str]:
        with self.store.database.read() as connection:
            owners = connection.scalars(sa.select(jobs.c.owner).where(jobs.c.state == "running").distinct()).all()
        return [owner for owner in owners if owner and _is_dead(owner, socket.gethostname(), os.getpid())]

    def _do(self, kind: Kind, job: Json, context: Json) -> int | None:
        """See one job through; the pid of its process if that cannot be killed."""
        run = _Run(self, job)
        kept = self.spare(kind, context)
        ended = self.runner.run(
            self._command(kind, kept),
            {**job["request"], **context},
            limits=self.limits[kind],
            log=self.logs / f"{job['id']}.log",
            on_progress=run.progress,
            tick=run.tick,
            cwd=self.cwd,
        )
        self.cancels.discard(job["id"])
        if self.stopping.is_set() and ended.reason is not ExitReason.OK:
            return ended.stuck_pid
        run.finish(kind, ended)
        checks.forget_files(self.store, job["id"])
        return ended.stuck_pid


class _Run:
    """One attempt at one job: its lease, its progress, its end."""

    def __init__(self, queue: Queue, job: Json) -> None:
        self.queue = queue
        self.job = job
        self.key = {"job_id": job["id"], "owner": queue.owner, "attempt": job["attempt"]}
        self.next_beat = 0.0
        self.next_event = 0.0
        self.pending: Json | None = None
        self.verdict: Verdict = "go"

    def progress(self, said: Json) -> None:
        if self.verdict != "go":
            return  # what a child says of its end after it was told to stop is no progress
        fraction = said.get("fraction")
        number = isinstance(fraction, int | float) and not isinstance(fraction, bool) and 0 <= fraction <= 1
        self.pending = ledger.progress(
            str(said.get("phase") or "")[:64],
            str(said.get("message") or "")[:2000],
            candidate=str(said.get("candidate") or "")[:200],
            fraction=float(fraction) if number and fraction is not None else None,
        )

    def tick(self) -> Verdict:
        if self.queue.stopping.is_set():
            return "drop"
        if self.job["id"] in self.queue.cancels:
            self._cancel()
        clock = time.monotonic()
        if self.pending is not None and clock >= self.next_event:
            self.next_event = clock + 1 / EVENTS_PER_S
            self._write_progress()
        if clock >= self.next_beat:
            self.next_beat = clock + self.queue.lease_s / 3
            with self.queue.store.database.write() as connection:
                answer = ledger.heartbeat(connection, **self.key, lease_s=self.queue.lease_s)
            if answer == "lost":
                self.verdict = "drop"
            elif answer == "cancel":
                self._cancel()
        return self.verdict

    def _cancel(self) -> None:
        if self.verdict == "go":
            self.verdict = "cancel"
            self.pending = ledger.progress("cancelling")

    def _write_progress(self) -> None:
        with self.queue.store.database.write() as connection:
            if self.pending is not None and _held(connection, **self.key):
                ledger.add_event(connection, self.job["id"], "progress", self.pending)
        self.pending = None

    def finish(self, kind: Kind, ended: Ended) -> None:
        self._write_progress()
        store = self.queue.store
        if ended.reason is ExitReason.OK:
            wrong = self.queue.checks[kind](ended.value)
            if wrong:
                log.error("job %s answered nonsense: %s", self.job["id"], wrong)
                ended = failed(ExitReason.BAD_OUTPUT, f"({wrong})")
        if ended.reason is ExitReason.OK and kind == "read":
            store.finish_read(**self.key, trace=ended.value)
            return
        if ended.reason is ExitReason.OK and kind == "landscape":
            landscapes.finish(store, **self.key, landscape=finite(ended.value))
            return
        if ended.reason is ExitReason.OK and kind == "check":
            checks.finish(store, **self.key, report=finite(ended.value))
            return
        if ended.reason is ExitReason.OK:
            store.finish_validation(**self.key, validation=ended.value)
            return
        state = "cancelled" if ended.reason is ExitReason.CANCELLED else "failed"
        if state == "cancelled":
            self.pending = ledger.progress("cancelled")
            self._write_progress()
        with store.database.write() as connection:
            ledger.finish(connection, **self.key, state=state, error=None if state == "cancelled" else ended.error)


def _held(connection: sa.Connection, *, job_id: str, owner: str, attempt: int) -> bool:
    row = connection.execute(sa.select(jobs.c.owner, jobs.c.attempt).where(jobs.c.id == job_id)).first()
    return row is not None and tuple(row) == (owner, attempt)


def _is_dead(owner: str, host: str, pid: int) -> bool:
    """Whether a server of this host is known to be gone: no need to wait for its lease then."""
    their_host, _, rest = owner.partition("/")
    their_pid = rest.partition("/")[0]
    if their_host != host or not their_pid.isdigit():
        return False
    # The same pid as ours is an earlier life of it: containers begin at 1 each time.
    return int(their_pid) == pid or not Path(f"/proc/{their_pid}").exists()
