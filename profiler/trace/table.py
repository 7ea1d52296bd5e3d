"""Kernel time by operator, shapes and kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
    if not len(kernels.name):
        return ()
    linked = kernels.op != NONE
    op = np.full(len(kernels.op), NONE, np.int64)
    detail = op.copy()
    op[linked] = ops.name[kernels.op[linked]]
    detail[linked] = ops.detail[kernels.op[linked]]
    # Three numbers as one, because np.unique sorts one array of them, not rows.
    key = ((op + 1) * (len(trace.details) + 1) + detail + 1) * len(trace.names) + kernels.name
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    times = np.bincount(group, weights=kernels.duration_us)
    calls = np.bincount(group)
    return tuple(
        Row(
            op=trace.names[op[first[i]]] if op[first[i]] != NONE else None,
            detail=trace.details[detail[first[i]]] if detail[first[i]] != NONE else None,
            kernel=trace.names[kernels.name[first[i]]],
            calls=int(calls[i]),
            time_us=float(times[i]),
        )
        for i in np.argsort(-times, kind="stable").tolist()
    )
