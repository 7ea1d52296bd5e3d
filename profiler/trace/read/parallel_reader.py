"""A second process that reads the same file: half of the segments each, whoever is free takes the next.

Numbers of segments lie in a pipe that both read: a process that starts late, or shares its core, takes fewer.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import msgspec

from profiler.trace.errors import Damage, TraceError
from profiler.trace.read.columns import Columns, Tables, Thread
from profiler.trace.read.events import Header
from profiler.trace.read.limits import Limits
from profiler.trace.read.part import Share, merge, parts_of
from profiler.trace.read.segment import MisfitError, Segments
from profiler.trace.read.segment_spool import Place, get, put
from profiler.trace.read.source import Source

SEGMENT_BYTES = 4 * 1024 * 1024
"""Some 20 ms of decoding: what one process may wait for the other at the end."""

PACKED_BYTES = 6 * 1024 * 1024
PLAIN_BYTES = 64 * 1024 * 1024
"""Size of a file from which a second process, which takes 0.15 to 0.3 s to start, pays: compressed, and plain."""

_TOKEN = struct.Struct("<I")
_TOKENS = 15_000
"""As many as a pipe of 64 KiB holds."""

_FAILED = 3

_TEXTS = msgspec.msgpack.Decoder(tuple[list[str], list[Thread], list[bytes], dict[str, str], list[Place]])

_START = "import sys; sys.path[:] = {path!r}; from profiler.trace.read.parallel_reader import main; main()"


def pays(path: Path, processes: int | None) -> bool:
    """Whether two processes read this file faster. processes: how many may be used; None: one a core."""
    if not sys.platform.startswith("linux"):
        return False  # where a pipe holds less is not tried
    if processes is None:
        processes = len(os.sched_getaffinity(0))
    if processes < 2 or not sys.executable:
        return False
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return path.stat().st_size >= (PACKED_BYTES if packed else PLAIN_BYTES)


def read_in_two(
    path: Path, limits: Limits, segment_bytes: int = SEGMENT_BYTES
) -> tuple[Columns, Header, int, bool, Damage] | None:
    """(columns, header, events dropped, truncated, damage), or None where the file must be read in one piece.

    Raises what EventStream raises.
    """
    size = max(segment_bytes, limits.max_bytes // _TOKENS + 1)
    try:
        with tempfile.TemporaryFile() as mine, tempfile.TemporaryFile() as theirs:
            return _read(path, limits, size, mine, theirs)
    except (MisfitError, OSError):
        return None  # one process needs no room for parts, and says what else is wrong


def _read(
    path: Path, limits: Limits, size: int, mine: IO[bytes], theirs: IO[bytes]
) -> tuple[Columns, Header, int, bool, Damage] | None:
    reading, writing = os.pipe()
    try:
        twin = _start(path, limits, size, reading, theirs) if _fill(writing) else None
        if twin is None:
            return None
        with twin:
            try:
                with Source(path, limits) as source:
                    tables = Tables()
                    claims = _claims(reading, first=True)
                    places = put(parts_of(Segments(source, size), claims, tables, limits), mine)
                shares = [_share(_texts(tables, places), mine), _receive(twin, theirs)]
                columns, header, truncated, damage = merge(shares)
                return columns, header, 0, truncated, damage
            finally:
                twin.kill()
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


def _start(path: Path, limits: Limits, size: int, tokens: int, parts: IO[bytes]) -> subprocess.Popen[bytes] | None:
    """The second process; None where the system allows none."""
    home = str(Path(__file__).resolve().parents[3])
    pipes = {"tokens": tokens, "parts": parts.fileno(), "parent": os.getpid()}
    task = json.dumps({"path": str(path), "limits": asdict(limits), "size": size, **pipes})
    # Without site: the path is known, and looking for it takes as long as numpy.
    command = [sys.executable, "-I", "-S", "-c", _START.format(path=[home, *sys.path]), task]
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=[tokens, parts.fileno()]
        )
    except OSError:
        return None


def _claims(tokens: int, first: bool = False, parent: int | None = None) -> Iterator[int]:
    """Numbers of segments, each given to one process only; 0 to the one that asks for the first."""
    if first:
        yield 0
    while parent is None or os.getppid() == parent:
        token = os.read(tokens, _TOKEN.size)
        if len(token) < _TOKEN.size:
            return
        yield _TOKEN.unpack(token)[0]


def _texts(tables: Tables, places: list[Place]) -> tuple[object, ...]:
    return list(tables.names), list(tables.threads), list(tables.details)[1:], tables.triton_files, places


def _share(texts: Any, file: IO[bytes]) -> Share:
    names, threads, details, triton_files, places = texts
    segments = [place[0] for place in places]
    return Share(names, threads, details, triton_files, segments, part=lambda i: get(file, places[i]))


def _receive(twin: subprocess.Popen[bytes], file: IO[bytes]) -> Share:
    """What the second process found. Raises MisfitError where it gave up."""
    assert twin.stdout is not None
    try:
        texts = _TEXTS.decode(twin.stdout.read())
    except msgspec.MsgspecError as broken:
        raise MisfitError from broken
    if twin.wait() != 0:
        raise MisfitError
    return _share(texts, file)


def main() -> None:
    """The second process: reads what is left to claim, then says where its columns stand."""
    task = json.loads(sys.argv[1])
    limits = Limits(**task["limits"])
    tables = Tables()
    try:
        with Source(Path(task["path"]), limits) as source, os.fdopen(task["parts"], "wb") as file:
            claims = _claims(task["tokens"], parent=task["parent"])
            places = put(parts_of(Segments(source, task["size"]), claims, tables, limits), file)
        sys.stdout.buffer.write(msgspec.msgpack.encode(_texts(tables, places)))
        sys.stdout.buffer.flush()
    except (MisfitError, TraceError, OSError, OverflowError, ValueError):
        sys.exit(_FAILED)  # the first process meets the same, or reads the file in one piece
