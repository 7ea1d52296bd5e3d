"""Who holds memory of the card, and when: candidates that do not fit on it together take turns. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernels.measure.messages import MOST_SAMPLES, BindingCost

MARGIN_SHARE = 0.03  # of the card's free memory is left to its allocators' fragments
CONTEXT_BYTES = 600_000_000
"""What a process holds of the card before its first tensor, about, where the driver does not tell what is free."""
MOVING = 2  # further copies of outputs behind the samples: the latest, and the one that is being made


@dataclass(frozen=True, slots=True)
class Need:
    """What one candidate needs of the card, as its own process measured it after its checks.

    inputs_bytes: one input set of each binding, together. call_bytes: the most that a call takes beyond its inputs.
    outputs_bytes: of the binding with the largest. held_bytes: what stays with its process when it has given back
    everything that it can, such as the memory of a CUDA graph. renewed_bytes: what new contents of the inputs take,
    between calls.
    """

    name: str
    inputs_bytes: int
    call_bytes: int
    outputs_bytes: int = 0
    held_bytes: int = 0
    renewed_bytes: int = 0

    @property
    def turn_bytes(self) -> int:
        """What it takes while it has its turn: the last call's outputs are there while the next one runs, and while the
        inputs get new contents."""
        return self.inputs_bytes + self.outputs_bytes + max(self.call_bytes, self.renewed_bytes)

    def kept_bytes(self, samples: int) -> int:
        """What it takes where it keeps all between its turns: two input sets, and copies of outputs."""
        return self.inputs_bytes + self.turn_bytes + (samples + MOVING) * self.outputs_bytes


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who holds memory while candidates are timed.

    in_turns: each gives its memory back after its turn, since all do not fit. sets_bytes: for the input sets of each,
    by name. samples: copies of outputs that each keeps. alone: names of those that are timed after the others, which
    have then left the card. needed_bytes: of all together; free_bytes: what there is. turn_bytes: what each takes in
    its turn, by name, where all do not fit.
    """

    in_turns: bool
    sets_bytes: dict[str, float]
    samples: int
    needed_bytes: int
    free_bytes: int
    alone: tuple[str, ...] = field(default=())
    turn_bytes: dict[str, float] = field(default_factory=dict)

    @property
    def remark(self) -> str:
        """What to say of it, "" where all fit together."""
        if not self.in_turns:
            return ""
        needed = f"{gigabytes(self.needed_bytes)}, and {gigabytes(self.free_bytes)} are free"
        together = f"together, with two sets of inputs and copies of outputs each, they need {needed}"
        names = f"; after the others, alone: {', '.join(self.alone)}" if self.alone else ""
        return f"candidates were timed in turns of one, each giving its memory back behind its turn: {together}{names}"


def schedule(needs: Sequence[Need], free_bytes: float) -> Schedule:
    """free_bytes: of the card, with a process of every candidate there that has given back what it can.

    Together where all fit with two input sets each. Else in turns; a candidate that does not fit even then, because of
    what the others' processes keep, and the one that keeps the most, are timed alone after the others.
    """
    needed = sum(n.kept_bytes(1) for n in needs)
    for samples in range(MOST_SAMPLES, 0, -1):
        kept = sum(n.kept_bytes(samples) for n in needs)
        if kept <= free_bytes:
            spare = (free_bytes - kept) / max(1, len(needs))
            sets = {n.name: 2 * n.inputs_bytes + spare for n in needs}
            return Schedule(False, sets, samples, needed, int(free_bytes))
    staying, free, alone = list(needs), free_bytes, list[str]()
    while len(staying) > 1 and max(n.turn_bytes for n in staying) > free:
        leaving = max(staying, key=lambda n: (n.held_bytes, n.turn_bytes))
        staying.remove(leaving)
        alone.append(leaving.name)
        free += leaving.held_bytes
    samples = next((s for s in range(MOST_SAMPLES, 0, -1) if _left(staying, free, s) >= 0), 0)
    left = max(0.0, _left(staying, free, samples))
    sets = {n.name: n.inputs_bytes + max(0.0, left - n.inputs_bytes) for n in staying}
    turns = {n.name: float(n.turn_bytes) for n in staying}
    return Schedule(True, sets, samples, needed, int(free_bytes), tuple(alone), turns)


def _left(staying: Sequence[Need], free: float, samples: int) -> float:
    """Bytes that stay free in the turn that takes the most, where each keeps so many samples; none are made for 0."""
    copies = (samples + MOVING if samples else 0) * sum(n.outputs_bytes for n in staying)
    return free - max(n.turn_bytes for n in staying) - copies


def too_large(costs: Sequence[BindingCost], labels: Sequence[str], free_bytes: float) -> str:
    """Why a region cannot be measured on a card with so much free, with the arithmetic; "" where it may fit."""
    for cost, label in zip(costs, labels, strict=True):
        least = cost.set_bytes + cost.outputs_bytes
        if least > free_bytes:
            where = f" at {label}" if label else ""
            sum_of = f"{gigabytes(cost.set_bytes)} of inputs + {gigabytes(cost.outputs_bytes)} of outputs"
            return (
                f"this region alone exceeds the card{where}: {sum_of} = {gigabytes(least)}, and "
                f"{gigabytes(free_bytes)} of it are free"
            )
    return ""


def free_of(total_bytes: int, used_mib: float | None, planned_free_bytes: int, needs: Sequence[Need]) -> float:
    """Bytes that are free once every candidate's process is there and has given back what it can.

    used_mib: of the card, as the driver says; None where it does not: then from what was free before them.
    """
    if used_mib is None:
        free = planned_free_bytes - sum(CONTEXT_BYTES + n.held_bytes for n in needs)
    else:
        free = total_bytes - int(used_mib * 2**20)
    return max(0.0, (1 - MARGIN_SHARE) * free)


def gigabytes(size: float) -> str:
    """31.5 GB; below a tenth of one in MB or bytes."""
    if size >= 1e8:
        return f"{size / 1e9:,.1f} GB"
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size:,.0f} bytes"
