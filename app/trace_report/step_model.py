"""What the step takes once regions take less, launches go away or waiting ends: one formula for every change.

A step is not the sum of its kernels, so a region's speed-up does not simply scale its share. The step falls into
stretches in which the GPU sets the pace and stretches in which the host does (`profiler.trace.analyze.pacing`):

    step = GPU-paced + host-paced (kernels + waiting for launches) + other waiting (the host, communication)
    GPU-paced after  = max(GPU-paced - saved there, (GPU-paced - the host's lead) x launches left)
    host-paced after = max(its kernels - saved there, (its kernels + waiting for launches) x launches left)
    saved by a region = its time there x (1 - what is left of it)

Of a recording by torch.profiler the host's times are divided by what the profiler slows it (`profiler_cost`) before
anything is predicted, and where that leaves no waiting, kernels that get faster save time until the host is the later.

So gaps stay as long as the launches do, and where the host sets the pace faster kernels alone save nothing. A launch
that goes away takes with it what the GPU needs between two kernels that are queued. Other waiting stays unless a
change ends it.

With CUDA graphs, but for the end that saves least, the host launches the graph and goes on with what is in none (the
optimizer, its Python) while the GPU works through it:

    step = max(a replay's call + kernels - saved + a gap for each launch in a graph, the host's time x launches left)
           + waiting
    the host's time = (GPU-paced - its lead) + host-paced + its pauses but those in which it waits

Where torch.compile makes the model, the step takes no less than its host needs (`app.estimate.compiled_host`):

    step >= the compiled model's launches + the optimizer's + launches of neither + waiting, and <= what it takes now

Where kernels of several streams overlap, the end that saves least counts of a
region only what must have run alone (twice its even part less its kernels' time, exact for two streams), the others
its even part; where communication takes longer than all kernels, they too count what must have run alone.

Pure functions of the API's trace; times in µs of one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from app.estimate.compiled_host import compiled_host_us
from app.estimate.rates import FITTED
from app.objects.common import Range
from app.objects.region import Region, RegionBody
from app.objects.trace import Pace, Phase, StepParts, Trace, TraceBody

AnyRegion = Region | RegionBody
End = Literal["low", "mid", "high"]
"""Of a range: "low" saves least."""
ENDS: tuple[End, End, End] = ("low", "mid", "high")

LAUNCH_US = 150.0
"""The most that eager PyTorch takes from one launch to the next on the traces measured here (idle_breakdown.PAUSE_US).
What a step waits beyond that for its launches is no matter of their number: a first call, a module that is loaded."""
SLOWED_THERE = 2.6
"""By how many times the profiler slowed the host where launches took that long, stacks recorded: where it slows more,
they take as much more (166 to 172 µs in the mean of two models with modules, tests/records/program-h200.json)."""
GRAPH_GAP_US = 0.3
"""Between two kernels of one graph: 0.28 to 0.31 µs in chains of 200 kernels of 0.9 and 1.7 µs, wall time of a replay
less the kernels' recorded durations (benchmarks/traces/graph_gaps.py, H200, tests/records/graph-gaps-h200.json)."""
WAITING: frozenset[str] = frozenset({"loader", "capturing", "start_up", "compiling", "sync", "inputs"})
"""Kinds of the host's pauses in which it waits, or loads what the step needs: nothing goes on meanwhile."""


