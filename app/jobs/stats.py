"""What this server has done since it started, in numbers: app.web.server.metrics shows them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.objects.job import JobKind

GPU_KINDS: frozenset[JobKind] = frozenset({"validate", "landscape"})
"""Kinds whose jobs measure on the GPU; a check may do so too, and says `unmeasured` where it cannot."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One reading. ended and seconds by kind and how the child ended; bytes and seconds of traces that were read."""

    ended: dict[tuple[str, str], int]
    seconds: dict[str, float]
    again: dict[str, int]
    read_bytes: int
    read_seconds: float
    gpu_busy_seconds: float
    gpu_busy: bool


class JobStats:
    """Counts. Thread-safe."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.seconds: Counter[str] = Counter()
        self.again: Counter[str] = Counter()
        self.read_bytes = 0
        self.read_seconds = 0.0
        self.on_gpu = 0
        self.busy_since = 0.0
        self.busy_s = 0.0

    @contextmanager
    def running(self, kind: JobKind) -> Iterator[None]:
        """Around a child: its time counts for its kind, and as the GPU's where it measures. Two at once count once."""
        began = time.monotonic()
        with self.lock:
            self.on_gpu += kind in GPU_KINDS
            if kind in GPU_KINDS and self.on_gpu == 1:
                self.busy_since = began
        try:
            yield
        finally:
            now = time.monotonic()
            with self.lock:
                self.seconds[kind] += now - began  # type: ignore[assignment]  # a Counter of seconds
                self.on_gpu -= kind in GPU_KINDS
                if kind in GPU_KINDS and not self.on_gpu:
                    self.busy_s += now - self.busy_since

    def ended(self, kind: JobKind, reason: str) -> None:
        """A job ended, for good."""
        with self.lock:
            self.outcomes[(kind, reason)] += 1

    def queued_again(self, kind: str) -> None:
        """A job has to be done again."""
        with self.lock:
            self.again[kind] += 1

    def read(self, size: int, seconds: float) -> None:
        """A trace of so many bytes, as it was sent, was read."""
        with self.lock:
            self.read_bytes += size
            self.read_seconds += seconds

    def figures(self) -> Figures:
        """All of it at this moment."""
        with self.lock:
            running_s = time.monotonic() - self.busy_since if self.on_gpu else 0.0
            return Figures(
                ended=dict(self.outcomes),
                seconds={k: float(v) for k, v in self.seconds.items()},
                again=dict(self.again),
                read_bytes=self.read_bytes,
                read_seconds=self.read_seconds,
                gpu_busy_seconds=self.busy_s + running_s,
                gpu_busy=self.on_gpu > 0,
            )
