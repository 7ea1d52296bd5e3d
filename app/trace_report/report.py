"""A trace file -> the API's trace object: figures, notes, regions with advice, and the named rests of the step."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

from app.advice import sensitivity
from app.advice.rule import advise
from app.analysis import region_failed
from app.analysis.advice_inputs import AdviceInputs, TraceFacts, kept_names
from app.analysis.analyze import decide
from app.analysis.device_choice import choose_device
from app.analysis.region_json import region_json
from app.analysis.service import prepare_from_inputs
from app.estimate.facts import RegionFacts
from app.objects import obstacle as shown_blocker
from app.objects import trace as objects
from app.objects.common import Note
from app.objects.region import RegionAdvised, RegionBody, RegionSource
from app.thresholds import DEFAULTS, Thresholds
from app.trace_report.actions.math_attention import called_within
from app.trace_report.actions.of_step import which_step
from app.trace_report.actions.precision import tf32_is_on
from app.trace_report.actions.recording import is_start, tells_nothing
from app.trace_report.breakdown import owners, streams, where_json
from app.trace_report.call_trees import call_trees_json
from app.trace_report.called_from import MAX_CALLERS, called_from
from app.trace_report.companions import Companion, judge_join, lend, observe
from app.trace_report.comparison.serving import serving
from app.trace_report.copies_of_regions import copies_of_regions
from app.trace_report.fp8_left import fp8_left
from app.trace_report.launches_left import launches_left
from app.trace_report.phase import phase_of
from app.trace_report.profiler_cost import profiler_slows
from app.trace_report.progress import Progress, Tell, packed_mb
from app.trace_report.speedup import with_actions
from app.trace_report.step import IDLE_WORDS, critical_by_pace, graphs_json, host_times_json, rests, step_json
from app.trace_report.timeline import timeline_json
from app.units import percent
from kernels.host import probe_host
from kernels.measure.model import to_json
from profiler.child.each import each
from profiler.child.limits import GIB, Limits, is_of_memory
from profiler.child.pool import Failure
from profiler.hardware import Device
from profiler.region.model import RegionError
from profiler.region.shares import OnShare, untold, within
from profiler.trace import TraceError, read_trace
from profiler.trace.analyze.compile_blockers import CompileBlocker
from profiler.trace.analyze.compile_blockers import compile_blockers_of_region as near
from profiler.trace.analyze.idle_breakdown import StepParts, step_parts
from profiler.trace.analyze.kernel_provenance import compiled_kernels
from profiler.trace.analyze.known_libraries import library_call
from profiler.trace.analyze.pacing import Pace, optimizer_us, pace
from profiler.trace.model import Trace
from profiler.trace.read.source import Limits as ReadLimits

if TYPE_CHECKING:
    from profiler.region.mining.mine import MinedRegion, Mining
    from profiler.trace.execution_trace import Execution

log = logging.getLogger("tritonworthy.trace_report")


@dataclass(frozen=True, slots=True)
class Parts:
    """The trace as soon as its parts are known: its regions without advice, in their final order.

    inputs: what each region's advice is issued on.
    """

    trace: objects.TraceBody
    inputs: tuple[AdviceInputs, ...]


@dataclass(frozen=True, slots=True)
class Advised:
    """One of the regions of Parts, with its cost and advice, or without where that failed."""

    position: int
    region: RegionBody


@dataclass(frozen=True, slots=True)
class Whole:
    """The trace with everything. inputs: as in Parts."""

    trace: objects.TraceBody
    inputs: tuple[AdviceInputs, ...]


Stage = Parts | Advised | Whole

REGION_LIMITS = Limits(timeout_s=60.0, grace_s=0.0, memory_bytes=2 * GIB, cpu_s=30.0)
"""Of one region's advice where nobody says otherwise: one region is never the whole trace."""


class Options(TypedDict, total=False):
    """What `stages` takes by name."""

    companion: Companion | None
    execution: Companion | None
    strict: bool
    thresholds: Thresholds
    what_if: str | None
    limits: Limits
    tell: Tell | None


def report(path: str | Path, name: str, max_bytes: int | None = None, **options: Unpack[Options]) -> objects.TraceBody:
    """The trace of the last of `stages`: everything at once."""
    return whole_report(path, name, max_bytes, **options).trace


