"""RayRunner: jobs on the hosts of a Ray cluster. A Ray task runs the LocalRunner on its host, and streams what it says.

Ray only runs: the store is the source of truth. A task dies with its driver, so a lease runs out and the job is
submitted again; Ray retries nothing. Hosts declare what docs/fleet.md lists (`tritonworthy fleet resources`).
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import app as package
from app.jobs.exit_reason import Ended, ExitReason, failure
from app.jobs.local_runner import Limits, LocalRunner, Message, Verdict
from app.jobs.ray import model
from app.jobs.ray.task import PYTHON, Work, look, work
from app.jobs.stats import GPU_KINDS
from app.objects.task import ProbedHost

FRESH_S = 1.0
"""How long what Ray said of its hosts is believed."""
POLL_S = 0.05
FORCE_S = 5.0
"""Beyond the grace of the child: then Ray kills the worker, and the child sees the end of its stdin."""
DROP_S = 3.0


class RayRunner:
    """A driver of one cluster. lanes: most jobs of a kind under way; wait_s: how long Ray may keep one waiting.

    ConnectionError where no cluster answers at `address`. token_file: the cluster's secret; FileNotFoundError.
    """

    def __init__(
        self, address: str, *, token_file: Path, lanes: int = 16, wait_s: float = 3600,
        look: Callable[[], ProbedHost] = look,
    ) -> None:  # fmt: skip
        # Before Ray is imported: it reads them then.
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token_file.resolve(strict=True)))
        import ray

        self.ray: Any = ray
        ray.init(address=address, namespace="tritonworthy", log_to_driver=False, logging_level=logging.ERROR)
        self.most = lanes
        self.wait_s = wait_s
        self.local = LocalRunner()
        self.lock = threading.Lock()
        self.in_flight: Counter[str | None] = Counter()
        self.kept: set[tuple[str, ...]] = set()
        self.seen: dict[str, str] = {}
        self.facts: dict[str, ProbedHost] = {}
        self.looking: dict[str, Any] = {}
        self.hung: dict[str, Any] = {}
        self.read_at = 0.0
        self.fleet: tuple[list[model.Node], list[model.GpuType]] = ([], [])
        self.work = ray.remote(max_retries=0, num_returns="streaming")(_work)
        self.look = ray.remote(max_retries=0, num_cpus=0)(look)

    def keep(self, command: Sequence[str], *, logs: Path, cwd: Path | None = None) -> bool:
        """From now on each host keeps a child ready behind a run of that command that went well."""
        self.kept.add(tuple(command))
        return True

    def forget(self) -> None:
        """A host forgets by itself, behind a run that did not go well."""

    def close(self) -> None:
        """Leave the cluster: what this driver still runs there ends."""
        self.local.close()
        self.ray.shutdown()

    def lanes(self, kind: str) -> int:
        """As many as asked for; readings as many as there are slots for them, one where they stay here."""
        return self.most if kind in GPU_KINDS else min(self.most, max(1, model.read_slots(self.nodes())))

    def full(self) -> frozenset[str]:
        """Kinds that have, or had, hosts, and no slot free for this server."""
        slots = {kind.device: kind.slots for kind in self.kinds()}
        return frozenset(device for device in self.seen if self.in_flight[device] >= slots.get(device, 0))

    def nodes(self) -> list[model.Node]:
        """The hosts, as known a second ago at most."""
        return self._read()[0]

    def kinds(self) -> list[model.GpuType]:
        """The fleet by kind of GPU."""
        return self._read()[1]

    def _read(self) -> tuple[list[model.Node], list[model.GpuType]]:
        with self.lock:
            if time.monotonic() - self.read_at > FRESH_S:
                rows = {row["NodeID"]: row for row in self.ray.nodes() if row["Alive"]}
                self._get_to_know(rows.keys() - self.facts.keys())
                self.hung = {node: stream for node, stream in self.hung.items() if not self._ready(stream)}
                hosts = [model.node_from_ray(row, self.facts.get(n), n in self.hung) for n, row in rows.items()]
                self.fleet = hosts, model.gpu_types(hosts, self.ray.available_resources())
                self.seen |= {n.device: n.accelerator for n in hosts if n.device and n.accelerator and n.usable}
                self.read_at = time.monotonic()
            return self.fleet

    def _get_to_know(self, nodes: set[str]) -> None:
        """Ask each new host, in the background, what it is: GPU, versions."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

        for node in nodes:
            if node not in self.looking:
                self.looking[node] = self.look.options(scheduling_strategy=On(node, soft=False)).remote()
            elif self._ready(self.looking[node]):
                with suppress(self.ray.exceptions.RayError):
                    self.facts[node] = self.ray.get(self.looking.pop(node))

    def _ready(self, ref: Any) -> bool:
        return bool(self.ray.wait([ref], timeout=0, fetch_local=False)[0])

    def run(
        self,
        command: Sequence[str],
        request: Mapping[str, object],
        *,
        limits: Limits,
        log: Path,
        on_progress: Callable[[Message], None] = lambda _: None,
        tick: Callable[[], Verdict] = lambda: "go",
        cwd: Path | None = None,
    ) -> Ended:
        """As the Protocol says. The log comes back with the answer; one that is lost has none."""
        named, nodes = request.get("on"), self.nodes()
        device = str(named) if named else None
        if device is None and not model.read_slots(nodes):
            return self.local.run(command, request, limits=limits, log=log, on_progress=on_progress, tick=tick, cwd=cwd)
        if device and device not in self.seen and (wrong := model.refusal(device, nodes)):
            return failure(ExitReason.NO_DEVICE, wrong)  # of a kind that was here one may come back
        parts = [PYTHON if part == sys.executable else part for part in command]
        told = {k: v for k, v in request.items() if k != "host"}  # that is this host, and the child's is another
        facts = {node.id: node.facts for node in nodes if node.facts and node.device == device}
        asked = Work(parts, told, limits, facts, package.__version__, tuple(command) in self.kept)
        with self._count_in_flight(device):
            stream = self.work.options(**model.demand(self.seen[device] if device else None)).remote(asked)
            return self._follow(stream, device, limits, log, on_progress, tick)

    @contextmanager
    def _count_in_flight(self, device: str | None) -> Iterator[None]:
        with self.lock:
            self.in_flight[device] += 1
        try:
            yield
        finally:
            with self.lock:
                self.in_flight[device] -= 1

    def _follow(
        self, stream: Any, device: str | None, limits: Limits, log: Path,
        on_progress: Callable[[Message], None], tick: Callable[[], Verdict],
    ) -> Ended:  # fmt: skip
        placed, stopped, force_at = "", None, float("inf")
        began = time.monotonic()
        on_progress({"phase": "waiting", "message": f"for {device or 'a host that reads'}"})
        while True:
            clock = time.monotonic()
            verdict = tick()
            if stopped is None and (verdict != "go" or (not placed and clock - began > self.wait_s)):
                stopped = ExitReason.CANCELLED if verdict != "go" else ExitReason.NO_DEVICE
                force_at = clock + (DROP_S if verdict == "drop" else min(limits.grace_s, FORCE_S) + FORCE_S)
                self.ray.cancel(stream)
            if clock > force_at:
                force_at = clock + FORCE_S
                self.ray.cancel(stream, force=True)
            # What a task that was told to end still says is nobody's business, and its stream may have no end.
            if not self.ray.wait([stream if stopped is None else stream.completed()], timeout=POLL_S)[0]:
                continue
            if stopped is not None:
                return failure(stopped)
            try:
                said = self.ray.get(next(stream))
            except self.ray.exceptions.RayTaskError as error:  # ours: no Tritonworthy there, or no memory
                return failure(ExitReason.FAULT, f"({error.cause})"[:500])
            except (StopIteration, self.ray.exceptions.RayError):  # the worker, its host, or the way there is gone
                return failure(ExitReason.LOST, again=True)
            if said["type"] == "placed":
                placed = said["node"]
            elif said["type"] == "ended":
                log.write_bytes(said["log"])
                if said["stuck"]:
                    self.hung[placed] = stream
                return Ended(said["reason"], said["value"], said["error"])
            else:
                on_progress(said)


def _work(asked: Work) -> Iterator[Message]:
    import ray

    yield from work(asked, ray.get_runtime_context().get_node_id())
