"""The parent's side of the children: starting, talking, time limits, killing. Never touches CUDA, needs no torch."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Protocol, TypeVar

import msgspec

from kernels.measure.messages import (
    Answer,
    Exited,
    Failed,
    Fork,
    Forked,
    Note,
    Question,
    Ready,
    Request,
    Running,
    ServerEvent,
    TimingBegins,
    TimingEnds,
    Waiting,
    child_event,
    server_event,
)
from kernels.measure.processes.channel import Channel, ProtocolError, encode
from profiler.child.process import kill_all_of

FORK_SERVER_ENV = {
    # is_available() asks NVML, so that no import initialises CUDA before the fork
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # one thread each: a fork of a process with threads can inherit a held lock
    "OPENBLAS_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "TORCH_WARM_POOL": "0",
}

Result = TypeVar("Result")


class ForkServerDied(Exception):  # noqa: N818 - an event, told in the Validation's reason
    """The process that children are forked from did not start, or ended."""


class Child:
    """One candidate's process: what is asked of it, since when, and what became of it.

    failure is None while it lives, else (status, message) as `model.STATUSES` has them.
    """

    def __init__(self, name: str, pid: int, channel: Channel, log: IO[bytes], fork_server: ForkServer) -> None:
        self.name = name
        self.pid = pid
        self.channel = channel
        self.failure: tuple[str, str] | None = None
        self.answer: Answer | None = None
        self.pending: int | None = None
        self.exited: int | None = None
        self.note = ""
        self.span_us: float | None = None  # of the last loop that it timed, by the clock of this process
        self._timing_since: float | None = None
        self._log = log
        self._fork_server = fork_server
        self._number = 0
        self.limit_s = 0.0  # of running time that the answer may take
        self._used = 0.0
        self._running_since: float | None = None

    @property
    def alive(self) -> bool:
        return self.failure is None

    def ask(self, request: Request, limit_s: float) -> None:
        """Send a request; `pump` then collects the answer within limit_s of running time."""
        self._number += 1
        self.pending, self.answer, self.note = self._number, None, ""
        self.span_us = self._timing_since = None
        self.limit_s, self._used, self._running_since = limit_s, 0.0, time.monotonic()
        try:
            self.channel.send(Question(self._number, request))
        except OSError:
            self.fail("fault", self._died())

    def hint(self, request: Request) -> None:
        """A request without an answer: what it may do before it is asked."""
        with contextlib.suppress(OSError):
            self.channel.send(Question(None, request))

    def result(self, form: type[Result]) -> Result | None:
        """The answer to the last request; None where there is none. One of another form fails the child."""
        if self.answer is None or self.failure is not None:
            return None
        try:
            return msgspec.convert(self.answer.result, form)
        except msgspec.ValidationError as fault:
            self.fail("bad_output", f"the process answered in another form than agreed: {fault}"[:300])
            return None

    def still_there(self) -> bool:
        """Whether it lives, asked of its connection now: nobody else reads that of a child which owes no answer."""
        if self.alive and select.select([self.channel.end], [], [], 0.0)[0]:
            self.read()
        return self.alive

    def remaining(self) -> float:
        """Seconds of running time left; its waiting for the GPU does not count."""
        running = time.monotonic() - self._running_since if self._running_since is not None else 0.0
        return self.limit_s - self._used - running

    def fail(self, status: str, message: str) -> None:
        """Kill it and everything it started; the first reason stays."""
        if self.failure is None:
            self.failure = (status, message)
        self.pending = None
        self.kill()

    def kill(self) -> None:
        """SIGKILL, unless it is known to have ended: its number may be another process's by then."""
        self._fork_server.collect(self, 0.0)
        if self.exited is None:
            kill_all_of(self.pid)
        with contextlib.suppress(OSError):
            self.channel.close()

    def read(self) -> None:
        """Take in what it sent. A broken line fails it."""
        try:
            messages, still_open = self.channel.feed()
        except ProtocolError as fault:
            self.fail("bad_output", f"the process broke the protocol: {fault}")
            return
        except OSError:
            messages, still_open = [], False
        for message in messages:
            self._take(message)
        if not still_open and self.alive:
            self.fail("fault", self._died())

    def _take(self, message: dict[str, object]) -> None:
        try:
            event = child_event(message)
        except msgspec.ValidationError as fault:
            self.fail("bad_output", f"the process broke the protocol: {fault}: {str(message)[:200]}")
            return
        match event:
            case Waiting():
                if self._running_since is not None:
                    self._used += time.monotonic() - self._running_since
                    self._running_since = None
            case Running():
                if self._running_since is None:
                    self._running_since = time.monotonic()
            case Note():
                self.note = event.message[:300]
            case TimingBegins():
                self._timing_since = time.monotonic()
            case TimingEnds():
                if self._timing_since is not None:
                    self.span_us = (time.monotonic() - self._timing_since) * 1e6
            case Answer() | Failed() if self.pending is None or event.id != self.pending:
                self.fail("bad_output", f"the process sent what nobody asked for: {str(message)[:200]}")
            case Failed():
                self.fail(event.fault.status, event.fault.message[:2000])
            case Answer():
                self.answer, self.pending = event, None

    def _died(self) -> str:
        """How it ended, once its connection is closed: on a busy machine its end is told seconds after that."""
        self._fork_server.collect(self, 20.0)
        if self.exited is None:
            return "the process closed its connection" + self._last_words()
        if os.WIFSIGNALED(self.exited):
            number = os.WTERMSIG(self.exited)
            name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
            return f"the process was ended by {name}{self._last_words()}"
        return f"the process ended with status {os.waitstatus_to_exitcode(self.exited)}{self._last_words()}"

    def log_tail(self, size: int = 2000) -> str:
        """The end of what it printed."""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - size))
        return self._log.read().decode(errors="replace")

    def _last_words(self) -> str:
        lines = [line.strip() for line in self.log_tail().splitlines() if line.strip()]
        return f": {lines[-1][:300]}" if lines else ""

    def trim_log(self, size: int) -> None:
        """A child that prints without end must not fill the disk: past 16 x size the log starts anew."""
        if os.fstat(self._log.fileno()).st_size > 16 * size:
            tail = self.log_tail(size).encode()
            self._log.seek(0)
            self._log.truncate()
            self._log.write(tail)
            self._log.flush()

    def release(self) -> None:
        self.kill()
        self._log.close()