def whole_report(path: str | Path, name: str, max_bytes: int | None = None, **options: Unpack[Options]) -> Whole:
    """The last of `stages`."""
    return next(stage for stage in stages(path, name, max_bytes, **options) if isinstance(stage, Whole))


def stages(
    path: str | Path, name: str, max_bytes: int | None = None, *, companion: Companion | None = None,
    execution: Companion | None = None, strict: bool = True, thresholds: Thresholds = DEFAULTS,
    what_if: str | None = None, limits: Limits = REGION_LIMITS, tell: Tell | None = None,
) -> Iterator[Stage]:  # fmt: skip
    """Read, mine and advise: the parts first, then each region's advice as it comes, then the whole.

    Raises TraceError where the file is no trace, or holds no kernel to advise on.

    companion: another trace of the same model, whose operations and shapes the kernels of CUDA graphs are given.
    execution: what ExecutionTraceObserver wrote in the same run: which operand is which value is then exact.
    strict: raises TraceError as well where one of those cannot be read, or is of another run; else the trace is read
    without it, and a note of level "error" says why. thresholds: the rule's numbers. limits: of one region's advice.
    what_if: advise as if on this device of the table: observed times are carried over, the step's shares and waiting
    stay as recorded, and what the step would take is not said. Raises DeviceUnknownError. tell: is told how far it is.
    """
    probe = threading.Thread(target=probe_host, daemon=True)  # seconds, where nobody has told of the host
    probe.start()
    room = ReadLimits() if max_bytes is None else ReadLimits(max_bytes=max_bytes)
    progress = Progress(packed_mb(path), tell or (lambda *_: None))
    progress.at("reading")
    trace = read_trace(path, room, on_read=partial(progress.at, "reading"))
    _require_kernels(trace)
    if companion is not None:
        trace = lend(trace, companion, room, strict)
    device, note = choose_device(None, trace.device)
    observed = None
    if execution is not None:
        trace, observed = observe(trace, execution, strict)
    progress.at("regions")
    mining, lost = _mine(trace, observed, partial(progress.at, "regions"))
    if mining.joined_share is not None:
        trace = judge_join(trace, mining.joined_share, strict)
        if mining.joined_share == 0.0:
            mining, lost = _mine(trace)
    progress.at("callers")
    called = called_from(path, room, trace, mining, partial(progress.at, "callers"))
    progress.at("parts")
    mining, blockers = called.mining, called.blockers
    parts = step_parts(trace, mining.mined)
    target = choose_device(what_if, None)[0] if what_if else device
    stops = [near(blockers, r.spans, r.module) for r in mining.regions]
    listed = [_region_entry(trace, r, o) for r, o in zip(mining.regions, stops, strict=True)]
    for region, busy_us in zip(listed, mining.shares.groups_us if mining.shares else (), strict=False):
        region["busy_us_per_step"] = busy_us / len(mining.mined)
    for region, (many, time_us) in zip(listed, copies_of_regions(trace, mining.regions, mining.mined), strict=True):
        if many:
            region["copies_per_step"], region["copies_us_per_step"] = many, time_us
    pacing = pace(trace, mining.mined, [r.kernels for r in mining.regions])
    for region, gpu_us in zip(listed, pacing.groups_us, strict=True):
        region["gpu_paced_us_per_step"] = gpu_us
    order = sorted(range(len(listed)), key=lambda i: -(listed[i]["time_us_per_step"] or 0.0))
    for index, lanes in zip(order, streams(trace, mining, order), strict=True):
        listed[index]["streams"] = lanes
    remarks = [note] if note else []
    if target is not device:
        remarks.append(f"what if: advice is for {target.name}; times and shares of the step are as recorded")
    regions = [listed[i] for i in order]
    body = trace_json(trace, name, mining, regions, target, tuple(remarks), blockers, parts, thresholds)
    body["notes"] = lost + body["notes"]
    body["pace"] = shown_pace = _pace_json(trace, mining, pacing)
    critical = critical_by_pace(body.get("critical"), body.get("step_parts"), shown_pace["gpu_us"], body["host_times"])
    if critical is not None and critical["resource"] == "launches" and (of := which_step(body.get("step_times"))):
        critical = {**critical, "because": f"{critical['because']} ({of})"}
    body["critical"] = critical
    accounted = partial(progress.at, "parts")
    accounted(TIMED)
    owner = owners(trace, mining, order)
    body["where"] = where = where_json(trace, mining, owner)
    body["timeline"] = timeline_json(trace, mining, owner)
    accounted(DRAWN)
    body["call_trees"] = call_trees_json(trace, called, owner, within(accounted, DRAWN, 1.0))
    classes = optimizer_classes(trace)
    steady = parts is None or not tells_nothing(parts.wall_us, shown_pace["launches"], body["host_times"])
    is_predicted = trace.predicted is not None
    in_tf32 = tf32_is_on(where["kernels"], [region["kind"] for region in regions])
    inputs = tuple(
        _inputs(mining, mining.regions[i], device, stops[i], target, classes, steady, is_predicted, in_tf32)
        for i in order
    )
    yield Parts({**body, "gain": None, "actions": []}, inputs)

    def advise_one(position: int) -> RegionAdvised:
        return _region(mining.regions[order[position]], inputs[position], target, thresholds)

    probe.join()
    progress.at("advice")
    for done, (position, made) in enumerate(each(advise_one, range(len(order)), limits), 1):
        advised: RegionAdvised
        if isinstance(made, Failure):
            advised = {"notes": [region_failed.of_limit(regions[position]["name"], made, limits)]}
        else:
            advised = made
        regions[position] = {**regions[position], **advised}
        progress.at("advice", done / len(order))
        yield Advised(position, regions[position])
    body = {**body, "regions": regions, "notes": region_failed.among(regions) + body["notes"]}
    yield Whole(with_actions(body) if target is device else {**body, "gain": None, "actions": []}, inputs)


