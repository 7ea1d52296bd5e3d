"""Kernels that one CUDA or HIP graph launch replays: kept together, named, and how much time they hide."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler.trace.analyze.gpu_utilization import union_us
from profiler.trace.model import NONE, Longs, Step, Trace

PAST_IT = (
    "Profile the same step without CUDA graphs (eager, or torch.compile in its default mode), with record_shapes=True. "
    "Given with this trace (tritonworthy advise THIS --companion OTHER), its operations and shapes are taken for "
    "them."
)
"""How to see what a graph replays."""


_AMD = re.compile(r"AMD |Cijk_|ck_tile|rocprim|miopen|hip_bfloat16")
"""In the device's name or a kernel's: the launch's own name is not kept."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One launch of a graph: its kernels (indices into Trace.kernels, by start), and when the host asked for it.

    launch_us is NaN where the launch is not in the window.
    """

    kernels: Longs
    launch_us: float


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph: the replays that run the same kernels in the same order. Times in microseconds."""

    name: str
    replays: tuple[Replay, ...]
    kernels_per_replay: int
    time_us_per_replay: float  # in which at least one of its kernels runs: mean over the replays
    share_of_kernel_time: float  # of the summed kernel time of the steps looked at
    hidden_share: float  # of the graph's own kernel time: no operation is known (none was borrowed)
    kernel_names: tuple[str, ...]  # distinct, those that take most time first


def replays(trace: Trace, steps: Sequence[Step] | None = None) -> tuple[Replay, ...]:
    """Graph launches, in order: kernels under one cuda/hipGraphLaunch; or, where their launch is not in the window, two
    or more kernels under one correlation (nothing else gives several kernels one)."""
    kernels = trace.kernels
    chosen = np.arange(len(kernels.start_us)) if steps is None else _together(steps)
    correlation = kernels.correlation[chosen]
    order = np.argsort(correlation, kind="stable")
    cuts = np.flatnonzero(np.diff(correlation[order])) + 1
    launched = []
    for rows in np.split(chosen[order], cuts):
        if not len(rows) or kernels.correlation[rows[0]] in (NONE, 0):
            continue
        is_graph = bool(kernels.graph[rows[0]])
        if is_graph or (len(rows) > 1 and not kernels.launched[rows[0]]):
            at = kernels.launch_us[rows[0]]
            launched.append(Replay(rows[np.argsort(kernels.start_us[rows], kind="stable")], float(at)))
    return tuple(sorted(launched, key=lambda r: float(kernels.start_us[r.kernels[0]])))


def _together(steps: Sequence[Step]) -> Longs:
    return np.unique(np.concatenate([s.kernels for s in steps])) if steps else np.empty(0, np.int64)


def find_graphs(trace: Trace, steps: Sequence[Step] | None = None) -> tuple[Graph, ...]:
    """The graphs replayed in the steps (in the whole trace where none are given), by time."""
    kernels = trace.kernels
    same: defaultdict[bytes, list[Replay]] = defaultdict(list)
    for replay in replays(trace, steps):
        same[kernels.name[replay.kernels].tobytes()].append(replay)
    looked_at = slice(None) if steps is None else _together(steps)
    total = float(kernels.duration_us[looked_at].sum())
    vendor = "HIP graph" if _AMD.search(" ".join((trace.device or "", *trace.names))) else "CUDA graph"
    graphs = []
    for group in same.values():
        rows = np.concatenate([r.kernels for r in group])
        time = kernels.duration_us[rows]
        busy = [_busy_us(trace, r) for r in group]
        by_name: Counter[str] = Counter()
        for name, one in zip(kernels.name[rows].tolist(), time.tolist(), strict=True):
            by_name[trace.names[name]] += one
        own_us = float(time.sum())
        hidden = float(time[kernels.op[rows] == NONE].sum())
        graphs.append(
            Graph(
                name=vendor,
                replays=tuple(group),
                kernels_per_replay=len(group[0].kernels),
                time_us_per_replay=float(np.mean(busy)),
                share_of_kernel_time=own_us / total if total > 0.0 else 0.0,
                hidden_share=hidden / own_us if own_us > 0.0 else 0.0,
                kernel_names=tuple(name for name, _ in by_name.most_common()),
            )
        )
    graphs.sort(key=lambda g: -g.share_of_kernel_time)
    return tuple(_number(graph, i, len(graphs)) for i, graph in enumerate(graphs, 1))


def _number(graph: Graph, number: int, count: int) -> Graph:
    return graph if count == 1 else replace(graph, name=f"{graph.name} {number}")


def _busy_us(trace: Trace, replay: Replay) -> float:
    start = trace.kernels.start_us[replay.kernels]
    return union_us(start, start + trace.kernels.duration_us[replay.kernels])
