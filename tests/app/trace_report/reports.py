"""The reports of the real traces, each made once in a process: reading, mining and advising take seconds."""

from __future__ import annotations

from functools import cache
from typing import Any

from app.trace_report.report import report
from kernels import host
from tests.profiler.trace.files import TRACES


@cache
def recording_host() -> host.Host:
    """Where the traces were recorded, with no package but torch and Triton."""
    features = host.probe_host().features  # what torch here can do: the advice on a call depends on it
    return host.Host("NVIDIA H200", (9, 0), {}, frozenset({"torch", "triton"}), features)


@cache
def reported(name: str) -> dict[str, Any]:
    """The API's trace of one of the real traces, by the name of its file, as on its host. It is only to be read."""
    assumed, known = recording_host(), list(host._assumed)
    host.assume(assumed)
    try:
        return report(TRACES / name, name)
    finally:
        host._assumed[:] = known
