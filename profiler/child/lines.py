"""LineChild: a child process that is sent JSON lines and answers in JSON lines, on a descriptor of its own.

Its stdout and stderr are a log that nobody parses. Its stdin is kept open: end of file there means that the parent is
gone. It leads a session; what it starts is killed with it.
"""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from profiler.child.process import Process, Started, kill_tree
from profiler.child.template import Template

TICK_S = 0.05
LOG_BYTES = 8 * 1024 * 1024
OUTPUT_BYTES = 256 * 1024 * 1024
"""A report of a trace is a few MB; a child that sends more for one request is broken."""

UNKILLABLE_S = 10.0
"""SIGKILL ends a process at once unless it hangs in the kernel (a driver); then it is reported and left."""


class BrokenChildError(Exception):
    """The child sent something that is no answer."""


class LineChild:
    """One process. Used by one thread at a time.

    command: a program and its arguments; with a template its other words are given to a fork of it. "{fd}" in it
    becomes the descriptor to answer on. environment: added to its own; sweep: kills whatever else it started.
    Raises OSError where none can be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path | None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        template: Template | None = None,
        sweep: Callable[[], None] = lambda: None,
    ) -> None:
        self.sweep = sweep
        self.path = log
        self.received = bytearray()
        self.unsent = b""
        self.taken = 0
        self.stuck = False
        self.closed = False
        added = dict(environment or {})
        with ExitStack() as ours, ExitStack() as theirs:
            self.log = ours.enter_context(_open_log(log))
            self.output, answer = os.pipe()
            ours.callback(os.close, self.output)
            theirs.callback(os.close, answer)
            stdin, self.input = os.pipe()
            ours.callback(os.close, self.input)
            theirs.callback(os.close, stdin)
            os.set_blocking(self.output, False)
            os.set_blocking(self.input, False)
            self.selector = ours.enter_context(selectors.DefaultSelector())
            self.selector.register(self.output, selectors.EVENT_READ)
            self.process: Process
            if template is not None:
                self.process = template.fork(
                    command[1:], stdin=stdin, answer=answer, log=self.log.fileno(), environment=added
                )
            else:
                self.process = Started(
                    command, stdin=stdin, answer=answer, log=self.log.fileno(), cwd=cwd,
                    env={**(os.environ if env is None else env), **added},
                )  # fmt: skip
            self.ours = ours.pop_all()

    @property
    def pid(self) -> int:
        return self.process.pid

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        return self.process.poll()

    def send(self, message: object) -> None:
        """Queue a line; `exchange` sends it."""
        if not self.unsent:
            self.selector.register(self.input, selectors.EVENT_WRITE)
        self.unsent += json.dumps(message).encode() + b"\n"
        self.taken = 0

    def exchange(self, timeout_s: float = TICK_S) -> list[object]:
        """One round of sending and receiving: the messages that are whole by now.

        Returns as soon as there is something, at the latest after timeout_s. Raises BrokenChildError for what is no
        line of JSON, or too much.
        """
        received = b""
        if not self.selector.get_map():  # it sends nothing more: only its end is left to wait for
            self.process.wait(min(timeout_s, TICK_S))
            return []
        for key, _ in self.selector.select(timeout_s):
            if key.fd == self.output:
                with suppress(BlockingIOError):
                    received = os.read(self.output, 1 << 20)
                    if not received:
                        self.selector.unregister(self.output)
            else:
                self._send()
        if os.fstat(self.log.fileno()).st_size > LOG_BYTES:  # never of os.devnull
            # Keep the beginning of what a chatty child says: its first error is the one that matters.
            os.ftruncate(self.log.fileno(), LOG_BYTES)
        return self._messages(received)

    def _send(self) -> None:
        try:
            self.unsent = self.unsent[os.write(self.input, self.unsent) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.unsent = b""
        if not self.unsent:
            # Sent, but kept open: its end tells the child that the parent is gone.
            self.selector.unregister(self.input)

    def _messages(self, received: bytes) -> list[object]:
        self.taken += len(received)
        if self.taken > OUTPUT_BYTES:
            raise BrokenChildError("It sent too much.")
        self.received += received
        if b"\n" not in received:  # nor copied: a line of 256 MB comes in 4,000 pieces
            return []
        *lines, rest = self.received.split(b"\n")
        self.received = bytearray(rest)
        try:
            return [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            raise BrokenChildError("It did not speak the protocol.") from None

    def rest(self) -> list[object]:
        """What a child sent before it ended and nobody has read."""
        received = b""
        with suppress(BlockingIOError):  # no end of file where another process holds its pipe open
            while self.output in self.selector.get_map() and len(received) <= OUTPUT_BYTES:
                part = os.read(self.output, 1 << 20)
                if not part:
                    self.selector.unregister(self.output)
                received += part
        return self._messages(received)

    def end(self) -> bool:
        """Kill it and what it started; whether it is gone."""
        kill_tree(self.process)
        self.sweep()
        self.stuck = self.process.wait(UNKILLABLE_S) is None
        return not self.stuck

    def close(self) -> None:
        """End it, unless it has ended or cannot be, and give back its descriptors."""
        if self.closed:
            return
        self.closed = True
        if self.process.poll() is None and not self.stuck:
            self.end()
        self.ours.close()

    def move_log(self, log: Path) -> None:
        """Its log gets that name; one that could not be opened has none."""
        if self.path is not None and self.path != log:
            with suppress(OSError):
                self.path.replace(log)
            self.path = log


def _open_log(path: Path | None) -> BinaryIO:
    """The log; where it cannot be written (a full disk), nowhere: the work is worth more."""
    try:
        return open(os.devnull, "wb") if path is None else path.open("wb")
    except OSError:
        return open(os.devnull, "wb")
