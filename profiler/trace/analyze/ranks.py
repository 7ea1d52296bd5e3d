"""Several ranks of one job, a file each: which is slowest, and how long the others wait for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from profiler.trace.analyze.idle_breakdown import StepParts

_IN_NAME = re.compile(r"rank[-_ ]?(\d{1,6})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RankTime:
    """One rank's step, in microseconds.

    communication_us: exposed communication, and gaps waiting for it. own_us: the rest of the wall time. wait_us: what
    of communication_us is more than the rank has that communicates least: the transfer itself takes every rank about as
    long, the rest is waiting for slower ranks.
    """

    rank: int
    wall_us: float
    own_us: float
    communication_us: float
    wait_us: float


@dataclass(frozen=True, slots=True)
class RankSpread:
    """slowest: the rank with the longest own time, which the others wait for. spread: (longest - shortest own time) /
    median wall time. waiting_share: mean of wait / wall over the ranks."""

    ranks: tuple[RankTime, ...]
    slowest: int
    spread: float
    waiting_share: float


def rank_of(name: str, recorded: int | None, position: int) -> int:
    """The rank that the trace names, else the one in its file's name ("rank-3"), else its position."""
    if recorded is not None:
        return recorded
    match = _IN_NAME.search(name)
    return int(match.group(1)) if match else position


def rank_numbers(names: Sequence[str], recorded: Sequence[int | None]) -> tuple[int, ...]:
    """A rank for each file; their positions where two would have the same one."""
    ranks = tuple(rank_of(name, rank, i) for i, (name, rank) in enumerate(zip(names, recorded, strict=True)))
    return ranks if len(set(ranks)) == len(ranks) else tuple(range(len(ranks)))


def rank_spread(parts: Sequence[tuple[int, StepParts]]) -> RankSpread | None:
    """The ranks by number, with the spread; None for fewer than two."""
    if len(parts) < 2:
        return None
    communication = {rank: p.communication_us + p.idle_communication_us for rank, p in parts}
    least = min(communication.values())
    ranks = tuple(
        RankTime(
            rank=rank,
            wall_us=p.wall_us,
            own_us=p.wall_us - communication[rank],
            communication_us=communication[rank],
            wait_us=communication[rank] - least,
        )
        for rank, p in sorted(parts, key=lambda item: item[0])
    )
    own_us = [r.own_us for r in ranks]
    wall = median(r.wall_us for r in ranks)
    return RankSpread(
        ranks=ranks,
        slowest=max(ranks, key=lambda r: r.own_us).rank,
        spread=(max(own_us) - min(own_us)) / wall if wall > 0.0 else 0.0,
        waiting_share=sum(r.wait_us / r.wall_us for r in ranks if r.wall_us > 0.0) / len(ranks),
    )
