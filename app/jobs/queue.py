"""The queue: one thread per kind of job leases the oldest waiting one and sees it through, one at a time.

Reading traces (CPU) and measuring (GPU) are lanes of their own: a validation of a minute keeps no upload waiting.
Validations and landscapes take turns by the GPU's own lock (kernels.measure.session). One more thread takes back what
dead servers were doing, and another asks a suspect GPU again.
The database is the source of truth; what is here may die at any moment, and the jobs are taken up again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy as sa
from starlette.concurrency import run_in_threadpool

from app.jobs import gpu_health, worker_identity
from app.jobs.attempt import Attempt
from app.jobs.exit_reason import Ended, ExitReason, failure
from app.jobs.leases import Leases
from app.jobs.local_runner import Limits, LocalRunner, Verdict
from app.jobs.protocol import Runner
from app.jobs.stats import GPU_KINDS, JobStats
from app.logs import JOB
from app.objects.job import ClaimedJob, Job, JobKind
from app.objects.task import Context
from app.storage import checks, job_table
from app.storage.store import Store
from app.storage.tables import jobs, traces
from app.storage.upload_paths import place_files

log = logging.getLogger("tritonworthy.queue")

IDLE_S = 1.0
"""How often a lane looks for jobs that another server process queued; its own wake it at once."""

WATCH_S = 1.0
"""How often dead servers' jobs are looked for."""

BLOCKED_S = 1.0
"""A transaction that had to wait for so long says that others could not write either."""

STOP_S = 15.0
"""For all lanes together to end when the server stops: longer than a process that cannot be killed is waited for."""

EXPIRE_EVERY_S = 5.0
SPARE_PAUSE_S = 60.0
"""Until another spare is started where one died."""

START_PAUSE_S = 5.0
"""Until another process is started where the system had none to give."""

Check = Callable[[Any], str]
"""What is wrong with a child's answer, or "" """


