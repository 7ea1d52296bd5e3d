"""Traces: bytes to columns, links, steps, notes."""

from profiler.trace.errors import TraceError
from profiler.trace.model import Trace
from profiler.trace.reader import read_trace
from profiler.trace.source import Limits
from profiler.trace.steps import steady_step

__all__ = ["Limits", "Trace", "TraceError", "read_trace", "steady_step"]
