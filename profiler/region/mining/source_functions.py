"""Which Python function each mined region is in, where stacks were recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from profiler.region.mining.mine import Mining
from profiler.trace.read.frames import Instant

VOTING_CALLS = 3
"""Calls of a region whose function is looked up: the first ones; the majority decides."""


def instants(mining: Mining) -> list[Instant]:
    """Thread and time at which the first calls of each region start, region by region."""
    return [(thread, start_us) for r in mining.regions for thread, start_us, _ in r.spans[:VOTING_CALLS]]


def with_sources(mining: Mining, texts: Sequence[str]) -> Mining:
    """The mining with each region's source line. texts: of `instants(mining)`, the innermost
    function of the stack at each (`read.frames`), "" for none."""
    remaining = iter(texts)
    regions = []
    for region in mining.regions:
        votes = Counter(text for _, text in zip(region.spans[:VOTING_CALLS], remaining, strict=False) if text)
        regions.append(replace(region, source=votes.most_common(1)[0][0] if votes else ""))
    return replace(mining, regions=tuple(regions))
