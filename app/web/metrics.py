"""Counters in Prometheus' text format."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.fleet.metrics import figures as fleet_figures
from app.jobs import ledger
from app.jobs.tally import Figures


class Requests:
    """Counts responses by method and status class. Pure ASGI; one integer per combination, whatever the path."""

    def __init__(self) -> None:
        self.started = time.time()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.lock = threading.Lock()

    def around(self, app: ASGIApp) -> ASGIApp:
        """The same application, counted."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            async def count(message: Message) -> None:
                if message["type"] == "http.response.start":
                    method = scope["method"] if scope["method"] in _METHODS else "OTHER"
                    with self.lock:
                        self.counts[(method, f"{message['status'] // 100}xx")] += 1
                await send(message)

            await app(scope, receive, count if scope["type"] == "http" else send)

        return counted


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def exposition(state: Any) -> str:
    """All counters of this server as text; docs/operations.md says what each means."""
    with state.store.database.read() as connection:
        jobs, waiting = ledger.counts(connection), ledger.oldest_waiting(connection)
    with state.requests.lock:
        requests = sorted(state.requests.counts.items())
    done: Figures = state.queue.tally.figures()
    ages: dict[str, float] = {kind: age_s(waiting.get(kind)) for kind in ledger.KINDS}
    lines = [
        *_metric(
            "jobs", "gauge", "Jobs by kind and state, of all servers of this database.", _by("kind", "state", jobs)
        ),
        *_metric(
            "queue_depth",
            "gauge",
            "Jobs that wait.",
            [(f'{{kind="{k}"}}', jobs.get((k, "queued"), 0)) for k in ledger.KINDS],
        ),
        *_metric(
            "oldest_waiting_seconds", "gauge", "Age of the oldest job that waits, 0 without one.", _of("kind", ages)
        ),
        *_metric(
            "jobs_ended_total",
            "counter",
            "Jobs that ended here, by what ended them.",
            _by("kind", "reason", done.ended),
        ),
        *_metric("jobs_again_total", "counter", "Jobs that had to be done again here.", _of("kind", done.again)),
        *_metric("job_seconds_total", "counter", "Seconds that jobs ran here.", _of("kind", done.seconds)),
        *_metric("read_bytes_total", "counter", "Bytes of traces that were read here, as sent.", done.read_bytes),
        *_metric("read_seconds_total", "counter", "Seconds that reading them took.", done.read_seconds),
        *_metric("gpu_busy", "gauge", "1 while a job measures here.", int(done.gpu_busy)),
        *_metric("gpu_busy_seconds_total", "counter", "Seconds in which a job measured here.", done.gpu_busy_seconds),
        *_metric("gpu_suspect", "gauge", "1 while the GPU is suspect.", int(state.queue.gpu.suspicion is not None)),
        *_metric(
            "http_responses_total", "counter", "Responses since the server started.", _by("method", "status", requests)
        ),
        *_metric("advice_warm", "gauge", "1 once a process that advises stands ready.", int(state.service.warm)),
        *_metric("start_time_seconds", "gauge", "Unix time of the server's start.", round(state.requests.started, 3)),
        *(line for name, told, found in fleet_figures(state) for line in _metric(name, "gauge", told, found)),
        *_process(),
    ]
    return "\n".join(lines) + "\n"


def age_s(since: str | None) -> float:
    """Seconds since a time of ours (ISO 8601); 0 for None, and where the clock was set back."""
    if since is None:
        return 0.0
    return max(0.0, time.time() - datetime.fromisoformat(since).timestamp())


Samples = Sequence[tuple[str, float]]


def _by(first: str, second: str, counts: Any) -> Samples:
    pairs = sorted(counts.items() if isinstance(counts, dict) else counts)
    return [(f'{{{first}="{a}",{second}="{b}"}}', n) for (a, b), n in pairs]


def _of(label: str, counts: Mapping[str, float]) -> Samples:
    return [(f'{{{label}="{name}"}}', n) for name, n in sorted(counts.items())]


def _process() -> list[str]:
    """Memory and descriptors of this process, under the names that Prometheus' own clients use (Linux)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        descriptors = len(os.listdir("/proc/self/fd"))
    except OSError:
        return []
    memory = pages * os.sysconf("SC_PAGE_SIZE")
    return [
        *_metric(
            "process_resident_memory_bytes", "gauge", "Resident memory of the server's process.", memory, prefix=""
        ),
        *_metric("process_open_fds", "gauge", "Open file descriptors of it.", descriptors, prefix=""),
    ]


def _metric(name: str, kind: str, about: str, samples: Samples | float, prefix: str = "tritonworthy_") -> list[str]:
    values = samples if isinstance(samples, Sequence) else [("", samples)]
    lines = [f"{prefix}{name}{labels} {value:.3f}".removesuffix(".000") for labels, value in values]
    return [f"# HELP {prefix}{name} {about}", f"# TYPE {prefix}{name} {kind}", *lines]
