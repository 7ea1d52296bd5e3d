"""Gain: a step's time after following the advice on its regions, all of it or the three that save most, as ranges.

A step is not the sum of its kernels, so a region's speed-up does not simply scale its share. The step falls into
stretches in which the GPU sets the pace and stretches in which the host does (`profiler.trace.analyze.pacing`):

    step = GPU-paced + host-paced (kernels + waiting for launches) + other waiting (the host, communication)
    GPU-paced after  = max(GPU-paced - saved there, (GPU-paced - the host's lead) x launches left)
    host-paced after = max(its kernels - saved there, (its kernels + waiting for launches) x launches left)
    saved by a region = its time there x (1 - 1 / its predicted speed-up)

So gaps stay as long as the launches do, and where the host sets the pace faster kernels alone save nothing. Other
waiting stays. The three ends of the range: least saved takes the low speed-up, and every launch stays but those that
CUDA graphs take away; the middle and the most saved take the middle and high speed-up and the launches that the advice
leaves (two models recorded with and without torch.compile: 0.42 and 0.74 of the host's time for 0.47 and 0.53 of the
launches, docs/traces.md). Where kernels of several streams overlap, least counts of a region only what must have run
alone (twice its even part less its kernels' time, exact for two streams), the others its even part.

Pure functions of the API's trace; times in µs of one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.advice.model import Advice
from app.estimate.facts import RegionFacts

Json = Mapping[str, Any]

TOP = 3
GRAPHS = "reduce-overhead"
GRAPH_GAP_US = 1.1
"""Between two kernels of one graph: handrolled_blocks_bf16_cudagraph, 177 µs idle in a step of 160 kernels (H200)."""
NOTABLE = 0.01
"""Share of the step from which on something that is not known is worth a line."""


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of advice: a region's, or CUDA graphs, which are for the whole step. regions: indices of them."""

    name: str
    tool: str
    mode: str
    regions: tuple[int, ...]


def launches_left(facts: RegionFacts, advice: Advice) -> dict[str, float]:
    """Of a region's launches, the share that is left with each tool, 0 to 1; {} where its operations are not known.

    torch.compile and Triton: a kernel for each fused group. A library: one launch in the place of what the call covers.
    """
    shape = facts.heaviest
    if shape is None or not shape.cost.unfused.launches:
        return {}
    before = shape.cost.unfused.launches
    fused = min(1.0, shape.cost.fused.launches / before)
    found = {"compile": fused, "triton": fused}
    cover = next((c for c in facts.covers if c.candidate == f"library:{advice.mode}"), None)
    if cover is not None:
        gone = sum(o.launches for o in shape.cost.operations if cover.whole or o.name in cover.operations)
        found["library"] = min(1.0, max(1, before - gone + 1) / before)
    return found


def list_names(advice: Sequence[str]) -> str:
    """Names of advice in one line, one that several regions share with their number."""
    counts = Counter(advice)
    return "; ".join(name if number == 1 else f"{name} ({number})" for name, number in counts.items())


def gain(trace: Json) -> dict[str, Any] | None:
    """The API's `gain`; None for a trace whose step or pace is not known.

    all, top: {step_time_us, speedup, saved_us} as ranges (low <= mid <= high), idle_us of the middle, and the names of
    the `advice` followed; None where no time is predicted. top is of the TOP that save most, each followed alone.
    each: [{advice, regions, saved_us}], one piece of advice alone, most first; regions: their keys.
    unknown: [{code, text, time_us}], what the trace cannot tell.
    """
    parts, pace = trace.get("step_parts"), trace.get("pace")
    if not parts or not pace or not parts["wall_us"]:
        return None
    regions = trace.get("regions") or []
    known = [i for i in items(regions) if _predicted(i, regions)]
    alone = {i: _step_us(trace, (i,)) for i in known}
    best = sorted(known, key=lambda i: (alone[i][1], -_kernels_saved(i, regions), i.name))
    return {
        "all": _follow(trace, known),
        "top": _follow(trace, best[:TOP]),
        "each": [_each(trace, i, alone[i]) for i in best],
        "unknown": unknown(trace, known),
    }


