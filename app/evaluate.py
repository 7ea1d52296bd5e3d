"""Region + Workload + Device -> cost, facts and advice: where the torch side meets the pure rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from app.advice.facts import RegionFacts, ShapeFacts, region_facts, rewritten_to_sdpa, shape_facts
from app.advice.irregularity import Irregularity, irregularity
from app.advice.model import Advice
from app.advice.rule import advise
from app.advice.thresholds import Thresholds
from profiler.hardware import Device
from profiler.region.cost_model import Cost, Count
from profiler.region.model import Binding, Region, Workload

if TYPE_CHECKING:
    from profiler.region.graph import Graph

Json = dict[str, Any]

MAX_BINDINGS = 12
"""Bindings that are lowered and costed, the most used first; a workload with more is represented by these."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known beside the region: how the step runs, what the user wants."""

    objective: str = "time"
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)  # fields of RegionFacts that a trace knows


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A region with everything that was computed about it."""

    region: Region
    text: str
    kind: str
    title: str
    by_hand: bool
    facts: RegionFacts
    irregularity: Irregularity
    cost_json: Json
    advice: Advice


def evaluate(
    region: Region, workload: Workload, device: Device, situation: Situation, thresholds: Thresholds | None = None
) -> Evaluated:
    """Lower, count, match, ask coverage and the rule. Raises RegionError where the region does not fit together."""
    from kernels import generated
    from kernels.host import probe_host
    from kernels.libraries import coverage
    from profiler.region.patterns import match, region_kind
    from profiler.region.text import to_text

    graphs = _graphs(region, workload)
    shapes = [_shape(graph, binding) for graph, binding in graphs]
    heaviest, _ = max(zip(graphs, shapes, strict=True), key=lambda p: p[1].calls * p[1].cost.unfused.bytes_moved)
    graph = heaviest[0]
    written = forward(graph)
    matches = match(written)
    kind, title = region_kind(written, matches)
    by_hand = any(m.by_hand for m in matches)
    covers = coverage(written, matches, probe_host())
    refused = "" if region.requires_grad else generated.covers(graph)[1]
    more = {"not_generated": refused, "sdpa": rewritten_to_sdpa(graph, matches)}
    more |= {k: v for k, v in situation.facts.items() if v is not None}
    title = str(more.pop("title", title))  # as the trace's report names it
    facts = region_facts(graph, shapes, kind, title, by_hand, covers, **more)
    advice = advise(facts, workload, device, thresholds or Thresholds(), objective=situation.objective)
    cost = shapes[[g for g, _ in graphs].index(graph)].cost
    return Evaluated(
        region=region,
        text=to_text(region),
        kind=facts.kind,
        title=facts.title,
        by_hand=by_hand,
        facts=facts,
        irregularity=irregularity(region, workload),
        cost_json=cost_json(cost, device),
        advice=replace(advice, notes=(*advice.notes, *situation.notes)),
    )


def forward(graph: Graph) -> Graph:
    """The graph of what was written: without the backward that autograd adds, which would hide the patterns."""
    if not graph.region.requires_grad:
        return graph
    from profiler.region.graph import lower

    inputs = tuple(replace(i, requires_grad=False) for i in graph.region.inputs)
    return replace(lower(replace(graph.region, inputs=inputs), graph.binding), region=graph.region)


def _graphs(region: Region, workload: Workload) -> list[tuple[Graph, Binding]]:
    from profiler.region.graph import lower

    used = sorted(workload.bindings, key=lambda b: -b.calls_per_step)[:MAX_BINDINGS]
    return [(lower(region, dict(b.sizes) if b.sizes else None), b) for b in used]


def _shape(graph: Graph, binding: Binding) -> ShapeFacts:
    from profiler.region.cost import cost
    from profiler.region.fusion import groups

    return shape_facts(graph, cost(graph), groups(graph), binding.calls_per_step)


def cost_json(cost: Cost, device: Device) -> Json:
    """The API's cost object: counts, operations, kernels, savings with their counting, floor and roofline class."""
    from profiler.region.cost import bound, floor_us

    return {
        "unfused": _count(cost.unfused),
        "fused": _count(cost.fused),
        "ideal": _count(cost.ideal),
        "operations": [
            {
                "name": o.name, "label": o.label, "kind": o.kind, "line": o.line, "bytes_read": o.bytes_read,
                "bytes_written": o.bytes_written, "bytes_moved": o.bytes_moved, "flops": o.flops,
                "launches": o.launches,
            }
            for o in cost.operations
        ],
        "kernels": [
            {
                "label": k.label, "kind": k.kind, "operations": list(k.operations), "bytes_read": k.bytes_read,
                "bytes_written": k.bytes_written, "bytes_moved": k.bytes_moved, "flops": k.flops,
            }
            for k in cost.kernels
        ],
        "savings": [
            {
                "name": s.name, "title": s.title, "bytes_before": s.bytes_before, "bytes_after": s.bytes_after,
                "share_saved": s.share_saved, "launches_before": s.launches_before,
                "launches_after": s.launches_after, "counting": s.counting,
            }
            for s in cost.savings
        ],
        "intensity": cost.intensity,
        "matmul_dtype": cost.matmul_dtype,
        "gemm_flops": cost.gemm_flops,
        "bound": bound(cost, device),
        "floor_us": floor_us(cost, device),
        "device": device.name,
        "ceilings": {
            "copy_bytes_per_s": device.copy_rate,
            "matmul_flops_per_s": device.matmul_rate(cost.matmul_dtype or "bf16"),
            "vector_flops_per_s": device.f32_rate,
            "measured": device.ceilings_measured,
            "source": device.measured_source or device.source,
        },
    }  # fmt: skip


def _count(count: Count) -> Json:
    return {
        "bytes_read": count.bytes_read, "bytes_written": count.bytes_written, "bytes_moved": count.bytes_moved,
        "flops": count.flops, "launches": count.launches,
    }  # fmt: skip