@dataclass(frozen=True, slots=True)
class Step:
    """Of a trace what predictions for its step rest on: its step's parts and pace, its regions, the time of kernels
    without an operation. has_shapes: whether they were recorded. waits_us: of the host's pauses those in which
    it waits. host_us: what the host needs for what it paces, None for what it was recorded to take. recorded_us: the
    step with the profiler, None where that is the step. faster, slower: the step where the host is as fast, or as slow,
    as it may be without it. phase: of a serving engine's step.
    """

    parts: StepParts
    pace: Pace
    regions: Sequence[AnyRegion]
    no_operation_us: float
    has_shapes: bool
    waits_us: float = 0.0
    host_us: float | None = None
    recorded_us: float | None = None
    faster: Step | None = None
    slower: Step | None = None
    phase: Phase | None = None

    @property
    def gpu_work_us(self) -> float:
        """Time in which anything runs on the GPU."""
        return self.parts["kernels_us"] + self.parts["communication_us"] + self.parts["copies_us"]

    @property
    def host_needs_us(self) -> float:
        """What the host takes for the launches of what it paces."""
        recorded = self.host_bound_kernels_us + self.parts["idle_launch_us"]
        return recorded if self.host_us is None else self.host_us

    @property
    def launching_us(self) -> float:
        """What the host takes for all launches of the step: of what the GPU paces and of what it paces itself."""
        return self.pace["gpu_us"] - self.pace["lead_us"] + self.host_needs_us

    @property
    def idle_of_others_us(self) -> float:
        """Time in which host and GPU both wait: for communication, loading or what starts."""
        return self.parts["idle_communication_us"] + self.waits_us

    @property
    def share_of_host(self) -> float:
        """Of the step, what the host sets the pace of."""
        recorded = self.host_bound_kernels_us + self.parts["idle_launch_us"]
        of_host = recorded if self.host_needs_us >= self.host_bound_kernels_us else 0.0
        others = self.parts["idle_host_us"] + self.parts["idle_communication_us"]
        return min(1.0, (of_host + others) / self.parts["wall_us"])

    @property
    def is_communication_bound(self) -> bool:
        """Communication that nothing hides, and waiting for it, take longer than all kernels."""
        parts = self.parts
        return parts["communication_us"] + parts["idle_communication_us"] > parts["kernels_us"]

    @property
    def host_bound_kernels_us(self) -> float:
        """Of the GPU's work, and its own gaps, what runs where the host sets the pace."""
        return max(0.0, self.gpu_work_us + self.parts["idle_device_us"] - self.pace["gpu_us"])


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a figure at each end of the range, as a share of what it is now."""

    low: float = 1.0
    mid: float = 1.0
    high: float = 1.0

    def at(self, end: End) -> float:
        value: float = getattr(self, end)
        return value


@dataclass(frozen=True, slots=True)
class Change:
    """What one piece of advice does to the step.

    time: of regions by their place, what is left of their kernels' time; own says that it stands in the place of what
    other changes make of the region instead of coming on top. launches: of regions, likewise of their launches.
    captured: regions whose launches a CUDA graph takes away for certain; at_best: but for the end that saves least it
    takes those of these away too, and what is launched outside of regions. ended_us: waiting that it ends.
    pads: it has the operands of products padded to rows of whole units (torch.compile); padded: of regions, by their
    place, what is left of their time where another change does so. compiled: regions whose launches are those of one
    compiled model then, forward and, where it is trained, backward.
    """

    time: Mapping[int, Left] = field(default_factory=dict)
    own: bool = False
    launches: Mapping[int, Left] = field(default_factory=dict)
    captured: frozenset[int] = frozenset()
    at_best: frozenset[int] = frozenset()
    ended_us: Left = Left(0.0, 0.0, 0.0)
    pads: bool = False
    padded: Mapping[int, Left] = field(default_factory=dict)
    compiled: frozenset[int] = frozenset()
    trained: bool = False


def step_of(trace: Trace | TraceBody) -> Step | None:
    """The step of a trace; None where its parts or its pace are not known."""
    parts, pace = trace.get("step_parts"), trace.get("pace")
    if not parts or not pace or not parts["wall_us"]:
        return None
    no_operation_us = sum(r["time_us"] for r in trace.get("rests") or () if r["kind"] == "kernels")
    slows = trace.get("profiler_slows")
    launch_us = LAUNCH_US * max(1.0, slows["mid"] / SLOWED_THERE if slows else 1.0)
    beyond = max(0.0, parts["idle_launch_us"] - launch_us * pace["launches"])
    if beyond:
        launch, host = parts["idle_launch_us"] - beyond, parts["idle_host_us"] + beyond
        parts = {**parts, "idle_launch_us": launch, "idle_host_us": host}
    waits_us = sum(t["time_us"] for t in trace.get("host_times") or () if t["kind"] in WAITING)
    step = Step(
        parts, pace, trace.get("regions") or [], no_operation_us, trace.get("has_shapes", True),
        min(waits_us + beyond, parts["idle_host_us"]), phase=trace.get("phase"),
    )  # fmt: skip
    if not slows:
        return step
    slows = slows_of(step, slows)
    slow, mid, fast = (_unprofiled(step, slows[end]) for end in ENDS)
    return replace(mid, faster=fast, slower=slow)


def slows_of(step: Step, slows: Range) -> Range:
    """By how many times the profiler slows this step's host. slows: one whose launches are all eager.

    Compiled code has next to no operations for the profiler to write down: what the host takes for its launches stays
    as recorded, and all others are taken to be slowed as those of an eager step.
    """
    eager = 1.0 - compiled_share(step)
    low, mid, high = (1.0 / (1.0 - eager + eager / slows[end]) for end in ENDS)
    return {"low": low, "mid": mid, "high": high}


def compiled_share(step: Step) -> float:
    """Of the step's launches those that torch.compile's code makes, calls of libraries in it included; where the trace
    does not say which those are, its own kernels."""
    told, launches = step.pace.get("compiled_launches"), step.pace["launches"]
    if told is not None:
        return min(1.0, told / launches) if launches else 0.0
    total = sum(launches_of(r) for r in step.regions)
    return sum(launches_of(r) for r in step.regions if r.get("kind") == "compiled") / total if total else 0.0


def _unprofiled(step: Step, slows: float) -> Step:
    """The step with a host that was slowed so many times: its launches come sooner, and the GPU takes what it takes.

    host-paced = max(its kernels, (its kernels + waiting for launches) / slows); the host's lead grows likewise.
    """
    parts, pace, kernels = step.parts, step.pace, step.host_bound_kernels_us
    needs = (kernels + parts["idle_launch_us"]) / slows
    waiting = max(0.0, needs - kernels)
    sooner = parts["idle_launch_us"] - waiting
    changed: StepParts = {
        **parts, "wall_us": parts["wall_us"] - sooner, "idle_launch_us": waiting, "idle_us": parts["idle_us"] - sooner,
    }  # fmt: skip
    changed["idle_share"] = (parts["idle_us"] - sooner) / (parts["wall_us"] - sooner)
    lead = pace["gpu_us"] - (pace["gpu_us"] - pace["lead_us"]) / slows
    sped: Pace = {**pace, "lead_us": lead}
    if (optimizer_us := pace.get("optimizer_us")) is not None:
        sped["optimizer_us"] = optimizer_us / slows
    return replace(step, parts=changed, pace=sped, host_us=needs, recorded_us=parts["wall_us"])


def busy_us(region: AnyRegion) -> float:
    """Of the region's time in a step, its part where kernels of several streams overlap."""
    return float(region.get("busy_us_per_step") or 0.0)


