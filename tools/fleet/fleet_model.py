"""The fleet as a discrete-event model (simpy): jobs arrive, are written down, wait for a slot of their kind, run, end.

Pure: a Scenario and a seed in, an Outcome out; the same twice. What feeds it is measured elsewhere
(tools/fleet/fleet_simulation.py): the lengths of jobs, the store's service times, the overhead of a task.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy

DAY_S = 86400.0
Process = Generator[Any, Any, None]


@dataclass(frozen=True, slots=True)
class Supply:
    """GPUs of one kind: `hosts` hosts that measure `slots` jobs at once each, of `gpus` GPUs in all.

    share: of the validations that ask for this kind.
    """

    kind: str
    gpus: int
    hosts: int
    slots: int
    share: float


@dataclass(frozen=True, slots=True)
class Store:
    """Seconds of a job's transactions; at most `writers` at once. beats, events: heartbeats and progress of a job."""

    name: str
    writers: int
    submit_s: float
    claim_s: float
    beat_s: float
    event_s: float
    finish_s: float
    beats: int
    events: int

    @property
    def job_s(self) -> float:
        """All transactions of one job."""
        return self.submit_s + self.claim_s + self.beats * self.beat_s + self.events * self.event_s + self.finish_s


@dataclass(frozen=True, slots=True)
class Scenario:
    """One day of one fleet. per_day: validations asked for; burst_share of them come in bursts of about burst_size.

    lengths_s: of jobs, drawn from with replacement. regions: distinct contents asked for in a day, by Zipf's law with
    exponent `zipf`; None = every one is new. deduplicate: the same content on the same kind is measured once a day.
    web_s: CPU of one submission on one of `web` processes. lanes: jobs under way at once over all servers, per kind of
    job. mtbf_s, repair_s: of a host; inf = none fails. cap: most jobs waiting; more are refused.
    """

    supply: Sequence[Supply]
    per_day: float
    lengths_s: Sequence[float]
    store: Store
    web: int
    web_s: float
    lanes: int
    overhead_s: float = 0.0
    burst_share: float = 0.0
    burst_size: float = 1.0
    burst_span_s: float = 60.0
    swing: float = 0.0
    regions: int | None = None
    zipf: float = 1.1
    deduplicate: bool = False
    mtbf_s: float = math.inf
    repair_s: float = 3600.0
    lease_s: float = 15.0
    attempts: int = 2
    cap: float = math.inf
    span_s: float = DAY_S


@dataclass
class Outcome:
    """What happened. waits_s: from the submission to the beginning of the run that counted; ends: number by how."""

    asked: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)
    by_kind_s: dict[str, list[float]] = field(default_factory=dict)
    lost: int = 0
    most_waiting: int = 0
    waiting_area_s: float = 0.0
    measured_s: float = 0.0
    busy_slot_s: dict[str, float] = field(default_factory=dict)
    store_busy_s: float = 0.0
    web_busy_s: float = 0.0
    ended_s: float = 0.0


@dataclass(slots=True)
class Job:
    """One validation on its way."""

    kind: str
    content: int
    length_s: float
    asked_s: float
    attempt: int = 0


