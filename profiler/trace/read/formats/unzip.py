"""The one trace inside a zip archive, as a layer of a Source.

An archive of several is for `members.traces_in`, which whoever takes several calls first.
"""

from __future__ import annotations

import zipfile
from typing import IO

from profiler.trace.errors import TraceError
from profiler.trace.read.archive import may_be_trace
from profiler.trace.read.limits import CHUNK_BYTES
from profiler.trace.read.members import BROKEN, FIRST_BYTES, MOST_SCANNED, Strays, breaks_off, check_packing, wanted


class Unzip:
    """The bytes of the archive's only trace. Raises TraceError where there is none, or several."""

    def __init__(self, file: IO[bytes]) -> None:
        self.truncated = False
        try:
            archive = zipfile.ZipFile(file)
            self._content, self.head = self._only(archive)
        except BROKEN as error:
            raise breaks_off(0, error) from error
        self._first = True

    def read(self) -> bytes:
        """The next chunk; b"" at the end."""
        if self._first:
            self._first = False
            return self.head
        try:
            return self._content.read(CHUNK_BYTES)
        except BROKEN as error:
            raise breaks_off(0, error) from error

    def _only(self, archive: zipfile.ZipFile) -> tuple[IO[bytes], bytes]:
        """The trace's content and its first bytes, which are taken from it."""
        names: list[str] = []
        chosen: tuple[IO[bytes], bytes] | None = None
        strays = Strays()
        if not archive.infolist():
            raise TraceError("trace-empty", "The file is an empty zip archive.", "Pack the trace into it again.")
        for info in archive.infolist()[:MOST_SCANNED]:
            if not (name := wanted(info.filename)):
                continue
            check_packing(info)
            content = archive.open(info)
            first = content.read(FIRST_BYTES)
            if may_be_trace(first):
                first += content.read(CHUNK_BYTES - FIRST_BYTES)
            if not strays.is_trace(first):
                content.close()
                continue
            names.append(name)
            if len(names) > 2:
                break
            chosen = content, first
        if chosen is None:
            raise TraceError(
                "trace-not-a-trace",
                "The archive holds no trace.",
                "Give the trace itself, as export_chrome_trace() or nsys export wrote it.",
            )
        if len(names) > 1:
            raise TraceError(
                "trace-not-a-trace",
                f"The archive holds several traces: {', '.join(names[:2])}{' and more' if len(names) > 2 else ''}.",
                "Give the trace alone.",
            )
        return chosen
