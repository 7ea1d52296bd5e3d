"""init: what the first process of a container has to do, around the server.

In a container the server's command is process 1. The kernel gives it every process whose parent ends before it, to be
reaped, and takes from it the default action of signals: a SIGTERM that comes before the server has a handler would be
ignored. So process 1 stays this small program, which forks before anything is imported: its child is the server. It
passes signals on and reaps whatever ends. The server itself could only do the second with waitpid(-1), which takes from
`subprocess` the exit status of its own children. No package of the distribution is needed, in any image.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def under_init(serve: Callable[[], int]) -> int:
    """`serve()`, in a child of this process where this is process 1; the exit status."""
    return as_init(serve) if os.getpid() == 1 else serve()


def as_init(serve: Callable[[], int]) -> int:
    """Run it in a child, pass signals on to it and reap all that ends; the child's status, 128 + N for signal N.

    A child that ends by a signal that was passed on did as it was told: 0. Call it before there are threads.
    """
    waited_for = {*PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)  # none is lost between the fork and the loop
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)  # Ctrl-C comes to us, and from us to the server: once
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return serve()
    sent: set[int] = set()
    while True:
        number = signal.sigwait(waited_for)
        if number == signal.SIGCHLD:
            status = _reap(child)
            if status is not None:
                return _exit_status(status, sent)
        else:
            sent.add(number)
            os.kill(child, number)


def _reap(child: int) -> int | None:
    """Reap all that have ended; the wait status of this child where it is one of them."""
    status_of_child = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status_of_child
        if pid == 0:
            return status_of_child
        if pid == child:
            status_of_child = status


def _exit_status(status: int, sent: set[int]) -> int:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    return 0 if -code in sent else 128 - code
