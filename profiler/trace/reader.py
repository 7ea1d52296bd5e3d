"""One torch.profiler file -> Trace."""

from __future__ import annotations

from pathlib import Path

from profiler.trace.assemble import assemble
from profiler.trace.columns import Columns
from profiler.trace.errors import TraceError
from profiler.trace.model import Trace
from profiler.trace.source import Limits, Source
from profiler.trace.stream import EventStream


def read_trace(path: Path | str, limits: Limits = Limits()) -> Trace:  # noqa: B008 (frozen)
    """Reads a Chrome trace as torch.profiler writes it: JSON, plain or gzip, whole, damaged or truncated.

    Memory stays near the size of the columns, not of the file. What is missing or was repaired is in `notes`; a trace
    without kernels is no error. Raises TraceError for a file that is not a trace or is beyond the limits, OSError where
    the file cannot be opened.
    """
    columns = Columns()
    with Source(Path(path), limits) as source:
        stream = EventStream(source, limits)
        for batch in stream:
            columns.add(batch)
            if columns.events > limits.max_events:
                raise TraceError(
                    "trace-too-large",
                    f"The trace has more than {limits.max_events} events.",
                    "Record fewer steps: torch.profiler.schedule(wait=1, warmup=2, active=3) is enough.",
                )
    if columns.events and not columns.is_trace:
        raise TraceError(
            "trace-not-a-trace",
            "The file lists objects, but none is a trace event.",
            "Record with torch.profiler and export_chrome_trace(), and give that file.",
        )
    return assemble(columns, stream.header, stream.dropped, stream.truncated)
