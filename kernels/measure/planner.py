"""What there is to measure: the host's GPU, the region's candidates, what its data cost. Runs in a child of its own.

`main(channel)` answers one question, `MakePlan`. It may initialise CUDA (it ends right after), and lowers the region,
so that neither happens in the parent.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import platform
import re
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec
import torch

from kernels import libraries
from kernels.host import Host, driver
from kernels.measure.candidate import inputs as tensors
from kernels.measure.candidate.reduce import reduced, with_sizes
from kernels.measure.messages import (
    Answer,
    BindingCost,
    Card,
    MakePlan,
    Offered,
    PlanAnswer,
    Planned,
    Question,
    RegionFault,
)
from kernels.measure.processes.channel import Channel
from profiler.hardware import find_device
from profiler.region.graph.cost import cost
from profiler.region.graph.cost_model import Cost, floor_us
from profiler.region.graph.lowering import Graph, lower, written_alone
from profiler.region.graph.match_model import Match
from profiler.region.graph.operation import Operation
from profiler.region.graph.patterns import match
from profiler.region.graph.scores import functions as score_functions
from profiler.region.graph.scores.masks import kept_share
from profiler.region.language.text import parse, to_text
from profiler.region.model import Region, RegionError


def plan(request: MakePlan) -> Planned:
    """What there is to measure. RegionError passes through."""
    region = parse(request.region)
    card = _card(_index(request.device))
    graphs = [lower(region, sizes) for sizes in request.bindings]
    small = reduced(region, request.bindings[0]) if card is None else None
    wide = with_sizes(small, {}, {}, {"bf16": "f32"}) if small is not None else None
    return Planned(
        region=to_text(region),
        device=card,
        software=software(),
        candidates=_candidates(request.registry, graphs[0], request.host),
        coverage=_coverage(graphs[0], request.host),
        bindings=[_binding(region, sizes, g, card) for sizes, g in zip(request.bindings, graphs, strict=True)],
        reduced=to_text(small) if small is not None else None,
        reduced_wide=to_text(wide) if wide is not None else None,
    )


def _index(device: str | None) -> int | None:
    """Which GPU: None for none, 0 unless something stands after a colon, which then has to be its number."""
    if device == "cpu":
        return None
    _, colon, number = (device or "").rpartition(":")
    if not colon:
        return 0
    return int(number) if re.fullmatch("[0-9]{1,4}", number) else None


def _card(index: int | None) -> Card | None:
    """The GPU's own figures, after one real allocation on it. None where there is none."""
    if index is None or not torch.cuda.is_available() or index >= torch.cuda.device_count():
        return None
    torch.empty(1, device=f"cuda:{index}")
    properties = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    known = find_device(properties.name)
    return Card(
        name=properties.name,
        index=index,
        uuid=str(getattr(properties, "uuid", "")),
        memory_bytes=total,
        free_bytes=free,
        l2_bytes=float(getattr(properties, "L2_cache_size", 0) or (known.l2_bytes if known else 64 * 2**20)),
        processors=properties.multi_processor_count,
        capability=f"{properties.major}.{properties.minor}",
    )


