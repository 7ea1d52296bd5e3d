"""Who runs a job: one life of one server process, told apart from all others, on every host and in every container.

An owner is PLACE/PID.START/RANDOM. Only an owner of the same place can be known to be dead; of all others the lease
tells. A place is a host since its last boot, seen from one PID namespace (Linux): two containers of one host are two.

/proc is read by hand here: psutil tells neither the boot's id nor the namespace, and a start only by a clock that may
be set; its walk over all environments, which the end of each job waits for, takes 15 ms where this one takes 1.2
(96 processes).
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

MARK = "TRITONWORTHY_CHILD"
"""In the environment of a child and of all that it starts: how strays are found, whatever session they moved to."""

GONE_S = 10.0
"""SIGKILL ends a process at once unless it hangs in the kernel (a driver)."""


def here() -> str:
    """This place; "" where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return ""
    return f"{socket.gethostname()}~{boot}~{namespace}"


def owner(pid: int | None = None) -> str:
    """A new owner: of this process, or of one that runs here."""
    process = os.getpid() if pid is None else pid
    return f"{here()}/{process}.{_start(process)}/{secrets.token_hex(8)}"


def is_dead(name: str) -> bool:
    """Whether that owner is known to be gone: no need to wait for its lease then. A pid used again is another life."""
    place, _, rest = name.partition("/")
    pid, _, start = rest.partition("/")[0].partition(".")
    if not place or place != here() or not pid.isdigit():
        return False
    return _start(int(pid)) != start


def end_children(name: str) -> None:
    """Kill what a server of this place left running, before its jobs are done again. Returns when it is gone."""
    if not here() or name.partition("/")[0] != here():
        return
    deadline = time.monotonic() + GONE_S
    while (left := find_marked(f"{name}/")) and time.monotonic() < deadline:
        kill(left)
        time.sleep(0.01)


def find_marked(mark: str) -> list[int]:
    """Living processes whose mark begins so, by their environment (Linux)."""
    wanted = f"{MARK}={mark}".encode()
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if wanted in _environ(folder)]


def kill(pids: list[int]) -> None:
    """SIGKILL to each that is still there."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _start(pid: int) -> str:
    """When the process started, in clock ticks since boot; "" for one that is none, or that only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _environ(folder: Path) -> bytes:
    try:
        return (folder / "environ").read_bytes()
    except OSError:  # somebody else's process, or gone by now
        return b""
