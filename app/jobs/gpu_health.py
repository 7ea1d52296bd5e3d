"""Whether the GPU can be trusted with a job. While it is suspect, jobs that measure wait, and the server says so.

What a job does may point at the GPU: its process crashed, hung, does not end, or found no GPU where there was one. Then
a short child asks the GPU to compute something. Where it cannot, the GPU is suspect until a later child says otherwise.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil

from app.jobs.exit_reason import Ended, ExitReason
from app.jobs.local_runner import Limits, Verdict
from app.jobs.stats import GPU_KINDS
from app.objects.job import JobKind
from app.objects.task import Task
from app.storage.database import now

log = logging.getLogger("tritonworthy.gpu")

LIMITS = Limits(timeout_s=60.0, grace_s=2.0)
"""Of the child that asks: its imports take seconds on a busy host."""

AGAIN_S = 15.0
"""Between two questions to a suspect GPU."""

Ask = Callable[[Mapping[str, object], Callable[[], Verdict]], Ended]
"""Runs the child that asks: with its request, until the tick says otherwise."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What is wrong with the GPU, and since when (ISO 8601, UTC)."""

    reason: str
    since: str


class Gpu:
    """One GPU of this host. expected: its name as it was found at the start; None: there is none to suspect.

    Thread-safe. `again_s` is the least time between two questions to a suspect GPU.
    """

    def __init__(self, ask: Ask, expected: Callable[[], str | None], *, again_s: float = AGAIN_S) -> None:
        self.ask = ask
        self.expected = expected
        self.again_s = again_s
        self.suspicion: Suspicion | None = None
        self.stuck: int | None = None
        self.next_ask = 0.0
        self.one = threading.Lock()

    def points_at(self, kind: JobKind, request: Task, ended: Ended) -> bool:
        """Whether the end of a job gives a reason to ask the GPU."""
        if self.expected() is None or request.get("device") == "cpu" or kind not in {*GPU_KINDS, "check"}:
            return False
        if ended.stuck_pid is not None or ended.reason in (ExitReason.FAULT, ExitReason.TIMEOUT):
            return True
        value = ended.value if isinstance(ended.value, dict) else {}
        # Where there is a GPU, a job that measured nothing is the exception.
        return kind in GPU_KINDS and ended.reason is ExitReason.OK and value.get("outcome") == "unmeasured"

    def examine(self, ended: Ended, tick: Callable[[], Verdict]) -> str:
        """Ask the GPU after such an end: what is wrong with it, "" for nothing. The tick keeps the job's lease."""
        if ended.stuck_pid is not None:
            self.stuck = ended.stuck_pid
            return self._suspect(f"process {self.stuck} hangs on it and cannot be ended")
        return self._ask(tick)

    def look_again(self, tick: Callable[[], Verdict]) -> None:
        """Ask a suspect GPU once more, now and then."""
        if self.suspicion is None or time.monotonic() < self.next_ask:
            return
        if self.stuck is not None and psutil.pid_exists(self.stuck):
            return
        self.stuck = None
        self._ask(tick)

    def _ask(self, tick: Callable[[], Verdict]) -> str:
        with self.one:
            ended = self.ask({"expected": self.expected()}, tick)
            self.next_ask = time.monotonic() + self.again_s
            if ended.reason is ExitReason.CANCELLED:  # nobody waits for the answer any more
                return ""
            if ended.reason is not ExitReason.OK:
                self.stuck = ended.stuck_pid
                return self._suspect((ended.error["message"] if ended.error else "") or ended.reason)
            if self.suspicion is not None:
                log.warning("the GPU is healthy again; it was suspect since %s", self.suspicion.since)
            self.suspicion = None
            return ""

    def _suspect(self, reason: str) -> str:
        since = self.suspicion.since if self.suspicion else now()
        if self.suspicion is None:
            log.critical("the GPU is suspect, jobs that measure wait: %s", reason)
        self.suspicion = Suspicion(reason, since)
        return reason
