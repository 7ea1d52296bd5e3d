"""A second process that reads the same file: half of the segments each, whoever is free takes the next.

Numbers of segments lie in a pipe that both read: a process that starts late, or shares its core, takes fewer. Each
writes the columns of its segments to a temporary file as parts; the first process reads them back one at a time, in the
order of the file, and joins them.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO

import msgspec
import numpy as np

from profiler.trace.errors import Damage, TraceError
from profiler.trace.model import NONE, Ints
from profiler.trace.read.column import Column
from profiler.trace.read.columns import Columns, Tables, Thread
from profiler.trace.read.events import Header
from profiler.trace.read.formats.unzstd import ZSTD, is_zstd
from profiler.trace.read.gunzip import GZIP
from profiler.trace.read.limits import Limits, check_events
from profiler.trace.read.segment import MisfitError, Segments
from profiler.trace.read.source import OnRead, Source
from profiler.trace.read.stream import EventStream

SEGMENT_BYTES = 4 * 1024 * 1024
"""Some 20 ms of decoding: what one process may wait for the other at the end."""

PACKED_BYTES = 6 * 1024 * 1024
PLAIN_BYTES = 64 * 1024 * 1024
"""Size of a file from which a second process, which takes 0.15 to 0.3 s to start, pays: compressed, and plain."""

GROUPS = ("ops", "kernels", "memory", "launches", "annotations", "frames", "syncs")
"""Of Columns."""

Sizes = tuple[int, int, int]
"""How many names, threads and details a process has met."""

Place = tuple[int, int, int]
"""Number of the segment; first byte and length in the file of parts."""

_Texts = tuple[list[str], list[Thread], list[bytes], dict[str, str], list[Place]]
"""What a process's numbers stand for (names, threads, details), its Triton files, and where its parts lie."""

_TOKEN = struct.Struct("<I")
_TOKENS = 15_000
"""As many as a pipe of 64 KiB holds."""

_FAILED = 3

_START = "import sys; sys.path[:] = {path!r}; from profiler.trace.read.parallel_reader import main; main()"


@dataclass(frozen=True, slots=True)
class Part:
    """One segment's columns. texts: how many texts its process had met by the segment's end."""

    number: int
    columns: tuple[tuple[np.ndarray, ...], ...]  # by GROUPS, each in the order of its fields
    texts: Sizes
    events: int
    timeless: int
    has_stacks: bool
    has_call_stacks: bool
    is_trace: bool
    header: Header
    is_last: bool
    truncated: bool
    unclosed: bool  # the file ends with the list
    bare: bool  # the file is a list
    damage: int  # value of the file's Damage, where this is its last segment


@dataclass(frozen=True, slots=True)
class Share:
    """What one process read: texts that its numbers stand for, numbers of its segments, and how to get their parts."""

    names: list[str]
    threads: list[Thread]
    details: list[bytes]
    triton_files: dict[str, str]
    segments: list[int]
    part: Callable[[int], Part]  # of the place in `segments`


class _Task(msgspec.Struct):
    """What the second process is given, but for the path, which may be no UTF-8.

    tokens, parts: file descriptors of the pipe and of the file for its parts.
    """

    limits: Limits
    size: int
    tokens: int
    parts: int
    parent: int


def pays(path: Path, processes: int | None) -> bool:
    """Whether two processes read this file faster. processes: how many may be used; None: one a core."""
    if not sys.platform.startswith("linux"):
        return False  # where a pipe holds less is not tried
    if processes is None:
        processes = len(os.sched_getaffinity(0))
    if processes < 2 or not sys.executable:
        return False
    with path.open("rb") as file:
        head = file.read(len(ZSTD))
    packed = head.startswith(GZIP) or is_zstd(head)
    return path.stat().st_size >= (PACKED_BYTES if packed else PLAIN_BYTES)