def launches_of(region: AnyRegion) -> float:
    """Kernels that the region launches in a step."""
    return float(region.get("kernels_per_call") or 0.0) * float(region.get("calls_per_step") or 0.0)


def copies_of(region: AnyRegion) -> float:
    """Copies and sets of memory that the region's operations ask for in a step, next to its kernels."""
    return float(region.get("copies_per_step") or 0.0)


def launches_and_copies_of(region: AnyRegion) -> float:
    """What the host launches for the region in a step."""
    return launches_of(region) + copies_of(region)


def step_us(step: Step, changes: Sequence[Change]) -> tuple[float, float, float]:
    """(low, mid, high) time of the step after the changes."""
    least, mid, most = (after(step, changes, end)[0] for end in ENDS)
    if step.faster is not None:  # a host that is faster as it is has less to save
        saved = step.faster.parts["wall_us"] - after(step.faster, changes, "low")[0]
        least = max(least, step.parts["wall_us"] - max(0.0, saved))
    return min(most, mid, least), mid, max(most, mid, least)


def after(step: Step, changes: Sequence[Change], end: End) -> tuple[float, float]:
    """(step, of it idle) after the changes, at that end of their ranges: "low" saves least."""
    parts, pace = step.parts, step.pace
    busy = step.gpu_work_us
    on_gpu = saved = 0.0
    for place, share in _time_gone(step, changes, end).items():
        region = step.regions[place]
        on_gpu += share * float(region.get("gpu_paced_us_per_step") or 0.0)
        saved += share * busy_us(region)
    left = _launches_left(step, changes, end)
    copies = _copies_gone_us(step, changes, end)
    saved += copies[0]
    on_gpu += copies[1]
    if end != "low" and any(c.captured or c.at_best for c in changes):
        after_us = _replayed_us(step, busy - saved, left) - sum(c.ended_us.at(end) for c in changes)
        return after_us, max(0.0, after_us - (busy - saved))
    gpu, lead = pace["gpu_us"], pace["lead_us"]
    kernels = step.host_bound_kernels_us
    host_bound_us, needs = kernels + parts["idle_launch_us"], step.host_needs_us
    gaps = _gaps_gone_us(step, left, any(c.captured for c in changes))
    on_gpu_gaps = gaps * gpu / (gpu + kernels) if gaps else 0.0
    gpu_after = max(gpu - on_gpu - on_gpu_gaps, (gpu - lead) * left)
    host_bound_after_us = max(kernels - (saved - on_gpu) - (gaps - on_gpu_gaps), needs * left)
    after_us = parts["wall_us"] - (gpu - gpu_after) - (host_bound_us - host_bound_after_us)
    after_us = max(after_us, min(parts["wall_us"], _least_host_us(step, changes, end)))
    after_us -= sum(c.ended_us.at(end) for c in changes)
    return after_us, max(0.0, after_us - (busy - saved))