TIMED, DRAWN = 0.2, 0.35
"""What is done of the accounting for the step's time once its parts have their times, and once it is drawn along time;
the rest is for who called what, as trees."""


def _mine(trace: Trace, execution: Execution | None = None, on_share: OnShare = untold) -> tuple[Mining, list[Note]]:
    """The regions of the trace, and why there are none where that fails: the trace's own figures are left."""
    # Imports torch: not before the file is known to be a trace.
    from profiler.region.mining.mine import mine, without_regions

    try:
        return mine(trace, execution=execution, on_share=on_share), []
    except MemoryError:
        raise  # the trace is too large for this process, and whoever started it says so
    except Exception as fault:
        log.exception("the trace could not be cut into regions")
        return without_regions(trace), [region_failed.of_all(fault)]


OPTIMIZER = "Optimizer.step#"
"""How torch.optim annotates a step, before the class: `Optimizer.step#SGD.step`."""


def optimizer_classes(trace: Trace) -> tuple[str, ...]:
    """Classes of the optimizers whose steps the trace annotates, in order of their names."""
    named = {n.removeprefix(OPTIMIZER).partition(".")[0] for n in trace.names if n.startswith(OPTIMIZER)}
    return tuple(sorted(named))


def _pace_json(trace: Trace, mining: Mining, pacing: Pace) -> objects.Pace:
    """Who sets the step's pace, with the kernels and copies that the host launches in it."""
    from profiler.region.mining.mine import COPIES

    steps = max(1, len(mining.mined))
    apart = sum(len(r.kernels) for r in mining.rests) / steps
    launches = sum(r.launches for r in mining.regions) + apart
    _, inside = compiled_kernels(trace)
    parts = [r.kernels for r in mining.regions] + [r.kernels for r in mining.rests if r.name != COPIES]
    kernels = [number for part in parts for number in part]
    compiled = float(inside[kernels].mean()) if kernels else 0.0  # copies are launched as the kernels are
    made: objects.Pace = {
        "gpu_us": pacing.gpu_us, "lead_us": pacing.lead_us, "launches": launches,
        "compiled_launches": launches * compiled,
    }  # fmt: skip
    of_optimizer = optimizer_us(trace, mining.mined)
    return made if of_optimizer is None else {**made, "optimizer_us": of_optimizer}


