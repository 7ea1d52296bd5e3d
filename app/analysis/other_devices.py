"""One region on every device of the table, side by side: the tool, the region's and the step's predicted speed-up.

The rule runs once for each device: with the rates of its own ceilings, the library calls that its architecture has, and
ranges that are wider where no rate was fitted on it. Two things are not known of another device and are taken from the
one that was looked at: the region's share of the step, and how long the GPU waits in it. An observed time is carried
over by the ratio of what plain PyTorch is predicted to take on both.
"""

from __future__ import annotations

from dataclasses import replace

from app.advice.rule import advise
from app.analysis.analyze import AnalyzedRegion
from app.analysis.device_choice import without_choice
from app.analysis.device_host import as_host
from app.atlas.shipped import Basis, basis_of
from app.estimate import predict
from app.estimate.rates import FITTED, TRACED
from app.objects.advice import Advice, DeviceAdvice
from app.objects.common import Range
from kernels.host import probe_host
from kernels.measure.model import to_json
from profiler.hardware import DEVICES, Device
from profiler.region.model import Workload


def side_by_side(prepared: AnalyzedRegion, advice: Advice | None = None) -> list[DeviceAdvice]:
    """A row for each device of the table, in the table's order, as `row` gives them.

    advice: what stands for the device that the region was prepared for, as JSON; judged again where it is None. The
    others are judged without the oracle, which is asked for one architecture.
    """
    rows = []
    for device in DEVICES:
        here = device is prepared.device
        there = prepared if here else move_to_device(prepared, device)
        said = advice if here and advice is not None else _judge(there)
        rows.append(row(device, said, here=here))
        if not here and prepared.workload.observed:
            rows[-1]["now_us"] = _carried_range(rows[-1]["now_us"], there)
    return rows


def _carried_range(now_us: Range | None, there: AnalyzedRegion) -> Range | None:
    """An observed time that was carried over is as uncertain as what plain PyTorch is predicted to take there."""
    eager = predict.eager(there.facts, there.device, TRACED)
    if now_us is None or eager is None or eager.time_us.mid <= 0:
        return now_us
    scale = now_us["mid"] / eager.time_us.mid
    return {"low": eager.time_us.low * scale, "mid": now_us["mid"], "high": eager.time_us.high * scale}


def _judge(prepared: AnalyzedRegion) -> Advice:
    """The rule's advice alone."""
    context = prepared.context
    judged: Advice = to_json(
        advise(prepared.facts, prepared.workload, prepared.device, context.thresholds, objective=context.objective)
    )
    return judged


def move_to_device(prepared: AnalyzedRegion, device: Device) -> AnalyzedRegion:
    """The region on another device: the library calls that its architecture has, observed times carried over.

    What a trace knew of the region stays; a note on how the device before was chosen does not.
    """
    host = as_host(prepared.context.host or probe_host(), device)
    facts = replace(prepared.facts, covers=prepared.covers_on(host))
    there = replace(prepared, device=device, context=replace(on_named(prepared).context, host=host), facts=facts)
    return replace(there, workload=carry_workload(prepared, there))


def on_named(prepared: AnalyzedRegion) -> AnalyzedRegion:
    """The region on its own device, which somebody has named: without a note on how it was chosen."""
    notes = without_choice(prepared.context.notes)
    return replace(prepared, context=replace(prepared.context, notes=notes))


def carry_workload(before: AnalyzedRegion, after: AnalyzedRegion) -> Workload:
    """The workload on another device: observed times in the ratio of eager's predictions; without one, not observed."""
    workload = before.workload
    if not workload.observed:
        return workload
    one = predict.eager(before.facts, before.device, TRACED)
    other = predict.eager(after.facts, after.device, TRACED)
    if one is None or other is None or one.time_us.mid <= 0:
        return workload
    ratio = other.time_us.mid / one.time_us.mid
    bindings = tuple(
        b if b.time_us_per_step is None else replace(b, time_us_per_step=b.time_us_per_step * ratio)
        for b in workload.bindings
    )
    return replace(workload, bindings=bindings)


def row(device: Device, advice: Advice, *, here: bool = False) -> DeviceAdvice:
    """{device, arch, here, tool, mode, headline, now_us, time_us, region_speedup, step_speedup, floor_us, fitted,
    because}: advice on one device. now_us, time_us: of one call, as it runs now and as advised; None without sizes.
    """
    measured = advice.get("validation")
    basis = basis_of(device)
    fitted = basis is not None and basis.own
    return {
        "device": device.name,
        "arch": device.arch,
        "here": here,
        "tool": advice["tool"],
        "mode": advice["mode"],
        "headline": advice["headline"],
        "now_us": _time(advice, "skip", ""),
        "time_us": _time(advice, advice["tool"], advice["mode"]),
        "region_speedup": advice["region_speedup"],
        "step_speedup": advice["step_speedup"],
        "floor_us": advice["floor_us"],
        "measured": measured is not None and measured.get("outcome") not in (None, "unmeasured"),
        "fitted": fitted,
        "because": _because(device, basis),
    }


def _because(device: Device, basis: Basis | None) -> str:
    notes = [f"({note})" for note in basis.notes] if basis is not None else []
    if basis is not None and basis.own:
        whose = "your own atlas of this device" if basis.users else "this device's own atlas"
        return " ".join((f"by {whose}, measured on {basis.atlas.date}", *notes))
    measured = basis.atlas.device if basis is not None else " and ".join(FITTED.devices)
    ceilings = "measured" if device.ceilings_measured else "datasheet"
    scaled = (
        f"no atlas of this device: what {measured} was measured to do, scaled by the {ceilings} ceilings of "
        f"{device.name}; the range is wider"
    )
    return " ".join((scaled, *notes))


def _time(advice: Advice, tool: str, mode: str) -> Range | None:
    alternatives = (a for a in advice["alternatives"] if a["tool"] == tool and (tool == "skip" or a["mode"] == mode))
    return next((a["time_us"] for a in alternatives if a["time_us"]), None)
