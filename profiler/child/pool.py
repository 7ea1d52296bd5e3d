"""Pool: a few children that stand ready and answer one request each at a time, within limits. Torch-free.

A child that exceeds its limits, dies or stops making sense is killed, its caller learns which, and another is forked;
every child is replaced after a bounded number of requests. One that another process killed is no fault of the request,
which another child is asked, once. Who asks waits for a free child in turn: so many at most, so long at most.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from profiler.child.limits import Limits, impose, over_cpu, private_bytes
from profiler.child.lines import BrokenChildError, LineChild
from profiler.child.process import FORK
from profiler.child.template import Template

log = logging.getLogger("tritonworthy.pool")

Json = dict[str, Any]

ASKS_PER_CHILD = 64
"""Requests after which a child is replaced: torch keeps something of every graph."""
STUCK_S = 5.0
"""A child that is this much over its limit and still there could not be killed, or nobody watches it."""
PAUSE_S = 1.0
"""Until a child is forked again where one could not be."""
LOOK_S = 1.0
"""How often idle children are checked."""
HELLO_S = 60.0
KEPT_SHARE = 0.25
"""Of the memory that one request may take: a child that keeps more than this of those before is replaced."""
CLIENT_SHARE = 0.5
"""Of the places to wait that one client may have."""

OUTSIDE = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP})
"""Ends that no request brings about: the system is short of memory, the template died, an administrator ended it."""


class Failure(StrEnum):
    """Why a request has no answer."""

    QUEUE_FULL = "queue-full"  # too many wait already
    WAITED = "waited"  # no child became free in time
    TIMEOUT = "timeout"  # wall time
    CPU = "cpu"  # processor time
    MEMORY = "memory"
    KILLED = "killed"  # by another process
    CRASHED = "crashed"
    STOPPED = "stopped"  # the server stops


class FailedError(Exception):
    """No answer, and why. detail: for the log."""

    def __init__(self, failure: Failure, detail: str = "") -> None:
        super().__init__(f"{failure}: {detail}" if detail else str(failure))
        self.failure = failure
        self.detail = detail


@dataclass(slots=True, eq=False)
class _Member:
    child: LineChild
    asks: int = 0
    holder: str | None = None
    deadline: float | None = None
    recent: str = ""
    began_bytes: int = 0  # private memory before its first request


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    who: str | None


class Pool:
    """start() and stop() once; `ask` from any thread.

    arguments: given to a fork of the template; "{fd}" stands for the descriptor to answer on. hello: the first line
    that a child is sent, which it answers before any request. size: children; waiting_cap: requests that may wait.
    """

    def __init__(
        self,
        template: Template,
        arguments: Sequence[str],
        *,
        size: int,
        limits: Limits,
        waiting_cap: int,
        wait_s: float,
        hello: Callable[[], Json] = dict,
        logs: Path | None = None,
        environment: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self.template = template
        self.arguments = list(arguments)
        self.size = size
        self.limits = limits
        self.waiting_cap = waiting_cap
        self.wait_s = wait_s
        self.hello = hello
        self.logs = logs
        self.environment = environment
        self.changed = threading.Condition()
        self.idle: list[_Member] = []
        self.busy: list[_Member] = []
        self.waiting: list[_Waiter] = []  # in turn
        self._stop = threading.Event()
        self.forks = 0
        self.seen_ready = time.monotonic()
        self.ended: dict[Failure, int] = {}
        self.keeper: threading.Thread | None = None
        self.when_ready: Callable[[], object] = lambda: None

    def start(self) -> None:
        """Begin to fork the children; returns at once."""
        self.template.start()
        with self.changed:
            if self.keeper is None and not self.stopped:
                self.keeper = threading.Thread(target=self._keep, name="pool", daemon=True)
                self.keeper.start()

    def stop(self) -> None:
        """Kill the children; requests that wait for an answer fail with STOPPED."""
        with self.changed:
            self._stop.set()
            self.changed.notify_all()
            members = [*self.idle, *self.busy]
            idle, self.idle = self.idle, []
        for member in members:
            with suppress(OSError):
                member.child.end()
        for member in idle:
            member.child.close()
        if self.keeper is not None:
            self.keeper.join(LOOK_S)

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def ready(self) -> bool:
        """Whether a child has answered the hello and has not ended."""
        with self.changed:
            there = any(m.child.poll() is None for m in (*self.idle, *self.busy))
            if there:
                self.seen_ready = time.monotonic()
            return there

    @property
    def missing_s(self) -> float:
        """For how long there has been no child, as far as anybody looked; 0 where there is one."""
        return 0.0 if self.ready else time.monotonic() - self.seen_ready

    def stuck(self) -> int:
        """Children that are well over their limit and still there."""
        now = time.monotonic()
        with self.changed:
            return sum(m.deadline is not None and now > m.deadline + STUCK_S for m in self.busy)

    def ask(self, request: Json, *, who: str | None = None, prefer: str = "", limits: Limits | None = None) -> Any:
        """The child's answer. Raises FailedError where there is none.

        who: a client; one of them never has the last child, unless it is the only one, nor more than a share of the
        places to wait. None: no client. prefer: of the free children the one that had a request of that key
        last, where there is one.
        """
        limits = limits or self.limits
        try:
            try:
                return self._ask(request, who, prefer, limits)
            except FailedError as failed:
                if failed.failure is not Failure.KILLED:
                    raise
                log.warning("a child was killed; another is asked: %s", failed)
                return self._ask(request, who, prefer, limits)
        except FailedError as failed:
            with self.changed:
                self.ended[failed.failure] = self.ended.get(failed.failure, 0) + 1
            if failed.failure is not Failure.STOPPED:
                log.warning("a request was given up: %s", failed)
            raise

    def _ask(self, request: Json, who: str | None, prefer: str, limits: Limits) -> Any:
        member = self._take(who, prefer)
        keep = False
        try:
            answer = self._converse(member, request, limits)
            keep = not (isinstance(answer, dict) and answer.get("retire"))
        finally:
            self._give_back(member, prefer, keep)
        return answer

    # --- taking turns

    def _take(self, who: str | None, prefer: str) -> _Member:
        self.start()  # where it was not started yet
        deadline = time.monotonic() + self.wait_s
        me = _Waiter(who)
        with self.changed:
            waiting_of_client = sum(w.who == who for w in self.waiting) if who is not None else 0
            if len(self.waiting) >= self.waiting_cap or waiting_of_client >= max(1, self.waiting_cap * CLIENT_SHARE):
                raise FailedError(Failure.QUEUE_FULL, f"{len(self.waiting)} wait already")
            self.waiting.append(me)
            try:
                while True:
                    if self.stopped:
                        raise FailedError(Failure.STOPPED)
                    member = self._free(me, prefer)
                    if member is not None:
                        member.holder = who
                        self.idle.remove(member)
                        self.busy.append(member)
                        return member
                    left_s = deadline - time.monotonic()
                    if left_s <= 0:
                        raise FailedError(Failure.WAITED, f"{self.wait_s:g} s")
                    self.changed.wait(left_s)
            finally:
                self.waiting.remove(me)
                self.changed.notify_all()  # it may be the turn of who came later

    def _free(self, me: _Waiter, prefer: str) -> _Member | None:
        """The child for the first who waits and may have one, where that is who asks."""
        if next((w for w in self.waiting if self._may(w)), None) is not me:
            return None
        alive = [m for m in self.idle if m.child.poll() is None]  # the others are the keeper's
        return next((m for m in alive if m.recent == prefer), next(iter(alive), None))

    def _may(self, waiter: _Waiter) -> bool:
        """Whether the last child would be left to others."""
        if waiter.who is None or self.size == 1:
            return True
        return sum(m.holder == waiter.who for m in self.busy) < self.size - 1

    def _give_back(self, member: _Member, prefer: str, keep: bool) -> None:
        member.asks += 1
        again = keep and member.asks < ASKS_PER_CHILD and self._is_fit(member) and not self.stopped
        try:
            if not again:
                member.child.close()
        finally:
            self._let_go(member, prefer, again)

    def _let_go(self, member: _Member, prefer: str, again: bool) -> None:
        with self.changed:
            member.holder = None
            if again or not member.child.stuck:  # one that does not end stays among the busy: `stuck` counts it
                self.busy.remove(member)
            if again:
                member.recent, member.deadline = prefer, None
                self.idle.append(member)
            self.changed.notify_all()

    def _is_fit(self, member: _Member) -> bool:
        """Whether it lives, and keeps little of what it was asked."""
        if member.child.poll() is not None:
            return False
        most = (self.limits.memory_bytes or math.inf) * KEPT_SHARE
        return private_bytes(member.child.pid) - member.began_bytes <= most

    # --- one conversation

    def _converse(self, member: _Member, request: Json, limits: Limits) -> Any:
        child = member.child
        deadline = time.monotonic() + limits.timeout_s
        member.deadline = deadline
        impose(child.pid, limits)
        try:
            child.send(request)
            while True:
                messages = child.exchange(max(0.0, min(0.5, deadline - time.monotonic())))
                if not messages and child.poll() is not None:
                    messages = child.rest()
                if len(messages) > 1:
                    raise FailedError(Failure.CRASHED, "it answered more than it was asked")
                if messages:
                    return messages[0]
                if self.stopped:
                    raise FailedError(Failure.STOPPED)
                if (status := child.poll()) is not None:
                    raise self._death_error(status)
                if time.monotonic() >= deadline:
                    raise FailedError(Failure.TIMEOUT, f"{limits.timeout_s:g} s")
        except BrokenChildError as fault:
            raise FailedError(Failure.CRASHED, str(fault)) from None

    def _death_error(self, status: int) -> FailedError:
        if self.stopped:
            return FailedError(Failure.STOPPED)
        if over_cpu(status):
            return FailedError(Failure.CPU)
        if status in OUTSIDE:
            return FailedError(Failure.KILLED, signal.Signals(-status).name)
        return FailedError(Failure.CRASHED, f"exit status {status}")

    # --- keeping

    def _keep(self) -> None:
        """Fork what is missing, as long as the pool is there."""
        announced = False
        while not self._stop.is_set():
            with self.changed:
                for member in [m for m in self.idle if m.child.poll() is not None]:
                    self.idle.remove(member)
                    member.child.close()
                for member in [m for m in self.busy if m.child.stuck and m.child.poll() is not None]:
                    self.busy.remove(member)  # it has ended after all
                missing = self.size - len(self.idle) - len(self.busy)
                if missing <= 0:
                    self.changed.wait(LOOK_S)
                    continue
            if not self.template.wait_ready(LOOK_S / 4):  # not in `fork`: a stop is not to wait for the imports
                continue
            try:
                member = self._fork()
            except Exception as fault:  # of any kind: without this thread there would be no child again
                if not self._stop.is_set():
                    log.warning("no child for the pool: %s: %s", type(fault).__name__, fault)
                    with self.changed:
                        self.changed.wait(PAUSE_S)
                continue
            with self.changed:
                if not self._stop.is_set():
                    self.idle.append(member)
                self.changed.notify_all()
            if self._stop.is_set():
                member.child.close()
            elif not announced:
                announced = True
                self.when_ready()

    def _fork(self) -> _Member:
        self.forks += 1
        name = f"{self.arguments[0]}-{self.forks % (2 * self.size)}.log"
        child = LineChild(
            [FORK, *self.arguments],
            log=self.logs / name if self.logs is not None else None,
            template=self.template,
            environment=self.environment(),
        )
        try:
            member = _Member(child)
            self._converse(member, self.hello(), Limits(HELLO_S, memory_bytes=self.limits.memory_bytes))
            member.began_bytes = private_bytes(child.pid)
        except BaseException:
            child.close()
            raise
        member.deadline = None
        return member