MAX_TEXT = 160
"""Characters of a name that is repeated."""


def blocker_json(blocker: CompileBlocker) -> shown_blocker.Obstacle:
    """The API's object: what stands in torch.compile's way, how often in a step, where, and what to do about it."""
    return {
        "kind": blocker.kind,
        "title": blocker.title,
        "effect": cast("shown_blocker.Effect", blocker.effect),
        "does": blocker.does,
        "op": blocker.op[:MAX_TEXT],
        "calls_per_step": blocker.calls_per_step,
        "modules": [m[-MAX_TEXT:] for m in blocker.modules[:MAX_CALLERS]],
        "modules_count": len(blocker.modules),
        "sources": list(blocker.sources),
        "operands": [o[:MAX_TEXT] for o in blocker.operands],
        "within": blocker.within,
        "because": blocker.because,
        "remedy": blocker.remedy,
        "inside": blocker.inside,
    }


def _require_kernels(trace: Trace) -> None:
    """Without a kernel there is nothing to advise on: an error that says what to record, not an empty report."""
    if len(trace.kernels.name):
        return
    remedy = next((n.remedy for n in trace.notes if n.code == "no-kernels"), "")
    if trace.truncated:
        raise TraceError(
            "trace-truncated", "The file is cut off before its first GPU kernel.", "Copy it again, or record it again."
        )
    message = next((n.message for n in trace.notes if n.code == "no-kernels"), "The trace has no GPU kernels.")
    raise TraceError("trace-no-kernels", message, remedy)


def trace_json(
    trace: Trace, name: str, mining: Mining, regions: list[RegionBody], device: Device, remarks: tuple[str, ...],
    blockers: tuple[CompileBlocker, ...] = (), parts: StepParts | None = None, thresholds: Thresholds = DEFAULTS,
) -> objects.TraceBody:  # fmt: skip
    """The API's trace object, without the fields that the store adds (id, status, created_at)."""
    notes: list[Note] = [to_json(n) for n in trace.notes]
    host = host_times_json(trace, mining.mined, parts)
    if parts is None or not is_start(parts.wall_us, host):
        notes += _idle_note(mining, parts, thresholds)
    notes += [{"code": "remark", "level": "info", "message": r, "remedy": ""} for r in remarks]
    step_time, step = _step_time(mining), step_json(trace, mining.mined, parts, host)
    return {
        "name": name,
        "events": trace.events,
        "dropped": trace.dropped,
        "kernels": len(trace.kernels.name),
        "profiler_steps": trace.profiler_steps,
        "steps": max(1, len(trace.steps)),
        "step_source": cast("objects.StepSource", trace.step_source),
        "step_time_us": step_time,
        "kernel_time_us": trace.kernel_time_us,
        "step_times": step["step_times"],
        "step_parts": step["step_parts"],
        "critical": step["critical"],
        "gpu_busy_share": min(1.0, _busy_us(mining) / step_time) if step_time else None,
        "linked_share": trace.linked_share,
        "has_shapes": trace.has_shapes,
        "has_stacks": trace.has_stacks,
        "with_modules": trace.with_modules,
        "profiler_slows": profiler_slows(trace),
        "truncated": trace.truncated,
        "device": trace.device,
        "estimates_for": device.name,
        "notes": notes,
        "rank": trace.rank,
        "graphs": graphs_json(trace, mining.mined),
        "rests": rests(mining, parts),
        "backward_time_us": mining.backward_time_us,
        "serving": None if mining.backward_time_us else (served := serving(regions)),
        "phase": None if mining.backward_time_us else phase_of(trace, mining.mined, served),
        "paired_backward_share": mining.paired_backward_share,
        "host_times": host,
        "compute_capability": ".".join(map(str, trace.capability)) if trace.capability else None,
        "compile_obstacles": [blocker_json(o) for o in blockers],
        "regions": regions,
        "origin": origin_json(trace),
    }  # fmt: skip


def origin_json(trace: Trace) -> objects.Origin | None:
    """What a predicted trace is from; None for a recorded one."""
    told = trace.predicted
    if told is None:
        return None
    return {
        "kind": "module",
        "name": told.name,
        "device": told.device,
        "training": told.training,
        "parameters": told.parameters,
        "weights_bytes": told.weights_bytes,
        "known_share": told.known_share,
        "gaps": [{"what": what, "where": where, "ends": ends} for what, where, ends in told.gaps],
    }


