"""Which GPU a job is for: this host's own, or kinds of the fleet by name. Raises Problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.errors import Problem
from app.jobs.ray import model
from app.requests.state import ServerState
from profiler.hardware import Device, find_device

CPU = "cpu"
MOST_KINDS = 8


@dataclass(frozen=True, slots=True)
class Target:
    """on: the kind of the fleet, None on this host or without a GPU; device: "cpu" for none, None for the GPU there."""

    on: str | None = None
    device: str | None = None

    @property
    def asked(self) -> dict[str, str | None]:
        """Its part of a job's request."""
        return {"device": self.device, **({"on": self.on} if self.on else {})}


def of_names(state: ServerState, names: Sequence[str] | None, preferred: str | None = None) -> list[Target]:
    """The targets of a validation, one for each name; one where none is named.

    preferred: the device that the advice is for, taken where nothing is named and the fleet has it. 422 for what is not
    here, with the kinds there are; 422 for several on a server that has one host.
    """
    if len(names or ()) > (MOST_KINDS if state.fleet else 1):
        most = f"at most {MOST_KINDS} devices" if state.fleet else "one device"
        raise Problem(422, "one-device", "", f"This server measures on {most} at a time.")
    if state.fleet is None:
        return [_here(state, names[0] if names else None)]
    if names:
        return [_there(state.fleet.nodes(), name) for name in dict.fromkeys(names)]
    free = {kind.device: kind for kind in state.fleet.kinds() if kind.slots}
    if not free:
        return [Target(device=CPU)]
    entry = find_device(preferred)
    chosen = (
        entry.name if entry and entry.name in free else max(free, key=lambda name: (free[name].free, free[name].slots))
    )
    return [Target(on=chosen)]


def _here(state: ServerState, name: str | None) -> Target:
    if name is None:
        return Target()
    if name == CPU:
        return Target(device=CPU)
    wanted, gpu = find_device(name), state.host().get("gpu")
    if wanted is None or wanted != find_device(gpu):
        there = gpu or "no GPU"
        raise Problem(422, "device-not-here", "", f"{name[:80]!r} is not in this server, which has {there}.")
    return Target()


def _there(nodes: list[model.Node], name: str) -> Target:
    if name == CPU:
        return Target(device=CPU)
    device = find_device(name)
    wrong = model.refusal(device.name if device else name, nodes)
    if wrong:
        kinds = sorted({node.device for node in nodes if node.usable and node.device})
        raise Problem(422, "device-not-here", "", wrong, known=kinds)
    return Target(on=device.name if device else name)


def table_entry(state: ServerState, target: Target) -> Device | None:
    """The device of the table that a target measures on; None where it is not known, or none."""
    if target.device == CPU:
        return None
    if target.on:
        return find_device(target.on)
    host = state.host.known()
    return find_device(host.gpu) if host else None


def measures(state: ServerState) -> bool:
    """Whether anything can be measured: here, or on a host of the fleet."""
    if state.fleet is not None:
        return any(kind.slots for kind in state.fleet.kinds())
    return state.host().get("gpu") is not None
