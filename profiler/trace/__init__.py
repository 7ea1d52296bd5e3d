"""Traces: bytes to columns, links, steps, notes."""

from profiler.trace.analyze.steps import steady_step
from profiler.trace.errors import TraceError
from profiler.trace.model import Trace
from profiler.trace.read.reader import read_trace
from profiler.trace.read.source import Limits

__all__ = ["Limits", "Trace", "TraceError", "read_trace", "steady_step"]