def _time_gone(step: Step, changes: Sequence[Change], end: End) -> dict[int, float]:
    """Of each region that is changed, by its place, the share of its part of the GPU's time that all changes save."""
    pads = any(c.pads for c in changes)
    of_time = [(c.own, {**c.time, **c.padded} if pads else c.time) for c in changes]
    gone = {place: 1.0 - left for place, left in _what_is_left(of_time, end, _of_other_parts).items()}
    if end == "low" or step.is_communication_bound:
        gone = {i: share * _alone(step.regions[i]) if share > 0.0 else share for i, share in gone.items()}
    return gone


def most_of_regions_us(step: Step, changes: Sequence[Change]) -> dict[int, float]:
    """Of regions, by their place, the most of the step that all changes can save there, by the middle of their ranges:
    the kernels' time that they take off it, and with its launches that go away copies and what the GPU waits for them,
    or between them where they are queued."""
    waits_us = step.parts["idle_launch_us"] + step.parts["idle_device_us"]
    each_us = waits_us / max(1.0, float(step.pace["launches"]))
    time, launches = _time_gone(step, changes, "mid"), _launches_of_regions_left(changes, "mid")
    in_graphs = frozenset[int]().union(*(c.captured | c.at_best for c in changes))
    most: dict[int, float] = {}
    for place in {*time, *launches, *in_graphs}:
        region = step.regions[place]
        gone = 1.0 - launches.get(place, 1.0)
        copies_us = gone * float(region.get("copies_us_per_step") or 0.0)
        waited_us = (1.0 if place in in_graphs else gone) * launches_and_copies_of(region) * each_us
        most[place] = time.get(place, 0.0) * busy_us(region) + copies_us + waited_us
    return most


def _least_host_us(step: Step, changes: Sequence[Change], end: End) -> float:
    """What the host takes at least once a model is compiled; 0 where none is.

    At the end that saves least each of its launches takes longest, of as many as are left at the middle: that none went
    away is counted where launches are.
    """
    made = [c for c in changes if c.compiled]
    if not made:
        return 0.0
    inside = frozenset[int]().union(*(c.compiled for c in made))
    left = _launches_of_regions_left(changes, "mid" if end == "low" else end)
    own = list(map(launches_and_copies_of, step.regions))
    optimizer = [i for i, r in enumerate(step.regions) if r.get("kind") == "optimizer"]
    optimizer_us = float(step.pace.get("optimizer_us") or 0.0)
    if of_it := sum(own[i] for i in optimizer):
        optimizer_us *= sum(own[i] * left.get(i, 1.0) for i in optimizer) / of_it
    total = float(step.pace["launches"])
    elsewhere = max(0.0, total - sum(own[i] for i in {*inside, *optimizer}))
    each_us = step.launching_us / total if total else 0.0
    launches = sum(own[i] * left.get(i, 1.0) for i in inside)
    model_us = compiled_host_us(launches, any(c.trained for c in made), each_us, end)
    return model_us + optimizer_us + elsewhere * each_us + step.idle_of_others_us