def items(regions: Sequence[Json]) -> list[Item]:
    """Every piece of advice that says to do something; CUDA graphs once, however many regions are told of them."""
    active = [(i, r["advice"]) for i, r in enumerate(regions) if (r.get("advice") or {}).get("tool", "skip") != "skip"]
    graphs = tuple(i for i, a in active if a["mode"] == GRAPHS)
    found = [Item(regions[i]["name"], a["tool"], a["mode"], (i,)) for i, a in active if a["mode"] != GRAPHS]
    if graphs:
        found.insert(0, Item("CUDA graphs of the step", "compile", GRAPHS, graphs))
    return found


def _predicted(item: Item, regions: Sequence[Json]) -> bool:
    return item.mode == GRAPHS or regions[item.regions[0]]["advice"].get("region_speedup") is not None


def _kernels_saved(item: Item, regions: Sequence[Json]) -> float:
    return sum(_busy(regions[i]) * _saved_share(regions[i], "mid") for i in item.regions)


def _busy(region: Json) -> float:
    return float(region.get("busy_us_per_step") or 0.0)


def _saved_share(region: Json, end: str) -> float:
    """1 - 1 / speed-up: of a region's time, the share that following its advice saves; negative where it may lose."""
    factor = (region["advice"].get("region_speedup") or {}).get(end)
    return 1 - 1 / float(factor) if factor else 0.0


def _alone(region: Json) -> float:
    """Of a region's part of the GPU's time, the share that must have run with nothing beside it."""
    busy, time = _busy(region), float(region.get("time_us_per_step") or 0.0)
    return min(1.0, max(0.0, 2 * busy - time) / busy) if busy > 0 else 0.0


def _step_us(trace: Json, followed: Collection[Item]) -> tuple[float, float, float]:
    """(low, mid, high) time of the step once this advice is followed."""
    most, mid, least = (_after(trace, followed, end)[0] for end in ("high", "mid", "low"))
    return min(most, mid, least), mid, max(most, mid, least)


def _after(trace: Json, followed: Collection[Item], end: str) -> tuple[float, float]:
    """(step, of it idle) with each region's speed-up at that end of its range: "low" saves least."""
    parts, pace, regions = trace["step_parts"], trace["pace"], trace["regions"]
    busy = parts["kernels_us"] + parts["communication_us"] + parts["copies_us"]
    on_gpu = saved = 0.0
    for region in (regions[i] for item in followed if item.mode != GRAPHS for i in item.regions):
        share = _saved_share(region, end) * (_alone(region) if end == "low" else 1.0)
        on_gpu += share * float(region.get("gpu_paced_us_per_step") or 0.0)
        saved += share * _busy(region)
    left = _launches_left(trace, followed, end)
    gpu, lead = pace["gpu_us"], pace["lead_us"]
    kernels = max(0.0, busy + parts["idle_device_us"] - gpu)
    paced = kernels + parts["idle_launch_us"]
    gpu_after = max(gpu - on_gpu, (gpu - lead) * left)
    paced_after = max(kernels - (saved - on_gpu) + _graph_gaps_us(trace, followed, end, left), paced * left)
    step = parts["wall_us"] - (gpu - gpu_after) - (paced - paced_after)
    return step, max(0.0, step - (busy - saved))


def _graph_gaps_us(trace: Json, followed: Collection[Item], end: str, left: float) -> float:
    """Time between the kernels of the graphs that take launches away; none at the end that saves most."""
    if end == "high" or all(item.mode != GRAPHS for item in followed):
        return 0.0
    return GRAPH_GAP_US * (1 - left) * float(trace["pace"]["launches"])


def _launches_left(trace: Json, followed: Collection[Item], end: str) -> float:
    """Share of the step's launches that the host still makes."""
    regions, total = trace["regions"], float(trace["pace"]["launches"])
    if not total:
        return 1.0
    own = [float(r.get("kernels_per_call") or 0.0) * float(r.get("calls_per_step") or 0.0) for r in regions]
    gone = [0.0] * len(regions)
    advised = {i: item for item in items(regions) for i in item.regions}
    for item in followed:
        for i in item.regions:
            share = 0.0 if item.mode == GRAPHS else (regions[i].get("launches_left") or {}).get(item.tool, 1.0)
            gone[i] = own[i] * (1 - share) if item.mode == GRAPHS or end != "low" else 0.0
    left = total - sum(gone)
    if end != "low" and any(item.mode == GRAPHS for item in followed):
        # Graphs take what lies between the regions with them; what has another advice keeps its launches.
        left = sum(own[i] - gone[i] for i in range(len(regions)) if i in advised and advised[i].mode != GRAPHS)
    return min(1.0, max(0.0, left / total))


