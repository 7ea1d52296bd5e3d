"""The fleet as data: hosts as they declare themselves to Ray, grouped by kind of GPU. No Ray, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from app import __version__
from app.objects.device import FleetCeilings, FleetGpu
from app.objects.task import ProbedHost
from profiler.hardware import find_device

MEASURE_SLOT = "measure_slot"
"""One a host: GPUs of one host share power and memory traffic, so one measurement at a time."""

READ_SLOT = "read_slot"
"""What a host without GPUs reads traces with: as many as it may read at once."""

JOB_FOLDER = "tritonworthy-job-"
"""How the temporary folder of a job begins on its host: a worker that is killed leaves it."""

VERSION = "tritonworthy-"
"""Prefix of the resource that names the version a host runs: work goes to hosts of the server's own."""

VERSION_UNITS = 10_000
"""How much of it a host declares; a job takes one."""

ACCELERATOR = "accelerator_type:"
"""Ray's own: the kind of a host's GPUs, found by Ray or declared."""

TAKEN = 0.001
"""What a job takes of a host's accelerator_type, by Ray's definition: so what is missing counts the jobs."""


class FleetError(Exception):
    """The cluster cannot be joined; the text says why."""


@dataclass(frozen=True, slots=True)
class Node:
    """One host. accelerator: Ray's name for its GPUs, None without any; versions: of Tritonworthy, as declared.

    slots, read_slots: measurements, readings at once. facts: what was found there (kernels.host), None when not known
    yet. sick: why it gets no work, "" where it does.
    """

    id: str
    name: str
    accelerator: str | None
    gpus: int
    slots: int
    read_slots: int
    versions: tuple[str, ...]
    alive: bool = True
    sick: str = ""
    facts: ProbedHost | None = None

    @property
    def device(self) -> str | None:
        """The kind as the device table names it; Ray's own name for a GPU that the table lacks."""
        entry = find_device(self.accelerator)
        return entry.name if entry else self.accelerator

    @property
    def usable(self) -> bool:
        return self.alive and not self.sick


@dataclass(frozen=True, slots=True)
class GpuType:
    """All hosts with one kind of GPU. slots: measurements at once; busy: those under way, also of other servers."""

    device: str
    nodes: int
    gpus: int
    slots: int
    busy: int
    sick: tuple[str, ...]
    versions: Mapping[str, tuple[str, ...]]

    @property
    def free(self) -> int:
        return max(0, self.slots - self.busy)


def resources(accelerator: str | None, read_slots: int, version: str = __version__) -> dict[str, int]:
    """What `ray start --resources` is told on a host: GPUs of a kind that Ray does not name, or slots for reading."""
    told = {VERSION + version: VERSION_UNITS}
    if accelerator is None:
        return told | {READ_SLOT: read_slots}
    return told | {MEASURE_SLOT: 1, ACCELERATOR + accelerator: 1}


class Demand(TypedDict, total=False):
    """Options of a Ray task."""

    num_cpus: int
    num_gpus: int
    accelerator_type: str
    resources: dict[str, int]


def demand(accelerator: str | None) -> Demand:
    """What a job asks of Ray: one such GPU and its host's slot, or without a GPU a slot for reading."""
    version = {VERSION + __version__: 1}
    if accelerator is None:
        return {"num_cpus": 1, "resources": {READ_SLOT: 1, **version}}
    return {
        "num_cpus": 0, "num_gpus": 1, "accelerator_type": accelerator, "resources": {MEASURE_SLOT: 1, **version},
    }  # fmt: skip


def node_from_ray(row: Mapping[str, Any], facts: ProbedHost | None, hung: bool = False) -> Node:
    """One entry of ray.nodes(), with what was found on that host, and whether a process hangs there."""
    has = row.get("Resources") or {}
    accelerator = next((name.removeprefix(ACCELERATOR) for name in sorted(has) if name.startswith(ACCELERATOR)), None)
    versions = tuple(sorted(name.removeprefix(VERSION) for name in has if name.startswith(VERSION)))
    gpus = int(has.get("GPU", 0))
    node = Node(
        id=row["NodeID"],
        name=str(row.get("NodeManagerHostname") or row["NodeID"][:8]),
        accelerator=accelerator if gpus else None,
        gpus=gpus,
        slots=min(int(has.get(MEASURE_SLOT, 0)), gpus),
        read_slots=int(has.get(READ_SLOT, 0)),
        versions=versions,
        alive=bool(row.get("Alive")),
        facts=facts,
    )
    return replace(node, sick="a process of an earlier job does not end there" if hung else _sick(node))