class EarlyChildren(Protocol):
    """Children that are under way before it is known who needs them."""

    def import_packages(self) -> None:
        """One for each installed package."""

    def open_contexts(self, device: str, workers: int) -> None:
        """Some that make their context on the device."""

    def take(self, name: str) -> Child | None:
        """One for the candidate of that name."""

    def close(self) -> None:
        """End those that nobody took."""

    def close_contexts(self) -> None:
        """End those that hold a part of the GPU."""


class ForkServer:
    """Start once, fork often. Use as a context manager, or keep it between validations.

    interpret: the children run Triton kernels in its interpreter, which must be known before triton is imported.
    warm: it imports what children need; without, each child imports for itself. forked: from this process, which has
    imported all of that, as interpret says, and has one thread.
    """

    def __init__(
        self,
        *,
        interpret: bool = False,
        warm: bool = True,
        forked: bool = False,
        env: Mapping[str, str] | None = None,
        start_s: float = 60.0,
    ) -> None:
        self.interpret = interpret
        ours, theirs = socket.socketpair()
        self._log = _appending()
        self._process: subprocess.Popen[bytes] | _Forked = (
            _fork(ours, theirs, self._log) if forked else self._start(theirs, interpret, warm, env)
        )
        theirs.close()
        self._channel = Channel(ours)
        self._exits: dict[int, int] = {}
        self.warm_workers: EarlyChildren | None = None  # warm_workers.WarmWorkers, where they were begun
        self._start_s = start_s
        self._ready = False
        self.lock = threading.RLock()  # a spare prepares itself while it waits for its request

    def _start(
        self, theirs: socket.socket, interpret: bool, warm: bool, env: Mapping[str, str] | None
    ) -> subprocess.Popen[bytes]:
        environ = {**os.environ, **FORK_SERVER_ENV, **(env or {})}
        environ.pop("TRITON_INTERPRET", None)
        if interpret:
            environ |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
        root = str(Path(__file__).resolve().parents[3])
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environ.get("PYTHONPATH", "")]))
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "kernels.measure.processes.fork_server",
                str(theirs.fileno()),
                "warm" if warm else "cold",
            ],
            pass_fds=[theirs.fileno()],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self) -> None:
        """Until its imports are done. Raises ForkServerDied."""
        if not self._ready:
            if not isinstance(self._next(self._start_s), Ready):
                raise ForkServerDied("the process that candidates start from answered out of turn")
            self._ready = True

    def fork(self, name: str, module: str, *, env: Mapping[str, str] | None = None, execute: bool = False,
             limit: int = 16_000_000) -> Child:  # fmt: skip
        """A child that runs `module.main(channel)`. execute: as a fresh interpreter rather than a fork."""
        with self.lock:
            self.wait_ready()
            ours, theirs = socket.socketpair()
            log = _appending()
            request = Fork(module, dict(env or {}), execute)
            try:
                payload = [theirs.fileno(), log.fileno()]
                socket.send_fds(self._channel.end, [encode(request)], payload)
            except OSError as fault:
                raise ForkServerDied(f"the process that candidates start from is gone: {fault}") from None
            finally:
                theirs.close()
            while not isinstance(event := self._next(10.0), Forked):
                self._note(event)
        return Child(name, event.pid, Channel(ours, limit), log, self)

    def collect(self, child: Child, wait_s: float) -> None:
        """Note the child's wait status, waiting a little for it."""
        end = time.monotonic() + wait_s
        while child.exited is None:
            left = max(0.0, end - time.monotonic())
            try:
                with self.lock:
                    if not self._channel.waits(left):
                        break
                    self._note(self._next(1.0))
            except (ForkServerDied, OSError, ValueError):  # it is gone, and its children with it
                break
            child.exited = self._exits.get(child.pid)
        if child.exited is None:
            child.exited = self._exits.get(child.pid)

    def close(self) -> None:
        """End it and every child."""
        if self._process.poll() is None:
            kill_all_of(self._process.pid)
        self._process.wait()
        self._channel.close()
        self._log.close()

    def _note(self, event: ServerEvent) -> None:
        if isinstance(event, Exited):
            self._exits[event.pid] = event.status

    def _next(self, wait_s: float) -> ServerEvent:
        self._channel.end.settimeout(max(0.001, wait_s))
        try:
            message = self._channel.receive()
            event = None if message is None else server_event(message)
        except TimeoutError:
            raise ForkServerDied(f"no answer within {wait_s:.0f} s{self._tail()}") from None
        except (OSError, ProtocolError, msgspec.ValidationError) as fault:
            raise ForkServerDied(f"{fault}{self._tail()}") from None
        finally:
            self._channel.end.settimeout(None)
        if event is None:
            raise ForkServerDied(f"the process that candidates start from ended{self._tail()}")
        return event

    def _tail(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1][:300]}" if lines else ""


class _Forked:
    """A fork of this process, as far as subprocess.Popen is asked here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int | None:
        return self._wait(0)

    def _wait(self, options: int) -> int | None:
        if self._status is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:
                self._status = 0
            else:
                self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status


def _fork(ours: socket.socket, theirs: socket.socket, log: IO[bytes]) -> _Forked:
    """kernels.measure.processes.fork_server.main in a fork of this process."""
    from kernels.measure.processes import fork_server

    pid = os.fork()
    if pid:
        return _Forked(pid)
    try:
        os.setsid()
        ours.close()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        os.environ.update(FORK_SERVER_ENV)
        kept = {theirs.fileno(), log.fileno()}
        for name in os.listdir("/proc/self/fd"):  # such as where this process answers: no candidate is to reach it
            if int(name) > 2 and int(name) not in kept:
                with contextlib.suppress(OSError):
                    os.close(int(name))
        fork_server.main(os.dup(theirs.fileno()), warmed=False)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _appending() -> IO[bytes]:
    """A temporary file whose writers append: reading its end here does not move where a child writes."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by its owner
    fcntl.fcntl(file.fileno(), fcntl.F_SETFL, fcntl.fcntl(file.fileno(), fcntl.F_GETFL) | os.O_APPEND)
    return file
