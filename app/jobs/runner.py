"""LocalRunner: one job in one child process, which may hang, crash, lie or fork without harming the server.

The child leads a session of its own. It reads its request as one line on stdin and keeps stdin open: end of file
there means that the server is gone. It answers with JSON lines on a descriptor of its own; stdout and stderr are a
log that nobody parses:

    {"type": "progress", ...}                                    any number
    {"type": "result", "value": ...}  or  {"type": "error", "code": ..., "message": ..., "remedy": ...}   the last
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from app.jobs import owners
from app.jobs.exits import Ended, ExitReason, failed

TICK_S = 0.05
LOG_BYTES = 8 * 1024 * 1024
OUTPUT_BYTES = 256 * 1024 * 1024
"""A report of a trace is a few MB; a child that sends more is broken."""

UNKILLABLE_S = 10.0
"""SIGKILL ends a process at once unless it hangs in the kernel (a driver); then it is reported and left."""

CANCEL_GRACE_S = 1.5
"""Who cancels waits for it: a child that does not react to SIGTERM by then is killed with all that it started."""

OUTSIDE = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that no fault of a process raises: somebody ends it, such as a host that shuts down."""

Verdict = Literal["go", "cancel", "drop"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a child may use. memory_bytes is address space (RLIMIT_AS); None = unlimited."""

    timeout_s: float
    grace_s: float = 5.0
    memory_bytes: int | None = None


Started = tuple[tuple[str, ...], Path | None]
"""A command and its folder: what a spare was started with."""


class LocalRunner:
    """Runs commands on this machine. Thread-safe.

    A spare is a child that was started before there is a request for it, and does what it can without: `keep` starts
    one, `run` of the same command takes it. It serves one request, as any child does. label: what the marks of all
    children begin with, so that whoever comes after a killed server finds them (`owners.end_children`).
    """

    def __init__(self, label: str = "") -> None:
        self.label = label
        self.spares: dict[Started, _Child] = {}
        self.lock = threading.Lock()
        self.closed = False

    def keep(self, command: Sequence[str], *, logs: Path, cwd: Path | None = None) -> bool:
        """Start a spare for that command where there is none; False where the one that was there had died.

        OSError where none can be started.
        """
        with self.lock:
            spare = self.spares.get(found := (tuple(command), cwd))
            if self.closed or (spare is not None and spare.process.poll() is None):
                return True
            if spare is not None:
                del self.spares[found]
                spare.drop()
                return False
            self.spares[found] = _Child(command, logs / f"spare-{secrets.token_hex(8)}.log", cwd, self.label)
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
        request: dict[str, Any],
        *,
        limits: Limits,
        log: Path,
        on_progress: Callable[[dict[str, Any]], None] = lambda _: None,
        tick: Callable[[], Verdict] = lambda: "go",
        cwd: Path | None = None,
    ) -> Ended:
        """Run to the end. "{fd}" in the command becomes the number of the descriptor to answer on.

        tick is called about every 50 ms and decides whether to go on; "cancel" asks the child to end (SIGTERM, and
        SIGKILL after CANCEL_GRACE_S or the shorter grace), "drop" kills it at once.
        """
        child = self._spare(command, cwd) or _Child(command, log, cwd, self.label)
        return child.watch(request, limits, log, on_progress, tick)


class _Child:
    """A process that waits for its request on stdin."""

    def __init__(self, command: Sequence[str], log: Path, cwd: Path | None, label: str) -> None:
        self.mark = f"{label}/{secrets.token_hex(16)}"
        self.unsent = b""
        self.received = bytearray()
        self.taken = 0
        self.last: dict[str, Any] | None = None
        self.broken = ""
        self.path = log
        self.log = _open_log(log)
        self.output, theirs = os.pipe()
        try:
            self.process = subprocess.Popen(
                [part.replace("{fd}", str(theirs)) for part in command],
                stdin=subprocess.PIPE,
                stdout=self.log,
                stderr=self.log,
                pass_fds=(theirs,),
                start_new_session=True,
                cwd=cwd,
                env=_environment(self.mark),
            )
        except BaseException:
            os.close(self.output)
            self.log.close()
            raise
        finally:
            os.close(theirs)

    def watch(
        self,
        request: dict[str, Any],
        limits: Limits,
        log: Path,
        on_progress: Callable[[dict[str, Any]], None],
        tick: Callable[[], Verdict],
    ) -> Ended:
        """Give it the request and see it to its end."""
        stopped: ExitReason | None = None
        stuck: int | None = None
        kill_at = float("inf")
        deadline = time.monotonic() + limits.timeout_s
        self.unsent = json.dumps(request).encode() + b"\n"
        try:
            if self.path != log:
                with suppress(OSError):  # a log that could not be opened
                    self.path.replace(log)
            # Before the request is sent, so before the child can use any of it.
            if limits.memory_bytes is not None and hasattr(resource, "prlimit"):
                with suppress(ProcessLookupError):
                    resource.prlimit(self.process.pid, resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
            with selectors.DefaultSelector() as selector:
                self._register(selector)
                while self.process.poll() is None:
                    self._exchange(selector, on_progress)
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
                        grace_s = limits.grace_s
                        kill_at = time.monotonic() + (grace_s if late else min(grace_s, CANCEL_GRACE_S))
                        # To the leader alone: it tidies up after the processes that it started.
                        self.process.terminate()
                    if time.monotonic() > kill_at:
                        break
                stuck = self._end()
                while self._exchange(selector, on_progress):
                    pass
        finally:
            self._leave(end=self.process.returncode is None and stuck is None)
        return self._judge(stopped, stuck)

    def drop(self) -> None:
        """End it without a request; nothing of it is left."""
        self._leave(end=True)
        self.path.unlink(missing_ok=True)

    def _leave(self, end: bool) -> None:
        if end:
            self._end()
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        os.close(self.output)
        self.log.close()

    def _register(self, selector: selectors.BaseSelector) -> None:
        assert self.process.stdin is not None
        os.set_blocking(self.output, False)
        os.set_blocking(self.process.stdin.fileno(), False)
        selector.register(self.output, selectors.EVENT_READ)
        selector.register(self.process.stdin.fileno(), selectors.EVENT_WRITE)

    def _exchange(self, selector: selectors.BaseSelector, on_progress: Callable[[dict[str, Any]], None]) -> bool:
        """One round of sending and receiving; whether anything was received."""
        received = b""
        if not selector.get_map():
            time.sleep(TICK_S)
            return False
        for key, _ in selector.select(TICK_S):
            if key.fd == self.output:
                with suppress(BlockingIOError):
                    received = os.read(self.output, 1 << 20)
                    if not received:
                        selector.unregister(key.fd)
            else:
                self._send(selector, key.fd)
        if os.fstat(self.log.fileno()).st_size > LOG_BYTES:  # never of os.devnull
            # Keep the beginning of what a chatty child says: its first error is the one that matters.
            os.ftruncate(self.log.fileno(), LOG_BYTES)
        self._take(received, on_progress)
        return bool(received)

    def _send(self, selector: selectors.BaseSelector, fd: int) -> None:
        try:
            self.unsent = self.unsent[os.write(fd, self.unsent) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.unsent = b""
        if not self.unsent:
            # Sent, but kept open: its end tells the child that the server is gone.
            selector.unregister(fd)

    def _take(self, received: bytes, on_progress: Callable[[dict[str, Any]], None]) -> None:
        self.taken += len(received)
        if self.taken > OUTPUT_BYTES:
            self.broken = "It sent too much."
        if not received or self.broken:
            return
        self.received += received
        if b"\n" not in received:  # nor copied: a line of 256 MB comes in 4,000 pieces
            return
        *lines, rest = self.received.split(b"\n")
        self.received = bytearray(rest)
        for line in lines:
            try:
                said = json.loads(line)
                kind = said["type"]
            except (ValueError, TypeError, KeyError, RecursionError):
                self.broken = "It did not speak the protocol."
                return
            if kind == "progress":
                on_progress(said)
            elif kind in ("result", "error") and self.last is None:
                self.last = said
            else:
                self.broken = "It answered twice, or in a way unknown."
                return

    def _end(self) -> int | None:
        """Kill whatever is left of the child; its pid if even that does not end it."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        owners.kill(owners.marked(self.mark))
        try:
            self.process.wait(UNKILLABLE_S)
        except subprocess.TimeoutExpired:
            return self.process.pid
        return None

    def _judge(self, stopped: ExitReason | None, stuck: int | None) -> Ended:
        if stuck is not None:
            return failed(
                stopped or ExitReason.FAULT, "Its process does not end; the device may hang.", stuck_pid=stuck
            )
        if self.broken:
            return failed(ExitReason.BAD_OUTPUT, self.broken)
        if stopped is not None:
            return failed(stopped)
        status = self.process.returncode
        if self.last is not None and self.last["type"] == "error":
            return _told(self.last)
        if status == 0 and self.last is not None and self.last.get("stopped"):
            return failed(ExitReason.LOST, "(signal SIGTERM)", again=True)
        if status == 0 and self.last is not None:
            return Ended(ExitReason.OK, self.last.get("value"))
        if status == -signal.SIGKILL:
            # We did not send it: the kernel's out-of-memory killer is who does.
            return failed(ExitReason.OUT_OF_MEMORY, "(it was killed by the system)", again=True)
        if -status in OUTSIDE:
            return failed(ExitReason.LOST, f"(signal {_signal_name(-status)})", again=True)
        if status < 0:
            return failed(ExitReason.FAULT, f"(signal {_signal_name(-status)})")
        if status == 0:
            return failed(ExitReason.BAD_OUTPUT, "It ended without an answer.")
        return failed(ExitReason.FAULT, f"(exit status {status})")


def _told(said: dict[str, Any]) -> Ended:
    """The child's own account of an error, as far as it is one."""
    if said.get("code") == ExitReason.OUT_OF_MEMORY.value:
        return failed(ExitReason.OUT_OF_MEMORY)
    error = {key: str(said.get(key) or "")[:4000] for key in ("code", "message", "remedy")}
    if not error["code"] or not error["message"]:
        return failed(ExitReason.BAD_OUTPUT, "Its error says nothing.")
    more = {k: said[k] for k in ("line", "column", "end_column", "hint", "shown") if isinstance(said.get(k), int | str)}
    return Ended(ExitReason.ERROR, None, {**error, **more})


def _environment(mark: str) -> dict[str, str]:
    """Ours without our settings: the tokens and the database's password are no business of a child."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("TRITONWORTHY_", "RAY_"))} | {owners.MARK: mark}


def _open_log(path: Path) -> BinaryIO:
    """The log; where it cannot be written (a full disk), nowhere: the job is worth more."""
    try:
        return path.open("wb")
    except OSError:
        return open(os.devnull, "wb")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
