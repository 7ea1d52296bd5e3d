"""Outputs of timed calls, picked where no candidate can know, and the rotation that picks them.

A sample is a copy made on the same stream right behind the call: work that goes on elsewhere has not arrived in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from kernels.measure.candidate import timing
from kernels.measure.messages import MOST_SAMPLES

_urandom = os.urandom  # taken before a candidate is loaded


def below(bound: int) -> int:
    """A number from 0 to bound - 1 that nothing in this process foretells."""
    return int.from_bytes(_urandom(8), "little") % max(1, bound)


@dataclass(frozen=True, slots=True)
class Sample:
    """The outputs of one timed call, and what its inputs are made from: set number and secret.

    left: by the input's number, what the call left in those that the candidate writes into.
    """

    outputs: tuple[object, ...]
    number: int
    secret: int
    left: Mapping[int, torch.Tensor] = field(default_factory=dict)


@dataclass(slots=True)
class Reservoir:
    """`room` samples of all that were offered, each as likely as any other, and the latest one."""

    room: int = MOST_SAMPLES
    kept: list[Sample] = field(default_factory=list)
    latest: Sample | None = None
    seen: int = 0

    def offer(self, sample: Sample) -> None:
        self.latest = sample
        self.seen += 1
        if len(self.kept) < self.room:
            self.kept.append(sample)
        elif (place := below(self.seen)) < self.room:
            self.kept[place] = sample

    def clear(self) -> None:
        """Let go of all samples."""
        self.kept, self.latest, self.seen = [], None, 0

    def all(self) -> list[Sample]:
        """The latest first."""
        first = [self.latest] if self.latest is not None else []
        return first + [s for s in self.kept if s is not self.latest]


def copied(results: Sequence[object]) -> tuple[object, ...]:
    """Copies of plain tensors, in stream order; anything else as it is, for its type to be told."""
    return tuple(r.detach().clone() if type(r) is torch.Tensor else r for r in results)


@dataclass(slots=True)
class Sampling(timing.Rotation):
    """A rotation that copies one call's outputs, before the next call: at the call number `pick` from now on.

    watched: numbers of the inputs whose contents are copied with them, as the call left them.
    """

    pick: int = 0
    taken: tuple[object, ...] | None = None
    taken_set: int = 0
    watched: tuple[int, ...] = ()
    left: dict[int, torch.Tensor] = field(default_factory=dict)

    def release(self) -> None:
        """Let go of the inputs and of all outputs."""
        self.sets, self.last, self.taken, self.left = (), None, None, {}

    def next(self) -> Sequence[torch.Tensor]:
        if self.pick:
            self.pick -= 1
            if not self.pick:
                self.take()
        return timing.Rotation.next(self)

    def take(self) -> None:
        """Copy the last call's outputs now, and what it left in its inputs."""
        if self.last is not None:
            self.taken, self.taken_set = copied(self.last), self.last_set
            self.left = {n: self.sets[self.last_set][n].detach().clone() for n in self.watched}
