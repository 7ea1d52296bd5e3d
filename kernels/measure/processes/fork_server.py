"""The process that children are forked from: torch, Dynamo, Inductor and Triton imported once, CUDA never touched.

`python -m kernels.measure.processes.fork_server FD` serves one socket. A request carries the new child's socket and
log; the answer
is its pid; the end of a child is told with waitpid's status (`messages`). Being a child subreaper, it also ends
what its children left behind. A fork takes about 10 ms, where a fresh import of torch takes seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import traceback

import msgspec

from kernels.measure.messages import Exited, Fork, Forked, Ready
from kernels.measure.processes.channel import Channel, ProtocolError, decode
from profiler.child.process import children_of, descendants

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
WARM_IMPORTS = (
    "torch",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "triton",
    "triton.language",
    "kernels.candidates",
    "kernels.codegen.generated",
    "kernels.measure.planner",
    "kernels.measure.candidate.worker",
)
WARM_REGION = "x: f32[4, 8]\nreturn F.gelu(x).float().softmax(-1)"
EXIT_EXCEPTION = 70  # EX_SOFTWARE: the child's module raised


def prctl(option: int, value: int) -> None:
    """Linux's prctl(2); silently nothing where libc has none."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _become(request: Fork, end: socket.socket, log: int, parent: int) -> None:
    """In the fork: own session and group, streams to the log, then the module's main. Never returns."""
    status = EXIT_EXCEPTION
    try:
        os.setsid()
        # A dump of a process that has torch and a GPU mapped takes seconds, in which its death is not told.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before it could be asked to take us along
            os._exit(EXIT_EXCEPTION)
        prctl(PR_SET_CHILD_SUBREAPER, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(request.env)
        if request.execute:
            os.set_inheritable(end.fileno(), True)
            os.execv(sys.executable, [sys.executable, "-m", request.module, str(end.fileno())])
        importlib.import_module(request.module).main(Channel(end))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _reap(channel: Channel, known: set[int]) -> None:
    """Tell of every child that ended; what it left behind was reparented to us (we are subreaper) and is killed."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid not in known:
            continue
        known.discard(pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # its group outlives it when it forked
        for orphan in children_of().get(os.getpid(), []):
            if orphan not in known:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(orphan, signal.SIGKILL)
        channel.send(Exited(pid, status))


def _fork(channel: Channel, request: Fork, fds: list[int]) -> int:
    end, log = socket.socket(fileno=fds[0]), fds[1]
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        channel.close()
        _become(request, end, log, parent)
    end.close()
    os.close(log)
    channel.send(Forked(pid))
    return pid


def serve(channel: Channel) -> None:
    """Until the socket closes or the parent is gone."""
    known: set[int] = set()
    parent = os.getppid()
    wake, woken = socket.socketpair()
    for one in (wake, woken):
        one.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    while True:
        # A timeout, since a fork of the parent could hold the socket open after the parent's death. Not
        # PR_SET_PDEATHSIG: that is bound to the parent's thread, and a pool's threads end before the process.
        ready, _, _ = select.select([channel.end, wake], [], [], 2.0)
        if os.getppid() != parent:
            return
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                wake.recv(4096)
            _reap(channel, known)
        if channel.end in ready:
            message, fds, _, _ = socket.recv_fds(channel.end, 65536, 2)
            if not message:
                return
            request = msgspec.convert(decode(message), Fork)
            if len(fds) != 2:
                raise ProtocolError("a fork needs a socket and a log")
            known.add(_fork(channel, request, fds))


def warm() -> None:
    """What every child would import and set up for itself. FakeTensors only: no kernel, no thread, no CUDA.

    What fails here fails again in the child that needs it, where it costs one candidate and is told.
    """
    for name in WARM_IMPORTS:
        try:
            importlib.import_module(name)
        except Exception:
            traceback.print_exc()
    try:
        from profiler.region.graph.lowering import lower
        from profiler.region.language.text import parse

        lower(parse(WARM_REGION))
    except Exception:
        traceback.print_exc()


def main(descriptor: int, warmed: bool) -> None:
    """Import, say so, serve. Whatever is left of the children when the parent goes away is killed."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    channel = Channel(socket.socket(fileno=descriptor))
    if warmed:
        warm()
    # Collected now and never looked at again: pages stay shared with the children.
    gc.collect()
    gc.freeze()
    channel.send(Ready(os.getpid()))
    try:
        serve(channel)
    except (OSError, ProtocolError, msgspec.ValidationError):
        traceback.print_exc()
    finally:
        for one in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "warm")
