"""Template: a process that has imported everything and forks children that begin warm. Torch-free on this side.

Importing torch and the product takes 3.6 s; a fork of a process that has takes 15 ms and shares its memory. It
does no work itself, keeps one thread, and never starts CUDA: a fork is as clean as a new process. Its children die with
it, and it with its server (PR_SET_PDEATHSIG), whatever any of them is doing.

On the control socket, one JSON object a packet:

    server -> template   {"id", "arguments", "environment"} with three descriptors: stdin, answer, log
    template -> server   {"ready": true}, {"id", "pid"} or {"id", "error"}, {"exited": pid, "status"}
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import gc
import importlib
import json
import logging
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from profiler.child.process import FD

log = logging.getLogger("tritonworthy.template")

START_S = 120.0
"""Longest start: its imports take 4 s, on a busy machine a minute."""
FORK_S = 20.0
"""A fork takes 15 ms: a template that has not answered by then hangs, and is ended."""
END_S = 10.0
"""SIGKILL ends a process at once unless it hangs in the kernel."""
AGAIN_S = (0.2, 10.0)
"""Between two starts of a template that dies: the first, and the longest."""
PACKET_BYTES = 1 << 16
NICENESS = 2
"""Children give way to the process that answers requests: p99 of the widget under ten attacks 56 ms, without it 65."""
PR_SET_PDEATHSIG = 1


class NoTemplateError(OSError):
    """There is no template to fork from: it does not start, or the server stops."""


class _Request(msgspec.Struct, frozen=True):
    """What the template is sent, with three descriptors: a fork that runs with these arguments."""

    id: int
    arguments: list[str]
    environment: dict[str, str]


class _Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the template sends: it is ready; the fork of a request, or why there is none; a child's end."""

    ready: bool = False
    id: int | None = None
    pid: int | None = None
    error: str = ""
    exited: int | None = None
    status: int = 0


# Through json: msgspec refuses text of an environment that is no UTF-8.


def _packet(message: _Request | _Message) -> bytes:
    return json.dumps(msgspec.to_builtins(message)).encode()


class Forked:
    """A child of the template. Its exit status comes by way of the template; where that died, so did the child."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._status: int | None = None
        self._ended = threading.Event()

    @property
    def pid(self) -> int:
        return self._pid

    def poll(self) -> int | None:
        return self._status

    def wait(self, timeout_s: float) -> int | None:
        self._ended.wait(timeout_s)
        return self._status

    def end(self, status: int) -> None:
        """Called by the template's reader."""
        if self._status is None:
            self._status = status
            self._ended.set()


@dataclass(slots=True)
class _Answer:
    """Of one request, once its event is set: the child, or why there is none."""

    event: threading.Event = field(default_factory=threading.Event)
    child: Forked | None = None
    error: str = "it ended"


