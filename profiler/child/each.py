"""each: many small pieces of work, bounded one by one, in forks of this process: what hangs costs itself alone.

A fork takes 10 ms and has everything that this process has read, so nothing is sent to it. It works on one piece after
the other; where one exceeds its limits the fork is killed, the piece counts as failed, and another fork goes on with
the next. A fork that another process killed is no fault of its piece, which is done again, once.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import select
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from threadpoolctl import threadpool_limits

from profiler.child.limits import Limits, impose, is_of_memory, over_cpu, within_own
from profiler.child.pool import OUTSIDE, Failure
from profiler.child.template import PR_SET_PDEATHSIG

log = logging.getLogger("tritonworthy.each")

T = TypeVar("T")  # what JSON can carry

FORK_TRIES, FORK_PAUSE_S = 20, 0.25
"""Where no fork is possible and none runs: so often, so long apart, before the rest is reported as failed."""

DEADLY = (
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGSEGV,
    signal.SIGSYS,
    signal.SIGTERM,
    signal.SIGXCPU,
)
"""What a fork dies of at once: LLVM catches each of them in a process that has compiled a Triton kernel, to print where
it was, and a fork that aborted was seen to use up its processor time before it died, which then counted as the reason.
"""


def each(
    work: Callable[[int], T], pieces: Sequence[int], limits: Limits, *, lanes: int = 2
) -> Iterator[tuple[int, T | Failure]]:
    """(piece, what `work` returns as JSON, or why it has no result) for every piece, as they are done.

    work: raises nothing that is not a failure of its piece (Failure.CRASHED, with a traceback on stderr; MEMORY for
    MemoryError). limits: of one piece. lanes: forks at once. The caller has one thread that does anything.

    Forks use one thread of BLAS: with one a core, that wait for each other busily, small systems of equations took 16
    cores' time and half of the regions of a step were over their limit of it, on a host of 32.
    """
    with threadpool_limits(limits=1):
        yield from _each(work, pieces, limits, lanes)


def _each(
    work: Callable[[int], T], pieces: Sequence[int], limits: Limits, lanes: int
) -> Iterator[tuple[int, T | Failure]]:
    waiting = deque(pieces)
    killed = set[int]()
    limits = within_own(limits)
    poll = select.poll()
    running: dict[int, _Lane[T]] = {}
    tries = 0
    try:
        while waiting or running:
            while waiting and len(running) < lanes:
                batch = [waiting.popleft() for _ in range(_take(len(waiting), lanes - len(running)))]
                try:
                    lane = _Lane(work, batch, limits)
                except OSError as fault:  # no process or memory for a fork now: others go on, or it is tried again
                    log.warning("no fork: %s", fault)
                    waiting.extendleft(reversed(batch))
                    break
                tries = 0
                running[lane.output] = lane
                poll.register(lane.output, select.POLLIN)
            if not running:
                tries += 1
                if tries == FORK_TRIES:
                    yield from ((piece, Failure.KILLED) for piece in waiting)
                    return
                time.sleep(FORK_PAUSE_S)
                continue
            left_s = max(0.0, min(lane.deadline for lane in running.values()) - time.monotonic())
            ready = {fd for fd, _ in poll.poll(min(left_s, 1.0) * 1000)}
            for fd, lane in list(running.items()):
                if fd in ready:
                    yield from lane.read()
                elif time.monotonic() >= lane.deadline:
                    lane.kill()
                    lane.failure = Failure.TIMEOUT
                    lane.over = True
                if lane.over:
                    poll.unregister(fd)
                    del running[fd]
                    failure = lane.end()
                    if lane.remaining and failure is Failure.KILLED and lane.remaining[0] not in killed:
                        killed.add(lane.remaining[0])
                    elif lane.remaining and not lane.is_full:
                        yield lane.remaining.popleft(), failure
                    waiting.extendleft(reversed(lane.remaining))
    finally:
        for lane in running.values():
            lane.kill()
            lane.end()


def _take(waiting: int, lanes: int) -> int:
    """How many pieces the next of so many lanes gets."""
    return max(1, -(-waiting // lanes))


class _Lane(Generic[T]):
    """One fork and the pieces that it works on, in order."""

    def __init__(self, work: Callable[[int], T], pieces: Sequence[int], limits: Limits) -> None:
        self.remaining = deque(pieces)
        self.limits = limits
        self.over = False
        self.is_full = False  # of what a piece left that needed too much memory: it does no other
        self.failure: Failure | None = None
        self.received = b""
        self.output, theirs = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            self.pid = os.fork()
        except OSError:
            os.close(self.output)
            os.close(theirs)
            raise
        if self.pid == 0:
            os.close(self.output)
            _work(work, pieces, theirs, parent, limits)
        os.close(theirs)
        self.deadline = time.monotonic() + limits.timeout_s

    def read(self) -> Iterator[tuple[int, T | Failure]]:
        """What it has done by now."""
        part = os.read(self.output, 1 << 20)
        if not part:
            self.over = True
        *lines, self.received = (self.received + part).split(b"\n")
        for line in lines:
            message = json.loads(line)
            piece = self.remaining.popleft()
            self.deadline = time.monotonic() + self.limits.timeout_s
            self.is_full = message.get("failure") == Failure.MEMORY
            yield piece, Failure(message["failure"]) if "failure" in message else message["value"]

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def end(self) -> Failure:
        """Why it ended before it had done all; reaps it."""
        os.close(self.output)
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if self.failure is not None:
            return self.failure
        if over_cpu(code):
            return Failure.CPU
        return Failure.KILLED if code in OUTSIDE else Failure.CRASHED


def _work(work: Callable[[int], object], pieces: Sequence[int], output: int, parent: int, limits: Limits) -> None:
    """The fork's life; never returns."""
    status = 1
    try:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(status)
        for deadly in DEADLY:
            signal.signal(deadly, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who reads ends this
        gc.freeze()
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(1)  # OpenMP's threads are the parent's: a fork that asks for them waits for ever
        for piece in pieces:
            impose(os.getpid(), limits)  # here, where it cannot come late
            try:
                message: dict[str, object] = {"value": work(piece)}
            except Exception as fault:
                message = {"failure": Failure.MEMORY if is_of_memory(fault) else Failure.CRASHED}
                traceback.print_exc()
            _write(output, json.dumps(message).encode() + b"\n")
            if message.get("failure") == Failure.MEMORY:
                break
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def _write(output: int, line: bytes) -> None:
    while line:
        line = line[os.write(output, line) :]
