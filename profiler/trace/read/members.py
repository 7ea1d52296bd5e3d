"""The traces inside a tar or zip archive, such as those of one job's ranks, each as gzip bytes of its own.

Python's own `tarfile` (as a stream) and `zipfile` read the archives. No name of a member is ever a path here: members
are handed on as (name, bytes), and whoever keeps them says where.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from isal import igzip, isal_zlib

from profiler.trace.errors import TraceError
from profiler.trace.read.archive import is_tar
from profiler.trace.read.gunzip import GZIP
from profiler.trace.read.limits import CHUNK_BYTES, RATIO_FLOOR_BYTES, Limits

ZIP = b"PK\x03\x04"
MAX_TRACES = 64
_TRACES = (".json", ".json.gz")
_NO_TRACES = (".et.json", ".et.json.gz")
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error, RuntimeError, NotImplementedError)
"""What the libraries raise on archives that are damaged, encrypted or packed in a way that they do not know."""


def is_archive(path: Path) -> bool:
    """Whether a file is a tar, packed with gzip or not, or a zip, by its first bytes."""
    with path.open("rb") as file:
        head = file.read(CHUNK_BYTES)
    if head.startswith(ZIP):
        return True
    if head.startswith(GZIP):
        with suppress(*_BROKEN), _gunzip(path) as unpacked:
            head = unpacked.read(tarfile.BLOCKSIZE)
    return is_tar(head)


def is_zip(path: Path) -> bool:
    """By its first bytes."""
    with path.open("rb") as file:
        return file.read(len(ZIP)) == ZIP


def traces_in(path: Path, limits: Limits) -> Iterator[tuple[str, Iterator[bytes]]]:
    """(name, gzip bytes in chunks) of every .json and .json.gz of an archive, in its order. Take each before the next.

    Raises TraceError where the archive breaks off or cannot be unpacked, has more than MAX_TRACES of them, or more
    bytes than a trace may have.
    """
    size = path.stat().st_size
    members = _zipped(path) if is_zip(path) else _taped(path, limits)
    total = taken = 0
    try:
        for name, content in members:
            taken += 1
            if taken > MAX_TRACES:
                raise TraceError(
                    "trace-too-large", f"The archive holds more than {MAX_TRACES} traces.", "Give fewer ranks at once."
                )

            def chunks(content: IO[bytes] = content, whole: int = taken - 1) -> Iterator[bytes]:
                nonlocal total
                try:
                    while data := content.read(CHUNK_BYTES):
                        total += len(data)
                        _check(total, size, limits)
                        yield data
                except _BROKEN as error:
                    raise _breaks_off(whole, error) from error

            yield name, _packed(chunks())
    except _BROKEN as error:
        raise _breaks_off(taken, error) from error


def _breaks_off(taken: int, error: Exception) -> TraceError:
    return TraceError(
        "trace-truncated",
        f"The archive cannot be unpacked behind its {taken} first trace{'s' * (taken != 1)}: {error}.",
        "Copy it again, or give the .json or .json.gz files themselves.",
    )


def _check(total: int, size: int, limits: Limits) -> None:
    """Raises TraceError for more bytes than a trace may have, of a file of so many. A member that is gzip is measured
    again when it is read."""
    if total > limits.max_bytes or (total > RATIO_FLOOR_BYTES and total > limits.max_ratio * size):
        raise TraceError(
            "trace-too-large",
            f"The archive unpacks to more than {limits.max_bytes} bytes, or to what no trace does.",
            "Give fewer ranks at once, or record fewer steps.",
        )


def _wanted(name: str) -> str:
    """The last part of a member's name where it is a trace; "" for what is none, such as macOS's second files."""
    base = name.replace("\\", "/").rsplit("/", 1)[-1]
    lower = base.lower()
    return base if lower.endswith(_TRACES) and not lower.endswith(_NO_TRACES) and not base.startswith("._") else ""


def _zipped(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.is_dir() and (name := _wanted(info.filename)):
                with archive.open(info) as content:
                    yield name, content


def _taped(path: Path, limits: Limits) -> Iterator[tuple[str, IO[bytes]]]:
    with path.open("rb") as file:
        packed = file.read(len(GZIP)) == GZIP
    opened: IO[bytes] = _gunzip(path) if packed else path.open("rb")
    counted = cast("IO[bytes]", _Counted(opened, path.stat().st_size, limits))
    with opened, tarfile.open(fileobj=counted, mode="r|") as tape:
        for member in tape:
            content = tape.extractfile(member) if member.isreg() and (name := _wanted(member.name)) else None
            if content is not None:
                yield name, content


def _gunzip(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", igzip.open(path))  # type: ignore[no-untyped-call]


class _Counted:
    """What a tape is read from: within the limits, whatever is skipped of it."""

    def __init__(self, file: IO[bytes], size: int, limits: Limits) -> None:
        self._file, self._size, self._limits, self._total = file, size, limits, 0

    def read(self, count: int = -1) -> bytes:
        data = self._file.read(count)
        self._total += len(data)
        _check(self._total, self._size, self._limits)
        return data


def _packed(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same as gzip; what is gzip stays as it is."""
    first = next(chunks, b"")
    if first.startswith(GZIP):
        yield first
        yield from chunks
        return
    packer = isal_zlib.compressobj(level=1, wbits=31)
    if data := packer.compress(first):
        yield data
    for chunk in chunks:
        if data := packer.compress(chunk):
            yield data
    yield packer.flush()
