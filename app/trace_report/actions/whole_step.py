"""torch.compile for the whole model, and CUDA graphs of the step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.objects.common import Range
from app.objects.trace import StepParts
from app.trace_report.actions.model import Blocker, Option, advised_left, alternative_left, launches_left
from app.trace_report.step_model import ENDS, LEAST_LEFT, AnyRegion, Change, Left, Step, after, busy_us
from app.units import count, share

COMPILE, GRAPHS = "compile-model", "cuda-graphs"
GRAPH_MODE = "reduce-overhead"
WAITS_FOR_LAUNCHES = 0.05
"""Share of the step in which the GPU waits for launches, or would once kernels are faster, from which graphs are worth
trying: below it they save less than the step varies from run to run."""
UNCAPTURED = frozenset({"optimizer"})
"""Kinds of regions that torch.compile(model) does not see, nor its graphs: they run behind the backward."""
TUNED, TUNED_ALONE = "max-autotune", "max-autotune-no-cudagraphs"
"""As region's advice and torch.compile call tuning with graphs, and as torch.compile calls it without."""
CUSTOM, COMPILED = "custom operation", "compiled"
"""How mining titles what no aten operation computes, and the kind of what torch.compile wrote: neither is compiled."""
WHOLE = Left(1.25, 1.06, 1.0)
"""What compiling a whole model leaves of its regions' kernels, over the sum of what it leaves of each. Found over the
steps predicted with 1.1, which five models on an H100 gave (1.0 to 1.29), was 0.90 to 1.14 for the same five on an
H200, 0.97 in the median (docs/traces.md, tests/records/applied-h200.json, those called in-sample): 1.1 times that."""

ACROSS = 0.5
"""Share of the launches of pointwise regions that is left in a whole model over what is left of each: all of them went
into other kernels in llama_prefill_bf16_compiled, half in handrolled_blocks_bf16_compiled."""


def covered(step: Step) -> dict[int, Left]:
    """Regions that torch.compile(model) takes in, by their place, and what it is predicted to leave of each.

    Where a region's own advice is torch.compile its prediction, or measurement, counts.
    """
    made = {}
    for place, region in enumerate(step.regions):
        if region.get("kind") in (*UNCAPTURED, COMPILED) or region["name"].startswith(CUSTOM) or _is_compiled(region):
            continue
        left = advised_left(region) if _advises_compile(region) else None
        if left is None and (not _advises_compile(region) or launches_left(region, "compile").high < 1.0):
            left = alternative_left(region, "compile")  # of what fuses: a call that stays one takes what it takes
        if left is not None:
            made[place] = Left(*(_in_whole(left.at(end), WHOLE.at(end)) for end in ENDS))
    return made


def _without(left: Left, share: float) -> Left:
    """What is left where this share of the time goes away as well, but for the end that saves least."""
    return Left(left.low, max(LEAST_LEFT, left.mid - share), max(LEAST_LEFT, left.high - share))


def _is_compiled(region: AnyRegion) -> bool:
    """It has a kernel of torch.compile's among its operations: attention that stands in compiled code."""
    source = region.get("source")
    return source is not None and any(op.startswith("triton_") for op in source["ops"])


def _in_whole(left: float, factor: float) -> float:
    """What fusion leaves, times the factor; what it does not touch, or makes slower, stays so."""
    return left if left >= 1.0 else min(1.0, left * factor)


def whole_model(
    step: Step, blockers: Sequence[Blocker], conversions: Mapping[int, float] | None = None, trained: bool = False
) -> list[Option]:
    """torch.compile(model), with and without CUDA graphs; the second stands beside the first where launches pace it.

    conversions: of regions the share of time that turns images around, or that kernels take which channels-last ones
    replace, where a whole model keeps them so. trained: a backward goes with it.
    """
    time = {i: _without(left, (conversions or {}).get(i, 0.0)) for i, left in covered(step).items()}
    if not time:
        return _graphs(step, None, blockers)
    change = _compiled(step, time, trained)
    mode = TUNED_ALONE if _mostly_tuned(step, time) else "default"
    varies = sizes_vary(step)
    argument = (f', mode="{mode}"' if mode != "default" else "") + (", dynamic=True" if varies else "")
    because = f"fuses what {count(len(time), 'region')} of the step do{'es' if len(time) == 1 else ''}"
    call = f"model = torch.compile(model{argument})"
    if _opaque_share(step) > OFTEN and not any(r.get("kind") == COMPILED for r in step.regions):
        call = PARTS.format(argument=argument.removeprefix(", "))
        because += f"; custom operations, {share(_opaque_share(step))} of what regions compute, stay outside"
    compiled = Option(
        COMPILE, "compile", mode, _title(step), call,
        because + (VARIES if varies else "") + _breaks(blockers),
        {"kind": "predicted", "text": "from the sum over its regions, of which whole models take 1.0 to 1.25 times"},
        change, tuple(time),
    )  # fmt: skip
    return [compiled, *_graphs(step, change, blockers)]


