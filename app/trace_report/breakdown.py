"""Where a step's kernel time goes, by kernel and by module, as the API tells it. Times are µs of one step.

Kernel time here is the sum of durations: kernels of several streams that run side by side count each.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from app.objects.trace import Breakdown, KernelRow, ModuleRow
from profiler.trace.analyze.kernel_kinds import kernel_kind, kernel_label
from profiler.trace.model import NONE, Longs, Trace

if TYPE_CHECKING:
    from profiler.region.mining.mine import Mining

MAX_KERNELS, MAX_MODULES, MAX_NAME, MAX_PATH = 60, 120, 160, 240
"""Rows that are told one by one, and the longest names of them; the others are one row a kind, or no module."""

_INSTANCE = re.compile(r"_\d+$")


def owners(trace: Trace, mining: Mining, order: Sequence[int]) -> Longs:
    """int64 [kernels]: the region of each, as its place in the report; NONE where it is of none.

    order: for each place in the report the region's index in `mining.regions`.
    """
    owner = np.full(len(trace.kernels.start_us), NONE, np.int64)
    for place, index in enumerate(order):
        owner[list(mining.regions[index].kernels)] = place
    return owner


def streams(trace: Trace, mining: Mining, order: Sequence[int]) -> list[list[int]]:
    """The streams that each region of the report has kernels on, in ascending order."""
    return [[int(s) for s in np.unique(trace.kernels.stream[list(mining.regions[index].kernels)])] for index in order]


def where_json(trace: Trace, mining: Mining, owner: Longs) -> Breakdown:
    """Rows of one kernel name, and of one module class. owner: as `owners` gives it."""
    chosen = np.concatenate([s.kernels for s in mining.mined]) if mining.mined else np.empty(0, np.int64)
    steps = max(1, len(mining.mined))
    return {
        "kernels": _kernels(trace, chosen, owner, steps),
        "modules": _modules(trace, chosen, owner, steps),
    }


def _kernels(trace: Trace, chosen: Longs, owner: Longs, steps: int) -> list[KernelRow]:
    """Name, kind, time, calls and regions by time; what is not among the largest is one row a kind, without a name."""
    time_us: dict[int, float] = defaultdict(float)
    calls: dict[int, int] = defaultdict(int)
    regions: dict[int, dict[int, None]] = defaultdict(dict)
    columns = (trace.kernels.name[chosen], trace.kernels.duration_us[chosen], owner[chosen])
    for name, duration, region in zip(*(c.tolist() for c in columns), strict=True):
        time_us[name] += duration
        calls[name] += 1
        if region != NONE:
            regions[name][region] = None
    ranked = sorted(time_us, key=lambda n: -time_us[n])
    rows: list[KernelRow] = [
        {
            "name": trace.names[name][:MAX_NAME],
            "label": kernel_label(trace.names[name]),
            "kind": kernel_kind(trace.names[name]),
            "time_us": round(time_us[name] / steps, 3),
            "calls_per_step": calls[name] / steps,
            "regions": list(regions[name])[:8],
        }
        for name in ranked[:MAX_KERNELS]
    ]
    others: dict[str, list[int]] = defaultdict(list)
    for name in ranked[MAX_KERNELS:]:
        others[kernel_kind(trace.names[name])].append(name)
    for kind, names in others.items():
        rows.append(
            {
                "name": "",
                "label": "",
                "kind": kind,
                "time_us": round(sum(time_us[n] for n in names) / steps, 3),
                "calls_per_step": sum(calls[n] for n in names) / steps,
                "regions": [],
                "names": len(names),
            }
        )
    return rows


def module_class(path: str) -> str:
    """ "Model_0/Block_7/Linear_2" -> "Model/Block/Linear": layers that repeat are one."""
    return "/".join(_INSTANCE.sub("", name) for name in path.split("/"))


def _modules(trace: Trace, chosen: Longs, owner: Longs, steps: int) -> list[ModuleRow]:
    """Class path, how many modules are of it, time, and of that by region: [place, µs], the largest first.

    A backward kernel runs outside its module's frame: a region's time without a module goes to its modules as its time
    with one does. What no module of its region is known of is the row with path "". [] where none was recorded.
    """
    if not trace.modules or not len(chosen) or not len(trace.ops.module):
        return []
    kernels = trace.kernels
    op = kernels.op[chosen]
    module = np.where(op != NONE, trace.ops.module[np.maximum(op, 0)], NONE)
    if not (module != NONE).any():
        return []
    own: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    loose: dict[int, float] = defaultdict(float)
    seen: dict[str, set[int]] = defaultdict(set)
    classes = [module_class(path)[-MAX_PATH:] for path in trace.modules]
    for place, region, duration in zip(
        module.tolist(), owner[chosen].tolist(), kernels.duration_us[chosen].tolist(), strict=True
    ):
        if place == NONE:
            loose[region] += duration
        else:
            own[region][classes[place]] += duration
            seen[classes[place]].add(place)
    for region, time in loose.items():
        _lend(own, region, time)
    rows: dict[str, dict[int, float]] = defaultdict(dict)
    for region, by_class in own.items():
        for name, time in by_class.items():
            rows[name][region] = time / steps
    ranked = sorted(rows, key=lambda n: -sum(rows[n].values()))
    kept, rest = [n for n in ranked if n][:MAX_MODULES], [n for n in ranked if n][MAX_MODULES:]
    unplaced: dict[int, float] = defaultdict(float)
    for name in [*rest, *([""] if "" in rows else [])]:
        for region, time in rows[name].items():
            unplaced[region] += time
    told = [_module(name, len(seen[name]), rows[name]) for name in kept]
    return [*told, *([_module("", 0, unplaced)] if unplaced else [])]


def _lend(own: dict[int, dict[str, float]], region: int, time: float) -> None:
    """Spread a region's time without a module over the modules of its other kernels."""
    known = {name: part for name, part in own[region].items() if name} if region != NONE else {}
    total = sum(known.values())
    if not total:
        own[region][""] += time
        return
    for name, part in known.items():
        own[region][name] += time * part / total


def _module(path: str, count: int, regions: Mapping[int, float]) -> ModuleRow:
    by_time = sorted(regions.items(), key=lambda item: -item[1])
    return {
        "path": path,
        "modules": count,
        "time_us": round(sum(regions.values()), 3),
        "regions": [[place, round(time, 3)] for place, time in by_time],
    }
