"""A step's kernel time as trees: by the modules that its kernels ran in, and by the functions that launched them.

Times are µs of one step, summed over kernels. Layers that repeat are one: a path names classes, not their instances.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from app.objects.trace import CallTree, CallTrees, SourceShare
from app.trace_report.breakdown import module_class
from app.trace_report.called_from import CalledFrom
from app.trace_report.source_calls import lent_factors, source_calls
from app.trace_report.timeline import NO_REGION
from profiler.region.shares import OnShare, untold
from profiler.trace.model import NONE, Longs, Trace

MAX_NODES, MAX_NAME = 400, 160
"""Nodes of one tree that are kept, those with most time, and the longest name of one, from its end."""

Path = tuple[str, ...]


@dataclass(slots=True)
class _Node:
    """time_us, kernels: of all below, over all mined steps. regions: of what ran in none of its nodes."""

    name: str
    time_us: float = 0.0
    kernels: float = 0.0
    nodes: dict[str | int, _Node] = field(default_factory=dict)
    region: int | None = None


def call_trees_json(trace: Trace, called: CalledFrom, owner: Longs, on_share: OnShare = untold) -> CallTrees:
    """owner: the region of each kernel as its place in the report, NONE for none (`breakdown.owners`). on_share: is
    told which share is done."""
    chosen, steps = called.kernels, max(1, len(called.mining.mined))
    regions = np.where(owner[chosen] == NONE, NO_REGION, owner[chosen]).tolist()
    times = trace.kernels.duration_us[chosen].tolist()
    modules = _module_paths(trace, chosen)
    stacks = called.stacks
    exact = trace.has_call_stacks
    return {
        "modules": _tree(modules, regions, times, steps),
        "functions": _tree(stacks, regions, times, steps),
        "lines": "call" if exact else "first",
        "calls": None if exact else source_calls(trace, called, regions, times, steps, on_share),
        "told": _told(stacks, regions, times, steps, exact=exact),
    }


def _told(
    stacks: Sequence[Path], regions: Sequence[int], times: Sequence[float], steps: int, *, exact: bool
) -> SourceShare:
    factors = lent_factors([bool(stack) for stack in stacks], regions, times)
    every = sum(times) / steps
    told = sum(t * factors.get(r, 1.0) for stack, r, t in zip(stacks, regions, times, strict=True) if stack) / steps
    return {
        "line_us": round(told if exact else 0.0, 3),
        "function_us": round(0.0 if exact else told, 3),
        "none_us": round(max(0.0, every - told), 3),
    }


def _module_paths(trace: Trace, chosen: Longs) -> list[Path]:
    """The module of each kernel's operation as the classes around it; () for none."""
    if not trace.modules or not len(trace.ops.module):
        return [()] * len(chosen)
    paths = [tuple(module_class(path).split("/")) for path in trace.modules]
    op = trace.kernels.op[chosen]
    module = np.where(op == NONE, NONE, trace.ops.module[np.maximum(op, 0)])
    return [() if place == NONE else paths[place] for place in module.tolist()]


def _tree(paths: Sequence[Path], regions: Sequence[int], times: Sequence[float], steps: int) -> CallTree | None:
    """None where no kernel has a path."""
    if not any(paths):
        return None
    sums: dict[int, dict[Path, tuple[float, float]]] = defaultdict(dict)
    for path, region, time in zip(paths, regions, times, strict=True):
        before = sums[region].get(path, (0.0, 0.0))
        sums[region][path] = (before[0] + time, before[1] + 1.0)
    root = _Node("")
    for region, by_path in sums.items():
        for path, (time, kernels) in _lend(by_path, region).items():
            _add(root, path, region, time / steps, kernels / steps)
    return _columns(root)


def _lend(by_path: dict[Path, tuple[float, float]], region: int) -> dict[Path, tuple[float, float]]:
    """A region's work without a path, spread over its paths as its work with one is: a backward kernel is launched by
    no module and no function of the user's. Of no region, and where no path is known, it stays."""
    known = {path: sums for path, sums in by_path.items() if path}
    total = sum(time for time, _ in known.values())
    if region < 0 or not total or () not in by_path:
        return by_path
    loose_us, loose = by_path[()]
    return {path: (t + loose_us * t / total, n + loose * t / total) for path, (t, n) in known.items()}


def _add(root: _Node, path: Path, region: int, time_us: float, kernels: float) -> None:
    node = root
    way: list[str | int] = [*path, region]
    for name in way:
        node = node.nodes.setdefault(name, _Node("" if isinstance(name, int) else name[-MAX_NAME:]))
        node.time_us += time_us
        node.kernels += kernels
    node.region = region


def _columns(root: _Node) -> CallTree:
    """The nodes with most time, parents before their own, each level by time: a node has no less than those below."""
    every: list[tuple[_Node, int]] = []

    def walk(node: _Node, parent: int) -> None:
        stack = [(node, parent)]
        while stack:
            here, above = stack.pop()
            place = len(every)
            every.append((here, above))
            stack += [(n, place) for n in sorted(here.nodes.values(), key=lambda n: n.time_us)]

    for node in sorted(root.nodes.values(), key=lambda n: -n.time_us):
        walk(node, NONE)
    ranked = sorted(range(len(every)), key=lambda place: (-every[place][0].time_us, place))[:MAX_NODES]
    kept = sorted(ranked)
    places = {old: new for new, old in enumerate(kept)} | {NONE: NONE}
    names: dict[str, int] = {}
    tree: CallTree = {"names": [], "parent": [], "name": [], "region": [], "time_us": [], "kernels": []}
    for old in kept:
        node, above = every[old]
        tree["parent"].append(places[above])
        tree["name"].append(names.setdefault(node.name, len(names)))
        tree["region"].append(node.region)
        tree["time_us"].append(round(node.time_us, 3))
        tree["kernels"].append(round(node.kernels, 2))
    tree["names"] = list(names)
    return tree