def _follow(trace: Json, followed: Sequence[Item]) -> dict[str, Any] | None:
    if not followed:
        return None
    wall = trace["step_parts"]["wall_us"]
    low, mid, high = _step_us(trace, followed)
    return {
        "step_time_us": {"low": low, "mid": mid, "high": high},
        "speedup": {"low": wall / high, "mid": wall / mid, "high": wall / low},
        "saved_us": {"low": wall - high, "mid": wall - mid, "high": wall - low},
        "idle_us": _after(trace, followed, "mid")[1],
        "advice": [i.name for i in followed],
    }


def _each(trace: Json, item: Item, after: tuple[float, float, float]) -> dict[str, Any]:
    wall = trace["step_parts"]["wall_us"]
    low, mid, high = (wall - time for time in reversed(after))
    keys = [trace["regions"][i].get("key") for i in item.regions]
    return {"advice": item.name, "regions": keys, "saved_us": {"low": low, "mid": mid, "high": high}}


def unknown(trace: Json, known: Sequence[Item] = ()) -> list[dict[str, Any]]:
    """What the trace cannot tell about the step after following the advice, each with the time that it is about.

    known: the advice with a predicted time. Only what is NOTABLE is told.
    """
    regions, parts, wall = trace["regions"], trace["step_parts"], trace["step_parts"]["wall_us"]
    told = {i for item in known for i in item.regions}
    blind = [regions[i] for item in items(regions) for i in item.regions if i not in told]
    without = [r for r in regions if not r.get("advice")]
    graphs = [regions[i] for item in known if item.mode == GRAPHS for i in item.regions]
    why = "" if trace.get("has_shapes", True) else ": shapes were not recorded"
    paced = (wall - trace["pace"]["gpu_us"]) / wall
    found = (
        (
            "no-prediction",
            sum(map(_busy, blind)),
            f"advice on {_count(len(blind), 'region')} with no predicted time{why}; counted as today",
        ),
        (
            "no-advice",
            sum(map(_busy, without)),
            f"{_count(len(without), 'region')} on which advising failed; counted as today",
        ),
        (
            "graphs",
            sum(map(_busy, graphs)),
            f"CUDA graphs for {_count(len(graphs), 'region')}: their kernels are counted as today, though "
            "torch.compile would fuse some; whether all of the step can be captured (static sizes and addresses, the "
            "optimizer) the trace does not tell",
        ),
        (
            "no-operation",
            sum(r["time_us"] for r in trace.get("rests") or () if r["kind"] == "kernels"),
            "kernels without an operation (graphs, work of other steps): no advice, counted as today",
        ),
        (
            "streams",
            sum(max(0.0, float(r.get("time_us_per_step") or 0.0) - _busy(r)) for r in regions),
            "kernels that run beside others on several streams: how they overlap once some are faster is not known; "
            "the range's slow end counts only what must run alone",
        ),
        (
            "launches",
            parts["idle_launch_us"],
            f"idle time waiting for launches; the host paces {paced:.0%} of the step. It shrinks with the number of "
            "launches, not with the kernels; what the host takes for a compiled function or a library's call, and by "
            "how much the profiler slows launches, is not recorded",
        ),
        (
            "host",
            parts["idle_host_us"],
            "idle time waiting for the host (Python, data, synchronising calls): stays as it is",
        ),
        (
            "communication",
            parts["communication_us"] + parts["idle_communication_us"],
            "communication and waiting for it: stays as it is, though other ranks would get faster too",
        ),
    )
    return [{"code": code, "text": text, "time_us": time} for code, time, text in found if time >= NOTABLE * wall]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
