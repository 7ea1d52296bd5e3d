"""The traces inside a tar or zip archive, such as those of one job's ranks, each as packed bytes of its own.

`tape` and Python's own `zipfile` read the archives. No name of a member is ever a path here: members
are handed on as (name, bytes), and whoever keeps them says where.
"""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import IO, Protocol, cast

from isal import igzip, isal_zlib

from profiler.trace.errors import TraceError
from profiler.trace.read.archive import BLANKS, TRACES, is_tar, may_be_trace
from profiler.trace.read.formats.kinds import BINARY_LOOK_BYTES, SQLITE, is_binary, is_rocprofv3
from profiler.trace.read.formats.unzstd import ZSTD, Unzstd, is_zstd
from profiler.trace.read.gunzip import GZIP
from profiler.trace.read.limits import CHUNK_BYTES, RATIO_FLOOR_BYTES, Limits
from profiler.trace.read.tape import files_on

ZIP = b"PK\x03\x04"
ZIPS = (ZIP, b"PK\x05\x06")
"""How a zip begins: the second one holds nothing."""
MAX_TRACES = 64
MOST_STRAY_BYTES = MAX_TRACES * CHUNK_BYTES
"""Unpacked to see that files of an archive, which are called like traces, are none."""
FIRST_BYTES = 64
"""Read of each such file before more is."""
MOST_SCANNED = 10_000
"""Files of a zip whose names are looked at."""
_NO_TRACES = (".et.json", ".et.json.gz", ".et.json.zst")
_IsalError = cast("type[Exception]", isal_zlib.error)  # the stub has an instance
BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error, _IsalError, lzma.LZMAError, struct.error,
    RuntimeError, NotImplementedError, ValueError, IndexError, OverflowError,
)  # fmt: skip
"""What the libraries raise on archives that are damaged, encrypted or packed in a way that they do not know: of a zip
whose names are not UTF-8, or empty, ValueError and IndexError as well."""

_PACKINGS = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "LZMA"}
_KEYS = (b'"traceEvents"', b'"deviceProperties"')
"""One of them is in the first chunk of every trace that torch.profiler writes: the second stands before the events."""


class _Content(Protocol):
    def read(self, count: int, /) -> bytes: ...


def is_archive(path: Path) -> bool:
    """Whether a file is a tar, packed with gzip, zstd or not, or a zip, by its first bytes."""
    with path.open("rb") as file:
        head = file.read(CHUNK_BYTES)
    if head.startswith(ZIPS):
        return True
    if head.startswith(GZIP) or is_zstd(head):
        with suppress(*BROKEN, TraceError), _unpacked(path) as unpacked:
            head = unpacked.read(tarfile.BLOCKSIZE)
    return is_tar(head)


def is_zip(path: Path) -> bool:
    """By its first bytes."""
    with path.open("rb") as file:
        return file.read(len(ZIP)).startswith(ZIPS)


def is_no_text(path: Path) -> bool:
    """Whether a file is no region's text, but what a trace may be or another binary file: by its first bytes."""
    with path.open("rb") as file:
        head = file.read(BINARY_LOOK_BYTES)
    return may_be_trace(head) or head.startswith(ZIPS) or is_binary(head)


def traces_in(
    path: Path, limits: Limits, strays: list[str] | None = None
) -> Iterator[tuple[str, Iterator[bytes]]]:  # fmt: skip
    """(name, packed bytes in chunks) of every trace of an archive, in its order. Take each before the next.

    Traces are what has a trace's name (archive.TRACES) and begins like one; strays: takes the names of the others of
    these, such as config.json. Raises TraceError where the archive breaks off or cannot be unpacked, has more than
    MAX_TRACES, or more bytes than a trace may have.
    """
    size, strayed = path.stat().st_size, Strays()
    members = _zipped(path) if is_zip(path) else _taped(path, limits)
    total = taken = 0
    try:
        for name, content in members:

            def chunks(content: _Content = content, whole: int = taken) -> Iterator[bytes]:
                nonlocal total
                count = FIRST_BYTES
                try:
                    while data := content.read(count):
                        count = CHUNK_BYTES
                        total += len(data)
                        _check(total, size, limits)
                        yield data
                except BROKEN as error:
                    raise breaks_off(whole, error) from error

            rest = chunks()
            first = next(rest, b"")
            if may_be_trace(first):
                first += next(rest, b"")
            if not strayed.is_trace(first):
                if strays is not None:
                    strays.append(name)
                continue
            taken += 1
            if taken > MAX_TRACES:
                raise TraceError(
                    "trace-too-large", f"The archive holds more than {MAX_TRACES} traces.", "Give fewer ranks at once."
                )
            yield name, _packed(first, rest)
    except BROKEN as error:
        raise breaks_off(taken, error) from error