class Fleet:
    """One run of a scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.of = scenario
        self.random = np.random.default_rng(seed)
        self.env = simpy.Environment()
        self.store = simpy.Resource(self.env, scenario.store.writers)
        self.web = simpy.Resource(self.env, scenario.web)
        self.lanes = simpy.Resource(self.env, scenario.lanes)
        self.queues = {s.kind: simpy.Store(self.env) for s in scenario.supply}
        self.outcome = Outcome(busy_slot_s={s.kind: 0.0 for s in scenario.supply})
        self.outcome.by_kind_s = {s.kind: [] for s in scenario.supply}
        self.known: dict[tuple[str, int], str] = {}
        self.waiting = 0
        self.changed_at_s = 0.0

    def run(self) -> Outcome:
        """Until every job that was asked for has ended."""
        kinds = [s.kind for s in self.of.supply]
        shares = np.array([s.share for s in self.of.supply])
        arrivals = arrival_times(self.of, self.random)
        count = len(arrivals)
        chosen = self.random.choice(len(kinds), count, p=shares / shares.sum())
        lengths = self.random.choice(np.asarray(self.of.lengths_s), count)
        contents = _contents(self.of, count, self.random)
        jobs = [
            Job(kinds[k], int(c), float(length), float(at))
            for k, c, length, at in zip(chosen, contents, lengths, arrivals, strict=True)
        ]
        self.outcome.asked = count
        for supply in self.of.supply:
            for _ in range(supply.hosts):
                host = Host(self, supply)
                for _ in range(supply.slots):
                    self.env.process(self._slot(host))
        self.env.process(self._arrive(jobs))
        self.done = self.env.event()
        if count:
            self.env.run(until=self.done)
        self._count(0)
        self.outcome.ended_s = self.env.now
        return self.outcome

    def _arrive(self, jobs: Sequence[Job]) -> Process:
        for job in jobs:
            yield self.env.timeout(max(0.0, job.asked_s - self.env.now))
            self.env.process(self._submit(job))

    def _submit(self, job: Job) -> Process:
        with self.web.request() as turn:
            yield turn
            self.outcome.web_busy_s += self.of.web_s
            yield self.env.timeout(self.of.web_s)
        key = (job.kind, job.content)
        if self.of.deduplicate and key in self.known:
            yield from self._write(self.of.store.submit_s)  # it is written down with the other's answer
            self._end("same")
            return
        if self.waiting >= self.of.cap:
            self._end("refused")
            return
        self.known[key] = "asked"
        yield from self._write(self.of.store.submit_s)
        self._wait(job)

    def _wait(self, job: Job) -> None:
        self._count(1)
        self.queues[job.kind].put(job)

    def _count(self, more: int) -> None:
        self.outcome.waiting_area_s += self.waiting * (self.env.now - self.changed_at_s)
        self.changed_at_s = self.env.now
        self.waiting += more
        self.outcome.most_waiting = max(self.outcome.most_waiting, self.waiting)

    def _write(self, seconds: float) -> Process:
        with self.store.request() as turn:
            yield turn
            self.outcome.store_busy_s += seconds
            yield self.env.timeout(seconds)

    def _slot(self, host: Host) -> Process:
        queue = self.queues[host.supply.kind]
        while True:
            if not host.alive:
                yield host.back
            got = queue.get()
            yield got | host.down
            if not got.triggered:
                got.cancel()
                continue
            job: Any = got.value
            if not host.alive:  # both at once
                queue.put(job)
                continue
            with self.lanes.request() as lane:
                yield lane
                self._count(-1)
                yield from self._run(job, host)

    def _run(self, job: Job, host: Host) -> Process:
        store = self.of.store
        taken = self.env.now
        job.attempt += 1
        yield from self._write(store.claim_s)
        began = self.env.now
        down = host.down
        ended = self.env.timeout(self.of.overhead_s + job.length_s)
        yield ended | down
        ran = self.env.now - began
        self.outcome.busy_slot_s[job.kind] += ran
        if not ended.processed:
            self.outcome.lost += 1
            self.env.process(self._again(job))
            return
        # What it wrote while it ran, in one piece: the store's time is what counts, not its moment.
        yield from self._write(store.beats * store.beat_s + store.events * store.event_s + store.finish_s)
        self.outcome.measured_s += job.length_s
        self.outcome.waits_s.append(taken - job.asked_s)
        self.outcome.by_kind_s[job.kind].append(taken - job.asked_s)
        self._end("done")

    def _again(self, job: Job) -> Process:
        yield self.env.timeout(self.of.lease_s)
        if job.attempt >= self.of.attempts:
            self.known.pop((job.kind, job.content), None)
            self._end("given up")
        else:
            self._wait(job)

    def _end(self, how: str) -> None:
        self.outcome.ends[how] += 1
        if self.outcome.ends.total() == self.outcome.asked:
            self.done.succeed()


class Host:
    """A host that fails and comes back, each after an exponential time."""

    def __init__(self, fleet: Fleet, supply: Supply) -> None:
        self.supply = supply
        self.env = fleet.env
        self.alive = True
        self.down = self.env.event()
        self.back = self.env.event()
        if math.isfinite(fleet.of.mtbf_s):
            self.env.process(self._fail(fleet.of, fleet.random))

    def _fail(self, of: Scenario, random: np.random.Generator) -> Process:
        while True:
            yield self.env.timeout(random.exponential(of.mtbf_s))
            self.alive, down, self.back = False, self.down, self.env.event()
            down.succeed()
            yield self.env.timeout(random.exponential(of.repair_s))
            self.alive, back, self.down = True, self.back, self.env.event()
            back.succeed()


def arrival_times(of: Scenario, random: np.random.Generator) -> np.ndarray:
    """Seconds of the day, ascending: a Poisson process whose rate swings over the day, and bursts from CI in it."""
    total = of.per_day * of.span_s / DAY_S
    single = _draw_swinging_times(random.poisson(total * (1 - of.burst_share)), of, random)
    starts = _draw_swinging_times(random.poisson(total * of.burst_share / of.burst_size), of, random)
    sizes = 1 + random.poisson(max(of.burst_size - 1, 0.0), len(starts))
    burst = np.repeat(starts, sizes) + random.uniform(0, of.burst_span_s, int(sizes.sum()))
    return np.sort(np.concatenate([single, burst]))


def _draw_swinging_times(count: int, of: Scenario, random: np.random.Generator) -> np.ndarray:
    """So many times with density 1 + swing * sin over the span, by rejection."""
    arrivals = np.empty(0)
    while len(arrivals) < count:
        times = random.uniform(0, of.span_s, 2 * count + 16)
        keep = random.uniform(0, 1 + of.swing, len(times)) < 1 + of.swing * np.sin(2 * math.pi * times / of.span_s)
        arrivals = np.concatenate([arrivals, times[keep]])
    return arrivals[:count]


def _contents(of: Scenario, count: int, random: np.random.Generator) -> np.ndarray:
    if of.regions is None:
        return np.arange(count)
    weights = np.arange(1, of.regions + 1, dtype=float) ** -of.zipf
    return random.choice(of.regions, count, p=weights / weights.sum())


def limits_per_day(of: Scenario) -> Mapping[str, float]:
    """Validations a day at which each part would be busy all the time: capacity over what one takes of it."""
    mean = float(np.mean(of.lengths_s)) + of.overhead_s
    up = 1.0 if math.isinf(of.mtbf_s) else of.mtbf_s / (of.mtbf_s + of.repair_s)
    shares = sum(s.share for s in of.supply)
    slots = {f"slots of {s.kind}": DAY_S * up * s.hosts * s.slots / mean / (s.share / shares) for s in of.supply}
    parts = {"store": DAY_S * of.store.writers / of.store.job_s, "web": DAY_S * of.web / of.web_s}
    return {**slots, **parts, "lanes": DAY_S * of.lanes / mean}
