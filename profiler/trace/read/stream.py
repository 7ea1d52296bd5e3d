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
    Any,
    Header,
    decode,
    decode_header,
    decode_lenient,
    decode_one,
    decode_repaired,
    pieces,
)
from profiler.trace.read.limits import CHUNK_BYTES
from profiler.trace.read.segment import MisfitError
from profiler.trace.read.source import Limits, Reader, foreign
from profiler.trace.read.window import SPACE, Window, last_boundaries

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

    def __iter__(self) -> Iterator[list[Any]]:
        window = Window(self._source, self._open() if self._head else b"")
        wanted = CHUNK_BYTES
        while not self._ended:
            if not window.fill(wanted):
                yield self._finish(window.text())
                break
            events = None if self._damaged else window.take(_CUTS)
            if events is not None:
                yield events
                del events  # its raw fields hold the window's buffer
                window.shift()
                wanted = CHUNK_BYTES
                continue
            events, rest = self._take(window.text(), patient=wanted < _GROW_BYTES)
            if events:
                yield events
                window.replace(rest)
                wanted = CHUNK_BYTES
            elif not self._ended:
                wanted *= 2
                if wanted > self._limits.max_event_bytes:
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
        buffer = buffer.removeprefix(b"\xef\xbb\xbf").lstrip(SPACE)
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
        while not buffer.strip(SPACE) and (chunk := self._source.read()):
            buffer += chunk
        if buffer.lstrip(SPACE)[:1] not in (b"{", b"]", b""):
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
            broken = self._source.truncated or not text.rstrip(SPACE).endswith(b"}")
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

    def _take(self, buffer: bytes, patient: bool) -> tuple[list[Any], bytes]:
        """Whole events from the front of the buffer, and the rest; no events where more bytes are needed."""
        cuts = list(last_boundaries(buffer, len(buffer), 1 if self._damaged else _CUTS))
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
        events, left = self._pick(buffer[: cuts[0][0]])
        # What did not decode may go on after the cut: it is tried again with what follows.
        return events, buffer[left[0] :] if left else buffer[cuts[0][1] :]

    def _finish(self, buffer: bytes) -> list[Any]:
        """What is left at the end of the file, with or without the end of the list."""
        if self._source.continues:
            return self._finish_inside(buffer)
        text = buffer.strip(SPACE)
        if text.startswith(b"]"):
            self._close(text[1:])
            return []
        for decoder in (decode, decode_lenient):
            ended = self._end(buffer, decoder)
            if ended is not None:
                return ended
        return self._finish_piecewise(buffer)

    def _finish_inside(self, buffer: bytes) -> list[Any]:
        """As `_finish`, where the list goes on elsewhere: nothing may be left over. Raises MisfitError."""
        for decoder in (decode, decode_lenient):
            with suppress(*MALFORMED):
                return decoder(buffer)
        events, left = self._pick(buffer)
        if left:
            raise MisfitError
        return events

    def _finish_piecewise(self, buffer: bytes) -> list[Any]:
        events: list[Any] = []
        for end, begin in last_boundaries(buffer, len(buffer), 1):
            try:
                events, buffer = decode_lenient(buffer[:end]), buffer[begin:]
            except MALFORMED:
                break
        more, left = self._pick(buffer)
        # The last piece that did not decode is the one that the end of the file cut off; the ones before it are lost.
        self.dropped += max(0, len(left) - 1)
        self.truncated |= not self._ended
        return events + more

    def _end(self, buffer: bytes, decoder: Callable[[bytes], list[Any]]) -> list[Any] | None:
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

    def _pick(self, text: bytes) -> tuple[list[Any], list[int]]:
        """Events one by one, those beyond repair dropped and counted; also where the pieces start that are undecided.

        The undecided ones stand at the end: parts of one event with a `}, {` inside, or the last one is cut off.
        """
        events: list[Any] = []
        waiting: list[int] = []
        for start, end in pieces(text):
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

    def _last_of_list(self, text: bytes, start: int, end: int) -> Any | None:
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
        trailer = b"".join(parts).strip(SPACE)
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


def _any_event(text: bytes, repairing: bool = True) -> Any | None:
    return decode_one(text) or (decode_repaired(text) if repairing else None)
