"""What is fuzzed: each target takes any bytes, and either answers or raises what is documented for bad input.

`tools/fuzz/fuzz.py` looks for inputs that do neither; `test_replay.py` runs through the targets what it has kept.
"""

from __future__ import annotations

import math
import resource
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CPU_S = 5.0
"""Longest time of the processor for one input, instrumented; inputs have at most a few kilobytes."""
MEMORY_BYTES = 512 * 1024 * 1024
"""Most memory that one input may add at its peak."""
CHUNKS = (97, 1024, 512 * 1024)
"""Bytes that the reader takes at once: small ones put a cut at every place of a small file."""
EXECUTION = b"\0execution trace\0"
"""Stands between a trace and its execution trace in one input."""


class Costly(AssertionError):  # noqa: N818 - what the input is
    """An input that takes more time or memory than one so small may."""


@dataclass(frozen=True, slots=True)
class Target:
    """run: takes the input, returns for good or documented bad input. max_bytes: longest input that is tried.

    cpu_s: longest time, where it is not CPU_S.
    """

    run: Callable[[bytes], None]
    kind: str  # how inputs are mutated: trace, region, query
    max_bytes: int
    cpu_s: float | None = None


def run_bounded(target: Target, data: bytes) -> None:
    """Run one input. Raises what the target raises, and Costly."""
    before = _resident_bytes()
    _forget_peak()
    started = time.process_time()
    target.run(data)
    took = time.process_time() - started
    if took > (target.cpu_s or CPU_S):
        raise Costly(f"{len(data)} bytes take {took:.1f} s")
    grown = _peak_bytes() - before
    if grown > MEMORY_BYTES:
        raise Costly(f"{len(data)} bytes take {grown / 2**20:.0f} MiB")


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _forget_peak() -> None:
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def _peak_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


_FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True)


def _written(data: bytes, name: str) -> Path:
    path = Path(_FOLDER.name) / name
    path.write_bytes(data)
    return path


def _chunked(data: bytes) -> None:
    """Read this input in chunks of a size that the input itself decides: the same each time it is run."""
    from profiler.trace.read import gunzip, source, stream

    size = CHUNKS[zlib.crc32(data) % len(CHUNKS)]
    for module in (gunzip, source, stream):
        module.CHUNK_BYTES = size  # type: ignore[attr-defined]
    stream._GROW_BYTES = 8 * size


def trace(data: bytes) -> None:
    """The reader, and what is asked of a trace before anything else: what it holds makes sense."""
    from profiler.trace import TraceError, read_trace
    from profiler.trace.analyze.compile_blockers import find_compile_blockers

    _chunked(data)
    try:
        trace_read = read_trace(_written(data, "trace"), processes=1)
    except TraceError as error:
        assert error.code.startswith("trace-")
        assert error.message
        return
    assert trace_read.linked_share is None or 0.0 <= trace_read.linked_share <= 1.0 + 1e-9, trace_read.linked_share
    assert math.isfinite(trace_read.kernel_time_us) and trace_read.kernel_time_us >= 0.0, trace_read.kernel_time_us
    for column in (
        trace_read.ops.start_us,
        trace_read.ops.end_us,
        trace_read.kernels.start_us,
        trace_read.kernels.duration_us,
    ):
        assert all(map(math.isfinite, column.tolist()))
    assert len(trace_read.ops.name) + len(trace_read.kernels.name) + trace_read.dropped <= trace_read.events
    assert bool(trace_read.steps) or not (len(trace_read.ops.name) or len(trace_read.kernels.name))
    for step in trace_read.steps:
        assert step.duration_us >= 0.0 and math.isfinite(step.duration_us), step
    find_compile_blockers(trace_read, trace_read.steps)


def report(data: bytes) -> None:
    """All that an upload is put through: read, cut into regions, advised on; what comes out is JSON."""
    import json

    from app.storage.database import finite
    from app.trace_report.companions import Companion
    from app.trace_report.report import report as make_report
    from profiler.trace import TraceError

    _chunked(data)
    first, _, second = data.partition(EXECUTION)
    path = _written(first, "trace")
    observed = Companion(str(_written(second, "execution")), "execution") if second else None
    with suppress(TraceError):
        json.dumps(finite(make_report(path, "fuzz", execution=observed, strict=False)), allow_nan=False)


def execution(data: bytes) -> None:
    """The reader of execution traces."""
    from profiler.trace import TraceError
    from profiler.trace.execution_trace import read_execution

    with suppress(TraceError):
        read_execution(_written(data, "execution"))


def region(data: bytes) -> None:
    """The region language: read, printed, checked with shapes, lowered."""
    from profiler.region.graph.lowering import lower
    from profiler.region.language.text import parse, to_text
    from profiler.region.model import RegionError

    text = data.decode("utf-8", "surrogateescape")
    try:
        found = parse(text)
        assert parse(to_text(found)) == found
        lower(found)
    except RegionError as error:
        assert error.line >= 1 and error.column >= 1
        assert error.code.startswith("region-")
        assert len(str(error)) < 4000
        str(error).encode()


def advice(data: bytes) -> None:
    """All that a region's text is put through: counted, matched, a kernel written for it, advised on."""
    import json

    from app.analysis import service
    from app.storage.database import finite
    from profiler.region.graph.torch_caches import forget
    from profiler.region.model import RegionError

    forget()
    with suppress(RegionError):
        json.dumps(finite(service.advise_region(data.decode("utf-8", "surrogateescape"))), allow_nan=False)


def query(data: bytes) -> None:
    """The widget's address and the what-if sliders' numbers."""
    from starlette.requests import Request

    from app.errors import Problem
    from app.web.pages.common import parse_number, widget_answer
    from app.web.views.region import whatif

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": data, "app": _application()}
    request = Request(scope)
    with suppress(Problem):
        context = widget_answer(request)
        assert context["widget"]["tool"] in ("skip", "library", "compile", "triton", "cuda")
    asked = request.query_params
    with suppress(Problem):
        share, faster = parse_number(asked.get("share"), 0.01), parse_number(asked.get("faster"))
        known = parse_number(asked.get("known"))
        section = whatif.make_section({"advice": {}, "share_of_step": known}, None, share, faster)
        assert section is None
        region = {"advice": {"region_speedup": {"mid": 2.0}}, "time_us_per_step": 10.0, "share_of_step": 0.1}
        section = whatif.make_section(region, None, share, faster)
        assert section is not None
        assert math.isfinite(section["step_speedup"]) and section["step_speedup"] >= 1.0


def _application() -> Any:
    from app.thresholds import DEFAULTS
    from app.web.pages.widget import archive_measurements

    archive_measurements()
    return SimpleNamespace(state=SimpleNamespace(service=_Widget(DEFAULTS)))


class _Widget:
    """The one method of the advisor that the widget needs; the others start threads."""

    def __init__(self, thresholds: Any) -> None:
        self.thresholds = thresholds

    def advise_widget(self, **answers: Any) -> Any:
        from app.analysis import service

        return service.advise_widget(self.thresholds, **answers)


TARGETS = {
    "trace": Target(trace, "trace", 16 * 1024),
    "report": Target(report, "trace", 32 * 1024),
    "execution": Target(execution, "trace", 16 * 1024),
    "region": Target(region, "region", 4 * 1024),
    "advice": Target(advice, "region", 2 * 1024, 30.0),
    "query": Target(query, "query", 512),
}
