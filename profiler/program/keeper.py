"""Runs the process in which a program is recorded, and ends with it all that it started, in whatever session.

What loses its parent becomes this process's (PR_SET_CHILD_SUBREAPER, Linux): nothing gets away from it. It imports
nothing of the user's and no torch.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from contextlib import suppress

from profiler.child.process import descendants

PR_SET_CHILD_SUBREAPER = 36
TRIES, PAUSE_S = 100, 0.02


def main(arguments: list[str]) -> int:
    """arguments: as `child.main` takes them. Begins once stdin is closed: then the limits are imposed."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.read(0, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    worker = os.fork()
    if worker == 0:
        _work(arguments)
    _, status = os.waitpid(worker, 0)
    _end_all()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:  # who waits for this process is to see the signal
        with suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _work(arguments: list[str]) -> None:
    """The worker's life; never returns. Threads that the program left running do not hold it."""
    status = 1
    try:
        from profiler.program import child

        status = child.main(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _end_all() -> None:
    """Ends what the worker left."""
    for _ in range(TRIES):
        left = descendants(os.getpid())
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
