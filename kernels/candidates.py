"""Every way to run a region, by fixed name: which apply, which do not and why, and how to build one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from kernels import baselines
from kernels.baselines import Runner, with_gradients
from kernels.codegen.index import Unsupported
from kernels.hand_written import WRITTEN, Written, matches, roles_of, taken, written
from kernels.host import Host
from kernels.kernel_listing_model import Part
from kernels.libraries import Cover, coverage
from kernels.libraries.fits import rest_of
from profiler.region.graph.lowering import Graph, lower, without_grad, written_alone
from profiler.region.graph.match_model import Match
from profiler.region.graph.patterns import match
from profiler.region.model import Region

GENERATED = "triton:generated"
HELION = "helion:generated"
ALREADY = "the region is this call already: eager is its time"
NO_ADAPTER = "not measured here: no adapter"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One runnable implementation of a region. reason: why it is not available, "" where it is.

    call: what the user would write. source: the kernel's whole text, where it was generated; kernels: by kernel.
    on_request: measured only where it was advised or asked for by name. untried: it is not available because nothing
    here can try it, which says nothing against it. part: the operations whose place it takes; None for all of them, and
    for what has no one place.
    """

    name: str
    tool: str  # eager, compile, library, triton
    call: str
    note: str
    available: bool
    reason: str = ""
    source: str = ""
    on_request: bool = False
    untried: bool = False
    part: frozenset[str] | None = None
    kernels: tuple[Part, ...] = ()


def candidates(graph: Graph, host: Host) -> tuple[Candidate, ...]:
    """eager, compile in its modes, library calls, Triton kernels that match, the generated one: always in
    this order, those that cannot run with the reason.
    """
    plain = written_alone(graph)
    matched = match(plain)
    return (
        Candidate("eager", "eager", baselines.CALLS["eager"], "as written", True),
        Candidate("compile", "compile", baselines.CALLS["compile"], "torch.compile, default mode", True),
        Candidate("compile-max-autotune", "compile", baselines.CALLS["compile-max-autotune"],
                  "torch.compile, autotuned, without CUDA graphs", True),
        Candidate("compile-reduce-overhead", "compile", baselines.CALLS["compile-reduce-overhead"],
                  "torch.compile, with CUDA graphs", True, on_request=True),
        *_libraries(plain, matched, host),
        *hand_written(plain, matched),
        _generated(graph),
        *_helion(graph, host),
    )  # fmt: skip


def _libraries(graph: Graph, matched: Sequence[Match], host: Host) -> list[Candidate]:
    calls = []
    for cover in coverage(graph, matched, host):
        reason = _library_reason(cover, host)
        untried = reason in (ALREADY, NO_ADAPTER)
        calls.append(Candidate(cover.candidate, "library", cover.call, cover.note, not reason, reason, untried=untried))
    return calls


def _library_reason(cover: Cover, host: Host) -> str:
    if cover.already:
        return ALREADY
    failing = [text for text, holds in cover.conditions if holds is False]
    if failing:
        return f"does not cover it: needs {failing[0]}"
    if not cover.installed:
        return f"{cover.missing}: {cover.install}"
    if cover.adapter and cover.gpu_only and host.gpu is None:
        return "there is no GPU here"
    return "" if cover.adapter else NO_ADAPTER


def hand_written(graph: Graph, matched: Sequence[Match]) -> list[Candidate]:
    """This project's own kernels that know one of the region's patterns; those that do not take it with the reason.

    graph: of what was written, without the backward that autograd adds. matched: what was found in it.
    """
    offered = []
    there = matches(graph, matched)
    for kernel in WRITTEN:
        of_its_kind = taken(kernel, there)
        if not of_its_kind:
            continue
        fitting = [m for m in of_its_kind if not kernel.reason(graph, m)]
        shown = (fitting or of_its_kind)[0]
        reason = "" if fitting else kernel.reason(graph, shown)
        part = frozenset().union(*(m.operations for m in fitting)) if fitting else None
        if part is not None and not rest_of(graph, part):
            part = None
        note = "hand-written kernel" if part is None else "hand-written kernel; the rest stays as it is"
        call = kernel.called(graph).format_map(roles_of(shown))
        offered.append(Candidate(kernel.name, "triton", call, note, not reason, reason, part=part))
    return offered


