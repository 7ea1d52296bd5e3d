"""Mixed traffic for `benchmarks.server.soak`: what a team and its CI send in half an hour, and what became of every
job."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
import statistics
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.server.load import quantile, region
from benchmarks.server.processes import MB, tree_pss
from profiler.child.limits import MIB
from tools.server import ROOT

Json = dict[str, Any]

WARM_SHARE = 1 / 6
"""Of the time: caches fill, and what is asked for the first time is imported. Not looked at for memory."""
SAMPLE_S = 5.0
SHOWN = 30
"""Samples of the memory that the record keeps, from the first minute on."""
KEPT_TRACES = 10
MEASURED = "x: f32[64, 128]\ny = gelu(x) * 2\nreturn y\n"
PAGES = ("/", "/history", "/accuracy", "/learn", "/api", "/device", "/checks", "/widget/table", "/compare")
FINAL = ("done", "failed", "cancelled")
ENDED = re.compile(r"\[([0-9a-z]{26})\] (\w+) job ended")
END_S = 600.0
"""Longest wait for the jobs that are accepted when the time is over."""


class Samples:
    """Resident memory and open descriptors of a process, the memory (PSS) of it and all below it, and when."""

    def __init__(self, pid: int) -> None:
        self.process = psutil.Process(pid)
        self.rows: list[tuple[float, float, int, float]] = []

    def take(self) -> None:
        """One sample: seconds, megabytes, descriptors, megabytes of all."""
        resident, files = self.process.memory_info().rss, self.process.num_fds()
        self.rows.append((time.monotonic(), resident / MIB, files, tree_pss(self.process.pid) / MB))

    def summary(self) -> Json:
        """A line through the memory after the warm-up; medians of the descriptors in its first and last third.

        Of all processes together medians of the memory as well: jobs come and go.
        """
        start = self.rows[0][0] + WARM_SHARE * (self.rows[-1][0] - self.rows[0][0])
        rows = [row for row in self.rows if row[0] >= start]
        slope = statistics.linear_regression([row[0] for row in rows], [row[1] for row in rows]).slope
        third = max(1, len(rows) // 3)
        every = max(1, len(self.rows) // SHOWN)
        return {
            "samples": len(rows),
            "mb_first": round(rows[0][1], 1),
            "mb_last": round(rows[-1][1], 1),
            "mb_per_minute": round(slope * 60, 3),
            "mb": [round(row[1]) for row in self.rows[::every]],
            "descriptors_first": round(statistics.median(row[2] for row in rows[:third])),
            "descriptors_last": round(statistics.median(row[2] for row in rows[-third:])),
            "all_mb_first": round(statistics.median(row[3] for row in rows[:third])),
            "all_mb_last": round(statistics.median(row[3] for row in rows[-third:])),
        }


@dataclass(slots=True)
class Mixed:
    """The traffic: lanes at constant rates, each request started when it is due whatever became of those before."""

    url: str
    log: Path
    samples: Samples
    seed: int = 1
    accepted: dict[str, str] = field(default_factory=dict)  # id of a job -> kind
    ended: Counter[str] = field(default_factory=Counter)  # id -> how many `done` its stream brought
    statuses: Counter[str] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)
    ready: deque[str] = field(default_factory=deque)  # traces that are here, oldest first
    uploads: int = 0

    async def run(self, seconds: float) -> Json:
        """Send for so long, wait for every job, look at each."""
        rng = random.Random(self.seed)
        lanes: list[tuple[float, Callable[[httpx.AsyncClient, random.Random], Awaitable[None]]]] = [
            (6.0, self._page), (6.0, self._widget), (2.0, self._advice), (2.0, self._data),
            (1 / 10, self._upload), (1 / 20, self._check), (1 / 30, self._validate),
        ]  # fmt: skip
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=16)
        async with httpx.AsyncClient(base_url=self.url, timeout=120, limits=limits) as client:
            started = time.monotonic()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(seconds))
                for rate, lane in lanes:
                    group.create_task(self._lane(client, lane, rate, seconds, random.Random(rng.random())))
            minutes = (time.monotonic() - started) / 60
            states = await self._states(client)
        return self._summary(minutes, states)

    async def _watch(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.samples.take()
            await asyncio.sleep(SAMPLE_S)

    async def _lane(
        self,
        client: httpx.AsyncClient,
        lane: Callable[[httpx.AsyncClient, random.Random], Awaitable[None]],
        rate: float,
        seconds: float,
        rng: random.Random,
    ) -> None:
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(int(seconds * rate)):
                await asyncio.sleep(max(0.0, started + number / rate - time.monotonic()))
                group.create_task(self._guarded(lane, client, rng))

    async def _guarded(self, lane: Any, client: httpx.AsyncClient, rng: random.Random) -> None:
        try:
            await lane(client, rng)
        except httpx.HTTPError as error:
            self.unexpected.append(f"{lane.__name__}: {error!r}")

    async def _ask(self, client: httpx.AsyncClient, method: str, path: str, *good: int, **more: Any) -> httpx.Response:
        started = time.monotonic()
        response = await client.request(method, path, **more)
        self.latency_ms.append((time.monotonic() - started) * 1e3)
        self.statuses[str(response.status_code)] += 1
        if response.status_code not in (good or (200,)):
            self.unexpected.append(f"{method} {path}: {response.status_code} {response.text[:200]}")
        return response

    # ---------------------------------------------------------------------------------------------------- lanes

    async def _page(self, client: httpx.AsyncClient, rng: random.Random) -> None:
        paths = [*PAGES, *(f"/traces/{t}" for t in list(self.ready)[-3:-1])]
        await self._ask(client, "GET", rng.choice(paths), 200, 404, headers={"Accept": "text/html"})

    async def _widget(self, client: httpx.AsyncClient, rng: random.Random) -> None:
        answers = {name: round(rng.random(), 2) for name in ("share_of_step", "uniqueness", "irregularity")}
        await self._ask(client, "POST", "/api/v1/advice", json={"widget": answers})

    async def _advice(self, client: httpx.AsyncClient, rng: random.Random) -> None:
        text = region(rng if rng.random() < 0.1 else random.Random(rng.randrange(40)))
        await self._ask(client, "POST", "/api/v1/advice", json={"region": text})

    async def _data(self, client: httpx.AsyncClient, rng: random.Random) -> None:
        path = rng.choice(
            ("/api/v1/traces", "/api/v1/checks", "/api/v1/validations", "/api/v1/device", "/metrics", "/readyz")
        )
        await self._ask(client, "GET", path)

    async def _upload(self, client: httpx.AsyncClient, rng: random.Random) -> None:
        """A trace that nobody has sent before; the oldest of many is deleted."""
        self.uploads += 1
        response = await self._ask(
            client, "POST", "/api/v1/traces", 201, 429, params={"name": f"soak {self.uploads}"},
            content=trace(self.uploads),
        )  # fmt: skip
        if response.status_code != 201:
            return
        await self._follow(client, response.json()["id"], "read")
        self.ready.append(response.json()["id"])
        if len(self.ready) > KEPT_TRACES:
            await self._ask(client, "DELETE", f"/api/v1/traces/{self.ready.popleft()}", 204)

    async def _check(self, client: httpx.AsyncClient, rng: random.Random) -> None:
        asked = {"regions": [region(rng)], "assertions": {"compile": "warn", "triton": "error"}}
        response = await self._ask(client, "POST", "/api/v1/checks", 202, 200, 429, json=asked)
        if response.status_code == 202:
            await self._follow(client, response.json()["id"], "check")

    async def _validate(self, client: httpx.AsyncClient, rng: random.Random) -> None:
        """One in eight is cancelled: some while they wait, some while they run."""
        asked = {"region": MEASURED, "candidates": ["eager"]}
        response = await self._ask(client, "POST", "/api/v1/validations", 202, 429, json=asked)
        if response.status_code != 202:
            return
        job_id = response.json()["id"]
        if rng.random() < 1 / 8:
            self.accepted[job_id] = "validate"
            await asyncio.sleep(rng.random() * 2)
            await self._ask(client, "POST", f"/api/v1/jobs/{job_id}/cancel")
        await self._follow(client, job_id, "validate")

    async def _follow(self, client: httpx.AsyncClient, job_id: str, kind: str) -> None:
        """The job's stream to its end."""
        self.accepted[job_id] = kind
        async with client.stream("GET", f"/api/v1/jobs/{job_id}/events", timeout=END_S) as stream:
            async for line in stream.aiter_lines():
                self.ended[job_id] += line == "event: done"

    # ------------------------------------------------------------------------------------------------- the end

    async def _states(self, client: httpx.AsyncClient) -> dict[str, str]:
        """The state of every job, once all have one that stays; jobs of traces that were deleted are gone with them."""
        states: dict[str, str] = {}
        deadline = time.monotonic() + END_S
        for job_id in self.accepted:
            while True:
                answer = await client.get(f"/api/v1/jobs/{job_id}")
                states[job_id] = answer.json()["state"] if answer.status_code == 200 else "gone"
                if states[job_id] in (*FINAL, "gone") or time.monotonic() > deadline:
                    break
                await asyncio.sleep(0.5)
        return states

    def _summary(self, minutes: float, states: dict[str, str]) -> Json:
        begun = Counter(match[1] for match in map(ENDED.search, self.log.read_text().splitlines()) if match)
        lost = [j for j, state in states.items() if state not in FINAL and not (state == "gone" and self.ended[j] == 1)]
        twice = [j for j in self.accepted if self.ended[j] > 1 or begun[j] > 1]
        ordered = sorted(self.latency_ms)
        return {
            "minutes": round(minutes, 1),
            "requests": len(ordered),
            "statuses": dict(sorted(self.statuses.items())),
            "p50_ms": round(quantile(ordered, 0.5), 1),
            "p99_ms": round(quantile(ordered, 0.99), 1),
            "jobs": dict(sorted(Counter(self.accepted.values()).items())),
            "states": dict(sorted(Counter(states.values()).items())),
            "silent": sum(self.ended[j] != 1 for j in self.accepted),
            "lost": len(lost),
            "ended_twice": len(twice),
            "unexpected": self.unexpected[:20],
        }


def trace(number: int) -> bytes:
    """An example's trace under another name inside: no two have the same content."""
    data = json.loads(gzip.decompress((ROOT / "app" / "examples" / "handrolled_blocks.json.gz").read_bytes()))
    data["traceName"] = f"soak {number}"
    return gzip.compress(json.dumps(data).encode(), 1, mtime=0)
