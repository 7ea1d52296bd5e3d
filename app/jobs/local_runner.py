"""LocalRunner: one job in one child process, which may hang, crash, lie or fork without harming the server.

The child reads its request as one line on stdin and answers with JSON lines (profiler.child.lines):

    {"type": "progress", ...} and {"type": "part", ...}          any number
    {"type": "result", "value": ...}  or  {"type": "error", "code": ..., "message": ..., "remedy": ...}   the last
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from app.jobs import worker_identity
from app.jobs.exit_reason import Ended, ExitReason, failure
from app.objects.common import Error
from profiler.child.limits import Limits, impose, over_cpu
from profiler.child.lines import TICK_S, BrokenChildError, LineChild
from profiler.child.process import terminate
from profiler.child.template import START_S, NoTemplateError, Template

__all__ = ["Limits", "LocalRunner", "Message", "Verdict"]

CANCEL_GRACE_S = 1.5
"""Who cancels waits for it: a child that does not react to SIGTERM by then is killed with all that it started."""

OUTSIDE = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that no fault of a process raises: somebody ends it, such as a host that shuts down."""

Verdict = Literal["go", "cancel", "drop"]

Message: TypeAlias = dict[str, Any]
"""What a child said, before anybody has looked at it: JSON from outside."""

Place = tuple[tuple[str, ...], Path | None]
"""A command and its folder: what a spare was started with."""


class LocalRunner:
    """Runs commands on this machine. Thread-safe.

    A spare is a child that was started before there is a request for it, and does what it can without: `keep` starts
    one, `run` of the same command takes it. It serves one request, as any child does. label: what the marks of all
    children begin with, so that whoever comes after a killed server finds them (`worker_identity.end_children`).
    templates: what is forked from by the first word of a command, such as profiler.child.process.FORK.
    """

    def __init__(self, label: str = "", templates: Mapping[str, Template] | None = None) -> None:
        self.label = label
        self.templates = dict(templates or {})
        self.spares: dict[Place, _Child] = {}
        self.lock = threading.Lock()
        self.closed = False

    def keep(self, command: Sequence[str], *, logs: Path, cwd: Path | None = None) -> bool:
        """Start a spare for that command where there is none; False where the one that was there had died.

        OSError where none can be started.
        """
        with self.lock:
            place: Place = (tuple(command), cwd)
            spare = self.spares.get(place)
            if self.closed or (spare is not None and spare.process.poll() is None):
                return True
            if spare is not None:
                del self.spares[place]
                spare.drop()
                return False
            self.spares[place] = _Child(command, logs / f"spare-{secrets.token_hex(8)}.log", cwd, self)
            return True

    def _spare(self, command: Sequence[str], cwd: Path | None) -> _Child | None:
        with self.lock:
            spare = self.spares.pop((tuple(command), cwd), None)
        if spare is None or spare.process.poll() is None:
            return spare
        spare.drop()
        return None

    def lanes(self, kind: str) -> int:
        """One job of a kind at a time: more would measure each other."""
        return 1

    def full(self) -> frozenset[str]:
        """Nothing is known of kinds of GPU here: every job may be tried."""
        return frozenset()

    def close(self) -> None:
        """End the spares; no more are kept."""
        with self.lock:
            self.closed = True
        self.forget()

    def forget(self) -> None:
        """End the spares: what they made ready is not to be used any more."""
        with self.lock:
            spares = list(self.spares.values())
            self.spares.clear()
        for spare in spares:
            spare.drop()

    def run(
        self,
        command: Sequence[str],
        request: Mapping[str, object],
        *,
        limits: Limits,
        log: Path,
        on_progress: Callable[[Message], None] = lambda _: None,
        tick: Callable[[], Verdict] = lambda: "go",
        cwd: Path | None = None,
    ) -> Ended:
        """Run to the end. "{fd}" in the command becomes the number of the descriptor to answer on.

        tick is called about every 50 ms and decides whether to go on; "cancel" asks the child to end (SIGTERM, and
        SIGKILL after CANCEL_GRACE_S or the shorter grace), "drop" kills it at once.
        """
        if not self._wait_for_template(command, tick):
            return failure(ExitReason.CANCELLED)
        child = self._spare(command, cwd) or _Child(command, log, cwd, self)
        return child.watch(request, limits, log, on_progress, tick)

    def _wait_for_template(self, command: Sequence[str], tick: Callable[[], Verdict]) -> bool:
        """Whether to go on, once there is a template where the command needs one: a lease is to be kept meanwhile.

        Raises NoTemplateError.
        """
        template = self.templates.get(command[0])
        if template is None:
            return True
        template.start()
        deadline = time.monotonic() + START_S
        while not template.wait_ready(TICK_S):
            if template.stopped or time.monotonic() > deadline:
                raise NoTemplateError(
                    "the server stops" if template.stopped else "the processes that work did not start in time"
                )
            if tick() != "go":
                return False
        return True


