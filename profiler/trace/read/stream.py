"""Batches of events out of chunks of bytes, in bounded memory.

A chunk is cut at its last `}, {` and the cut is accepted only if what lies before it decodes as whole events. So no
formatting is assumed (compact, pretty, header keys before or after) and a wrong cut is impossible. Only a chunk that
does not decode takes the slower, tolerant way, and only an event that cannot be repaired is dropped, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

import msgspec

from profiler.trace.errors import TraceError
from profiler.trace.read.events import (
    MALFORMED,
    AnyEvent,
    Header,
    decode,
    decode_header,
    decode_lenient,
    decode_list,
    decode_one,
    decode_repaired,
    split_events,
)
from profiler.trace.read.limits import CHUNK_BYTES
from profiler.trace.read.segment import MisfitError
from profiler.trace.read.source import Limits, Reader, foreign

_SPACE = b" \t\r\n"
_OPEN, _CLOSE, _COMMA, _BRACE = 0x5B, 0x5D, 0x2C, 0x7D
_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_LIST_END = re.compile(rb"\}\s*\](?=\s*(?:,\s*\"|\}|$))")
_CUTS = 12
"""How many `}, {` to try from the end of a chunk: eight GPUs in deviceProperties after the events make seven wrong."""
_JOINS = 8
"""How many `}, {` one damaged event may hold inside before it is given up."""
_REPAIRED_JOINS = 2
"""As _JOINS, where the event needs repair as well, which is slow to try."""
_GROW_BYTES = 4 * 1024 * 1024
"""A chunk that does not decode anywhere is read on up to here before its events are picked out one by one."""
_PHASE = b'"ph"'
_TRAILER_BYTES = 16 * 1024 * 1024

_RECORD = "Record with torch.profiler and export_chrome_trace(), and give that file."


class EventStream:
    """Iterates over batches of events; afterwards `header`, `dropped` and `truncated` are complete."""

    def __init__(self, source: Reader, limits: Limits, head: bool = True) -> None:
        """head: whether the source begins with the file's head, not with an event."""
        self.header = Header()
        self.dropped = 0
        self.truncated = False
        self.unclosed = False  # nothing follows the list: as it should be, if the file is a bare list
        self._source = source
        self._head = head
        self._limits = limits
        self.bare = False
        self._ended = False
        self._damaged = False  # the last chunk needed repair: try that first on the next

    def __iter__(self) -> Iterator[list[AnyEvent]]:
        window = _Window(self._source, self._open() if self._head else b"")
        wanted_bytes = CHUNK_BYTES
        while not self._ended:
            if not window.fill(wanted_bytes):
                yield self._finish(window.text())
                break
            events = None if self._damaged else window.take(_CUTS)
            if events is not None:
                yield events
                del events  # its raw fields hold the window's buffer
                window.shift()
                wanted_bytes = CHUNK_BYTES
                continue
            events, rest = self._take(window.text(), patient=wanted_bytes < _GROW_BYTES)
            if events:
                yield events
                window.replace(rest)
                wanted_bytes = CHUNK_BYTES
            elif not self._ended:
                wanted_bytes *= 2
                if wanted_bytes > self._limits.max_event_bytes:
                    raise TraceError(
                        "trace-too-large",
                        f"One event is longer than {self._limits.max_event_bytes // 1024**2} MiB.",
                        _RECORD,
                    )
        self.truncated |= self._source.truncated
        if self._ended and self._source.continues:
            raise MisfitError

    # -- before the events

    def _open(self) -> bytes:
        """Reads up to the start of the event list, keeps the header keys before it, returns what follows."""
        buffer = self._source.read()
        while len(buffer) < 512 and (chunk := self._source.read()):
            buffer += chunk
        buffer = buffer.removeprefix(b"\xef\xbb\xbf").lstrip(_SPACE)
        if not buffer:
            raise TraceError("trace-empty", "The file holds nothing but blanks.", _RECORD)
        if buffer.startswith(b"["):
            return self._open_list(buffer[1:])
        if not buffer.startswith(b"{"):
            what, remedy = foreign(buffer) or ("not JSON", _RECORD)
            raise TraceError("trace-not-json", f"The file is {what}.", remedy)
        searched = tried = 0
        nested: int | None = None
        while True:
            for match in islice(_KEY.finditer(buffer, searched), _CUTS - tried):
                if self._header_before(buffer[: match.start()]):
                    return buffer[match.end() :]
                nested = nested or match.end()
                tried += 1
            searched = max(0, len(buffer) - 64)
            chunk = b"" if len(buffer) > self._limits.max_event_bytes else b"".join(self._chunks(len(buffer)))
            if not chunk:
                break
            buffer += chunk
        if self._source.continues:
            raise MisfitError  # the list may begin in another segment
        if nested is None:
            raise self._no_events_key(buffer)
        return buffer[nested:]  # the header before it is beyond repair; the events may not be

    def _chunks(self, size: int) -> Iterator[bytes]:
        """At least `size` more bytes where there are as many: doubling keeps a long header linear."""
        while size > 0 and (chunk := self._source.read()):
            size -= len(chunk)
            yield chunk

    def _open_list(self, buffer: bytes) -> bytes:
        self.bare = True
        while not buffer.strip(_SPACE) and (chunk := self._source.read()):
            buffer += chunk
        if buffer.lstrip(_SPACE)[:1] not in (b"{", b"]", b""):
            raise TraceError("trace-not-a-trace", "The file is a list of something else than trace events.", _RECORD)
        return buffer

    def _header_before(self, prefix: bytes) -> bool:
        """Whether `"traceEvents"` after this prefix is a key of the outermost object; then its header keys are kept."""
        try:
            self.header = decode_header(prefix + b'"traceEvents":[]}')
        except MALFORMED:
            return False
        return True

    def _no_events_key(self, text: bytes) -> TraceError:
        if len(text) > self._limits.max_event_bytes:
            return self._not_a_trace()
        try:
            msgspec.json.decode(text)
        except MALFORMED:
            broken = self._source.truncated or not text.rstrip(_SPACE).endswith(b"}")
            what = "ends before its traceEvents" if broken else "is not valid JSON"
            return TraceError("trace-not-json", f"The file {what}.", "Copy the file again, or record it again.")
        return self._not_a_trace()

    def _not_a_trace(self) -> TraceError:
        return TraceError(
            "trace-not-a-trace",
            "The file is JSON, but has no traceEvents.",
            _RECORD + " (An execution trace or a memory snapshot is another file.)",
        )

    # -- the events

    def _take(self, buffer: bytes, patient: bool) -> tuple[list[AnyEvent], bytes]:
        """Whole events from the front of the buffer, and the rest; no events where more bytes are needed."""
        cuts = list(_last_boundaries(buffer, len(buffer), 1 if self._damaged else _CUTS))
        for end, begin in cuts:
            try:
                events = decode(buffer[:end])
            except MALFORMED:
                continue
            self._damaged = False
            return events, buffer[begin:]
        if not self._damaged:
            ended = self._end(buffer, decode)
            if ended is not None:
                return ended, b""
        for end, begin in cuts[:1]:
            try:
                return decode_lenient(buffer[:end]), buffer[begin:]
            except MALFORMED:
                break
        if not cuts or (patient and not self._damaged):
            return [], buffer
        self._damaged = True
        events, undecided = self._pick(buffer[: cuts[0][0]])
        # What did not decode may go on after the cut: it is tried again with what follows.
        return events, buffer[undecided[0] :] if undecided else buffer[cuts[0][1] :]

    def _finish(self, buffer: bytes) -> list[AnyEvent]:
        """What is left at the end of the file, with or without the end of the list."""
        if self._source.continues:
            return self._finish_inside(buffer)
        text = buffer.strip(_SPACE)
        if text.startswith(b"]"):
            self._close(text[1:])
            return []
        for decoder in (decode, decode_lenient):
            ended = self._end(buffer, decoder)
            if ended is not None:
                return ended
        return self._finish_piecewise(buffer)

    def _finish_inside(self, buffer: bytes) -> list[AnyEvent]:
        """As `_finish`, where the list goes on elsewhere: nothing may be left over. Raises MisfitError."""
        for decoder in (decode, decode_lenient):
            with suppress(*MALFORMED):
                return decoder(buffer)
        events, undecided = self._pick(buffer)
        if undecided:
            raise MisfitError
        return events

    def _finish_piecewise(self, buffer: bytes) -> list[AnyEvent]:
        events: list[AnyEvent] = []
        for end, begin in _last_boundaries(buffer, len(buffer), 1):
            try:
                events, buffer = decode_lenient(buffer[:end]), buffer[begin:]
            except MALFORMED:
                break
        more, undecided = self._pick(buffer)
        # The last piece that did not decode is the one that the end of the file cut off; the ones before it are lost.
        self.dropped += max(0, len(undecided) - 1)
        self.truncated |= not self._ended
        return events + more

    def _end(self, buffer: bytes, decoder: Callable[[bytes], list[AnyEvent]]) -> list[AnyEvent] | None:
        """The events before the end of the list, if the list ends in this buffer."""
        ends = [(match.start() + 1, match.end()) for match in _LIST_END.finditer(buffer)]
        # From the back: what follows the list is short. From the front too: what follows may hold lists itself.
        for end, after in [*reversed(ends[-_CUTS:]), *ends[: min(_CUTS, max(0, len(ends) - _CUTS))]]:
            try:
                events = decoder(buffer[:end])
            except MALFORMED:
                continue
            self._close(buffer[after:])
            return events
        return None

    def _pick(self, text: bytes) -> tuple[list[AnyEvent], list[int]]:
        """Events one by one, those beyond repair dropped and counted; also where undecided pieces start.

        The undecided ones are at the end: parts of one event with a `}, {` inside, or the last one is cut off.
        """
        events: list[AnyEvent] = []
        waiting: list[int] = []
        for start, end in split_events(text):
            waiting.append(start)
            event = _any_event(text[waiting[0] : end], repairing=len(waiting) <= _REPAIRED_JOINS)
            if event is None and len(waiting) > 1:
                event = _any_event(text[start:end])
                # It decodes alone, so what waited before it is lost.
                self.dropped += len(waiting) - 1 if event is not None else 0
            if event is not None:
                events.append(event)
                waiting.clear()
                continue
            for first in dict.fromkeys((waiting[0], start)):
                last = self._last_of_list(text, first, end)
                if last is not None:
                    self.dropped += len(waiting) - 1 if first == start else 0
                    events.append(last)
                    return events, []
            if len(waiting) > _JOINS:
                waiting.pop(0)
                self.dropped += 1
        return events, waiting

    def _last_of_list(self, text: bytes, start: int, end: int) -> AnyEvent | None:
        """The event at `start` if the list ends before `end`."""
        for match in islice(_LIST_END.finditer(text, start, end), _CUTS):
            event = _any_event(text[start : match.start() + 1])
            if event is not None:
                self._close(text[match.end() :])
                return event
        return None

    # -- after the events

    def _close(self, rest: bytes) -> None:
        """The list has ended: keep the header keys after it."""
        self._ended = True
        parts = [rest]
        size = len(rest)
        while size <= _TRAILER_BYTES and (chunk := self._source.read()):
            parts.append(chunk)
            size += len(chunk)
        trailer = b"".join(parts).strip(_SPACE)
        self.unclosed = not trailer
        if self.unclosed:
            return
        try:
            after = Header() if size > _TRAILER_BYTES else decode_header(b'{"traceEvents":[]' + trailer)
        except MALFORMED:
            # A stray `]` among the events, and what follows it is lost; or the file breaks off in the keys after them.
            self.truncated |= _PHASE in trailer or not (self.bare or trailer.endswith(b"}"))
            return
        self.header = self.header.or_else(after)


