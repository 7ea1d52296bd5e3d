"""Web processes that share one PostgreSQL, while they and their workers are killed: is every job done, and once?

    python benchmarks/fleet/fleet_jobs.py --jobs 2000 --out tests/records/fleet-jobs.json

Real: the servers (`tritonworthy serve`, fleet_server.py), HTTP, PostgreSQL, the queue, child processes, SIGKILL.
Not real: what a child does (fleet_child.py sleeps and keeps a diary), and the network between hosts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import httpx
import sqlalchemy as sa

from app.storage.job_table import FINAL
from app.storage.tables import events, jobs, validations
from benchmarks.fleet.fleet_hosts import LEASE_S, Fleet, running
from tests.postgres import Postgres, binaries

Json = dict[str, Any]

SUBMITTERS = 4
JOB_MS = (20, 120)
LONG_MS = 60_000


class Reaper(threading.Thread):
    """Kills workers, and servers at most so many times, at random moments.

    A supervisor would start the servers again, so it does.
    """

    def __init__(
        self, fleet: Fleet, chance: random.Random, worker_every_s: float, web_every_s: float, web_kills: int
    ) -> None:
        super().__init__(daemon=True)
        self.fleet = fleet
        self.chance = chance
        self.every = {"worker": worker_every_s, "web": web_every_s}
        self.web_kills = web_kills
        self.kills: Counter[str] = Counter()
        self.over = threading.Event()
        self.fault: BaseException | None = None

    def run(self) -> None:
        """Each kind in a thread of its own: a server that starts again takes longer than all jobs may last."""
        threads = [threading.Thread(target=self._kill, args=(what,), daemon=True) for what in self.every]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _kill(self, what: str) -> None:
        try:
            due = time.monotonic() + self._pause(what)
            while not self.over.wait(0.05):
                # Where nothing was there to be killed, at the next look.
                if time.monotonic() >= due and getattr(self, what)():
                    due = time.monotonic() + self._pause(what)
        except BaseException as fault:
            self.fault = fault
            raise

    def _pause(self, what: str) -> float:
        return self.chance.uniform(0.3, 1.7) * self.every[what]

    def worker(self) -> bool:
        """Whether one was killed."""
        children = self.fleet.processes("fleet_child")
        if children:
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(children), signal.SIGKILL)
                self.kills["worker"] += 1
                return True
        return False

    def web(self) -> bool:
        """Whether one was killed, and is up again."""
        if self.kills["web"] == self.web_kills:
            return False
        server = self.chance.choice(self.fleet.servers)
        server.kill()
        self.kills["web"] += 1
        self.over.wait(self.chance.uniform(0.0, 2 * LEASE_S))  # at once, or long after its leases were over
        server.start()
        server.wait()
        return True


def follow(fleet: Fleet, job_id: str, chance: random.Random) -> tuple[list[int], float]:
    """Read a job's events to the end, from any server, going on at another one when it is cut off.

    The events' numbers, and how long after its commit the last one was here (s; one host, one clock).
    """
    seen: list[int] = []
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        url = f"{chance.choice(fleet.servers).url}/api/v1/jobs/{job_id}/events"
        after = {"Last-Event-ID": str(seen[-1])} if seen else {}
        with suppress(httpx.HTTPError), httpx.stream("GET", url, headers=after, timeout=20, trust_env=False) as lines:
            kind = ""
            for line in lines.iter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("id: ") and kind != "bye":
                    seen.append(int(line.removeprefix("id: ")))
                elif line == "" and kind == "done":
                    arrived = time.time()
                    with fleet.store.database.read() as connection:
                        ended = connection.scalar(sa.select(jobs.c.finished_at).where(jobs.c.id == job_id))
                    return seen, arrived - _seconds(ended)
        time.sleep(0.2)
    raise AssertionError(f"no end of {job_id}: {seen}")


def _seconds(stamp: str | None) -> float:
    from datetime import datetime

    assert stamp is not None
    return datetime.fromisoformat(stamp).timestamp()


def verify(fleet: Fleet) -> Json:
    """Every job that was accepted ended once, with the answer of one run of it; AssertionError where not."""
    with fleet.store.database.read() as connection:
        rows = {r["id"]: r for r in connection.execute(sa.select(jobs)).mappings()}
        bodies = dict(map(tuple, connection.execute(sa.select(validations.c.id, validations.c.body))))
        numbers: dict[str, list[int]] = {}
        ends: Counter[str] = Counter()
        for job_id, seq, event in connection.execute(
            sa.select(events.c.job_id, events.c.seq, events.c.event).order_by(events.c.job_id, events.c.seq)
        ):
            numbers.setdefault(job_id, []).append(seq)
            ends[job_id] += event == "done"
    assert fleet.accepted.keys() <= rows.keys(), "lost"
    assert len(rows) - len(fleet.accepted) <= len(fleet.unanswered), "jobs that nobody asked for"
    assert {row["state"] for row in rows.values()} <= FINAL
    assert set(ends.values()) == {1}, "ended twice"
    assert all(sequence == list(range(1, len(sequence) + 1)) for sequence in numbers.values())
    runs, unfinished = 0, 0
    for job_id, row in rows.items():
        number = int(re.findall(r"f32\[(\d+)\]", row["request"]["region"])[0])
        path = fleet.folder / "diary" / str(number)
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        begun = [line for line in lines if line[0] == "begin"]
        ended = {line[1] for line in lines if line[0] == "end"}
        assert all(line[3] == "0" for line in begun), f"two runs of {job_id} at once"
        assert len(begun) <= row["attempt"], f"{job_id} was run more often than it was claimed"
        assert (row["state"] == "done") == (bodies[job_id] is not None)
        if row["state"] == "done":
            assert bodies[job_id]["reason"] in ended, f"the answer of {job_id} is of no run of it"
        runs += len(begun)
        unfinished += len(begun) - len(ended)
    states = Counter(row["state"] for row in rows.values())
    return {
        "accepted": len(fleet.accepted),
        "unanswered_submissions": len(fleet.unanswered),
        "of_these_taken": len(rows) - len(fleet.accepted),
        **{state: states[state] for state in sorted(FINAL)},
        "errors": dict(Counter(row["error"]["code"] for row in rows.values() if row["error"])),
        "attempts": {str(n): count for n, count in sorted(Counter(r["attempt"] for r in rows.values()).items())},
        "runs": runs,
        "runs_cut_off": unfinished,
        "two_runs_at_once": 0,
    }


def storm(
    fleet: Fleet, count: int, seed: int, *, worker_every_s: float, web_every_s: float, web_kills: int, followed: int
) -> Json:
    """`count` jobs through servers that are killed; what was found."""
    chance = random.Random(seed)
    reaper = Reaper(fleet, random.Random(seed + 1), worker_every_s, web_every_s, web_kills)
    began = time.monotonic()
    reaper.start()
    watching: list[threading.Thread] = []
    streams: list[tuple[list[int], float]] = []
    numbers = iter(range(count))

    def ask(own: random.Random) -> None:
        for _ in numbers:
            assert reaper.fault is None, reaper.fault
            while (made := fleet.submit(own.choice(fleet.servers), own.randint(*JOB_MS))) is None:
                time.sleep(0.1)
            if len(watching) < followed and own.random() < 2 * followed / count:
                watching.append(threading.Thread(target=lambda i=made: streams.append(follow(fleet, i, own))))
                watching[-1].start()

    with ThreadPoolExecutor(SUBMITTERS) as together:
        list(together.map(ask, [random.Random(chance.random()) for _ in range(SUBMITTERS)]))
    submitted = time.monotonic() - began
    while fleet.count_unfinished():
        assert reaper.fault is None, reaper.fault
        assert time.monotonic() - began < 60 + count * 3, f"{fleet.count_unfinished()} jobs do not end"
        time.sleep(0.2)
    took = time.monotonic() - began
    reaper.over.set()
    reaper.join(150)
    for thread in watching:
        thread.join(60)
    assert len(streams) == len(watching), "a stream did not end"
    assert all(seen == list(range(1, len(seen) + 1)) for seen, _ in streams), "an event was missed or told twice"
    late = sorted(s for _, s in streams)
    return {
        "kills": dict(reaper.kills),
        "submitted_in_s": round(submitted, 1),
        "all_ended_in_s": round(took, 1),
        "streams_followed": len(streams),
        "last_event_late_s": {"median": round(median(late), 3), "most": round(late[-1], 3)} if late else None,
        **verify(fleet),
    }


def measure_reactions(fleet: Fleet, times: int) -> Json:
    """How soon one server does what another was asked, with nothing else to do (s): cancel, and take a waiting job."""
    cancelled, taken = [], []
    for _ in range(times):
        long = fleet.submit(fleet.servers[0], LONG_MS)
        assert long is not None
        owner = until(lambda job=long: fleet.owner(job))
        other = next(s for s in fleet.servers if s is not owner)
        # Asked of the busy one: the idle one has to find it by itself.
        short = fleet.submit(owner, JOB_MS[0])
        assert short is not None
        until(lambda job=short: fleet.store.job_state(job) == "done")
        row = fleet.store.job(short)
        assert row is not None
        taken.append(_seconds(row["started_at"]) - _seconds(row["created_at"]))
        asked = time.monotonic()
        httpx.post(f"{other.url}/api/v1/jobs/{long}/cancel", timeout=20, trust_env=False).raise_for_status()
        until(lambda job=long: fleet.store.job_state(job) == "cancelled")
        cancelled.append(time.monotonic() - asked)
    return {
        name: {"median": round(median(seconds), 3), "most": round(max(seconds), 3)}
        for name, seconds in (("cancelled_by_another_server_s", cancelled), ("taken_by_another_server_s", taken))
    }


def until(condition: Any, seconds: float = 60) -> Any:
    """The condition's value once it is true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)
    return value


