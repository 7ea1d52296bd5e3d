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
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from app.advice.model import Advice
from app.estimate.facts import RegionFacts
from app.objects.region import Region, RegionBody
from app.objects.trace import Gain, GainEach, GainTotal, GainUnknown, Pace, StepParts, Trace, TraceBody

AnyRegion = Region | RegionBody
End = Literal["low", "mid", "high"]
"""Of a range of speed-ups."""

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
    left = {"compile": fused, "triton": fused}
    cover = next((c for c in facts.covers if c.candidate == f"library:{advice.mode}"), None)
    if cover is not None:
        gone = sum(o.launches for o in shape.cost.operations if cover.whole or o.name in cover.operations)
        left["library"] = min(1.0, max(1, before - gone + 1) / before)
    return left


def launches_left_by_inductor(region: AnyRegion) -> dict[str, float]:
    """A region's `launches_left`, of torch.compile by the kernels and calls that Inductor named; as it stands where it
    named none, or nothing is known of the launches."""
    left, cost = region.get("launches_left") or {}, region["cost"]
    answer = next((p for p in region["oracle"] if p["mode"] == "default" and not p["unavailable"]), None)
    if not left or answer is None or cost is None or not cost["unfused"]["launches"]:
        return left
    return {**left, "compile": min(1.0, answer["launches"] / cost["unfused"]["launches"])}


def list_names(advice: Sequence[str]) -> str:
    """Names of advice in one line, one that several regions share with their number."""
    counts = Counter(advice)
    return "; ".join(name if number == 1 else f"{name} ({number})" for name, number in counts.items())


@dataclass(frozen=True, slots=True)
class Step:
    """Of a trace what the gain rests on: its step's parts and pace, its regions, the time of kernels without an
    operation. has_shapes: whether they were recorded."""

    parts: StepParts
    pace: Pace
    regions: Sequence[AnyRegion]
    no_operation_us: float
    has_shapes: bool


def step_of(trace: Trace | TraceBody) -> Step | None:
    """The step of a trace; None where its parts or its pace are not known."""
    parts, pace = trace.get("step_parts"), trace.get("pace")
    if not parts or not pace or not parts["wall_us"]:
        return None
    no_operation_us = sum(r["time_us"] for r in trace.get("rests") or () if r["kind"] == "kernels")
    return Step(parts, pace, trace.get("regions") or [], no_operation_us, trace.get("has_shapes", True))


def gain(trace: Trace | TraceBody) -> Gain | None:
    """What following the advice gains; None for a trace whose step or pace is not known.

    `top` is of the TOP that save most, each followed alone; `each` has those first that save most.
    """
    step = step_of(trace)
    if step is None:
        return None
    known = [i for i in items(step.regions) if _predicted(i, step.regions)]
    alone = {i: _step_us(step, (i,)) for i in known}
    best = sorted(known, key=lambda i: (alone[i][1], -_kernels_saved(i, step.regions), i.name))
    return {
        "all": _follow(step, known),
        "top": _follow(step, best[:TOP]),
        "each": [_each(step, i, alone[i]) for i in best],
        "unknown": unknown(step, known),
    }


def items(regions: Sequence[AnyRegion]) -> list[Item]:
    """Every piece of advice that says to do something; CUDA graphs once, however many regions are told of them."""
    active = [(i, a) for i, r in enumerate(regions) if (a := r.get("advice")) and a["tool"] != "skip"]
    graphs = tuple(i for i, a in active if a["mode"] == GRAPHS)
    pieces = [Item(regions[i]["name"], a["tool"], a["mode"], (i,)) for i, a in active if a["mode"] != GRAPHS]
    if graphs:
        pieces.insert(0, Item("CUDA graphs of the step", "compile", GRAPHS, graphs))
    return pieces


def _predicted(item: Item, regions: Sequence[AnyRegion]) -> bool:
    advice = regions[item.regions[0]]["advice"]
    return item.mode == GRAPHS or (advice is not None and advice["region_speedup"] is not None)


def _kernels_saved(item: Item, regions: Sequence[AnyRegion]) -> float:
    return sum(_busy(regions[i]) * _saved_share(regions[i], "mid") for i in item.regions)


def _busy(region: AnyRegion) -> float:
    return float(region.get("busy_us_per_step") or 0.0)


def _saved_share(region: AnyRegion, end: End) -> float:
    """1 - 1 / speed-up: of a region's time, the share that following its advice saves; negative where it may lose."""
    advice = region["advice"]
    speedup = advice["region_speedup"] if advice else None
    factor = speedup[end] if speedup else 0.0
    return 1 - 1 / float(factor) if factor else 0.0