def _any_event(text: bytes, repairing: bool = True) -> AnyEvent | None:
    return decode_one(text) or (decode_repaired(text) if repairing else None)


class _Window:
    """The part of a file that is being decoded: text that begins with an event, behind a byte kept for a bracket.

    One buffer, so that no byte is copied between being unpacked and decoded: joining brackets to half-megabyte `bytes`
    alone took 0.12 of the 0.95 s in which a file of 215 MB was read.
    """

    def __init__(self, source: Reader, text: bytes) -> None:
        self._source = source
        self._buffer = bytearray()
        self._end = 1
        self._set(text)

    def __len__(self) -> int:
        return self._end - 1

    def fill(self, wanted_bytes: int) -> bool:
        """Reads on until there are `wanted_bytes` bytes; False where the file ends before."""
        while len(self) < wanted_bytes:
            chunk = self._source.read()
            if not chunk:
                return False
            after = self._end + len(chunk)
            if after > len(self._buffer):
                self._set(self.text(), room=max(wanted_bytes, after))
                after = self._end + len(chunk)
            self._buffer[self._end : after] = chunk
            self._end = after
        return True

    def take(self, count: int) -> list[AnyEvent] | None:
        """Whole events from the front, up to one of the last `count` `}, {`; None where the text is not just that."""
        buffer = self._buffer
        for close, begin in _last_boundaries(buffer, self._end, count):
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
        """Drops the events that were taken, once they are no longer used."""
        begin, self._consumed = self._consumed, 1
        remaining = self._end - begin
        self._buffer[1 : 1 + remaining] = self._buffer[begin : self._end]
        self._end = 1 + remaining

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


def _last_boundaries(text: bytes | bytearray, end: int, count: int) -> Iterator[tuple[int, int]]:
    """(end of the event before, start of the event after) of the last `}, {` before `end`, the last one first."""
    at = end
    boundaries = 0
    while boundaries < count:
        at = text.rfind(b"{", 0, at)
        if at < 0:
            return
        comma = _before(text, at)
        if comma < 0 or text[comma] != _COMMA:
            continue
        close = _before(text, comma)
        if close >= 0 and text[close] == _BRACE:
            boundaries += 1
            yield close + 1, at


def _before(text: bytes | bytearray, at: int) -> int:
    """Index of the last byte before `at` that is no blank; -1 where there is none."""
    at -= 1
    while at >= 0 and text[at] in _SPACE:
        at -= 1
    return at
