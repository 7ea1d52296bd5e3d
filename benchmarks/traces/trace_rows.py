"""Kernel time of a trace by operator, shapes and kernel: the job that benchmarks/traces/trace.py times of every
reader."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from profiler.trace.mmap_columns import pieces
from profiler.trace.model import NONE, Detail, Trace


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel under one operator at one set of shapes. op, detail: None where no op or no shape is known."""

    op: str | None
    detail: Detail | None
    kernel: str
    calls: int
    time_us: float


def kernel_table(trace: Trace) -> tuple[Row, ...]:
    """One row for each (op, shapes, kernel) of the trace, the longest time first. Times in microseconds, summed."""
    kernels, ops = trace.kernels, trace.ops
    names, details = len(trace.names), len(trace.details) + 1
    calls: Counter[int] = Counter()
    times: defaultdict[int, float] = defaultdict(float)
    for at in pieces(len(kernels.name), kernels.name, kernels.op, kernels.duration_us, ops.name, ops.detail):
        of = kernels.op[at]
        linked = of != NONE
        op = np.full(len(of), NONE, np.int64)
        detail = op.copy()
        op[linked] = ops.name[of[linked]]
        detail[linked] = ops.detail[of[linked]]
        # Three numbers as one, because np.unique sorts one array of them, not rows.
        keys, group = np.unique(((op + 1) * details + detail + 1) * names + kernels.name[at], return_inverse=True)
        sums, counts = np.bincount(group, weights=kernels.duration_us[at]), np.bincount(group)
        for key, time, count in zip(keys.tolist(), sums.tolist(), counts.tolist(), strict=True):
            calls[key] += count
            times[key] += time
    rows = []
    for key in sorted(calls, key=lambda k: (-times[k], k)):
        above, name = divmod(key, names)
        of_op, of_detail = divmod(above, details)
        rows.append(
            Row(
                op=trace.names[of_op - 1] if of_op else None,
                detail=trace.details[of_detail - 1] if of_detail else None,
                kernel=trace.names[name],
                calls=calls[key],
                time_us=times[key],
            )
        )
    return tuple(rows)
