"""Copies and sets of memory that a region's operations make on the way: a sort's, a split product's. They are no
kernels, and go where the launches of their operation go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiler.region.mining.mine import MinedRegion
from profiler.trace.model import NONE, Step, Trace


def copies_of_regions(trace: Trace, regions: Sequence[MinedRegion], steps: Sequence[Step]) -> list[tuple[float, float]]:
    """(number, time in µs) a step of each region: of what is asked for by the operations that launch its kernels."""
    owner = np.full(len(trace.ops.name) + 1, len(regions), np.int64)
    for number, region in enumerate(regions):
        owner[trace.kernels.op[list(region.kernels)]] = number
    owner[NONE] = len(regions)  # the last: kernels that no operation is known of
    chosen = [int(m) for step in steps for m in step.memory if trace.memory.op[m] != NONE]
    groups = owner[trace.memory.op[chosen]]
    many = np.bincount(groups, minlength=len(regions) + 1)
    time_us = np.bincount(groups, trace.memory.duration_us[chosen], len(regions) + 1)
    count = max(1, len(steps))
    return [(float(n) / count, float(us) / count) for n, us in zip(many[:-1], time_us[:-1], strict=True)]