class Strays:
    """Tells the traces of an archive from other files that are called like them, of which only so much is unpacked."""

    def __init__(self) -> None:
        self._bytes = 0

    def is_trace(self, first: bytes) -> bool:
        """By the first bytes of a file, which may be packed. What cannot be unpacked counts: its reader says so.

        Raises TraceError where too much was unpacked in vain.
        """
        unpacked = _unpacked_head(first)
        if unpacked is None or _begins_as_trace(unpacked):
            return True
        self._bytes += len(unpacked) if unpacked is first else len(first) + len(unpacked)
        if self._bytes > MOST_STRAY_BYTES:
            raise TraceError(
                "trace-too-large",
                "The archive holds many files that are called like traces and are none.",
                "Give the traces alone.",
            )
        return False


def _unpacked_head(first: bytes) -> bytes | None:
    """What a file begins with, unpacked where it is packed; None where that fails."""
    try:
        if first.startswith(GZIP):
            return isal_zlib.decompressobj(wbits=31).decompress(first, CHUNK_BYTES)
        return Unzstd(_Once(first)).head if is_zstd(first) else first
    except (_IsalError, TraceError):
        return None


def _begins_as_trace(first: bytes) -> bool:
    if first.startswith(SQLITE) or is_rocprofv3(first):
        return True
    return first.lstrip(BLANKS).startswith(b"[") or any(key in first for key in _KEYS)


class _Once:
    """These bytes and no more, as a stream of compressed ones."""

    truncated = False

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        data, self._data = self._data, b""
        return data


def breaks_off(taken: int, error: Exception) -> TraceError:
    """That an archive cannot be unpacked behind its first traces."""
    behind = f" behind its {taken} first trace{'s' * (taken != 1)}" if taken else ""
    return TraceError(
        "trace-truncated",
        f"The archive cannot be unpacked{behind}: {error}.",
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


def wanted(name: str) -> str:
    """The last part of a member's name where it may be a trace's; "" for others, such as macOS's second files."""
    base = name.replace("\\", "/").rsplit("/", 1)[-1].replace("\0", "")
    lower = base.lower()
    return base if lower.endswith(TRACES) and not lower.endswith(_NO_TRACES) and not base.startswith("._") else ""


def _zipped(path: Path) -> Iterator[tuple[str, _Content]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if name := wanted(info.filename):
                check_packing(info)
                with archive.open(info) as content:
                    yield name, content


def check_packing(info: zipfile.ZipInfo) -> None:
    """Raises TraceError for what is encrypted, and what zipfile unpacks whole, however little is asked for."""
    if info.flag_bits & 1:
        raise TraceError(
            "trace-not-a-trace",
            "The archive is encrypted: it opens with a password only.",
            "Pack it without a password, or give the .json or .json.gz files themselves.",
        )
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        packing = _PACKINGS.get(info.compress_type, f"method {info.compress_type}")
        raise TraceError(
            "trace-not-a-trace",
            f"A trace in the archive is packed with {packing}, which is not unpacked here.",
            "Pack it with deflate, which zip does unless told otherwise, or give the .json or .json.gz files.",
        )


def _taped(path: Path, limits: Limits) -> Iterator[tuple[str, _Content]]:
    with _unpacked(path) as opened:
        for name, content in files_on(_Counted(opened, path.stat().st_size, limits)):
            if kept := wanted(name):
                yield kept, content


@contextmanager
def _unpacked(path: Path) -> Iterator[_Content]:
    """A file's bytes, unpacked where it is gzip or zstd."""
    with path.open("rb") as file:
        head = file.read(len(ZSTD))
        if is_zstd(head):
            file.seek(0)
            yield _Unzstd(file)
            return
    if head.startswith(GZIP):
        with cast("IO[bytes]", igzip.open(path)) as unpacked:  # type: ignore[no-untyped-call]
            yield unpacked
        return
    with path.open("rb") as plain:
        yield plain


class _Unzstd:
    """A zstd file, of which fewer bytes than asked for come only at its end. Raises EOFError where it breaks off."""

    def __init__(self, file: IO[bytes]) -> None:
        self._stream = Unzstd(_Chunks(file))
        self._waiting = b""

    def read(self, count: int, /) -> bytes:
        while len(self._waiting) < count and (data := self._stream.read()):
            self._waiting += data
        if len(self._waiting) < count and self._stream.truncated:
            raise EOFError("the zstd stream breaks off")
        data, self._waiting = self._waiting[:count], self._waiting[count:]
        return data


class _Chunks:
    """A file as a stream of compressed bytes."""

    truncated = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self) -> bytes:
        return self._file.read(CHUNK_BYTES)


class _Counted:
    """What a tape is read from: within the limits, whatever is skipped of it."""

    def __init__(self, file: _Content, size: int, limits: Limits) -> None:
        self._file, self._size, self._limits, self._total = file, size, limits, 0

    def read(self, count: int, /) -> bytes:
        data = self._file.read(count)
        self._total += len(data)
        _check(self._total, self._size, self._limits)
        return data


def _packed(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """The same as gzip; what is packed stays as it is."""
    if first.startswith(GZIP) or is_zstd(first):
        yield first
        yield from rest
        return
    packer = isal_zlib.compressobj(level=1, wbits=31)
    for chunk in chain((first,), rest):
        if data := packer.compress(chunk):
            yield data
    yield packer.flush()
