"""A child process as who watches it sees it, whether it was started from a command or forked from a template."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

FORK = "{fork}"
"""First word of a command that is no program: its other words are what a template's fork is told."""

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
    if process.poll() is not None:
        return
    below = descendants(process.pid)
    for kill, pid in ((os.killpg, process.pid), (os.kill, process.pid), *((os.kill, pid) for pid in below)):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """All processes below pid, nearest first (Linux)."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    below, wave = list[int](), [pid]
    while wave:
        wave = [child for one in wave for child in children.get(one, ())]
        below += wave
    return below