def read_in_two(
    path: Path, limits: Limits, segment_bytes: int = SEGMENT_BYTES, *, on_read: OnRead | None = None
) -> tuple[Columns, Header, int, bool, Damage] | None:
    """(columns, header, events dropped, truncated, damage), or None where the file must be read in one piece.

    on_read: is told how far this process is in the file; the other is no more than a segment away. Raises what
    EventStream raises.
    """
    size = max(segment_bytes, limits.max_bytes // _TOKENS + 1)
    try:
        with tempfile.TemporaryFile() as own_parts, tempfile.TemporaryFile() as helper_parts:
            return _read(path, limits, size, own_parts, helper_parts, on_read)
    except (MisfitError, OSError):
        return None  # one process needs no room for parts, and says what else is wrong


def _read(
    path: Path, limits: Limits, size: int, own_parts: IO[bytes], helper_parts: IO[bytes], on_read: OnRead | None
) -> tuple[Columns, Header, int, bool, Damage] | None:
    reading, writing = os.pipe()
    try:
        helper = _start(path, limits, size, reading, helper_parts) if _fill(writing) else None
        if helper is None:
            return None
        with helper:
            try:
                with Source(path, limits) as source:
                    tables = Tables()
                    claims = _claim_segments(reading, first=True)
                    parts = _read_segments(Segments(source, size), claims, tables, limits)
                    places = _write_parts(_telling(parts, source, on_read), own_parts)
                shares = [_share(_texts(tables, places), own_parts), _receive(helper, helper_parts)]
                columns, header, truncated, damage = _merge(shares)
                return columns, header, 0, truncated, damage
            finally:
                helper.kill()
    finally:
        os.close(reading)


def _fill(pipe: int) -> bool:
    """Puts all numbers but 0 into the pipe and closes it; False where it holds fewer, as for a user with many pipes."""
    tokens = b"".join(map(_TOKEN.pack, range(1, _TOKENS + 1)))
    try:
        os.set_blocking(pipe, False)
        return os.write(pipe, tokens) == len(tokens)
    except BlockingIOError:
        return False
    finally:
        os.close(pipe)


def _claim_segments(tokens: int, first: bool = False, parent: int | None = None) -> Iterator[int]:
    """Numbers of segments, each given to one process only; 0 to the one that asks for the first."""
    if first:
        yield 0
    while parent is None or os.getppid() == parent:
        token = os.read(tokens, _TOKEN.size)
        if len(token) < _TOKEN.size:
            return
        yield _TOKEN.unpack(token)[0]


# -- the second process


def _start(path: Path, limits: Limits, size: int, tokens: int, parts: IO[bytes]) -> subprocess.Popen[bytes] | None:
    """The second process; None where the system allows none."""
    home = str(Path(__file__).resolve().parents[3])
    task = _Task(limits, size, tokens, parts.fileno(), os.getpid())
    # Without site: the path is known, and looking for it takes as long as numpy.
    start = _START.format(path=[home, *sys.path])
    command = [sys.executable, "-I", "-S", "-c", start, str(path), msgspec.json.encode(task).decode()]
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=[tokens, parts.fileno()]
        )
    except OSError:
        return None


def main() -> None:
    """The second process: reads what is left to claim, then reports where its columns are."""
    task = msgspec.json.decode(sys.argv[2], type=_Task)
    tables = Tables()
    try:
        with Source(Path(sys.argv[1]), task.limits) as source, os.fdopen(task.parts, "wb") as file:
            claims = _claim_segments(task.tokens, parent=task.parent)
            places = _write_parts(_read_segments(Segments(source, task.size), claims, tables, task.limits), file)
        sys.stdout.buffer.write(msgspec.msgpack.encode(_texts(tables, places)))
        sys.stdout.buffer.flush()
    except (MisfitError, TraceError, OSError, OverflowError, ValueError):
        sys.exit(_FAILED)  # the first process meets the same, or reads the file in one piece


def _receive(helper: subprocess.Popen[bytes], file: IO[bytes]) -> Share:
    """What the second process read. Raises MisfitError where it gave up."""
    assert helper.stdout is not None
    try:
        texts = _TEXTS_DECODER.decode(helper.stdout.read())
    except msgspec.MsgspecError as broken:
        raise MisfitError from broken
    if helper.wait() != 0:
        raise MisfitError
    return _share(texts, file)


def _texts(tables: Tables, places: list[Place]) -> _Texts:
    return list(tables.names), list(tables.threads), list(tables.details)[1:], tables.triton_files, places


def _share(texts: _Texts, file: IO[bytes]) -> Share:
    names, threads, details, triton_files, places = texts
    segments = [place[0] for place in places]
    return Share(names, threads, details, triton_files, segments, part=lambda i: _read_part(file, places[i]))


# -- parts: what one process made of one segment


def _read_segments(segments: Segments, numbers: Iterable[int], tables: Tables, limits: Limits) -> Iterator[Part]:
    """Reads the segments of these numbers until the file ends. Raises MisfitError, and what EventStream raises."""
    events = 0
    for number in numbers:
        segment = segments.segment(number)
        if segment is None:
            return
        columns = Columns(tables)
        stream = EventStream(segment, limits, head=number == 0)
        for batch in stream:
            columns.add(batch)
            check_events(events + columns.events, limits)
        events += columns.events
        if stream.dropped:
            raise MisfitError  # a wrong cut loses events: what is lost without one is for a single reader to say
        yield Part(
            number=number,
            columns=tuple(
                tuple(getattr(group, f.name).drain() for f in fields(group))
                for group in (getattr(columns, name) for name in GROUPS)
            ),
            texts=(len(tables.names), len(tables.threads), len(tables.details) - 1),
            events=columns.events,
            timeless=columns.timeless,
            has_stacks=columns.has_stacks,
            has_call_stacks=columns.has_call_stacks,
            is_trace=columns.is_trace,
            header=stream.header,
            is_last=segment.is_last,
            truncated=stream.truncated,
            unclosed=stream.unclosed,
            bare=stream.bare,
            damage=segment.damage.value,
        )
        if segment.is_last:
            return


