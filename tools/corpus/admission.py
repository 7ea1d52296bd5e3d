"""Whether a text may be a program of the corpus: it lowers, computes something, and is of a size that is measured."""

from __future__ import annotations

from dataclasses import dataclass

from profiler.region import op_kinds
from profiler.region.graph.cost import cost
from profiler.region.graph.lowering import lower
from profiler.region.language.text import parse, to_text
from tools.corpus.families import Family, family_of

MIN_BYTES, MAX_BYTES = 100_000, 4_000_000_000
"""Of what a region reads and writes at least, each input and output once."""
MAX_ALLOCATED_BYTES = 24_000_000_000
"""Of all operations' results together, which eager mode may hold at a time in training."""
MAX_FLOPS = 4_000_000_000_000
MAX_OPERATIONS = 700

WORKLESS = frozenset({op_kinds.VIEW, op_kinds.COPY, op_kinds.CONSTANT, op_kinds.RANDOM, op_kinds.COMMUNICATION})


@dataclass(frozen=True, slots=True)
class Admitted:
    """A program as the parser prints it. bytes_moved, flops: counted by the product, ideally fused."""

    text: str
    family: Family
    mode: str  # forward or training
    bytes_moved: int
    flops: int


def admit(text: str) -> Admitted | None:
    """None for a text that is too small, too large or computes nothing. RegionError for one that is no region."""
    region = parse(text)
    graph = lower(region)
    if len(graph.operations) > MAX_OPERATIONS or all(o.kind in WORKLESS for o in graph.operations):
        return None
    counted = cost(graph)
    moved = counted.ideal.bytes_moved
    flops = counted.ideal.flops
    allocated = sum(t.bytes for o in graph.operations if o.kind != op_kinds.VIEW for t in o.writes)
    if not MIN_BYTES <= moved <= MAX_BYTES or flops > MAX_FLOPS or allocated > MAX_ALLOCATED_BYTES:
        return None
    return Admitted(to_text(region), family_of(text), "training" if region.requires_grad else "forward", moved, flops)
