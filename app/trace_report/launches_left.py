"""Launches: of a region's, the share that is left with each tool, by our fusion rules or by Inductor's kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from app.advice.model import Advice
from app.estimate.facts import RegionFacts
from app.trace_report.step_model import AnyRegion


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