CUSTOM = "custom operation"
"""How mining titles what no aten operation computes: a kernel that somebody wrote."""


def _idle_note(mining: Mining, parts: StepParts | None, thresholds: Thresholds) -> list[Note]:
    """Where the GPU waits more than it works, no kernel is the first thing to look at: say so once, for the step."""
    kernels = sum(r.launches for r in mining.regions)
    step_us = _step_time(mining)
    if not kernels or not step_us or _busy_us(mining) > (1 - thresholds.idle_share) * step_us:
        return []
    mean = _busy_us(mining) / kernels
    message = (
        f"the GPU works {percent(_busy_us(mining) / step_us)} of the step's {step_us / 1e3:.1f} ms; "
        f"its {kernels:.0f} kernels take {mean:.1f} µs on average."
    )
    cause = "idle_launch_us" if mean < thresholds.short_kernel_us else "idle_host_us"
    if parts is not None:
        cause = max(IDLE_WORDS, key=lambda name: getattr(parts, name))
    helps = IDLE_WORDS[cause][1] or "work is queued and not started: look at dependencies between streams"
    caveat = "recording shapes and stacks slows the host too: compare with the step's time without the profiler"
    return [{"code": "gpu-idle", "level": "warning", "message": message, "remedy": f"{helps}; {caveat}"}]


def _step_time(mining: Mining) -> float:
    """Wall time of the step; where the host ran ahead of the GPU, the time that the GPU worked for it."""
    return max(mining.step_time_us, mining.busy_us)


def _busy_us(mining: Mining) -> float:
    """Time of one step in which anything ran on the GPU."""
    if mining.shares is None:
        return mining.busy_us
    return (mining.shares.wall_us - mining.shares.idle_us) / len(mining.mined)


def _inputs(
    mining: Mining, mined: MinedRegion, device: Device, blockers: tuple[CompileBlocker, ...], target: Device,
    classes: tuple[str, ...], steady: bool, is_predicted: bool = False, in_tf32: bool = False,
) -> AdviceInputs:  # fmt: skip
    """What the region's advice is issued on. device: where the trace was recorded; target: which the advice is for;
    classes: of the step's optimizers; steady: its step says something of others, so that its idle GPU counts;
    is_predicted: nobody recorded the step; in_tf32: most of its f32 products run in TF32."""
    step_time = _step_time(mining)
    kernels = mined.kernels_per_call * mined.calls_per_step
    step_kernels = sum(r.kernels_per_call * r.calls_per_step for r in mining.regions)
    return AdviceInputs(
        device=device.name,
        workload=mined.workload,
        observed=TraceFacts(
            title=mined.title,
            gpu_idle_share=max(0.0, 1.0 - _busy_us(mining) / step_time) if step_time and steady else None,
            mean_kernel_us=_busy_us(mining) / step_kernels if step_kernels else None,
            launches=kernels / mined.calls_per_step if mined.calls_per_step else None,
            compiled=mined.kind == "compiled",
            optimizer=mined.kind == "optimizer",
            optimizer_class=classes[0] if mined.kind == "optimizer" and len(classes) == 1 else "",
            already_tuned=mined.title.startswith(CUSTOM),
            communication=mined.kind == "communication",
            obstacles=blockers,
            library_call=_library_call(mined.title),
            kernel_names=kept_names(mined.kernel_names),
            share_predicted=True if is_predicted else None,
            tf32_is_on=in_tf32 or None,
        ),
        notes=tuple(f"assumed, for the trace does not record it: {a}" for a in dict.fromkeys(mined.assumed)),
        target=None if target is device else target.name,
    )


def _library_call(title: str) -> str:
    """Of a region that is one custom operation: whose call it is and what it computes, "" where nobody's is known."""
    return str(library_call(title.removeprefix(CUSTOM).strip()) or "") if title.startswith(CUSTOM) else ""


