"""A stored region, advised on again once the oracle has spoken: what its trace knew is not lost. Torch-free."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from profiler.region.model import Binding, Workload
from profiler.trace.analyze.compile_blockers import Obstacle

if TYPE_CHECKING:
    from app.analysis.analyze import AnalyzedRegion

Json = dict[str, Any]

FUSES = "compile-fuses"
"""The criterion that the oracle's answer decides."""

CUSTOM = "custom operation"


def asked_of(region: Mapping[str, Any]) -> Json:
    """The keyword arguments of `service.prepare_region` under which a stored region was advised on."""
    sizes = [s for s in region.get("shapes") or () if s.get("binding")]
    return {
        "share_of_step": region.get("share_of_step"),
        "calls_per_step": region.get("calls_per_step") or 1.0,
        "shapes": [{**s["binding"], "calls": s["calls"]} for s in sizes] or None,
        "device": (region.get("advice") or {}).get("device"),
    }


def seen_of(trace: Mapping[str, Any]) -> Json:
    """What `as_traced` reads of a stored trace."""
    regions = [{k: r.get(k) for k in ("kernels_per_call", "calls_per_step")} for r in trace["regions"]]
    return {
        "step_time_us": trace.get("step_time_us"),
        "gpu_busy_share": trace.get("gpu_busy_share"),
        "regions": regions,
    }


def as_traced(prepared: AnalyzedRegion, region: Mapping[str, Any], trace: Mapping[str, Any]) -> AnalyzedRegion:
    """The same region in the situation that its trace saw: observed times, idle shares, obstacles.

    What `app.trace_report.report` gave the rule, read back from the trace's and the region's JSON.
    """
    step_us, busy = trace.get("step_time_us"), trace.get("gpu_busy_share")
    launches = region.get("kernels_per_call")
    title = region.get("title") or region["name"]
    step_kernels = sum((r.get("kernels_per_call") or 0) * (r.get("calls_per_step") or 0) for r in trace["regions"])
    known = {
        "name": title,
        "title": title,
        "gpu_idle_share": None if busy is None else max(0.0, 1.0 - busy),
        "mean_kernel_us": busy * step_us / step_kernels if busy is not None and step_us and step_kernels else None,
        "launches": launches,
        "compiled": False,  # neither these nor collectives have a text
        "communication": False,
        "already_tuned": title.startswith(CUSTOM),
        "obstacles": tuple(_obstacle(o) for o in region.get("compile_obstacles") or ()),
    }
    bindings = tuple(
        Binding(tuple(sorted(s["binding"].items())), s["calls"], s["time_us_per_step"]) for s in region["shapes"]
    )
    workload = Workload(
        bindings=bindings or prepared.workload.bindings,
        step_time_us=step_us,
        share_of_step=region.get("share_of_step"),
        launches_per_step=(launches or 0) * (region.get("calls_per_step") or 0) or None,
        observed=True,
    )
    facts = replace(prepared.facts, **{k: v for k, v in known.items() if v is not None})
    return replace(prepared, facts=facts, workload=workload)


def _obstacle(found: Mapping[str, Any]) -> Obstacle:
    return Obstacle(
        kind=found["kind"], effect=found["effect"], title=found["title"], op=found["op"],
        calls_per_step=found["calls_per_step"], because=found["because"], remedy=found["remedy"],
        within=found["within"], modules=tuple(found["modules"]), sources=tuple(found["sources"]),
        operands=tuple(found["operands"]), inside=found["inside"],
    )  # fmt: skip


def reissue_advice(stored: Json, without: Json, foreseen: Json) -> Json:
    """The advice to keep: `foreseen`, issued with the oracle's answer, where it was issued on the same grounds.

    stored: what stands. without: issued now, without the oracle. Where these two differ, something that the first
    advice was issued on is not known any more: then it stays, and only the oracle's own criterion is brought up to date
    where its verdict is the same.
    """
    if same_grounds(stored, without):
        notes = stored.get("notes") or []
        more = notes[len(without["notes"]) :] if notes[: len(without["notes"])] == without["notes"] else []
        return {**foreseen, "notes": [*foreseen["notes"], *more]}
    new = {c["name"]: c for c in foreseen["criteria"]}
    criteria = [
        new[c["name"]] if c["name"] == FUSES and FUSES in new and new[FUSES]["holds"] == c["holds"] else c
        for c in stored["criteria"]
    ]
    return {**stored, "criteria": criteria}


def same_grounds(stored: Json, without: Json) -> bool:
    """Whether two advices are the same in everything but notes, which the situation adds to, and what would change it:
    that follows from the rest, and its figures are rounded.
    """
    aside = ("notes", "would_change")
    one, other = ({k: v for k, v in advice.items() if k not in aside} for advice in (stored, without))
    return _alike(one, other)


def _alike(one: Any, other: Any) -> bool:
    """Equal, numbers up to the rounding of a sum in another order."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(v, other[k]) for k, v in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_alike(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def kernel_keys(kernels: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each kernel of a prediction is called in addresses: its name, with @stage where two stages share it."""
    names = Counter(k["name"] for k in kernels)
    return [k["name"] if names[k["name"]] == 1 else f"{k['name']}@{k['stage']}" for k in kernels]


def find_kernel(region: Mapping[str, Any], mode: str, key: str) -> tuple[Json, Json] | None:
    """The prediction and the kernel of that key in a stored region; None where there is none."""
    for prediction in region.get("oracle") or ():
        if prediction["mode"] == mode:
            for own, kernel in zip(kernel_keys(prediction["kernels"]), prediction["kernels"], strict=True):
                if own == key:
                    return prediction, kernel
    return None
