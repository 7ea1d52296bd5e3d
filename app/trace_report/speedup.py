"""The step after following what is advised, all of it or the few actions that save most, and what is not known of it.

Which actions there are `actions.ranking` says, what they do to the step `step_model`. Pure functions of the API's
trace; times in µs of one step.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.objects.common import Note, Range
from app.objects.trace import Action, Gain, GainEach, GainTotal, GainUnknown, Trace, TraceBody
from app.trace_report.actions import fp8, table_batch
from app.trace_report.actions.ranking import Priced, actions, changes, followed, plan
from app.trace_report.step_model import Step, after, busy_us, slows_of, step_of, step_us
from app.units import count, share
from profiler.hardware import find_device

TOP = 3
GRAPHS = "reduce-overhead"
NOTABLE = 0.01
"""Share of the step from which on something that is not known is worth a line."""


def gain(trace: Trace | TraceBody) -> Gain | None:
    """What following the advice gains; None for a trace whose step or pace is not known.

    `top` is of the TOP that save most, each followed alone; `each` has those first that save most.
    """
    return gain_and_actions(trace)[0]


def gain_and_actions(trace: Trace | TraceBody) -> tuple[Gain | None, list[Action]]:
    """What following the advice gains, and everything that there is to do, from one computation."""
    known = plan(trace)
    if known is None:
        return None, []
    step, priced = known
    counted = followed(priced)
    told: Gain = {
        "all": _total(step, counted),
        "top": _total(step, counted[:TOP]),
        "each": [_each(step, one) for one in counted],
        "unknown": unknown(step, priced),
    }
    return told, actions(step, priced)


def with_actions(trace: TraceBody) -> TraceBody:
    """The trace with its actions and what all of them gain."""
    told, made = gain_and_actions(trace)
    step = step_of(trace)
    slows = trace.get("profiler_slows")
    notes = [n for n in trace["notes"] if n["code"] not in (PROFILED, fp8.WORTH_INSTALLING)]
    if step is not None and slows:
        notes += _profiled(trace, step, slows)
    device = find_device(trace.get("estimates_for") or "")
    if step is not None and device is not None and made:
        notes += fp8.worth_installing(step, device, bool(trace.get("backward_time_us")))
        notes += table_batch.worth_installing(step)
    unprofiled_us = step.parts["wall_us"] if step is not None and slows else None
    return {**trace, "gain": told, "actions": made, "unprofiled_us": unprofiled_us, "notes": notes}


PROFILED = "profiler-slows-host"


def _profiled(trace: TraceBody, step: Step, slows: Range) -> list[Note]:
    """That predictions start from a step that is shorter than the recorded one; [] where both are as long."""
    recorded, now = trace.get("step_time_us") or 0.0, step.parts["wall_us"]
    slows = slows_of(step, slows)
    if recorded - now < NOTABLE * recorded:
        return []
    recorded_too = ["stacks"] * trace.get("has_stacks", False) + ["modules"] * trace.get("with_modules", False)
    stacks = "".join(f" and {what}" for what in recorded_too)
    message = (
        f"The profiler slows the host: without it the step is estimated to take {now / 1e3:.2f} of the recorded "
        f"{recorded / 1e3:.2f} ms (the host {slows['mid']:.1f} times as fast, {slows['low']:.1f} to "
        f"{slows['high']:.1f}; recorded with shapes{stacks}). What changes save is counted from there."
    )
    remedy = "Time the step without a profiler: torch.cuda.synchronize() and time.perf_counter() around some steps."
    return [{"code": PROFILED, "level": "info", "message": message, "remedy": remedy}]


def _total(step: Step, counted: Sequence[Priced]) -> GainTotal | None:
    if not counted:
        return None
    wall = step.parts["wall_us"]
    low, mid, high = step_us(step, changes(counted))
    return {
        "step_time_us": {"low": low, "mid": mid, "high": high},
        "speedup": {"low": wall / high, "mid": wall / mid, "high": wall / low},
        "saved_us": {"low": wall - high, "mid": wall - mid, "high": wall - low},
        "idle_us": after(step, changes(counted), "mid")[1],
        "advice": [_name(step, one) for one in counted],
    }


def _each(step: Step, one: Priced) -> GainEach:
    wall = step.parts["wall_us"]
    assert one.after_us is not None
    low, mid, high = (wall - time for time in reversed(one.after_us))
    keys = [step.regions[i].get("key") for i in one.option.regions]
    return {"advice": _name(step, one), "regions": keys, "saved_us": {"low": low, "mid": mid, "high": high}}


def _name(step: Step, one: Priced) -> str:
    """Of an option for the whole step its title, of a region its name."""
    return one.option.title if one.option.scope_is_step else step.regions[one.option.regions[0]]["name"]


def unknown(step: Step, priced: Sequence[Priced] = ()) -> list[GainUnknown]:
    """What the trace cannot tell about the step after following the advice, each with the time that it is about.

    Only what is NOTABLE is told.
    """
    regions, parts, wall = step.regions, step.parts, step.parts["wall_us"]
    told = {i for one in followed(priced) for i in (one.option.change.time if one.option.change else ())}
    blind = [r for i, r in enumerate(regions) if i not in told and (a := r.get("advice")) and a["tool"] != "skip"]
    without = [r for r in regions if not r.get("advice")]
    captured = [one.option for one in followed(priced) if one.option.mode == GRAPHS]
    graphs = [regions[i] for o in captured for i in o.regions if not o.change or i not in o.change.time]
    why = "" if step.has_shapes else ": shapes were not recorded"
    by_host = step.share_of_host
    untold = (
        (
            "no-prediction",
            sum(map(busy_us, blind)),
            f"advice on {count(len(blind), 'region')} with no predicted time{why}; counted as today",
        ),
        (
            "no-advice",
            sum(map(busy_us, without)),
            f"{count(len(without), 'region')} on which advising failed; counted as today",
        ),
        (
            "graphs",
            sum(map(busy_us, graphs)),
            f"CUDA graphs over {count(len(graphs), 'region')} whose kernels are counted as today; whether all of the "
            "step can be captured (static sizes and addresses, the optimizer) the trace does not tell",
        ),
        (
            "no-operation",
            step.no_operation_us,
            "kernels without an operation (graphs, work of other steps): no advice, counted as today",
        ),
        (
            "streams",
            sum(max(0.0, float(r.get("time_us_per_step") or 0.0) - busy_us(r)) for r in regions),
            "kernels that overlap others on several streams: how they overlap once some are faster is not known; "
            "the range's slow end counts only what must run alone",
        ),
        (
            "launches",
            parts["idle_launch_us"],
            f"idle time waiting for launches; the host sets the pace of {share(by_host)} of the step. It shrinks with "
            "the number of launches, not with the kernels; what the host takes for a compiled function or a library's "
            "call is not recorded",
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