def _sick(node: Node) -> str:
    if not node.alive:
        return "it is gone"
    if not (node.gpus or node.read_slots):
        return ""
    if __version__ not in node.versions:
        runs = " and ".join(node.versions) or "no version that it declares"
        return f"it runs {runs}, this server {__version__}"
    if node.gpus and not node.slots:
        return f"it declares no {MEASURE_SLOT}"
    if not node.facts:
        return "" if node.accelerator or not node.gpus else "torch finds no GPU there: no reason given"
    gpu = node.facts.get("gpu", node.accelerator)
    if gpu and find_device(gpu) is not find_device(node.accelerator):
        return f"it declares {node.accelerator} and has {gpu}"
    if node.gpus and not gpu:
        return f"torch finds no GPU there: {node.facts.get('note') or 'no reason given'}"
    return ""


def gpu_types(nodes: Iterable[Node], available: Mapping[str, float]) -> list[GpuType]:
    """The fleet by kind of GPU, sorted by name. available: ray.available_resources(), for what is busy."""
    by_device: dict[str, list[Node]] = {}
    for node in nodes:
        if node.device is not None and node.alive:
            by_device.setdefault(node.device, []).append(node)
    return [_gpu_type(device, by_device[device], available) for device in sorted(by_device)]


def _gpu_type(device: str, nodes: list[Node], available: Mapping[str, float]) -> GpuType:
    names = sorted({node.accelerator for node in nodes if node.accelerator})
    free = sum(available.get(ACCELERATOR + name, 0.0) for name in names)
    versions: dict[str, set[str]] = {}
    for node in nodes:
        for name, version in (node.facts.get("versions", {}) if node.facts else {}).items():
            versions.setdefault(name, set()).add(version)
        versions.setdefault("tritonworthy", set()).update(node.versions)
    return GpuType(
        device=device,
        nodes=len(nodes),
        gpus=sum(node.gpus for node in nodes),
        slots=sum(node.slots for node in nodes if node.usable),
        busy=round((len(nodes) - free) / TAKEN),
        sick=tuple(f"{node.name}: {node.sick}" for node in nodes if node.sick),
        versions={name: tuple(sorted(each)) for name, each in sorted(versions.items())},
    )


def gpu_type_json(kind: GpuType) -> FleetGpu:
    """The API's entry of a kind: what is there, what is free, and its rates as estimates use them (bytes/s, FLOP/s)."""
    entry = find_device(kind.device)
    rates: FleetCeilings | None = None
    if entry is not None:
        rates = {
            "copy_rate": entry.copy_rate, "matmul_rate": entry.matmul_rate("bf16"), "measured": entry.ceilings_measured,
        }  # fmt: skip
    return {
        "device": kind.device,
        "hosts": kind.nodes,
        "gpus": kind.gpus,
        "slots": kind.slots,
        "busy": kind.busy,
        "free": kind.free,
        "sick": list(kind.sick),
        "versions": {name: list(each) for name, each in kind.versions.items()},
        "ceilings": rates,
    }


def read_slots(nodes: Iterable[Node]) -> int:
    """How many traces may be read at once on hosts that take work."""
    return sum(node.read_slots for node in nodes if node.usable)


def refusal(device: str, nodes: Iterable[Node]) -> str:
    """Why no host takes work for this kind of GPU, with the kinds that there are; "" where one does."""
    alive = [node for node in nodes if node.alive]
    of_kind = [node for node in alive if node.device == device]
    if any(node.usable for node in of_kind):
        return ""
    if of_kind:
        return f"{device}: " + "; ".join(sorted({node.sick for node in of_kind}))
    there = sorted({node.device for node in alive if node.usable and node.device})
    return f"No host of the fleet has {device[:80]!r}. There are: {', '.join(there) or 'none'}."