class Queue:
    """start() and stop() once. `command` is the child's command line by kind; tests put their own there.

    `context` is asked when a job starts: what its child is told as well as the request. `spare` says whether a child of
    that kind is kept waiting for a request; it is asked with the context. queue_timeout_s: how long a job may wait.
    expected_gpu: the name of this host's GPU, None without one: `command("health")` asks it where it is doubted.
    """

    def __init__(
        self,
        store: Store,
        *,
        command: Callable[[str], list[str]],
        limits: dict[JobKind, Limits],
        checks: dict[JobKind, Check],
        logs: Path,
        lease_s: float,
        owner: str | None = None,
        cwd: Path | None = None,
        context: Callable[[], Context] = Context,
        spare: Callable[[JobKind, Context], bool] = lambda kind, context: False,
        runner: Runner | None = None,
        queue_timeout_s: float | None = None,
        expected_gpu: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.store = store
        self.owner = owner or worker_identity.owner()
        self.runner: Runner = runner or LocalRunner(self.owner)
        self.queue_timeout_s = queue_timeout_s
        self.spare = spare
        self.spare_again: dict[JobKind, float] = {}
        self.expire_again = 0.0
        self.clocks = (time.time(), time.monotonic())
        self.command = command
        self.limits = limits
        self.checks = checks
        self.logs = logs
        self.lease_s = lease_s
        self.cwd = cwd
        self.context = context
        self.leases = Leases(lease_s)
        self.gpu = gpu_health.Gpu(self._ask_gpu, expected_gpu)
        self.stats = JobStats()
        self.trouble = ""
        self.stuck: dict[JobKind, int] = {}  # lanes whose last process does not end
        self.stopping = threading.Event()
        self.wakeups: dict[JobKind, threading.Event] = {kind: threading.Event() for kind in job_table.KINDS}
        self.active: set[str] = set()
        self.cancels: set[str] = set()
        self.threads: list[threading.Thread] = []
        self.when_read: Callable[[str], object] = lambda trace_id: None  # told of a trace that is ready

    def start(self) -> None:
        """Take back what a dead server of this host was doing, then begin."""
        self._watch_once()
        self._begin("jobs-watch", self._watch)
        self._begin("jobs-gpu", self._watch_gpu)  # the child that asks may take a minute: leases are not to wait for it
        for kind in job_table.KINDS:
            for _ in range(self.runner.lanes(kind)):
                self._begin(f"jobs-{kind}", self._serve, kind)

    def _begin(self, name: str, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        thread.start()
        self.threads.append(thread)

    def begin_stop(self) -> None:
        """Take no more jobs, kill what runs, and let nobody wait for its end any more; returns at once."""
        self.stopping.set()
        for event in self.wakeups.values():
            event.set()

    def stop(self) -> None:
        """Kill what runs and give it back to the queue: the next server does it again."""
        self.begin_stop()
        deadline = time.monotonic() + STOP_S
        for thread in self.threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))
        self.runner.close()
        try:
            with self.store.database.write() as connection:
                job_table.release(connection, self.owner)
        except sa.exc.DBAPIError as error:
            # The next server sees that we are dead.
            log.error("the jobs that ran could not be given back: %s", error.orig)

    @property
    def alive(self) -> bool:
        return bool(self.threads) and all(thread.is_alive() for thread in self.threads)

    def wake(self, kind: JobKind) -> None:
        """A job was queued."""
        self.wakeups[kind].set()

    def cancel(self, job_id: str) -> Job | None:
        """Cancel a waiting or running job; the job as it then is, None for an unknown id."""
        with self.store.database.write() as connection:
            state = job_table.cancel(connection, job_id)
        if state == "running" and job_id in self.active:
            self.cancels.add(job_id)
        checks.forget_files(self.store.database, self.store.uploads, job_id)
        return self.store.job(job_id)

    async def wait(self, job_id: str, seconds: float) -> None:
        """Return when the job has ended, or after so many seconds."""
        deadline = time.monotonic() + seconds
        pause = 0.02
        while time.monotonic() < deadline and not self.stopping.is_set():
            state = await run_in_threadpool(self.store.job_state, job_id)
            if state is None or state in job_table.FINAL:
                return
            await asyncio.sleep(pause)
            pause = min(0.25, pause * 1.5)

    # --- the watch

    def _watch(self) -> None:
        while not self.stopping.wait(WATCH_S):
            self._watch_once()

    def _watch_once(self) -> None:
        try:
            self._take_back_lost()
            self._expire()
        except sa.exc.OperationalError as error:
            log.warning("the database does not answer: %s", error.orig)
        except Exception:
            log.exception("the watch failed")

    def _watch_gpu(self) -> None:
        while not self.stopping.wait(WATCH_S):
            try:
                self.gpu.look_again(self._go_or_drop)
            except Exception:
                log.exception("the GPU could not be asked")

    def _take_back_lost(self) -> None:
        with self.store.database.read() as connection:
            running = job_table.running(connection)
        dead = {lease.owner for lease in running if lease.owner != self.owner and worker_identity.is_dead(lease.owner)}
        lost = {*self.leases.over(running), *(lease for lease in running if lease.owner in dead)}
        if not lost:
            return
        if self._could_not_write():
            self.leases.forget()
            lost = {lease for lease in lost if lease.owner in dead}
            if not lost:
                return
        for owner in {lease.owner for lease in lost} - {self.owner}:
            # Or a job would run twice at once: what is left of the first attempt has the GPU.
            worker_identity.end_children(owner)
        with self.store.database.write() as connection:
            again, given_up = job_table.take_back(connection, job_table.leases_unchanged(lost))
        for job_id in given_up:
            checks.forget_files(self.store.database, self.store.uploads, job_id)
        if again or given_up:
            log.warning("jobs of a dead server: %s queued again, %s given up", again, given_up)
        for kind in job_table.KINDS:
            self.wake(kind)

    def _could_not_write(self) -> bool:
        """Whether the database was locked until now, or still is: then no living server could renew its leases either,
        and none has lost its jobs, still less the processes that run them."""
        began = time.monotonic()
        try:
            with self.store.database.write():
                pass
        except sa.exc.OperationalError:
            return True
        return time.monotonic() - began > BLOCKED_S

    def _expire(self) -> None:
        if self.queue_timeout_s is None or time.monotonic() < self.expire_again:
            return
        self.expire_again = time.monotonic() + EXPIRE_EVERY_S
        with self.store.database.write() as connection:
            late = job_table.expire(connection, self.queue_timeout_s, self._now_s())
        for job_id in late:
            checks.forget_files(self.store.database, self.store.uploads, job_id)

    def _now_s(self) -> float:
        """Unix time, but no later than what has passed since the start: a clock that jumps ahead makes no job old."""
        wall, steady = self.clocks
        return min(time.time(), wall + time.monotonic() - steady)

    # --- a lane

    def _serve(self, kind: JobKind) -> None:
        while not self.stopping.is_set():
            self.wakeups[kind].clear()
            stuck = self.stuck.get(kind)
            try:
                if stuck is not None and psutil.pid_exists(stuck):
                    log.critical("process %d does not end: no more %s jobs until it does", stuck, kind)
                elif kind in GPU_KINDS and self.gpu.suspicion is not None:
                    self.stuck.pop(kind, None)
                else:
                    self.stuck.pop(kind, None)
                    # Before the job is claimed: this may wait, and a claimed job has a lease to keep.
                    context = self._context(kind)
                    job = self._claim(kind)
                    if job is not None:
                        if (pid := self._do(kind, job, context)) is not None:
                            self.stuck[kind] = pid
                        continue
                    if self.spare(kind, context):
                        self._keep_spare(kind)
            except sa.exc.OperationalError as error:
                log.warning("the %s lane waits: the database does not answer: %s", kind, error.orig)
            except Exception:
                # A lane that dies silently stops the product; the error is logged and the job's lease runs out.
                log.exception("the %s lane failed", kind)
            self.wakeups[kind].wait(IDLE_S)

    def _context(self, kind: JobKind) -> Context:
        context = self.context()
        suspicion = self.gpu.suspicion
        host = context.get("host")
        if kind == "check" and suspicion is not None and host:
            # A check says `unmeasured` of what needs a GPU, which never fails a build; it must not hang on a sick one.
            note = f"the GPU is suspect: {suspicion.reason}"
            context = {**context, "host": {**host, "gpu": None, "capability": None, "note": note}}
        return context

    def _command(self, kind: JobKind, spare: bool) -> list[str]:
        return [*self.command(kind), "spare"] if spare else self.command(kind)

    def _keep_spare(self, kind: JobKind) -> None:
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

    def _claim(self, kind: JobKind) -> ClaimedJob | None:
        full = self.runner.full()
        wanted = sa.and_(jobs.c.kind == kind, jobs.c.state == "queued", job_table.can_start(full))
        with self.store.database.read() as connection:
            waiting = connection.scalar(sa.select(jobs.c.id).where(wanted).limit(1))
        if waiting is None:
            return None
        with self.store.database.write() as connection:
            return job_table.claim(connection, kind=kind, owner=self.owner, lease_s=self.lease_s, full=full)

    def _do(self, kind: JobKind, job: ClaimedJob, context: Context) -> int | None:
        """See one job through; the pid of its process if that cannot be killed."""
        JOB.set(job["id"])
        self.active.add(job["id"])
        try:
            with self.stats.running(kind):
                return self._attempt(kind, job, context)
        finally:
            self.active.discard(job["id"])
            self.cancels.discard(job["id"])
            checks.forget_files(self.store.database, self.store.uploads, job["id"])
            JOB.set("")

    def _attempt(self, kind: JobKind, job: ClaimedJob, context: Context) -> int | None:
        log.info("%s job begins, attempt %d", kind, job["attempt"])
        began = time.monotonic()
        attempt = Attempt(
            self.store,
            job,
            owner=self.owner,
            lease_s=self.lease_s,
            stopping=self.stopping,
            cancels=self.cancels,
            trouble=self._tell_trouble,
        )
        try:
            ended = self.runner.run(
                self._command(kind, self.spare(kind, context)),
                {**place_files(job["request"], self.store.uploads), **context},
                limits=self.limits[kind],
                log=self.logs / f"{job['id']}.log",
                on_progress=attempt.progress,
                tick=attempt.tick,
                cwd=self.cwd,
            )
        except OSError as error:
            # No process to be had: not the job's fault, and soon over or for ever.
            ended = failure(ExitReason.LOST, f"(no process could be started: {error})", again=True)
            self.stopping.wait(START_PAUSE_S)
        if self.stopping.is_set() and ended.reason is not ExitReason.OK:
            return ended.stuck_pid
        why = "its process was killed" if ended.again else ""
        if self.gpu.points_at(kind, job["request"], ended) and (wrong := self.gpu.examine(ended, attempt.tick)):
            self.runner.forget()
            if attempt.verdict == "go":
                why = f"the GPU is suspect: {wrong}"
                ended = failure(ExitReason.NO_DEVICE, f"({why})", stuck_pid=ended.stuck_pid, again=True)
        if ended.again and attempt.verdict == "go":
            self._again(kind, attempt, ended, why)
        else:
            self._finish(kind, attempt, ended, time.monotonic() - began)
        return ended.stuck_pid

    def _again(self, kind: JobKind, attempt: Attempt, ended: Ended, why: str) -> None:
        if attempt.again(ended, why):
            self.stats.queued_again(kind)
            log.warning("%s job is done again: %s", kind, why)
        else:
            self.stats.ended(kind, ended.reason)
            log.error("%s job is given up: %s", kind, why)

    def _finish(self, kind: JobKind, attempt: Attempt, ended: Ended, seconds: float) -> None:
        reason = attempt.finish(kind, ended, self.checks[kind])
        if reason is None:
            return
        self.stats.ended(kind, reason)
        log.info("%s job ended: %s, %.1f s", kind, reason, seconds)
        if kind == "read" and reason is ExitReason.OK:
            with self.store.database.read() as connection:
                size = connection.scalar(sa.select(traces.c.bytes).where(traces.c.id == attempt.job["id"]))
            self.stats.read(size or 0, seconds)
            self.when_read(attempt.job["id"])

    # --- its surroundings

    def _tell_trouble(self, what: str) -> None:
        self.trouble = what

    def _go_or_drop(self) -> Verdict:
        return "drop" if self.stopping.is_set() else "go"

    def _ask_gpu(self, request: Mapping[str, object], tick: Callable[[], Verdict]) -> Ended:
        try:
            return self.runner.run(
                self.command("health"),
                request,
                limits=gpu_health.LIMITS,
                log=self.logs / "health.log",
                tick=tick,
                cwd=self.cwd,
            )
        except OSError as error:
            return failure(ExitReason.LOST, f"(no process could be started: {error})")