class _Life:
    """One life of the template's process."""

    def __init__(self, module: str, cwd: Path | None, env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control = ours
        self.started_s = time.monotonic()
        self.ready = threading.Event()
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.next_id = 0
        self.pending: dict[int, _Answer] = {}
        self.children: dict[int, Forked] = {}
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "profiler.child.template", module, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                cwd=cwd,
                env=dict(env),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            threading.Thread(target=self._read, name="template", daemon=True).start()
        except BaseException:
            self.process.kill()
            self.process.wait()
            ours.close()
            raise

    def _read(self) -> None:
        while True:
            try:
                packet = self.control.recv(PACKET_BYTES)
            except OSError:
                packet = b""
            if not packet:
                break
            self._hear(msgspec.convert(json.loads(packet), _Message))
        self.process.wait()
        with self.lock:
            self.over.set()
            self.ready.set()
            for child in self.children.values():
                child.end(-signal.SIGHUP)  # not their fault, and no lack of memory: their work is done again
            for answer in self.pending.values():
                answer.event.set()
        self.control.close()

    def _hear(self, message: _Message) -> None:
        with self.lock:
            if message.ready:
                self.ready.set()
            elif message.exited is not None:
                child = self.children.pop(message.exited, None)
                if child is not None:
                    child.end(message.status)
            elif message.id in self.pending:
                answer = self.pending.pop(message.id)
                if message.pid is not None:  # here, so that the child is registered before its end can be reported
                    self.children[message.pid] = answer.child = Forked(message.pid)
                answer.error = message.error
                answer.event.set()

    def fork(self, arguments: Sequence[str], fds: Sequence[int], environment: Mapping[str, str]) -> Forked:
        """Raises NoTemplateError where the template is gone or cannot fork."""
        answer = _Answer()
        with self.lock:
            self.next_id += 1
            number = self.next_id
            packet = _packet(_Request(number, [*arguments], {**environment}))
            if len(packet) > PACKET_BYTES:
                raise ValueError("what the fork is told is too long")
            self.pending[number] = answer
            try:
                # Not socket.send_fds, which waits for room: that is there unless the template hangs.
                descriptors = array.array("i", fds)
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
                self.control.sendmsg([packet], rights, socket.MSG_DONTWAIT)
            except BlockingIOError:
                pass  # ended below, which all others who wait are told
            except OSError as fault:
                del self.pending[number]
                raise NoTemplateError(f"the template is gone: {fault}") from fault
        if not answer.event.wait(FORK_S):
            log.error("the template has not answered for %g s and is ended", FORK_S)
            self.process.kill()
            raise NoTemplateError("the template did not answer")
        if answer.child is None:
            raise NoTemplateError(f"the template could not fork: {answer.error}")
        return answer.child

    def end(self) -> None:
        """Kill it, and with it its children. Returns when it is gone."""
        self.process.kill()
        self.over.wait(END_S)


class Template:
    """Thread-safe. module: has `prepare()`, which imports, and `run(arguments)`, which a fork does and returns from.

    env: of the template and so of its children. A template that dies is started again, at once the first time.
    """

    def __init__(self, module: str, *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        self.module = module
        self.cwd = cwd
        self.env = dict(os.environ if env is None else env)
        self.life: _Life | None = None
        self._stop = threading.Event()
        self.pause_s = 0.0
        self.keeper: threading.Thread | None = None
        self.changed = threading.Condition()

    def start(self) -> None:
        """Begin to start it, and see to it that there is one; returns at once."""
        with self.changed:
            if self.keeper is None and not self.stopped:
                self.keeper = threading.Thread(target=self._keep, name="template-keeper", daemon=True)
                self.keeper.start()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def ready(self) -> bool:
        life = self.life
        return life is not None and life.ready.is_set() and not life.over.is_set()

    def wait_ready(self, timeout_s: float) -> bool:
        """Whether it is ready now, or becomes so within the time."""
        deadline = time.monotonic() + timeout_s
        with self.changed:
            while not self.ready and not self.stopped and (remaining_s := deadline - time.monotonic()) > 0:
                self.changed.wait(remaining_s)
        return self.ready

    def fork(
        self,
        arguments: Sequence[str],
        *,
        stdin: int,
        answer: int,
        log: int,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = START_S,
    ) -> Forked:
        """A warm child that runs `module.run(arguments)`; waits for the template's start where it must.

        "{fd}" in the arguments becomes the child's number of `answer`. Raises NoTemplateError.
        """
        self.start()
        deadline = time.monotonic() + timeout_s
        while True:
            if not self.wait_ready(deadline - time.monotonic()):
                raise NoTemplateError("the server stops" if self.stopped else "the template did not start in time")
            life = self.life
            assert life is not None
            try:
                return life.fork(arguments, (stdin, answer, log), environment or {})
            except NoTemplateError:
                if not life.over.wait(1.0) or time.monotonic() >= deadline:
                    raise

    def stop(self) -> None:
        """End it and all its children; it does not start again."""
        with self.changed:
            self._stop.set()
            self.changed.notify_all()
            life = self.life
        if life is not None:
            life.end()
        if self.keeper is not None:
            self.keeper.join(5.0)

    def _keep(self) -> None:
        while not self._stop.is_set():
            try:
                life = _Life(self.module, self.cwd, self.env)
            except Exception as fault:  # RuntimeError as well, where no thread can be started
                log.error("no template could be started: %s: %s", type(fault).__name__, fault)
                self._stop.wait(AGAIN_S[1])
                continue
            with self.changed:
                self.life = life
            if self._stop.is_set():
                life.end()
                return
            late = not life.ready.wait(START_S)
            with self.changed:
                self.changed.notify_all()
            if late:
                log.error("the template was not ready within %g s", START_S)
                life.end()
            life.over.wait()
            if self._stop.is_set():
                return
            lived_s = time.monotonic() - life.started_s
            log.error(
                "the template ended after %.1f s (status %s); it is started again", lived_s, life.process.returncode
            )
            first, longest = AGAIN_S
            self.pause_s = first if lived_s > START_S else min(longest, max(first, 2 * self.pause_s))
            self._stop.wait(self.pause_s)


# -------------------------------------------------------------------------------------------- the template's process


def main(argv: Sequence[str]) -> int:
    """`python -m profiler.child.template MODULE FD SERVER`: import, then fork when asked, until the server is gone."""
    module, fd, server = argv
    libc = ctypes.CDLL(None, use_errno=True)
    # Bound to the thread that started this process, which lives as long as it is to: Template._keep.
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(server):
        return 0
    # Of its own, above the standard streams: those may be closed, and a fork has others in their place.
    control = socket.socket(fileno=fcntl.fcntl(int(fd), fcntl.F_DUPFD_CLOEXEC, 3))
    os.close(int(fd))
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(null)
    own_pid = os.getpid()
    entry = importlib.import_module(module)
    entry.prepare()
    gc.collect()
    gc.freeze()  # a collection in a child would write to, and so copy, every page that it shares
    control.send(_packet(_Message(ready=True)))
    children: dict[int, int] = {}  # descriptor -> pid
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready in children:
                pid = children.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                _end([pid])  # the rest of its group, while the number is not another's
                _, status = os.waitpid(pid, 0)
                with suppress(OSError):
                    control.send(_packet(_Message(exited=pid, status=os.waitstatus_to_exitcode(status))))
                continue
            try:
                packet, fds, _, _ = socket.recv_fds(control, PACKET_BYTES, 3)
            except OSError:
                packet, fds = b"", []
            if not packet:
                _end(children.values())
                return 0
            request = msgspec.convert(json.loads(packet), _Request)
            try:
                pid = os.fork()
            except OSError as fault:
                control.send(_packet(_Message(id=request.id, error=str(fault))))
            else:
                if pid == 0:
                    _become(entry.run, request, fds, (control.fileno(), *children), libc, own_pid)
                watched = os.pidfd_open(pid)
                children[watched] = pid
                poll.register(watched, select.POLLIN)
                with suppress(OSError):
                    control.send(_packet(_Message(id=request.id, pid=pid)))
            finally:
                for each in fds:
                    os.close(each)


def _become(
    run: Callable[[list[str]], int],
    request: _Request,
    fds: Sequence[int],
    close: Sequence[int],
    libc: ctypes.CDLL,
    parent: int,
) -> None:
    """The child from its first instruction to its last: it never returns into the template's loop."""
    status = 1
    try:
        os.setsid()
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked to die with it
            os._exit(status)
        stdin, answer, log_fd = fds
        os.dup2(stdin, 0)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        for fd in (*close, stdin, log_fd):
            os.close(fd)
        os.set_inheritable(answer, False)  # what it starts must not hold its answer open
        os.environ.update(request.environment)
        _give_way()
        random.seed()
        gc.enable()
        status = run([str(a).replace(FD, str(answer)) for a in request.arguments])
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())  # into the log
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _give_way() -> None:
    os.nice(NICENESS)
    with suppress(OSError):  # where memory runs out it is this process that is killed, and not the server
        Path("/proc/self/oom_score_adj").write_text("500")
    with suppress(OSError):  # where sessions are scheduled as groups, it is the group's niceness that counts
        Path("/proc/self/autogroup").write_text(str(NICENESS))


def _end(pids: Iterable[int]) -> None:
    for pid in pids:
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
