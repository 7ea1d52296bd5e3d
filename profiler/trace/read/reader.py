"""One file of torch.profiler, nsys or rocprofv3 -> Trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from profiler.trace.errors import Damage, TraceError
from profiler.trace.model import Trace
from profiler.trace.notes import by_weight
from profiler.trace.read.assemble import assemble
from profiler.trace.read.columns import Columns
from profiler.trace.read.events import Header
from profiler.trace.read.formats.argument_types import with_argument_types
from profiler.trace.read.formats.open import open_recording
from profiler.trace.read.formats.recording import Recording
from profiler.trace.read.formats.remedies import with_remedies
from profiler.trace.read.limits import Limits, check_events
from profiler.trace.read.parallel_reader import pays, read_in_two
from profiler.trace.read.source import OnRead, Source
from profiler.trace.read.stream import EventStream


def read_trace(
    path: Path | str, limits: Limits = Limits(), processes: int | None = None, *,  # noqa: B008 (frozen)
    on_read: OnRead | None = None,
) -> Trace:  # fmt: skip
    """Reads a Chrome trace as torch.profiler writes it: JSON, whole, damaged or truncated; or an nsys export (SQLite)
    or rocprofv3's JSON, whole. Each plain, as gzip or zstd, or alone in a tar or zip: what it is its bytes tell.

    Columns of more than 400,000 rows lie in temporary files (see mmap_columns), 60 bytes for each operator; so memory
    hardly grows with the file. It does by some temporaries for each kernel, and where operators are not in order of
    time. A recording lists all operators first, then launches and kernels: none can be left out before the end, all are
    kept. A large file is read by two processes where there are two cores; processes=1 forbids it.

    on_read: is told of the file's bytes, after each batch of events; where a file turns out to be for one process
    alone, once more from 0.

    What is missing or was repaired is in `notes`; a trace without kernels is no error. Raises TraceError for a file
    that is not a trace or is beyond the limits, OSError where the file cannot be opened.
    """
    path = Path(path)
    with open_recording(path, limits) as recording:
        if recording is not None:
            return _of_recording(recording, limits, on_read)
    halves = read_in_two(path, limits, on_read=on_read) if pays(path, processes) else None
    columns, header, dropped, truncated, damage = halves or _read_alone(path, limits, on_read)
    check_events(columns.events, limits)
    if columns.events and not columns.is_trace:
        raise TraceError(
            "trace-not-a-trace",
            "The file lists objects, but none is a trace event.",
            "Record with torch.profiler and export_chrome_trace(), and give that file.",
        )
    return assemble(columns, header, dropped, truncated, damage)


def _of_recording(recording: Recording, limits: Limits, on_read: OnRead | None) -> Trace:
    """The trace of another tool's file."""
    columns = Columns()
    for batch in recording.batches:
        columns.add(batch)
        check_events(columns.events, limits)
    if on_read is not None:
        on_read(1.0)
    trace = assemble(columns, recording.header, recording.dropped, truncated=False)
    trace = with_argument_types(with_remedies(trace, recording.tool))
    return replace(trace, notes=by_weight((*trace.notes, *recording.notes)))


def _read_alone(path: Path, limits: Limits, on_read: OnRead | None) -> tuple[Columns, Header, int, bool, Damage]:
    """(columns, header, events dropped, truncated, damage)."""
    columns = Columns()
    with Source(path, limits) as source:
        stream = EventStream(source, limits)
        for batch in stream:
            columns.add(batch)
            check_events(columns.events, limits)
            if on_read is not None:
                on_read(source.share_read)
        damage = source.damage
    truncated = stream.truncated or (stream.unclosed and not stream.bare)
    return columns, stream.header, stream.dropped, truncated, damage
