"""A file of another tool, opened by what it holds: an nsys export, rocprofv3's JSON."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profiler.trace.errors import TraceError
from profiler.trace.read.archive import may_be_trace
from profiler.trace.read.formats.kinds import SQLITE, is_rocprofv3
from profiler.trace.read.formats.nsys import TABLES, read_nsys
from profiler.trace.read.formats.recording import Recording
from profiler.trace.read.formats.rocprofv3 import MOST_BYTES, read_rocprofv3
from profiler.trace.read.formats.sqlite_file import open_database
from profiler.trace.read.limits import Limits
from profiler.trace.read.source import Source

REPORTS = (".nsys-rep", ".qdrep")
"""How nsys calls what it recorded, in a format that is not published."""


@contextmanager
def open_recording(path: Path, limits: Limits) -> Iterator[Recording | None]:
    """What the file recorded, while it is open; None for a trace of torch.profiler, and for what is none at all.

    A packed database is unpacked into a temporary file, within the limits. Raises TraceError, OSError.
    """
    with Source(path, limits) as source:
        head = source.read()
        if is_rocprofv3(head):
            yield read_rocprofv3(_text(head, source), limits, truncated=source.truncated)
            return
        if not head.startswith(SQLITE):
            if path.suffix.lower() in REPORTS and not may_be_trace(head):
                message = "The file is a report of nsys, which is read as its SQLite export only."
                raise TraceError("trace-not-json", message, f"Export it: nsys export --type sqlite {path.name}")
            yield None
            return
        if source.is_plain:
            with open_database(path, TABLES) as database:
                yield read_nsys(database, limits)
            return
        with tempfile.NamedTemporaryFile(prefix="tritonworthy-", suffix=".sqlite") as unpacked:
            while head:
                unpacked.write(head)
                head = source.read()
            unpacked.flush()
            if source.truncated:
                message = "The packed database is cut off or damaged: it cannot be unpacked whole."
                raise TraceError("trace-bad-sqlite", message, "Copy the file again.")
            with open_database(Path(unpacked.name), TABLES) as database:
                yield read_nsys(database, limits)


def _text(head: bytes, source: Source) -> bytes:
    """All of a file that is decoded in one piece."""
    parts, size = [head], len(head)
    while data := source.read():
        size += len(data)
        if size > MOST_BYTES:
            raise TraceError(
                "trace-too-large",
                f"A rocprofv3 file may have at most {MOST_BYTES // 1024**3} GiB unpacked.",
                "Record fewer steps: rocprofv3 --collection-period, or roctxProfilerPause and roctxProfilerResume.",
            )
        parts.append(data)
    return b"".join(parts)