class _Child:
    """A process that waits for its request on stdin."""

    def __init__(self, command: Sequence[str], log: Path, cwd: Path | None, runner: LocalRunner) -> None:
        mark = f"{runner.label}/{secrets.token_hex(16)}"
        self.last: Message | None = None
        self.broken = ""
        self.line = LineChild(
            command,
            log=log,
            cwd=cwd,
            env=clean_environment(),
            environment={worker_identity.MARK: mark},
            template=runner.templates.get(command[0]),
            sweep=lambda: worker_identity.kill(worker_identity.find_marked(mark)),
        )
        self.path = log

    @property
    def process(self) -> Any:
        """The process, for tests and for `keep`."""
        return self.line.process

    def watch(
        self,
        request: Mapping[str, object],
        limits: Limits,
        log: Path,
        on_progress: Callable[[Message], None],
        tick: Callable[[], Verdict],
    ) -> Ended:
        """Give it the request and see it to its end."""
        stopped: ExitReason | None = None
        stuck: int | None = None
        kill_at = float("inf")
        deadline = time.monotonic() + limits.timeout_s
        line = self.line
        try:
            line.move_log(log)
            impose(line.pid, limits)  # before the request is sent, so before the child can use any of it
            line.send(request)
            while line.poll() is None:
                self._hear(line.exchange, on_progress)
                verdict = tick()
                late = time.monotonic() > deadline
                if verdict == "drop":
                    stopped = ExitReason.CANCELLED
                    break
                if self.broken:
                    stopped = ExitReason.BAD_OUTPUT
                    break
                if stopped is None and (late or verdict == "cancel"):
                    stopped = ExitReason.TIMEOUT if late else ExitReason.CANCELLED
                    kill_at = time.monotonic() + (limits.grace_s if late else min(limits.grace_s, CANCEL_GRACE_S))
                    terminate(line.process)
                if time.monotonic() > kill_at:
                    break
            if not line.end():
                stuck = line.pid
            self._hear(line.rest, on_progress)
        finally:
            line.close()
        return self._judge(stopped, stuck)

    def drop(self) -> None:
        """End it without a request; nothing of it is left."""
        self.line.close()
        self.path.unlink(missing_ok=True)

    def _hear(self, listen: Callable[[], list[Any]], on_progress: Callable[[Message], None]) -> None:
        try:
            said = listen()
        except BrokenChildError as fault:
            self.broken = str(fault)
            return
        for message in said:
            kind = message.get("type") if isinstance(message, dict) else None
            if kind in ("progress", "part"):
                on_progress(message)
            elif kind in ("result", "error") and self.last is None:
                self.last = message
            else:
                self.broken = "It answered twice, or in a way unknown."
                return

    def _judge(self, stopped: ExitReason | None, stuck: int | None) -> Ended:
        if stuck is not None:
            return failure(
                stopped or ExitReason.FAULT, "Its process does not end; the device may hang.", stuck_pid=stuck
            )
        if self.broken:
            return failure(ExitReason.BAD_OUTPUT, self.broken)
        if stopped is not None:
            return failure(stopped)
        status = self.line.poll()
        assert status is not None  # else it is stuck
        if self.last is not None and self.last["type"] == "error":
            return _child_error(self.last)
        if status == 0 and self.last is not None and self.last.get("stopped"):
            return failure(ExitReason.LOST, "(signal SIGTERM)", again=True)
        if status == 0 and self.last is not None:
            return Ended(ExitReason.OK, self.last.get("value"))
        if over_cpu(status):
            return failure(ExitReason.TIMEOUT, "(it used up its processor time)")
        if status == -signal.SIGKILL:
            # We did not send it: the kernel's out-of-memory killer is who does.
            return failure(ExitReason.OUT_OF_MEMORY, "(it was killed by the system)", again=True)
        if -status in OUTSIDE:
            return failure(ExitReason.LOST, f"(signal {_signal_name(-status)})", again=True)
        if status < 0:
            return failure(ExitReason.FAULT, f"(signal {_signal_name(-status)})")
        if status == 0:
            return failure(ExitReason.BAD_OUTPUT, "It ended without an answer.")
        return failure(ExitReason.FAULT, f"(exit status {status})")


def _child_error(said: Message) -> Ended:
    """The child's own account of an error, as far as it is one."""
    if said.get("code") == ExitReason.OUT_OF_MEMORY.value:
        return failure(ExitReason.OUT_OF_MEMORY)
    code, message, remedy = (str(said.get(key) or "")[:4000] for key in ("code", "message", "remedy"))
    if not code or not message:
        return failure(ExitReason.BAD_OUTPUT, "Its error says nothing.")
    place = {
        k: said[k] for k in ("line", "column", "end_column", "hint", "shown") if isinstance(said.get(k), int | str)
    }
    error = {"code": code, "message": message, "remedy": remedy, **place}
    return Ended(ExitReason.ERROR, None, cast("Error", error))


PASSED_ON = frozenset({"TRITONWORTHY_TUNING_DIR", "TRITONWORTHY_KERNEL_DIR"})
"""Of our variables those that a child reads."""


def clean_environment() -> dict[str, str]:
    """Ours without our settings: the tokens and the database's password are no business of a child."""
    return {k: v for k, v in os.environ.items() if k in PASSED_ON or not k.startswith(("TRITONWORTHY_", "RAY_"))}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
