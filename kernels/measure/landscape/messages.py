"""What a landscape's processes are asked and answer, in the questions and answers of `kernels.measure.messages`.

`Open` -> `Opened` once, then `RunPoint` -> `PointResult` for each point, and at the end `Duel` -> `DuelTimes` and
`CompareOrders` -> `OrderTimes`. Where points are compiled for a GPU that is not here, only the first two. Times are in
µs, sizes in bytes. No torch.
"""

from __future__ import annotations

from typing import TypeAlias, cast

import msgspec

from kernels.measure.landscape.model import Point
from kernels.measure.messages import Request


class Open(Request, frozen=True, kw_only=True, tag="open"):
    """Build the candidate, let it tune itself, list the points of its kernel that is launched on the most bytes.

    points: at most. chosen: the key of the point that is to count as chosen, as another process opened it; None for
    the tuner's own. target: a GPU that is not here.
    """

    candidate: str
    region: str
    sizes: dict[str, int]
    device: str
    seed: int
    memory_bytes: float
    l2_bytes: float
    registry: str
    points: int
    chosen: str | None
    target: str | None


class Opened(msgspec.Struct, frozen=True):
    """others: kernels that are tuned too. chosen: a point's key; None where nothing was tuned."""

    kernel: str
    others: list[str]
    chosen: str | None
    points: list[Point]


class RunPoint(Request, frozen=True, tag="point"):
    """Run, or compile, the point of that key."""

    key: str


class Machine(msgspec.Struct, frozen=True):
    """What a compiled kernel takes, as far as it is known: of a thread, of a program; and the occupancy it allows."""

    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None


class PointResult(msgspec.Struct, frozen=True):
    """What came of a point. status: as landscape.model has them. times_us: of its calls, [] where it was not timed."""

    status: str
    reason: str = ""
    times_us: list[float] = []
    machine: Machine = Machine()


class Duel(Request, frozen=True, tag="duel"):
    """Points in turns, checked once more: one that wrote where it should not may have spoilt what came after."""

    keys: list[str]
    rounds: int


class DuelTimes(msgspec.Struct, frozen=True):
    """wrong: what is, of the first point that is wrong, "" where none is. rounds_us: per key, each round's samples."""

    wrong: str
    rounds_us: list[list[list[float]]]


class CompareOrders(Request, frozen=True, tag="order"):
    """A point's tile in groups of rows of tiles and in plain order, in turns."""

    key: str
    rounds: int


class OrderTimes(msgspec.Struct, frozen=True):
    """group: rows of tiles of one, None for a kernel without groups. rounds_us: of the groups, of the plain order."""

    group: int | None = None
    rounds_us: list[list[list[float]]] = []


SurveyRequest: TypeAlias = Open | RunPoint | Duel | CompareOrders


def survey_request(request: object) -> SurveyRequest:
    """What a process on a GPU is asked."""
    return cast(SurveyRequest, msgspec.convert(request, SurveyRequest))


CompileRequest: TypeAlias = Open | RunPoint


def compile_request(request: object) -> CompileRequest:
    """What a process that compiles for a target is asked."""
    return cast(CompileRequest, msgspec.convert(request, CompileRequest))
