"""A child process as who watches it sees it, whether it was started from a command or forked from a template.

/proc is read by hand: this package needs no more than the reader's wheels, and psutil is none of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

FORK = "{fork}"
"""First word of a command that is no program: its other words are given to a template's fork."""

FORK_INTERPRETED = "{fork interpreted}"
"""The same, of the template in which Triton's kernels run in its interpreter: that is known when Triton is imported."""

FD = "{fd}"
"""Stands in a command for the number of the descriptor to answer on."""


class Process(Protocol):
    """It leads a session and a process group of its own."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Its exit status, -N where signal N ended it; None while it runs."""
        ...

    def wait(self, timeout_s: float) -> int | None:
        """Its exit status, or None after so long."""
        ...


class Started:
    """A program of its own."""

    def __init__(
        self, command: Sequence[str], *, stdin: int, answer: int, log: int, cwd: Path | None, env: Mapping[str, str]
    ) -> None:
        self._process = subprocess.Popen(
            [part.replace(FD, str(answer)) for part in command],
            stdin=stdin,
            stdout=log,
            stderr=log,
            pass_fds=(answer,),
            start_new_session=True,
            cwd=cwd,
            env=dict(env),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, timeout_s: float) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None


def terminate(process: Process) -> None:
    """SIGTERM to the leader alone: it tidies up after the processes that it started."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGTERM)


def kill_tree(process: Process) -> None:
    """SIGKILL to the leader, to its group, and to all that it started in sessions of their own."""
    if process.poll() is None:
        kill_all_of(process.pid)


def kill_all_of(pid: int) -> None:
    """SIGKILL to pid, to its group where it leads one, and to everything below it, whatever session that is in."""
    try:
        below = descendants(pid)  # first: what loses its parent is below it no more
    except OSError:  # no descriptor left to look with
        below = []
    for kill, one in ((os.killpg, pid), (os.kill, pid), *((os.kill, one) for one in below)):
        with suppress(ProcessLookupError, PermissionError):
            kill(one, signal.SIGKILL)


def children_of() -> dict[int, list[int]]:
    """Parent -> children, of every process of the host (Linux); {} where the system does not tell."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit():
            continue
        with suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
            parent = int(file.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    return children


def descendants(pid: int) -> list[int]:
    """All processes below pid, nearest first (Linux)."""
    children = children_of()
    below, wave = list[int](), [pid]
    while wave:
        wave = [child for one in wave for child in children.get(one, ())]
        below += wave
    return below
