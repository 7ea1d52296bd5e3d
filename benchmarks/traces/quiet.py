"""A host where nothing else of this program runs: one process is timed while the others, which compile, are stopped.

What the processes of others do is theirs: the host's state is told beside every figure.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

SETTLE_S = 0.3
"""From stopping the others to the first figure: what they had launched is done by then."""
PROC = Path("/proc")


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """While this holds, no other process that came here runs on, and none that is in `folder` by its id runs at all."""
    with (folder / "quiet.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stopped = [pid for told in folder.glob("*.pid") if (pid := int(told.stem)) != os.getpid()]
        try:
            for pid in stopped:
                _send(pid, signal.SIGSTOP)
            time.sleep(SETTLE_S)
            yield
        finally:
            for pid in stopped:
                _send(pid, signal.SIGCONT)


def enter(folder: Path) -> None:
    """From here on this process is stopped while another is timed."""
    (folder / f"{os.getpid()}.pid").touch()


def leave(folder: Path, pid: int) -> None:
    """It has ended. Those that it had stopped, if it was ended in between, run on."""
    (folder / f"{pid}.pid").unlink(missing_ok=True)
    with (folder / "quiet.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # somebody is timed, and lets them go
        for told in folder.glob("*.pid"):
            _send(int(told.stem), signal.SIGCONT)


def _send(pid: int, what: signal.Signals) -> None:
    """To a process and all that it started."""
    children: dict[int, list[int]] = {}
    for stat in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(stat.read_text("utf-8", errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    family = [pid]
    for one in family:
        family += children.get(one, ())
    for one in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, what)


def host_state() -> dict[str, float | int | str]:
    """What may slow this process: how many processors there are, how many processes wanted one in the last minute."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        return {"processor": name, "processors": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 1)}
    return {"processors": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 1)}
