"""Which Python function each mined region is in, where stacks were recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from profiler.region.mining.mine import Mining
from profiler.trace.model import Trace
from profiler.trace.read.frames import Instant, callers
from profiler.trace.read.source import Limits

VOTING_CALLS = 3
"""Calls of a region whose function is looked up: the first ones; the majority decides."""


def instants(mining: Mining) -> list[Instant]:
    """Thread and time at which the first calls of each region start, region by region."""
    return [(thread, start_us) for r in mining.regions for thread, start_us, _ in r.spans[:VOTING_CALLS]]


def with_sources(mining: Mining, texts: Sequence[str]) -> Mining:
    """The mining with each region's source line. texts: what `callers` gave for `instants(found)`."""
    remaining = iter(texts)
    regions = []
    for region in mining.regions:
        votes = Counter(text for _, text in zip(region.spans[:VOTING_CALLS], remaining, strict=False) if text)
        regions.append(replace(region, source=votes.most_common(1)[0][0] if votes else ""))
    return replace(mining, regions=tuple(regions))


def locate(mining: Mining, trace: Trace, path: Path | str, limits: Limits = Limits()) -> Mining:  # noqa: B008 (frozen)
    """The mining with source lines, from a second pass over the trace's file; unchanged without stacks.

    Raises what read_trace raises.
    """
    if not trace.has_stacks:
        return mining
    return with_sources(mining, callers(path, trace, instants(mining), limits))
