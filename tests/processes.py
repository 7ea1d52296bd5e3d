"""What tests of processes ask again and again: whether one runs, and what comes to pass in its own time."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def received(connection: socket.socket) -> bytes:
    """All that comes by a connection until the other side closes it."""
    found = b""
    while more := connection.recv(65536):
        found += more
    return found


def wait_for(condition: Callable[[], Any], seconds: float = 120, what: object = "") -> Any:
    """What it says as soon as that is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return found