def _compiled(step: Step, time: Mapping[int, Left], trained: bool) -> Change:
    """What compiling the model does to a step of which these regions take less then. What torch.compile's code made
    before is not among the model's launches: the trace does not say which of it a CUDA graph launches at once."""
    model = (i for i, r in enumerate(step.regions) if r.get("kind") not in (*UNCAPTURED, COMPILED, COMMUNICATION))
    inside = frozenset(i for i in model if not step.regions[i]["name"].startswith(CUSTOM))
    launches = {i: _launches(step.regions[i]) for i in time}
    return Change(time=time, launches=launches, pads=True, compiled=inside, trained=trained)


def _launches(region: AnyRegion) -> Left:
    """What of a region's launches the whole model leaves: of a pointwise one that stands between others fewer than
    compiled alone, as it goes into the kernel of what reads it."""
    left = launches_left(region, "compile")
    return Left(left.low, ACROSS * left.mid, 0.0) if region.get("kind") == "pointwise" else left


OFTEN = 0.05
"""Of the regions' time, what has another size in every step, from which the step has."""
VARIES = "; sizes change from step to step: dynamic=True keeps one program for all, a CUDA graph would be one for each"


def sizes_vary(step: Step) -> bool:
    """Whether sizes change from step to step: regions of which each size occurs in some of the recorded steps only."""
    varying = [r for r in step.regions if len(s := r.get("shapes") or ()) >= 3 and all(b["calls"] < 1.0 for b in s)]
    return sum(map(busy_us, varying)) > OFTEN * sum(map(busy_us, step.regions))


def _title(step: Step) -> str:
    """What of the model is compiled."""
    if any(r.get("kind") == COMPILED for r in step.regions):
        return "Compile what is not compiled of the model"
    return (
        "Compile the model but for what it cannot take in" if _opaque_share(step) > OFTEN else "Compile the whole model"
    )


COMMUNICATION = "communication"


def _opaque_share(step: Step) -> float:
    """Of the regions' time, what runs in custom operations: lookups of FBGEMM's tables, a package's kernels."""
    busy = sum(busy_us(r) for r in step.regions if r.get("kind") != COMMUNICATION)
    return sum(busy_us(r) for r in step.regions if r["name"].startswith(CUSTOM)) / busy if busy else 0.0


PARTS = "for part in (model.part, ...): part.compile({argument})  # name your modules without those calls"
"""How a part of a model is compiled in its place."""


def _breaks(blockers: Sequence[Blocker]) -> str:
    """What stands in torch.compile's way, in words; "" for nothing."""
    breaking = sum(b["effect"] == "break" for b in blockers)
    told = f"; {count(breaking, 'kind')} of operation break{'s' if breaking == 1 else ''} its graph" if breaking else ""
    others = len(blockers) - breaking
    return f"{told}; {others} more slow it: see below" if others else f"{told}: see below" if told else ""


def _waits_once_compiled(step: Step, compiled: Change | None) -> float:
    """How long the GPU waits for launches in a step whose model is compiled, in µs."""
    if compiled is None:
        return 0.0
    idle_us = after(step, [compiled], "mid")[1]
    parts = step.parts
    return max(0.0, idle_us - parts["idle_host_us"] - parts["idle_communication_us"] - parts["idle_device_us"])


def _graphs(step: Step, compiled: Change | None, blockers: Sequence[Blocker]) -> list[Option]:
    """CUDA graphs. Where nothing is predicted, or the graph breaks, none of the launches is taken away for certain.

    compiled: what compiling the model without them does, where that is predicted.
    """
    parts, time = step.parts, compiled.time if compiled is not None else {}
    slower = step.slower or step  # whether it may be worth it; what it saves is another question
    waits_us = max(slower.parts["idle_launch_us"], _waits_once_compiled(slower, compiled))
    if waits_us < WAITS_FOR_LAUNCHES * slower.parts["wall_us"] or sizes_vary(step):
        return []
    inside = frozenset(i for i, r in enumerate(step.regions) if r.get("kind") not in UNCAPTURED)
    if sum(busy_us(r) for r in step.regions if r["name"].startswith(CUSTOM)) > OFTEN * sum(map(busy_us, step.regions)):
        return []  # what a custom operation makes and hands on is seldom captured: sizes, allocations, communication
    broken = any(b["effect"] in ("break", "recompile") for b in blockers)
    surely = frozenset(i for i in inside if i in time or _mode(step.regions[i]) == GRAPH_MODE)
    now = parts["idle_launch_us"] / parts["wall_us"]
    waits = (
        f"the GPU waits for launches in {share(now)} of the step, and the host sets the pace of "
        f"{share(step.share_of_host)} of it"
        if now >= WAITS_FOR_LAUNCHES
        else f"once its kernels are fused the GPU waits {waits_us / 1e3:.2f} ms of a step for launches"
    )
    because = f"{waits}; a graph replays all launches with one{_breaks(blockers)}"
    mode = TUNED if _mostly_tuned(step, time) else GRAPH_MODE
    call = f'model = torch.compile(model, mode="{mode}")'
    if grows(step):
        call, because = f"{STATIC_CACHE}; {call}", f"{because}. {GROWS}"
    return [
        Option(
            GRAPHS, "compile", mode, f"{_title(step)} and replay it as CUDA graphs",
            call, because,
            {"kind": "predicted", "text": "from the recorded waiting and launches; that sizes and addresses stay the"
             " same from step to step the trace does not tell"},
            Change(time=time, captured=frozenset() if broken else surely, at_best=inside, pads=bool(time)),
            tuple(sorted(inside)),
        )
    ]  # fmt: skip


