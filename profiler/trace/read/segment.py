"""A file in segments that several processes read, without passing a byte between them.

Every process unpacks the whole file (0.4 to 0.5 s for 1 GB of JSON on a busy core) and decodes the segments it has
claimed. Segment k begins at the first `}, {` at or after byte k * size, and ends where the next begins: each process
works that out alone. A `}, {` inside an event makes a wrong cut: the segment before it then ends in half an event,
`MisfitError` is raised and the file is read in one piece.
"""

from __future__ import annotations

import re

from profiler.trace.errors import Damage
from profiler.trace.read.source import Source

_BOUNDARY = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*(?=\{)")
_SEARCH_BYTES = 8 * 1024 * 1024
"""No event is longer in any trace of the corpus; beyond it the file is read in one piece."""


class MisfitError(Exception):
    """The file cannot be cut into segments here."""


class Segment:
    """The text of one segment, as EventStream reads it."""

    def __init__(self, segments: Segments, stop: int, empty: bool = False) -> None:
        self._segments = segments
        self._stop = stop
        self._done = empty
        self.is_last = False

    @property
    def continues(self) -> bool:
        """Whether the list goes on in another segment. Known once read to its end."""
        return not self.is_last

    @property
    def truncated(self) -> bool:
        return self.is_last and self._segments.truncated

    @property
    def damage(self) -> Damage:
        return self._segments.damage if self.is_last else Damage.NONE

    def read(self) -> bytes:
        """The next chunk; b"" at the end of the segment."""
        if self._done:
            return b""
        text = self._segments.before(self._stop)
        if text:
            return text
        self._done = True
        text, self.is_last = self._segments.up_to_boundary(self._stop)
        return text


class Segments:
    """Cuts the text of a source, forwards only."""

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self._size = size
        self._text = b""
        self._at = 0  # of the first byte of _text in the file

    @property
    def truncated(self) -> bool:
        return self._source.truncated

    @property
    def damage(self) -> Damage:
        return self._source.damage

    def segment(self, number: int) -> Segment | None:
        """Segment `number`, counted from 0, each larger than the one before; None where the file ends before it."""
        start, stop = number * self._size, (number + 1) * self._size
        while self.before(start):
            pass
        if number == 0:
            return Segment(self, stop)
        boundary = self._boundary(start)
        if boundary is None:
            return None
        if start + boundary.start() >= stop:
            return Segment(self, stop, empty=True)
        self._skip(boundary.end())
        return Segment(self, stop)

    def before(self, stop: int) -> bytes:
        """Some text before byte `stop` of the file; b"" where that or the end of the file is reached."""
        if self._at >= stop or not (self._text or self._more()):
            return b""
        text = self._text[: stop - self._at]
        self._skip(len(text))
        return text

    def up_to_boundary(self, stop: int) -> tuple[bytes, bool]:
        """(text up to the first boundary at or after byte `stop`, whether the file ends). Nothing is skipped."""
        boundary = self._boundary(stop)
        if boundary is None:
            text, self._text = self._text, b""
            self._at += len(text)
            return text, True
        return self._text[: boundary.start() + 1], False

    def _boundary(self, start: int) -> re.Match[bytes] | None:
        """The first one at or after byte `start`, where the text has come to; None where the file ends before it."""
        while True:
            boundary = _BOUNDARY.search(self._text) if self._at == start else None
            if boundary is not None:
                return boundary
            if len(self._text) > _SEARCH_BYTES:
                raise MisfitError
            if not self._more():
                return None

    def _more(self) -> bool:
        chunk = self._source.read()
        self._text += chunk
        return bool(chunk)

    def _skip(self, count: int) -> None:
        self._text = self._text[count:]
        self._at += count
