"""The traces inside a tar or zip archive, such as those of one job's ranks, each as gzip bytes of its own.

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
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import IO, Protocol, cast

from isal import igzip, isal_zlib

from profiler.trace.errors import TraceError
from profiler.trace.read.archive import is_tar
from profiler.trace.read.gunzip import GZIP
from profiler.trace.read.limits import CHUNK_BYTES, RATIO_FLOOR_BYTES, Limits
from profiler.trace.read.tape import files_on

ZIP = b"PK\x03\x04"
MAX_TRACES = 64
_TRACES = (".json", ".json.gz")
_NO_TRACES = (".et.json", ".et.json.gz")
_IsalError = cast("type[Exception]", isal_zlib.error)  # the stub has an instance
_BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error, _IsalError, lzma.LZMAError, struct.error,
    RuntimeError, NotImplementedError, ValueError, IndexError, OverflowError,
)  # fmt: skip
"""What the libraries raise on archives that are damaged, encrypted or packed in a way that they do not know: of a zip
whose names are not UTF-8, or empty, ValueError and IndexError as well."""

_PACKINGS = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "LZMA"}
_BLANKS = b"\xef\xbb\xbf \t\r\n"
_KEYS = (b'"traceEvents"', b'"deviceProperties"')
"""One of them is in the first chunk of every trace that torch.profiler writes: the second stands before the events."""


class _Content(Protocol):
    def read(self, count: int, /) -> bytes: ...


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


def traces_in(
    path: Path, limits: Limits, strays: list[str] | None = None
) -> Iterator[tuple[str, Iterator[bytes]]]:  # fmt: skip
    """(name, gzip bytes in chunks) of every trace of an archive, in its order. Take each before the next.

    Traces are what is called .json or .json.gz and begins like one; strays: takes the names of the others of these,
    such as config.json. Raises TraceError where the archive breaks off or cannot be unpacked, has more than MAX_TRACES,
    or more bytes than a trace may have.
    """
    size = path.stat().st_size
    members = _zipped(path) if is_zip(path) else _taped(path, limits)
    total = taken = 0
    try:
        for name, content in members:

            def chunks(content: _Content = content, whole: int = taken) -> Iterator[bytes]:
                nonlocal total
                try:
                    while data := content.read(CHUNK_BYTES):
                        total += len(data)
                        _check(total, size, limits)
                        yield data
                except _BROKEN as error:
                    raise _breaks_off(whole, error) from error

            rest = chunks()
            first = next(rest, b"")
            if not _begins_as_trace(first):
                if strays is not None:
                    strays.append(name)
                continue
            taken += 1
            if taken > MAX_TRACES:
                raise TraceError(
                    "trace-too-large", f"The archive holds more than {MAX_TRACES} traces.", "Give fewer ranks at once."
                )
            yield name, _packed(first, rest)
    except _BROKEN as error:
        raise _breaks_off(taken, error) from error


def _begins_as_trace(first: bytes) -> bool:
    """By the first bytes of a file, which may be gzip. Gzip that cannot be unpacked counts: its reader says so."""
    if first.startswith(GZIP):
        try:
            first = isal_zlib.decompressobj(wbits=31).decompress(first, CHUNK_BYTES)
        except _IsalError:
            return True
    return first.lstrip(_BLANKS).startswith(b"[") or any(key in first for key in _KEYS)


def _breaks_off(taken: int, error: Exception) -> TraceError:
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


def _wanted(name: str) -> str:
    """The last part of a member's name where it may be a trace; "" for others, such as macOS's second files."""
    base = name.replace("\\", "/").rsplit("/", 1)[-1].replace("\0", "")
    lower = base.lower()
    return base if lower.endswith(_TRACES) and not lower.endswith(_NO_TRACES) and not base.startswith("._") else ""


def _zipped(path: Path) -> Iterator[tuple[str, _Content]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if name := _wanted(info.filename):
                _check_packing(info)
                with archive.open(info) as content:
                    yield name, content


def _check_packing(info: zipfile.ZipInfo) -> None:
    """Raises TraceError for what zipfile unpacks whole, however little is asked for."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        packing = _PACKINGS.get(info.compress_type, f"method {info.compress_type}")
        raise TraceError(
            "trace-not-a-trace",
            f"A trace in the archive is packed with {packing}, which is not unpacked here.",
            "Pack it with deflate, which zip does unless told otherwise, or give the .json or .json.gz files.",
        )


def _taped(path: Path, limits: Limits) -> Iterator[tuple[str, _Content]]:
    with path.open("rb") as file:
        packed = file.read(len(GZIP)) == GZIP
    with _gunzip(path) if packed else path.open("rb") as opened:
        for name, content in files_on(_Counted(opened, path.stat().st_size, limits)):
            if wanted := _wanted(name):
                yield wanted, content


def _gunzip(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", igzip.open(path))  # type: ignore[no-untyped-call]


class _Counted:
    """What a tape is read from: within the limits, whatever is skipped of it."""

    def __init__(self, file: IO[bytes], size: int, limits: Limits) -> None:
        self._file, self._size, self._limits, self._total = file, size, limits, 0

    def read(self, count: int, /) -> bytes:
        data = self._file.read(count)
        self._total += len(data)
        _check(self._total, self._size, self._limits)
        return data


def _packed(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """The same as gzip; what is gzip stays as it is."""
    if first.startswith(GZIP):
        yield first
        yield from rest
        return
    packer = isal_zlib.compressobj(level=1, wbits=31)
    for chunk in chain((first,), rest):
        if data := packer.compress(chunk):
            yield data
    yield packer.flush()