def software() -> dict[str, str]:
    """Versions that a measurement depends on."""
    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
    if torch.version.hip:
        versions["hip"] = torch.version.hip
    for name in ("triton", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions | ({"driver": version} if (version := driver()) else {})


def _candidates(registry: str, graph: Graph, host: Host) -> list[Offered]:
    offered = importlib.import_module(registry).candidates(graph, host)
    return [msgspec.convert(c, Offered, from_attributes=True) for c in offered]


def _coverage(graph: Graph, host: Host) -> str:
    """Which library call covers the region, in a few words."""
    covers = libraries.coverage(graph, match(graph), host)
    whole = [c.candidate.removeprefix("library:") for c in covers if c.covers and c.whole]
    parts = [c.candidate.removeprefix("library:") for c in covers if c.covers and not c.whole and c.installed]
    if whole:
        return "; ".join(dict.fromkeys(whole))
    part = f"; {', '.join(dict.fromkeys(parts))} covers a part" if parts else ""
    return f"no library covers it{part}"


def _binding(region: Region, sizes: Mapping[str, int], graph: Graph, card: Card | None) -> BindingCost:
    counted = cost(graph)
    known = find_device(card.name) if card else None
    certain = certain_flops(graph)
    return BindingCost(
        bytes_touched=certain_bytes(region, graph, counted.ideal.bytes_moved),
        flops=certain,
        matmul_dtype=_fastest_dtype(region, counted.matmul_dtype),
        working_bytes=sum(t.bytes for o in graph.operations for t in o.writes),
        set_bytes=tensors.set_bytes(region, sizes),
        floor_us=floor_us(_unmasked(counted, graph, certain), known) if known else None,
        outputs_bytes=_outputs_bytes(graph),
        renewed_bytes=tensors.renewed_bytes(region, sizes),
    )


def _outputs_bytes(graph: Graph) -> int:
    """Of what a call gives, inputs that it returns left out; with gradients, of those from behind the region too."""
    given = {t.storage for _, t in graph.inputs}
    written = {t.storage: t.bytes for t in graph.output_tensors if t.storage not in given}
    named = {i.name for i in graph.region.inputs}
    return sum(written.values()) + sum(t.bytes for name, t in graph.inputs if name not in named)


def _fastest_dtype(region: Region, written: str | None) -> str | None:
    """The type in which the products may be made: 8-bit operands that the text widens go to the units as they are.

    F.scaled_mm took 359 µs where the text's f32 products need 973 at the datasheet's rate (H200).
    """
    narrow = [i.dtype for i in region.inputs if i.dtype in NARROW]
    return narrow[0] if narrow else written


NARROW = ("f8e4m3", "f8e5m2", "i8", "u8")


def certain_bytes(region: Region, graph: Graph, ideal_bytes: int) -> int:
    """Bytes that every implementation must touch. With gathers only the outputs count: a table is read in part."""
    written = {t.storage: t.bytes for t in graph.output_tensors}
    inputs = {t.storage for _, t in graph.inputs}
    outputs = sum(size for storage, size in written.items() if storage not in inputs)
    partial = tensors.has_index(region) or any(o.target.split(".")[1] in PARTIAL for o in graph.operations)
    return outputs if partial else min(ideal_bytes, outputs + sum(t.bytes for _, t in graph.inputs))


PARTIAL = frozenset(
    """slice select narrow index index_select gather embedding as_strided unbind split split_with_sizes
    nll_loss_forward""".split()
)
"""Operations that may read their input in part."""


def certain_flops(graph: Graph) -> float:
    """FLOPs of matrix products and attention. Convolutions have algorithms that need fewer than they are counted at.

    Of attention only what no mask of positions hides: SDPA leaves the rest of a causal order out (479 µs on an H200,
    where all of a text's FLOPs need 556), FlexAttention that of a window. In training every product counts as the
    least of them does: the backward's are not told apart.
    """
    products = _products(graph)
    written = written_alone(graph)
    share = _shares(written)
    if graph.region.requires_grad:
        return min(share.values(), default=1.0) * sum(o.flops for o in products)
    return sum(o.flops * share.get(o.name, 1.0) for o in products)


def _shares(written: Graph) -> dict[str, float]:
    """Least share of the scores that attention must look at, by its operations."""
    told = score_functions.matches(written)
    share = {name: _kept(m) for m in told for name in m.operations}
    masked = {name for m in told if m.roles["keep"] not in ("", score_functions.CAUSAL.code) for name in m.operations}
    named = [m for m in match(written) if m.kind == "attention" and not m.operations & masked]
    return share | {name: _seen(m, written) for m in named for name in m.operations}


def _kept(matched: Match) -> float:
    """By the masks of positions; of one that is read from tensors nothing is certain."""
    keep, positions = (str(matched.roles[name]) for name in ("keep", "positions"))
    if keep != positions or matched.roles["hides"]:
        return 0.0
    return kept_share(positions, score_functions.sizes_of(matched))


def _unmasked(counted: Cost, graph: Graph, certain: float) -> Cost:
    """The cost with the matrix units' FLOPs that no causal order lets a kernel leave out: what its limit counts."""
    # What a boolean mask drops is known when it runs: such a limit counts every score.
    left_out = sum(o.flops for o in _products(graph)) - certain if certain else 0
    return replace(
        counted,
        gemm_flops=int(counted.gemm_flops - left_out),
        ideal=replace(counted.ideal, flops=int(counted.ideal.flops - left_out)),
    )


def _products(graph: Graph) -> list[Operation]:
    return [o for o in graph.operations if o.kind in ("gemm", "attention")]


def _seen(matched: Match, graph: Graph) -> float:
    """Least share of the scores that attention must look at: what a boolean mask drops, a kernel may skip in blocks.

    In causal order half of them where both sequences are as long, wherever the diagonal begins.
    """
    if matched.roles.get("mask_kind") in ("drop", "keep"):
        return 0.0
    if not matched.roles.get("causal"):
        return 1.0
    shapes = {name: tensor.shape for name, tensor in graph.inputs}
    shapes |= {o.name: o.writes[0].shape for o in graph.operations if o.writes}
    q, v = (shapes.get(str(matched.roles.get(role)), ()) for role in ("q", "v"))
    if len(q) < 2 or len(v) < 2:
        return 0.0
    shorter, longer = sorted((q[-2], v[-2]))
    return (shorter + 1) / (2 * longer)


def answer_to(request: MakePlan) -> PlanAnswer:
    """The plan, or the region's error with its place."""
    try:
        return PlanAnswer(plan=plan(request))
    except RegionError as fault:
        return PlanAnswer(region_error=msgspec.convert(fault, RegionFault, from_attributes=True))


def main(channel: Channel, answered: Callable[[MakePlan], PlanAnswer] = answer_to) -> None:
    """One question, then the end."""
    message = channel.receive()
    if message is not None:
        question = msgspec.convert(message, Question)
        if question.id is not None:
            channel.send(Answer(question.id, answered(msgspec.convert(question.request, MakePlan))))


if __name__ == "__main__":
    main(Channel(socket.socket(fileno=int(sys.argv[1]))))
