"""Leases by observation: a job is lost when its lease has stood unchanged before our own eyes for a whole lease.

`lease_until` is never compared with a clock. Each heartbeat changes it, and every server times by its own monotonic
clock for how long it has not changed: neither a clock that is set nor two that differ take a job from a living server,
or keep one for a dead server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from app.storage.job_table import Lease


class Leases:
    """Thread-safe. A server that has just begun knows nothing: it takes a job after a whole lease at the earliest."""

    def __init__(self, lease_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.lease_s = lease_s
        self.clock = clock
        self.since: dict[Lease, float] = {}
        self.lock = threading.Lock()

    def over(self, running: Iterable[Lease]) -> list[Lease]:
        """Take note of all running jobs; those whose lease is over."""
        now = self.clock()
        with self.lock:
            self.since = {lease: self.since.get(lease, now) for lease in running}
            return [lease for lease, seen in self.since.items() if now - seen > self.lease_s]

    def forget(self) -> None:
        """Nobody could renew anything for a while (the database was locked): begin to count anew."""
        with self.lock:
            self.since.clear()