def _copies_gone_us(step: Step, changes: Sequence[Change], end: End) -> tuple[float, float]:
    """(time, of it where the GPU sets the pace) of copies that operations of regions make whose launches go away."""
    gone = on_gpu = 0.0
    for place, left in _launches_of_regions_left(changes, end).items():
        region = step.regions[place]
        copies_us, busy = float(region.get("copies_us_per_step") or 0.0), busy_us(region)
        gone += (1.0 - left) * copies_us
        on_gpu += (1.0 - left) * copies_us * float(region.get("gpu_paced_us_per_step") or 0.0) / busy if busy else 0.0
    return gone, on_gpu


def _gaps_gone_us(step: Step, left: float, in_graphs: bool) -> float:
    """Of the time between kernels that are queued, what goes away with launches of which this share is left; kernels
    that are in graphs then have the gap that a graph has."""
    gone = (1.0 - left) * step.parts["idle_device_us"]
    return max(0.0, gone - (1.0 - left) * step.pace["launches"] * GRAPH_GAP_US) if in_graphs else gone


LEAST_LEFT = 0.02
"""Of a region's time, whatever several changes take off it."""


def _of_other_parts(left: list[float]) -> float:
    """Precision is of the products, fusion of the rest: what each takes off the region's time adds up."""
    return left[0] if len(left) == 1 else max(LEAST_LEFT, 1.0 - sum(1.0 - share for share in left))


def _what_is_left(
    changes: Sequence[tuple[bool, Mapping[int, Left]]], end: End, together: Callable[[list[float]], float]
) -> dict[int, float]:
    """Of each region that is changed: what its own advice leaves, or what changes of the whole step do together."""
    of_its_own: dict[int, float] = {}
    of_all: dict[int, list[float]] = {}
    for own, left in changes:
        for place, share in left.items():
            if own:
                of_its_own.setdefault(place, share.at(end))
            else:
                of_all.setdefault(place, []).append(share.at(end))
    shares = {place: together(of_place) for place, of_place in of_all.items()}
    for place, own_share in of_its_own.items():  # at the end that saves least its own counts, whatever others promise
        shares[place] = own_share if end == "low" else min(own_share, shares.get(place, own_share))
    return shares


def _alone(region: AnyRegion) -> float:
    """Of a region's part of the GPU's time, the share that must have run alone."""
    busy, time = busy_us(region), float(region.get("time_us_per_step") or 0.0)
    return min(1.0, max(0.0, 2 * busy - time) / busy) if busy > 0 else 0.0


def _replayed_us(step: Step, work_us: float, left: float) -> float:
    """The step once graphs have all launches but this share: work_us is what the GPU's work takes then."""
    parts = step.parts
    gaps = GRAPH_GAP_US * (1 - left) * float(step.pace["launches"])
    kernels = FITTED.host.graphs + max(0.0, work_us) + parts["idle_device_us"] * left + gaps
    host = step.launching_us * left + parts["idle_host_us"] - step.waits_us
    return max(kernels, host) + step.idle_of_others_us


def _launches_left(step: Step, changes: Sequence[Change], end: End) -> float:
    """Share of the step's launches that the host still makes; at the end that saves least only graphs take any away."""
    total = float(step.pace["launches"])
    if not total:
        return 1.0
    graphs = [c for c in changes if c.captured or c.at_best]
    captured = frozenset().union(*((c.captured if end == "low" else c.captured | c.at_best) for c in graphs))
    left = _launches_of_regions_left(changes, end)
    own = list(map(launches_and_copies_of, step.regions))
    kept = 0.0 if graphs and end != "low" else total - sum(own)
    kept += sum(launches * left.get(place, 1.0) for place, launches in enumerate(own) if place not in captured)
    return min(1.0, max(0.0, kept / total))


def _launches_of_regions_left(changes: Sequence[Change], end: End) -> dict[int, float]:
    """Of regions, by their place, the share of launches that is left without graphs; the cautious end keeps all."""
    return {} if end == "low" else _what_is_left([(c.own, c.launches) for c in changes], end, min)
