"""Region + Workload + Device -> cost, facts and advice: where the torch side meets the pure rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from app.advice import sensitivity
from app.advice.model import Advice
from app.advice.rule import advise, rates_of
from app.analysis.advice_inputs import TraceFacts
from app.analysis.cost_json import cost_json
from app.analysis.device_host import BLOCK_DTYPES, as_host, unrunnable_notes
from app.analysis.kernel_line_counts import own_lines
from app.atlas.price import Total, compiled
from app.atlas.shipped import basis_of
from app.estimate.basis import PredictionBasis, prediction_basis
from app.estimate.compiled_bytes import replaces_attention
from app.estimate.facts import Cover, FusionGap, Kernel, RegionFacts, ShapeFacts, Taken
from app.estimate.irregularity import Irregularity, irregularity
from app.estimate.rates import Rates
from app.estimate.region_features import (
    attends_in,
    attention_density,
    hidden_share,
    region_facts,
    rewritten_to_sdpa,
    shape_facts,
)
from app.objects import cost as objects
from app.thresholds import DEFAULTS, Thresholds
from profiler.hardware import Device
from profiler.oracle.model import Prediction, Recompiles
from profiler.region.graph.cost_model import Cost
from profiler.region.model import Binding, Region, Workload

if TYPE_CHECKING:
    from kernels.host import Host
    from profiler.region.graph.lowering import Graph

MAX_BINDINGS = 12
"""Bindings that are lowered and costed, the most used first; a workload with more is represented by these."""


@dataclass(frozen=True, slots=True)
class AdviceContext:
    """What is known but the region: how the step runs, what the user wants. host: None for the one this runs on."""

    objective: str = "time"
    notes: tuple[str, ...] = ()
    facts: TraceFacts = field(default_factory=TraceFacts)
    host: Host | None = None
    thresholds: Thresholds = DEFAULTS


@dataclass(frozen=True, slots=True)
class CompilePrediction:
    """What the oracle said of a region: predictions for its heaviest binding, one a mode; its varying sizes in turn."""

    predictions: tuple[Prediction, ...] = ()
    recompiles: Recompiles | None = None


NO_COMPILE_PREDICTION = CompilePrediction()


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
    cost_json: objects.Cost
    advice: Advice
    prediction: CompilePrediction
    basis: PredictionBasis


@dataclass(frozen=True, slots=True)
class AnalyzedRegion:
    """A region lowered, counted, matched, and asked about at the libraries: all but the rule's verdict.

    covers_on: the library calls that cover it on a host; nothing is lowered again for them. sizes: the binding that
    moves most bytes per step. by_hand_attention: operations of attention written by hand; attention_bytes: what one
    call in its place reads and writes.
    """

    region: Region
    text: str
    workload: Workload
    device: Device
    context: AdviceContext
    facts: RegionFacts
    cost: Cost
    sizes: Mapping[str, int]
    by_hand: bool
    by_hand_attention: frozenset[str]
    attention_bytes: int
    covers_on: Callable[[Host], tuple[Cover, ...]]


def prepare(region: Region, workload: Workload, device: Device, context: AdviceContext) -> AnalyzedRegion:
    """Lower, count, match, ask coverage. Raises RegionError where the region does not fit together."""
    from profiler.region.graph.lazy_code import code_when_run

    with code_when_run():
        return _prepared(region, workload, device, context)


def _prepared(region: Region, workload: Workload, device: Device, context: AdviceContext) -> AnalyzedRegion:
    from kernels.candidates import hand_written
    from kernels.codegen import generated
    from kernels.codegen.helion.source import text_of
    from kernels.host import probe_host
    from kernels.libraries import coverage
    from kernels.starter_kit.lines import code_lines
    from profiler.region.graph.cost import bytes_through
    from profiler.region.graph.lowering import written_alone
    from profiler.region.graph.patterns import match, region_kind
    from profiler.region.language.text import to_text

    graphs = _graphs(region, workload)
    shapes = [shape_of(graph, binding) for graph, binding in graphs]
    heaviest, shape = max(zip(graphs, shapes, strict=True), key=lambda p: p[1].calls * p[1].cost.unfused.bytes_moved)
    graph, binding = heaviest
    written = written_alone(graph)
    matches = match(written)
    kind, title = region_kind(written, matches)
    by_hand = any(m.by_hand for m in matches)

    def covers_on(host: Host) -> tuple[Cover, ...]:
        return coverage(written, matches, host)

    host = context.host or probe_host()
    block_formats = any(tensor.dtype in BLOCK_DTYPES for _, tensor in graph.inputs)
    covers = covers_on(as_host(host, device) if block_formats else host)
    tried = generated.attempt(graph)
    own = hand_written(written, matches)
    more = {
        "not_generated": tried.refused,
        "sdpa": rewritten_to_sdpa(graph, matches),
        "attention_density": attention_density(matches),
        "attends_in": attends_in(written, matches),
        "hidden_share": hidden_share(written),
    }
    more["generated_lines"] = code_lines(tried.text) if tried.text else 0
    in_helion = text_of(graph)
    more["helion_lines"] = code_lines(in_helion) if in_helion else 0
    more["helion_installed"] = "helion" in host.packages
    taken = Taken(tried.taken, bool(tried.taken) and tried.launches == 1 and not tried.kept)
    more["taken"] = taken
    more["apart"] = FusionGap.between(tried.launches, tried.bytes_written, tried.bytes_between, shape, taken)
    more["kernels"] = tuple(Kernel(c.name, c.call, own_lines().get(c.name, 0), c.part) for c in own if c.available)
    more["packages_known"] = True
    more |= context.facts.known()
    kind = next((known for known in ("compiled", "optimizer") if more.get(known)), kind)  # whatever its text computes
    title = str(more.pop("title", title))  # as the trace's report names it
    facts = region_facts(graph, shapes, kind, title, by_hand, covers, **more)
    attention = [m.operations for m in matches if m.kind == "attention" and m.by_hand]
    return AnalyzedRegion(
        region, to_text(region), workload, device, context, facts, shape.cost, dict(binding.sizes), by_hand,
        frozenset().union(*attention), sum(bytes_through(written, operations) for operations in attention), covers_on,
    )  # fmt: skip


def decide(
    prepared: AnalyzedRegion,
    prediction: CompilePrediction = NO_COMPILE_PREDICTION,
    rates: Rates | None = None,
) -> Evaluated:
    """The rule's verdict, with what the oracle said; of its predictions the default mode's counts. rates: as `advise`
    takes them."""
    facts = replace(prepared.facts, recompiles=prediction.recompiles)
    predictions = prediction.predictions
    default = next((p for p in predictions if p.mode == "default" and not p.unavailable), None)
    if default is not None:
        # Inductor says itself whether it replaces attention; our reading of its patterns is for when nobody asked it.
        replaced = prepared.by_hand_attention if replaces_attention(default) else frozenset()
        facts = replace(
            facts, prediction=default, sdpa=replaced, sdpa_bytes=prepared.attention_bytes,
            compiled_total=_priced(default, prepared.device, rates is not None and rates.scaled),
        )  # fmt: skip
    context, workload, device = prepared.context, prepared.workload, prepared.device
    limits, objective = context.thresholds, context.objective
    advice = advise(facts, workload, device, limits, objective=objective, rates=rates)
    changes = sensitivity.would_change(facts, workload, device, limits, objective=objective, rates=rates)
    basis = prediction_basis(facts, device, rates or rates_of(workload), predictions)
    return Evaluated(
        region=prepared.region,
        text=prepared.text,
        kind=facts.kind,
        title=facts.title,
        by_hand=prepared.by_hand,
        facts=facts,
        irregularity=irregularity(prepared.region, workload),
        cost_json=cost_json(prepared.cost, device, default, facts.sdpa, prepared.attention_bytes, facts.hidden_share),
        advice=replace(
            advice,
            notes=(*advice.notes, *context.notes, *unrunnable_notes(facts.covers, device), *_atlas_notes(device)),
            would_change=changes,
            prediction=basis.prediction,
        ),
        prediction=prediction,
        basis=basis,
    )


def _priced(prediction: Prediction, device: Device, scaled: bool) -> Total | None:
    """What the device's atlas, or another's scaled, says of the kernels that Inductor makes."""
    basis = basis_of(device, scaled)
    return None if basis is None else compiled(prediction, basis.atlas, device)


def _atlas_notes(device: Device) -> tuple[str, ...]:
    basis = basis_of(device)
    return () if basis is None else basis.notes


def _graphs(region: Region, workload: Workload) -> list[tuple[Graph, Binding]]:
    from profiler.region.graph.lowering import lower

    used = sorted(workload.bindings, key=lambda b: -b.calls_per_step)[:MAX_BINDINGS]
    return [(lower(region, dict(b.sizes) if b.sizes else None), b) for b in used]


def shape_of(graph: Graph, binding: Binding) -> ShapeFacts:
    """The region at one binding, counted."""
    from profiler.region.graph.cost import cost
    from profiler.region.graph.fusion import groups

    return shape_facts(graph, cost(graph), groups(graph), binding.calls_per_step)
