"""What one validation costs the store: seconds of each of its transactions, on SQLite and PostgreSQL, by threads.

python -m benchmarks.fleet.fleet_store --out tests/records/fleet-store.json

The rows are real (app.storage.store, app.storage.job_table); a thread is one lane of a server. The simulation of a
fleet
(tools/fleet/fleet_simulation.py) takes its service times from here. PostgreSQL is the one of the tests: fsync is off.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import sqlalchemy as sa

from app.objects.record import ValidationBody
from app.objects.task import ValidateTask
from app.storage import job_table
from app.storage.store import Asked, Store
from tests.postgres import Postgres, binaries

ROOT = Path(__file__).resolve().parent.parent.parent
ANSWER = ROOT / "app" / "archive" / "records"
BEATS, EVENTS = 5, 12
"""Heartbeats and progress events of a job: of a validation of 25 s at the default lease, and what it says."""


def region() -> dict[str, Any]:
    """A real record: the size of an answer matters."""
    record = min(ANSWER.glob("*.json"), key=lambda p: abs(p.stat().st_size - 60_000))
    advice: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    return advice


def one_job(store: Store, owner: str, answer: dict[str, Any], took: dict[str, list[float]]) -> None:
    """A validation's life in the store, each transaction timed."""

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        took[name].append(time.perf_counter() - began)

    request = {"region": answer["region"], "advice_before": answer["advice_before"], "on": "NVIDIA H200"}
    with timed("submit"):
        store.add_validations([Asked("r", answer["region"], None, cast(ValidateTask, request))], cap=10**9)
    job = None
    with timed("claim"), store.database.write() as connection:
        job = job_table.claim(connection, kind="validate", owner=owner, lease_s=15)
    if job is None:
        return
    key: dict[str, Any] = {"job_id": job["id"], "owner": owner, "attempt": job["attempt"]}
    for _ in range(EVENTS):
        with timed("progress"), store.database.write() as connection:
            job_table.add_event(connection, job["id"], "progress", job_table.progress("measuring", "eager: ready"))
    for _ in range(BEATS):
        with timed("heartbeat"), store.database.write() as connection:
            job_table.heartbeat(connection, **key, lease_s=15)
    with timed("finish"):
        store.finish_validation(**key, validation=cast("ValidationBody", answer))
    with timed("poll"):
        store.job_state(job["id"])


def measure(url: str, threads: int, seconds: float) -> dict[str, Any]:
    """Jobs a second, and the median seconds of each transaction, with so many lanes at once."""
    answer = region()
    store = Store(url)
    took: list[dict[str, list[float]]] = []
    stop = threading.Event()

    def lane(number: int) -> None:
        mine: dict[str, list[float]] = {n: [] for n in ("submit", "claim", "progress", "heartbeat", "finish", "poll")}
        took.append(mine)
        while not stop.is_set():
            one_job(store, f"bench/{number}", answer, mine)

    lanes = [threading.Thread(target=lane, args=(n,)) for n in range(threads)]
    began = time.perf_counter()
    for thread in lanes:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in lanes:
        thread.join()
    span = time.perf_counter() - began
    store.close()
    times = {name: [t for mine in took for t in mine[name]] for name in took[0]}
    jobs = len(times["finish"])
    return {
        "threads": threads, "jobs": jobs, "jobs_per_s": round(jobs / span, 1),
        "median_s": {name: round(statistics.median(durations_s), 6) for name, durations_s in times.items()},
    }  # fmt: skip


def advice_s() -> float:
    """Median seconds of what the web does for one submission: a region prepared and advised on, its imports warm."""
    from app.analysis.service import advise_region

    texts = [json.loads(p.read_text(encoding="utf-8"))["region"] for p in sorted(ANSWER.glob("*.json"))[:20]]
    advise_region(texts[0])

    def timed(call: Callable[[], Any]) -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    return statistics.median(timed(lambda text=text: advise_region(text)) for text in texts)  # type: ignore[misc]


def main() -> None:
    """Measure and print; --out keeps it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "host": {"cpus": os.cpu_count(), "python": platform.python_version(), "sqlalchemy": sa.__version__},
        "date": time.strftime("%Y-%m-%d"), "beats": BEATS, "events": EVENTS,
        "advice_s": round(advice_s(), 5), "sqlite": [], "postgresql": [],
    }  # fmt: skip
    for threads in (1, 4):
        with tempfile.TemporaryDirectory() as folder:
            report["sqlite"].append(measure(f"sqlite:///{folder}/bench.db", threads, arguments.seconds))
    if (bin_dir := binaries()) is not None:
        server = Postgres(bin_dir)
        try:
            server.create()
            server.start()
            for threads in (1, 4):
                with server.database() as url:
                    report["postgresql"].append(measure(url, threads, arguments.seconds))
        finally:
            server.remove()
    text = json.dumps(report, indent=2) + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