def main() -> None:
    """One storm on a fresh database; its record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    postgres_binaries = binaries()
    assert postgres_binaries is not None, "PostgreSQL is not installed: tools/install_postgres.sh"
    server = Postgres(postgres_binaries)
    try:
        server.create()
        server.start()
        with server.database() as url, tempfile.TemporaryDirectory() as folder:
            with running(Path(folder), url) as fleet:
                react = measure_reactions(fleet, 5)
                told = storm(
                    fleet, asked.jobs, asked.seed, worker_every_s=2.0, web_every_s=25.0, web_kills=20, followed=40
                )
                versions = _versions(fleet)
            assert fleet.processes("") == [], "processes are left"
    finally:
        server.remove()
    record = {"jobs": asked.jobs, "seed": asked.seed, "servers": 2, "lease_s": LEASE_S, **told, **react}
    text = json.dumps(record | {"versions": versions}, indent=1)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")


def _versions(fleet: Fleet) -> Json:
    import psycopg

    with fleet.store.database.read() as connection:
        postgresql = str(connection.scalar(sa.text("SHOW server_version"))).split()[0]
    return {
        "postgresql": postgresql,
        "python": sys.version.split()[0],
        "sqlalchemy": sa.__version__,
        "psycopg": psycopg.__version__,
        "cores": os.cpu_count(),
    }


if __name__ == "__main__":
    main()