def _region(mined: MinedRegion, inputs: AdviceInputs, target: Device, thresholds: Thresholds) -> RegionAdvised:
    """A region with its advice; without where that fails."""
    try:
        return _advise(mined, inputs, target, thresholds)
    except Exception as fault:  # one region, whatever it is, is never the whole trace
        memory = is_of_memory(fault)
        log.exception("no advice on the region %r", mined.title)
        if memory:
            raise MemoryError from fault  # `each` tells of it, with the limit that it met, and forks anew
        return _failed_region(mined, fault)


def _advise(mined: MinedRegion, inputs: AdviceInputs, target: Device, thresholds: Thresholds) -> RegionAdvised:
    if mined.text is None:
        return _without_text(mined, inputs, target, thresholds)
    try:
        evaluated = decide(prepare_from_inputs(mined.text, inputs, thresholds))
    except RegionError as fault:
        # A text that mining checked and that does not lower is our defect: say so, keep the region.
        return {**_without_text(mined, inputs, target, thresholds), "missing": f"no cost: {fault.message}"}
    region = region_json(evaluated, inputs.workload, name=mined.title, source=_source(mined))
    return {
        "kind": region["kind"],
        "by_hand": region["by_hand"],
        "text": region["text"],
        "irregularity": region["irregularity"],
        "cost": region["cost"],
        "oracle": region["oracle"],
        "recompiles": region["recompiles"],
        "prediction": region["prediction"],
        "advice": region["advice"],
        "rests_on": region["rests_on"],
        "launches_left": launches_left(evaluated.facts, evaluated.advice),
        "fp8_left": fp8_left(evaluated.facts, target),
    }


def _without_text(mined: MinedRegion, inputs: AdviceInputs, target: Device, thresholds: Thresholds) -> RegionAdvised:
    facts = RegionFacts(name=mined.title, kind=mined.kind, by_hand=mined.by_hand, **inputs.observed.known())
    advice = advise(facts, inputs.workload, target, thresholds)
    changes = sensitivity.would_change(facts, inputs.workload, target, thresholds)
    return {"text": None, "irregularity": None, "cost": None, "advice": to_json(replace(advice, would_change=changes))}


def _failed_region(mined: MinedRegion, fault: Exception) -> RegionAdvised:
    """What becomes of a region on which advising failed: no advice, and a note that says so."""
    return {"advice": None, "notes": [region_failed.of_region(mined.title, fault)]}


def _source(mined: MinedRegion, within: Sequence[str] = ()) -> RegionSource:
    return {"trace": "", "module": mined.module, "line": mined.source, "ops": [*within, *mined.operations]}


def _region_entry(trace: Trace, mined: MinedRegion, blockers: tuple[CompileBlocker, ...]) -> RegionBody:
    """The API's region before its cost and advice are known: what the trace says of it."""
    return {
        "name": mined.title,
        "kind": mined.kind,
        "by_hand": mined.by_hand,
        "text": mined.text,
        "source": _source(mined, called_within(trace, mined.ops)),
        "irregularity": None,
        "cost": None,
        "advice": None,
        "oracle": [],
        "recompiles": None,
        "prediction": "rules",
        "launches_left": {},
        "key": mined.id_hint,
        "forward_of": mined.forward_of or None,
        "missing": mined.missing if mined.text is None else "",
        "assumed": list(mined.assumed),
        "compile_obstacles": [blocker_json(o) for o in blockers],
        "title": mined.title,
        "calls_per_step": mined.calls_per_step,
        "time_us_per_step": mined.time_us_per_step,
        "forward_time_us_per_step": mined.forward_time_us_per_step,
        "backward_time_us_per_step": mined.backward_time_us_per_step,
        "kernels_per_call": mined.kernels_per_call,
        "kernel_names": list(mined.kernel_names),
        "backward": mined.backward,
        "share_of_step": mined.workload.share_of_step,
        "shapes": [
            {
                "binding": dict(shape.sizes),
                "operands": list(shape.operands[:MAX_OPERANDS]),
                "calls": shape.calls_per_step,
                "time_us_per_step": shape.time_us_per_step,
            }
            for shape in mined.shapes
        ],
    }


MAX_OPERANDS = 16
"""Inputs of one call that are repeated; an optimizer's step has hundreds."""
