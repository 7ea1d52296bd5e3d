"""Processes: who is below whom, what they take of memory together, who was left behind.

Who is there is read from /proc by hand: psutil's walk takes ten times as long, which what is measured would feel, and a
start in seconds of a clock that may be set does not tell two lives of one pid apart.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

PROC = Path("/proc")
PR_SET_CHILD_SUBREAPER = 36
MB = 1e6


@dataclass(frozen=True, slots=True)
class Process:
    """started: clock ticks since boot, which tells two lives of one pid apart. state: as in /proc, Z for a zombie.

    name: of the executable, at most 15 characters; all that is left of a zombie.
    """

    pid: int
    name: str
    parent: int
    state: str
    started: int

    @property
    def life(self) -> tuple[int, int]:
        return self.pid, self.started

    @property
    def dead(self) -> bool:
        return self.state in "ZX"


def table() -> dict[int, Process]:
    """Every process, by pid, those that have ended and were not waited for as well."""
    processes = {}
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            process = parse_stat((folder / "stat").read_text())
            processes[process.pid] = process
    return processes


def parse_stat(text: str) -> Process:
    """A line of /proc/PID/stat. The name stands in brackets and may hold brackets and spaces of its own."""
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    return Process(int(pid), name, int(fields[1]), fields[0], int(fields[19]))


def below(root: int, processes: Mapping[int, Process]) -> dict[int, int]:
    """pid -> depth of all processes below one, 1 for its children; the process itself is not among them."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    depths: dict[int, int] = {}
    wave, depth = [root], 0
    while wave:
        depth += 1
        wave = [c for pid in wave for c in children.get(pid, []) if c not in depths and c != root]
        depths.update(dict.fromkeys(wave, depth))
    return depths


def command(pid: int) -> str:
    """What a process runs, without the interpreter and its options; "" where it has ended."""
    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return ""
    told = [w for w in words[1:] if w and not w.startswith("-") and not w.isdigit()]
    return " ".join(" ".join(told or words).split())[:60]


def pss(pids: list[int]) -> int:
    """Proportional set size of processes together, bytes: a page that several share counts once."""
    total = 0
    for pid in pids:
        with suppress(psutil.Error):  # it has ended, or waits to be reaped
            total += psutil.Process(pid).memory_full_info().pss
    return total


def adopt_orphans() -> None:
    """From now on what loses its parent below this process becomes its child, and does not escape to init."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def reap(pid: int) -> None:
    """Take the status of a child that has ended; nothing where it has not, or is none of ours."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


class MemoryWatch:
    """Peak memory (PSS) of a process and all below it, until `stop`.

    limit_bytes: `over` is called, once, in the watching thread, as soon as more is taken.
    """

    def __init__(
        self,
        root: int,
        every_s: float = 0.2,
        limit_bytes: float = float("inf"),
        over: Callable[[], None] = lambda: None,
    ) -> None:
        self.root, self.every_s, self.limit_bytes, self.over = root, every_s, limit_bytes, over
        self.peak_bytes, self.samples, self.exceeded = 0, 0, False
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.done.is_set():
            began = time.monotonic()
            self.peak_bytes = max(self.peak_bytes, tree_pss(self.root))
            self.samples += 1
            if self.peak_bytes > self.limit_bytes and not self.exceeded:
                self.exceeded = True
                self.over()
            # Walking the page tables of gigabytes takes time of the machine that is measured: at most a fifth of it.
            self.done.wait(max(self.every_s, 4 * (time.monotonic() - began)))

    def stop(self) -> float:
        """The peak in MB."""
        self.done.set()
        self.thread.join()
        return self.peak_bytes / MB


def tree_pss(root: int) -> int:
    """Bytes that a process and all below it take now."""
    return pss([root, *below(root, table())])