def _telling(parts: Iterable[Part], source: Source, on_read: OnRead | None) -> Iterator[Part]:
    """The parts; after each it is told how much of the file has been read."""
    for part in parts:
        if on_read is not None:
            on_read(source.share_read)
        yield part


def _write_parts(parts: Iterable[Part], file: IO[bytes]) -> list[Place]:
    """Writes the parts to the file, each as soon as it is there; their places. Raises OSError."""
    places: list[Place] = []
    at = 0
    for part in parts:
        data = _PART_ENCODER.encode(part)
        file.write(data)
        places.append((part.number, at, len(data)))
        at += len(data)
    file.flush()
    return places


def _read_part(file: IO[bytes], place: Place) -> Part:
    """The part at a place. Raises MisfitError where the file does not hold it."""
    _, at, size = place
    try:
        return _PART_DECODER.decode(os.pread(file.fileno(), size, at))
    except (msgspec.MsgspecError, OSError) as broken:
        raise MisfitError from broken


def _pack_array(array: object) -> object:
    if not isinstance(array, np.ndarray):
        raise NotImplementedError
    return array.dtype.str, array.tobytes()


def _unpack_array(kind: type, packed: tuple[str, bytes]) -> object:
    return packed if kind is object else np.frombuffer(packed[1], packed[0])


_TEXTS_DECODER = msgspec.msgpack.Decoder(_Texts)
_PART_ENCODER = msgspec.msgpack.Encoder(enc_hook=_pack_array)
_PART_DECODER = msgspec.msgpack.Decoder(Part, dec_hook=_unpack_array)


# -- the columns that all parts make together


class _Numbers:
    """From one process's numbers of texts to those of all, in the order in which texts first occur in the file."""

    def __init__(self, share: Share) -> None:
        self._texts = (share.names, share.threads, share.details)
        # One more at the end, where NONE points.
        self.of = tuple(np.full(len(texts) + 1, NONE, np.int32) for texts in self._texts)
        self._sizes = [0, 0, 0]

    def extend(self, sizes: Sizes, tables: Tables) -> None:
        """Enters into the tables the texts that the process met since the last call, up to these sizes."""
        for i, table in enumerate((tables.names, tables.threads, tables.details)):
            texts = self._texts[i][self._sizes[i] : sizes[i]]
            self.of[i][self._sizes[i] : sizes[i]] = [table[text] for text in texts]  # type: ignore[index]
            self._sizes[i] = sizes[i]


def _merge(shares: list[Share]) -> tuple[Columns, Header, bool, Damage]:
    """(columns, header, truncated, damage). Raises MisfitError unless the parts make up one file.

    Holds one part at a time.
    """
    columns = Columns()
    queue: list[tuple[int, int, Share, _Numbers]] = []
    for share in shares:
        columns.tables.triton_files.update(share.triton_files)
        numbers = _Numbers(share)
        queue += [(segment, place, share, numbers) for place, segment in enumerate(share.segments)]
    queue.sort(key=lambda item: item[0])
    if not queue or [segment for segment, *_ in queue] != list(range(len(queue))):
        raise MisfitError
    first = last = None
    for _, place, share, numbers in queue:
        last = share.part(place)
        first = first or last
        numbers.extend(last.texts, columns.tables)
        _append(columns, last, numbers.of)
        columns.events += last.events
        columns.timeless += last.timeless
        columns.has_stacks |= last.has_stacks
        columns.has_call_stacks |= last.has_call_stacks
        columns.is_trace |= last.is_trace
    assert first is not None and last is not None
    if not last.is_last:
        raise MisfitError
    truncated = last.truncated or (last.unclosed and not first.bare)
    return columns, first.header.or_else(last.header), truncated, Damage(last.damage)


def _append(columns: Columns, part: Part, numbers: tuple[Ints, ...]) -> None:
    of = dict(zip(("name", "thread", "detail"), numbers, strict=True))
    for name, values in zip(GROUPS, part.columns, strict=True):
        group = getattr(columns, name)
        for each, value in zip(fields(group), values, strict=True):
            column: Column = getattr(group, each.name)
            if len(value):
                column.append(of[each.name][value] if each.name in of else value)
