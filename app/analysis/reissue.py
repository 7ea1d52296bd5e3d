"""A stored region's advice issued again, once the oracle has spoken or for another device. Torch-free.

Its inputs are kept with it (`app.analysis.advice_inputs`). Regions that a version before these stored have none: for
them the inputs are read back from what is shown of the region and of its trace, and count where they give the advice
that stands.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from app.analysis.advice_inputs import AdviceInputs, TraceFacts, kept_names
from app.objects.advice import Advice
from app.objects.obstacle import Obstacle as ShownBlocker
from app.objects.oracle import OracleKernel, OraclePrediction
from app.objects.region import Region
from app.objects.trace import Trace
from profiler.region.model import Binding, Workload
from profiler.trace.analyze.compile_blockers import CompileBlocker

FUSES = "compile-fuses"
"""The criterion that the oracle's answer decides."""

CUSTOM = "custom operation"
OPTIMIZER = re.compile(r"torch\.optim\.([A-Z]\w*)")


def inputs_from_shown(region: Region, trace: Trace | None) -> AdviceInputs:
    """What a region of an older version was advised on, as far as the API's objects of it and of its trace tell."""
    advice = region.get("advice")
    return AdviceInputs(
        device=advice["device"] if advice else None,
        workload=_workload_from_shown(region, trace),
        observed=TraceFacts() if trace is None else _facts_from_shown(region, trace),
    )


def _workload_from_shown(region: Region, trace: Trace | None) -> Workload:
    bindings = tuple(
        Binding(tuple(sorted(shape["binding"].items())), shape["calls"], shape["time_us_per_step"] if trace else None)
        for shape in region.get("shapes") or ()
    )
    share = region.get("share_of_step")
    if trace is None:
        return Workload(bindings, share_of_step=share)
    launches = (region.get("kernels_per_call") or 0) * (region.get("calls_per_step") or 0)
    return Workload(
        bindings, step_time_us=trace.get("step_time_us"), share_of_step=share, launches_per_step=launches or None,
        observed=True,
    )  # fmt: skip


def _facts_from_shown(region: Region, trace: Trace) -> TraceFacts:
    step_us, busy = trace.get("step_time_us"), trace.get("gpu_busy_share")
    step_kernels = sum((r.get("kernels_per_call") or 0) * (r.get("calls_per_step") or 0) for r in trace["regions"])
    title = region.get("title") or region["name"]
    return TraceFacts(
        title=title,
        gpu_idle_share=None if busy is None else max(0.0, 1.0 - busy),
        mean_kernel_us=busy * step_us / step_kernels if busy is not None and step_us and step_kernels else None,
        launches=region.get("kernels_per_call"),
        compiled=region["kind"] == "compiled",
        optimizer=region["kind"] == "optimizer",
        optimizer_class=_optimizer_from_shown(region),
        communication=False,  # collectives have no text
        already_tuned=title.startswith(CUSTOM),
        kernel_names=kept_names(region.get("kernel_names") or ()),
        obstacles=tuple(_blocker_from_shown(o) for o in region.get("compile_obstacles") or ()),
    )


def _optimizer_from_shown(region: Region) -> str:
    """The class that the advice on an optimizer's step names; "" where it names none."""
    advice = region.get("advice")
    named = OPTIMIZER.search(advice["headline"]) if advice and region["kind"] == "optimizer" else None
    return named[1] if named else ""


def _blocker_from_shown(shown: ShownBlocker) -> CompileBlocker:
    return CompileBlocker(
        kind=shown["kind"], effect=shown["effect"], title=shown["title"], op=shown["op"],
        calls_per_step=shown["calls_per_step"], because=shown["because"], remedy=shown["remedy"],
        within=shown["within"], modules=tuple(shown["modules"]), sources=tuple(shown["sources"]),
        operands=tuple(shown["operands"]), inside=shown["inside"],
    )  # fmt: skip


def keep_unless_same_inputs(standing: Advice, without: Advice, predicted: Advice) -> Advice:
    """The advice to keep of a region whose inputs were read back: `predicted`, which has the oracle's answer, where it
    was issued on the same grounds as the one that stands.

    without: issued now, without the oracle. Where it differs from the standing one, something that the standing one was
    issued on is not known any more: then that stays, and only the oracle's own criterion is brought up to date where
    its verdict is the same.
    """
    if same_inputs(standing, without):
        notes = standing.get("notes") or []
        more = notes[len(without["notes"]) :] if notes[: len(without["notes"])] == without["notes"] else []
        return {**predicted, "notes": [*predicted["notes"], *more]}
    new = {c["name"]: c for c in predicted["criteria"]}
    criteria = [
        new[c["name"]] if c["name"] == FUSES and FUSES in new and new[FUSES]["holds"] == c["holds"] else c
        for c in standing["criteria"]
    ]
    return {**standing, "criteria": criteria}


def same_inputs(standing: Mapping[str, Any], without: Mapping[str, Any]) -> bool:
    """Whether two advices are the same in everything but notes, which the context adds to, what would change it, which
    follows from the rest and has rounded figures, and whose kernels were predicted and what is worth installing, which
    older ones do not tell.
    """
    aside = ("notes", "would_change", "prediction", "worth_installing")
    one, other = ({k: v for k, v in advice.items() if k not in aside} for advice in (standing, without))
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


def kernel_keys(kernels: Sequence[OracleKernel]) -> list[str]:
    """What each kernel of a prediction is called in addresses: its name, with @stage where two stages share it."""
    names = Counter(k["name"] for k in kernels)
    return [k["name"] if names[k["name"]] == 1 else f"{k['name']}@{k['stage']}" for k in kernels]


def find_kernel(region: Mapping[str, Any], mode: str, key: str) -> tuple[OraclePrediction, OracleKernel] | None:
    """The prediction and the kernel of that key in a stored region; None where there is none."""
    for prediction in region.get("oracle") or ():
        if prediction["mode"] == mode:
            for own, kernel in zip(kernel_keys(prediction["kernels"]), prediction["kernels"], strict=True):
                if own == key:
                    return prediction, kernel
    return None
