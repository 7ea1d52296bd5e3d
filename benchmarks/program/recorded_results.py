"""What a host with a GPU writes of the ten models, and the names of its files. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

RESULTS, PACKED = "results.json", "recorded.zip"
PREDICTED = "predicted"
"""Of a predicted trace's name."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """Of a capture, each µs of one step and the median of several. bare_us: before there is one; around_us: within its
    context behind its recording; plain_us, stacks_us: under the profiler without and with stacks, by the capture;
    its_bare_us: without, likewise. ends_s: of `capture.step()`, by step: what starting, ending and writing take.
    """

    bare_us: float
    around_us: float
    its_bare_us: float
    plain_us: float
    stacks_us: float
    ends_s: tuple[float, ...]

    @property
    def writing_s(self) -> float:
        """Of all calls of `step()` together, in which the program waits."""
        return sum(self.ends_s)


@dataclass(frozen=True, slots=True)
class Run:
    """device: of the GPU, or that there was none. events_us: a step from event to event of the device, steps launched
    one behind the other; wall_us: the same on the host's clock; waited_us: a step that is waited for, host's clock.
    All without a profiler, medians. peak_bytes: of the GPU's memory. slowdown, problem: as the capture tells them."""

    name: str
    device: str
    versions: Mapping[str, str]
    events_us: float | None
    wall_us: float
    waited_us: float
    spread: float
    peak_bytes: int
    overhead: Overhead
    slowdown: float | None
    problem: str
    trace: str
    plain: str
    seconds: float = 0.0


class Failure(msgspec.Struct, frozen=True):
    """What of a model did not work, and what its process said last. part: its run, or its prediction."""

    name: str
    part: str
    what: str


class Results(msgspec.Struct):
    """device: the name that the driver gives, "" without a GPU."""

    device: str
    seconds: float = 0.0
    runs: list[Run] = []
    failures: list[Failure] = []
    left: list[str] = []
    """Models for which there was no time."""