def _generated(graph: Graph) -> Candidate:
    from kernels.codegen.generated import made

    note = "kernels written from the region, aten calls for the rest"
    try:
        result = made(graph)
    except Unsupported as why:
        return Candidate(GENERATED, "triton", "", note, False, str(why))
    kept = f"; aten: {', '.join(dict.fromkeys(result.kept))}" if result.kept else ""
    count = len(result.sources)
    call = f"{count} kernel{'s' if count > 1 else ''}: {', '.join(s.kernel for s in result.sources)}{kept}"
    kernels = tuple(Part(s.kernel, s.text, s.lines) for s in result.sources)
    return Candidate(GENERATED, "triton", call, note, True, "", result.text, kernels=kernels)


def _helion(graph: Graph, host: Host) -> list[Candidate]:
    """The region in Helion, where that is installed and takes it: its first call tunes for a minute."""
    from kernels.codegen.helion.source import write

    if "helion" not in host.packages:
        return []
    try:
        source = write(graph)
    except Unsupported as why:
        return [Candidate(HELION, "triton", "", "Helion source written from the region", False, str(why))]
    note = f"{source.code_lines} lines of Helion, tuned for up to a minute"
    reason = "there is no GPU here" if host.gpu is None else ""
    kernels = (Part("region", source.text, ()),)
    return [Candidate(HELION, "triton", "region(...)", note, not reason, reason, source.text, kernels=kernels)]


def build(name: str, region: Region, binding: Mapping[str, int] | None, device: str) -> Runner:
    """A callable for one candidate: tensors in input order -> tuple of outputs. For a child process only.

    With inputs that require gradients the outputs carry them; asking for them is the caller's part. Raises
    Unsupported with the reason where the candidate does not fit the region, KeyError for an unknown name.
    """
    if name == "eager":
        return baselines.eager(region, binding, device)
    if name in baselines.MODES:
        return baselines.compiled(region, binding, device, baselines.MODES[name])
    if name == GENERATED:
        from kernels.codegen.generated import generate, trained

        graph = lower(region, binding, device)
        if region.requires_grad:
            return with_gradients(trained(graph), True)
        return with_gradients(generate(graph).module, False)
    if name == HELION:
        from kernels.codegen.helion.run import build as helion

        return with_gradients(helion(lower(region, binding, device)), False)
    graph = lower(without_grad(region), binding, device)
    if name.startswith("library:"):
        return with_gradients(_adapted(name, graph), region.requires_grad)
    kernel = written(name)
    if kernel is not None:
        return with_gradients(replaced(kernel, replace(graph, region=region)), region.requires_grad)
    raise KeyError(name)


def _adapted(name: str, graph: Graph) -> torch.fx.GraphModule:
    from kernels.libraries.adapters.rewrite import adapt
    from kernels.libraries.catalogue import ENTRIES
    from kernels.libraries.covers import everything, is_call_already

    entry = next((e for e in ENTRIES if e.candidate == name), None)
    if entry is None:
        raise KeyError(name)
    if not entry.adapter:
        raise Unsupported(f"{entry.call}: not measured here, no adapter")
    matched = [m for m in everything(graph, match(graph)) if m.kind in entry.kinds]
    fitting = [m for m in matched if not is_call_already(entry, m, graph)]
    if not fitting:
        raise Unsupported(f"nothing in this region that {name.removeprefix('library:')} would replace")
    return adapt(graph, fitting, entry.adapter)


def replaced(kernel: Written, graph: Graph) -> torch.fx.GraphModule:
    """The graph's module with a hand-written kernel in the place of what it computes. Raises Unsupported."""
    from kernels.libraries.adapters.rewrite import adapt

    of_its_kind = taken(kernel, matches(graph, match(graph)))
    fitting = [m for m in of_its_kind if not kernel.reason(graph, m)]
    if not fitting:
        reasons = [kernel.reason(graph, m) for m in of_its_kind]
        raise Unsupported(reasons[0] if reasons else f"nothing in this region that {kernel.name} computes")
    return kernel.launcher.replaced(graph, fitting) if kernel.launcher else adapt(graph, fitting, kernel.name)
