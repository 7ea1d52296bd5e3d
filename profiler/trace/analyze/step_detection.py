"""Steps of a trace that marks none: repetition in the sequence of kernel names."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from profiler.trace.model import NONE, Floats, Ints, Kernels, Longs, Ops

SAME_SHARE = 0.95
"""Share of kernels whose name must occur again one period later: autotuned and split variants differ now and then."""

COVERED_SHARE = 0.8
"""Share of the sequence that the repetition must cover; what is before it is a warm-up, what is after it a cut step."""

KNOWN_TIME_SHARE = 0.98
KNOWN_NAMES_SHARE = 0.9
"""Share of the kernel time, and of the distinct names, that one period must hold. A repeated layer is no step: what
comes before and after the layers (embedding, head, loss, optimizer) is in no layer."""

SHORTEST = 4
"""Kernels of a period, at least. Two repetitions of less say nothing."""

LONG_PAUSE = 5.0
"""A pause so many times the median one, at regular distances, is where the host ended a step (it waited, or logged)."""

CANDIDATES = 48
MOST_KERNELS = 400_000

Window = tuple[str, float, float]


@dataclass(frozen=True, slots=True)
class Repetition:
    """`count` whole repetitions of `period` kernels from the kernel `first`, in order of launch."""

    first: int
    period: int
    count: int


def find_repetition(name: Ints, at_us: Floats, duration_us: Floats) -> Repetition | None:
    """The shortest period that explains the sequence of names; None where nothing repeats, or only a part of it does.

    name, at_us, duration_us: of kernels, in order of at_us (launch, else start). A repetition begins where the pause
    before it is longest on average.
    """
    count = len(name)
    if not 2 * SHORTEST <= count <= MOST_KERNELS:
        return None
    for period in _candidates(name):
        low, high = _longest_run(name[:-period] == name[period:])
        if high - low + period < COVERED_SHARE * count or high - low < period:
            continue
        if not _holds_everything(name, duration_us, low, period):
            continue
        last = high + period
        first = _phase(at_us, low, last, period)
        repetitions = (last - first) // period
        if repetitions < 2:
            first, repetitions = low, (last - low) // period
        if repetitions >= 2:
            return _join(Repetition(first, period, repetitions), at_us)
    return None


def _join(repetition: Repetition, at_us: Floats) -> Repetition:
    """Where every m-th repetition begins after a long pause, m of them are one: a step of m equal layers."""
    starts = repetition.first + repetition.period * np.arange(1, repetition.count)
    pause = at_us[starts] - at_us[starts - 1]
    long = np.flatnonzero(pause > LONG_PAUSE * np.median(pause)) + 1
    together = int(long[0]) if len(long) else 1
    if together < 2 or repetition.count < 2 * together or (long != together * np.arange(1, len(long) + 1)).any():
        return repetition
    if len(long) != (repetition.count - 1) // together:
        return repetition
    return Repetition(repetition.first, repetition.period * together, repetition.count // together)


def _candidates(name: Ints) -> list[int]:
    """Distances that a name keeps to its next occurrences, the shortest first.

    A name that occurs m times in a period and r periods has distance p between its occurrences i and i + m; so all
    distances of the rare names are tried, where m is small.
    """
    order = np.argsort(name, kind="stable")
    cuts = np.flatnonzero(np.diff(name[order])) + 1
    occurrences: Counter[int] = Counter()
    groups = sorted(np.split(order, cuts), key=len)
    for places in [g for g in groups if len(g) > 1][:CANDIDATES]:
        for distance in range(1, min(len(places), 9)):
            distances = Counter((places[distance:] - places[:-distance]).tolist())
            period, times = distances.most_common(1)[0]
            if period >= SHORTEST:
                occurrences[period] += times
    return sorted(period for period, _ in occurrences.most_common(CANDIDATES))


def _longest_run(same: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """[low, high) of the stretch with the most equal names of which SAME_SHARE are equal, by the largest sum."""
    score = np.where(same, 1.0, -SAME_SHARE / (1.0 - SAME_SHARE))
    reached = np.concatenate(([0.0], np.cumsum(score)))
    lowest = np.minimum.accumulate(reached)
    high = int(np.argmax(reached - lowest))
    return int(np.argmin(reached[: high + 1])), high


def _holds_everything(name: Ints, duration_us: Floats, low: int, period: int) -> bool:
    """Whether one period has (nearly) every name that the whole sequence has."""
    tile = np.unique(name[low : low + period])
    in_tile = np.isin(name, tile)
    time = float(duration_us.sum())
    by_time = float(duration_us[in_tile].sum()) / time if time > 0.0 else 1.0
    return by_time >= KNOWN_TIME_SHARE and len(tile) >= KNOWN_NAMES_SHARE * len(np.unique(name))


def _phase(at_us: Floats, low: int, high: int, period: int) -> int:
    """The first kernel after the pause that is longest on average over the repetitions."""
    repetitions = (high - low) // period
    pause = np.diff(at_us[low : low + repetitions * period], prepend=np.nan)
    table = pause.reshape(repetitions, period)
    middle = np.nanmean(table, axis=0)
    return low + int(np.argmax(middle))


def repeated_windows(kernels: Kernels, ops: Ops) -> list[Window]:
    """One window a repetition, on the host's clock: it begins with the operation that launches its first kernel.

    The last one of the file ends with the operation that launches its last kernel.
    """
    at = np.where(np.isnan(kernels.launch_us), kernels.start_us, kernels.launch_us)
    order = np.argsort(at, kind="stable")
    repetition = find_repetition(kernels.name[order], at[order], kernels.duration_us[order])
    if repetition is None:
        return []
    edges = [repetition.first + i * repetition.period for i in range(repetition.count + 1)]
    starts = [_begins(edge, order, at, kernels, ops) for edge in edges if edge < len(order)]
    if len(starts) < len(edges):
        starts.append(_ends(int(order[-1]), at, kernels, ops))
    return [(f"repetition {i}", a, b) for i, (a, b) in enumerate(pairwise(starts)) if b > a]


def _begins(edge: int, order: Longs, at: Floats, kernels: Kernels, ops: Ops) -> float:
    """Start of the outermost operation around the launch of a kernel, where no earlier kernel was launched in it."""
    kernel = int(order[edge])
    launch, op = float(at[kernel]), int(kernels.op[kernel])
    before = float(at[order[edge - 1]]) if edge else -np.inf
    begins = launch
    while op != NONE:
        if float(ops.start_us[op]) <= before:
            break
        begins = float(ops.start_us[op])
        op = int(ops.parent[op])
    return begins


def _ends(kernel: int, at: Floats, kernels: Kernels, ops: Ops) -> float:
    """End of the outermost operation round a kernel's launch, else just after the launch."""
    op, end = int(kernels.op[kernel]), float(np.nextafter(at[kernel], np.inf))
    while op != NONE:
        end, op = max(end, float(ops.end_us[op])), int(ops.parent[op])
    return end
