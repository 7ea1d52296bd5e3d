"""What /metrics tells, as Prometheus' own client writes it. The figures are read when they are asked for.

Imported with the first question for it: prometheus_client takes 20 ms, which no start of the server waits for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import datetime

import psutil
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.jobs.ray.metrics import figures as fleet_figures
from app.jobs.stats import Figures
from app.requests.state import ServerState
from app.storage import job_table
from app.web.server.state import WebState

CONTENT_TYPE = CONTENT_TYPE_LATEST


def exposition(state: WebState) -> bytes:
    """All counters of this server as text; docs/operations.md says what each means."""
    registry = CollectorRegistry()  # of this server, not of the process: a test runs several in one
    registry.register(Server(state))
    return generate_latest(registry)


class Server(Collector):
    """The figures of one server."""

    def __init__(self, state: WebState) -> None:
        self.state = state

    def collect(self) -> Iterator[Metric]:
        """Every metric with its samples now."""
        state = self.state
        yield from _jobs(state)
        with state.requests.lock:
            requests = dict(state.requests.counts)
        yield _counter("http_responses", "Responses since the server started.", requests, "method", "status")
        yield _gauge("advice_warm", "1 once a process that advises stands ready.", state.service.warm)
        yield _gauge("start_time_seconds", "Unix time of the server's start.", round(state.requests.started, 3))
        yield from fleet_figures(state.fleet, state.store.database)
        process = psutil.Process()
        memory, files = process.memory_info().rss, process.num_fds()
        yield GaugeMetricFamily("process_resident_memory_bytes", "Resident memory of the server's process.", memory)
        yield GaugeMetricFamily("process_open_fds", "Open file descriptors of it.", files)


def _jobs(state: ServerState) -> Iterator[Metric]:
    with state.store.database.read() as connection:
        jobs, waiting = job_table.counts(connection), job_table.oldest_waiting(connection)
    done: Figures = state.queue.stats.figures()
    depth: dict[str, float] = {kind: jobs.get((kind, "queued"), 0) for kind in job_table.KINDS}
    ages: dict[str, float] = {kind: age_s(waiting.get(kind)) for kind in job_table.KINDS}
    yield _gauge("jobs", "Jobs by kind and state, of all servers of this database.", jobs, "kind", "state")
    yield _gauge("queue_depth", "Jobs that wait.", depth, "kind")
    yield _gauge("oldest_waiting_seconds", "Age of the oldest job that waits, 0 without one.", ages, "kind")
    yield _counter("jobs_ended", "Jobs that ended here, by what ended them.", done.ended, "kind", "reason")
    yield _counter("jobs_again", "Jobs that had to be done again here.", done.again, "kind")
    yield _counter("job_seconds", "Seconds that jobs ran here.", done.seconds, "kind")
    yield _counter("read_bytes", "Bytes of traces that were read here, as sent.", done.read_bytes)
    yield _counter("read_seconds", "Seconds that reading them took.", done.read_seconds)
    yield _gauge("gpu_busy", "1 while a job measures here.", done.gpu_busy)
    yield _counter("gpu_busy_seconds", "Seconds in which a job measured here.", done.gpu_busy_seconds)
    yield _gauge("gpu_suspect", "1 while the GPU is suspect.", state.queue.gpu.suspicion is not None)


def age_s(since: str | None) -> float:
    """Seconds since a time of ours (ISO 8601); 0 for None, and where the clock was set back."""
    if since is None:
        return 0.0
    return max(0.0, time.time() - datetime.fromisoformat(since).timestamp())


Samples = float | Mapping[str, float] | Mapping[tuple[str, str], float]
"""One number, or numbers by the value of the one label or by those of the two."""


def _gauge(name: str, about: str, samples: Samples, *labels: str) -> Metric:
    return _fill(GaugeMetricFamily(f"tritonworthy_{name}", about, labels=labels), samples)


def _counter(name: str, about: str, samples: Samples, *labels: str) -> Metric:
    """name: without the `_total` that it ends with in the text."""
    return _fill(CounterMetricFamily(f"tritonworthy_{name}", about, labels=labels), samples)


def _fill(metric: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
    for key, value in sorted(samples.items()) if isinstance(samples, Mapping) else [((), samples)]:
        metric.add_metric((key,) if isinstance(key, str) else key, value)
    return metric
