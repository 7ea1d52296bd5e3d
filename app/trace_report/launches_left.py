"""Launches: of a region's, the share that is left with each tool, by our fusion rules or by Inductor's kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from app.advice.model import Advice
from app.estimate.facts import RegionFacts
from app.trace_report.step_model import AnyRegion
from profiler.region.graph.cost_model import Cost

FURTHER_KERNELS: Mapping[str, int] = {
    "native_batch_norm": 3, "_native_batch_norm_legit": 3, "_native_batch_norm_legit_functional": 3,
    "cudnn_batch_norm": 3, "native_batch_norm_backward": 3, "cudnn_batch_norm_backward": 3,
    "native_layer_norm_backward": 2,
}  # fmt: skip
"""Kernels that Inductor writes for one of these beyond the first. Of a channel's numbers over all images it sums blocks
and blocks of those before it goes over the images again; a weight's and a bias's gradients each take one more.
Read off its own kernels (torch 2.11) for timm_resnet50_train_fp32 and gpt2_train_autocast_eager."""
NUMBERED = re.compile(r"_\d+$")
"""What tells operations of one name apart in a graph."""


def launches_left(facts: RegionFacts, advice: Advice) -> dict[str, float]:
    """Of a region's launches, the share that is left with each tool, 0 to 1; {} where its operations are not known.

    torch.compile and Triton: a kernel for each fused group. A library: one launch in the place of what the call covers.
    """
    shape = facts.heaviest
    if shape is None or not shape.cost.unfused.launches:
        return {}
    before = shape.cost.unfused.launches
    calls = any(k.kind != "fused" for k in shape.cost.kernels)
    fused = _share(compiled_launches(shape.cost), before, facts.launches, calls)
    left = {"compile": fused, "triton": fused}
    cover = next((c for c in facts.covers if c.candidate == f"library:{advice.mode}"), None)
    if cover is not None:
        gone = sum(o.launches for o in shape.cost.operations if cover.whole or o.name in cover.operations)
        left["library"] = min(1.0, max(1, before - gone + 1) / before)
    return left


def compiled_launches(cost: Cost) -> int:
    """Kernels and calls that torch.compile makes of a region by our fusion rules, forward and backward each a graph of
    its own: nothing fuses from one into the other."""
    backward = {o.name: not o.line for o in cost.operations}  # the text has no line for what autograd adds
    trained = len({*backward.values()}) > 1
    launches = 0
    for kernel in cost.kernels:
        launches += len({backward[n] for n in kernel.operations if n in backward}) if trained else 1
        launches += sum(FURTHER_KERNELS.get(NUMBERED.sub("", n), 0) for n in kernel.operations)
    return launches


def _share(after: int, before: int, recorded: float | None, calls: bool) -> float:
    """What a tool leaves of the launches that one call of the region was recorded with. before, after: as counted, one
    for an operation. calls: a library is called before and after: what it launches beyond one kernel stays."""
    further = max(0.0, (recorded or 0.0) - before)
    return min(1.0, (after + (further if calls else 0.0)) / (before + further))


def launches_left_by_inductor(region: AnyRegion) -> dict[str, float]:
    """A region's `launches_left`, of torch.compile by the kernels and calls that Inductor named; as it stands where it
    named none, or nothing is known of the launches."""
    left, cost = region.get("launches_left") or {}, region["cost"]
    answer = next((p for p in region["oracle"] if p["mode"] == "default" and not p["unavailable"]), None)
    if not left or answer is None or cost is None or not cost["unfused"]["launches"]:
        return left
    recorded = region.get("kernels_per_call")
    share = _share(answer["launches"], cost["unfused"]["launches"], recorded, bool(answer["externs"]))
    return {**left, "compile": share}


def list_names(advice: Sequence[str]) -> str:
    """Names of advice in one line, one that several regions share with their number."""
    counts = Counter(advice)
    return "; ".join(name if number == 1 else f"{name} ({number})" for name, number in counts.items())
