"""The real traces with their regions, each read and mined once in a process."""

from __future__ import annotations

from functools import cache

from profiler.region.mining.mine import Mining, mine
from profiler.trace.model import Trace
from tests.profiler.trace.files import real


@cache
def mined(name: str) -> tuple[Trace, Mining]:
    """One of the real traces, by the name of its file, and its steady steps' regions. Both are only to be read."""
    trace = real(name)
    return trace, mine(trace)