def _alone(region: AnyRegion) -> float:
    """Of a region's part of the GPU's time, the share that must have run alone."""
    busy, time = _busy(region), float(region.get("time_us_per_step") or 0.0)
    return min(1.0, max(0.0, 2 * busy - time) / busy) if busy > 0 else 0.0


def _step_us(step: Step, followed: Collection[Item]) -> tuple[float, float, float]:
    """(low, mid, high) time of the step once this advice is followed."""
    ends: tuple[End, End, End] = ("high", "mid", "low")
    most, mid, least = (_after(step, followed, end)[0] for end in ends)
    return min(most, mid, least), mid, max(most, mid, least)


def _after(step: Step, followed: Collection[Item], end: End) -> tuple[float, float]:
    """(step, of it idle) with each region's speed-up at that end of its range: "low" saves least."""
    parts, pace, regions = step.parts, step.pace, step.regions
    busy = parts["kernels_us"] + parts["communication_us"] + parts["copies_us"]
    on_gpu = saved = 0.0
    for region in (regions[i] for item in followed if item.mode != GRAPHS for i in item.regions):
        share = _saved_share(region, end) * (_alone(region) if end == "low" else 1.0)
        on_gpu += share * float(region.get("gpu_paced_us_per_step") or 0.0)
        saved += share * _busy(region)
    left = _launches_left(step, followed, end)
    gpu, lead = pace["gpu_us"], pace["lead_us"]
    kernels = max(0.0, busy + parts["idle_device_us"] - gpu)
    host_bound_us = kernels + parts["idle_launch_us"]
    gpu_after = max(gpu - on_gpu, (gpu - lead) * left)
    host_bound_after_us = max(
        kernels - (saved - on_gpu) + _graph_gaps_us(step, followed, end, left), host_bound_us * left
    )
    after_us = parts["wall_us"] - (gpu - gpu_after) - (host_bound_us - host_bound_after_us)
    return after_us, max(0.0, after_us - (busy - saved))


def _graph_gaps_us(step: Step, followed: Collection[Item], end: End, left: float) -> float:
    """Time between the kernels of the graphs that take launches away; none at the end that saves most."""
    if end == "high" or all(item.mode != GRAPHS for item in followed):
        return 0.0
    return GRAPH_GAP_US * (1 - left) * float(step.pace["launches"])


def _launches_left(step: Step, followed: Collection[Item], end: End) -> float:
    """Share of the step's launches that the host still makes."""
    regions, total = step.regions, float(step.pace["launches"])
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


def _follow(step: Step, followed: Sequence[Item]) -> GainTotal | None:
    if not followed:
        return None
    wall = step.parts["wall_us"]
    low, mid, high = _step_us(step, followed)
    return {
        "step_time_us": {"low": low, "mid": mid, "high": high},
        "speedup": {"low": wall / high, "mid": wall / mid, "high": wall / low},
        "saved_us": {"low": wall - high, "mid": wall - mid, "high": wall - low},
        "idle_us": _after(step, followed, "mid")[1],
        "advice": [i.name for i in followed],
    }


def _each(step: Step, item: Item, after: tuple[float, float, float]) -> GainEach:
    wall = step.parts["wall_us"]
    low, mid, high = (wall - time for time in reversed(after))
    keys = [step.regions[i].get("key") for i in item.regions]
    return {"advice": item.name, "regions": keys, "saved_us": {"low": low, "mid": mid, "high": high}}


def unknown(step: Step, known: Sequence[Item] = ()) -> list[GainUnknown]:
    """What the trace cannot tell about the step after following the advice, each with the time that it is about.

    known: the advice with a predicted time. Only what is NOTABLE is told.
    """
    regions, parts, wall = step.regions, step.parts, step.parts["wall_us"]
    told = {i for item in known for i in item.regions}
    blind = [regions[i] for item in items(regions) for i in item.regions if i not in told]
    without = [r for r in regions if not r.get("advice")]
    graphs = [regions[i] for item in known if item.mode == GRAPHS for i in item.regions]
    why = "" if step.has_shapes else ": shapes were not recorded"
    share = (wall - step.pace["gpu_us"]) / wall
    untold = (
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
            step.no_operation_us,
            "kernels without an operation (graphs, work of other steps): no advice, counted as today",
        ),
        (
            "streams",
            sum(max(0.0, float(r.get("time_us_per_step") or 0.0) - _busy(r)) for r in regions),
            "kernels that overlap others on several streams: how they overlap once some are faster is not known; "
            "the range's slow end counts only what must run alone",
        ),
        (
            "launches",
            parts["idle_launch_us"],
            f"idle time waiting for launches; the host paces {share:.0%} of the step. It shrinks with the number of "
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
    return [{"code": code, "text": text, "time_us": time} for code, time, text in untold if time >= NOTABLE * wall]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
