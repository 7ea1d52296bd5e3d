"""The fleet's counters by kind of GPU: slots and hosts, and what its jobs of the last hour waited, ran and failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from prometheus_client.core import GaugeMetricFamily

from app.jobs.ray.runner import RayRunner
from app.storage.database import Database, iso
from app.storage.tables import jobs

HOUR_S = 3600
MOST_JOBS = 5000


def figures(fleet: RayRunner | None, database: Database) -> Iterator[GaugeMetricFamily]:
    """Gauges labelled by `device`, the kind of GPU; none without a fleet."""
    if fleet is None:
        return
    kinds = fleet.kinds()
    for name, about, samples in [
        ("slots", "Measurements that a kind's hosts take at once.", [(k.device, k.slots) for k in kinds]),
        ("busy", "Measurements under way on a kind, of all servers.", [(k.device, k.busy) for k in kinds]),
        ("hosts", "Hosts of a kind.", [(k.device, k.nodes) for k in kinds]),
        ("sick_hosts", "Hosts of a kind that get no work.", [(k.device, len(k.sick)) for k in kinds]),
        *_jobs(database),
    ]:
        gauge = GaugeMetricFamily(f"tritonworthy_fleet_{name}", about, labels=["device"])
        for device, value in samples:
            gauge.add_metric([device], value)
        yield gauge


def _jobs(database: Database) -> list[tuple[str, str, Sequence[tuple[str, float]]]]:
    since = iso(datetime.now(UTC) - timedelta(seconds=HOUR_S))
    on = jobs.c.accelerator
    ended = sa.select(on, jobs.c.state, jobs.c.created_at, jobs.c.started_at, jobs.c.finished_at).where(
        on.is_not(None), jobs.c.finished_at > since, jobs.c.started_at.is_not(None)
    )
    waiting = sa.select(on, sa.func.count()).where(on.is_not(None), jobs.c.state == "queued").group_by(on)
    with database.read() as connection:
        rows = connection.execute(ended.order_by(jobs.c.finished_at.desc()).limit(MOST_JOBS)).all()
        queued = [(kind, count) for kind, count in connection.execute(waiting)]
    count: Counter[str] = Counter(row[0] for row in rows)
    failed: Counter[str] = Counter(row[0] for row in rows if row[1] == "failed")
    waits, runs = Counter[str](), Counter[str]()
    for kind, _, created, started, finished in rows:
        waits[kind] += int(1e3 * _between(created, started))
        runs[kind] += int(1e3 * _between(started, finished))
    return [
        ("queue_depth", "Jobs that wait for a kind.", sorted(queued)),
        ("wait_seconds", "Mean wait of the last hour's jobs.", _means(waits, count)),
        ("run_seconds", "Mean run of the last hour's jobs.", _means(runs, count)),
        ("failed_share", "Share of the last hour's jobs that failed.", [
            (kind, failed[kind] / count[kind]) for kind in sorted(count)
        ]),
    ]  # fmt: skip


def _means(total_ms: Counter[str], count: Counter[str]) -> Sequence[tuple[str, float]]:
    return [(kind, round(total_ms[kind] / 1e3 / count[kind], 3)) for kind in sorted(count)]


def _between(start: str, end: str) -> float:
    return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())
