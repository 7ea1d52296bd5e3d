"""The part of a file that is being decoded, in one buffer: no byte is copied between being unpacked and decoded.

Joining brackets to half-megabyte `bytes` alone took 0.12 of the 0.95 s in which a file of 215 MB was read.
"""

from __future__ import annotations

from collections.abc import Iterator

from profiler.trace.read.events import MALFORMED, Any, decode_list
from profiler.trace.read.limits import CHUNK_BYTES
from profiler.trace.read.source import Reader

SPACE = b" \t\r\n"
_OPEN, _CLOSE, _COMMA, _BRACE = 0x5B, 0x5D, 0x2C, 0x7D


class Window:
    """Text that begins with an event, behind one byte that is kept for a bracket."""

    def __init__(self, source: Reader, text: bytes) -> None:
        self._source = source
        self._buffer = bytearray()
        self._end = 1
        self._set(text)

    def __len__(self) -> int:
        return self._end - 1

    def fill(self, wanted: int) -> bool:
        """Reads on until there are `wanted` bytes; False where the file ends before."""
        while len(self) < wanted:
            chunk = self._source.read()
            if not chunk:
                return False
            after = self._end + len(chunk)
            if after > len(self._buffer):
                self._set(self.text(), room=max(wanted, after))
                after = self._end + len(chunk)
            self._buffer[self._end : after] = chunk
            self._end = after
        return True

    def take(self, count: int) -> list[Any] | None:
        """Whole events from the front, up to one of the last `count` `}, {`; None where the text is not just that."""
        buffer = self._buffer
        for close, begin in last_boundaries(buffer, self._end, count):
            comma = buffer.index(_COMMA, close)
            buffer[0], buffer[comma] = _OPEN, _CLOSE
            try:
                events = decode_list(memoryview(buffer)[: comma + 1])
            except MALFORMED:
                buffer[comma] = _COMMA
                continue
            # The fields left as raw text point into the buffer: it is not moved, and they are stale after this batch.
            self._consumed = begin
            return events
        return None

    def shift(self) -> None:
        """Forgets what was taken, once nobody looks at it any more."""
        begin, self._consumed = self._consumed, 1
        left = self._end - begin
        self._buffer[1 : 1 + left] = self._buffer[begin : self._end]
        self._end = 1 + left

    def text(self) -> bytes:
        """What is left, as bytes."""
        return bytes(memoryview(self._buffer)[1 : self._end])

    def replace(self, text: bytes) -> None:
        """Goes on with this text instead of what is left."""
        self._set(text)

    def _set(self, text: bytes, room: int = 0) -> None:
        # A new buffer, never a resized one: raw fields may still point into the old one.
        buffer = bytearray(1 + max(len(text), room) + 2 * CHUNK_BYTES)
        buffer[1 : 1 + len(text)] = text
        self._buffer = buffer
        self._end = 1 + len(text)
        self._consumed = 1


def last_boundaries(text: bytes | bytearray, end: int, count: int) -> Iterator[tuple[int, int]]:
    """(end of the event before, start of the event after) of the last `}, {` before `end`, the last one first."""
    at = end
    found = 0
    while found < count:
        at = text.rfind(b"{", 0, at)
        if at < 0:
            return
        comma = _before(text, at)
        if comma < 0 or text[comma] != _COMMA:
            continue
        close = _before(text, comma)
        if close >= 0 and text[close] == _BRACE:
            found += 1
            yield close + 1, at


def _before(text: bytes | bytearray, at: int) -> int:
    """Index of the last byte before `at` that is no blank; -1 where there is none."""
    at -= 1
    while at >= 0 and text[at] in SPACE:
        at -= 1
    return at