def graphs_asked(regions: Sequence[AnyRegion]) -> bool:
    """A region's advice is a CUDA graph of the whole step, by the waiting that was recorded: it has no gain of its
    own."""
    advised = [r["advice"] for r in regions if r.get("advice")]
    return any(a is not None and a["mode"] == GRAPH_MODE and a["region_speedup"] is None for a in advised)


def graphs_as_recorded(step: Step, recorded: StepParts, slows: Range | None, blockers: Sequence[Blocker]) -> Option:
    """CUDA graphs of a step that waited for launches while it was recorded, and of which it is not predicted that they
    save enough: by how much the profiler made it wait is a range, and none of it may be left without. recorded: the
    step's parts with the profiler; slows: by how many times it slowed the host, None for a step that it did not slow.
    """
    waited = share(recorded["idle_launch_us"] / recorded["wall_us"])
    because = f"as recorded the GPU waits for launches in {waited} of the step; a graph replays all launches with one"
    because += _breaks(blockers) + (VARIES if sizes_vary(step) else "")
    text = "the recorded waiting, of which a graph is not predicted to save enough to tell"
    if slows is not None:
        text += (
            f": the profiler slowed the host {slows['low']:.1f} to {slows['high']:.1f} times, and what is left to wait "
            "without it is known once the step is timed without it"
        )
    return Option(
        GRAPHS, "compile", GRAPH_MODE, f"{_title(step)} and replay it as CUDA graphs",
        f'model = torch.compile(model, mode="{GRAPH_MODE}")', because, {"kind": "observed", "text": text}, None,
        tuple(i for i, r in enumerate(step.regions) if r.get("kind") not in UNCAPTURED), counted=False,
    )  # fmt: skip


STATIC_CACHE = 'model.generation_config.cache_implementation = "static"'
GROWS = (
    "A tensor grows by one from call to call (a key-value cache that is concatenated), and each size wants a graph of "
    "its own: a cache of fixed size first, StaticCache in transformers"
)
ATTENTION = "attention"
GROWING = 4
"""Sizes, each by one more than the one before, from which a concatenation is one that grows."""
LISTED = re.compile(r"^(\w+): sizes\[([\d, ]+)\]", re.MULTILINE)


def grows(step: Step) -> bool:
    """Whether what is concatenated to a tensor that grows by one from call to call is what attention reads: a
    key-value cache. Regions do not say what they hand to each other; the sizes do, and the type, which tells keys from
    the tokens that grow with them."""
    read = {n for r in step.regions if r.get("kind") == ATTENTION for _, sizes in _growing(r) for n in sizes}
    return any(
        len(read & {n + 1 for n in sizes}) >= GROWING
        and re.search(rf"^\w+: b?f\w+\[[^\]]*\b{name}\b", text, re.MULTILINE) is not None
        for region in step.regions
        if (source := region.get("source")) is not None and "cat" in source["ops"] and (text := region.get("text"))
        for name, sizes in _growing(region)
    )


def _growing(region: AnyRegion) -> list[tuple[str, list[int]]]:
    """The region's dimensions that grow by one from call to call, with their sizes."""
    made = []
    for name, listed in LISTED.findall(region.get("text") or ""):
        sizes = sorted({int(n) for n in listed.split(",")})
        if len(sizes) >= GROWING and sizes[-1] - sizes[0] == len(sizes) - 1:
            made.append((name, sizes))
    return made


def graphs_alone(step: Step) -> list[Option]:
    """CUDA graphs of the modules as they are, for a GPU that torch.compile writes no kernels for."""
    call = "model = torch.cuda.make_graphed_callables(model, (x,))"
    title = "Capture the model as CUDA graphs, as it is"
    return [replace(o, title=title, call=call, mode="graphs") for o in _graphs(step, None, ())]


def _advises_compile(region: AnyRegion) -> bool:
    advice = region.get("advice")
    return advice is not None and advice["tool"] == "compile"


def _mostly_tuned(step: Step, time: Mapping[int, Left]) -> bool:
    """Most of what is saved is saved by regions that are advised max-autotune."""
    saved = {i: busy_us(step.regions[i]) * (1 - left.mid) for i, left in time.items() if left.mid < 1.0}
    tuned = [i for i in saved if _advises_compile(step.regions[i]) and _mode(step.regions[i]) == TUNED]
    return sum(saved[i] for i in tuned) > sum(saved.values()) / 2


def _mode(region: AnyRegion) -> str:
    advice = region.get("advice")
    return advice["mode"] if advice else ""


def places(options: Sequence[Option]) -> frozenset[int]:
    """Regions that any of the options takes in."""
    return frozenset(i for o in options for i in o.regions)
