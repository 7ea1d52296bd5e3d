"""A trace file -> the API's trace object: figures, notes, regions with advice, and the named rests of the step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.advice.facts import RegionFacts
from app.advice.rule import advise
from app.advice.thresholds import Thresholds
from app.evaluate import Situation, evaluate
from app.service import choose_device, region_json
from kernels.measure.model import to_json
from profiler.hardware import Device
from profiler.region.model import RegionError
from profiler.region.text import parse
from profiler.trace import TraceError, read_trace
from profiler.trace.model import Trace
from profiler.trace.source import Limits

if TYPE_CHECKING:
    from profiler.region.mining import MinedRegion, Mining

Json = dict[str, Any]


def report(path: str | Path, name: str, max_bytes: int | None = None) -> Json:
    """Read, mine and advise. Raises TraceError where the file is no trace, or holds no kernel to advise on."""
    limits = Limits() if max_bytes is None else Limits(max_bytes=max_bytes)
    trace = read_trace(path, limits)
    _require_kernels(trace)
    device, note = choose_device(None, trace.device)
    from profiler.region.mining import mine  # imports torch: not before the file is known to be a trace

    mining = mine(trace)
    regions = [_region(trace, mining, r, device) for r in mining.regions]
    regions.sort(key=lambda r: -(r["time_us_per_step"] or 0.0))
    return trace_json(trace, name, mining, regions, device, (note,) if note else ())


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
    trace: Trace, name: str, mining: Mining, regions: list[Json], device: Device, remarks: tuple[str, ...]
) -> Json:
    """The API's trace object, without the fields that the store adds (id, status, created_at)."""
    notes: list[Json] = [to_json(n) for n in trace.notes]
    notes += _idle_note(mining)
    notes += [{"code": "remark", "level": "info", "message": r, "remedy": ""} for r in remarks]
    step_time = _step_time(mining)
    return {
        "name": name,
        "events": trace.events,
        "dropped": trace.dropped,
        "kernels": len(trace.kernels.name),
        "profiler_steps": trace.profiler_steps,
        "steps": max(1, len(trace.steps)),
        "step_source": trace.step_source,
        "step_time_us": step_time,
        "kernel_time_us": trace.kernel_time_us,
        "gpu_busy_share": min(1.0, mining.busy_us / step_time) if step_time else None,
        "linked_share": trace.linked_share,
        "has_shapes": trace.has_shapes,
        "has_stacks": trace.has_stacks,
        "truncated": trace.truncated,
        "device": trace.device,
        "estimates_for": device.name,
        "notes": notes,
        "rests": [
            {
                "name": r.name, "time_us": r.time_us, "kernels": len(r.kernels), "remedy": r.remedy,
                "share_of_step": r.time_us / step_time if step_time else None,
            }
            for r in mining.rests
        ],
        "regions": regions,
    }  # fmt: skip


CUSTOM = "custom operation"
"""How mining titles what no aten operation computes: a kernel that somebody wrote."""

IDLE_SHARE = Thresholds().idle_share
SHORT_KERNEL_US = Thresholds().short_kernel_us


def _idle_note(mining: Mining) -> list[Json]:
    """Where the GPU waits more than it works, no kernel is the first thing to look at: say so once, for the step."""
    kernels = sum(r.launches for r in mining.regions)
    if not kernels or mining.busy_us > (1 - IDLE_SHARE) * _step_time(mining):
        return []
    mean = mining.busy_us / kernels
    short = mean < SHORT_KERNEL_US
    message = (
        f"the GPU works {mining.busy_us / _step_time(mining):.0%} of the step's {_step_time(mining) / 1e3:.1f} ms; "
        f"its {kernels:.0f} kernels take {mean:.1f} µs on average"
    )
    helps = (
        'launch-bound: torch.compile(model, mode="reduce-overhead") replays the step as CUDA graphs'
        if short
        else "the host holds it up: look at data loading, synchronising calls (.item(), .cpu()), slow Python"
    )
    caveat = "recording shapes and stacks slows the host too: compare with the step's time without the profiler"
    return [{"code": "gpu-idle", "level": "warning", "message": message, "remedy": f"{helps}; {caveat}"}]


def _step_time(mining: Mining) -> float:
    """Wall time of the step; where the host ran ahead of the GPU, the time that the GPU worked for it."""
    return max(mining.step_time_us, mining.busy_us)


def _region(trace: Trace, mining: Mining, mined: MinedRegion, device: Device) -> Json:
    step_time = _step_time(mining)
    share = mined.time_us_per_step / step_time if step_time else None
    workload = mined.workload
    kernels = mined.kernels_per_call * mined.calls_per_step
    step_kernels = sum(r.kernels_per_call * r.calls_per_step for r in mining.regions)
    situation = Situation(
        notes=tuple(f"the trace does not record {a}" for a in mined.assumed),
        facts={
            "title": mined.title,
            "gpu_idle_share": max(0.0, 1.0 - mining.busy_us / step_time) if step_time else None,
            "mean_kernel_us": mining.busy_us / step_kernels if step_kernels else None,
            "launches": kernels / mined.calls_per_step if mined.calls_per_step else None,
            "compiled": mined.kind == "compiled",
            "optimizer": mined.kind == "optimizer",
            "already_tuned": mined.title.startswith(CUSTOM),
            "communication": mined.kind == "communication",
        },
    )
    source = {"trace": "", "module": mined.module, "ops": list(mined.operations)}
    if mined.text is not None:
        try:
            region = parse(mined.text, mined.title)
            evaluated = evaluate(region, workload, device, situation)
        except RegionError as fault:
            # A text that mining checked and that does not lower is our defect: say so, keep the region.
            return _without_text(mined, workload, share, device, situation, source, f"no cost: {fault.message}")
        found = region_json(evaluated, workload, name=mined.title, source=source)
        return found | _observed(mined, share)
    return _without_text(mined, workload, share, device, situation, source, mined.missing)


def _without_text(
    mined: MinedRegion, workload: Any, share: float | None, device: Device, situation: Situation, source: Json, why: str
) -> Json:
    facts = RegionFacts(
        name=mined.title, kind=mined.kind, by_hand=mined.by_hand,
        **{k: v for k, v in situation.facts.items() if v is not None},
    )  # fmt: skip
    advice = advise(facts, workload, device, Thresholds(), objective="time")
    return {
        "name": mined.title, "kind": mined.kind, "by_hand": mined.by_hand, "text": None, "missing": why,
        "source": source, "calls_per_step": mined.calls_per_step, "shapes": [], "irregularity": None, "cost": None,
        "advice": to_json(advice),
    } | _observed(mined, share)  # fmt: skip


def _observed(mined: MinedRegion, share: float | None) -> Json:
    return {
        "title": mined.title,
        "calls_per_step": mined.calls_per_step,
        "time_us_per_step": mined.time_us_per_step,
        "kernels_per_call": mined.kernels_per_call,
        "kernel_names": list(mined.kernel_names),
        "backward": mined.backward,
        "share_of_step": share,
    }
